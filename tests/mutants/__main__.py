"""Is every planted bug caught? `python -m tests.mutants` runs the fast suite of the core on each of them.

Each bug gets a copy of the checkout of its own and the suite until its first failure. The suite has to be
green without any. Takes minutes: `make mutants`. Exit status 1: a bug survived, or a patch does not apply.
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

from tests.conftest import shared
from tests.mutants.patches import CHECKOUT, FOLDER, DoesNotApply, Patch, all_patches

SLOW: Final = "test_machine.py"
"""Half a minute by itself, and no rule hangs on it alone."""
REST: Final = ("tests/conformance", "tests/simulator")
PLUGINS: Final = ("pytest_asyncio.plugin", "_hypothesis_pytestplugin")
"""All that the suite needs. Others of the environment take longer to load than some bugs to be caught."""
DEADLINE: Final = 900
"""Seconds after which a run is stopped. Its bug is caught: something never ends."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?::[^\n]*?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    caught_by: str | None
    """None: nothing failed."""
    seconds: float
    trouble: str = ""
    """Why the suite did not run at all."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only bugs whose name has one of these in it")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (default: 2)")
    parser.add_argument("--renew", action="store_true", help="write the patches anew, as the code is now")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    wanted = [
        patch
        for patch in all_patches()
        if not options.names or any(name in patch.name for name in options.names)
    ]
    if not wanted:
        parser.error(f"no planted bug has {' or '.join(options.names)} in its name")
    if options.renew:
        for patch in wanted:
            text = (CHECKOUT / patch.path).read_text()
            (FOLDER / f"{patch.name}.patch").write_text(patch.renewed(text))
        return 0
    with tempfile.TemporaryDirectory(prefix="queuectl-mutants-") as folder:
        console.print("the suite without any bug …")
        sound = _run(Path(folder), None)
        if sound.caught_by or sound.trouble:
            console.print(f"it is not green: {sound.caught_by or sound.trouble}", style="bold red")
            return 1
        console.print(f"green after {sound.seconds:.0f} s; {len(wanted)} planted bugs")
        found = _run_all(Path(folder), wanted, options.jobs, console)
    console.print(_table(found))
    survived = [patch.name for patch, result in found if result.caught_by is None]
    if survived:
        console.print(f"{len(survived)} of {len(found)} not caught: {', '.join(survived)}", style="bold red")
        return 1
    console.print(f"all {len(found)} caught", style="bold green")
    return 0


def _run_all(folder: Path, wanted: list[Patch], jobs: int, console: Console) -> list[tuple[Patch, Found]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: dict[str, Found] = {}
    with Progress(*columns, console=console) as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("caught", total=len(wanted))
        runs = {pool.submit(_run, folder, patch): patch for patch in wanted}
        for run in as_completed(runs):
            patch, result = runs[run], run.result()
            results[patch.name] = result
            if result.caught_by is None:
                bar.console.print(f"survived: {patch.name} {result.trouble}", style="red")
            elif not console.is_terminal:
                bar.console.print(f"{patch.name}: {result.caught_by}")
            bar.advance(task)
    return [(patch, results[patch.name]) for patch in wanted]


def _run(folder: Path, patch: Patch | None) -> Found:
    """The suite on a copy with the bug in it, what is most likely to fail first."""
    began = time.monotonic()
    try:
        with _copy(folder, patch) as copy:
            for tests in (_core_tests(patch), REST):
                caught_by, trouble = _pytest(copy, tests)
                if caught_by or trouble:
                    break
    except DoesNotApply as error:
        caught_by, trouble = None, str(error)
    return Found(caught_by, time.monotonic() - began, trouble)


def _core_tests(patch: Patch | None) -> list[str]:
    """Tables before what searches at random, and in both what names the changed module first."""
    module = patch.path.removesuffix(".py").replace("/", ".") if patch is not None else ""

    def rank(file: Path) -> tuple[bool, bool, str]:
        text = file.read_text()
        return "from hypothesis" in text, f"from {module} import" not in text, file.name

    files = (file for file in (CHECKOUT / "tests/core").glob("test_*.py") if file.name != SLOW)
    return [f"tests/core/{file.name}" for file in sorted(files, key=rank)]


@contextmanager
def _copy(folder: Path, patch: Patch | None) -> Iterator[Path]:
    """All of the checkout that the suite reads."""
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
    """The first test that fails, if one does, and what kept them from running."""
    plugins = [part for name in ("no:cacheprovider", *PLUGINS) for part in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *plugins, *tests]
    environment = os.environ | {
        "HYPOTHESIS_PROFILE": "first",
        "PYTHONPATH": str(copy),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "QUEUECTL_SHARED": str(shared()),
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


def _table(found: list[tuple[Patch, Found]]) -> Table:
    table = Table("planted bug", "rule", "caught by", "seconds")
    for patch, result in found:
        caught = result.caught_by.removeprefix("tests/") if result.caught_by else "[bold red]nothing"
        table.add_row(patch.name, patch.rule, result.trouble or caught, f"{result.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
