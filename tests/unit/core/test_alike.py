"""Groups that are alike (W5): plans that nominate one head for many, beside those that nominate all."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

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
from tests.unit.core.actions import ON_QUOTA, any_job
from tests.unit.core.driver import Driver
from tests.unit.core.laws import the_first_of_those_alike_stands_for_all
from tests.unit.core.trees import CLASSES, Dice, Setup, cluster_queue, job, preemption, random_setup

profiles.load()


def alike_setup(dice: Dice) -> Setup:
    """Eight queues of few kinds. Most trees have neither preemption nor fair sharing."""
    base = random_setup(dice)
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
    return Setup((*others, *queues, *locals_), settings, names, base.layout, base.depth)


def small_job(dice: Dice, name: str, known: Setup) -> Workload:
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
    running = Driver(alike_setup(Dice(made)), the_first_of_those_alike_stands_for_all, actions=ON_QUOTA)
    for number in range(30 + dice.below(30)):
        running.submit(small_job(dice, f"first{number}", running.setup))
    running.deliver()
    running.come_to_rest()
    for happens in script:
        dice = Dice(happens)
        if dice.below(8):
            for _ in range(1 + dice.below(3)):
                if uid := any_job(running, dice, running=True):
                    running.write(uid, spec=False, finished=Outcome.SUCCEEDED, quiet=True)
            running.deliver()
            running.decide()
        else:
            running.act(dice)
    running.come_to_rest()
