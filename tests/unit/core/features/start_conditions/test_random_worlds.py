"""Random worlds whose workloads wait for others, for a time, and for their array: all come to rest, and a
controller that starts anew lets the same workloads wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from queuectl.core.decisions import Plan
from queuectl.core.engine import DEFAULT_BUDGET, Engine
from queuectl.core.model.events import OutcomesRead
from queuectl.core.model.reasons import Code
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.workload import Workload, WorkloadId
from tests.doubles import engine_state
from tests.unit.core import profiles
from tests.unit.core.actions import ON_QUOTA, play
from tests.unit.core.driver import Driver, wait_for
from tests.unit.core.trees import Dice, random_setup

_NEVER = {Code.DEPENDENCY_NEVER_SATISFIED: Code.WAITING_FOR_DEPENDENCY}
"""Where a cycle ends of which a workload is in another one, those behind it are not told."""


class ConditionalDriver(Driver):
    """Draws conditions for most workloads, and other ones for some that are written."""

    def __init__(self, random: Random) -> None:
        self._random = random
        super().__init__(random_setup(Dice(random.randbytes(420)), guarded=True), actions=ON_QUOTA)

    def submit(self, workload: Workload, *, running: bool = False) -> None:
        if self._random.random() < 0.7:
            workload = replace(workload, start=self._conditions())
        super().submit(workload, running=running)

    def write(self, uid: WorkloadId, *, spec: bool = True, **fields: Any) -> None:
        if self._random.random() < 0.2:
            workload = fields.get("workload", self.jobs[uid].workload)
            fields["workload"] = replace(workload, start=self._conditions())
        super().write(uid, spec=spec, **fields)

    def deliver(self) -> None:
        super().deliver()
        self.read_outcomes(self.engine)

    def carry_out(self, plan: Plan, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> bool:
        more = super().carry_out(plan, budget, cycles)
        self.read_outcomes(self.engine)
        return more

    def read_outcomes(self, engine: Engine) -> None:
        while names := engine.features.start_conditions.unread(10):
            engine.handle([OutcomesRead(tuple(wait_for(self.ledger.outcomes(names))))])

    def _conditions(self) -> StartConditions:
        draw = self._random
        names = [f"w{draw.randrange(1, self.made + 6)}" for _ in range(draw.choice((0, 0, 1, 3)))]
        begin = draw.choice((None, None, None, -5, 3, 30, 4000))
        array = draw.choice((None, "x", "y"))
        return StartConditions(
            after=tuple(AfterWorkload(draw.choice(list(AfterOutcome)), "Job", name) for name in names),
            begin_at=None if begin is None else self.now + timedelta(seconds=begin),
            max_running=None if array is None else draw.randrange(1, 4),
            array=array,
        )


def _waits(engine: Engine) -> dict[WorkloadId, Code | None]:
    entries = engine_state.entries(engine).values()
    codes = {one.id: one.ineligible.code if one.ineligible else None for one in entries}
    return {id: code and _NEVER.get(code, code) for id, code in codes.items()}


@pytest.mark.parametrize("seed", [98, *profiles.spread(300)])
def test_a_controller_that_starts_anew_lets_the_same_workloads_wait(seed: int) -> None:
    random = Random(seed)
    driver = ConditionalDriver(random)
    jobs, script = ([random.randbytes(36) for _ in range(random.randrange(3, most))] for most in (8, 10))
    play(driver, jobs, script)
    driver.come_to_rest()
    fresh = driver.fresh()
    driver.read_outcomes(fresh)
    assert _waits(driver.engine) == _waits(fresh)
