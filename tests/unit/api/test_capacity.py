"""Capacity and demand over REST."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from queuectl.core.model.capacity import (
    NO_FLAVOR,
    AwaitedLimit,
    ClusterQueueDemand,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    PodDemand,
    QuotaWarning,
)
from queuectl.core.model.policy import CapacityMode
from queuectl.core.model.reasons import Code, Reason, passed_over
from queuectl.core.model.workload import ConfigKey, PodSet
from queuectl.ports.changes import Access
from queuectl.ports.reader import CapacitySum
from tests.unit.api.canned import EPOCH_START, GPU, WAITS, CannedReadings, queue_spec, two_teams, workload
from tests.unit.api.conftest import Clock, Serve
from tests.unit.api.reviews import CannedReviews

GPUS = FlavorResourceCapacity(
    resource=GPU,
    mode=CapacityMode.ENFORCE,
    allocatable=(("Ready", 4), ("Cordoned", 2)),
    used=1,
    unmanaged=(("kube-system", 1), ("default", 1), ("", 2)),
    free=1,
    shapes=(FreeNodes(1, 1),),
)
BEYOND = QuotaWarning("QuotaBeyondNodes", GPU, f"8 {GPU} of a100 are promised, usable nodes have 4")
STRAY = FlavorResourceCapacity(resource=GPU, mode=CapacityMode.ENFORCE, allocatable=(("Ready", 16),))


def readings(**fields: object) -> CannedReadings:
    found = two_teams()
    found.commit(configs={ConfigKey("ResourceFlavor", "", "h100"): json.dumps({"nodeLabels": {"gpu": "h"}})})
    nodes = (("Ready", 1), ("Cordoned", 1))
    found.capacity(FlavorCapacity(flavor="a100", nodes=nodes, resources=(GPUS,), warnings=(BEYOND,)))
    found.capacity(
        FlavorCapacity(
            flavor="h100", resources=(FlavorResourceCapacity(resource=GPU, mode=CapacityMode.OBSERVE),)
        )
    )
    return found


async def test_a_flavor_is_told_with_what_is_promised_against_it(serve: Serve) -> None:
    rest = await serve(readings())
    found = await rest.get("/api/v1/capacity/a100")
    assert found["nodes"] == {"Ready": 1, "Cordoned": 1}
    assert found["resources"] == [
        {
            "resource": GPU,
            "mode": "Enforce",
            "nominal": 8,
            "allocatable": {"Ready": 4, "Cordoned": 2},
            "used": 1,
            "unmanaged": 4,
            "unmanagedBy": [
                {"namespace": "kube-system", "amount": 1},
                {"namespace": "default", "amount": 1},
                {"namespace": None, "amount": 2},
            ],
            "expected": 0,
            "free": 1,
            "available": 1,
            "headroom": 0,
            "shapes": [{"free": 1, "nodes": 1}],
        }
    ]
    assert found["warnings"] == [
        {
            "code": "QuotaBeyondNodes",
            "resource": GPU,
            "message": f"8 {GPU} of a100 are promised, usable nodes have 4",
        }
    ]


async def test_a_head_of_a_strict_queue_that_can_never_run_is_a_warning_of_its_queue(serve: Serve) -> None:
    found = CannedReadings()
    never = Reason(code=Code.EXCEEDS_MAX_QUOTA, flavor="a100", resource=GPU, requested=9, available=8)
    strict = json.dumps({**json.loads(queue_spec(8)), "queueingStrategy": "StrictFIFO"})
    found.commit(
        workload("head", 1, gpus=9, reason=never),
        workload("next", 2, gpus=1),
        workload("head-b", 3, gpus=9, reason=never, cluster_queue="team-b"),
        workload("next-b", 4, gpus=1, cluster_queue="team-b"),
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            ConfigKey("ClusterQueue", "", "team-a"): strict,
            ConfigKey("ClusterQueue", "", "team-b"): queue_spec(8),
        },
    )
    rest = await serve(found)
    assert (await rest.get("/api/v1/clusterqueues/team-a"))["warnings"] == [
        {
            "code": "HeadCanNeverRun",
            "resource": None,
            "message": "1 workload waits behind its head, which can never run (ExceedsMaxQuota); "
            "queueingStrategy is StrictFIFO",
        }
    ]
    assert not (await rest.get("/api/v1/clusterqueues/team-b"))["warnings"], "BestEffortFIFO"


async def test_what_a_strict_queue_passes_over_neither_warns_nor_blocks_others(serve: Serve) -> None:
    found = CannedReadings()
    never = Reason(code=Code.EXCEEDS_MAX_QUOTA, flavor="a100", resource=GPU, requested=9, available=8)
    strict = {**json.loads(queue_spec(8)), "queueingStrategy": "StrictFIFO"}
    found.commit(
        workload("never", 1, reason=passed_over(never)),
        workload("never-too", 2, reason=passed_over(never)),
        workload("head-b", 3, reason=never, cluster_queue="team-b"),
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            ConfigKey("ClusterQueue", "", "team-a"): json.dumps({**strict, "headCanNeverRun": "PassOver"}),
            ConfigKey("ClusterQueue", "", "team-b"): json.dumps(strict),
        },
    )
    rest = await serve(found)
    passing = await rest.get("/api/v1/clusterqueues/team-a")
    assert not passing["warnings"]
    assert [one["free"] for one in passing["flavors"]] == [8]
    blocked = await rest.get("/api/v1/clusterqueues/team-b")
    assert [one["free"] for one in blocked["flavors"]] == [0]


async def test_nodes_without_a_flavor_come_first(serve: Serve) -> None:
    found = readings()
    found.capacity(FlavorCapacity(flavor=NO_FLAVOR, nodes=(("Ready", 2),), resources=(STRAY,)))
    rest = await serve(found)
    items = (await rest.get("/api/v1/capacity"))["items"]
    assert [one["flavor"] for one in items] == [None, "a100", "h100"]
    assert items[0]["nodes"] == {"Ready": 2}


async def test_a_tenant_sees_sums_and_names_of_own_namespaces_only(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.rights["alice"].add(Access("get", "resourceflavors", "", "a100"))
    found = readings()
    found.capacity(FlavorCapacity(flavor=NO_FLAVOR, nodes=(("Ready", 2),), resources=(STRAY,)))
    rest = await serve(found, reviews, Clock())
    [item] = (await rest.get("/api/v1/capacity", token="alice"))["items"]
    assert item["flavor"] == "a100"
    assert item["resources"][0]["unmanagedBy"] == [
        {"namespace": "default", "amount": 1},
        {"namespace": None, "amount": 3},
    ]


async def test_a_flavor_that_is_gone_is_told_no_more(serve: Serve) -> None:
    found = readings()
    found.commit(configs={ConfigKey("ResourceFlavor", "", "h100"): None})
    rest = await serve(found)
    assert [one["flavor"] for one in (await rest.get("/api/v1/capacity"))["items"]] == ["a100"]
    assert await rest.status("/api/v1/capacity/h100") == 404


async def test_demand_is_told_by_queue_flavor_and_shape(serve: Serve) -> None:
    found = readings()
    found.commit(configs={ConfigKey("ClusterQueue", "", "team-b"): queue_spec(8, flavor="h100")})
    one = PodDemand(
        flavor="h100",
        awaits=AwaitedLimit.ROOM,
        workloads=2,
        pods=16,
        requests=(("cpu", 4000), (GPU, 8)),
        node_selector=(("zone", "a"),),
    )
    found.demand(ClusterQueueDemand("team-b", (one,)))
    rest = await serve(found)
    items = (await rest.get("/api/v1/demand"))["items"]
    assert [(item["clusterQueue"], len(item["demand"])) for item in items] == [("team-a", 0), ("team-b", 1)]
    assert items[1]["demand"] == [
        {
            "flavor": "h100",
            "nodeLabels": {"gpu": "h"},
            "awaits": "Room",
            "workloads": 2,
            "pods": 16,
            "requests": {"cpu": 4000, GPU: 8},
            "nodeSelector": {"zone": "a"},
        }
    ]
    found.demand(ClusterQueueDemand("team-b", ()))
    rest = await serve(found)
    assert (await rest.get("/api/v1/demand/team-b"))["demand"] == []


async def test_queues_and_their_cohort_show_what_counts_of_quota_that_is_shared_out(serve: Serve) -> None:
    found = CannedReadings()
    configs: dict[ConfigKey, str | None] = {
        ConfigKey("ResourceFlavor", "", "a100"): "{}",
        ConfigKey("Cohort", "", "all"): json.dumps({"capacityShortage": "ProRata"}),
        ConfigKey("ClusterQueue", "", "large"): queue_spec(8, cohort="all"),
        ConfigKey("ClusterQueue", "", "small"): queue_spec(4, cohort="all"),
        ConfigKey("ClusterQueue", "", "alone"): queue_spec(4),
    }
    found.commit(configs=configs)
    found.capacity(FlavorCapacity(flavor="a100", nodes=(("Ready", 1), ("Cordoned", 1)), resources=(GPUS,)))
    rest = await serve(found)

    async def quotas() -> dict[str, tuple[int, ...]]:
        items = (await rest.get("/api/v1/clusterqueues"))["items"]
        items.append(await rest.get("/api/v1/cohorts/all"))
        fields = ("nominal", "effective", "free")
        return {item["name"]: tuple(item["flavors"][0][field] for field in fields) for item in items}

    assert await quotas() == {"alone": (4, 4, 1), "all": (12, 3, 3), "large": (8, 2, 1), "small": (4, 1, 1)}
    ready = replace(GPUS, allocatable=(("Ready", 16),), free=16)
    found.capacity(FlavorCapacity(flavor="a100", nodes=(("Ready", 2),), resources=(ready,)))
    await rest.view.refresh()
    assert await quotas() == {
        "alone": (4, 4, 4),
        "all": (12, 12, 12),
        "large": (8, 8, 12),
        "small": (4, 4, 12),
    }


def written(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


async def test_capacity_as_of_a_time_is_what_was_told_then_to_callers_that_may_read_it(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.rights["alice"].add(Access("get", "resourceflavors", "", "a100"))
    reviews.admin("admin")
    found = readings()
    found.capacity(FlavorCapacity(flavor=NO_FLAVOR, nodes=(("Ready", 2),), resources=(STRAY,)))
    rest = await serve(found, reviews, Clock())
    paths = ("/api/v1/capacity", "/api/v1/capacity/a100")
    before = {(who, path): await rest.get(path, token=who) for who in ("alice", "admin") for path in paths}
    found.keep(EPOCH_START)
    found.capacity(FlavorCapacity(flavor="a100", nodes=(("NotReady", 2),)))
    found.commit(configs={ConfigKey("ResourceFlavor", "", "h100"): None})
    await rest.view.refresh()
    for (who, path), told in before.items():
        then = await rest.get(path, token=who, asOf=written(EPOCH_START + timedelta(seconds=30)))
        now = await rest.get(path, token=who)
        for key in ("items", "nodes", "resources", "warnings"):
            assert then.get(key) == told.get(key)
        assert now != told
    assert len(before["alice", paths[0]]["items"]) == 1
    asked = rest.client.get(
        "/api/v1/capacity/h100",
        params={"asOf": written(EPOCH_START)},
        headers={"Authorization": "Bearer alice"},
    )
    await rest.refused(asked, 404)


async def test_a_time_before_the_first_capacity_is_refused_with_the_first(serve: Serve) -> None:
    found = readings()
    found.keep(EPOCH_START)
    later = EPOCH_START + timedelta(hours=1)
    asked = {"asOf": written(EPOCH_START)}

    async def refusal() -> str:
        rest = await serve(found)
        assert (await rest.get("/api/v1/clusterqueues", **asked))["items"], "all else is known"
        told = [
            await rest.refused(rest.client.get(path, params=asked), 400)
            for path in ("/api/v1/capacity", "/api/v1/capacity/a100")
        ]
        assert told[0] == told[1]
        return told[0]

    unknown = f"parameter asOf: the ledger has no capacity of {EPOCH_START.isoformat()} or before: "
    assert await refusal() == f"{unknown}none is stored yet"
    found.capacity(FlavorCapacity(flavor=NO_FLAVOR))
    found.keep(later)
    assert await refusal() == f"{unknown}the first is of {later.isoformat()}"


async def test_demand_as_of_a_time_is_of_what_was_pending_then(serve: Serve) -> None:
    found = two_teams()
    slow = PodSet(
        name="main", count=3, requests=((GPU, 1),), runtime_class="kata", node_selector=(("z", "a"),)
    )
    room = Reason(code=Code.NO_NODE_FITS, flavor="a100", resource=GPU, requested=3)
    one = replace(workload("sandboxed", 8, reason=replace(room, resource=GPU)), pod_sets=(slow,))
    off = Reason(code=Code.BACKING_OFF, flavor="a100")
    found.commit(
        one,
        workload("pauses", 9, reason=off),
        configs={ConfigKey("RuntimeClass", "", "kata"): json.dumps({"overhead": {"podFixed": {"cpu": "1"}}})},
    )
    found.keep(EPOCH_START)
    for over in (one, workload("waits", 3, reason=WAITS)):
        found.end(over)
    rest = await serve(found)
    asked = {"asOf": written(EPOCH_START)}
    items = (await rest.get("/api/v1/demand", **asked))["items"]
    told = await rest.get("/api/v1/demand/team-a", **asked)
    assert [item["demand"] for item in items] == [told["demand"], []]
    shown = [
        tuple(one[key] for key in ("flavor", "awaits", "workloads", "pods", "requests", "nodeSelector"))
        for one in told["demand"]
    ]
    assert shown == [
        ("a100", "Room", 1, 3, {"cpu": 1000, GPU: 1}, {"z": "a"}),
        ("a100", "Quota", 2, 2, {GPU: 1}, {}),
    ]
    assert (await rest.get("/api/v1/demand/team-a"))["demand"] == [], "the controller has told nothing"


HOURS = 3_600_000_000


async def test_a_trend_has_a_step_for_each_hour_and_says_what_is_not_known(
    serve: Serve,
) -> None:
    canned = readings()
    canned.had = [CapacitySum("a100", GPU, *(hours * HOURS for hours in (30, 2, 1, 28, 1, 0)))]
    rest = await serve(canned)
    found = await rest.get(
        "/api/v1/capacity/a100/trend", since="2026-01-05T08:30:00Z", until="2026-01-05T11:00:00Z"
    )
    assert (found["flavor"], found["zone"]) == ("a100", "Asia/Kathmandu")
    had = {"usable": 30.0, "unusable": 2.0, "unmanaged": 1.0, "held": 28.0, "free": 1.0, "overcommitted": 0.0}
    assert [(step["since"], step["until"], step["resources"]) for step in found["steps"]] == [
        ("2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z", []),
        ("2026-01-05T09:00:00Z", "2026-01-05T10:00:00Z", [{"resource": GPU, **had}]),
        ("2026-01-05T10:00:00Z", "2026-01-05T11:00:00Z", [{"resource": GPU, **had}]),
    ]
    canned.had_since = datetime(2026, 1, 5, 9, 40, tzinfo=UTC)
    found = await rest.get(
        "/api/v1/capacity/a100/trend", since="2026-01-05T08:30:00Z", until="2026-01-05T11:00:00Z"
    )
    assert [
        (step["since"][11:16], step["until"][11:16], len(step["resources"])) for step in found["steps"]
    ] == [
        ("08:00", "09:00", 0),
        ("09:00", "09:40", 0),
        ("09:40", "10:00", 1),
        ("10:00", "11:00", 1),
    ]
    assert all(not step["resources"] for step in (await rest.get("/api/v1/capacity/h100/trend"))["steps"])


async def test_days_of_a_trend_begin_in_the_zone_of_usage(serve: Serve) -> None:
    rest = await serve(readings())
    found = await rest.get("/api/v1/capacity/a100/trend", step="Day", until="2026-01-05T11:00:00Z")
    first = datetime(2025, 12, 5, 18, 15, tzinfo=UTC)
    assert [step["since"] for step in found["steps"]] == [
        written(first + timedelta(days=day)) for day in range(31)
    ]
    assert found["steps"][-1]["until"] == "2026-01-05T18:15:00Z"


async def test_a_trend_that_is_too_long_or_ends_before_it_begins_is_refused(serve: Serve) -> None:
    canned = readings()
    rest = await serve(canned)
    until = "2026-01-05T11:00:00Z"
    for since, step, limit in (
        ("2025-12-05T10:59:59Z", "Hour", "31 days before until at most with step Hour"),
        ("2025-01-04T10:59:59Z", "Day", "366 days before until at most with step Day"),
        ("2000-01-02T00:00:00Z", "Day", "366 days before until at most with step Day"),
        (until, "Hour", "must be before until"),
    ):
        asked = {"since": since, "until": until, "step": step}
        problem = await rest.refused(rest.client.get("/api/v1/capacity/a100/trend", params=asked), 400)
        assert problem == f"parameter since: {limit}"
    canned.looks.clear()
    await rest.get("/api/v1/capacity/a100/trend", since="2025-12-05T11:00:00Z", until=until)
    assert canned.looks[-1] - canned.looks[-2] == timedelta(days=31)
