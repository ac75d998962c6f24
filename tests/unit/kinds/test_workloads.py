from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.core.model.devices import PodClaim
from queuectl.core.model.policy import Requirement, Toleration
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ObjectRef, WorkloadOutcome
from queuectl.kinds.labels import KUEUES_TOO, OWN
from queuectl.kinds.workloads import MAX_ANNOTATIONS, observe
from tests.job_kinds import JOB_KINDS
from tests.unit.core import profiles
from tests.unit.kinds.job_objects import UID, container, job, metadata, pytorch_job

JOB = JOB_KINDS["Job"]
PYTORCH = JOB_KINDS["PyTorchJob"]


def _seen(obj: dict[str, Any], kind: str = "Job") -> Any:
    event = observe(JOB_KINDS[kind], obj)
    assert event is not None
    return event


def _problem(obj: dict[str, Any], kind: str = "Job") -> Any:
    workload = _seen(obj, kind).workload
    assert workload.pod_sets == ()
    assert workload.problem is not None
    return workload.problem


def test_a_labelled_job_is_a_workload() -> None:
    event = _seen(job(parallelism=3))
    workload, seen = event.workload, event.observation
    assert workload.id == UID
    assert workload.ref == ObjectRef("team-a", "Job", "train", UID)
    assert workload.queue == "main"
    assert workload.created_at == datetime(2026, 11, 21, 10, tzinfo=UTC)
    assert [(p.name, p.count, p.requests) for p in workload.pod_sets] == [
        ("main", 3, (("nvidia.com/gpu", 2),))
    ]
    assert workload.problem is None
    assert not workload.hold
    assert (seen.resource_version, seen.generation, seen.suspended, seen.annotated) == ("41", 1, True, False)
    assert (seen.finished, seen.quiet, seen.admission, seen.bypass) == (None, None, None, ("", ""))


def test_an_unlabelled_object_is_no_workload() -> None:
    obj = job()
    obj["metadata"]["labels"] = {"app": "x"}
    assert observe(JOB, obj) is None
    del obj["metadata"]["labels"]
    assert observe(JOB, obj) is None


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": None}, 1),
        ({"parallelism": 0}, 0),
        ({"parallelism": 5}, 5),
        ({"parallelism": 5, "completions": 3}, 3),
        ({"parallelism": 5, "completions": 8}, 5),
        ({"completions": 8}, 1),
        ({"parallelism": 2147483647}, 2147483647),
    ],
)
def test_a_job_counts_the_pods_that_can_run_at_once(spec: dict[str, Any], count: int) -> None:
    assert _seen(job(**spec)).workload.pod_sets[0].count == count


def test_a_pytorch_job_has_its_podsets_in_a_fixed_order() -> None:
    obj = pytorch_job(Worker=3, Master=None)
    assert [(p.name, p.count) for p in _seen(obj, "PyTorchJob").workload.pod_sets] == [
        ("master", 1),
        ("worker", 3),
    ]
    assert _seen(obj, "PyTorchJob").observation.suspended


def test_a_pytorch_job_without_a_run_policy_is_running() -> None:
    obj = pytorch_job(Worker=1)
    del obj["spec"]["runPolicy"]
    assert not _seen(obj, "PyTorchJob").observation.suspended


def test_the_scheduling_policy_of_a_pytorch_job_names_its_priority_class() -> None:
    obj = pytorch_job(Master=1)
    obj["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "high"}
    obj["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["priorityClassName"] = "low"
    assert _seen(obj, "PyTorchJob").workload.pod_sets[0].priority_class == "high"


def test_labels_and_annotations_of_users_are_read() -> None:
    obj = job(pod={"priorityClassName": "pods", "runtimeClassName": "kata"})
    obj["metadata"]["labels"]["queuectl.dev/priority-class"] = "urgent"
    obj["metadata"]["annotations"] = {
        "queuectl.dev/hold": "true",
        "queuectl.dev/reserved-submitter": "ann\x00e",
        "queuectl.dev/reserved-bypass": "root",
        "queuectl.dev/bypass": "the demo is at noon",
    }
    event = _seen(obj)
    assert event.workload.hold
    assert event.workload.priority_class == "urgent"
    assert event.workload.submitter == "ann\ufffde"
    assert event.observation.bypass == ("root", "the demo is at noon")
    assert event.observation.annotated
    assert event.workload.pod_sets[0].priority_class == "pods"
    assert event.workload.pod_sets[0].runtime_class == "kata"


@pytest.mark.parametrize(
    ("annotations", "submitter", "creator", "groups"),
    [
        ({"reserved-submitter": "portal", "user": "ada"}, "ada", "portal", ()),
        ({"reserved-submitter": "ada", "reserved-groups": "ml,vision"}, "ada", None, ("ml", "vision")),
        ({"user": "ada"}, "ada", None, ()),
        ({"reserved-submitter": "portal", "user": "", "reserved-groups": ""}, "portal", None, ()),
        ({"reserved-groups": ",".join(["g" * 300, *"x" * 300])}, None, None, ("g" * 253, *"x" * 199)),
    ],
)
def test_a_workload_is_of_the_user_that_it_names_else_of_its_creator(
    annotations: dict[str, str], submitter: str | None, creator: str | None, groups: tuple[str, ...]
) -> None:
    obj = job()
    obj["metadata"]["annotations"] = {f"queuectl.dev/{key}": value for key, value in annotations.items()}
    found = _seen(obj).workload
    assert (found.submitter, found.creator, found.groups) == (submitter, creator, groups)


def test_overhead_in_the_pod_spec_is_not_added_again_by_its_runtime_class() -> None:
    pod_set = _seen(job(pod={"runtimeClassName": "kata", "overhead": {"cpu": "1"}})).workload.pod_sets[0]
    assert pod_set.runtime_class is None
    assert dict(pod_set.requests)["cpu"] == 1000


@pytest.mark.parametrize(
    ("held", "reason", "read"),
    [
        ("true", "hold by alice: node 7", "by alice: node 7"),
        ("true", "hold by a\x1b[1m: x", "by a\ufffd[1m: x"),
        ("false", "hold by alice: node 7", None),
        ("true", "release by alice: node 7", None),
        ("true", "hold", None),
        ("true", 7, None),
    ],
)
def test_only_the_reason_of_a_hold_that_is_set_is_read(held: str, reason: object, read: str | None) -> None:
    obj = job()
    obj["metadata"]["annotations"] = {"queuectl.dev/hold": held, "queuectl.dev/reason": reason}
    assert _seen(obj).workload.hold_reason == read


def test_an_object_says_that_its_devices_are_not_judged() -> None:
    obj = job()
    assert _seen(obj).workload.idle_exempt is None


DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
NO_END = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("until 2026-12-01T00:00:00Z: it serves", DECEMBER),
        ("until 2026-12-01T01:00:00+01:00", DECEMBER),
        ("it serves", NO_END),
        ("for 8 weeks", NO_END),
        ("", NO_END),
        (7, NO_END),
        ("until the paper is done", None),
        ("until 2026-13-01T00:00:00Z: it serves", None),
        ("until 2026-02-30T00:00:00Z: it serves", None),
        ("until 2026-12-01: it serves", None),
        ("Until 2026-12-01T00:00:00Z: it serves", None),
        ("until2026-12-01T00:00:00Z", None),
        ("unitl 2026-12-01T00:00:00Z: it serves", None),
        ("serves\nuntil 2026-12-01T00:00:00Z", None),
        ("until", None),
    ],
)
def test_an_exemption_that_gives_a_time_in_another_form_is_none_and_says_so(
    text: object, until: datetime | None
) -> None:
    obj = job()
    obj["metadata"]["annotations"] = {"queuectl.dev/idle-exempt": text}
    found = _seen(obj).workload
    fault = (
        f"Misconfigured: metadata.annotations[queuectl.dev/idle-exempt]: {text!r} is no exemption: write "
        "`until 2026-12-01T00:00:00Z: REASON`, or a reason without a time"
    )
    problem = found.problem.message if found.problem is not None else None
    assert (found.idle_exempt, problem) == (until, fault if until is None else None)


@pytest.mark.parametrize(
    ("references", "controller"),
    [
        ([{"kind": "Team", "name": "a"}, {"kind": "CronJob", "name": "n", "controller": True}], "CronJob/n"),
        ([{"kind": "Team", "name": "a", "controller": False}], ""),
        ([{"kind": "CronJob", "controller": True}], ""),
        ([{"kind": ["x"], "name": "x\x1b" * 500, "controller": True}], ""),
        ("x", ""),
        (None, ""),
    ],
)
def test_what_controls_an_object_is_read(references: object, controller: str) -> None:
    obj = job()
    obj["metadata"]["ownerReferences"] = references
    assert _seen(obj).workload.controller == controller


@pytest.mark.parametrize("value", ["TRUE", "yes", "", "false", None, True])
def test_only_the_value_true_is_a_hold(value: object) -> None:
    obj = job()
    obj["metadata"]["annotations"] = {"queuectl.dev/hold": value}
    assert not _seen(obj).workload.hold


def test_scheduling_fields_are_read() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    obj = job(
        pod={
            "nodeSelector": {"b": "2", "a": "1"},
            "tolerations": [
                {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
            ],
            "affinity": {"nodeAffinity": required},
        }
    )
    pod_set = _seen(obj).workload.pod_sets[0]
    assert pod_set.node_selector == (("a", "1"), ("b", "2"))
    assert pod_set.tolerations == (Toleration("spot", "Exists", None, "NoExecute", 60),)
    assert pod_set.affinity == ((Requirement("zone", "In", ("a", "b")),), ())


@pytest.mark.parametrize(
    ("status", "finished", "quiet"),
    [
        ({}, None, None),
        ({"active": 0, "terminating": 0}, None, None),
        ({"active": 1}, None, False),
        ({"terminating": 2}, None, False),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, WorkloadOutcome.SUCCEEDED, True),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, WorkloadOutcome.FAILED, True),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, None, None),
        ({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}], "active": 1}, None, False),
    ],
)
def test_a_job_is_over_by_its_status(
    status: dict[str, Any], finished: WorkloadOutcome | None, quiet: bool | None
) -> None:
    seen = _seen(job() | {"status": status}).observation
    assert (seen.finished, seen.quiet) == (finished, quiet)


def test_the_pods_of_an_ended_pytorch_job_may_still_be_alive() -> None:
    obj = pytorch_job(Master=1) | {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    seen = _seen(obj, "PyTorchJob").observation
    assert (seen.finished, seen.quiet) == (WorkloadOutcome.SUCCEEDED, None)


def test_an_object_that_is_being_deleted_is_over_but_its_pods_may_not_be() -> None:
    obj = job() | {"status": {"active": 1}}
    obj["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
    seen = _seen(obj).observation
    assert (seen.finished, seen.quiet) == (WorkloadOutcome.DELETED, False)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"parallelism": -1}, "spec.parallelism"),
        ({"parallelism": "3"}, "spec.parallelism"),
        ({"parallelism": True}, "spec.parallelism"),
        ({"parallelism": 10**30}, "spec.parallelism"),
        ({"template": {}}, "spec.template.spec"),
        ({"template": {"spec": []}}, "spec.template.spec"),
        ({"template": {"spec": {"nodeSelector": {"a": "\x00"}}}}, "spec.template.spec.nodeSelector"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.managedBy"),
    ],
)
def test_a_broken_object_is_misconfigured_and_the_path_is_named(spec: dict[str, Any], path: str) -> None:
    problem = _problem(job(**spec))
    assert problem.code is Code.MISCONFIGURED
    assert str(problem.detail).startswith(f"{path}: ")


def test_an_unknown_replica_type_is_misconfigured() -> None:
    problem = _problem(pytorch_job(Master=1, Chief=1), "PyTorchJob")
    assert "'Chief', known are Master, Worker" in str(problem.detail)


def test_a_negative_request_of_a_pytorch_job_names_the_replica() -> None:
    obj = pytorch_job(Master=1, Worker=2)
    pod = obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"][0] = container({"nvidia.com/gpu": -1})
    problem = _problem(obj, "PyTorchJob")
    assert problem.code is Code.NEGATIVE_REQUEST
    assert "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]" in str(problem.detail)
    assert "-1" in problem.message


def test_hostile_text_is_never_passed_on() -> None:
    obj = job()
    obj["metadata"]["labels"]["evil"] = "\x1b[31m\x00\ud800" + "x" * 5000
    obj["metadata"]["annotations"] = {"notes": "\x00" * 250_000}
    labels = dict(_seen(obj).workload.labels)
    assert labels["evil"].startswith("\ufffd[31m\ufffd\ufffdxxx")
    assert len(labels["evil"]) <= 253
    json.dumps(labels).encode()


def test_an_object_of_a_megabyte_costs_milliseconds() -> None:
    obj = job(pod={"tolerations": [{"key": f"k{i}"} for i in range(30_000)]})
    obj["metadata"]["annotations"] = {"queuectl.dev/reserved-admission": "[" * 200_000}
    begun = time.perf_counter()
    for _ in range(10):
        problem = _problem(obj)
    assert time.perf_counter() - begun < 0.5
    assert "30000 items, at most 512" in str(problem.detail)


@pytest.mark.parametrize("name", ["job", "Jobs", "jobs.batch", "JOB"])
def test_kinds_are_found_by_their_usual_names(name: str) -> None:
    assert JOB_KINDS.find(name) is JOB


def test_an_unknown_name_is_no_kind() -> None:
    assert JOB_KINDS.find("pytorchjobs.kubeflow.org") is PYTORCH
    assert JOB_KINDS.find("pytorch") is PYTORCH
    assert JOB_KINDS.find("pods") is None


# --- arbitrary input ----------------------------------------------------------------------------------

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Always", "-1", "1e99", "0.5", "2026-11-21T10:00:00Z", "0001-01-01T00:00:00+23:59"])
)
_WORDS = (
    "metadata spec status template containers initContainers resources requests limits overhead cpu "
    "nvidia.com/gpu nodeSelector tolerations affinity nodeAffinity nodeSelectorTerms matchExpressions values "
    "key operator effect tolerationSeconds parallelism completions suspend managedBy runPolicy "
    "pytorchReplicaSpecs Master Worker replicas conditions type active generation uid name namespace "
    "annotations labels creationTimestamp deletionTimestamp restartPolicy "
    "requiredDuringSchedulingIgnoredDuringExecution"
)
_KEYS = st.sampled_from(_WORDS.split())
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


def _replaced(obj: Any, path: list[int], value: Any) -> Any:
    """`obj` with the value at a place reached by the numbers of `path` replaced."""
    if not path or not isinstance(obj, dict | list) or not obj:
        return value
    if isinstance(obj, list):
        place = path[0] % len(obj)
        return [_replaced(item, path[1:], value) if i == place else item for i, item in enumerate(obj)]
    key = sorted(obj)[path[0] % len(obj)]
    return {**obj, key: _replaced(obj[key], path[1:], value)}


@settings(max_examples=profiles.examples(400), deadline=None)
@given(
    base=st.sampled_from([("Job", job(parallelism=2)), ("PyTorchJob", pytorch_job(Master=1, Worker=2))]),
    path=st.lists(st.integers(0, 20), min_size=1, max_size=9),
    value=_JSON,
)
def test_no_object_of_the_usual_structure_raises(
    base: tuple[str, dict[str, Any]], path: list[int], value: Any
) -> None:
    kind, obj = base
    obj = obj | {"metadata": metadata(annotations={"queuectl.dev/reserved-admission": "{}"})}
    event = observe(JOB_KINDS[kind], _replaced(obj, path, value))
    if event is not None:
        orjson.dumps(event.workload, default=str)
        assert event.workload.problem is not None or event.workload.pod_sets
        assert event.workload.problem is None or event.workload.problem.message


@settings(max_examples=profiles.examples(200), deadline=None)
@given(obj=st.dictionaries(_KEYS, _JSON, max_size=4), kind=st.sampled_from([row.name for row in JOB_KINDS]))
def test_no_json_object_raises(obj: dict[str, Any], kind: str) -> None:
    observe(JOB_KINDS[kind], obj)


def test_annotations_that_leave_no_space_for_ours_are_a_problem_and_ours_do_not_count() -> None:
    obj = job()
    obj["metadata"]["annotations"] = {"example.com/book": "é" * (MAX_ANNOTATIONS // 2 - 8)}
    assert _seen(obj).workload.problem is None
    obj["metadata"]["annotations"]["queuectl.dev/reserved-admission"] = 9000 * "x"
    assert _seen(obj).workload.problem is None
    obj["metadata"]["annotations"]["example.com/more"] = "x"
    full = _seen(obj).workload
    assert full.problem is not None
    assert full.problem.code is Code.MISCONFIGURED
    assert "metadata.annotations" in full.problem.detail


def test_an_admission_that_no_annotation_can_have_is_a_problem() -> None:
    """Its start would be refused each time, after others were preempted for it."""
    obj = job() | {"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2"}
    template = {"spec": job()["spec"] | {"suspend": False}}
    jobs = [{"name": f"{n:060}", "replicas": 1, "template": template} for n in range(300)]
    obj["spec"] = {"suspend": True, "replicatedJobs": jobs[:10]}
    obj["metadata"]["annotations"] = {"example.com/book": "x" * 230_000}
    assert _seen(obj, "JobSet").workload.problem is None
    obj["spec"]["replicatedJobs"] = jobs
    assert "metadata.annotations: 230016 bytes leave no room" in str(_seen(obj, "JobSet").workload.problem)


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"example.com/book": MAX_ANNOTATIONS * "x"}},
        {"labels": {"queuectl.dev/queue-name": "main", "queuectl.dev/max-exec-time-seconds": "soon"}},
        {"creationTimestamp": "yesterday"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_problem_of_the_metadata_leaves_the_pods_known_so_that_they_can_be_charged(
    metadata: dict[str, Any],
) -> None:
    obj, plain = job(), _seen(job()).workload
    obj["metadata"] |= metadata
    workload = _seen(obj).workload
    assert workload.problem is not None
    assert workload.pod_sets == plain.pod_sets != ()


def test_a_resource_claim_is_named_and_everything_else_is_read() -> None:
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    (main,) = _seen(job(pod=claims)).workload.pod_sets
    assert main.claims == (PodClaim("spec.template.spec.resourceClaims[0]", "one", template=True),)
    assert main.requests == (("nvidia.com/gpu", 2),)
    obj = pytorch_job(Master=1, Worker=1)
    obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"] |= claims
    master, worker = _seen(obj, "PyTorchJob").workload.pod_sets
    assert master.claims == ()
    path = "spec.pytorchReplicaSpecs.Worker.template.spec.resourceClaims[0]"
    assert [claim.path for claim in worker.claims] == [path]


@pytest.mark.parametrize(
    ("annotation", "asks"),
    [
        ("kueue.x-k8s.io/podset-required-topology", True),
        ("kueue.x-k8s.io/podset-slice-required-topology", True),
        ("kueue.x-k8s.io/podset-preferred-topology", False),
        ("example.com/podset-required-topology", False),
    ],
)
def test_a_required_topology_of_kueue_s_is_honoured_with_its_labels(annotation: str, asks: bool) -> None:
    """No flavor has a topology yet: it waits instead of running anywhere."""
    obj = job()
    obj["spec"]["template"]["metadata"] = {"annotations": {annotation: "rack"}}
    for honoured, expected in ((KUEUES_TOO, asks), (OWN, False)):
        event = observe(JOB, obj, honoured)
        assert event is not None
        assert [one.topology for one in event.workload.pod_sets] == [expected]


@pytest.mark.parametrize(
    ("code", "suspended", "over"),
    [
        ("MaximumExecutionTimeExceeded", True, WorkloadOutcome.TIMED_OUT),
        ("IdleCancelled", True, WorkloadOutcome.CANCELLED),
        ("MaximumExecutionTimeExceeded", False, None),
        ("Preempted", True, None),
    ],
)
def test_a_recorded_stop_by_the_run_time_limit_ends_a_suspended_object(
    code: str, suspended: bool, over: WorkloadOutcome | None
) -> None:
    obj = job(suspend=suspended)
    record = {"workload": UID, "attempt": 2, "code": code}
    obj["metadata"]["annotations"] = {"queuectl.dev/reserved-stopped": json.dumps(record)}
    seen = _seen(obj).observation
    assert seen.stopped is not None
    assert (seen.stopped.attempt, seen.over) == (2, over)
    record["workload"] = "another"
    obj["metadata"]["annotations"] = {"queuectl.dev/reserved-stopped": json.dumps(record)}
    assert _seen(obj).observation.over is None
