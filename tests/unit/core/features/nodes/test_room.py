"""A ResourceQuota that is full at the moment: workloads wait for room, and start when there is some (N6)."""

from __future__ import annotations

import pytest

from queuectl.core.decisions import Decision, Evict, Keep
from queuectl.core.model.events import ContextGone, ContextObserved, PodsCounted
from queuectl.core.model.pod_limits import Counts, HardLimit, NamespaceQuota
from queuectl.core.model.policy import (
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import Container, PodResources
from queuectl.core.model.workload import Workload, WorkloadId, WorkloadOutcome
from queuectl.core.state import EngineState
from tests.builders import (
    GPU,
    World,
    admitted,
    local_queue,
    observed,
    pod_set,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")
OTHER = local_queue("lq", "cq", "other")
POD = PodResources(containers=(Container("main", ((GPU, 1),), ((GPU, 1),)),))


def gpus(name: str, count: int = 1, **fields: object) -> Workload:
    return workload(name, pods=[pod_set(count, {GPU: 1}, pod=POD)], **fields)  # type: ignore[arg-type]


def quota(hard: int, used: int = 0, namespace: str = "ns") -> ContextObserved:
    limit = HardLimit(f"requests.{GPU}", Counts.REQUESTS, GPU, hard, used)
    return ContextObserved(NamespaceQuota(f"{namespace}/gpus", (limit,)))


def world(hard: int, used: int = 0, *, nominal: int = 100, **fields: object) -> World:
    found = World(
        queue("cq", nominal, **fields),  # type: ignore[arg-type]
        LQ,
        OTHER,
        WorkloadPriorityClass("high", 10),
        namespaces=("ns", "other"),
        settings=SchedulingConfiguration(cooldown=0),
    )
    found.tell(quota(hard, used))
    return found


def codes(decisions: list[Decision]) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)}


def end(found: World, name: str, count: int = 1) -> None:
    """It has finished, and its pods are gone."""
    found.settle()
    found.tell(observed(gpus(name, count), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))


def test_of_workloads_that_come_together_only_as_many_start_as_there_is_room_for() -> None:
    found = world(4, used=1)
    found.submit(*(gpus(f"a{n}", created=n) for n in range(6)))
    made = found.run()
    assert admitted(made) == ["a0", "a1", "a2"]
    assert codes(made) == dict.fromkeys(("a3", "a4", "a5"), Code.WAITING_FOR_RESOURCE_QUOTA)


def test_the_reason_names_the_resource_quota_with_its_numbers() -> None:
    found = world(4, used=3)
    found.submit(gpus("a", 2))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert kept.reason.message == (
        "WaitingForResourceQuota: requests 2 nvidia.com/gpu, 1 available, short by 1 "
        "(bound by spec.hard of ResourceQuota/ns/gpus): spec.hard[requests.nvidia.com/gpu]"
    )


def test_what_is_admitted_counts_before_its_pods_exist_and_not_twice_after() -> None:
    found = world(4)
    found.submit(gpus("a", 3))
    assert admitted(found.run()) == ["a"]
    found.submit(gpus("b", 1, created=1), gpus("c", 1, created=2))
    assert admitted(found.run()) == ["b"]
    found.tell(quota(4, used=4))
    assert found.run() == []
    end(found, "a", 3)
    assert admitted(found.run()) == []  # its pods are still counted as used
    found.tell(quota(4, used=1))
    assert admitted(found.run()) == ["c"]


def test_a_workload_that_waits_for_room_does_not_keep_others_waiting_even_in_a_strict_queue() -> None:
    found = world(4, used=4, strategy=QueueingStrategy.STRICT_FIFO)
    found.submit(gpus("waits"), gpus("runs", namespace="other", created=1))
    made = found.run()
    assert admitted(made) == ["runs"]
    assert codes(made) == {"waits": Code.WAITING_FOR_RESOURCE_QUOTA}


@pytest.mark.parametrize(
    "more",
    [quota(8, used=4), quota(4, used=3), ContextGone(NamespaceQuota, "ns/gpus")],
    ids=["raised", "less is used", "deleted"],
)
def test_a_workload_starts_when_there_is_room(more: ContextObserved | ContextGone) -> None:
    found = world(4, used=4)
    found.submit(gpus("a"))
    assert codes(found.run()) == {"a": Code.WAITING_FOR_RESOURCE_QUOTA}
    found.tell(quota(4, used=4))
    assert found.run() == []
    found.tell(more)
    assert admitted(found.run()) == ["a"]


def test_a_smaller_workload_starts_in_room_that_is_too_small_for_the_first() -> None:
    found = world(4, used=4)
    found.submit(gpus("large", 3), gpus("small", 1, created=1))
    found.run()
    found.tell(quota(4, used=3))
    assert admitted(found.run()) == ["small"]
    found.tell(quota(4, used=1))
    assert admitted(found.run()) == ["large"]


def test_an_edit_that_asks_for_less_is_tried_at_once() -> None:
    found = world(4, used=3)
    found.submit(gpus("a", 2))
    found.run()
    found.tell(observed(gpus("a", 1), generation=2))
    assert admitted(found.run()) == ["a"]


def test_room_wakes_as_many_as_fit_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(1)
    found.submit(*(gpus(f"a{n:03}", created=n) for n in range(200)))
    assert admitted(found.run()) == ["a000"]
    routed: list[str] = []
    route = EngineState.route

    def noted(self: EngineState, entry: object) -> None:
        routed.append(str(entry))
        route(self, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(EngineState, "route", noted)
    for number in range(10):
        end(found, f"a{number:03}")
        assert admitted(found.run()) == [f"a{number + 1:03}"]
        found.tell(quota(1, used=1), quota(1, used=0))
        assert found.run() == []
    assert len(routed) < 100


OWN = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def test_a_preemptor_evicts_where_its_victims_leave_room_in_its_resource_quota() -> None:
    found = world(4, nominal=4, preemption=OWN)
    found.submit(gpus("low", 4))
    found.run()
    found.settle()
    found.tell(quota(4, used=4), observed(gpus("low", 4), suspended=False, generation=2))
    found.submit(gpus("urgent", 4, priority_class="high", created=1))
    assert [d.ref.name for d in found.run() if isinstance(d, Evict)] == ["low"]
    found.settle(generation=3)
    found.tell(observed(gpus("low", 4), generation=3))
    found.run()
    found.tell(PodsCounted(WorkloadId("uid-low"), 1, alive=False))
    made = found.run()  # the ResourceQuota has not been counted anew
    assert admitted(made) == ["urgent"]
    assert codes(made).get("urgent") is None


def test_nothing_is_evicted_in_vain_where_its_victims_leave_no_room_for_it() -> None:
    found = world(4, used=4, nominal=4, preemption=OWN)
    found.submit(gpus("low", 4, namespace="other"))
    found.run()
    found.settle()
    found.submit(gpus("urgent", 4, priority_class="high", created=1))
    made = found.run()
    assert [d for d in made if isinstance(d, Evict)] == []
    assert codes(made) == {"urgent": Code.WAITING_FOR_RESOURCE_QUOTA}


def test_the_reason_of_quota_comes_before_that_of_a_resource_quota() -> None:
    found = world(4, used=4, nominal=0)
    found.submit(gpus("a"))
    assert codes(found.run()) == {"a": Code.EXCEEDS_MAX_QUOTA}


def test_a_plan_is_the_same_when_it_is_decided_again() -> None:
    found = world(2)
    found.submit(*(gpus(f"a{n}", created=n) for n in range(5)))
    assert found.plan() == found.plan()


def test_what_has_waited_longest_may_be_deleted() -> None:
    found = world(1, used=1)
    found.submit(gpus("a"), gpus("b", created=1))
    found.run()
    found.tell(observed(gpus("a"), finished=WorkloadOutcome.DELETED, generation=2))
    found.run()
    found.tell(quota(1))
    assert admitted(found.run()) == ["b"]
