"""Starts with fewer pods than requested: what allows them, what the start writes, what the stop restores."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.workload import Effect, Eviction, Observation, Verb, Workload
from queuectl.kinds.labels import KUEUES_TOO, OWN, QueueLabels
from queuectl.kinds.patches import first_stop, next_stop, start
from queuectl.kinds.pod_sizes import CannotFit, Size, fitted
from queuectl.kinds.podsets import Operation
from queuectl.kinds.workloads import observe
from tests.integration.kube.sites import AT, effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job, pytorch_job
from tests.unit.kinds.json_patches import applied

LEAST = "queuectl.dev/min-parallelism"
EQUAL = "queuectl.dev/completions-equal-parallelism"
STOPPED = "queuectl.dev/reserved-stopped"
INDEXED: dict[str, Any] = {"parallelism": 8, "completions": 8, "completionMode": "Indexed"}
Json = dict[str, Any]


def partly(least: str = "2", *, equal: bool = False, **spec: Any) -> Json:
    """A Job that may start with fewer pods."""
    obj = job(**({"parallelism": 8, "completions": 8} | spec))
    obj["metadata"]["annotations"] = {LEAST: least} | ({EQUAL: "true"} if equal else {})
    return obj


def elastic(least: object = 2, workers: int | None = 8, most: object = None) -> Json:
    obj = pytorch_job(Master=1, Worker=workers)
    obj["spec"]["elasticPolicy"] = {"minReplicas": least} | ({"maxReplicas": most} if most else {})
    obj["metadata"]["annotations"] = {"note": "mine"}
    return obj


def read(obj: Json, honoured: QueueLabels = OWN) -> tuple[Workload, Observation]:
    event = observe(JOB_KINDS[obj["kind"]], obj, honoured)
    assert event is not None
    return event.workload, event.observation


def counts(obj: Json) -> list[tuple[int, int | None]]:
    return [(pods.count, pods.min_count) for pods in read(obj)[0].pod_sets]


def of(obj: Json, pods: int, *, attempt: int = 1, verb: Verb = Verb.START) -> Effect:
    """The effect of an attempt with quota for `pods` pods of the last podset."""
    return effect(obj, obj["kind"], attempt=attempt, verb=verb, pods=pods)


def started(obj: Json, pods: int, *, attempt: int = 1) -> Json:
    return edited(applied(obj, start(JOB_KINDS[obj["kind"]], of(obj, pods, attempt=attempt))))


def stop_patch(obj: Json, pods: int, *, attempt: int = 1) -> list[Operation]:
    write = first_stop(JOB_KINDS[obj["kind"]], of(obj, pods, attempt=attempt, verb=Verb.STOP))
    assert write is not None
    return write.body


def stopped(obj: Json, pods: int, *, attempt: int = 1) -> Json:
    return edited(applied(obj, stop_patch(obj, pods, attempt=attempt)))


def edited(obj: Json, **spec: Any) -> Json:
    """As after a write of the spec."""
    metadata = {**obj["metadata"], "generation": obj["metadata"]["generation"] + 1}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], **spec}}


# --- what allows it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "found"),
    [
        (job(parallelism=8), [(8, None)]),
        (partly(), [(8, 2)]),
        (partly("7"), [(8, 7)]),
        (partly("3", completions=4), [(4, 3)]),
        (partly(equal=True, **INDEXED), [(8, 2)]),
        (elastic(), [(1, None), (8, 2)]),
        (elastic(8), [(1, None), (8, None)]),
        (elastic(1, most=8), [(1, None), (8, 1)]),
        (elastic(1, workers=None), [(1, None), (1, None)]),
        (pytorch_job(Worker=8), [(8, None)]),
    ],
)
def test_an_object_says_how_few_pods_it_may_start_with(
    obj: Json, found: list[tuple[int, int | None]]
) -> None:
    assert counts(obj) == found
    assert read(obj)[0].problem is None


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (partly("0"), "metadata.annotations[queuectl.dev/min-parallelism]: '0' is not a whole number of"),
        (partly("8"), "'8' is not a whole number of fewer pods, 1 to 7"),
        (partly("5", completions=4), "1 to 3"),
        (partly("two"), "'two' is not a whole number"),
        (partly("9" * 300), "is not a whole number"),
        (partly("1", parallelism=1), "with one pod at a time there is none"),
        (
            partly(equal=True),
            "only for an Indexed Job with completions equal to parallelism: it is NonIndexed",
        ),
        (partly(equal=True, **{**INDEXED, "completions": 9}), "parallelism 8 and completions 9"),
        (partly(equal=True, **INDEXED, successPolicy={"rules": []}), "spec.successPolicy: names indexes"),
        (partly(equal=True, **INDEXED, maxFailedIndexes=3), "spec.maxFailedIndexes: 3 is more than 2"),
        (elastic(0), "spec.elasticPolicy.minReplicas: 0 is outside 1 to 8"),
        (elastic(9), "spec.elasticPolicy.minReplicas: 9 is outside 1 to 8"),
        (elastic(2, most=7), "spec.pytorchReplicaSpecs.Worker.replicas: 8 is more than 7"),
    ],
)
def test_a_bad_least_number_names_field_value_and_limits_and_pods_can_be_charged(
    obj: Json, problem: str
) -> None:
    workload = read(obj)[0]
    assert workload.problem is not None
    assert workload.problem.code is Code.MISCONFIGURED
    assert problem in str(workload.problem.detail)
    assert workload.pod_sets[-1].count > 0


def test_kueues_annotations_count_only_where_its_labels_do_and_after_queuectls() -> None:
    obj = partly(**INDEXED)
    names = ("kueue.x-k8s.io/job-min-parallelism", "kueue.x-k8s.io/job-completions-equal-parallelism")
    obj["metadata"]["annotations"] = dict(zip(names, ("5", "true"), strict=True))
    assert read(obj)[0].pod_sets[0].min_count is None
    workload, seen = read(obj, KUEUES_TOO)
    assert workload.pod_sets[0].min_count == 5
    assert len(seen.elastic) == 2
    obj["metadata"]["annotations"] |= {LEAST: "3", EQUAL: "false"}
    workload, seen = read(obj, KUEUES_TOO)
    assert workload.pod_sets[0].min_count == 3
    assert len(seen.elastic) == 1


@pytest.mark.parametrize("status", [{"succeeded": 1}, {"completedIndexes": "0"}, {"failedIndexes": "3"}])
def test_once_an_index_has_ended_the_number_of_indexes_stays(status: Json) -> None:
    assert read(partly(equal=True, **INDEXED) | {"status": status})[0].pod_sets[0].min_count is None


# --- start and stop -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "runs"),
    [
        (partly(), {"parallelism": 4, "completions": 8}),
        (partly(equal=True, **INDEXED), {"parallelism": 4, "completions": 4}),
        (partly(parallelism=9), {"parallelism": 4, "completions": 8}),
    ],
)
def test_a_start_reduces_a_job_and_the_stop_restores_it(obj: Json, runs: Json) -> None:
    before = {key: obj["spec"][key] for key in runs}
    running = started(obj, 4)
    assert {key: running["spec"][key] for key in runs} == runs
    assert counts(running) == counts(obj)
    after = stopped(running, 4)
    assert {key: after["spec"][key] for key in runs} == before
    assert counts(after) == counts(obj)
    again = started(after, 3, attempt=2)
    assert again["spec"]["parallelism"] == 3
    assert stopped(again, 3, attempt=2)["spec"]["parallelism"] == before["parallelism"]


def test_a_start_reduces_the_workers_of_a_pytorchjob_and_the_stop_restores_them() -> None:
    running = started(elastic(), 4)
    replicas = running["spec"]["pytorchReplicaSpecs"]
    assert (replicas["Master"]["replicas"], replicas["Worker"]["replicas"]) == (1, 4)
    assert counts(running) == [(1, None), (8, 2)]
    assert stopped(running, 4)["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 8


def test_a_start_with_all_pods_writes_no_number() -> None:
    patch = start(JOB_KINDS["Job"], of(partly(), 8))
    assert not {"/spec/parallelism", "/spec/completions"} & {step["path"] for step in patch}
    assert "counts" not in str(patch)


def test_a_number_that_was_edited_while_it_runs_is_the_users() -> None:
    running = edited(started(partly(), 4), parallelism=3)
    assert counts(running) == [(3, 2)]
    assert stopped(running, 4)["spec"]["parallelism"] == 3


def test_a_number_that_was_edited_while_it_waits_is_the_users_although_it_equals_that_of_the_start() -> None:
    waiting = edited(stopped(started(partly(), 4), 4), parallelism=4)
    assert counts(waiting) == [(4, 2)]


def test_the_number_is_restored_although_the_annotation_was_removed_while_it_runs() -> None:
    running = started(partly(), 4)
    del running["metadata"]["annotations"][LEAST]
    assert counts(running) == [(8, None)]
    assert stopped(running, 4)["spec"]["parallelism"] == 8


def test_a_job_that_another_client_suspended_gets_its_number_back() -> None:
    running = edited(started(partly(), 4), suspend=True)
    stop = of(running, 4, verb=Verb.STOP)
    assert first_stop(JOB_KINDS["Job"], stop) is None
    write = next_stop(JOB_KINDS["Job"], stop, running)
    assert write is not None
    after = applied(running, write.body)
    assert after["spec"]["parallelism"] == 8
    assert next_stop(JOB_KINDS["Job"], stop, after) is None


@pytest.mark.parametrize(
    ("status", "left"),
    [({"active": 4}, 8), ({"active": 4, "succeeded": 3}, 8), ({"active": 2, "succeeded": 6}, 2)],
)
def test_ended_pods_are_counted_from_those_requested(status: Json, left: int) -> None:
    """It holds four of eight pods: with six that succeeded two are left."""
    running = started(partly(), 4) | {"status": status}
    workload, seen = read(running)
    assert workload.pod_sets[0].count - dict(seen.reclaimable).get("main", 0) == left


def test_a_job_that_has_not_got_its_number_back_gets_no_other_one() -> None:
    suspended = edited(started(partly(), 3), suspend=True)
    with pytest.raises(CannotFit, match="has not given it back all its pods"):
        fitted(JOB_KINDS["Job"], suspended, lambda _: Size("main", 4))
    assert (
        fitted(JOB_KINDS["Job"], stopped(started(partly(), 3), 3), lambda _: Size("main", 4)).after.count == 4
    )


def test_a_reduced_job_is_ready_when_the_pods_that_it_has_are() -> None:
    running = started(partly(equal=True, **INDEXED), 4) | {"status": {"active": 4, "ready": 4}}
    assert read(running)[1].ready is True


@given(pods=st.integers(2, 50), data=st.data(), equal=st.booleans())
def test_after_any_starts_and_stops_a_job_is_as_its_user_wrote_it(
    pods: int, data: st.DataObject, equal: bool
) -> None:
    least = data.draw(st.integers(1, pods - 1))
    obj = partly(str(least), equal=equal, **{**INDEXED, "parallelism": pods, "completions": pods})
    own = {key: value for key, value in obj["spec"].items() if key != "template"}
    now = obj
    for attempt, held in enumerate(data.draw(st.lists(st.integers(least, pods), max_size=3)), start=1):
        running = started(now, held, attempt=attempt)
        assert running["spec"]["parallelism"] == held
        assert counts(running) == [(pods, least)]
        now = stopped(running, held, attempt=attempt)
        assert {key: value for key, value in now["spec"].items() if key != "template"} == own


# --- the record of a stop -----------------------------------------------------------------------------


def evicted(obj: Json, reason: Reason) -> Json:
    stop = replace(of(obj, 4, verb=Verb.STOP), eviction=Eviction(reason, AT + timedelta(seconds=3601.5)))
    write = first_stop(JOB_KINDS["Job"], stop)
    assert write is not None
    after = applied(obj, write.body)
    record: Json = json.loads(after["metadata"]["annotations"][STOPPED])
    return record


def test_a_stop_records_which_rule_of_whom_took_what_from_it() -> None:
    cause = PreemptionCause.IN_CLUSTER_QUEUE
    reason = Reason(code=Code.PREEMPTED, cause=cause, by="team-a/Job/urgent")
    running = started(partly(), 4)
    assert evicted(running, reason) == {
        "workload": running["metadata"]["uid"],
        "attempt": 1,
        "at": "2026-11-21T11:00:01.500000Z",
        "code": "Preempted",
        "rule": "InClusterQueue",
        "by": "team-a/Job/urgent",
        "ranSeconds": 3600,
        "deviceSeconds": {"nvidia.com/gpu": 4 * 2 * 3600},
    }


def test_the_record_names_no_workload_of_another_namespace() -> None:
    cause = PreemptionCause.IN_COHORT_RECLAMATION
    for by in ("team-b/Job/secret", "team-ab/Job/secret"):
        record = evicted(started(partly(), 4), Reason(code=Code.PREEMPTED, cause=cause, by=by))
        assert record["rule"] == "InCohortReclamation"
        assert "by" not in record
        assert "secret" not in str(record)


def test_the_record_of_a_stop_by_a_limit_has_its_details() -> None:
    reason = Reason(code=Code.LOCAL_QUEUE_STOPPED, node="LocalQueue/team-a/main", detail="x" * 1000)
    record = evicted(started(partly(), 4), reason)
    assert (record["code"], record["node"]) == ("LocalQueueStopped", "LocalQueue/team-a/main")
    assert len(record["detail"]) == 300


def test_an_object_without_annotations_gets_the_record_too() -> None:
    obj = job(suspend=False)
    after = applied(obj, stop_patch(obj, 1))
    assert list(after["metadata"]["annotations"]) == [STOPPED]


def test_the_next_start_removes_the_record() -> None:
    waiting = stopped(started(partly(), 4), 4)
    recorded = read(waiting)[1].stopped
    assert recorded is not None
    assert (recorded.attempt, recorded.outcome) == (1, None)
    assert STOPPED not in started(waiting, 4, attempt=2)["metadata"]["annotations"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"workload":"other","attempt":1}', "9" * 9000, 7])
def test_a_malformed_record_is_ignored(text: object) -> None:
    obj = job()
    obj["metadata"]["annotations"] = {STOPPED: text}
    found = read(obj)[1].stopped
    assert found is None or (found.attempt, found.outcome) == (0, None)
