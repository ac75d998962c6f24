"""Podsets of one workload that need each other's flavors."""

from __future__ import annotations

import pytest

from queuectl.core.model.policy import Policy
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Phase, WorkloadId
from tests.builders import GPU, flavor, group, local_queue, pod_set, queue, workload
from tests.unit.core.driver import Driver
from tests.unit.core.trees import Setup

TWO = WorkloadId("uid-two")


def running(**nominal: int) -> Driver:
    """A queue with one flavor for each number of GPUs, at rest."""
    team = queue("team", groups=[group({name: {GPU: gpus} for name, gpus in nominal.items()})])
    policies: list[Policy] = [flavor(name) for name in nominal]
    policies += [team, local_queue("lq", "team")]
    return Driver(Setup(tuple(policies), locals=("lq",)))


def submit(there: Driver, name: str, *counts: int) -> None:
    pods = [pod_set(count, {GPU: 1}, name=f"p{number}") for number, count in enumerate(counts)]
    there.submit(workload(name, pods=pods, created=there.made))
    there.made += 1
    there.deliver()
    there.come_to_rest()


def end(there: Driver, name: str) -> None:
    there.delete(WorkloadId(f"uid-{name}"))
    there.kill_pods()
    there.deliver()
    there.come_to_rest()


def test_a_podset_that_waits_for_another_flavor_leaves_its_own_to_a_later_one() -> None:
    there = running(f1=2, f2=3)
    submit(there, "first", 2)
    submit(there, "two", 1, 3)
    stored = there.ledger.store.workloads[TWO]
    assert stored.reason is not None
    # The second podset needs all of f2, where the first one has to go while f1 is in use.
    assert (stored.reason.code, stored.reason.flavor) == (Code.WAITING_FOR_QUOTA, "f1")
    assert Code.EXCEEDS_MAX_QUOTA in {one.code for one in stored.reason.others}
    end(there, "first")
    assert there.ledger.store.workloads[TWO].phase is Phase.ADMITTED


def test_a_podset_that_is_too_large_by_itself_can_never_be_admitted() -> None:
    there = running(f1=2, f2=3)
    submit(there, "first", 2)
    submit(there, "two", 1, 4)
    reason = there.ledger.store.workloads[TWO].reason
    assert reason is not None
    assert reason.code is Code.EXCEEDS_MAX_QUOTA


def test_a_workload_that_lacks_quota_for_two_podsets_starts_when_the_first_one_gets_another_flavor() -> None:
    there = running(f1=2, f2=4)
    submit(there, "first", 2)
    submit(there, "small", 1)
    submit(there, "two", 1, 3)
    assert there.ledger.store.workloads[TWO].phase is Phase.PENDING
    end(there, "first")
    assert there.ledger.store.workloads[TWO].phase is Phase.ADMITTED


@pytest.mark.parametrize("ends", [("first", "other"), ("other", "first")])
def test_podsets_that_lack_quota_for_each_flavor_start_when_both_are_free(ends: tuple[str, str]) -> None:
    """F5: the first podset has to go to f2. While it is on f1, the second exceeds the quota of both."""
    there = running(f1=2, f2=1)
    submit(there, "first", 2)
    submit(there, "other", 1)
    submit(there, "two", 1, 2)
    for name in ends:
        stored = there.ledger.store.workloads[TWO]
        assert stored.reason is not None
        assert stored.reason.code is Code.WAITING_FOR_QUOTA
        end(there, name)
    assert there.ledger.store.workloads[TWO].phase is Phase.ADMITTED
