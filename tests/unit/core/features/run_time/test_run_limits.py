"""The longest run time: by the label, by the default of a queue, and within its ceilings (L13, G12)."""

from __future__ import annotations

import pytest

from queuectl.core.decisions import Admit, Evict, Keep, Retire
from queuectl.core.features.run_time.limits import MAX_RUN, run_limit
from queuectl.core.model.policy import MaxExecutionTime, OnExceeded
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import RecordedStop, WorkloadOutcome
from tests.builders import World, local_queue, observed, policy, queue, workload

NONE = MaxExecutionTime()


def limited(default: int | None = None, ceiling: int | None = None) -> MaxExecutionTime:
    return MaxExecutionTime(default=default, ceiling=ceiling)


@pytest.mark.parametrize(
    ("label", "local", "cluster", "seconds", "source"),
    [
        (None, NONE, NONE, None, ""),
        (7, NONE, NONE, 7, f"label {MAX_RUN}"),
        (7, limited(default=3), limited(default=5), 7, f"label {MAX_RUN}"),
        (
            None,
            limited(default=3),
            limited(default=5),
            3,
            "spec.maxExecutionTime.default of LocalQueue/ns/lq",
        ),
        (None, NONE, limited(default=5), 5, "spec.maxExecutionTime.default of ClusterQueue/cq"),
        (None, NONE, limited(ceiling=9), 9, "spec.maxExecutionTime.ceiling of ClusterQueue/cq"),
        (
            None,
            limited(ceiling=8),
            limited(ceiling=9),
            8,
            "spec.maxExecutionTime.ceiling of LocalQueue/ns/lq",
        ),
        (
            None,
            limited(default=30),
            limited(ceiling=9),
            9,
            "spec.maxExecutionTime.ceiling of ClusterQueue/cq",
        ),
        (20, NONE, limited(ceiling=9), 9, "spec.maxExecutionTime.ceiling of ClusterQueue/cq"),
    ],
)
def test_the_limit_is_the_label_else_the_nearest_default_within_each_ceiling(
    label: int | None, local: MaxExecutionTime, cluster: MaxExecutionTime, seconds: int | None, source: str
) -> None:
    found = run_limit(
        workload("a", max_run_seconds=label),
        local_queue("lq", "cq", max_execution_time=local),
        queue("cq", max_execution_time=cluster),
    )
    assert (found.seconds if found else None, found.source if found else "") == (seconds, source)


def test_a_workload_without_the_label_runs_for_the_default_of_its_queue() -> None:
    world = World(queue("cq", 4, max_execution_time=limited(default=60)), local_queue("lq", "cq"))
    world.submit(workload("a"))
    assert [type(one) for one in world.run()] == [Admit]
    world.settle()
    world.tell(observed(workload("a"), suspended=False, generation=2))
    world.pass_time(59)
    assert world.run() == []
    world.pass_time(1)
    (evicted,) = world.run()
    assert isinstance(evicted, Evict)
    assert evicted.reason.code is Code.MAXIMUM_EXECUTION_TIME_EXCEEDED
    assert evicted.reason.detail == "spec.maxExecutionTime.default of ClusterQueue/cq allows 60 s"


def test_a_label_above_the_ceiling_is_held_with_label_value_and_limit_until_one_changes() -> None:
    above = workload("a", max_run_seconds=90)
    world = World(queue("cq", 4, max_execution_time=limited(ceiling=60)), local_queue("lq", "cq"))
    world.submit(above)
    (kept,) = world.run()
    assert isinstance(kept, Keep)
    assert (kept.reason.code, kept.reason.node) == (Code.MISCONFIGURED, "ClusterQueue/cq")
    assert (
        kept.reason.detail == f"label {MAX_RUN}: 90 is more than the 60 of its spec.maxExecutionTime.ceiling"
    )
    world.tell(policy(queue("cq", 4, max_execution_time=limited(ceiling=90))))
    assert [type(one) for one in world.run()] == [Admit]


def test_a_label_that_is_raised_past_the_ceiling_does_not_make_a_running_workload_run_longer() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq", max_execution_time=limited(ceiling=60)))
    world.submit(workload("a", max_run_seconds=30))
    world.run()
    world.settle()
    world.tell(observed(workload("a", max_run_seconds=900), suspended=False, generation=2))
    world.pass_time(61)
    (evicted,) = world.run()
    assert isinstance(evicted, Evict)
    assert evicted.reason.code is Code.MAXIMUM_EXECUTION_TIME_EXCEEDED


def test_a_limit_that_a_queue_gets_ends_what_has_run_longer() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a"), suspended=False, generation=2))
    world.pass_time(100)
    world.tell(policy(local_queue("lq", "cq", max_execution_time=limited(default=60))))
    world.pass_time(0)
    assert [type(one) for one in world.run()] == [Evict]


def exceeded(local: OnExceeded | None, cluster: OnExceeded | None) -> World:
    """A workload that is being evicted as its run time is used up, in queues that say this."""
    world = World(
        queue("cq", 4, max_execution_time=MaxExecutionTime(default=60, on_exceeded=cluster)),
        local_queue("lq", "cq", max_execution_time=MaxExecutionTime(on_exceeded=local)),
    )
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a"), suspended=False, generation=2))
    world.pass_time(60)
    assert [type(one) for one in world.run()] == [Evict]
    return world


@pytest.mark.parametrize(
    ("local", "cluster", "fails"),
    [
        (None, None, False),
        (None, OnExceeded.FAIL, True),
        (OnExceeded.FAIL, None, True),
        (OnExceeded.FAIL, OnExceeded.SUSPEND, True),
        (OnExceeded.SUSPEND, OnExceeded.FAIL, False),
    ],
)
def test_the_nearest_queue_that_says_so_decides_whether_its_object_fails(
    local: OnExceeded | None, cluster: OnExceeded | None, fails: bool
) -> None:
    (stop,) = exceeded(local, cluster).engine.take_effects()
    assert stop.eviction is not None
    assert stop.eviction.fails is fails


def test_what_is_evicted_for_another_reason_is_suspended() -> None:
    limits = MaxExecutionTime(default=60, on_exceeded=OnExceeded.FAIL)
    world = World(queue("cq", 4, max_execution_time=limits), local_queue("lq", "cq"))
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    assert [type(one) for one in world.run()] == [Evict]
    (stop,) = world.engine.take_effects()
    assert stop.eviction is not None
    assert stop.eviction.fails is False


@pytest.mark.parametrize(
    ("finished", "stopped", "outcome"),
    [
        (WorkloadOutcome.FAILED, RecordedStop(1, WorkloadOutcome.TIMED_OUT), WorkloadOutcome.TIMED_OUT),
        (WorkloadOutcome.SUCCEEDED, RecordedStop(1, WorkloadOutcome.TIMED_OUT), WorkloadOutcome.SUCCEEDED),
        (WorkloadOutcome.FAILED, RecordedStop(7, WorkloadOutcome.TIMED_OUT), WorkloadOutcome.FAILED),
        (WorkloadOutcome.FAILED, None, WorkloadOutcome.FAILED),
    ],
)
def test_an_object_that_failed_by_the_stop_of_its_attempt_timed_out(
    finished: WorkloadOutcome, stopped: RecordedStop | None, outcome: WorkloadOutcome
) -> None:
    world = exceeded(None, OnExceeded.FAIL)
    said = "DeadlineExceeded: Job was active longer than specified deadline"
    failure = said if finished is WorkloadOutcome.FAILED else None
    world.tell(
        observed(
            workload("a"),
            suspended=False,
            generation=3,
            finished=finished,
            failure=failure,
            quiet=True,
            stopped=stopped,
        )
    )
    world.settle()
    (over,) = world.run()
    assert isinstance(over, Retire)
    assert (over.outcome, over.detail) == (outcome, failure)
