"""Pod groups: which pods are one workload, its podsets, and what becomes of it as its pods come and go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from queuectl.answers.explanation import advice
from queuectl.app.kinds import job_kinds
from queuectl.changes import consequences, edit
from queuectl.core.model.events import WorkloadGone, WorkloadObserved
from queuectl.core.model.policy import ResourceFlavor
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Phase, WorkloadId, WorkloadOutcome
from queuectl.kinds import patches
from queuectl.kinds.builtin import BUILT_IN, OPTIONAL
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.labels import OWN, selection
from queuectl.kinds.pod_group import MAX_PODS, POD_GROUP, Unit, composed, units
from queuectl.kinds.pod_group_members import member
from queuectl.kinds.sample import as_created, tried
from queuectl.kinds.single_pod import POD
from queuectl.kinds.workloads import observe
from queuectl.kube.group_writes import _of
from queuectl.kube.pod_groups import PodGroups
from queuectl.kube.sources import sources
from queuectl.settings import Settings
from tests.integration.kube.sites import effect

Json = dict[str, Any]
KINDS = KindRegistry((*BUILT_IN, *OPTIONAL))
GATE = {"name": "queuectl.dev/admission"}
SIZE = "queuectl.dev/pod-group-total-count"


def pod(
    name: str,
    *,
    size: object = 3,
    cpu: str = "1",
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
    group: str = "train",
    version: int = 7,
) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-11-27T07:00:00Z",
            "labels": {
                "queuectl.dev/queue-name": "main",
                "queuectl.dev/gated": "true",
                "queuectl.dev/pod-group-name": group,
                **labels,
            },
            "annotations": {SIZE: str(size), "queuectl.dev/reserved-submitter": "alice", **annotations},
        },
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            "schedulingGates": [GATE],
        },
        "status": {"phase": "Pending"},
    }


def found(pods: Sequence[Json]) -> list[Unit]:
    return units(member(one) for one in pods)


def seen(pods: Sequence[Json], place: int = 0) -> WorkloadObserved:
    event = observe(POD_GROUP, composed(found(pods)[place], 9))
    assert event is not None
    return event


def started(
    pods: Sequence[Json], *, count: int | None = None, phase: str = "Running", unit: Unit | None = None
) -> list[Json]:
    """The pods as a start leaves them, the first `count` of them."""
    unit = unit or found(pods)[0]
    start = effect(composed(unit, 9), "PodGroup", kinds=KINDS)
    if unit.admission is not None:
        start = replace(start, attempt=unit.admission.attempt)
    for one in unit.held[:count]:
        own = (one.shape, *(shape for shape in unit.shapes if shape != one.shape))
        patch = patches.start(POD, _of(start, one), one.pod_set, own, one.constraints)
        written = {item["path"]: item for item in patch}
        obj: Any = one.obj
        key = "queuectl.dev~1reserved-admission"
        obj["metadata"]["annotations"]["queuectl.dev/reserved-admission"] = written[
            f"/metadata/annotations/{key}"
        ]["value"]
        obj["metadata"]["labels"]["queuectl.dev/workload"] = written[
            "/metadata/labels/queuectl.dev~1workload"
        ]["value"]
        obj["spec"]["nodeSelector"] = written["/spec/nodeSelector"]["value"]
        obj["spec"]["tolerations"] = written["/spec/tolerations"]["value"]
        obj["spec"]["schedulingGates"] = []
        obj["status"]["phase"] = phase
    return list(pods)


def three() -> list[Json]:
    return [pod("a"), pod("b"), pod("c", cpu="2")]


def test_the_pods_of_a_group_are_one_workload_with_a_podset_for_each_shape() -> None:
    event = seen(three())
    workload = event.workload
    assert (workload.id, workload.ref.kind, workload.ref.name) == ("uid-a", "PodGroup", "train")
    assert sorted((one.count, dict(one.requests)["cpu"]) for one in workload.pod_sets) == [
        (1, 2000),
        (2, 1000),
    ]
    assert all(one.pod is None for one in workload.pod_sets)  # ResourceQuotas have counted the pods
    assert workload.problem is None
    assert event.observation.suspended


@pytest.mark.parametrize("phases", [("a",), ("a", "b"), ("b", "a")])
def test_a_group_that_is_not_complete_says_how_many_pods_are_missing(phases: tuple[str, ...]) -> None:
    problem = seen([pod(name) for name in phases]).workload.problem
    assert problem is not None
    assert problem.code is Code.PENDING_EVALUATION
    missing = "1 is missing" if len(phases) == 2 else "2 are missing"
    named = ", ".join(sorted(phases))
    assert problem.detail == f"{len(phases)} of 3 pods of the group exist ({named}): {missing}"
    assert "what does not yet" in str(advice(Phase.PENDING, problem))
    assert "Nothing to do" in str(advice(Phase.PENDING, Reason(code=Code.PENDING_EVALUATION)))


STATEFUL = "apps.kubernetes.io/pod-index"
JOB = "batch.kubernetes.io/job-completion-index"
INDEX = "queuectl.dev/pod-group-pod-index"


@pytest.mark.parametrize(
    ("index", "there", "missing"),
    [
        (STATEFUL, {"set-0": "0", "set-3": "3"}, "set-1, set-2 are missing"),
        (STATEFUL, {"set-0": "0", "set-1": "1", "set-2": "2"}, "set-3 is missing"),
        (JOB, {"job-x1y": "0", "job-z2w": "2", "job-b3c": "3"}, "index 1 is missing"),
        (INDEX, {"train-0": "0", "other-2": "2", "train-3": "3"}, "index 1 is missing"),
        (INDEX, {"a-0": "0", "a-4": "4", "a-1": "1"}, "1 is missing"),  # beyond its size
        (INDEX, {"a-0": "0", "b-0": "0", "a-1": "1"}, "1 is missing"),
        (INDEX, {"a-0": "0", "a-1": "x", "a-2": "2"}, "1 is missing"),
    ],
)
def test_a_group_that_is_not_complete_names_the_pods_that_are_missing_by_their_indices(
    index: str, there: Mapping[str, str], missing: str
) -> None:
    problem = seen(
        [pod(name, size=4, labels={index: place}) for name, place in there.items()]
    ).workload.problem
    assert problem is not None
    assert str(problem.detail).endswith(f"): {missing}")


def test_a_group_that_runs_names_the_pods_that_are_missing() -> None:
    pods = [pod(f"set-{place}", cpu=cpu, labels={STATEFUL: str(place)}) for place, cpu in enumerate("112")]
    running = started(pods)
    assert seen(running).observation.pods_missing == ""
    assert seen([running[0], running[2]]).observation.pods_missing == "set-1"
    waits = pod("set-1", labels={STATEFUL: "1"})
    replaced = seen([running[0], running[2], waits])
    assert (replaced.observation.pods_missing, replaced.observation.unstarted) == ("", True)
    running[1]["status"]["phase"] = "Failed"
    assert seen(running).observation.pods_missing == "set-1"
    running[1]["status"]["phase"] = "Succeeded"
    assert seen(running).observation.pods_missing == ""
    # Of one that has succeeded and is gone the index is not known.
    running[1]["status"]["phase"] = "Running"
    past = {"uid-set-0": {"uid-set-0": (member(running[0]).pod_set, True)}}
    (unit,) = units([member(running[1])], past)
    assert unit.missing == f"1 of podset {member(running[2]).pod_set}"
    running[0]["metadata"]["deletionTimestamp"] = running[2]["metadata"]["deletionTimestamp"] = "now"
    assert seen([running[0], running[2]]).observation.pods_missing == ""  # it ends


@pytest.mark.parametrize("size", [None, "", "0", "-1", "x", "1e2", "٣", str(MAX_PODS + 1)])
def test_a_number_of_pods_that_is_none_is_refused_with_the_pod_and_the_value(size: str | None) -> None:
    obj = pod("a")
    obj["metadata"]["annotations"][SIZE] = size
    if size is None:
        del obj["metadata"]["annotations"][SIZE]
    problem = seen([obj]).workload.problem
    assert problem is not None
    assert problem.code is Code.MISCONFIGURED
    assert str(problem.detail).startswith(f"pod a: metadata.annotations[{SIZE}]: ")
    assert "1 to 1000" in str(problem.detail)


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"size": 4}, f"metadata.annotations[{SIZE}]"),
        ({"labels": {"queuectl.dev/queue-name": "other"}}, "metadata.labels[queuectl.dev/queue-name]"),
        ({"labels": {"queuectl.dev/priority-class": "high"}}, "metadata.labels[queuectl.dev/priority-class]"),
        (
            {"annotations": {"queuectl.dev/reserved-submitter": "bob"}},
            "metadata.annotations[queuectl.dev/reserved-submitter]",
        ),
    ],
)
def test_pods_that_differ_in_what_all_have_in_common_are_named(other: Json, field: str) -> None:
    problem = seen([pod("a"), pod("b", **other), pod("c")]).workload.problem
    assert problem is not None
    assert problem.code is Code.MISCONFIGURED
    assert str(problem.detail).startswith(f"pod b: {field}: ")
    assert str(problem.detail).endswith("of pod a of its group")


def test_each_role_gets_the_keys_of_its_own_flavor() -> None:
    (unit,) = found(three())
    start = effect(composed(unit, 9), "PodGroup", kinds=KINDS)
    first, second = start.attempt.assignment.pod_sets
    fast = ResourceFlavor(name="fast", node_labels=(("disk", "fast"),))
    second = replace(second, flavors=tuple((resource, "fast") for resource, _ in second.requests))
    assignment = replace(start.attempt.assignment, pod_sets=(first, second))
    attempt = replace(start.attempt, assignment=assignment)
    start = replace(start, attempt=attempt, flavors=(*start.flavors, fast))
    selectors = {}
    for one in unit.held:
        patch = patches.start(POD, _of(start, one), one.pod_set, unit.shapes, one.constraints)
        selectors[one.pod_set] = next(
            item["value"] for item in patch if item["path"] == "/spec/nodeSelector" and item["op"] == "add"
        )
    assert selectors == {first.name: {"pool": "spot"}, second.name: {"disk": "fast"}}


def test_pods_beyond_the_size_wait_and_are_named() -> None:
    pods = [*three(), pod("d")]
    (group, excess) = found(pods)
    assert [one.name for one in group.held] == ["a", "b", "c"]
    problem = seen(pods, 1).workload.problem
    assert problem is not None
    assert "d" in str(problem.detail)
    assert excess.id == "uid-d"
    # Also once the group runs.
    problem = seen(started(pods, count=3), 1).workload.problem
    assert problem is not None
    assert problem.code is Code.PENDING_EVALUATION
    assert not found(pods)[0].held


def test_a_started_group_keeps_its_identity_and_its_podsets_whatever_becomes_of_its_pods() -> None:
    pods = started(three())
    before = seen(pods)
    assert before.workload.id == "uid-a"
    assert not before.observation.suspended
    assert before.observation.admission is not None
    after = seen(pods[1:])
    assert after.workload.id == "uid-a"
    assert after.workload.pod_sets == before.workload.pod_sets == seen(three()).workload.pod_sets


@pytest.mark.parametrize("count", [1, 2])
def test_a_start_that_was_made_in_part_is_to_be_completed(count: int) -> None:
    pods = started(three(), count=count)
    (unit,) = found(pods)
    assert unit.id == "uid-a"
    assert len(unit.held) == 3 - count
    assert seen(pods).observation.unstarted


def test_a_pod_takes_the_place_of_one_of_its_shape_that_has_failed_or_is_gone() -> None:
    pods = started(three())
    pods[0]["status"]["phase"] = "Failed"
    replacement, other = pod("d"), pod("e", cpu="2")
    (unit, rest) = found([*pods, replacement, other])
    assert [one.name for one in unit.held] == ["d"]
    assert [one.name for one in rest.held] == ["e"]
    (unit,) = found([*pods[1:], replacement])
    assert [one.name for one in unit.held] == ["d"]


def test_a_pod_that_ends_slowly_holds_its_place_until_it_has_ended() -> None:
    pods = started(three())
    pods[0]["metadata"]["deletionTimestamp"] = "2026-11-27T08:00:00Z"
    (unit, rest) = found([*pods, pod("d")])
    assert not unit.held
    assert [one.name for one in rest.held] == ["d"]


@pytest.mark.parametrize("change", [{"size": 4}, {"labels": {"queuectl.dev/queue-name": "other"}}])
def test_a_pod_of_another_size_or_queue_takes_no_place(change: Json) -> None:
    (unit, rest) = found([*started(three())[1:], pod("d", **change)])
    assert not unit.held
    assert [one.name for one in rest.held] == ["d"]


def test_a_stopped_group_takes_in_no_pod() -> None:
    pods = started(three())
    stop = json.dumps({"workload": "uid-a", "attempt": 1})
    pods[1]["metadata"]["annotations"]["queuectl.dev/reserved-stopped"] = stop
    (unit, rest) = found([*pods[1:], pod("d")])
    assert not unit.held
    assert rest.id == "uid-d"


def test_a_group_has_succeeded_when_all_of_its_pods_have() -> None:
    pods = started(three())
    pods[0]["status"]["phase"] = pods[1]["status"]["phase"] = "Succeeded"
    event = seen(pods)
    assert event.observation.finished is None
    assert [count for _, count in event.observation.reclaimable] == [2]
    pods[2]["status"]["phase"] = "Succeeded"
    assert seen(pods).observation.finished is WorkloadOutcome.SUCCEEDED


def test_a_group_of_which_nothing_runs_has_failed_if_a_pod_has() -> None:
    pods = started(three(), phase="Succeeded")
    pods[2]["status"]["phase"] = "Failed"
    event = seen(pods)
    assert event.observation.finished is WorkloadOutcome.FAILED
    assert event.observation.quiet


def test_a_group_of_which_all_pods_are_deleted_is_deleted_and_waits_for_their_end() -> None:
    pods = started(three())
    for one in pods:
        one["metadata"]["deletionTimestamp"] = "2026-11-27T08:00:00Z"
    event = seen([*pods, pod("d")])
    assert event.observation.finished is WorkloadOutcome.DELETED
    assert event.observation.quiet is False
    assert seen([*pods, pod("d")], 1).workload.id == "uid-d"


def test_a_shape_that_the_admission_does_not_have_is_not_started_whatever_its_digest_begins_with() -> None:
    pods = started(three())
    annotations = pods[1]["metadata"]["annotations"]
    admission = json.loads(annotations["queuectl.dev/reserved-admission"])
    like = member(pod("d")).shape
    forged = [like[:8] + "0" * 56 if shape == like else shape for shape in admission["shapes"]]
    annotations["queuectl.dev/reserved-admission"] = json.dumps({**admission, "shapes": forged})
    (unit, rest) = found([*pods[1:], pod("d")])
    assert not unit.held
    assert [one.name for one in rest.held] == ["d"]


def test_success_counts_after_the_pods_are_deleted() -> None:
    groups = PodGroups(POD_GROUP)
    pods = started(three())
    for one in pods:
        groups.observe(one)
    (event,) = groups.take(16)
    assert isinstance(event, WorkloadObserved)
    for number, one in enumerate(pods):
        one["status"]["phase"], one["metadata"]["resourceVersion"] = "Succeeded", str(20 + number)
        groups.observe(one)
        if number < 2:
            groups.forget(f"uid-{one['metadata']['name']}", str(30 + number))
            (event,) = groups.take(16)
            assert isinstance(event, WorkloadObserved)
            assert event.observation.finished is None
            assert sum(count for _, count in event.observation.reclaimable) == number + 1
    (event,) = groups.take(16)
    assert isinstance(event, WorkloadObserved)
    assert event.observation.finished is WorkloadOutcome.SUCCEEDED
    assert groups.present() == {"uid-a"}
    groups.forget("uid-c", "40")
    assert groups.take(16) == [WorkloadGone(event.workload.id, "40")]
    assert not groups.present()


def test_a_group_is_told_once_for_all_pods_of_a_list() -> None:
    groups = PodGroups(POD_GROUP)
    for name in ("x", "y"):
        for one in range(3):
            assert groups.observe(pod(f"{name}{one}", group=name)) == []
    assert [len(groups.take(1)), len(groups.take(1)), len(groups.take(1))] == [1, 1, 0]


def test_pods_that_failed_and_were_replaced_are_not_remembered_one_by_one() -> None:
    groups = PodGroups(POD_GROUP)
    pods = started(three())
    for number in range(20):
        one = json.loads(json.dumps(pods[0]))
        one["metadata"]["uid"] = f"uid-replaced-{number}"
        one["status"]["phase"] = "Failed"
        groups.observe(one)
        groups.forget(one["metadata"]["uid"], "20")
    for one in pods:
        groups.observe(one)
    groups.take(1)
    assert len(groups._groups["team-a", "train"].past["uid-a"]) == 1
    for one in pods:
        one["status"]["phase"] = "Failed" if one is pods[0] else "Succeeded"
        groups.observe(one)
        groups.forget(one["metadata"]["uid"], "30")
    (event,) = groups.take(1)
    assert event == WorkloadGone(WorkloadId("uid-a"), "30")


def test_groups_of_which_nothing_is_told_do_not_keep_others_back() -> None:
    """The reflector takes events until there are none."""
    groups = PodGroups(POD_GROUP)
    for number in range(3):
        groups.observe(pod(f"short-lived-{number}", group=f"g{number}"))
        groups.forget(f"uid-short-lived-{number}", "8")
    groups.observe(pod("a"))
    assert [type(one) for one in groups.take(2)] == [WorkloadObserved]
    assert groups.take(2) == []


def test_a_name_that_comes_back_after_all_pods_are_gone_is_another_workload() -> None:
    groups = PodGroups(POD_GROUP)
    groups.observe(pod("a", size=1))
    (first,) = groups.take(1)
    groups.forget("uid-a", "8")
    groups.observe(pod("b", size=1, version=9))
    gone, second = groups.take(1)
    assert isinstance(first, WorkloadObserved)
    assert isinstance(second, WorkloadObserved)
    assert gone == WorkloadGone(first.workload.id, "9")
    assert second.workload.id != first.workload.id


def test_what_a_change_of_one_pod_means_for_its_group_is_said_and_no_pod_is_moved_alone() -> None:
    target = edit.workload(KINDS, "pod", "team-a", "a")
    waiting, running = pod("a"), started([pod("a", size=1)])[0]
    for refused in (consequences.waits, consequences.may_have_priority):
        with pytest.raises(consequences.ChangeBlocked, match="pod-group-name=train"):
            refused(target, waiting)
    assert consequences.lost_by_hold(target, waiting) is None
    assert "all pods of its group train" in str(consequences.lost_by_hold(target, running))
    held = edit.EditedField(target, "metadata.annotations[queuectl.dev/hold]", None, "true", running)
    means = consequences.hold_means(held, target, True)
    assert (
        means
        == "It runs: all pods of its group are deleted, and its quota is released once its pods are gone."
    )


def test_a_group_waits_for_workloads_by_the_names_of_their_kinds() -> None:
    (source,) = (one for one in sources(KINDS) if one.name == "PodGroup")
    assert source.others is not None
    named = {"x": "job/prepare, failed:pg/Load_1", "y": "cronjob/prepare", "z": "job/Load_1"}
    for name, after in named.items():
        source.seen(pod(name, size=1, group=name, annotations={"queuectl.dev/after": after}))
    x, y, z = (one.workload for one in source.others(3) if isinstance(one, WorkloadObserved))
    assert x.start is not None
    assert [str(one) for one in x.start.after] == ["ok:Job/prepare", "failed:PodGroup/Load_1"]
    for other in (y, z):
        assert other.problem is not None
        assert other.problem.code is Code.MISCONFIGURED


@pytest.mark.parametrize("value", [None, 7, "x", [], {"a": []}])
@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
def test_malformed_pods_raise_nothing(field: str, value: object) -> None:
    groups = PodGroups(POD_GROUP)
    obj = pod("a")
    groups.observe(obj)
    groups.observe({**obj, field: {**obj[field], "annotations": value, "containers": value, "phase": value}})
    groups.take(16)


def test_a_group_that_cannot_be_read_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = PodGroups(POD_GROUP)
    groups.observe(pod("a", group="bad"))
    groups.observe(pod("b", group="good"))

    def broken(unit: Unit, version: int) -> Json:
        if unit.first.name == "a":
            raise AttributeError("a bug")
        return composed(unit, version)

    monkeypatch.setattr("queuectl.kube.pod_groups.composed", broken)
    (event,) = groups.take(16)
    assert isinstance(event, WorkloadObserved)
    assert event.workload.ref.name == "good"


def test_a_quote_of_a_pod_of_a_group_is_for_all_of_its_pods() -> None:
    manifest = {"apiVersion": "v1", "kind": "Pod", **pod("a", size=4)}
    del manifest["spec"]["schedulingGates"]
    workload = as_created(POD, manifest)
    assert workload.problem is None
    assert [(one.count, dict(one.requests)) for one in workload.pod_sets] == [(4, {"cpu": 1000})]
    assert (workload.ref.kind, workload.ref.name) == ("PodGroup", "train")
    problem = as_created(POD, {"apiVersion": "v1", "kind": "Pod", **pod("a", size="x")}).problem
    assert problem is not None
    assert SIZE in str(problem.detail)


def test_a_manifest_of_a_group_is_refused() -> None:
    group = {"apiVersion": "v1", "kind": "PodGroup", "unit": {"held": []}, **pod("a")}
    problem = as_created(POD_GROUP, group).problem
    assert problem is not None
    assert "a PodGroup has no object of its own" in str(problem.detail)
    assert "a PodGroup has no object of its own" in str(tried(KINDS, group).problem)


def test_the_configuration_names_pods_and_has_groups_with_them() -> None:
    found = job_kinds(Settings.model_validate({"kinds": ["Pod"]}))
    assert not found.problems
    assert found.registry.of("v1", "PodGroup") is POD_GROUP
    assert found.registry.find("pods") is POD
    assert job_kinds(Settings.model_validate({"kinds": ["PodGroup"]})).problems


def test_only_pods_with_the_label_of_a_group_are_watched() -> None:
    assert selection(POD_GROUP, OWN) == {"labelSelector": "queuectl.dev/gated,queuectl.dev/pod-group-name"}
