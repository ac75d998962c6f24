"""Runs documents and compares the decisions with the expected ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from queuectl.scenarios.comparison import Difference, differences
from queuectl.scenarios.documents import Cycle, Expect, PreemptionExpect, ScenarioPreemption
from queuectl.scenarios.findings import Finding, concerned
from queuectl.scenarios.preemption import preempted
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
    observed: Expect | PreemptionExpect | None = None
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
    if isinstance(document, Cycle):
        return _cycles(scenario, document)
    if not isinstance(document, ScenarioPreemption):
        return CaseVerdict(scenario=scenario)
    victims, finding = preempted(scenario)
    found = [] if document.expect is None else differences(document.expect, victims)
    return CaseVerdict(
        scenario=scenario,
        observed=victims,
        differences=tuple(found),
        findings=(finding,) if found else (),
    )


def _cycles(scenario: Scenario, document: Cycle) -> CaseVerdict:
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
