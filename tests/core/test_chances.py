"""Requeued groups that could not have enough by any preemption: they are not nominated (W7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.cycle.nomination import Nominator
from queuectl.core.cycle.plan_draft import PlanDraft
from queuectl.core.decisions import Keep, Plan
from queuectl.core.engine import DEFAULT_BUDGET
from queuectl.core.model import Outcome
from queuectl.core.policy import BorrowWithinCohort, MinRunTime, Preemption, PreemptionPolicy
from queuectl.core.reasons import Code
from tests.builders import observed, queue, workload
from tests.core import profiles
from tests.core.frames import JOBS, SCRIPT, WORLD
from tests.core.room import PreemptionWorld, evicted
from tests.core.running import Running
from tests.core.trees import Dice, world

profiles.load()


class Asked(Running):
    """A cluster in which, before each plan, the heads of all groups without a chance are nominated."""

    passed_over = 0
    """How many that were."""

    def plan(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        self._nominate_hopeless()
        return super().plan(budget, cycles)

    def _nominate_hopeless(self) -> None:
        state = self.engine._state
        draft = PlanDraft(state, self.now)
        nominator = Nominator(draft.snapshot, state.directory, state.claims)
        for waiting in state.pending.values():
            for group in waiting.may_preempt:
                head = group.head()
                if head is not None and not draft.chances.has(waiting, group):
                    self.passed_over += 1
                    assert not nominator.nominate(head).promising, f"{head.ref} has a chance"


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, st.booleans())
def test_what_is_passed_over_would_be_refused(
    made: bytes, jobs: list[bytes], script: list[bytes], guarded: bool
) -> None:
    """W7. In every state, no head that is passed over would be admitted, or find victims."""
    running = Asked(world(Dice(made), guarded=guarded))
    for one in jobs:
        running.submit_some(Dice(one))
    running.deliver()
    running.come_to_rest()
    for happens in script:
        running.act(Dice(happens))
        running.decide()
    running.come_to_rest()


LOWER, ANY = PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY


def contended(rules: Preemption) -> PreemptionWorld:
    """Queues `q`, which has lower workloads that run, and `other`, with 4 GPUs each, all in use."""
    world = PreemptionWorld(queue("q", 4, cohort="all", preemption=rules), queue("other", 4, cohort="all"))
    world.hold("lower", "q", 1, priority_class="low")
    world.hold("equal", "q", 3, priority_class="high")
    for number in range(4):
        world.hold(f"other-{number}", "other")
    return world


def nominated_after(world: PreemptionWorld, ended: str) -> tuple[list[str], list[str]]:
    """Return the pending workloads that are nominated when one ends, and the victims."""
    one = workload(ended, "other")
    world.tell(observed(one, suspended=False, generation=3, finished=Outcome.SUCCEEDED, quiet=True))
    decisions = world.plan().decisions
    world.run()
    nominated = [d.ref.name for d in decisions if isinstance(d, Keep) and (d.evaluation or d.claim)]
    return nominated, evicted(decisions)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Preemption(within_cluster_queue=LOWER), id="its queue has too little that is lower"),
        pytest.param(
            Preemption(within_cluster_queue=LOWER, reclaim_within_cohort=ANY),
            id="it would borrow, so that it may not reclaim",
        ),
        pytest.param(
            Preemption(
                within_cluster_queue=LOWER,
                reclaim_within_cohort=LOWER,
                borrow_within_cohort=BorrowWithinCohort(),
            ),
            id="no other queue borrows",
        ),
    ],
)
def test_a_head_is_passed_over_until_it_could_have_enough(rules: Preemption) -> None:
    world = contended(rules)
    world.request("asks", "q", 4, priority_class="high")
    assert nominated_after(world, "other-0") == ([], [])
    assert nominated_after(world, "other-1") == ([], [])
    assert nominated_after(world, "other-2") == (["asks"], ["lower"])


def test_a_head_that_only_a_protection_keeps_waiting_is_nominated() -> None:
    """P10: its reason names the protection, as long as that is what it waits for."""
    world = contended(Preemption(within_cluster_queue=LOWER, min_run_time=MinRunTime(in_cluster_queue=1000)))
    world.request("asks", "q", 3, priority_class="high")
    assert nominated_after(world, "other-0") == ([], [])
    assert nominated_after(world, "other-1") == (["asks"], [])
    reason = world.engine._state.entries[workload("asks").id].reason
    assert reason is not None
    assert reason.code is Code.MIN_RUN_TIME_PROTECTED
