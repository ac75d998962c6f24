"""How many workloads each value of a filter would leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuectl.api import count_routes
from queuectl.core.model.workload import Phase
from tests.unit.api.canned import WAITS, CannedReadings, two_teams, workload
from tests.unit.api.conftest import Serve
from tests.unit.api.reviews import CannedReviews

PATH = "/api/v1/workloadcounts"
FILTERS = ("phase", "namespace", "clusterqueue", "queue", "kind", "submitter", "reason")


def values(found: Any, name: str) -> dict[str, int]:
    values = next((item["values"] for item in found["items"] if item["filter"] == name), ())
    return {value["value"]: value["workloads"] for value in values}


async def test_values_are_counted_beside_the_other_filters(serve: Serve) -> None:
    rest = await serve(two_teams())
    found = await rest.get(PATH)
    assert (found["workloads"], [one["filter"] for one in found["items"]]) == (5, [*FILTERS])
    assert values(found, "phase") == {"Pending": 3, "Admitted": 1, "Evicting": 1}
    assert values(found, "reason") == {"WaitingForQuota": 2, "Misconfigured": 1}
    found = await rest.get(PATH, phase="Pending", clusterqueue="team-a")
    assert found["workloads"] == 2
    assert values(found, "phase") == {"Pending": 2, "Admitted": 1, "Evicting": 1}
    assert values(found, "clusterqueue") == {"team-a": 2, "team-b": 1}
    assert values(found, "kind") == {"Job": 2}
    found = await rest.get(PATH, name="all", kind="pytorchjob")
    assert found["workloads"] == 0
    assert values(found, "kind") == {"Job": 1, "PyTorchJob": 0}


async def test_a_value_is_counted_as_the_list_has_it(serve: Serve) -> None:
    """For each filter and each of its values, beside another filter."""
    readings = two_teams()
    readings.commit(replace(workload("mine", 9, reason=WAITS), submitter="bob"))
    rest = await serve(readings)
    seen = 0
    for other in ({}, {"phase": "Pending"}, {"submitter": "alice"}, {"name": "s"}):
        found = await rest.get(PATH, **other)
        assert found["workloads"] == len((await rest.get("/api/v1/workloads", **other))["items"])
        for name in FILTERS:
            for value, count in values(found, name).items():
                listed = await rest.get("/api/v1/workloads", **{**other, name: value})
                assert len(listed["items"]) == count, (other, name, value)
                seen += 1
    assert seen > 40


async def test_a_tenant_counts_what_it_may_list(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.tenant("nobody")
    rest = await serve(two_teams(), reviews)
    found = await rest.get(PATH, token="alice", submitter="@me")
    assert found["workloads"] == 4
    assert values(found, "namespace") == {"default": 4}
    assert (await rest.get(PATH, token="nobody", namespace="default"))["workloads"] == 0


async def test_only_so_many_values_are_told_and_that_which_is_asked_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_routes, "MOST_VALUES", 1)
    rest = await serve(two_teams())
    found = await rest.get(PATH, phase="Evicting")
    assert values(found, "phase") == {"Pending": 3, "Evicting": 1}
    assert [one["more"] for one in found["items"] if one["filter"] == "phase"] == [2]


async def test_what_is_over_counts_no_more(serve: Serve) -> None:
    readings: CannedReadings = two_teams()
    readings.end(readings.stored("waits"), Phase.DELETED)
    assert (await (await serve(readings)).get(PATH))["workloads"] == 4
