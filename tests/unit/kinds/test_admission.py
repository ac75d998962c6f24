from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.policy import ResourceFlavor, Toleration
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    Eviction,
    PodSetAssignment,
    Verb,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.kinds.admission import AdmissionAnnotation, additions, parse, render
from queuectl.kinds.jobs import PASSED, value_at
from queuectl.kinds.node_constraints import NodeConstraints
from queuectl.kinds.patches import TO_FAIL, first_stop, is_to_fail, next_stop, resume, start, stop_after
from queuectl.kinds.reserved_keys import STOPPED_ANNOTATION
from queuectl.kinds.start_patch import pointer
from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import UID, job, pytorch_job
from tests.unit.kinds.json_patches import applied, with_its_stop

SPOT = ResourceFlavor(
    name="spot",
    node_labels=(("gpu", "a100"), ("pool", "spot")),
    tolerations=(Toleration("spot", "Exists", None, "NoSchedule"),),
)
CPUS = ResourceFlavor(name="cpus", node_labels=(("arch", "amd64"),))
ANNOTATION = "queuectl.dev/reserved-admission"
NOW = datetime(2026, 11, 21, 11, tzinfo=UTC)
DOCS = Path(__file__).parents[3] / "docs"


def _pod_set(name: str = "main", **more: Any) -> PodSetAssignment:
    fields: dict[str, Any] = {
        "count": 2,
        "requests": (("cpu", 1500), ("nvidia.com/gpu", 8)),
        "flavors": (("cpu", "cpus"), ("nvidia.com/gpu", "spot")),
    }
    return PodSetAssignment(name=name, **(fields | more))


def _attempt(*pod_sets: PodSetAssignment, number: int = 1) -> Attempt:
    return Attempt(
        workload=WorkloadId(UID),
        number=number,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue="gpus", pod_sets=pod_sets or (_pod_set(),)),
        admitted_at=datetime(2026, 11, 21, 10, 0, number - 1, 123456, tzinfo=UTC),
        sequence=7,
    )


def _effect(obj: dict[str, Any], kind: str, attempt: Attempt) -> Effect:
    event = observe(JOB_KINDS[kind], obj)
    assert event is not None
    return Effect(
        key=EffectKey(attempt.workload, attempt.number, Verb.START),
        workload=event.workload,
        observation=event.observation,
        attempt=attempt,
        flavors=(CPUS, SPOT),
    )


def test_the_annotation_has_the_whole_admission_and_reads_back() -> None:
    own = _pod_set(node_selector=(("disk", "ssd"),), tolerations=(Toleration("x", "Exists"),))
    text = render(_attempt(own), "main", (CPUS, SPOT))
    assert json.loads(text) == {
        "workload": UID,
        "attempt": 1,
        "sequence": 7,
        "queue": "main",
        "clusterQueue": "gpus",
        "admittedAt": "2026-11-21T10:00:00.123456Z",
        "podSets": [
            {
                "name": "main",
                "count": 2,
                "requests": {"cpu": 1500, "nvidia.com/gpu": 8},
                "flavors": {"cpu": "cpus", "nvidia.com/gpu": "spot"},
                "before": {
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "x", "operator": "Exists"}],
                },
                "added": {
                    "nodeSelector": {"arch": "amd64", "gpu": "a100", "pool": "spot"},
                    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
                },
            }
        ],
    }
    read = parse(text, WorkloadId(UID))
    assert isinstance(read, AdmissionAnnotation)
    assert read.attempt == _attempt(own)
    assert read.queue == "main"


def test_scheduling_fields_that_the_user_has_set_are_not_added() -> None:
    own = _pod_set(node_selector=(("gpu", "a100"),), tolerations=SPOT.tolerations)
    added = additions(own, (SPOT, CPUS))
    assert added == NodeConstraints((("arch", "amd64"), ("pool", "spot")), ())


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        "9" * 10_000,
        '{"workload":"another"}',
        "\ud800",
        "x" * 300_000,
    ],
    ids=lambda value: str(value)[:12].encode("utf-8", "replace").decode() + str(len(str(value))),
)
def test_a_malformed_annotation_is_ignored(text: object) -> None:
    assert parse(text, WorkloadId(UID)) is None


@given(
    path=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    value=st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none(), max_size=1) | st.just({}),
)
def test_a_broken_annotation_is_read_completely_or_not_at_all(path: list[int], value: Any) -> None:
    content = json.loads(render(_attempt(), "main", (CPUS, SPOT)))
    holder = content
    for step in path[:-1]:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        inner = holder[keys[step % len(keys)]] if len(keys) else None
        if not isinstance(inner, dict | list) or not inner:
            break
        holder = inner
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    holder[keys[path[-1] % len(keys)]] = value
    read = parse(json.dumps(content), WorkloadId(UID))
    if read is not None:
        assert read.attempt.number >= 1
        assert all(amount > 0 for pod in read.attempt.assignment.pod_sets for _, amount in pod.requests)
        read.attempt.assignment.usage()


def test_the_annotation_of_another_object_is_ignored() -> None:
    assert parse(render(_attempt(), "main", (SPOT, CPUS)), WorkloadId("other")) is None


def test_a_start_tests_the_expected_object_and_adds_scheduling_fields() -> None:
    obj = job(pod={"nodeSelector": {"disk": "ssd"}}, parallelism=2)
    own = _pod_set(node_selector=(("disk", "ssd"),))
    patch = start(JOB_KINDS["Job"], _effect(obj, "Job", _attempt(own)))
    tested = {step["path"]: step["value"] for step in patch if step["op"] == "test"}
    assert tested == {
        "/metadata/uid": UID,
        "/metadata/generation": 1,
        "/metadata/labels/queuectl.dev~1queue-name": "main",
        "/metadata/resourceVersion": "41",
    }
    after = applied(obj, patch)
    pod = after["spec"]["template"]["spec"]
    assert after["spec"]["suspend"] is False
    assert pod["nodeSelector"] == {"disk": "ssd", "arch": "amd64", "gpu": "a100", "pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]
    assert list(after["metadata"]["annotations"]) == [ANNOTATION]


def test_other_annotations_survive_a_start_and_a_new_resource_version_does_not_prevent_it() -> None:
    obj = job()
    obj["metadata"]["annotations"] = {"note": "mine"}
    patch = start(JOB_KINDS["Job"], _effect(obj, "Job", _attempt()))
    assert "/metadata/resourceVersion" not in {step["path"] for step in patch}
    assert set(applied(obj, patch)["metadata"]["annotations"]) == {"note", ANNOTATION}


def test_a_start_of_a_pytorch_job_adds_scheduling_fields_to_each_replica() -> None:
    obj = pytorch_job(Master=1, Worker=3)
    attempt = _attempt(_pod_set("master", count=1), _pod_set("worker", count=3))
    after = applied(obj, start(JOB_KINDS["PyTorchJob"], _effect(obj, "PyTorchJob", attempt)))
    assert after["spec"]["runPolicy"]["suspend"] is False
    for replica in after["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"]["pool"] == "spot"


def test_a_second_admission_starts_from_the_fields_of_the_user() -> None:
    kind = JOB_KINDS["Job"]
    obj = job(pod={"nodeSelector": {"disk": "ssd"}})
    own = _pod_set(node_selector=(("disk", "ssd"),))
    started = applied(obj, start(kind, _effect(obj, "Job", _attempt(own))))
    event = observe(kind, started)
    assert event is not None
    assert event.workload.pod_sets[0].node_selector == (("disk", "ssd"),)
    assert event.workload.pod_sets[0].tolerations == ()
    assert event.observation.admission == _attempt(own)

    plain = _pod_set(
        node_selector=(("disk", "ssd"),),
        requests=(("cpu", 1500),),
        flavors=(("cpu", "cpus"),),
    )
    again = applied(started, start(kind, _effect(started, "Job", _attempt(plain, number=2))))
    pod = again["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"disk": "ssd", "arch": "amd64"}
    assert pod["tolerations"] == []


def test_fields_edited_after_the_start_belong_to_the_user() -> None:
    obj = job()
    started = applied(obj, start(JOB_KINDS["Job"], _effect(obj, "Job", _attempt())))
    started["spec"]["template"]["spec"]["nodeSelector"]["pool"] = "other"
    event = observe(JOB_KINDS["Job"], started)
    assert event is not None
    assert dict(event.workload.pod_sets[0].node_selector)["pool"] == "other"


def test_a_start_that_adds_nothing_touches_no_scheduling_field() -> None:
    obj = job()
    attempt = _attempt(_pod_set(requests=(("cpu", 1),), flavors=(("cpu", "plain"),)))
    effect = _effect(obj, "Job", attempt)
    paths = [step["path"] for step in start(JOB_KINDS["Job"], effect)]
    assert not any(path.startswith("/spec/template/spec") for path in paths)


def ours(pod_set: str = "main") -> dict[str, str]:
    return {
        "queuectl.dev/queue-name": "main",
        "queuectl.dev/workload": UID,
        "queuectl.dev/cluster-queue": "gpus",
        "queuectl.dev/podset": pod_set,
        "queuectl.dev/flavor": "cpus_spot",
    }


@pytest.mark.parametrize("metadata", [None, {}, {"annotations": {"a": "b"}}, {"labels": {"app": "x"}}])
def test_a_start_labels_the_pods_with_what_admitted_them(metadata: dict[str, Any] | None) -> None:
    """Whatever metadata the pod templates have: a JSON patch cannot create parents."""
    kinds = {"Job": job(), "PyTorchJob": pytorch_job(Master=1, Worker=3)}
    pods = {"Job": [_pod_set()], "PyTorchJob": [_pod_set("master", count=1), _pod_set("worker", count=3)]}
    for name, obj in kinds.items():
        for template in _templates(obj):
            if metadata is not None:
                template["metadata"] = deepcopy(metadata)
        after = applied(obj, start(JOB_KINDS[name], _effect(obj, name, _attempt(*pods[name]))))
        for template, pod_set in zip(_templates(after), pods[name], strict=True):
            labels = {**(metadata or {}).get("labels", {}), **ours(pod_set.name)}
            assert template["metadata"] == {**(metadata or {}), "labels": labels}


def test_the_next_start_replaces_the_labels_of_the_pods() -> None:
    obj = job()
    obj["spec"]["template"]["metadata"] = {"labels": {**ours("other"), "queuectl.dev/queue-name": "before"}}
    after = applied(obj, start(JOB_KINDS["Job"], _effect(obj, "Job", _attempt())))
    assert after["spec"]["template"]["metadata"]["labels"] == ours()


def test_a_label_has_no_name_of_a_cluster_queue_that_is_too_long_for_it() -> None:
    for name in ("q" * 63, "q" * 64):
        attempt = _attempt()
        attempt = replace(attempt, assignment=replace(attempt.assignment, cluster_queue=name))
        after = applied(job(), start(JOB_KINDS["Job"], _effect(job(), "Job", attempt)))
        (template,) = _templates(after)
        expected = name if len(name) == 63 else ""
        assert template["metadata"]["labels"]["queuectl.dev/cluster-queue"] == expected


@pytest.mark.parametrize(
    ("flavors", "expected"),
    [((("cpu", "plain"), ("gpu", "a100"), ("memory", "plain")), "plain_a100"), ((("cpu", "f" * 64),), "")],
)
def test_a_label_has_the_flavors_of_the_pods_as_far_as_they_are_a_value(
    flavors: tuple[tuple[str, str], ...], expected: str
) -> None:
    attempt = _attempt(_pod_set(requests=tuple((name, 1) for name, _ in flavors), flavors=flavors))
    after = applied(job(), start(JOB_KINDS["Job"], _effect(job(), "Job", attempt)))
    (template,) = _templates(after)
    assert template["metadata"]["labels"]["queuectl.dev/flavor"] == expected


@pytest.mark.parametrize("name", ["w" * 64, "GPU workers", "-a", "a/b", "é"])
def test_a_label_has_no_name_of_a_podset_that_it_cannot_have(name: str) -> None:
    """Nothing checks the name of a worker group of Ray, and its pods could not be created."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    group = {"groupName": name, "replicas": 1, "template": template}
    obj = job() | {"kind": "RayCluster", "apiVersion": "ray.io/v1"}
    obj["spec"] = {
        "suspend": True,
        "headGroupSpec": {"template": deepcopy(template)},
        "workerGroupSpecs": [group],
    }
    attempt = _attempt(_pod_set("head", count=1), _pod_set(name, count=1))
    after = applied(obj, start(JOB_KINDS["RayCluster"], _effect(obj, "RayCluster", attempt)))
    labels = after["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    assert labels["queuectl.dev/podset"] == ""


def _templates(obj: dict[str, Any]) -> list[dict[str, Any]]:
    replicas = obj["spec"].get("pytorchReplicaSpecs", {"": obj["spec"]})
    return [replica["template"] for replica in replicas.values()]


@pytest.mark.parametrize("name", ["Job", "PyTorchJob"])
def test_a_stop_tests_uid_and_generation(name: str) -> None:
    kind, obj = JOB_KINDS[name], job() if name == "Job" else pytorch_job(Worker=1)
    started = applied(
        obj, start(kind, _effect(obj, name, _attempt(_pod_set(name="main" if name == "Job" else "worker"))))
    )
    write = first_stop(kind, _effect(started, name, _attempt()))
    assert write is not None
    assert write.subresource == ""
    assert kind.suspended(applied(started, write.body))
    assert {step["path"] for step in write.body if step["op"] == "test"} == {
        "/metadata/uid",
        "/metadata/generation",
    }
    started["metadata"]["generation"] += 1
    with pytest.raises(AssertionError, match="generation"):
        applied(started, write.body)


def test_a_stop_adds_missing_parents_once_the_object_was_read() -> None:
    kind, obj = JOB_KINDS["PyTorchJob"], pytorch_job(Worker=1)
    del obj["spec"]["runPolicy"]
    write = next_stop(kind, _effect(obj, "PyTorchJob", _attempt()), obj)
    assert write is not None
    assert kind.suspended(applied(obj, write.body))


def test_an_object_last_seen_suspended_or_in_a_later_attempt_is_read_before_a_stop() -> None:
    kind, obj = JOB_KINDS["Job"], job()
    assert first_stop(kind, _effect(obj, "Job", _attempt())) is None
    second = applied(obj, start(kind, _effect(obj, "Job", _attempt(number=2))))
    first = _effect(second, "Job", _attempt())
    assert first_stop(kind, first) is None
    assert next_stop(kind, first, second) is None


def test_a_stop_takes_back_what_the_status_said_before_and_nothing_else() -> None:
    kind, obj = JOB_KINDS["Job"], job()
    other = {"type": "SuccessCriteriaMet", "status": "False"}
    obj["status"]["conditions"] = [other, {"type": "Suspended", "status": "True", "reason": "JobSuspended"}]
    effect = _effect(obj, "Job", _attempt())
    obj = with_its_stop(kind, effect, obj)
    write = next_stop(kind, effect, obj)
    assert write is not None
    assert write.subresource == "status"
    asked = applied(obj, write.body)
    assert asked["status"]["conditions"][0] == other
    assert asked["status"]["conditions"][1]["status"] == "Unknown"
    assert asked["spec"] == obj["spec"]
    assert next_stop(kind, effect, asked) is None


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Suspended", "status": "False"}]])
def test_a_stop_asks_nothing_where_the_status_does_not_say_that_it_is_suspended(conditions: Any) -> None:
    obj = job()
    obj["status"] = {"conditions": conditions}
    kind, effect = JOB_KINDS["Job"], _effect(obj, "Job", _attempt())
    assert next_stop(kind, effect, with_its_stop(kind, effect, obj)) is None


def _suspended(**annotations: str) -> dict[str, Any]:
    """A Job whose start may be on its way: it says what it said before."""
    obj = job()
    return obj | {"metadata": obj["metadata"] | ({"annotations": annotations} if annotations else {})}


@pytest.mark.parametrize(
    "obj",
    [
        _suspended(),
        _suspended(note="of its user"),
        _suspended(note="of its user") | {"status": {}},
    ],
    ids=["no annotation", "an annotation", "no status"],
)
def test_a_start_that_arrives_after_the_stop_of_its_attempt_is_refused(obj: dict[str, Any]) -> None:
    """The stop saw an object that was not started yet, and nothing else of it has changed since."""
    kind, effect = JOB_KINDS["Job"], _effect(obj, "Job", _attempt())
    late = start(kind, effect)
    assert not kind.suspended(applied(obj, late))
    stopped = with_its_stop(kind, effect, obj)
    stopped["metadata"]["resourceVersion"] = "11"
    with pytest.raises(AssertionError, match=r"stopped|resourceVersion"):
        applied(stopped, late)
    again = start(kind, _effect(stopped, "Job", _attempt(number=2)))
    assert not kind.suspended(applied(stopped, again))


def test_a_start_in_two_writes_is_refused_after_the_stop_of_its_attempt() -> None:
    obj = job()
    kind, effect = JOB_KINDS["Job"], _effect(obj, "Job", _attempt())
    steered = applied(obj, start(kind, effect)[:-1])
    late = resume(kind, effect, steered["metadata"]["generation"])
    assert not kind.suspended(applied(steered, late))
    with pytest.raises(AssertionError, match="stopped"):
        applied(with_its_stop(kind, effect, steered), late)


def test_a_stop_that_arrives_twice_does_not_replace_the_record_of_a_later_one() -> None:
    obj = _suspended(note="of its user")
    kind, first = JOB_KINDS["Job"], _effect(obj, "Job", _attempt())
    write = next_stop(kind, first, obj)
    assert write is not None
    once = applied(obj, write.body)
    second = _effect(once, "Job", _attempt(number=2))
    with pytest.raises(AssertionError, match="stopped"):
        applied(with_its_stop(kind, second, once), write.body)


@pytest.mark.parametrize("text", ["not of this form", "x" * 4_001], ids=["malformed", "too long"])
def test_an_annotation_that_is_no_record_of_a_stop_keeps_no_start_back(text: str) -> None:
    obj = job()
    obj["metadata"]["annotations"] = {STOPPED_ANNOTATION: text}
    kind = JOB_KINDS["Job"]
    started = applied(obj, start(kind, _effect(obj, "Job", _attempt())))
    assert not kind.suspended(started)
    assert STOPPED_ANNOTATION not in started["metadata"]["annotations"]


def test_a_stop_writes_nothing_on_a_suspended_object_that_has_left_its_queue() -> None:
    """The gate lets the controller write no object without a queue label; no start of it is accepted."""
    obj = job()
    kind, effect = JOB_KINDS["Job"], _effect(obj, "Job", _attempt())
    obj["metadata"]["labels"] = {}
    assert next_stop(kind, effect, obj) is None


def test_a_record_of_a_stop_that_is_longer_than_what_is_read_is_written_once() -> None:
    """Else the stop of an attempt with very many resources never ended, and its quota stayed held."""
    kind, obj = JOB_KINDS["Job"], job()
    resources = [f"vendor{number}.example.com/{'x' * 60}" for number in range(60)]
    flavors, requests = (tuple((name, value) for name in resources) for value in ("spot", 1))
    attempt = _attempt(_pod_set(requests=requests, flavors=flavors))
    eviction = Eviction(reason=Reason(code=Code.PREEMPTED), at=attempt.admitted_at)
    effect = replace(_effect(obj, "Job", attempt), eviction=eviction)
    stopped = with_its_stop(kind, effect, obj)
    assert len(stopped["metadata"]["annotations"][STOPPED_ANNOTATION]) > 4_001
    write = next_stop(kind, effect, stopped)
    assert write is None or write.subresource == "status"


def test_special_characters_in_json_pointers_are_escaped() -> None:
    assert pointer(("a/b~c", 0)) == "/a~1b~0c/0"


# --- a stop that fails the object


TIMED_OUT = Eviction(Reason(code=Code.MAXIMUM_EXECUTION_TIME_EXCEEDED), NOW, fails=True)


def _running(name: str) -> dict[str, Any]:
    kind, obj = JOB_KINDS[name], job() if name == "Job" else pytorch_job(Worker=1)
    admitted = _attempt(_pod_set(name="main" if name == "Job" else "worker"))
    return applied(obj, start(kind, _effect(obj, name, admitted)))


@pytest.mark.parametrize("name", ["Job", "PyTorchJob"])
def test_a_stop_that_fails_an_object_makes_its_deadline_a_second_and_records_why(name: str) -> None:
    kind, obj = JOB_KINDS[name], _running(name)
    stop = replace(_effect(obj, name, _attempt()), eviction=TIMED_OUT)
    assert first_stop(kind, stop) is None, "its own deadline is to be read"
    write = next_stop(kind, stop, obj)
    assert write is not None
    after = applied(obj, write.body)
    assert value_at(after, kind.deadline) == PASSED
    assert not kind.suspended(after)
    event = observe(kind, after)
    assert event is not None
    assert event.observation.ended_by_stop_of(1) is None, "it runs until its controller fails it"
    assert event.observation.stopped is not None
    assert event.observation.stopped.outcome is WorkloadOutcome.TIMED_OUT
    assert next_stop(kind, stop, after) is None
    assert is_to_fail(kind, stop, after)
    after["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert not is_to_fail(kind, stop, after)


@pytest.mark.parametrize("name", ["Job", "PyTorchJob"])
def test_what_has_not_failed_in_a_minute_is_suspended(name: str) -> None:
    kind, obj = JOB_KINDS[name], _running(name)
    stop = replace(_effect(obj, name, _attempt()), eviction=TIMED_OUT)
    write = next_stop(kind, stop, obj)
    assert write is not None
    obj = applied(obj, write.body)
    assert stop_after(stop, TO_FAIL - 1) == stop
    late = stop_after(stop, TO_FAIL)
    write = next_stop(kind, late, obj)
    assert write is not None
    assert kind.suspended(applied(obj, write.body))
    assert not is_to_fail(kind, late, obj)


def test_the_kinds_that_may_fail_are_those_that_docs_name() -> None:
    (docs,) = (
        line
        for line in (DOCS / "kinds.md").read_text().split("\n\n")
        if line.startswith("`onExceeded: Fail`")
    )
    named, others = docs.split("Others are suspended")
    rows = {row.kind: bool(row.deadline) for row in JOB_KINDS}
    assert {kind for kind, may_fail in rows.items() if may_fail} == set(re.findall(r"\w*Job\b", named))
    assert all(not rows[kind] for kind in re.findall(r"\w+Job\b", others))
