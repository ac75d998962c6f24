"""What all tests share: where the real control plane and the shared files are, and that CI skips nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NO_SKIPS = "QUEUECTL_NO_SKIPS"


def shared() -> Path:
    """The folder with decision vectors and CRDs, beside the checkout unless QUEUECTL_SHARED names it."""
    return Path(os.environ.get("QUEUECTL_SHARED") or Path(__file__).resolve().parents[2] / "shared")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Where QUEUECTL_NO_SKIPS is set, a skip is a failure that says what was missing."""
    report = yield
    if os.environ.get(NO_SKIPS) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped although {NO_SKIPS} is set: {report.longrepr}"
    return report
