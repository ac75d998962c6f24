"""Random histories of which past usage orders users, LocalQueues and members of Cohorts (U1 to U7)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given

from queuectl.core.model.policy import AdmissionFairSharing, ClusterQueue, Cohort, Policy
from queuectl.core.model.workload import Workload
from tests.unit.core import actions, laws, profiles
from tests.unit.core.actions import ON_QUOTA, SETUP, play
from tests.unit.core.driver import Driver
from tests.unit.core.plans import Law
from tests.unit.core.trees import Dice, random_setup


class DriverWithUsers(Driver):
    """Workloads are of three users, or of unknown ones."""

    def submit(self, workload: Workload, *, running: bool = False) -> None:
        user = (None, "alice", "bob", "carol")[(self.version + len(self.jobs)) % 4]
        super().submit(replace(workload, submitter=user), running=running)


def by_usage(one: Policy) -> Policy:
    match one:
        case Cohort():
            return replace(one, sharing=replace(one.sharing, by_past_usage=True))
        case ClusterQueue():
            return replace(one, usage_based=True, users_by_usage=True)
        case _:
            return one


def with_history(data: bytes, *more: Law) -> Driver:
    """Return a driver with a random policy, in which past usage orders all, and soon otherwise."""
    setup = random_setup(Dice(data))
    settings = replace(setup.settings, usage_sharing=AdmissionFairSharing(half_life=600))
    setup = replace(setup, policies=tuple(map(by_usage, setup.policies)), settings=settings)
    return DriverWithUsers(setup, *more, actions=ON_QUOTA)


@profiles.sequences(100)
@given(SETUP, actions.JOBS, actions.SCRIPT)
def test_a_new_process_decides_nothing_else_with_past_usage(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    driver = with_history(
        setup,
        laws.a_new_process_decides_nothing,
        laws.no_workload_is_admitted_on_quota_that_is_not_available,
    )
    play(driver, jobs, script).come_to_rest()


def test_past_usage_makes_no_plans_without_an_end() -> None:
    """The order of what waits changes with time: whoever was preempted by it would preempt in turn."""
    preempted = 0
    stale = 22332  # workloads behind a head that can never run were not told so once its turn came again
    for seed in (*profiles.spread(1000), stale):
        dice = Random(seed)
        jobs, script = ([dice.randbytes(36) for _ in range(dice.randrange(3, most))] for most in (8, 10))
        driver = play(with_history(dice.randbytes(420)), jobs, script)
        driver.come_to_rest()
        preempted += len(driver.evicted)
    assert preempted, "nothing was preempted: this would prove nothing"
