"""Reports after the tests how many vectors of each table are decided as expected."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.conformance.vectors import OTHERWISE, vectors

COLUMNS = ("passed", "otherwise", "failed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            said = dict(getattr(report, "user_properties", ()))
            if "table" in said and report.when == "call":
                wanted = "otherwise" if said["otherwise"] and outcome == "passed" else outcome
                counts.setdefault(str(said["table"]), Counter())[wanted] += 1
    if not counts:
        return
    counts = dict(sorted(counts.items())) | {"all": sum(counts.values(), Counter())}
    terminalreporter.section("decision vectors")
    terminalreporter.write_line(f"{'table':32}" + "".join(f"{column:>11}" for column in COLUMNS))
    for table, found in counts.items():
        terminalreporter.write_line(f"{table:32}" + "".join(f"{found[column]:11}" for column in COLUMNS))
    later = Counter(str(document["tier"]) for document in vectors() if document["tier"] != "core")
    told = ", ".join(f"{count} of tier {tier}" for tier, count in sorted(later.items()))
    terminalreporter.write_line(f"not there yet: {told}")
    terminalreporter.write_line(f"otherwise on purpose (docs/decisions): {', '.join(sorted(OTHERWISE))}")
