"""Preemptions that were, with what was lost; and those that may come."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.answers.exposure import ExposureThreat, threats
from queuectl.api.view import View
from queuectl.core.model.policy import PreemptionPolicy
from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.workload import ConfigKey, Phase, StoredWorkload
from queuectl.kinds.policy import parse_policy
from tests.unit.api.canned import EPOCH_START, GPU, CannedReadings, decision, queue_spec, workload
from tests.unit.api.conftest import Rest, Serve

SHARES = {
    "preemptor": {"node": "ClusterQueue/team-a", "before": 0, "after": 125},
    "victim": {"node": "ClusterQueue/team-b", "before": 250, "after": None},
}


def taken() -> CannedReadings:
    readings = CannedReadings()
    readings.commit(configs={ConfigKey("ClusterQueue", "", "team-b"): queue_spec(8)})
    victim, other = workload("victim", 1, cluster_queue="team-b"), workload("other", 2, queue="second")
    readings.commit(victim, other)
    pods = [{"name": "main", "count": 4, "requests": {GPU: 2}, "flavors": {GPU: "a100"}}]
    why = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_COHORT_FAIR_SHARING, by="default/Job/urgent")
    held: dict[str, object] = {"clusterQueue": "team-b", "podSets": pods}
    payload: dict[str, object] = {"preemptor": "uid-9", "shares": SHARES}
    steps: tuple[tuple[StoredWorkload, str, Reason | None, dict[str, object]], ...] = (
        (victim, "Admitted", None, held),
        (victim, "Evicted", why, payload),
        (other, "Admitted", None, {**held, "clusterQueue": "team-a"}),
        (other, "Evicted", replace(why, cause=PreemptionCause.IN_CLUSTER_QUEUE), {"preemptor": "uid-9"}),
        (other, "Evicted", Reason(code=Code.USER_HOLD, by="alice"), {}),
    )
    for number, (of, verdict, reason, details) in enumerate(steps):
        row = decision(number * 100 + 1, of, verdict, reason)
        readings.rows.append(replace(row, attempt=1, payload=details))
    readings.sequence = 500
    return readings


async def test_a_preemption_has_its_rule_its_shares_and_what_was_lost(serve: Serve) -> None:
    rest = await serve(taken())
    newest, oldest = (await rest.get("/api/v1/preemptions"))["items"]
    assert (newest["name"], newest["cause"], newest["shares"]) == ("other", "InClusterQueue", None)
    assert (oldest["name"], oldest["by"], oldest["clusterQueue"]) == (
        "victim",
        "default/Job/urgent",
        "team-b",
    )
    assert (oldest["ranSeconds"], oldest["lost"]) == (100, {GPU: 800})
    assert oldest["shares"] == SHARES


async def test_what_was_lost_is_what_the_attempt_held_each_size_for_its_time(serve: Serve) -> None:
    readings = taken()
    smaller: dict[str, object] = {
        "podSets": [{"name": "main", "count": 2, "requests": {GPU: 2}, "flavors": {GPU: "a100"}}]
    }
    victim = workload("victim", 1, cluster_queue="team-b")
    for sequence, verdict in ((51, "Shrunk"), (102, "Released")):
        row = replace(decision(sequence, victim, verdict, None), attempt=1)
        readings.rows.append(replace(row, payload=smaller if verdict == "Shrunk" else {}))
    readings.rows.sort(key=lambda row: row.sequence)
    rest = await serve(readings)
    [one] = (await rest.get("/api/v1/preemptions", clusterqueue="team-b"))["items"]
    assert one["lost"] == {GPU: 50 * 8 + 50 * 4}
    decisions = (await rest.get("/api/v1/workloads/default/Job/victim/history"))["items"]
    assert [row["resourceSeconds"] for row in decisions][-1] == {GPU: 50 * 8 + 51 * 4}


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"queue": "second"}, ["other"]),
        ({"clusterqueue": "team-b"}, ["victim"]),
        ({"namespace": "default", "limit": "1"}, ["other"]),
        ({"since": (EPOCH_START + timedelta(seconds=200)).isoformat()}, ["other"]),
        ({"until": (EPOCH_START + timedelta(seconds=200)).isoformat()}, ["victim"]),
    ],
)
async def test_preemptions_are_filtered(serve: Serve, filters: dict[str, str], names: list[str]) -> None:
    rest = await serve(taken())
    assert [item["name"] for item in (await rest.get("/api/v1/preemptions", **filters))["items"]] == names


async def test_pages_of_preemptions_continue_where_the_one_before_ended(serve: Serve) -> None:
    rest = await serve(taken())
    first = await rest.get("/api/v1/preemptions", limit="1")
    second = await rest.get("/api/v1/preemptions", limit="1", next=first["next"])
    assert [item["name"] for item in (*first["items"], *second["items"])] == ["other", "victim"]


# --- exposure


def preempts(**rules: object) -> dict[str, object]:
    return {"preemption": rules}


async def threatened(*workloads: StoredWorkload, fair: bool = False, **specs: str) -> list[ExposureThreat]:
    """To `mine`, which holds 6 GPUs of `a`."""
    readings = CannedReadings()
    mine = workload("mine", 1, cluster_queue="a", phase=Phase.ADMITTED, gpus=6)
    cohort = json.dumps({"fairSharing": {"enabled": fair}})
    readings.commit(
        mine,
        *workloads,
        configs={
            ConfigKey("Cohort", "", "all"): cohort,
            **{ConfigKey("ClusterQueue", "", name): spec for name, spec in specs.items()},
        },
    )
    view = View(readings, parse_policy)
    await view.refresh()
    sight = view.sight()
    assert sight is not None
    return await threats(mine, sight.state, EPOCH_START + timedelta(minutes=2))


def waits(name: str, arrival: int, queue: str, priority: int = 0) -> StoredWorkload:
    return workload(name, arrival, cluster_queue=queue, priority=priority)


ANY = queue_spec(4, cohort="all", preemption={"reclaimWithinCohort": "Any"})
LENDS = queue_spec(4, cohort="all")


async def test_a_workload_of_a_queue_within_its_quota_is_exposed_to_its_own_queue_only() -> None:
    rules = {"withinClusterQueue": "LowerPriority"}
    own = queue_spec(8, cohort="all", preemption=rules)
    found = await threatened(waits("one", 2, "a", 5), waits("two", 3, "a"), waits("b", 4, "b"), a=own, b=ANY)
    assert found == [
        ExposureThreat("a", PreemptionCause.IN_CLUSTER_QUEUE, PreemptionPolicy.LOWER_PRIORITY, 1, None)
    ]


async def test_what_can_never_run_is_no_threat() -> None:
    never = Reason(code=Code.EXCEEDS_MAX_QUOTA, resource=GPU, requested=99)
    own = queue_spec(8, cohort="all", preemption={"withinClusterQueue": "LowerPriority"})
    huge = replace(waits("huge", 3, "a", priority=9), reason=never)
    (one,) = await threatened(waits("more", 2, "a", priority=9), huge, a=own)
    assert one.pending == 1


async def test_a_workload_on_borrowed_quota_is_exposed_to_queues_that_reclaim() -> None:
    reclaims = queue_spec(4, cohort="all", preemption={"reclaimWithinCohort": "LowerPriority"})
    found = await threatened(
        waits("one", 2, "b"), waits("two", 3, "b", 9), waits("c", 4, "c"), a=LENDS, b=reclaims, c=ANY, d=LENDS
    )
    cause = PreemptionCause.IN_COHORT_RECLAMATION
    assert found == [
        ExposureThreat("b", cause, PreemptionPolicy.LOWER_PRIORITY, 1, None),
        ExposureThreat("c", cause, PreemptionPolicy.ANY, 1, None),
    ]


async def test_a_queue_without_unused_quota_preempts_by_share_where_the_cohort_shares_fairly() -> None:
    none = queue_spec(0, cohort="all", preemption={"reclaimWithinCohort": "Any"})
    found = await threatened(waits("c", 4, "c"), fair=True, a=LENDS, c=none)
    assert [(one.cause, one.pending) for one in found] == [(PreemptionCause.IN_COHORT_FAIR_SHARING, 1)]


async def test_a_minimum_run_time_protects_by_cause() -> None:
    rules = {"minRunTime": {"InCohortReclamation": 600}, "withinClusterQueue": "LowerPriority"}
    found = await threatened(a=queue_spec(4, cohort="all", preemption=rules), b=ANY)
    admitted_at = EPOCH_START + timedelta(minutes=1)
    assert [one.protected_until for one in found] == [None, admitted_at + timedelta(seconds=600)]


async def test_rest_tells_whether_a_workload_may_be_preempted(serve: Serve) -> None:
    readings = CannedReadings()
    readings.commit(
        workload("mine", 1, cluster_queue="a", phase=Phase.ADMITTED, gpus=6),
        waits("one", 2, "b"),
        configs={
            ConfigKey("ClusterQueue", "", name): spec for name, spec in (("a", LENDS), ("b", ANY), ("c", ANY))
        },
    )
    rest: Rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/job/mine/exposure")
    assert found["exposed"] is True
    assert [(one["clusterQueue"], one["pending"]) for one in found["threats"]] == [("b", 1), ("c", 0)]
    waiting = await rest.get("/api/v1/workloads/default/job/one/exposure")
    assert (waiting["exposed"], waiting["threats"]) == (False, [])
