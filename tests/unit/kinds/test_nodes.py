"""Nodes of the cluster, from JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from queuectl.core.model.policy import Node, Taint
from queuectl.kinds.context import CONTEXT_KINDS

Json = dict[str, Any]

NODE: Json = {
    "metadata": {"name": "n1", "labels": {"gpu": "a100"}, "creationTimestamp": "2030-01-01T00:00:00Z"},
    "spec": {"unschedulable": True, "taints": [{"key": "spot", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "4", "nvidia.com/gpu": "8", "example.com/broken": "many"},
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:01:00Z"},
            {"type": "GpuHealthy", "status": "False", "lastHeartbeatTime": "2030-01-01T00:02:00Z"},
        ],
    },
}


def test_all_that_decides_whether_a_node_counts_is_read() -> None:
    assert CONTEXT_KINDS["Node"].observe(NODE) == Node(
        "n1",
        (("gpu", "a100"),),
        (("cpu", 4000), ("nvidia.com/gpu", 8)),
        ready=True,
        ready_since=datetime(2030, 1, 1, 0, 1, tzinfo=UTC),
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        cordoned=True,
        taints=(Taint("spot", "", "NoSchedule"),),
        conditions=(("GpuHealthy", "False"),),
    )


def test_a_node_without_a_ready_condition_is_not_ready() -> None:
    found = CONTEXT_KINDS["Node"].observe({"metadata": {"name": "n1"}})
    assert found == Node("n1", ready=False)


def test_a_heartbeat_changes_nothing() -> None:
    beaten = {**NODE, "status": {**NODE["status"], "conditions": [*NODE["status"]["conditions"]]}}
    beaten["status"]["conditions"][1] = {
        **beaten["status"]["conditions"][1],
        "lastHeartbeatTime": "2031-01-01",
    }
    assert CONTEXT_KINDS["Node"].observe(beaten) == CONTEXT_KINDS["Node"].observe(NODE)


def test_a_time_that_is_none_does_not_hide_the_node() -> None:
    odd = {**NODE, "metadata": {**NODE["metadata"], "creationTimestamp": "soon"}}
    found = CONTEXT_KINDS["Node"].observe(odd)
    assert isinstance(found, Node)
    assert found.created_at is None


def test_another_node_of_the_same_name_is_known_by_its_uid() -> None:
    found = CONTEXT_KINDS["Node"].observe({"metadata": {"name": "n1", "uid": "u-2"}})
    assert isinstance(found, Node)
    assert found.uid == "u-2"
