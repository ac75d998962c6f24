"""Decisions by sequence: pages without gaps, and new decisions as soon as they are committed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from queuectl.core.model.workload import Phase
from queuectl.ports.changes import Access
from tests.unit.api.canned import AWAY, CannedReadings, decision, two_teams, workload
from tests.unit.api.conftest import Clock, Rest, Serve, bearer
from tests.unit.api.reviews import CannedReviews

DECISIONS = "/api/v1/decisions"
SMALL, STUCK = workload("small", 1), workload("stuck", 5, namespace="other", kind="PyTorchJob")


def long_ledger(rows: int = 25) -> CannedReadings:
    """Every fifth decision is about namespace other."""
    readings = two_teams()
    readings.rows = [
        decision(number, SMALL if number % 5 else STUCK, "Pending") for number in range(1, rows + 1)
    ]
    readings.sequence = rows
    return readings


async def follow(rest: Rest, token: str | None = None, **asked: str) -> list[int]:
    """The sequences of all pages."""
    found: list[int] = []
    page: Any = {"next": None}
    while True:
        more = {"next": page["next"]} if page["next"] else {}
        page = await rest.get(DECISIONS, token=token, **asked, **more)
        found += [item["sequence"] for item in page["items"]]
        if page["next"] is None:
            return found


async def waiting(rest: Rest) -> None:
    """Wait until a request waits for another state."""
    while not rest.view.awaited:
        await asyncio.sleep(0.001)


async def test_pages_have_each_decision_once_in_order(serve: Serve) -> None:
    rest = await serve(long_ledger())
    assert await follow(rest, after="0", limit="4") == list(range(1, 26))
    assert await follow(rest, after="20", limit="4") == [21, 22, 23, 24, 25]
    assert await follow(rest, after="25") == []
    assert await follow(rest, after="999999999999999999") == []
    assert await follow(rest, limit="3") == [23, 24, 25]


async def test_filters_by_namespace_and_queue_include_ended_workloads(serve: Serve) -> None:
    readings = long_ledger()
    rest = await serve(readings)
    others = [5, 10, 15, 20, 25]
    assert await follow(rest, after="0", namespace="other", limit="2") == others
    assert await follow(rest, after="0", namespace="nowhere") == []
    gone = workload("gone", 77, queue="spare")
    readings.end(gone, Phase.DELETED)
    readings.rows.append(decision(26, gone, "Retired"))
    await rest.view.refresh()
    assert await follow(rest, after="0", queue="spare") == [26]
    assert await follow(rest, after="0", queue="main", namespace="other", limit="1") == others


async def test_a_decision_newer_than_the_state_of_a_response_is_in_the_next_one(serve: Serve) -> None:
    readings = long_ledger()
    rest = await serve(readings)
    readings.rows.append(decision(26, SMALL, "Admitted"))
    found = await rest.get(DECISIONS, after="24")
    assert ([item["sequence"] for item in found["items"]], found["sequence"], found["next"]) == (
        [25],
        25,
        None,
    )


async def test_changes_are_returned_as_soon_as_the_state_has_them(serve: Serve) -> None:
    readings = long_ledger()
    rest = await serve(readings)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(rest.get(DECISIONS, after="25", wait="30"))
        await waiting(rest)
        readings.rows.append(decision(26, SMALL, "Admitted"))
        readings.sequence = 26
        await rest.view.refresh()
    assert [item["sequence"] for item in asking.result()["items"]] == [26]


async def test_a_wait_ends_with_an_empty_page_and_a_sequence_to_continue_from(serve: Serve) -> None:
    rest = await serve(long_ledger())
    found = await rest.get(DECISIONS, after="25", wait="1")
    assert (found["items"], found["next"], found["sequence"]) == ([], None, 25)


async def test_decisions_about_others_do_not_end_the_wait_of_a_tenant(serve: Serve) -> None:
    readings, reviews = long_ledger(), CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(readings, reviews, Clock())
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(rest.get(DECISIONS, token="alice", after="25", wait="30"))
        await waiting(rest)
        for number, one in ((26, STUCK), (27, STUCK), (28, SMALL)):
            readings.rows.append(decision(number, one, "Pending"))
            readings.sequence = number
            await rest.view.refresh()
            await asyncio.sleep(0.05)
    assert [item["sequence"] for item in asking.result()["items"]] == [28]


@pytest.mark.parametrize(
    ("lost", "filters", "status"), [("token", "", 401), ("right", "&namespace=default", 404)]
)
async def test_a_caller_that_loses_its_rights_during_a_wait_gets_nothing_more(
    serve: Serve, lost: str, filters: str, status: int
) -> None:
    readings, reviews, clock = long_ledger(), CannedReviews(), Clock()
    reviews.tenant("alice", "default")
    rest = await serve(readings, reviews, clock)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        path = f"{DECISIONS}?after=25&wait=30{filters}"
        asking = tasks.create_task(rest.client.get(path, headers=bearer("alice")))
        await waiting(rest)
        if lost == "token":
            reviews.users.clear()
        else:
            reviews.rights.clear()
        clock.now += 31
        readings.rows.append(decision(26, SMALL, "Pending"))
        readings.sequence = 26
        await rest.view.refresh()
        assert (await asking).status == status


async def test_without_the_ledger_there_are_no_decisions(serve: Serve) -> None:
    rest = await serve(long_ledger())
    rest.readings.down = AWAY
    await rest.refused(rest.client.get(f"{DECISIONS}?after=0"), 503)


async def test_policy_is_shown_to_callers_that_may_read_it(serve: Serve) -> None:
    readings, reviews = long_ledger(1), CannedReviews()
    configured = decision(1, SMALL, "Configured")
    spec: dict[str, object] = {
        "kind": "ClusterQueue",
        "name": "team-a",
        "spec": {"cohort": "x"},
        "author": "ada",
    }
    readings.rows = [replace(configured, ref=None, payload=spec)]
    reviews.admin("admin")
    reviews.add("watcher", Access("list", "workloads"))
    rest = await serve(readings, reviews, Clock())
    for token, expected, author in (("admin", {"cohort": "x"}, "ada"), ("watcher", None, None)):
        (item,) = (await rest.get(DECISIONS, token=token, after="0"))["items"]
        assert item["details"].get("spec") == expected
        assert item["details"].get("author") == author
        assert (item["namespace"], item["kind"], item["name"], item["uid"]) == (None,) * 4
