"""Parameters of the list of workloads: the pending queue by position, and names."""

from __future__ import annotations

import heapq
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.api.canned import GPU, WAITS, CannedReadings, decision, two_teams, workload
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.reviews import CannedReviews

LINE = {"clusterqueue": "team-a", "order": "position"}


async def names(rest: Rest, token: str | None = None, **parameters: str) -> list[str]:
    page = await rest.get("/api/v1/workloads", token=token, **parameters)
    return [item["name"] for item in page["items"]]


async def test_by_position_the_list_is_the_pending_queue(rest: Rest) -> None:
    page = await rest.get("/api/v1/workloads", **LINE)
    assert [(item["position"], item["name"]) for item in page["items"]] == [(1, "urgent"), (2, "waits")]
    assert page["next"] is None
    assert await names(rest, clusterqueue="team-a") == ["small", "large", "waits", "urgent"]


async def test_pages_of_the_pending_queue_follow_each_other(rest: Rest) -> None:
    first = await rest.get("/api/v1/workloads", **LINE, limit="1")
    assert [item["name"] for item in first["items"]] == ["urgent"]
    second = await rest.get("/api/v1/workloads", **LINE, limit="1", next=first["next"])
    assert [item["name"] for item in second["items"]] == ["waits"]
    assert second["next"] is None


async def test_a_tenant_sees_its_own_places_only(serve: Serve) -> None:
    readings, reviews = two_teams(), CannedReviews()
    readings.commit(workload("foreign", 6, namespace="other", priority=5, reason=WAITS))
    reviews.tenant("tenant", "default")
    rest = await serve(readings, reviews)
    page = await rest.get("/api/v1/workloads", token="tenant", **LINE)
    assert [(item["position"], item["name"]) for item in page["items"]] == [(1, "urgent"), (3, "waits")]


async def test_of_a_queue_that_is_not_there_the_list_is_empty(serve: Serve) -> None:
    rest = await serve(CannedReadings())
    assert await names(rest, clusterqueue="none", order="position") == []


async def test_what_ended_after_the_state_of_an_answer_has_its_outcome(serve: Serve) -> None:
    readings = two_teams()
    rest = await serve(readings)
    one = workload("waits", 3)
    admitted = replace(decision(30, one, "Admitted"), attempt=1)
    pods = {"name": "main", "count": 2, "requests": {GPU: 4}, "flavors": {GPU: "a100"}}
    admitted = replace(admitted, payload={"clusterQueue": "team-a", "podSets": [pods]})
    ended = replace(decision(90, one, "Retired"), payload={"outcome": "Succeeded"})
    readings.rows += [decision(20, one, "Queued"), admitted, ended]
    readings.sequence = 90
    readings.end(one)
    page = await rest.get("/api/v1/workloads", phase="Finished")
    assert page["sequence"] < 90, "that of a state before the end"
    (item,) = page["items"]
    assert (item["end"]["outcome"], item["end"]["heldSeconds"]) == ("Succeeded", 60.0)
    assert item["end"]["resourceSeconds"] == {GPU: 8 * 60}


async def test_what_is_over_has_its_outcome_and_times(serve: Serve) -> None:
    readings = two_teams()
    one = workload("waits", 3)
    queued, admitted = decision(20, one, "Queued"), replace(decision(30, one, "Admitted"), attempt=1)
    pods = {"name": "main", "count": 2, "requests": {GPU: 4}, "flavors": {GPU: "a100"}}
    admitted = replace(admitted, payload={"clusterQueue": "team-a", "podSets": [pods]})
    fewer = replace(decision(75, one, "Shrunk"), attempt=1, payload={"podSets": [{**pods, "count": 1}]})
    failed = replace(decision(90, one, "Retired"), payload={"outcome": "Failed", "detail": "OOMKilled"})
    readings.rows += [queued, admitted, fewer, failed]
    readings.sequence = 90
    readings.end(one)
    rest = await serve(readings)
    page = await rest.get("/api/v1/workloads", phase="Finished")
    (item,) = page["items"]
    end = item["end"]
    assert (item["name"], end["outcome"], end["heldSeconds"]) == ("waits", "Failed", 60.0)
    assert end["failure"] == "OOMKilled"
    assert [(one["number"], one["outcome"]) for one in end["attempts"]] == [(1, "Failed")]
    used = {GPU: 8 * 45 + 4 * 15}
    assert [
        end["resourceSeconds"],
        *(end["attempts"][0][key] for key in ("resourceSeconds", "requests")),
    ] == [
        used,
        used,
        {GPU: 8},
    ]
    history = (await rest.get("/api/v1/workloads/default/job/waits/history"))["items"]
    assert [item["resourceSeconds"] for item in history] == [None, None, None, used]
    assert (await rest.get("/api/v1/workloads/default/job/waits"))["end"] == end
    assert (await rest.get("/api/v1/workloads/default/job/urgent"))["end"] is None


async def test_names_are_found_by_a_part_of_them(rest: Rest) -> None:
    assert await names(rest, name="a") == ["small", "large", "waits"]
    assert await names(rest, **LINE, name="wai") == ["waits"]
    assert await names(rest, name="none") == []


async def test_a_pod_group_has_an_answer_whatever_letters_its_label_has(serve: Serve) -> None:
    readings = two_teams()
    readings.commit(workload("Train_A.1", 9, reason=WAITS))
    rest = await serve(readings)
    for text in ("train_a", "Train_A.1"):
        assert await names(rest, name=text) == ["Train_A.1"]
    found = await rest.get("/api/v1/workloads/default/job/Train_A.1")
    assert found["name"] == "Train_A.1"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("order=position", "parameter order=position goes with clusterqueue"),
        ("order=position&clusterqueue=team-a&phase=Admitted", "no phase but Pending"),
        ("order=position&clusterqueue=team-a&phase=Finished", "no phase but Pending"),
        ("order=size", "parameter order must be one of arrival, position"),
        ("name=", "parameter name must be 1 to 253 letters"),
        ("name=a%20b", "parameter name must be 1 to 253 letters"),
    ],
)
async def test_what_does_not_go_together_is_refused(rest: Rest, asked: str, says: str) -> None:
    assert says in await rest.refused(rest.client.get(f"/api/v1/workloads?{asked}"), 400)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("newest", ["stuck", "urgent", "waits", "large", "small"]),
        ("priority", ["urgent", "small", "large", "waits", "stuck"]),
        ("devices", ["large", "small", "waits", "urgent", "stuck"]),
        ("name", ["large", "small", "stuck", "urgent", "waits"]),
        ("submitter", ["large", "waits", "small", "urgent", "stuck"]),
    ],
)
async def test_an_order_holds_over_all_pages(serve: Serve, order: str, expected: list[str]) -> None:
    readings = two_teams()
    users = {"large": "ann", "waits": "ann", "small": "ben", "urgent": None, "stuck": None}
    readings.commit(*(replace(readings.stored(name), submitter=user) for name, user in users.items()))
    rest = await serve(readings)
    found: list[str] = []
    next: str | None = ""
    while next is not None:
        given = {"next": next} if next else {}
        page = await rest.get("/api/v1/workloads", order=order, limit="2", **given)
        found += [item["name"] for item in page["items"]]
        next = page["next"]
    assert found == expected


@pytest.mark.parametrize("longest", ["a" * 253, "系" * 253, "\N{BUG}" * 253])
async def test_the_longest_name_of_a_user_ends_no_page(serve: Serve, longest: str) -> None:
    readings = two_teams()
    users = {"waits": longest, "large": None, "small": None, "urgent": None, "stuck": None}
    readings.commit(*(replace(readings.stored(name), submitter=user) for name, user in users.items()))
    rest = await serve(readings)
    first = await rest.get("/api/v1/workloads", order="submitter", limit="1")
    assert first["items"][0]["name"] == "waits"
    assert len((await rest.get("/api/v1/workloads", order="submitter", next=first["next"]))["items"]) == 4


async def test_workloads_are_ordered_beside_the_event_loop(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    nsmallest = heapq.nsmallest

    def noted(*arguments: Any) -> list[Any]:
        threads.append(threading.get_ident())
        return nsmallest(*arguments)

    monkeypatch.setattr(heapq, "nsmallest", noted)
    assert await names(rest, order="newest") == [*reversed(await names(rest))]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_own_workloads_are_those_that_the_authenticated_user_submitted(serve: Serve) -> None:
    readings, reviews = two_teams(), CannedReviews()
    readings.commit(replace(readings.stored("waits"), submitter="ann"))
    reviews.tenant("ann", "default")
    reviews.tenant("ben", "default")
    rest = await serve(readings, reviews)
    assert await names(rest, "ann", submitter="@me") == ["waits"]
    assert await names(rest, "ann", submitter="@me", order="name") == ["waits"]
    assert await names(rest, "ben", submitter="@me") == []


async def test_a_server_that_authenticates_no_caller_has_no_own_workloads(rest: Rest) -> None:
    refused = await rest.refused(rest.client.get("/api/v1/workloads?submitter=@me"), 400)
    assert "parameter submitter: this server authenticates no caller: name the user" in refused
