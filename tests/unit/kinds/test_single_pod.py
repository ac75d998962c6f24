"""Pods that queue by themselves: read from their objects, and the patches that start and mark them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from queuectl.app.kinds import job_kinds
from queuectl.changes.submit import submissions
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Effect, Eviction, Verb, WorkloadOutcome
from queuectl.kinds import patches
from queuectl.kinds.builtin import BUILT_IN, OPTIONAL
from queuectl.kinds.gate import BINDING, expected
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.labels import KUEUES_TOO, OWN, selection
from queuectl.kinds.manifests import manifests
from queuectl.kinds.pods import pod_event
from queuectl.kinds.single_pod import POD, gate_operations
from queuectl.kinds.workloads import observe
from queuectl.settings import Settings
from queuectl.webhook.mutation import mutations
from tests.integration.kube.sites import effect

Json = dict[str, Any]
KINDS = KindRegistry((*BUILT_IN, *OPTIONAL))
OURS = {"name": "queuectl.dev/admission"}
OTHER = {"name": "example.com/other"}
AT = datetime(2026, 11, 27, 8, tzinfo=UTC)


def pod(*, gates: tuple[Json, ...] = (OURS,), phase: str = "Pending", **metadata: Any) -> Json:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "2"}},
    }
    sidecar = {
        "name": "s",
        "image": "i",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "250m"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "note",
            "namespace": "team-a",
            "uid": "uid-1",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2026-11-27T07:00:00Z",
            "labels": {"queuectl.dev/queue-name": "main", "queuectl.dev/gated": "true"},
            **metadata,
        },
        "spec": {
            "containers": [container],
            "initContainers": [sidecar],
            "nodeSelector": {"disk": "fast"},
            **({"schedulingGates": list(gates)} if gates else {}),
        },
        "status": {"phase": phase},
    }


def start(obj: Json) -> Effect:
    return effect(obj, "Pod", kinds=KINDS)


def test_a_pod_is_one_podset_of_one_pod_with_what_the_scheduler_counts() -> None:
    seen = observe(POD, pod())
    assert seen is not None
    (pod_set,) = seen.workload.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 1)
    assert dict(pod_set.requests) == {"cpu": 750, "nvidia.com/gpu": 2}
    assert pod_set.pod is None  # LimitRanges and ResourceQuotas have counted the pod when it was created
    assert seen.workload.problem is None


@pytest.mark.parametrize(
    ("gates", "suspended"), [((OURS,), True), ((OTHER, OURS), True), ((OTHER,), False), ((), False)]
)
def test_it_is_suspended_while_it_has_our_gate_whatever_others_it_has(
    gates: tuple[Json, ...], suspended: bool
) -> None:
    assert POD.suspended(pod(gates=gates)) is suspended
    seen = observe(POD, pod(gates=gates))
    assert seen is not None
    assert seen.observation.quiet is suspended


@pytest.mark.parametrize("gates", [None, 7, "x", {"name": OURS["name"]}, [None, 3, {"name": None}]])
def test_malformed_gates_hold_nothing_back_and_raise_nothing(gates: object) -> None:
    obj = pod()
    obj["spec"]["schedulingGates"] = gates
    assert POD.suspended(obj) is False
    assert observe(POD, obj) is not None


@pytest.mark.parametrize(
    ("phase", "outcome", "ready"),
    [
        ("Succeeded", WorkloadOutcome.SUCCEEDED, True),
        ("Failed", WorkloadOutcome.FAILED, False),
        ("Running", None, False),
    ],
)
def test_it_ends_by_its_phase(phase: str, outcome: WorkloadOutcome | None, ready: bool) -> None:
    seen = observe(POD, pod(gates=(), phase=phase))
    assert seen is not None
    assert (seen.observation.finished, seen.observation.ready) == (outcome, ready)
    assert seen.observation.quiet is (outcome is not None)


def test_it_is_ready_by_its_condition() -> None:
    obj = pod(gates=(), phase="Running")
    obj["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    seen = observe(POD, obj)
    assert seen is not None
    assert (seen.observation.ready, seen.observation.pods_ready) == (True, 1)


def test_a_start_removes_our_gate_alone_and_adds_to_what_the_pod_has() -> None:
    patch = patches.start(POD, start(pod(gates=(OTHER, OURS))))
    by_path = {(one["op"], one["path"]): one.get("value") for one in patch}
    assert by_path["test", "/metadata/uid"] == "uid-1"
    assert by_path["test", "/metadata/generation"] == 1
    assert by_path["test", "/metadata/labels/queuectl.dev~1queue-name"] == "main"
    assert by_path["add", "/spec/nodeSelector"] == {"disk": "fast", "pool": "spot"}
    assert by_path["add", "/metadata/labels/queuectl.dev~1workload"] == "uid-1"
    assert patch[-2:] == [
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": OURS["name"]},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


def test_where_pods_have_no_generation_a_start_tests_the_resource_version() -> None:
    patch = patches.start(POD, start(pod(generation=None, annotations={"a": "b"})))
    tests = {one["path"]: one["value"] for one in patch if one["op"] == "test"}
    assert "/metadata/generation" not in tests
    assert tests["/metadata/resourceVersion"] == "7"


def _stop(obj: Json) -> Effect:
    found = effect(obj, "Pod", verb=Verb.STOP, kinds=KINDS)
    reason = Reason(code=Code.CLUSTER_QUEUE_STOPPED)
    return replace(found, eviction=Eviction(reason, AT))


def test_a_stop_marks_the_pod_with_the_reason_once_and_keeps_its_other_conditions() -> None:
    obj = pod(gates=(), phase="Running")
    obj["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    stop = _stop(obj)
    assert patches.deletes(POD, stop, obj)
    *tests, conditions, record = patches.disruption(stop, obj, AT)
    assert [one["path"] for one in tests] == ["/metadata/uid", "/metadata/resourceVersion"]
    ready, marked = conditions["value"]
    assert ready["type"] == "Ready"
    assert (marked["type"], marked["status"]) == ("DisruptionTarget", "True")
    assert marked["reason"] == "QueuectlClusterQueueStopped"
    assert "queuectl.dev/reserved-stopped" in record["value"]
    obj["status"]["conditions"] = conditions["value"]
    assert patches.disruption(stop, obj, AT) == []


def test_a_pod_that_waits_has_ended_or_runs_by_a_later_attempt_is_not_deleted() -> None:
    assert not patches.deletes(POD, _stop(pod()), pod())
    ended = pod(gates=(), phase="Succeeded")
    assert not patches.deletes(POD, _stop(ended), ended)
    going = pod(gates=(), phase="Running", deletionTimestamp="2026-11-27T08:00:00Z")
    assert not patches.deletes(POD, _stop(going), going)


def test_a_started_pod_is_its_own_workload_on_its_node() -> None:
    obj = pod(gates=(), phase="Running")
    obj["metadata"]["labels"]["queuectl.dev/workload"] = "uid-1"
    obj["spec"]["nodeName"] = "node-1"
    seen = pod_event(obj)
    assert seen is not None
    assert (seen.pod.workload, seen.pod.owner) == ("uid-1", None)


def test_only_pods_with_the_label_of_the_gate_are_watched() -> None:
    alone = "queuectl.dev/gated,!queuectl.dev/pod-group-name"
    assert selection(POD, OWN) == selection(POD, KUEUES_TOO) == {"labelSelector": alone}
    assert selection(BUILT_IN["Job"], KUEUES_TOO) == {}


def test_kueues_labels_have_no_effect_on_a_pod() -> None:
    """The gate does not check of a pod whether its user may use the class that Kueue's label names."""
    obj = pod()
    obj["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent"
    seen = observe(POD, obj, KUEUES_TOO)
    assert seen is not None
    assert seen.workload.priority_class is None
    queue = obj["metadata"]["labels"].pop("queuectl.dev/queue-name")
    obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    assert observe(POD, obj, KUEUES_TOO) is None


def test_the_webhook_gates_a_pod_beside_other_gates_and_leaves_one_that_is_gated_or_bound() -> None:
    bare = pod(gates=())
    del bare["metadata"]["labels"]["queuectl.dev/gated"]
    label = {"op": "add", "path": "/metadata/labels/queuectl.dev~1gated", "value": "true"}
    assert gate_operations(bare) == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [OURS]},
        label,
    ]
    bare["spec"]["schedulingGates"] = [OTHER]
    assert gate_operations(bare) == [{"op": "add", "path": "/spec/schedulingGates/-", "value": OURS}, label]
    assert gate_operations(pod()) == []
    assert gate_operations({**bare, "spec": {**bare["spec"], "nodeName": "n"}}) == []


def test_the_webhook_makes_leader_and_workers_of_a_leader_worker_set_a_group() -> None:
    key = "leaderworkerset.sigs.k8s.io/"
    added = {}
    for name, leader in (("server-0", {}), ("server-0-1", {f"{key}leader-name": "server-0"})):
        made = pod(gates=(), name=name, annotations={f"{key}size": "3", **leader})
        made["metadata"]["labels"] |= {f"{key}name": "server"}
        added[name] = gate_operations(made)[1:]
        made["metadata"]["labels"]["queuectl.dev/pod-group-name"] = "of-its-user"
        assert len(gate_operations(made)) == 1
        del made["metadata"]["labels"][f"{key}name"]
        assert len(gate_operations(made)) == 1
    (name,) = {json.dumps(one) for one in added.values()}
    assert [(one["path"], one["value"]) for one in json.loads(name)] == [
        ("/metadata/labels/queuectl.dev~1pod-group-name", "server-0"),
        ("/metadata/annotations/queuectl.dev~1pod-group-total-count", "3"),
    ]


def test_the_webhook_gives_a_pod_that_kueues_label_queues_the_keys_that_queuectl_reads() -> None:
    """As the mutating policy: tests/acceptance/gate/test_gated_pods.py has all cases, on real API servers."""
    k = "kueue.x-k8s.io/"
    labels = {f"{k}queue-name": "main", f"{k}pod-group-name": "g", f"{k}pod-group-pod-index": "0"}
    annotations = {f"{k}pod-group-total-count": "2"}
    made = pod(gates=(), labels=labels, annotations=annotations)
    added = {one["path"].replace("~1", "/"): one["value"] for one in gate_operations(made)}
    assert added.pop("/spec/schedulingGates") == [OURS]
    assert added == {
        "/metadata/labels/queuectl.dev/queue-name": "main",
        "/metadata/labels/queuectl.dev/pod-group-name": "g",
        "/metadata/labels/queuectl.dev/pod-group-pod-index": "0",
        "/metadata/annotations/queuectl.dev/pod-group-total-count": "2",
        "/metadata/labels/queuectl.dev/gated": "true",
    }
    made["metadata"]["labels"]["queuectl.dev/queue-name"] = "ours"
    assert [one["path"] for one in gate_operations(made)][1:] == ["/metadata/labels/queuectl.dev~1gated"]


def test_manifests_read_kueues_names_of_pods_only_where_both_settings_are_on() -> None:
    assert manifests(BUILT_IN, KUEUES_TOO) == manifests(BUILT_IN)
    ours, both = manifests(KINDS), manifests(KINDS, KUEUES_TOO)
    changed = {name for name in ours if ours[name] != both[name]}
    assert changed == {"gate/pods.yaml", "mutating/suspend.yaml", "webhook/configuration.yaml"}
    more = expected(KINDS, KUEUES_TOO).keys() - expected(KINDS, OWN).keys()
    assert more == {(BINDING, "queuectl-ungated-pods-of-kueue")}


def test_manifests_have_rules_for_pods_only_where_pods_queue() -> None:
    plain, with_pods = manifests(BUILT_IN), manifests(KINDS)
    assert plain.keys() == with_pods.keys()
    changed = {name for name in plain if plain[name] != with_pods[name]}
    assert changed == {
        "gate/attribution.yaml",
        "gate/pods.yaml",
        "gate/use.yaml",
        "mutating/attribution.yaml",
        "mutating/bypass.yaml",
        "mutating/suspend.yaml",
        "rbac/controller.yaml",
        "webhook/configuration.yaml",
    }
    assert all(text.startswith(plain[name]) for name, text in with_pods.items())


def _review(operation: str, new: Json, old: Json | None = None) -> Json:
    resource = {"group": "", "version": "v1", "resource": "pods"}
    user = {"username": "ada"}
    return {"operation": operation, "resource": resource, "userInfo": user, "object": new, "oldObject": old}


def test_the_webhook_records_who_creates_a_pod_and_who_lets_it_go_past_its_queue() -> None:
    created = mutations(_review("CREATE", pod(gates=())), KINDS)
    assert created == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [OURS]},
        {"op": "add", "path": "/metadata/annotations", "value": {"queuectl.dev/reserved-submitter": "ada"}},
    ]
    (bypassed,) = mutations(_review("UPDATE", pod(gates=()), pod()), KINDS)
    assert bypassed["value"] == {"queuectl.dev/reserved-bypass": "ada"}
    assert mutations(_review("UPDATE", pod(), pod()), KINDS) == []
    assert mutations(_review("CREATE", pod(gates=())), BUILT_IN) == []


def test_pods_queue_where_the_configuration_names_them() -> None:
    found = job_kinds(Settings(kinds=("Pod",)))
    assert found.problems == ()
    assert found.registry.find("pod") is found.registry.find("po") is POD
    assert found.registry.of_group("v1", "Pod") is POD
    assert POD.resource == "pods"
    assert job_kinds(Settings()).registry.find("pod") is None


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (("Deployment",), "kinds[0]: 'Deployment' is no optional kind, known: Pod"),
        (("Pod", "Pod"), "kinds[1]: two rows have the name Pod"),
    ],
)
def test_a_name_that_is_no_optional_kind_is_a_problem_with_its_place(
    rows: tuple[str, ...], problem: str
) -> None:
    (found,) = job_kinds(Settings(kinds=rows)).problems
    assert found.endswith(problem)


def test_a_pod_that_is_submitted_is_gated_and_labelled() -> None:
    body = pod(gates=(OTHER,), labels={})
    (submission,) = submissions(
        json.dumps(body).encode(),
        "pod.json",
        kinds=KINDS,
        queue="main",
        priority=None,
        given=None,
        default="team-a",
    )
    assert submission.object["spec"]["schedulingGates"] == [OTHER, OURS]
    assert submission.object["metadata"]["labels"] == {
        "queuectl.dev/queue-name": "main",
        "queuectl.dev/gated": "true",
    }
