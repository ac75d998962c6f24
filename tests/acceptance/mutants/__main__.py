"""Run the fast tests of the core on each planted bug, and report bugs that no test catches: `make mutants`.

On a bug outside the core the tests that its patch names are run.

Each bug is applied to its own copy of the checkout. The tests run until the first failure. Without a bug they
must pass. This takes minutes. Exit status 1: a bug was not caught, or a patch does not apply.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.acceptance.mutants.patches import CHECKOUT, FOLDER, DoesNotApply, Patch, all_patches

SLOW: Final = "test_late_channels.py"
"""Takes long, and no rule depends on it alone."""
REST: Final = (
    "tests/unit/conformance",
    "tests/unit/scenarios",
    "tests/unit/simulation",
    "tests/unit/answers",
)
PLUGINS: Final = ("pytest_asyncio.plugin", "_hypothesis_pytestplugin")
"""All plugins that the tests need. Loading the others takes longer than some bugs take to be caught."""
DEADLINE: Final = 900
"""Seconds after which a run is stopped. The bug counts as caught: a test did not end."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?::[^\n]*?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    caught_by: str | None
    """Name of the first test that failed; None: no test failed."""
    seconds: float
    trouble: str = ""
    """Why the tests did not run."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.acceptance.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only bugs whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="parallel processes (default: 2)")
    parser.add_argument(
        "--renew", action="store_true", help="rewrite the patches as diffs of the current code"
    )
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    patches = [
        patch
        for patch in all_patches()
        if not options.names or any(name in patch.name for name in options.names)
    ]
    if not patches:
        parser.error(f"no name of a planted bug contains {' or '.join(options.names)}")
    if options.renew:
        for patch in patches:
            text = (CHECKOUT / patch.path).read_text()
            (FOLDER / f"{patch.name}.patch").write_text(patch.renewed(text))
        return 0
    with tempfile.TemporaryDirectory(prefix="queuectl-mutants-") as folder:
        console.print("running the tests without a bug …")
        named = {test for patch in patches for test in patch.tests}
        baseline = _run(Path(folder), None, sorted(named))
        if baseline.caught_by or baseline.trouble:
            console.print(
                f"the tests fail without a bug: {baseline.caught_by or baseline.trouble}", style="bold red"
            )
            return 1
        console.print(f"passed in {baseline.seconds:.0f} s; {len(patches)} planted bugs")
        found = _run_all(Path(folder), patches, options.jobs, console)
    console.print(_table(found))
    survived = [patch.name for patch, result in found if result.caught_by is None]
    if survived:
        console.print(f"{len(survived)} of {len(found)} not caught: {', '.join(survived)}", style="bold red")
        return 1
    console.print(f"all {len(found)} caught", style="bold green")
    return 0


def _run_all(folder: Path, patches: list[Patch], jobs: int, console: Console) -> list[tuple[Patch, Result]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: dict[str, Result] = {}
    with Progress(*columns, console=console) as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("caught", total=len(patches))
        runs = {pool.submit(_run, folder, patch): patch for patch in patches}
        for run in as_completed(runs):
            patch, result = runs[run], run.result()
            results[patch.name] = result
            if result.caught_by is None:
                bar.console.print(f"survived: {patch.name} {result.trouble}", style="red")
            elif not console.is_terminal:
                bar.console.print(f"{patch.name}: {result.caught_by}")
            bar.advance(task)
    return [(patch, results[patch.name]) for patch in patches]


def _run(folder: Path, patch: Patch | None, named: Sequence[str] = ()) -> Result:
    """Run the tests on a copy with the bug, the most likely to fail first; `named`: more tests."""
    began = time.monotonic()
    rounds = [_core_tests(patch), REST, named] if patch is None or not patch.tests else [patch.tests]
    try:
        with _copy(folder, patch) as copy:
            for tests in filter(None, rounds):
                caught_by, trouble = _pytest(copy, tests)
                if caught_by or trouble:
                    break
    except DoesNotApply as error:
        caught_by, trouble = None, str(error)
    return Result(caught_by, time.monotonic() - began, trouble)


def _core_tests(patch: Patch | None) -> list[str]:
    """Return the table tests before the random ones, and in both those of the changed module first."""
    module = patch.path.removesuffix(".py").replace("/", ".") if patch is not None else ""

    def rank(file: Path) -> tuple[bool, bool, str]:
        text = file.read_text()
        return "from hypothesis" in text, f"from {module} import" not in text, file.name

    files = (file for file in (CHECKOUT / "tests/unit/core").glob("test_*.py") if file.name != SLOW)
    return [f"tests/unit/core/{file.name}" for file in sorted(files, key=rank)]


@contextmanager
def _copy(folder: Path, patch: Patch | None) -> Iterator[Path]:
    """Copy the parts of the checkout that the tests read."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        copy = Path(name)
        for part in ("queuectl", "tests", "docs", "migrations", "manifests", "benchmarks"):
            shutil.copytree(CHECKOUT / part, copy / part)
        for part in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(CHECKOUT / part, copy / part)
        if patch is not None:
            file = copy / patch.path
            file.write_text(patch.applied(file.read_text()))
        yield copy


def _pytest(copy: Path, tests: Sequence[str]) -> tuple[str | None, str]:
    """Return the first test that fails, or None, and why the tests did not run, or an empty text."""
    plugins = [part for name in ("no:cacheprovider", *PLUGINS) for part in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *plugins, *tests]
    environment = os.environ | {
        "HYPOTHESIS_PROFILE": "first",
        "PYTHONPATH": str(copy),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the deadline of {DEADLINE} s", ""
    failed = _FAILED.search(done.stdout)
    if done.returncode == 0:
        return None, ""
    if done.returncode == 1 and failed is not None:
        return failed[1], ""
    return None, f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"


def _table(found: list[tuple[Patch, Result]]) -> Table:
    table = Table("planted bug", "rule", "caught by", "seconds")
    for patch, result in found:
        caught = result.caught_by.removeprefix("tests/") if result.caught_by else "[bold red]nothing"
        table.add_row(patch.name, patch.rule, result.trouble or caught, f"{result.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
