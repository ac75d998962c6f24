"""UsageLimits over REST: what each subject uses, which limit binds, and what a tenant sees of others."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.workload import Attribution, ConfigKey, Phase
from tests.builders import GPU
from tests.unit.api.canned import EPOCH_START, CannedReadings, queue_spec, two_teams, workload
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.reviews import CannedReviews

PATH = "/api/v1/usagelimits"
EACH = {"kind": "EachUser"}
FULL = Reason(
    code=Code.WAITING_FOR_USAGE_LIMIT,
    resource=GPU,
    requested=2,
    available=0,
    short_by=2,
    limit=Limit.RESOURCES,
    node="UsageLimit/users",
)


def with_limits(readings: CannedReadings) -> None:
    """Of team-a: alice holds 6 of 6 GPUs in two workloads, and waits; bob holds 1 in another namespace."""
    cohort, queue = {"kind": "Cohort", "name": "all"}, {"kind": "ClusterQueue", "name": "team-a"}
    specs: dict[str, dict[str, object]] = {
        "users": {"target": queue, "subject": EACH, "resources": {GPU: 6}, "pending": 5},
        "users-in-cohort": {"target": cohort, "subject": EACH, "running": 20, "resources": {GPU: 16}},
        "whole": {"target": cohort, "subject": {"kind": "All"}, "resources": {GPU: 7}},
        "carol": {"target": queue, "subject": {"kind": "User", "name": "carol"}, "running": 1},
        "h100": {"target": queue, "subject": EACH, "flavors": [{"name": "h100", "resources": {GPU: 1}}]},
    }
    readings.commit(
        *(replace(workload(n, a), phase=Phase.DELETED) for n, a in (("waits", 3), ("urgent", 4))),
        workload("more", 6, reason=FULL),
        replace(
            workload("else", 7, namespace="other", gpus=1, phase=Phase.ADMITTED),
            submitter="alice",
            attribution=Attribution(namespace="other", queue="main", submitter="bob", user="bob"),
        ),
        configs={ConfigKey("UsageLimit", "", name): json.dumps(spec) for name, spec in specs.items()},
    )


@pytest.fixture
def readings() -> CannedReadings:
    readings = two_teams()
    with_limits(readings)
    return readings


def row(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("usageLimit", "subject", "resource", "used", "limit", "left"))


async def test_each_subject_has_what_it_uses_of_each_number(serve: Serve, readings: CannedReadings) -> None:
    found = (await (await serve(readings)).get(PATH))["items"]
    assert [row(one) for one in found] == [
        ("carol", "carol", "workloads", 0, 1, 1),
        ("h100", "alice", GPU, 0, 1, 1),
        ("h100", "bob", GPU, 0, 1, 1),
        ("users", "alice", GPU, 6, 6, 0),
        ("users", "alice", "pending", 1, 5, 4),
        ("users", "bob", GPU, 1, 6, 5),
        ("users", "bob", "pending", 0, 5, 5),
        ("users-in-cohort", "alice", GPU, 6, 16, 10),
        ("users-in-cohort", "alice", "workloads", 2, 20, 18),
        ("users-in-cohort", "bob", GPU, 1, 16, 15),
        ("users-in-cohort", "bob", "workloads", 1, 20, 19),
        ("whole", "", GPU, 7, 7, 0),
    ]
    waiting = [(one["usageLimit"], one["subject"], one["waiting"]) for one in found if one["waiting"]]
    assert waiting == [("users", "alice", 1)]
    assert next(one for one in found if one["usageLimit"] == "h100")["flavor"] == "h100"


async def test_a_cluster_queue_has_its_own_limits_and_those_of_the_cohorts_above_it(
    serve: Serve, readings: CannedReadings
) -> None:
    configs: dict[ConfigKey, str | None] = {
        ConfigKey("ClusterQueue", "", name): queue_spec(8, cohort=name) for name in ("all", "lower")
    }
    configs[ConfigKey("Cohort", "", "lower")] = json.dumps({"parentName": "all"})
    readings.commit(configs=configs)
    rest = await serve(readings)
    whole = (await rest.get(PATH))["items"]
    assert (await rest.get(PATH, clusterqueue="team-a"))["items"] == whole
    of_cohort = [one for one in whole if one["target"] == "Cohort/all"]
    assert of_cohort
    for name, expected in (("all", of_cohort), ("lower", of_cohort), ("team-b", []), ("none", [])):
        assert (await rest.get(PATH, clusterqueue=name))["items"] == expected, name


async def test_of_the_limits_that_apply_together_the_one_with_the_least_left_binds(
    serve: Serve, readings: CannedReadings
) -> None:
    found = (await (await serve(readings)).get(PATH))["items"]
    binding = [
        (one["usageLimit"], one["subject"]) for one in found if one["binding"] if one["resource"] == GPU
    ]
    # For alice that of the ClusterQueue, as it is the narrowest; for bob that of all.
    assert binding == [("h100", "alice"), ("h100", "bob"), ("users", "alice"), ("whole", "")]


async def test_a_tenant_sees_subjects_of_its_own_namespaces_alone(
    serve: Serve, readings: CannedReadings
) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.tenant("bob", "other")
    reviews.admin("root")
    rest: Rest = await serve(readings, reviews)
    found = (await rest.get(PATH, token="alice"))["items"]
    assert {one["subject"] for one in found} == {"alice", ""}
    assert "bob" not in json.dumps(found)
    assert "carol" not in json.dumps(found)
    assert not any(one["waiting"] for one in (await rest.get(PATH, token="bob"))["items"])
    assert len((await rest.get(PATH, token="root"))["items"]) == 12


async def test_the_limits_of_one_submitter_are_all_that_apply_to_its_workloads(
    serve: Serve, readings: CannedReadings
) -> None:
    reviews = CannedReviews()
    reviews.admin("alice")
    rest: Rest = await serve(readings, reviews)
    found = (await rest.get(PATH, token="alice", submitter="@me"))["items"]
    assert {one["subject"] for one in found} == {"alice", ""}
    assert {one["usageLimit"] for one in found} == {"h100", "users", "users-in-cohort", "whole"}
    assert (await rest.get(PATH, token="alice", submitter="nobody"))["items"] == []


async def test_pages_have_each_row_once(serve: Serve, readings: CannedReadings) -> None:
    rest = await serve(readings)
    whole = (await rest.get(PATH))["items"]
    found: list[Any] = []
    more: dict[str, str] = {}
    while True:
        page = await rest.get(PATH, limit="5", **more)
        found += page["items"]
        if page["next"] is None:
            break
        more = {"next": page["next"]}
    assert found == whole


async def test_an_earlier_state_has_the_use_of_then(serve: Serve, readings: CannedReadings) -> None:
    readings.keep(EPOCH_START)
    rest = await serve(readings)
    now = [row(one) for one in (await rest.get(PATH))["items"]]
    readings.end(readings.stored("small"))
    await rest.view.refresh()
    assert ("users", "alice", GPU, 4, 6, 2) in [row(one) for one in (await rest.get(PATH))["items"]]
    then = (EPOCH_START + timedelta(minutes=1)).isoformat()
    assert [row(one) for one in (await rest.get(PATH, asOf=then))["items"]] == now
