"""Pods of the cluster, from JSON."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.devices import PodClaim
from queuectl.core.model.pods import Pod, PodOwner
from queuectl.kinds.pods import pod_event
from queuectl.kinds.requests import pod_requests, readable_requests

Json = dict[str, Any]


def pod(labels: Json | None = None, **spec: Any) -> Json:
    requests = {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "2"}}
    return {
        "metadata": {"uid": "u", "namespace": "ns", "name": "p", "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "resources": requests}], **spec},
        "status": {"phase": "Pending"},
    }


def owned(obj: Json, **owner: Any) -> Json:
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": "uid-j",
        "controller": True,
        **owner,
    }
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


def seen(obj: Json) -> Pod | None:
    event = pod_event(obj)
    return event.pod if event is not None else None


def test_a_bound_pod_takes_what_its_containers_request() -> None:
    found = seen(pod(nodeName="n1"))
    assert found == Pod(
        uid="u", namespace="ns", name="p", node="n1", requests=(("cpu", 500), ("nvidia.com/gpu", 2))
    )


def test_a_pod_of_a_workload_is_known_by_its_label() -> None:
    found = seen(owned(pod({"queuectl.dev/workload": "uid-a"}), uid="uid-a"))
    assert found is not None
    assert (found.workload, found.owner, found.node) == ("uid-a", None, None)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ({}, PodOwner("batch/v1", "Job", "j", "uid-j")),
        ({"uid": "uid-a", "controller": False}, PodOwner("", "", "", "")),
        (None, PodOwner("", "", "", "")),
    ],
    ids=["of another object", "not its controller", "of none"],
)
def test_a_pod_with_the_label_that_the_workload_does_not_control_itself_has_its_controller(
    owner: Json | None, expected: PodOwner
) -> None:
    obj = pod({"queuectl.dev/workload": "uid-a"})
    found = seen(owned(obj, **owner) if owner is not None else obj)
    assert found is not None
    assert (found.workload, found.owner) == ("uid-a", expected)


def test_a_pod_that_is_deleted_holds_its_node_until_it_is_gone() -> None:
    obj = pod(nodeName="n1")
    obj["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    found = seen(obj)
    assert found is not None
    assert found.terminating


def test_what_the_scheduler_says_of_a_pod_that_fits_no_node_is_kept() -> None:
    obj = pod({"queuectl.dev/workload": "uid-a"})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    obj["status"]["conditions"] = [condition]
    found = seen(obj)
    assert found is not None
    assert found.unschedulable == "0/3 nodes"


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": "Failed"}},
        {"spec": {"containers": []}},
        {"metadata": []},
        {"spec": "text"},
    ],
    ids=["succeeded", "failed", "neither bound nor of a workload", "metadata no mapping", "spec no mapping"],
)
def test_a_pod_is_not_counted_that_is(change: Json) -> None:
    assert seen({**pod(nodeName="n1"), **change}) is None


def test_of_requests_those_are_counted_that_can_be_read() -> None:
    """It runs: what it takes of its node is taken, whatever else it requests."""
    obj = pod(nodeName="n1")
    obj["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "9" * 100}
    found = seen(obj)
    assert found is not None
    assert found.requests == (("cpu", 500),)


def test_what_is_read_of_each_resource_alone_is_what_is_read_of_all() -> None:
    init = {"name": "i", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}
    spec = pod(initContainers=[sidecar, init], overhead={"cpu": "250m"})["spec"]
    assert readable_requests(spec) == pod_requests(spec, "spec")
    level = pod(resources={"requests": {"cpu": "7"}})["spec"]
    assert readable_requests(level) == pod_requests(level, "spec")


def test_the_claims_of_a_pod_are_kept() -> None:
    claims = [
        {"name": "own", "resourceClaimTemplateName": "one"},
        {"name": "data", "resourceClaimName": "two"},
    ]
    found = seen(pod(nodeName="n1", resourceClaims=claims))
    assert found is not None
    assert found.claims == (
        PodClaim("spec.resourceClaims[0]", "one", template=True),
        PodClaim("spec.resourceClaims[1]", "two", template=False),
    )
    unread = seen(pod(nodeName="n1", resourceClaims=[{"name": "of a later Kubernetes"}]))
    assert unread is not None
    assert unread.claims == ()
