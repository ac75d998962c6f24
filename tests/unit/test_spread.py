"""Tests in several worker processes: what stays together, and what still reaches the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conftest import NO_SKIPS
from tests.spread import group, import_in_turn, workers

PLUGINS = ("-p", "tests.conftest", "-p", "no:asyncio", "-p", "no:schemathesis")
PROBE = """
import os
import pytest

@pytest.mark.parametrize("site", ["a", "b"], ids="site={}".format)
@pytest.mark.parametrize("number", range(4))
def test_tells_its_process(figures, site, number):
    figures.append(f"{site} in {os.getpid()}")

def test_needs_what_is_missing():
    pytest.skip("KUBEBUILDER_ASSETS is not set: not tried")
"""


def test_property_tests_of_all_files_have_a_profile_without_a_deadline() -> None:
    assert settings().deadline is None
    assert settings().derandomize or os.environ["HYPOTHESIS_PROFILE"] == "long"


def test_half_as_many_more_processes_than_cores_run() -> None:
    assert [workers(cores) for cores in (1, 2, 3, 8)] == [2, 3, 5, 12]


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/acceptance/e2e/test_main_job.py::test_x[site=real]", "tests/acceptance/e2e on real"),
        ("tests/acceptance/e2e/test_versions.py::test_x[site=1.33-Job]", "tests/acceptance/e2e on 1.33"),
        (
            "tests/acceptance/gate/test_ways.py::test_x[site=mutating-Job-PUT]",
            "tests/acceptance/gate on mutating",
        ),
        (
            "tests/acceptance/gate/test_ways.py::test_x[Job-site=mutating]",
            "tests/acceptance/gate on mutating",
        ),
        ("tests/acceptance/e2e/test_owners.py::test_x[real]", "tests/acceptance/e2e/test_owners.py on real"),
        (
            "tests/acceptance/e2e/test_writes.py::test_x[as-1.33]",
            "tests/acceptance/e2e/test_writes.py on as-1.33",
        ),
        ("tests/acceptance/e2e/test_outages.py::test_x[frozen]", "tests/acceptance/e2e/test_outages.py"),
        ("tests/unit/core/test_quota.py::test_x", "tests/unit/core/test_quota.py"),
        ("tests/unit/core/test_laws.py::TestAnything::runTest", "tests/unit/core/test_laws.py"),
    ],
)
def test_tests_of_one_site_are_one_group(nodeid: str, expected: str) -> None:
    assert group(nodeid) == expected


def test_each_worker_begins_with_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(sys, "imported_in_turn", imported, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for worker in range(2):
        folder = tmp_path / f"turn_{worker}"
        folder.mkdir()
        for name in "abc":
            (folder / f"test_{name}.py").write_text(f"import sys; sys.imported_in_turn.append('{name}')")
        (folder / "test_d.py").write_text("import pytest; pytest.skip('not here', allow_module_level=True)")
        import_in_turn([f"turn_{worker}"], tmp_path, worker, 2)
    assert imported == ["a", "b", "c", "c", "a", "b"]


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    folder = tmp_path / "probe"
    folder.mkdir()
    (folder / "test_probe.py").write_text(PROBE)
    return tmp_path


def _run(probe: Path, **environment: str) -> tuple[int, str]:
    known = {name: value for name, value in os.environ.items() if name != NO_SKIPS}
    known["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-q", "-n", "2"), *PLUGINS],
        cwd=probe,
        env={**known, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.acceptance
def test_a_site_is_in_one_worker_and_its_figures_and_skips_are_reported(probe: Path) -> None:
    code, out = _run(probe)
    assert code == 0, out
    told = [line for line in out.splitlines() if " in " in line and line[:2] in ("a ", "b ")]
    assert len(told) == 8
    assert len(set(told)) == 2, "each site in one process"
    assert len({line[2:] for line in told}) == 2, "the two sites in two"
    assert "SKIPPED 1 tests: KUBEBUILDER_ASSETS is not set: nothing was tried on a real" in out


@pytest.mark.acceptance
def test_where_nothing_may_be_skipped_a_skip_fails_in_a_worker_too(probe: Path) -> None:
    code, out = _run(probe, **{NO_SKIPS: "1"})
    assert code == 1, out
    assert f"was skipped although {NO_SKIPS} is set" in out
