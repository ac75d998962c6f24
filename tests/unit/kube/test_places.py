"""Pods that are created in the place of others: since when they count as created (O9)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from queuectl.core.model.events import Event, WorkloadObserved
from queuectl.kinds.builtin import BUILT_IN, OPTIONAL
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.pod_group import POD_GROUP
from queuectl.kube import places
from queuectl.kube.pod_groups import PodGroups
from queuectl.kube.sources import Source, sources

Json = dict[str, Any]
KINDS = KindRegistry((*BUILT_IN, *OPTIONAL))
GROUP = "queuectl.dev/pod-group-name"


@pytest.fixture
def source() -> Source[Event]:
    (found,) = (one for one in sources(KINDS) if one.name == "Pod")
    return found


def pod(
    name: str, minute: int, *, owner: str = "web-5d9", group: str | None = None, kind: str = "ReplicaSet"
) -> Json:
    references = [
        {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
    ]
    labels = {"queuectl.dev/queue-name": "main", "pod-template-hash": owner.rpartition("-")[2]}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": name,
            "resourceVersion": "7",
            "creationTimestamp": f"2026-11-27T07:{minute:02}:00Z",
            "labels": labels | ({GROUP: group} if group else {}),
            "annotations": {"queuectl.dev/pod-group-total-count": "1"} if group else {},
            "ownerReferences": references,
        },
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "schedulingGates": [{"name": "queuectl.dev/admission"}],
        },
        "status": {"phase": "Pending"},
    }


def running(obj: Json) -> Json:
    labels = {**obj["metadata"]["labels"], "queuectl.dev/workload": obj["metadata"]["uid"]}
    return {
        **obj,
        "metadata": {**obj["metadata"], "labels": labels},
        "spec": {**obj["spec"], "schedulingGates": []},
        "status": {"phase": "Running"},
    }


def stopped(obj: Json, code: str = "Preempted") -> Json:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": f"Queuectl{code}"}
    return running(obj) | {"status": {"phase": "Running", "conditions": [condition]}}


def since(source: Source[Event], obj: Json) -> int | None:
    """The minute since which it is ordered; None: by its creation."""
    event = source.seen(obj)
    assert isinstance(event, WorkloadObserved)
    assert event.workload.created_at == datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
    found = event.ordered_from
    assert found is None or found.replace(minute=0) == datetime(2026, 11, 27, 7, tzinfo=UTC)
    return None if found is None else found.minute


@pytest.mark.parametrize(
    "code", ["Preempted", "NodeFailures", "UserHold", "LocalQueueStopped", "ClusterQueueStopped"]
)
def test_a_pod_in_the_place_of_one_that_was_stopped_is_ordered_from_its_creation(
    source: Source[Event], code: str
) -> None:
    first = pod("first", 1)
    assert [since(source, one) for one in (first, running(first), stopped(first, code))] == [None] * 3
    second = pod("second", 20)
    for _ in range(2):  # each event says it: one may be merged with a later one
        assert since(source, second) == 1
    assert since(source, pod("third", 20)) is None  # there was one place
    source.gone("first", "9")
    assert since(source, pod("fourth", 20)) is None
    assert since(source, stopped(second)) == 1
    assert since(source, pod("fifth", 40)) == 1  # and so on


@pytest.mark.parametrize(
    "code", ["MaximumExecutionTimeExceeded", "PodsReadyTimeout", "IdleCancelled", "BudgetTimeExceeded"]
)
def test_a_pod_that_may_not_keep_its_place_leaves_none(source: Source[Event], code: str) -> None:
    assert since(source, stopped(pod("first", 1), code)) is None
    assert since(source, pod("second", 20)) is None
    source.gone("first", "9")
    assert since(source, pod("third", 20)) is None


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_pod_that_was_started_and_is_deleted_by_others_leaves_no_place(
    source: Source[Event], phase: str
) -> None:
    assert since(source, running(pod("first", 1)) | {"status": {"phase": phase}}) is None
    source.gone("first", "9")
    assert since(source, pod("second", 20)) is None


def test_an_edit_of_a_deployment_keeps_the_places_of_the_pods_that_wait_the_oldest_first(
    source: Source[Event],
) -> None:
    for name, minute in (("a", 3), ("b", 1), ("c", 2)):
        since(source, pod(name, minute))
    for name in "ab":
        source.gone(name, "9")
    new = [pod(f"new-{number}", 20, owner="web-77c") for number in range(3)]
    assert [since(source, one) for one in new] == [1, 3, None]


@pytest.mark.parametrize(
    "other",
    [
        {"owner": "db-5d9"},
        {"owner": "web-5d9", "kind": "StatefulSet"},
        {"owner": "web-5d9-5d9"},
    ],
)
def test_a_pod_of_another_owner_takes_no_place(source: Source[Event], other: Json) -> None:
    assert since(source, pod("first", 1)) is None
    source.gone("first", "9")
    assert since(source, pod("second", 20, **other)) is None
    foreign = pod("third", 20)
    foreign["metadata"]["namespace"] = "team-b"
    assert since(source, foreign) is None
    alone = pod("fourth", 20)
    del alone["metadata"]["ownerReferences"]
    assert since(source, alone) is None
    assert since(source, pod("fifth", 20)) == 1


def test_a_place_is_kept_for_a_minute(source: Source[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    kept = places.PodPlaces(lambda: now[0])
    seen = source.seen(pod("first", 1))
    assert isinstance(seen, WorkloadObserved)
    kept.placed(seen, "web", stopped=True)
    now[0] = 1000.0  # it ends slowly
    kept.forget(seen.workload.id)
    now[0] += places.SECONDS
    later = source.seen(pod("second", 20, owner="other-1"))
    assert isinstance(later, WorkloadObserved)
    assert kept.placed(later, "web", stopped=False).ordered_from is None
    assert not kept._free
    assert not kept._gone


def test_a_group_that_comes_again_with_its_name_has_the_place_of_the_stopped_one() -> None:
    groups = PodGroups(POD_GROUP)

    def told(obj: Json) -> dict[str, int | None]:
        groups.observe(obj)
        return {
            one.workload.id: one.ordered_from.minute if one.ordered_from else None
            for one in groups.take(9)
            if isinstance(one, WorkloadObserved)
        }

    first = pod("first", 1, group="train")
    assert told(first) == {"first": None}
    assert told(stopped(first))["first"] is None
    assert told(pod("other", 20, group="other")) == {"other": None}
    assert told(pod("second", 20, group="train"))["second"] == 1
    groups.forget("first", "9")
    groups.take(9)
    groups.forget("second", "10")  # while it waits, as by an edit of its owner
    assert told(pod("third", 30, group="train")) == {"third": 1}
