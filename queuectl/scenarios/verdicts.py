"""Runs documents and compares the decisions with the expected ones; verdicts as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from queuectl.kinds.json_fields import clean
from queuectl.scenarios.documents import Cycle, Expect
from queuectl.scenarios.findings import Difference, Finding, concerned, differences
from queuectl.scenarios.reader import Scenario
from queuectl.scenarios.run import ScenarioRun


class CaseResult(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """Result of one document."""

    scenario: Scenario
    observed: Expect | None = None
    """None: it was not run."""
    steps: tuple[Expect | None, ...] = ()
    """State after each of its steps; None: that step is no cycle."""
    differences: tuple[Difference, ...] = ()
    findings: tuple[Finding, ...] = ()
    """The findings on workloads that the differences are about."""

    @property
    def result(self) -> CaseResult:
        if self.observed is None:
            return CaseResult.SKIPPED
        return CaseResult.FAILED if self.differences else CaseResult.PASSED

    def lines(self) -> Iterator[str]:
        """The differences as in a diff, then the findings, indented."""
        for difference in self.differences:
            yield from difference.lines()
        for finding in self.findings:
            yield from finding.lines()


def judge(scenario: Scenario) -> CaseVerdict:
    """Run it and compare."""
    document = scenario.document
    if not isinstance(document, Cycle):
        return CaseVerdict(scenario=scenario)
    last, after = ScenarioRun(scenario).outcome()
    found: list[Difference] = []
    why: list[Finding] = []
    for number, (step, told) in enumerate(zip(document.steps, after, strict=False)):
        if step.expect is not None and told is not None:
            here = f"steps[{number}]"
            differ = differences(step.expect, told.expect, f"{here}.")
            found += differ
            why += (one._replace(step=here) for one in concerned(differ, told.findings))
    if document.expect is not None:
        differ = differences(document.expect, last.expect)
        found += differ
        why += concerned(differ, last.findings)
    return CaseVerdict(
        scenario=scenario,
        observed=last.expect,
        steps=tuple(told and told.expect for told in after),
        differences=tuple(found),
        findings=tuple(why),
    )


_LONGEST = 100_000


def write_junit(verdicts: Iterable[CaseVerdict], path: Path) -> None:
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
