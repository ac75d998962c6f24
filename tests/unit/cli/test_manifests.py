"""`queuectl manifests`: prints or writes what the installation needs for each kind of job."""

from __future__ import annotations

from pathlib import Path

import yaml

from queuectl.kinds.manifests import manifests
from tests.job_kinds import JOB_KINDS
from tests.unit.cli.conftest import Run


def test_the_manifests_that_depend_on_kinds_are_printed_without_the_optional_ones(run: Run) -> None:
    assert _printed(run("manifests").stdout) == _objects("gate/", "rbac/")
    more = run("manifests", "--component", "mutating", "--component", "kueue-labels").stdout
    assert _printed(more) == _objects("gate/", "kueue-labels/", "mutating/", "rbac/")


def test_the_manifests_honour_kueues_names_of_pods_as_the_configuration_says(
    run: Run, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"kinds": ["Pod"], "compatibility": {"kueueLabels": True}}))
    made = run("manifests", "--config", str(config), "--component", "mutating")
    assert "docs/from-kueue.md" in made.stderr  # what is printed is not the whole gate with Kueue's labels
    names = [name for _, name in _printed(made.stdout) if name.endswith("-pods-of-kueue")]
    assert names == ["queuectl-ungated-pods-of-kueue", "queuectl-gate-pods-of-kueue"]
    assert run("manifests").stderr == run("manifests", "--config", str(config), str(tmp_path)).stderr == ""


def test_the_manifests_are_written_below_a_folder(run: Run, tmp_path: Path) -> None:
    assert run("manifests", str(tmp_path / "out")).exit_code == 0
    written = {
        path.relative_to(tmp_path / "out").as_posix(): path.read_text() for path in tmp_path.rglob("*.yaml")
    }
    assert written == manifests(JOB_KINDS)


def test_a_folder_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gate").write_text("")
    result = run("manifests", str(tmp_path))
    assert result.exit_code == 2
    assert str(tmp_path / "gate") in result.stderr


def _objects(*folders: str) -> list[tuple[str, str]]:
    files = {name: text for name, text in manifests(JOB_KINDS).items() if "kustomization" not in name}
    return _printed("---\n".join(text for name, text in files.items() if name.startswith(folders)))


def _printed(text: str) -> list[tuple[str, str]]:
    found = [(thing["kind"], thing["metadata"]["name"]) for thing in yaml.safe_load_all(text)]
    assert found
    return found
