"""After the tests: how many of the vectors are decided as they say, per table."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.vectors import DELIBERATE, vectors


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            table = dict(getattr(report, "user_properties", ())).get("table")
            if isinstance(table, str) and report.when == "call":
                counts.setdefault(table, Counter())[outcome] += 1
    if not counts:
        return
    terminalreporter.section("decision vectors")
    terminalreporter.write_line(f"{'table':34}passed  failed")
    for table, found in sorted(counts.items()):
        terminalreporter.write_line(f"{table:34}{found['passed']:6}  {found['failed']:6}")
    passed, failed = (sum(found[outcome] for found in counts.values()) for outcome in ("passed", "failed"))
    terminalreporter.write_line(f"{'all':34}{passed:6}  {failed:6}")
    later = Counter(str(document["tier"]) for document in vectors() if document["tier"] != "core")
    told = ", ".join(f"{count} of tier {tier}" for tier, count in sorted(later.items()))
    terminalreporter.write_line(f"not there yet: {told}; otherwise on purpose: {', '.join(sorted(DELIBERATE))}")
