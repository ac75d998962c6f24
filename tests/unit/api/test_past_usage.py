"""Past usage over REST: the order of fair tree, and what a tenant sees of it (U1 to U7)."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.api import past_usage_routes
from queuectl.ports.changes import Access
from queuectl.ports.reader import TooMuchHistory
from tests.unit.api.conftest import Serve
from tests.unit.api.past_usage import HALF_LIFE, configured, fair_tree, held
from tests.unit.api.reviews import CannedReviews

PATH = "/api/v1/cohorts/root/pastusage"


@pytest.fixture(autouse=True)
def _sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)


def rows(found: Any, kind: str) -> list[tuple[str, float]]:
    return [(item["name"], round(item["used"], 6)) for item in found["items"] if item["kind"] == kind]


async def test_users_come_in_the_order_of_fair_tree_with_what_each_level_has_used(serve: Serve) -> None:
    rest = await serve(fair_tree())
    found = await rest.get(PATH)
    assert found["halfLifeSeconds"] == HALF_LIFE
    assert [name for name, _ in rows(found, "User")] == ["u5", "u4", "u1", "u3", "u2"]
    assert rows(found, "Cohort") == [("root", 0.7), ("d", 0.25), ("a", 0.45)]
    assert rows(found, "ClusterQueue") == [("f", 0), ("e", 0.25), ("b", 0.2), ("c", 0.25)]
    parts = {item["name"]: item["part"] for item in found["items"] if item["kind"] == "Cohort"}
    assert parts == pytest.approx({"root": 1, "a": 0.45 / 0.7, "d": 0.25 / 0.7})
    assert {item["level"] for item in found["items"]} == {0, 1, 2, 3, 4}
    assert all(item["order"] for item in found["items"] if item["level"])
    assert found["items"][0]["order"] is None


async def test_a_cluster_queue_has_its_local_queues_and_users(serve: Serve) -> None:
    readings = fair_tree()
    readings.booked.append(held(None, "c", 0.1))
    rest = await serve(readings)
    found = await rest.get("/api/v1/clusterqueues/c/pastusage")
    assert [(item["level"], item["name"]) for item in found["items"]] == [
        *((0, "c"), (1, "main"), (2, "u3"), (2, ""), (2, "u2")),
    ]
    assert (found["items"][0]["weight"], found["items"][2]["weight"]) == (10_000, 1000)


async def test_a_tenant_sees_the_nodes_and_namespaces_that_it_may_read(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "ns-c")
    reviews.rights["alice"] |= {
        Access("get", "cohorts", "", "root"),
        Access("get", "clusterqueues", "", "c"),
    }
    rest = await serve(fair_tree(), reviews)
    found = await rest.get(PATH, token="alice")
    names = [item["name"] for item in found["items"]]
    assert names == ["root", "c", "main", "u3", "u2"]
    await rest.refused(
        rest.client.get("/api/v1/cohorts/A/pastusage", headers={"Authorization": "Bearer alice"}), 404
    )


async def test_what_there_is_not_is_said(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = fair_tree()
    rest = await serve(readings)
    await rest.refused(rest.client.get("/api/v1/cohorts/none/pastusage"), 404)
    await rest.refused(rest.client.get("/api/v1/clusterqueues/none/pastusage"), 404)

    async def gone(**_: object) -> None:
        raise TooMuchHistory

    monkeypatch.setattr(readings, "decayed_usage", gone)
    assert "different bookings" in await rest.refused(rest.client.get(PATH), 400)


async def test_without_a_half_life_no_past_usage_counts(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    rest = await serve(fair_tree())
    found = await rest.get(PATH)
    assert (found["halfLifeSeconds"], found["items"]) == (None, [])


async def test_of_more_items_than_an_answer_has_users_are_left_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service accounts of a namespace are users: it must not hide what all others have used."""
    readings = fair_tree()
    rest = await serve(readings)
    whole = (await rest.get(PATH))["items"]
    monkeypatch.setattr(past_usage_routes, "MOST_ITEMS", len(whole))
    assert (await rest.get(PATH))["items"] == whole
    readings.booked.append(held("made-up", "c", 0.0))
    kinds = {item["kind"] for item in (await rest.get(PATH))["items"]}
    assert kinds == {"Cohort", "ClusterQueue", "LocalQueue"}
