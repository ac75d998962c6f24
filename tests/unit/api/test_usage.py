"""Usage over REST: what is divided by what, months of a zone, and what a tenant sees of others (B5, B6)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from queuectl.api import usage_routes
from queuectl.ports.changes import Access
from queuectl.ports.reader import BookedOn, CapacitySum, TooMuchHistory, UsageOfTime, UsageSumOf
from tests.unit.api.canned import GPU, CannedReadings, two_teams
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.reviews import CannedReviews

HOUR = 3_600_000_000
PATH = "/api/v1/usage"


def held(hours: int, user: str | None, namespace: str = "default", **account: str) -> UsageSumOf:
    booked = BookedOn(namespace, "main", "ci", user, "high", account) if user is not None else None
    return UsageSumOf(booked, "team-a", "a100", GPU, hours * HOUR)


@pytest.fixture
def readings() -> CannedReadings:
    found = two_teams()
    found.booked = [
        held(5, "ada", project="blue"),
        held(7, "bob", project="red"),
        held(2, "bob", project="blue"),
        held(11, "zz-eve", "zz-eves", project="zz-secret"),
        held(3, None),
        UsageSumOf(found_cpu(), "team-a", "spot", "cpu", 4000 * HOUR),
    ]
    found.had = [CapacitySum("a100", GPU, *(hours * HOUR for hours in (30, 2, 1, 28, 1, 0)))]
    return found


def found_cpu() -> BookedOn:
    return BookedOn("default", "main", "ci", "ada", "high", {})


@pytest.fixture
async def rest(serve: Serve, readings: CannedReadings) -> Rest:
    return await serve(readings)


def amounts(found: Any, *names: str) -> list[tuple[Any, ...]]:
    """Of GPUs."""
    return [
        (*(item["keys"][name] for name in names), item["amount"])
        for item in found["items"]
        if item["resource"] == GPU
    ]


async def test_usage_is_by_user_and_adds_up_to_all_that_was_held(rest: Rest) -> None:
    found = await rest.get(PATH)
    assert amounts(found, "user") == [("zz-eve", 11.0), ("bob", 9.0), ("ada", 5.0), (None, 3.0)]
    assert found["totals"][0] == {
        "flavor": "a100",
        "resource": GPU,
        **{"used": 28.0, "held": 28.0, "free": 1.0, "unmanaged": 1.0},
        **{"usable": 30.0, "unusable": 2.0, "overcommitted": 0.0},
    }
    assert found["items"][0]["exact"] == str(4000 * HOUR)


async def test_usage_is_divided_by_queues_account_keys_and_flavors(rest: Rest) -> None:
    assert amounts(await rest.get(PATH, by="project"), "project") == [
        ("zz-secret", 11.0),
        ("blue", 7.0),
        ("red", 7.0),
        (None, 3.0),
    ]
    found = await rest.get(PATH, by="queue,user,class,submitter")
    assert found["by"] == ["localqueue", "user", "class", "submitter"]
    assert found["items"][-2]["keys"] == {
        "localqueue": "default/main",
        "user": "ada",
        "class": "high",
        "submitter": "ci",
    }
    assert amounts(await rest.get(PATH, by="clusterqueue,flavor"), "clusterqueue", "flavor") == [
        ("team-a", "a100", 28.0)
    ]


async def test_a_month_begins_where_the_zone_says(rest: Rest) -> None:
    found = await rest.get(PATH, month="2026-11")
    assert (found["zone"], found["since"], found["until"]) == (
        "Asia/Kathmandu",
        "2026-10-31T18:15:00Z",
        "2026-11-30T18:15:00Z",
    )
    found = await rest.get(PATH, month="2026-10", zone="Europe/Berlin")
    assert (found["since"], found["until"]) == ("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("by=user,user", "parameter by must be 1 to 4 different names"),
        ("by=cost-center", "nothing was booked on 'cost-center' in that time; there are user"),
        ("by=a,b,c,d,e", "parameter by"),
        ("month=2026-13", "parameter month"),
        ("month=2026-1", "parameter month"),
        ("month=0000-01", "parameter month"),
        ("month=9999-12", "parameter month"),
        ("zone=Mars/Base", "parameter zone must be the name of a time zone"),
        ("zone=/etc/passwd", "parameter zone"),
        ("month=2026-11&since=2026-11-01T00:00:00Z", "parameter month: goes without since and until"),
        ("until=2026-11-01T00:00:00Z", "parameter until: goes with since"),
        ("since=2026-11-02T00:00:00Z&until=2026-11-01T00:00:00Z", "parameter since: must be before until"),
    ],
)
async def test_a_bad_question_is_refused(rest: Rest, query: str, problem: str) -> None:
    assert problem in await rest.refused(rest.client.get(f"{PATH}?{query}"), 400)


async def test_history_that_is_gone_is_said(
    rest: Rest, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(**_: object) -> None:
        raise TooMuchHistory

    monkeypatch.setattr(readings, "usage", gone)
    assert "ask for a shorter time, at hours" in await rest.refused(rest.client.get(PATH), 400)


async def test_a_tenant_sees_its_own_part_and_one_row_of_all_others(
    serve: Serve, readings: CannedReadings
) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(readings, reviews)
    found = await rest.get(PATH, token="alice", by="user,project,namespace")
    assert [(*item["keys"].values(), item["others"], item["amount"]) for item in found["items"][1:]] == [
        ("bob", "red", "default", False, 7.0),
        ("ada", "blue", "default", False, 5.0),
        ("bob", "blue", "default", False, 2.0),
        (None, None, None, True, 14.0),
    ]
    assert "zz-" not in json.dumps(found)
    assert found["totals"] == []
    reviews.tenant("carol", "default")
    reviews.rights["carol"].add(Access("get", "resourceflavors", "", "a100"))
    found = await rest.get(PATH, token="carol")
    assert [total["used"] for total in found["totals"]] == [28.0]


Row = TypeVar("Row")


class CountedRows(list[Row]):
    """Rows that count how often they are passed over from the event loop."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(rows)
        self.on_the_loop = 0
        self.elsewhere = 0
        self._loop = threading.get_ident()

    def __iter__(self) -> Iterator[Row]:
        if threading.get_ident() == self._loop:
            self.on_the_loop += 1
        else:
            self.elsewhere += 1
        return super().__iter__()


async def test_bookings_are_added_up_beside_the_event_loop(
    rest: Rest, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = CountedRows(readings.booked)
    usage = readings.usage

    async def counted(**time: Any) -> UsageOfTime:
        return (await usage(**time))._replace(rows=rows)

    monkeypatch.setattr(readings, "usage", counted)
    await rest.get(PATH)
    assert rows.on_the_loop == 0
    assert rows.elsewhere > 0


async def test_more_items_than_an_answer_may_have_are_refused(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_routes, "MOST_ITEMS", 5)
    assert len((await rest.get(PATH))["items"]) == 5
    problem = await rest.refused(rest.client.get(f"{PATH}?by=user,project"), 400)
    assert "parameter by: user,project gives 6 items: an answer has at most 5" in problem
