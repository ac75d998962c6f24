"""`asOf`: every list and object as of an earlier time, in the documents of now, with the rights of now."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from queuectl.api import view
from queuectl.api.view import KEPT
from queuectl.core.model.workload import ConfigKey, Phase
from queuectl.ports.changes import Access
from tests.unit.api.canned import AWAY, EPOCH_START, CannedReadings, decision, queue_spec, two_teams, workload
from tests.unit.api.conftest import Clock, Rest, Serve, bearer
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_tenants import BOBS, SECRET, ledger, reviews  # noqa: F401 (a fixture)

LATER = EPOCH_START + timedelta(hours=1)
SAME = (
    "/api/v1/workloads",
    "/api/v1/workloads/default/job/waits",
    "/api/v1/clusterqueues",
    "/api/v1/clusterqueues/team-a",
    "/api/v1/localqueues",
    "/api/v1/localqueues/default/main",
    "/api/v1/cohorts",
    "/api/v1/cohorts/all",
    "/api/v1/resourceflavors",
    "/api/v1/resourceflavors/a100",
)


def written(when: Any) -> str:
    return str(when.isoformat().replace("+00:00", "Z"))


def moved_on() -> tuple[CannedReadings, CannedReadings]:
    """A ledger with an earlier state, and the ledger as it was then."""
    then, now = two_teams(), two_teams()
    now.keep(EPOCH_START)
    now.end(workload("waits", 3))
    now.commit(
        workload("new", 9), configs={ConfigKey("ClusterQueue", "", "team-a"): queue_spec(1, cohort="all")}
    )
    now.keep(LATER)
    return now, then


@pytest.mark.parametrize("path", SAME)
async def test_a_document_as_of_a_time_is_the_one_that_was_answered_then(serve: Serve, path: str) -> None:
    readings, before = moved_on()
    rest, old = await serve(readings), await serve(before)
    found, expected = await rest.get(path, asOf=written(EPOCH_START)), await old.get(path)
    for one in (found, expected):
        del one["controller"], one["ageSeconds"]
        _without_pods_ready(one)
    assert found == expected
    if path.endswith("job/waits"):
        return  # it was over later
    newest = await rest.get(path, asOf=written(LATER + timedelta(days=1)))
    assert newest["sequence"] == (await rest.get(path))["sequence"]


def _without_pods_ready(value: Any) -> None:
    """Earlier numbers are not known."""
    if isinstance(value, dict):
        value.pop("podsReady", None)
        for one in value.values():
            _without_pods_ready(one)
    elif isinstance(value, list):
        for one in value:
            _without_pods_ready(one)


async def test_ages_are_as_of_that_time(serve: Serve) -> None:
    rest = await serve(moved_on()[0])
    found = await rest.get("/api/v1/clusterqueues", asOf=written(EPOCH_START + timedelta(minutes=3)))
    assert found["ageSeconds"] == 0
    assert found["controller"] == {"lastSeen": written(EPOCH_START + timedelta(minutes=3)), "seconds": 0}


async def test_the_pages_of_a_list_are_of_one_state_that_is_read_once(serve: Serve) -> None:
    readings, _ = moved_on()
    rest = await serve(readings)
    when, names = written(EPOCH_START), []
    more: dict[str, str] = {}
    while True:
        page = await rest.get("/api/v1/workloads", asOf=when, limit="1", **more)
        names += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        more = {"next": page["next"]}
    assert names == ["small", "large", "waits", "urgent", "stuck"]
    assert len(readings.looks) == 1
    asked = rest.client.get("/api/v1/workloads", params={"next": more["next"], "asOf": written(LATER)})
    assert "with the same filters" in await rest.refused(asked, 400)


async def test_a_few_states_are_kept(serve: Serve) -> None:
    readings, _ = moved_on()
    rest = await serve(readings)
    times = [written(EPOCH_START + timedelta(seconds=n)) for n in range(KEPT + 1)]
    for when in (*times, times[-1], times[1], times[0]):
        await rest.get("/api/v1/clusterqueues", asOf=when)
    assert len(readings.looks) == KEPT + 2, "all but the first are still there"


async def test_a_workload_that_was_over_then_is_shown_and_one_that_was_not_there_is_not(serve: Serve) -> None:
    readings, _ = moved_on()
    gone, new = workload("waits", 3), workload("new", 9)
    readings.rows = [
        decision(readings.sequence - 1, gone, "Retired"),
        decision(readings.sequence, new, "Queued"),
    ]
    rest = await serve(readings)
    path = "/api/v1/workloads/default/job"
    assert (await rest.get(f"{path}/waits", asOf=written(LATER)))["phase"] == "Finished"
    assert (await rest.get(f"{path}/waits", asOf=written(EPOCH_START)))["phase"] == "Pending"
    assert (await rest.get(f"{path}/new", asOf=written(LATER)))["phase"] == "Pending"
    await rest.refused(rest.client.get(f"{path}/new", params={"asOf": written(EPOCH_START)}), 404)
    over = await rest.get("/api/v1/workloads", phase=Phase.FINISHED, asOf=written(EPOCH_START))
    assert over["items"] == []
    over = await rest.get("/api/v1/workloads", phase=Phase.FINISHED, asOf=written(LATER))
    assert [item["name"] for item in over["items"]] == ["waits"]


async def test_the_history_of_a_workload_ends_at_that_time(serve: Serve) -> None:
    readings, _ = moved_on()
    one = workload("urgent", 4)
    readings.rows = [decision(2, one, "Queued"), decision(readings.sequence, one, "Pending")]
    rest = await serve(readings)
    for part in ("history", "story"):
        path = f"/api/v1/workloads/default/job/urgent/{part}"
        assert len((await rest.get(path))["items"]) == 2
        then = await rest.get(path, asOf=written(EPOCH_START))
        assert then["items"] == (await rest.get(path))["items"][:1]


async def test_a_time_that_is_over_is_not_waited_for(serve: Serve) -> None:
    rest = await serve(moved_on()[0])
    asked = {"asOf": written(EPOCH_START), "wait": "5"}
    detail = await rest.refused(rest.client.get("/api/v1/decisions", params=asked), 400)
    assert detail == "parameter wait does not go with asOf: no decisions will come"


@pytest.mark.parametrize(
    ("when", "told"),
    [
        (written(EPOCH_START - timedelta(days=1)), "has no decision of .* or before: its first one is of"),
        ("yesterday", "parameter asOf must be a time with its zone"),
        ("2030-01-01T00:00:00", "parameter asOf must be a time with its zone"),
    ],
)
async def test_a_time_that_cannot_be_answered_is_refused(serve: Serve, when: str, told: str) -> None:

    rest = await serve(moved_on()[0])
    detail = await rest.refused(rest.client.get("/api/v1/clusterqueues", params={"asOf": when}), 400)
    assert re.search(told, detail), detail


async def test_without_the_ledger_earlier_states_are_unavailable_and_later_read_again(serve: Serve) -> None:
    readings, _ = moved_on()
    rest = await serve(readings)
    readings.down = AWAY
    asked = {"asOf": written(EPOCH_START)}
    await rest.refused(rest.client.get("/api/v1/clusterqueues", params=asked), 503)
    readings.down = None
    await rest.get("/api/v1/clusterqueues", **asked)


async def test_an_object_of_another_tenant_is_missing_at_earlier_times_too(
    serve: Serve,
    reviews: Any,  # noqa: F811
) -> None:
    rest: Rest = await serve(ledger(), reviews)
    path, asked = f"/api/v1/workloads/{BOBS}/job/zz-urgent", {"asOf": written(EPOCH_START)}
    headers = {"Authorization": "Bearer alice"}
    detail = await rest.refused(rest.client.get(path, params=asked, headers=headers), 404)
    assert SECRET not in detail
    assert (await rest.get(path, token="admin", **asked))["name"] == "zz-urgent"


LISTS = {
    "/api/v1/workloads": "workloads",
    "/api/v1/decisions": "workloads",
    "/api/v1/preemptions": "workloads",
    "/api/v1/localqueues": "localqueues",
    "/api/v1/clusterqueues": "clusterqueues",
    "/api/v1/demand": "clusterqueues",
    "/api/v1/cohorts": "cohorts",
    "/api/v1/resourceflavors": "resourceflavors",
    "/api/v1/capacity": "resourceflavors",
    "/api/v1/usagelimits": "workloads",
    "/api/v1/workloadcounts": "workloads",
}
ONES = {
    "workloads": Access("list", "workloads", "other"),
    "localqueues": Access("list", "localqueues", "default"),
}
NAMED = {"clusterqueues": "team-a", "cohorts": "all", "resourceflavors": "a100"}


async def test_no_earlier_state_is_read_for_a_caller_without_a_right(serve: Serve) -> None:
    """Every path that takes asOf, as a caller that may read nothing, and as one that may read one object."""
    readings, _ = moved_on()
    rights = CannedReviews()
    rights.add("nothing")
    clock = Clock()
    rest = await serve(readings, rights, clock)
    document = await (await rest.client.get("/openapi.json")).json()
    paths = [
        path
        for path, methods in document["paths"].items()
        if any(one["name"] == "asOf" for one in methods.get("get", {}).get("parameters", ()))
    ]
    assert set(LISTS) == {path for path in paths if "{" not in path}
    for path in paths:
        clock.now += 60
        name = "waits" if "{kind}" in path else "main" if "localqueues" in path else "team-a"
        filled = path.format(namespace="default", kind="job", name=name)
        answer = await rest.client.get(filled, params={"asOf": written(LATER)}, headers=bearer("nothing"))
        assert readings.looks == [], filled
        if path not in LISTS:
            assert answer.status == 404, filled
        elif not path.endswith("capacity"):
            assert (await answer.json())["items"] == [], filled
    for path, resource in LISTS.items():
        clock.now += 60
        right = ONES.get(resource) or Access("get", resource, "", NAMED[resource])
        rights.add(resource, right)
        answer = await rest.client.get(path, params={"asOf": written(LATER)}, headers=bearer(resource))
        assert answer.status == (400 if path.endswith("capacity") else 200), path  # the ledger has none then


@pytest.mark.parametrize(("most", "reads"), [(1, 4), (9, 4), (10, 2)])
async def test_the_workloads_of_kept_states_are_bounded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, most: int, reads: int
) -> None:
    """Of two states with five workloads each, read one after the other: the last one is always kept."""
    monkeypatch.setattr(view, "MOST_WORKLOADS", most)
    readings, _ = moved_on()
    rest = await serve(readings)
    for when in (EPOCH_START, EPOCH_START, LATER, LATER, EPOCH_START, LATER):
        await rest.get("/api/v1/clusterqueues", asOf=written(when))
    assert len(readings.looks) == reads


async def test_a_read_that_hangs_ends_and_others_do_not_wait_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PAST_SECONDS", 0.3)
    readings, _ = moved_on()
    begun: list[Any] = []

    async def hangs(when: Any) -> Any:
        begun.append(when)
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(readings, "at", hangs)
        rest = await serve(readings)
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(rest.client.get("/api/v1/clusterqueues", params={"asOf": written(when)}))
                for when in (EPOCH_START, LATER, LATER)
            ]
        for task in asked:
            answer = task.result()
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
    assert len(begun) <= 2, "those that wait have the same deadline"
    await rest.get("/api/v1/clusterqueues", asOf=written(LATER))
