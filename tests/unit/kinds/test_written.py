from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from queuectl.core.model.capacity import CapacityWarning, WarningCode
from queuectl.core.model.policy import Condition, LocalQueueName, Namespace, Node, PriorityClass, RuntimeClass
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ObjectRef
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport, Waiting
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.patches import cluster_queue_status, event, local_queue_status, stamped
from queuectl.kinds.policy_status import ClusterQueueStatus, LocalQueueStatus
from tests.job_kinds import JOB_KINDS

REF = ObjectRef("team-a", "Job", "train", "uid-1")
AT = datetime(2026, 11, 21, 10, tzinfo=UTC)


def _event(**more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"reason": "Pending", "message": "m", "warning": False, "key": "7", "at": AT}
    return event(JOB_KINDS["Job"], REF, **(fields | more))


def test_an_event_sent_twice_is_stored_once() -> None:
    assert _event() == _event()
    names = {_event(**more)["metadata"]["name"] for more in ({}, {"key": "8"}, {"reason": "Admitted"})}
    assert len(names) == 3


def test_an_event_is_valid_for_the_api_server() -> None:
    body = _event(message="ä\x00" * 5000, warning=True)
    assert len(body["note"].encode()) <= 1024
    assert "\x00" not in body["note"]
    assert body["type"] == "Warning"
    assert body["eventTime"] == "2026-11-21T10:00:00.000000Z"
    assert body["regarding"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "team-a",
        "name": "train",
        "uid": "uid-1",
    }
    long = event(
        JOB_KINDS["Job"],
        REF._replace(name="x" * 253),
        reason="Pending",
        message="",
        warning=False,
        key="",
        at=AT,
    )
    assert len(long["metadata"]["name"]) <= 253


def test_the_status_of_a_local_queue_names_the_first_pending_workloads() -> None:
    waiting = tuple(
        Waiting(REF, place, Reason(code=Code.WAITING_FOR_QUOTA, resource="gpu", requested=8, short_by=3))
        for place in range(1, 61)
    )
    report = LocalQueueReport(
        name=LocalQueueName("team-a", "main"),
        cluster_queue="gpus",
        condition=Condition(True, "Ready", "can admit"),
        pending=60,
        admitted=2,
        first=waiting,
        used=((FlavorResource("a100", "gpu"), 3),),
    )
    status = stamped(local_queue_status(report), None, "2026-11-21T10:00:00.000000Z")
    assert (status["pendingWorkloads"], status["admittedWorkloads"], len(status["waiting"])) == (60, 2, 50)
    first = status["waiting"][0]
    assert (first["name"], first["uid"], first["kind"], first["position"]) == ("train", "uid-1", "Job", 1)
    assert first["reason"]["code"] == "WaitingForQuota"
    assert "short by 3" in first["reason"]["message"]
    assert status["flavorsUsage"] == [{"name": "a100", "resources": [{"name": "gpu", "total": "3"}]}]
    LocalQueueStatus.model_validate(status)


def test_the_status_of_a_cluster_queue_has_what_counts_of_its_quota_and_warns() -> None:
    gpu = FlavorResource("a100", "gpu")
    report = ClusterQueueReport(
        name="gpus",
        condition=Condition(True, "Ready", "Can admit new workloads"),
        pending=0,
        admitted=1,
        nominal=((gpu, 8),),
        used=((gpu, 6),),
        reduced=((gpu, 4),),
        warnings=(
            CapacityWarning(code=WarningCode.FLAVOR_WITHOUT_NODES, flavor="h100"),
            CapacityWarning(
                code=WarningCode.QUOTA_BEYOND_NODES, flavor="a100", resource="gpu", promised=8, capacity=4
            ),
        ),
    )
    status = stamped(cluster_queue_status(report), None, "t")
    assert status["flavorsUsage"][0]["resources"] == [
        {"name": "gpu", "total": "6", "borrowed": "2", "effectiveQuota": "4"}
    ]
    assert status["conditions"][1] == {
        "type": "CapacityWarning",
        "status": "True",
        "reason": "FlavorWithoutNodes",
        "message": "no node has the labels of ResourceFlavor h100; "
        "8 gpu of a100 are promised, usable nodes have 4",
        "lastTransitionTime": "t",
    }
    ClusterQueueStatus.model_validate(status)


def test_the_status_of_a_cluster_queue_has_what_is_used_and_borrowed() -> None:
    gpu, cpu = FlavorResource("a100", "gpu"), FlavorResource("a100", "cpu")
    report = ClusterQueueReport(
        name="gpus",
        condition=Condition(False, "FlavorNotFound", "no a100"),
        pending=1,
        admitted=2,
        nominal=((gpu, 8), (cpu, 4000)),
        used=((gpu, 12),),
        share=250,
    )
    status = stamped(cluster_queue_status(report), None, "t")
    assert status["flavorsUsage"] == [
        {
            "name": "a100",
            "resources": [
                {"name": "cpu", "total": "0", "borrowed": "0", "effectiveQuota": "4"},
                {"name": "gpu", "total": "12", "borrowed": "4", "effectiveQuota": "8"},
            ],
        }
    ]
    assert status["fairSharing"] == {"weightedShare": 250}
    assert [(one["type"], one["status"]) for one in status["conditions"]] == [("Active", "False")]
    ClusterQueueStatus.model_validate(status)


def test_a_condition_keeps_its_transition_time_while_its_status_is_the_same() -> None:
    def status(active: bool) -> dict[str, Any]:
        shown = "True" if active else "False"
        return {"conditions": [{"type": "Active", "status": shown, "reason": "r", "message": "m"}]}

    first = stamped(status(True), None, "t1")
    same = stamped(status(True), first, "t2")
    assert same == first
    assert stamped(status(False), same, "t3")["conditions"][0]["lastTransitionTime"] == "t3"


def _read(kind: str, **fields: Any) -> object:
    created = "2026-11-21T10:00:00Z"
    metadata = {"name": fields.pop("name", "x"), "labels": {"a": "b"}, "creationTimestamp": created}
    return CONTEXT_KINDS[kind].observe({"metadata": metadata, **fields})


def test_the_context_of_the_cluster_is_read() -> None:
    assert _read("Namespace") == Namespace("x", (("a", "b"),))
    assert _read("PriorityClass", value=-5, globalDefault=True) == PriorityClass("x", -5, True)
    assert _read("RuntimeClass", overhead={"podFixed": {"cpu": "250m"}}) == RuntimeClass("x", (("cpu", 250),))


def test_amounts_of_a_node_that_cannot_be_read_or_are_0_are_left_out() -> None:
    found = _read(
        "Node", status={"allocatable": {"cpu": "8", "nvidia.com/gpu": "4", "odd": "?", "gone": "0"}}
    )
    assert isinstance(found, Node)
    assert found.allocatable == (("cpu", 8000), ("nvidia.com/gpu", 4))


def test_context_that_cannot_be_read_is_ignored() -> None:
    assert _read("PriorityClass", value="high") is None
    assert CONTEXT_KINDS["Namespace"].observe({"metadata": []}) is None
    assert CONTEXT_KINDS["Node"].observe({}) is None
