"""Verdicts as JUnit XML, which all CI systems can show: a test case for each document."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from queuectl.kinds.json_fields import clean
from queuectl.scenarios.verdicts import CaseResult, CaseVerdict

_LONGEST = 100_000


def write(verdicts: Iterable[CaseVerdict], path: Path) -> None:
    """One suite for each file. Raises OSError."""
    found = JUnitXml("queuectl test")
    for file, group in groupby(verdicts, key=lambda verdict: verdict.scenario.file):
        suite = TestSuite(_legal(file))
        suite.add_testcases([_case(verdict) for verdict in group])
        found.add_testsuite(suite)
    found.write(str(path), pretty=True)


def _case(verdict: CaseVerdict) -> TestCase:
    scenario = verdict.scenario
    header = scenario.header
    title = header.name if header.id is None else f"{header.id}: {header.name}"
    case = TestCase(_legal(title), classname=_legal(header.table or Path(scenario.file).stem))
    if verdict.result is CaseResult.SKIPPED:
        case.result = [Skipped(_legal(scenario.left_out))]
    elif verdict.result is CaseResult.FAILED:
        failure = Failure(f"{len(verdict.differences)} differences")
        failure.text = "\n".join(
            [
                _legal(f"{scenario.file}: line {scenario.line}"),
                *map(_legal, verdict.lines()),
            ]
        )
        case.result = [failure]
    return case


def _legal(text: str) -> str:
    """XML can't contain control characters."""
    return clean(text, _LONGEST)
