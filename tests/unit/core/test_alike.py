"""Groups that are alike (W5): plans that nominate one head for many, beside those that nominate all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Plan
from queuectl.core.engine import DEFAULT_BUDGET
from queuectl.core.model import Outcome, Workload
from queuectl.core.policy import (
    ClusterQueue,
    Cohort,
    FairSharing,
    LocalQueue,
    Preemption,
    StopPolicy,
)
from tests.builders import GPU, local_queue, pod_set, workload
from tests.unit.core import profiles
from tests.unit.core.running import Running
from tests.unit.core.trees import CLASSES, Dice, World, cluster_queue, job, preemption, world

profiles.load()

UNLIMITED = 10**6
"""With any limit on the cycles all heads are nominated."""


class Both(Running):
    """A cluster of which each plan is also made with all heads nominated."""

    def plan(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        plan = super().plan(budget, cycles)
        if cycles is None and budget == DEFAULT_BUDGET:
            full = self.engine.decide(self.now, budget, UNLIMITED)
            assert Counter(map(repr, plan.decisions)) == Counter(map(repr, full.decisions))
            assert (plan.probes, plan.more, plan.apart) == (full.probes, full.more, full.apart)
        return plan


def alike_world(dice: Dice) -> World:
    """Eight queues of few kinds. Most trees have neither preemption nor fair sharing."""
    base = world(dice, guarded=True)
    kinds = [cluster_queue(dice, "kind", base.depth, base.layout) for _ in range(dice.pick(1, 1, 2))]
    preempts, fair = dice.below(8) == 7, dice.below(8) == 7
    queues = [
        replace(
            dice.pick(*kinds),
            name=f"q{number}",
            preemption=preemption(dice) if preempts else Preemption(),
            stop_policy=StopPolicy.NONE,
        )
        for number in range(8)
    ]
    others = [one for one in base.policies if not isinstance(one, ClusterQueue | LocalQueue)]
    if not fair:
        others = [
            replace(one, sharing=FairSharing(enabled=False)) if isinstance(one, Cohort) else one
            for one in others
        ]
    locals_ = [local_queue(f"l{number}", one.name) for number, one in enumerate(queues)]
    names = tuple(one.name.name for one in locals_)
    settings = replace(base.settings, fair_sharing=fair)
    return World((*others, *queues, *locals_), settings, names, base.layout, base.depth)


def small_job(dice: Dice, name: str, known: World) -> Workload:
    """Few sizes, so that many are alike; one of eight is any job."""
    if dice.below(16) == 15:
        return job(dice, name, known)
    requests = {GPU: dice.pick(1, 2, 1)} | ({"cpu": dice.pick(1, 1, 1, 2)} if known.layout else {})
    queue, priority = dice.pick(*known.locals), CLASSES[0] if dice.below(16) == 15 else None
    return workload(name, queue, pods=[pod_set(1, requests)], created=dice.below(4), priority_class=priority)


@profiles.sequences(100)
@given(
    st.binary(min_size=480, max_size=480),
    st.binary(min_size=400, max_size=400),
    st.lists(st.binary(min_size=28, max_size=28), min_size=8, max_size=16),
)
def test_the_first_of_those_alike_stands_for_all(made: bytes, jobs: bytes, script: list[bytes]) -> None:
    """W5. Each plan decides as if the heads of all queues had been nominated."""
    dice = Dice(jobs)
    running = Both(alike_world(Dice(made)))
    for number in range(30 + dice.below(30)):
        running.submit(small_job(dice, f"first{number}", running.world))
    running.deliver()
    running.come_to_rest()
    for happens in script:
        dice = Dice(happens)
        if dice.below(8):
            for _ in range(1 + dice.below(3)):
                if uid := running.any_job(dice, running=True):
                    running.write(uid, spec=False, finished=Outcome.SUCCEEDED, quiet=True)
            running.deliver()
            running.decide()
        else:
            running.act(dice)
    running.come_to_rest()
