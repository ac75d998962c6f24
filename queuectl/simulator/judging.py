"""Runs documents and compares the decisions with the expected ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from queuectl.simulator.comparing import Difference, differences
from queuectl.simulator.documents import Cycle, Expect, Preemption, PreemptionExpect
from queuectl.simulator.preempting import preempted
from queuectl.simulator.reading import Scenario
from queuectl.simulator.running import Run


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of one document."""

    scenario: Scenario
    observed: Expect | PreemptionExpect | None = None
    """None: it was not run."""
    steps: tuple[Expect | None, ...] = ()
    """State after each of its steps; None: that step is no cycle."""
    differences: tuple[Difference, ...] = ()

    @property
    def result(self) -> Result:
        if self.observed is None:
            return Result.SKIPPED
        return Result.FAILED if self.differences else Result.PASSED


def judge(scenario: Scenario) -> Verdict:
    """Run it and compare."""
    document = scenario.document
    if not isinstance(document, Cycle | Preemption):
        return Verdict(scenario=scenario)
    found: list[Difference] = []
    if isinstance(document, Cycle):
        observed, after = Run(scenario).outcome()
        for number, (step, told) in enumerate(zip(document.steps, after, strict=False)):
            if step.expect is not None and told is not None:
                found += differences(step.expect, told, f"steps[{number}].")
        if document.expect is not None:
            found += differences(document.expect, observed)
        return Verdict(scenario=scenario, observed=observed, steps=tuple(after), differences=tuple(found))
    victims = preempted(scenario)
    if document.expect is not None:
        found = differences(document.expect, victims)
    return Verdict(scenario=scenario, observed=victims, differences=tuple(found))
