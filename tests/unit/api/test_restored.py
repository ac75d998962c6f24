"""What an answer told of a ledger is not mistaken for what the ledger tells after a restore from a backup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuectl.core.decisions import Verdict
from queuectl.core.model.workload import Phase
from tests import builders
from tests.unit.api.canned import CannedReadings, decision, two_teams, workload
from tests.unit.api.conftest import Rest, Serve

LOST = 12
"""The backup has decisions 1 to 8; 9 to 12 are lost, and others get their sequences."""
KEPT = 8
ONE = workload("small", 1)
PATHS = [
    "/api/v1/decisions?limit=2&after=9",
    "/api/v1/workloads?limit=1",
    "/api/v1/workloads?limit=1&phase=Finished",
    "/api/v1/workloads?limit=1&order=position&clusterqueue=team-a",
    "/api/v1/workloads/default/Job/small/history?limit=2",
    "/api/v1/clusterqueues?limit=1",
    "/api/v1/localqueues?limit=1",
]


def rows(epoch: int, first: int, last: int) -> list[Any]:
    return [
        replace(decision(number, ONE, Verdict.QUEUED.value), epoch=epoch) for number in range(first, last + 1)
    ]


def ledger() -> CannedReadings:
    readings = two_teams()
    for arrival in (8, 9):
        readings.end(workload(f"over-{arrival}", arrival), Phase.FINISHED)
    readings.sequence, readings.rows = LOST, rows(1, 1, LOST)
    return readings


async def restored(rest: Rest, *, until: int, epoch: int = 2) -> None:
    """The ledger has decisions up to `until` again, and those after KEPT are of another epoch."""
    readings = rest.readings
    readings.rows = [*rows(1, 1, KEPT), *rows(epoch, KEPT + 1, until)]
    readings.sequence, readings.epoch = until, epoch
    await rest.view.refresh()


async def failed_over(rest: Rest) -> None:
    """Another controller leads, and nothing is lost."""
    readings = rest.readings
    readings.rows += rows(2, LOST + 1, LOST + 2)
    readings.sequence, readings.epoch = LOST + 2, 2
    await rest.view.refresh()


@pytest.mark.parametrize("until", [KEPT, LOST - 1, LOST, LOST + 5])
async def test_decisions_after_a_sequence_go_on_after_the_last_that_was_not_lost(
    serve: Serve, until: int
) -> None:
    rest = await serve(ledger())
    before = await rest.get("/api/v1/decisions", after="0")
    assert (before["sequence"], before["epoch"]) == (LOST, 1)
    await restored(rest, until=until)
    asked = {"after": str(before["sequence"]), "epoch": str(before["epoch"])}
    found = await rest.get("/api/v1/decisions", **asked)
    assert [one["sequence"] for one in found["items"]] == [*range(KEPT + 1, until + 1)]
    assert all(one["epoch"] == 2 for one in found["items"])
    assert (found["sequence"], found["epoch"]) == (until, 2)


async def test_decisions_after_a_sequence_are_as_before_after_a_failover(serve: Serve) -> None:
    rest = await serve(ledger())
    await failed_over(rest)
    found = await rest.get("/api/v1/decisions", after=str(LOST), epoch="1")
    assert [one["sequence"] for one in found["items"]] == [LOST + 1, LOST + 2]


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_a_ledger_that_was_restored_is_refused(serve: Serve, path: str) -> None:
    rest = await serve(ledger())
    next = (await rest.get(path))["next"]
    assert next is not None
    await restored(rest, until=LOST + 5)
    again = f"{path}{'&' if '?' in path else '?'}next={next}"
    detail = await rest.refused(rest.client.get(again), 400)
    assert "restored from a backup" in detail


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_is_answered_after_a_failover(serve: Serve, path: str) -> None:
    rest = await serve(ledger())
    next = (await rest.get(path))["next"]
    await failed_over(rest)
    found = await rest.get(f"{path}{'&' if '?' in path else '?'}next={next}")
    assert found["items"]


async def test_an_earlier_state_is_read_again_from_a_ledger_that_was_restored(serve: Serve) -> None:
    rest = await serve(ledger())
    when = builders.T0
    rest.readings.keep(when)
    for _ in range(2):
        await rest.get("/api/v1/workloads", asOf=when.isoformat())
    assert len(rest.readings.looks) == 1
    await restored(rest, until=LOST)
    await rest.get("/api/v1/workloads", asOf=when.isoformat())
    assert len(rest.readings.looks) == 2
