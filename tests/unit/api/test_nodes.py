"""Nodes over REST: state, use and workloads, and what a tenant sees of others."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.ports.changes import Access
from tests.unit.api.canned import GPU, CannedReadings, two_teams
from tests.unit.api.canned_nodes import with_nodes
from tests.unit.api.conftest import Serve, bearer
from tests.unit.api.reviews import CannedReviews

PATH = "/api/v1/nodes"


@pytest.fixture
def readings() -> CannedReadings:
    return with_nodes(two_teams())


def pairs(found: Any) -> list[tuple[Any, ...]]:
    return [(one["namespace"], one["name"], one["pods"], one["used"].get(GPU)) for one in found["workloads"]]


async def test_a_node_says_its_state_what_is_used_and_free_and_by_whom(
    serve: Serve, readings: CannedReadings
) -> None:
    rest = await serve(readings)
    found = await rest.get(PATH)
    assert [(one["name"], one["state"], one["used"][GPU], one["free"][GPU]) for one in found["items"]] == [
        ("gpu-1", "Ready", 7, 1),
        ("gpu-2", "Cordoned", 0, 0),
        ("gpu-3", "Ready", 0, 8),
    ]
    first = await rest.get(f"{PATH}/gpu-1")
    assert first["used"] == {GPU: 7, "cpu": 2000}
    assert first["allocatable"] == {GPU: 8, "cpu": 8000}
    assert first["unmanaged"] == {GPU: 1, "cpu": 1000}
    assert [one[1:] for one in pairs(first)] == [("large", 2, 4), ("small", 1, 1), (None, 1, 1)]
    assert found["items"][2]["taints"] == ["team=x:NoSchedule"]


async def test_nodes_come_in_pages(serve: Serve, readings: CannedReadings) -> None:
    rest = await serve(readings)
    first = await rest.get(PATH, limit="2")
    second = await rest.get(PATH, limit="2", next=first["next"])
    assert [one["name"] for page in (first, second) for one in page["items"]] == ["gpu-1", "gpu-2", "gpu-3"]
    assert second["next"] is None


async def test_a_tenant_sees_the_pods_of_others_as_numbers(serve: Serve, readings: CannedReadings) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", readings.stored("large").ref.namespace)
    reviews.add("alice", Access("get", "resourceflavors"))
    reviews.add("bob", Access("get", "resourceflavors"))
    rest = await serve(readings, reviews)
    assert [one[1:] for one in pairs(await rest.get(f"{PATH}/gpu-1", token="bob"))] == [(None, 4, 6)]
    assert ("large", 2, 4) in [one[1:] for one in pairs(await rest.get(f"{PATH}/gpu-1", token="alice"))]


async def test_without_a_right_to_its_flavor_a_node_looks_like_a_missing_one(
    serve: Serve, readings: CannedReadings
) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(readings, reviews)
    answers = [
        await rest.client.get(f"{PATH}/{name}", headers=bearer("alice")) for name in ("gpu-1", "gpu-9")
    ]
    assert [one.status for one in answers] == [404, 404]
    assert await answers[0].text() == await answers[1].text()
    assert (await rest.get(PATH, token="alice"))["items"] == []
