"""What all tests share: where the real control plane and the shared files are, and that CI skips nothing."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

NO_SKIPS = "QUEUECTL_NO_SKIPS"

_LOUD = {
    "KUBEBUILDER_ASSETS is not set": (
        ": nothing was tried on a real kube-apiserver. It names a folder with etcd, kube-apiserver, "
        "kube-controller-manager and kubectl (1.36)"
    ),
}


def shared() -> Path:
    """The folder with decision vectors and CRDs, beside the checkout unless QUEUECTL_SHARED names it."""
    return Path(os.environ.get("QUEUECTL_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def pytorch_crd() -> Path:
    """The definition of PyTorchJob as its project publishes it; without it the test is skipped."""
    path = shared() / "crds" / "kubeflow.org_pytorchjobs.yaml"
    if not path.exists():
        pytest.skip(f"the real CRD of PyTorchJob is not there: QUEUECTL_SHARED names no folder with {path}")
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Where QUEUECTL_NO_SKIPS is set, a skip is a failure that says what was missing."""
    report = yield
    if os.environ.get(NO_SKIPS) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped although {NO_SKIPS} is set: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One loud line for each thing that is missing, instead of one for each test that wanted it."""
    missing: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        missing[reason.removeprefix("Skipped: ").partition(": ")[0]] += 1
    for reason, count in sorted(missing.items()):
        told = _LOUD.get(reason, "")
        terminalreporter.write_line(f"SKIPPED {count} tests: {reason}{told}", yellow=True, bold=True)
