"""What admitted workloads do with their devices, over REST, and what a tenant sees of others."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuectl.api import idle_routes
from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.workload import Phase
from queuectl.ports.idle import DeviceCheck
from tests.unit.api.canned import CannedReadings, two_teams, workload
from tests.unit.api.canned_use import judged
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.reviews import CannedReviews

PATH = "/api/v1/idle"
WHEN = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def readings() -> CannedReadings:
    readings = two_teams()
    held = {"phase": Phase.ADMITTED, "cluster_queue": "team-b", "gpus": 8}
    stuck = workload("stuck", 5, namespace="other", kind="PyTorchJob", **held)  # type: ignore[arg-type]
    again = workload("again", 6, namespace="other", **held)  # type: ignore[arg-type]
    busy = UseFinding(UseVerdict.BUSY, 4, 1, 1.0, 0.8, 0.7)
    idle = UseFinding(UseVerdict.IDLE, 2, 2, 1.0, 0.0, 0.0)
    hang = UseFinding(UseVerdict.HANG, 8, 8, 0.95, 1.0, 0.01)
    large, small, waits = (readings.stored(name) for name in ("large", "small", "waits"))
    readings.commit(
        judged(large, busy, WHEN, 60),
        judged(small, idle, WHEN - timedelta(hours=1)),
        judged(stuck, hang, WHEN, 10),
        judged(again, idle, WHEN, 10**6, attempt=0),
        judged(waits, idle, WHEN, 10**6),
    )
    readings.device_use.found = DeviceCheck(WHEN, None)
    return readings


@pytest.fixture
async def rest(serve: Serve, readings: CannedReadings) -> Rest:
    return await serve(readings)


async def test_what_wastes_most_comes_first(rest: Rest) -> None:
    """A verdict about another attempt, or of a workload that waits, is left out."""
    found = await rest.get(PATH)
    items = [
        (one["name"], one["verdict"], one["idleDevices"], one["wastedSeconds"]) for one in found["items"]
    ]
    assert items == [("small", "Idle", 2, 7200), ("large", "Busy", 1, 60), ("stuck", "Hang", 8, 10)]
    assert (found["checkedAt"], found["problem"], found["others"]) == ("2026-01-02T00:00:00Z", None, 0)
    assert {one["notice"] for one in found["items"]} == {None}
    only = await rest.get(PATH, verdict="Hang")
    assert [one["name"] for one in only["items"]] == ["stuck"]


async def test_a_tenant_sees_its_own_and_how_many_devices_are_idle_elsewhere(
    serve: Serve, readings: CannedReadings
) -> None:
    readings.device_use.found = readings.device_use.found._replace(problem="Prometheus: 10.1.2.3 refused")
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.admin("root")
    rest = await serve(readings, reviews)
    found = await rest.get(PATH, token="alice")
    assert [one["name"] for one in found["items"]] == ["small", "large"]
    assert (found["others"], found["problem"]) == (8, "the last check failed")
    assert "stuck" not in json.dumps(found)
    assert (await rest.get(PATH, token="root"))["problem"] == "Prometheus: 10.1.2.3 refused"


async def test_an_admin_reads_the_problem_where_one_namespace_has_all_verdicts(serve: Serve) -> None:
    readings = two_teams()
    idle = UseFinding(UseVerdict.IDLE, 2, 2, 1.0)
    readings.commit(judged(readings.stored("small"), idle, WHEN))
    readings.device_use.found = DeviceCheck(WHEN, "Prometheus: refused")
    reviews = CannedReviews()
    reviews.admin("root")
    rest = await serve(readings, reviews)
    assert (await rest.get(PATH, token="root"))["problem"] == "Prometheus: refused"


async def test_a_verdict_that_does_not_exist_is_refused(rest: Rest) -> None:
    assert "parameter verdict" in await rest.refused(rest.client.get(f"{PATH}?verdict=Lazy"), 400)


async def test_before_the_first_check_there_is_nothing(serve: Serve) -> None:
    found = await (await serve(two_teams())).get(PATH)
    assert (found["checkedAt"], found["items"]) == (None, [])


async def test_items_are_made_beside_the_event_loop(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, item = set(), idle_routes._item

    def recorded(*values: Any) -> idle_routes.WorkloadUse:
        threads.add(threading.current_thread())
        return item(*values)

    monkeypatch.setattr(idle_routes, "_item", recorded)
    assert len((await rest.get(PATH))["items"]) == 3
    assert threads
    assert threading.current_thread() not in threads
