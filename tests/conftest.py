"""Shared by all tests: folders, worker processes, lines for the report, and a check that CI skips nothing."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from benchmarks.machine import Busy, busy
from queuectl.sandbox.control_plane import ASSETS_VARIABLE, find_assets
from tests.spread import (
    ACCEPTANCE,
    LAW,
    import_in_turn,
    in_groups,
    scheduler,
    shared_sites,
    tiers,
    workers,
)
from tests.unit.core import profiles

NO_SKIPS = "QUEUECTL_NO_SKIPS"
_FIGURE = "figure"
CELL = "cell"
"""Name of the property with which a test tells the kind and step whose result it is."""
_LAST = pytest.StashKey[dict[str, pytest.Item]]()
_BEGUN = pytest.StashKey[tuple[float, Busy]]()

_LONG, _FILES = 600, 25
"""Seconds from which a report has the times of files, and how many."""

NEXT = "1.37"
"""The release after the one that KUBEBUILDER_ASSETS has."""
_NEXT_ASSETS = "QUEUECTL_NEXT_ASSETS"

_LOUD = {
    "Chromium is not installed": ": the web page was tried in no browser. Debian: apt-get install chromium",
    "KUBEBUILDER_ASSETS is not set": (
        ": nothing was tried on a real kube-apiserver. It names a folder with etcd, kube-apiserver, "
        "kube-controller-manager and kubectl (1.36)"
    ),
    "QUEUECTL_PROMETHEUS is not set": (
        ": idle GPUs were read from no Prometheus. .ci/prometheus.sh prints a folder that it names"
    ),
    "QUEUECTL_FOCUS_VALIDATOR is not set": (
        ": rows of FOCUS were read by no validator. .ci/focus-validator.sh prints a program that it names"
    ),
    "QUEUECTL_OPERATORS is not set": (
        ": no kind was tried on its real operator. It names a folder with their binaries and definitions"
    ),
    f"{_NEXT_ASSETS} is not set": (
        f": nothing was tried on Kubernetes {NEXT}. .ci/kubernetes-{NEXT}/build.sh makes its programs"
    ),
}


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers of commands, and restore interrupts.

    A shell in the background ignores interrupts, and its children would too: tests interrupt theirs.
    """
    config.addinivalue_line("markers", f"{ACCEPTANCE}: run by `make test-acceptance` only")
    config.addinivalue_line("markers", f"{LAW}: run by `make test-acceptance` once more, with more examples")
    profiles.load()
    config.stash[_BEGUN] = monotonic(), busy()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def next_assets() -> Path:
    """The folder with a control plane of the release NEXT; without it the test is skipped."""
    folder = os.environ.get(_NEXT_ASSETS)
    if not folder:
        pytest.skip(f"{_NEXT_ASSETS} is not set: Kubernetes {NEXT} is not tried")
    found = find_assets({ASSETS_VARIABLE: folder})
    assert found is not None
    return found


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines for the end of the report: counts and durations."""
    lines: list[str] = []
    yield lines
    # Sent with the report of the test, the only data that a worker process sends.
    request.node.user_properties += [(_FIGURE, line) for line in lines]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`."""
    return workers(os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):  # type: ignore[no-untyped-def]
    """The garbage collector never looks at what is collected: it stays to the end."""
    gc.disable()
    config = session.config
    if given := getattr(config, "workerinput", None):
        number = int(given["workerid"].removeprefix("gw"))
        import_in_turn(config.args, config.rootpath, number, given["workercount"])
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    for name in tiers(item):
        item.add_marker(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    in_groups(items)
    config.stash[_LAST] = {name: item for item in items for name in shared_sites(item)}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End a site after its last test: an idle control plane takes a tenth of a core."""
    for name, fixture in shared_sites(item).items():
        if item.config.stash[_LAST][name] is item:
            fixture.finish(item._request)  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """If QUEUECTL_NO_SKIPS is set, a skip is a failure that names what is missing."""
    report = yield
    if os.environ.get(NO_SKIPS) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped although {NO_SKIPS} is set: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _report_skips(terminalreporter)
    _report_figures(terminalreporter)
    _report_kinds(terminalreporter)
    _report_pods(terminalreporter)
    _report_times(terminalreporter)


def _report_skips(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each missing dependency, instead of one for each test that needs it."""
    missing: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        missing[reason.removeprefix("Skipped: ").partition(": ")[0]] += 1
    for reason, count in sorted(missing.items()):
        told = _LOUD.get(reason, "")
        terminalreporter.write_line(f"SKIPPED {count} tests: {reason}{told}", yellow=True, bold=True)


def _report_figures(terminalreporter: pytest.TerminalReporter) -> None:
    over = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
    ]
    if lines := [line for report in over for name, line in report.user_properties if name == _FIGURE]:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)


def _report_kinds(terminalreporter: pytest.TerminalReporter) -> None:
    """What each kind did on its operator."""
    outcomes: dict[tuple[str, str], str] = {}
    for word, reports in terminalreporter.stats.items():
        for report in reports:
            for name, place in getattr(report, "user_properties", ()):
                if name == CELL and (word == "failed" or report.when == "call"):
                    outcomes[tuple(place)] = word
    if outcomes:
        from tests.acceptance.operators.matrix import (
            table,  # the modules behind it are loaded only when they are needed
        )

        terminalreporter.section("kinds on their operators")
        for line in table(outcomes):
            terminalreporter.line(line)


def _report_pods(terminalreporter: pytest.TerminalReporter) -> None:
    """What pods of each origin did on real controllers. Of a test with parameters the worst result counts."""
    outcomes: dict[str, str] = {}
    for word in ("skipped", "passed", "failed", "error"):
        for report in terminalreporter.stats.get(word, ()):
            outcomes[report.nodeid.partition("[")[0]] = word
    if not any(name.startswith("tests/acceptance/e2e/") for name in outcomes):
        return
    from tests.acceptance.e2e.pods_matrix import table  # loaded only when it is needed

    if lines := table(outcomes):
        terminalreporter.section("pods on their controllers")
        for line in lines:
            terminalreporter.line(line)


def _report_times(terminalreporter: pytest.TerminalReporter) -> None:
    """Of a long run the files that took most of it, with the sites that their tests begin.

    Where cores were idle, tests waited, and more workers would end sooner; else only less work does.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if (total := sum(seconds.values())) > _LONG:
        begun, before = terminalreporter.config.stash[_BEGUN]
        share = busy().since(before).used / (monotonic() - begun) / (os.cpu_count() or 1)
        title = f"files by time, {total / 60:.1f} minutes of all workers together, cores {share:.0%} busy"
        terminalreporter.section(title)
        for file in sorted(seconds, key=lambda file: -seconds[file])[:_FILES]:
            terminalreporter.line(f"{seconds[file] / 60:6.1f}  {file}")
