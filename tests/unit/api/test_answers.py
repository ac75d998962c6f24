"""The response of each path from a committed state."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from queuectl.api.view import links_of
from queuectl.core.model.policy import AccountSource
from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.workload import (
    AccountValue,
    Attribution,
    ConfigKey,
    ObjectRef,
    PastAttempts,
    Phase,
    PodSet,
    PodsReady,
)
from tests.unit.api.canned import (
    AWAY,
    GPU,
    WAITS,
    CannedReadings,
    decision,
    local_spec,
    queue_spec,
    two_teams,
    workload,
)
from tests.unit.api.conftest import Rest

Serve = Callable[[CannedReadings], Awaitable[Rest]]


async def test_a_cluster_queue_has_what_is_used_and_what_is_free(rest: Rest) -> None:
    found = await rest.get("/api/v1/clusterqueues/team-a")
    assert found.pop("ageSeconds") >= 0
    assert found.pop("controller")["seconds"] >= 0
    assert found == {
        "name": "team-a",
        "spec": json.loads(queue_spec(8, cohort="all")),
        "cohort": "all",
        "active": True,
        "condition": {"reason": "Ready", "message": "Can admit new workloads"},
        "stopPolicy": "None",
        "queueingStrategy": "BestEffortFIFO",
        "maxExecutionTime": {"default": None, "ceiling": None, "onExceeded": None},
        "pending": 2,
        "admitted": 2,
        "warnings": [],
        "flavors": [
            {
                **{"flavor": "a100", "resource": GPU, "nominal": 8, "effective": 8, "used": 6, "free": 2},
                **{"borrowed": 0, "lent": 0},
            }
        ],
        "sequence": 2,
    }


async def test_what_is_free_is_with_borrowing_and_without_what_is_lent(serve: Serve) -> None:
    readings = CannedReadings()

    def spec(nominal: int, **limits: str) -> str:
        found = json.loads(queue_spec(nominal, cohort="all"))
        found["resourceGroups"][0]["flavors"][0]["resources"][0] |= limits
        return json.dumps(found)

    queues = {
        "owner": spec(8),
        "keeper": spec(4, lendingLimit="1"),
        "guest": spec(0),
        "shy": spec(0, borrowingLimit="1"),
    }
    readings.commit(
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            **{ConfigKey("ClusterQueue", "", name): text for name, text in queues.items()},
        }
    )
    rest = await serve(readings)

    async def free() -> dict[str, int]:
        items = (await rest.get("/api/v1/clusterqueues"))["items"]
        return {item["name"]: item["flavors"][0]["free"] for item in items}

    # The keeper lends one of its four: the others have nine together.
    assert await free() == {"owner": 9, "keeper": 12, "guest": 9, "shy": 1}
    readings.commit(workload("big", 1, cluster_queue="guest", phase=Phase.ADMITTED, gpus=7))
    await rest.view.refresh()
    assert await free() == {"owner": 2, "keeper": 5, "guest": 2, "shy": 1}
    cohort = await rest.get("/api/v1/cohorts/all")
    assert (cohort["flavors"][0]["used"], cohort["flavors"][0]["free"]) == (7, 5)


async def test_a_workload_whose_quota_is_lent_shows_who_borrows_it_and_whether_it_is_reclaimed(
    serve: Serve,
) -> None:
    readings = CannedReadings()
    why = replace(WAITS, requested=6, available=1, short_by=5, node="Cohort/all")
    readings.commit(
        workload("waits", 1, cluster_queue="owner", reason=why),
        workload("big", 2, namespace="other", cluster_queue="guest", phase=Phase.ADMITTED, gpus=7),
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            ConfigKey("ClusterQueue", "", "owner"): queue_spec(8, cohort="all"),
            ConfigKey("ClusterQueue", "", "guest"): queue_spec(0, cohort="all"),
        },
    )
    rest = await serve(readings)
    path = "/api/v1/workloads/default/job/waits"
    borrower = {"clusterQueue": "guest", "amount": 7, "share": None}
    assert (await rest.get(path))["lent"] == {
        "amount": 7,
        "reclaims": False,
        "share": None,
        "borrowers": [borrower],
    }
    fair = json.dumps({"fairSharing": {"enabled": True}})
    reclaims = queue_spec(8, cohort="all", preemption={"reclaimWithinCohort": "Any"})
    readings.commit(
        configs={ConfigKey("Cohort", "", "all"): fair, ConfigKey("ClusterQueue", "", "owner"): reclaims}
    )
    await rest.view.refresh()
    found = (await rest.get(path))["lent"]
    assert (found["reclaims"], found["share"]) == (True, 0)
    assert found["borrowers"] == [{**borrower, "share": 875}]
    readings.end(workload("big", 2, namespace="other", cluster_queue="guest"))
    await rest.view.refresh()
    assert (await rest.get(path))["lent"] is None


async def test_a_queue_with_a_missing_flavor_says_so_until_the_flavor_appears(rest: Rest) -> None:
    found = await rest.get("/api/v1/clusterqueues/team-b")
    assert not found["active"]
    assert found["condition"]["reason"] == "FlavorNotFound"
    assert "h100" in found["condition"]["message"]
    local = await rest.get("/api/v1/localqueues/other/main")
    assert (local["active"], local["condition"]["reason"]) == (False, "ClusterQueueIsInactive")

    rest.readings.commit(configs={ConfigKey("ResourceFlavor", "", "h100"): "{}"})
    await rest.view.refresh()
    assert (await rest.get("/api/v1/clusterqueues/team-b"))["active"]
    assert (await rest.get("/api/v1/localqueues/other/main"))["active"]


async def test_lists_have_one_shape_and_the_sequence_of_their_state(rest: Rest) -> None:
    for path in ("clusterqueues", "localqueues", "workloads"):
        found = await rest.get(f"/api/v1/{path}")
        assert set(found) == {"items", "next", "sequence", "ageSeconds", "controller"}
        assert found["sequence"] == 2
        assert found["next"] is None
        assert found["items"]


async def test_positions_follow_priority_then_creation_then_first_observation(serve: Serve) -> None:
    readings = CannedReadings()
    readings.commit(
        workload("third", 1),
        workload("second", 9, priority=5),
        workload("first", 7, priority=5),
        configs={ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8)},
    )
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads")
    assert {item["name"]: item["position"] for item in found["items"]} == {
        "first": 1,
        "second": 2,
        "third": 3,
    }


async def test_an_ineligible_workload_has_no_position_and_counts_in_none(serve: Serve) -> None:
    readings = CannedReadings()
    readings.commit(
        workload("held", 1, reason=Reason(code=Code.ON_HOLD)),
        workload("lost", 2, cluster_queue=None, reason=Reason(code=Code.QUEUE_NOT_FOUND)),
        workload("running", 3, gpus=1, phase=Phase.ADMITTED),
        workload("next", 4),
        configs={ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8)},
    )
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads")
    assert {item["name"]: item["position"] for item in found["items"]} == {
        "held": None,
        "lost": None,
        "running": None,
        "next": 1,
    }
    queue = await rest.get("/api/v1/clusterqueues/team-a")
    assert (queue["pending"], queue["admitted"]) == (2, 1)


async def test_a_pending_workload_shows_its_limit_the_holders_of_its_quota_and_what_would_help(
    rest: Rest,
) -> None:
    found = await rest.get("/api/v1/workloads/default/Job/waits")
    assert (found["phase"], found["position"], found["line"]) == ("Pending", 2, 2)
    assert found["podSets"] == [{"name": "main", "count": 1, "minCount": 1, "requests": {GPU: 1}}]
    assert found["submitter"] == "alice"
    assert found["admission"] is None
    reason = found["reason"]
    assert (reason["code"], reason["family"], reason["node"]) == (
        "WaitingForQuota",
        "not yet",
        "ClusterQueue/team-a",
    )
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (6, 2, 4)
    assert reason["limit"] == "nominalQuota"
    assert reason["message"] == WAITS.message
    assert [(holder["name"], holder["amount"]) for holder in found["holders"]] == [("large", 4), ("small", 2)]
    assert f"4 {GPU} of flavor a100" in found["help"]


async def test_of_many_holders_the_largest_are_named_and_the_others_counted(rest: Rest) -> None:
    rest.readings.commit(*(workload(f"h-{n}", 20 + n, gpus=n % 3, phase=Phase.ADMITTED) for n in range(9)))
    await rest.view.refresh()
    found = await rest.get("/api/v1/workloads/default/Job/waits")
    assert [holder["amount"] for holder in found["holders"]] == [4, 2, 2, 2, 2]
    assert found["moreHolders"] == 3, "that hold one; three hold none"


async def test_holders_are_searched_in_all_queues_below_the_limiting_cohort(serve: Serve) -> None:
    readings = CannedReadings()
    tight = Reason(
        code=Code.WAITING_FOR_QUOTA,
        flavor="a100",
        resource=GPU,
        requested=9,
        available=1,
        short_by=8,
        node="Cohort/root",
    )
    readings.commit(
        workload("mine", 1, reason=tight),
        workload("near", 2, gpus=3, phase=Phase.ADMITTED),
        workload("far", 3, gpus=5, phase=Phase.ADMITTED, cluster_queue="team-b"),
        workload("elsewhere", 4, gpus=7, phase=Phase.ADMITTED, cluster_queue="alone"),
        configs={
            ConfigKey("Cohort", "", "half"): '{"parentName": "root"}',
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8, cohort="root"),
            ConfigKey("ClusterQueue", "", "team-b"): queue_spec(8, cohort="half"),
            ConfigKey("ClusterQueue", "", "alone"): queue_spec(8),
        },
    )
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/Job/mine")
    assert [holder["name"] for holder in found["holders"]] == ["far", "near"]


async def test_a_preemptor_shows_its_victims_that_still_hold_quota(serve: Serve) -> None:
    readings = CannedReadings()
    awaited = Reason(
        code=Code.WAITING_FOR_PREEMPTED_WORKLOADS,
        flavor="a100",
        resource=GPU,
        requested=9,
        node="ClusterQueue/team-a",
    )

    def taken(by: str) -> Reason:
        return Reason(
            code=Code.PREEMPTED, cause=PreemptionCause.IN_COHORT_RECLAMATION, by=f"default/Job/{by}"
        )

    readings.commit(
        workload("mine", 1, reason=awaited),
        workload("near", 2, gpus=3, phase=Phase.EVICTING, reason=taken("mine")),
        workload("far", 3, gpus=5, phase=Phase.EVICTING, cluster_queue="team-b", reason=taken("mine")),
        workload("others", 4, gpus=7, phase=Phase.EVICTING, cluster_queue="team-b", reason=taken("theirs")),
        workload("runs", 5, gpus=7, phase=Phase.ADMITTED, cluster_queue="team-b"),
        configs={
            ConfigKey("Cohort", "", "half"): '{"parentName": "root"}',
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8, cohort="root"),
            ConfigKey("ClusterQueue", "", "team-b"): queue_spec(8, cohort="half"),
        },
    )
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/Job/mine")
    assert [(holder["name"], holder["amount"]) for holder in found["holders"]] == [("far", 5), ("near", 3)]


async def test_only_queues_in_a_cycle_of_cohorts_are_inactive(serve: Serve) -> None:
    readings = CannedReadings()
    readings.commit(
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            ConfigKey("Cohort", "", "a"): '{"parentName": "b"}',
            ConfigKey("Cohort", "", "b"): '{"parentName": "a"}',
            ConfigKey("ClusterQueue", "", "in"): queue_spec(8, cohort="a"),
            ConfigKey("ClusterQueue", "", "out"): queue_spec(8, cohort="c"),
        },
    )
    rest = await serve(readings)
    queue_in = (await rest.get("/api/v1/clusterqueues/in"))["condition"]
    assert queue_in["reason"] == "CohortCycle"
    cohorts = {item["name"]: item["condition"] for item in (await rest.get("/api/v1/cohorts"))["items"]}
    assert cohorts["a"] == queue_in
    assert cohorts["b"]["reason"] == "CohortCycle"
    assert (await rest.get("/api/v1/clusterqueues/out"))["active"]


async def test_an_admitted_workload_shows_what_it_holds(rest: Rest) -> None:
    found = await rest.get("/api/v1/workloads/default/Job/small")
    assert found["admission"] == {
        "clusterQueue": "team-a",
        "podSets": [{"name": "main", "count": 2, "requests": {GPU: 1}, "flavors": {GPU: "a100"}}],
    }
    assert (found["attempt"], found["attempts"], found["position"], found["help"]) == (1, 1, None, None)
    assert found["admittedAt"] == "2026-01-05T10:01:00Z"
    assert (found["pods"], found["podsReady"], found["podsMissing"]) == (2, 1, "train-1")


async def test_an_admitted_workload_shows_what_it_is_booked_on(serve: Serve) -> None:
    readings = two_teams()
    one = next(one for _, one in readings._workloads.values() if one.ref.name == "small")
    made_by = AccountValue("flow", "CronJob/nightly", AccountSource.OWNER)
    booked = Attribution(
        namespace="default",
        queue="main",
        submitter="system:serviceaccount:kube-system:cronjob-controller",
        user="alice",
        account=(made_by, AccountValue("project", None, None)),
    )
    readings.commit(replace(one, attribution=booked))
    found = await (await serve(readings)).get("/api/v1/workloads/default/Job/small")
    assert found["booked"] == {
        "user": "alice",
        "submitter": "system:serviceaccount:kube-system:cronjob-controller",
        "flow": "CronJob/nightly",
        "project": None,
    }


@pytest.mark.parametrize(
    ("past", "ready", "expected"),
    [
        ({}, 1, ("Scheduling", "10:01:00", "10:02:00")),
        ({"bound_at": "10:01:30"}, 1, ("Startup", "10:01:30", "10:11:30")),
        ({"ready": 1, "unready_at": "11:00:00"}, 1, ("Recovery", "11:00:00", "11:05:00")),
        ({"ready": 1}, 1, None),
        ({}, 2, None),
    ],
    ids=["not bound", "bound", "not ready any more", "no clock has begun", "ready"],
)
async def test_the_clock_that_runs_is_shown_with_its_end(
    serve: Serve, past: dict[str, Any], ready: int, expected: tuple[str, str, str] | None
) -> None:
    readings = two_teams()
    clocks = {"schedulingTimeoutSeconds": 60, "startupTimeoutSeconds": 600, "recoveryTimeoutSeconds": 300}
    key = ConfigKey("ClusterQueue", "", "team-a")
    one = next(one for _, one in readings._workloads.values() if one.ref.name == "small")
    times: dict[str, Any] = {
        name: datetime.fromisoformat(f"2026-01-05T{at}Z") if isinstance(at, str) else at
        for name, at in past.items()
    }
    readings.commit(
        replace(one, past=PastAttempts(**times)), configs={key: queue_spec(8, waitForPodsReady=clocks)}
    )
    readings.ready(PodsReady(one.id, 1, ready))
    rest = await serve(readings)
    found = (await rest.get("/api/v1/workloads/default/Job/small"))["readiness"]
    day = "2026-01-05T"
    assert found == (
        expected and {"clock": expected[0], "since": f"{day}{expected[1]}Z", "until": f"{day}{expected[2]}Z"}
    )


async def test_what_would_help_says_when_it_may_get_another_flavor(serve: Serve) -> None:
    readings = two_teams()
    one = next(one for _, one in readings._workloads.values() if one.ref.name == "waits")
    assert one.reason is not None
    until = datetime.fromisoformat("2026-01-05T11:00:00Z")
    readings.commit(replace(one, reason=replace(one.reason, until=until)))
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/Job/waits")
    assert found["help"].endswith("At the time in its reason it is evaluated again in any case.")


@pytest.mark.parametrize("kind", ["Job", "job", "jobs", "JOBS", "jobs.batch"])
async def test_kinds_are_accepted_by_any_usual_name(rest: Rest, kind: str) -> None:
    assert (await rest.get(f"/api/v1/workloads/default/{kind}/waits"))["kind"] == "Job"
    assert len((await rest.get("/api/v1/workloads", kind=kind))["items"]) == 4


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["small", "large", "waits", "urgent", "stuck"]),
        ({"namespace": "other"}, ["stuck"]),
        ({"queue": "main", "namespace": "default"}, ["small", "large", "waits", "urgent"]),
        ({"clusterqueue": "team-b"}, ["stuck"]),
        ({"phase": "Evicting"}, ["large"]),
        ({"reason": "WaitingForQuota"}, ["waits", "urgent"]),
        ({"kind": "pytorchjob"}, ["stuck"]),
        ({"phase": "Pending", "reason": "Misconfigured", "namespace": "default"}, []),
    ],
)
async def test_filters_narrow_the_list(rest: Rest, filters: dict[str, str], names: list[str]) -> None:
    found = await rest.get("/api/v1/workloads", **filters)
    assert [item["name"] for item in found["items"]] == names


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"labelSelector": "team=vision"}, ["one", "two"]),
        ({"labelSelector": "team in (vision),!draft"}, ["one"]),
        ({"submitter": "bob"}, ["two"]),
        ({"submitter": "Bob"}, []),
    ],
)
async def test_workloads_are_filtered_by_label_and_user(
    serve: Serve, filters: dict[str, str], names: list[str]
) -> None:
    readings = CannedReadings()
    labels = (("draft", ""), ("team", "vision"))
    readings.commit(
        replace(workload("one", 1), labels=labels[1:]),
        replace(workload("two", 2), labels=labels, submitter="bob"),
        workload("three", 3),
    )
    rest = await serve(readings)
    found = (await rest.get("/api/v1/workloads", **filters))["items"]
    assert [item["name"] for item in found] == names
    assert all(item["labels"]["team"] == "vision" for item in found)


async def test_workloads_of_the_last_seconds_are_those_created_or_ended_in_them(serve: Serve) -> None:
    readings = CannedReadings()
    readings.commit(*(workload(f"w{second}", second) for second in (10, 50, 90)))
    readings.end(workload("w10", 10))
    readings.sequence = 60
    readings.end(workload("w50", 50))
    readings.silence = timedelta(seconds=100)
    readings.commit(workload("w40", 40))
    rest = await serve(readings)

    async def since(seconds: int, **more: str) -> list[str]:
        found = await rest.get("/api/v1/workloads", sinceSeconds=str(seconds), **more)
        return [item["name"] for item in found["items"]]

    assert await since(30) == ["w90"]
    assert await since(3600) == ["w40", "w90"]
    assert await since(70, phase="Finished") == ["w50"]
    assert await since(3600, phase="Finished") == ["w50", "w10"]


async def test_ended_workloads_are_read_from_the_ledger_newest_first(rest: Rest) -> None:
    for arrival in (11, 12, 13):
        rest.readings.end(workload(f"done-{arrival}", arrival))
    rest.readings.end(workload("gone", 14), Phase.DELETED)
    await rest.view.refresh()
    first = await rest.get("/api/v1/workloads", phase="Finished", limit="2")
    assert [item["name"] for item in first["items"]] == ["done-13", "done-12"]
    second = await rest.get("/api/v1/workloads", phase="Finished", limit="2", next=first["next"])
    assert [item["name"] for item in second["items"]] == ["done-11"]
    assert (await rest.get("/api/v1/workloads/default/job/gone"))["phase"] == "Deleted"


async def test_pages_have_each_workload_once_although_others_are_created_and_end(serve: Serve) -> None:
    readings = CannedReadings()
    readings.commit(*(workload(f"w-{n}", n) for n in range(1, 26)))
    rest = await serve(readings)
    names: list[str] = []
    parameters = {"limit": "10"}
    while True:
        page = await rest.get("/api/v1/workloads", **parameters)
        names += [item["name"] for item in page["items"]]
        assert len(page["items"]) <= 10
        readings.end(workload("w-3", 3))
        readings.commit(workload(f"late-{len(names)}", 100 + len(names)))
        await rest.view.refresh()
        if page["next"] is None:
            break
        parameters["next"] = page["next"]
    assert names[:25] == [f"w-{n}" for n in range(1, 26)]
    assert len(names) == len(set(names))


async def test_queues_are_paged_too(rest: Rest) -> None:
    first = await rest.get("/api/v1/clusterqueues", limit="1")
    assert [item["name"] for item in first["items"]] == ["team-a"]
    second = await rest.get("/api/v1/clusterqueues", limit="1", next=first["next"])
    assert [item["name"] for item in second["items"]] == ["team-b"]
    assert second["next"] is None
    local = await rest.get("/api/v1/localqueues", limit="1")
    following = await rest.get("/api/v1/localqueues", limit="1", next=local["next"])
    assert [item["namespace"] for item in following["items"]] == ["other"]


async def test_history_ends_at_the_sequence_of_the_state(rest: Rest) -> None:
    subject = workload("waits", 3)
    rest.readings.rows = [
        decision(1, subject, "Queued"),
        decision(2, subject, "Pending", WAITS),
        decision(3, subject, "Admitted"),
    ]
    found = await rest.get("/api/v1/workloads/default/job/waits/history")
    assert [(row["sequence"], row["verdict"]) for row in found["items"]] == [(1, "Queued"), (2, "Pending")]
    assert found["items"][1]["reason"]["shortBy"] == 4
    assert found["items"][0]["details"] == {"queue": "main"}
    rest.readings.commit()
    await rest.view.refresh()
    first = await rest.get("/api/v1/workloads/default/job/waits/history", limit="2")
    second = await rest.get("/api/v1/workloads/default/job/waits/history", limit="2", next=first["next"])
    assert [row["sequence"] for row in second["items"]] == [3]


async def test_a_workload_created_after_the_last_read_of_the_ledger_is_found(rest: Rest) -> None:
    rest.readings.commit(workload("fresh", 50))
    found = await rest.get("/api/v1/workloads/default/job/fresh")
    assert (found["position"], found["sequence"]) == (3, 3)


async def test_a_workload_committed_during_its_lookup_is_shown_from_a_state_that_includes_it(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = rest.readings.find

    async def late(namespace: str, kind: str, name: str) -> object:
        rest.readings.commit(workload("fresh", 50, gpus=2, phase=Phase.ADMITTED))
        return await find(namespace, kind, name)

    monkeypatch.setattr(rest.readings, "find", late)
    found = await rest.get("/api/v1/workloads/default/job/fresh")
    assert (found["phase"], found["sequence"]) == ("Admitted", 3)
    assert (await rest.get("/api/v1/clusterqueues/team-a"))["flavors"][0]["used"] == 8


async def test_with_quota_cut_below_use_nothing_is_free_and_the_debt_is_part_of_the_shortage(
    rest: Rest,
) -> None:
    rest.readings.commit(configs={ConfigKey("ClusterQueue", "", "team-a"): queue_spec(5, cohort="all")})
    await rest.view.refresh()
    (cell,) = (await rest.get("/api/v1/clusterqueues/team-a"))["flavors"]
    assert (cell["nominal"], cell["used"], cell["free"]) == (5, 6, 0)
    reason = (await rest.get("/api/v1/workloads/default/job/waits"))["reason"]
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (6, 0, 7)


async def test_data_of_the_state_is_returned_without_a_read_of_the_ledger(rest: Rest) -> None:
    reads = list(rest.readings.reads)
    for name in ("small", "large", "waits"):
        await rest.get(f"/api/v1/workloads/default/job/{name}")
    assert rest.readings.reads == reads


async def test_a_name_used_again_means_the_newer_workload(rest: Rest) -> None:
    rest.readings.commit(workload("large", 60))
    await rest.view.refresh()
    assert (await rest.get("/api/v1/workloads/default/job/large"))["uid"] == "uid-60"
    rest.readings.end(workload("large", 2))
    await rest.view.refresh()
    assert (await rest.get("/api/v1/workloads/default/job/large"))["uid"] == "uid-60"


async def test_amounts_beyond_64_bits_are_written_exactly(serve: Serve) -> None:
    huge = 2**63 * 2_147_483_647
    readings = CannedReadings()
    too_large = Reason(
        code=Code.EXCEEDS_MAX_QUOTA,
        flavor="a100",
        resource=GPU,
        requested=huge,
        available=8,
        short_by=huge - 8,
        node="ClusterQueue/team-a",
    )
    readings.commit(workload("huge", 1, reason=too_large))
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/job/huge")
    assert found["reason"]["requested"] == huge
    assert found["help"].startswith("Waiting will not help")


@pytest.mark.parametrize(
    ("node", "told"),
    [(None, "correct what the reason names"), ("ClusterQueue/team-a", "its queue admits nothing until")],
)
async def test_help_for_a_misconfigured_workload_names_its_queue_only_if_the_queue_is_the_cause(
    serve: Serve, node: str | None, told: str
) -> None:
    readings = CannedReadings()
    reason = Reason(code=Code.MISCONFIGURED, node=node, detail="RuntimeClass kata of podset main not found")
    readings.commit(workload("odd", 1, reason=reason))
    found = await (await serve(readings)).get("/api/v1/workloads/default/job/odd")
    assert told in found["help"]


async def test_help_for_what_is_restricted_names_the_gate_that_is_missing(serve: Serve) -> None:
    readings = CannedReadings()
    detail = "it is restricted, and the gate, which checks who may use it, is not in force"
    reason = Reason(code=Code.MISCONFIGURED, node="WorkloadPriorityClass/urgent", detail=detail)
    readings.commit(workload("odd", 1, reason=reason))
    found = await (await serve(readings)).get("/api/v1/workloads/default/job/odd")
    without = "It runs without WorkloadPriorityClass/urgent, or "
    assert found["help"] == f"{without}once the admin installs the gate again (manifests/gate)."


async def test_while_the_ledger_is_down_the_last_state_is_returned_and_marked_stale(rest: Rest) -> None:
    rest.readings.down = AWAY
    await rest.view.refresh()
    for path in (
        "clusterqueues",
        "clusterqueues/team-a",
        "localqueues",
        "workloads",
        "workloads/default/job/waits",
    ):
        found = await rest.get(f"/api/v1/{path}")
        assert found["stale"] is True
        assert found["sequence"] == 2
    for path in ("history", "story"):
        detail = await rest.refused(rest.client.get(f"/api/v1/workloads/default/job/waits/{path}"), 503)
        assert "connection refused" in detail
    await rest.refused(rest.client.get("/api/v1/workloads", params={"phase": "Finished"}), 503)
    await rest.refused(rest.client.get("/api/v1/workloads/default/job/nobody"), 503)
    assert "stale" in (await rest.get("/readyz"))["detail"]

    rest.readings.down = None
    await rest.view.refresh()
    assert "stale" not in await rest.get("/api/v1/workloads")


async def test_a_silent_controller_is_reported(rest: Rest) -> None:
    lists = ("clusterqueues", "clusterqueues/team-a", "workloads", "workloads/default/job/waits")
    for silence in (4, 31):
        rest.readings.silence = timedelta(seconds=silence)
        await rest.view.refresh()
        for path in (*(f"/api/v1/{one}" for one in lists), "/readyz"):
            found = (await rest.get(path))["controller"]
            assert found["lastSeen"] == "2026-01-05T10:00:00Z"
            assert silence <= found["seconds"] < silence + 30
        detail = (await rest.get("/readyz")).get("detail", "")
        assert ("no controller has committed for 31 s" in detail) is (silence > 30)


async def test_before_the_first_state_every_request_is_503_and_the_server_is_not_ready(serve: Serve) -> None:
    readings = CannedReadings()
    readings.down = AWAY
    rest = await serve(readings)
    answer = await rest.client.get("/api/v1/workloads")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    await rest.refused(rest.client.get("/readyz"), 503)
    assert (await rest.get("/healthz")) == {"status": "ok"}


async def test_a_deleted_queue_is_shown_while_workloads_hold_its_quota(rest: Rest) -> None:
    rest.readings.commit(
        configs={ConfigKey("ClusterQueue", "", "team-a"): None, ConfigKey("ClusterQueue", "", "team-b"): None}
    )
    await rest.view.refresh()
    found: Any = await rest.get("/api/v1/clusterqueues")
    assert [(item["name"], item["condition"]["reason"]) for item in found["items"]] == [
        ("team-a", "NotFound")
    ]
    assert found["items"][0]["flavors"][0]["used"] == 6
    local = await rest.get("/api/v1/localqueues/default/main")
    assert local["condition"]["reason"] == "ClusterQueueNotFound"


async def test_a_stopped_local_queue_is_shown_as_stopped(rest: Rest) -> None:
    rest.readings.commit(
        configs={ConfigKey("LocalQueue", "default", "main"): local_spec("team-a", stopPolicy="Hold")}
    )
    await rest.view.refresh()
    found = await rest.get("/api/v1/localqueues/default/main")
    assert (found["active"], found["stopPolicy"], found["condition"]["reason"]) == (False, "Hold", "Stopped")
    assert (found["pending"], found["admitted"]) == (2, 2)


async def test_a_local_queue_has_its_limits_of_run_time(rest: Rest) -> None:
    limits = {"default": 60, "ceiling": 3600, "onExceeded": "Fail"}
    rest.readings.commit(
        configs={ConfigKey("LocalQueue", "default", "main"): local_spec("team-a", maxExecutionTime=limits)}
    )
    await rest.view.refresh()
    assert (await rest.get("/api/v1/localqueues/default/main"))["maxExecutionTime"] == limits


async def test_the_numbers_of_a_reason_are_those_of_the_returned_state(rest: Rest) -> None:
    """The ledger gets a new row only when the code or the limit changes, not when an amount changes."""
    rest.readings.end(workload("small", 1))
    await rest.view.refresh()
    reason = (await rest.get("/api/v1/workloads/default/job/waits"))["reason"]
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (6, 4, 2)
    assert "4 available, short by 2" in reason["message"]


@pytest.mark.parametrize(
    ("own", "runtime_class", "says"),
    [
        ({}, None, "LimitRange default/defaults adds ephemeral-storage, which its queue does not cover"),
        ({}, "kata", "LimitRange default/defaults adds"),
        ({"ephemeral-storage": 1}, None, "ephemeral-storage is not covered by its queue; leave it out"),
    ],
)
async def test_a_request_that_the_user_did_not_make_is_explained_with_its_origin(
    serve: Serve, own: dict[str, int], runtime_class: str | None, says: str
) -> None:
    found = await _not_covered(serve, "ephemeral-storage", own, runtime_class)
    assert says in found["help"]
    other = await _not_covered(serve, "example.com/enclave", {}, "kata")
    assert "RuntimeClass kata adds example.com/enclave" in other["help"]
    unknown = await _not_covered(serve, "example.com/other", {}, "kata")
    assert "example.com/other is not covered by its queue" in unknown["help"]


async def _not_covered(
    serve: Serve, resource: str, own: dict[str, int], runtime_class: str | None
) -> dict[str, Any]:
    readings = CannedReadings()
    reason = Reason(code=Code.RESOURCE_NOT_COVERED, resource=resource, requested=1, available=0)
    pods = PodSet(name="main", count=1, requests=tuple(own.items()), runtime_class=runtime_class)
    limits = [{"type": "Container", "defaultRequest": {"cpu": "100m", "ephemeral-storage": "100Mi"}}]
    overhead = {"overhead": {"podFixed": {"example.com/enclave": "1"}}}
    readings.commit(
        replace(workload("small", 1, reason=reason), pod_sets=(pods,)),
        configs={
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8),
            ConfigKey("LimitRange", "default", "defaults"): json.dumps({"spec": {"limits": limits}}),
            ConfigKey("LimitRange", "elsewhere", "others"): json.dumps({"spec": {"limits": limits}}),
            ConfigKey("RuntimeClass", "", "kata"): json.dumps(overhead),
        },
    )
    rest = await serve(readings)
    found: dict[str, Any] = await rest.get("/api/v1/workloads/default/Job/small")
    return found


async def test_a_workload_has_the_links_of_the_configuration(serve: Serve) -> None:
    readings = two_teams()
    readings.links = {
        "Logs": "https://logs.example.com/{kind}/{namespace}/{name}?uid={uid}",
        "All": "http://x/",
    }
    rest = await serve(readings)
    assert (await rest.get("/api/v1/workloads/default/Job/waits"))["links"] == {
        "Logs": "https://logs.example.com/Job/default/waits?uid=uid-3",
        "All": "http://x/",
    }
    assert links_of({"x": "{name}"}, ObjectRef("n", "Job", "a/{uid}&b", "u")) == {"x": "a%2F%7Buid%7D%26b"}
