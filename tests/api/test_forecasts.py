"""When a workload starts, over REST, on the command line, and from the ledger of a simulated month."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from aiohttp.test_utils import TestClient, TestServer

from benchmarks.months import START, Month, at_once
from queuectl.api.forecast_routes import FORECAST_SECONDS
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.app.forecasting import FRESH_SECONDS, Forecaster
from queuectl.core.model import Phase, WorkloadId
from queuectl.core.policy import DEFAULT_CONFIGURATION
from queuectl.kinds.policy import parse_policy
from queuectl.ports import LedgerUnavailable, StartForecast
from queuectl.simulator import backtest
from queuectl.simulator.forecast import obstacle
from queuectl.simulator.what_ifs import TriedWhatIfs
from tests.api.canned import CannedReadings, two_teams, workload
from tests.api.conftest import KEY, Clock, Rest
from tests.job_kinds import JOB_KINDS


async def test_rest_tells_the_interval_and_how_often_such_intervals_held(rest: Rest) -> None:
    found = await rest.get("/api/v1/workloads/default/job/waits/eta")
    seconds = [found[f"{key}Seconds"] for key in ("low", "median", "high", "after")]
    assert seconds == [2463, 7512, None, 22_960]
    assert (found["unknown"], found["draws"]) == (None, 19)
    assert (found["calibration"]["checked"], found["calibration"]["held"]) == (45, 37)


async def test_what_does_not_wait_has_no_forecast(serve) -> None:  # type: ignore[no-untyped-def]
    readings = two_teams()
    runs, over = workload("runs", 20, phase=Phase.ADMITTED), workload("over", 21)
    readings.commit(runs, over)
    readings.end(over)
    rest: Rest = await serve(readings)
    for name, why in (("runs", "it holds quota"), ("over", "it is over")):
        found = await rest.get(f"/api/v1/workloads/default/job/{name}/eta")
        assert (found["unknown"], found["medianSeconds"], found["calibration"]) == (why, None, None)


class Failing(CannedReadings):
    """Its forecasts fail, or never come."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    async def start_of(self, workload: WorkloadId, now: object) -> StartForecast:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LedgerUnavailable("the server closed the connection"), "closed the connection"),
        (None, "no forecast within"),
    ],
)
async def test_a_forecast_that_fails_or_does_not_come_is_a_503(
    error: Exception | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FORECAST_SECONDS > 1
    monkeypatch.setattr("queuectl.api.forecast_routes.FORECAST_SECONDS", 0.01)
    readings = two_teams()
    view = View(readings, parse_policy)
    await view.refresh()
    app = application(
        view, readings, kinds=JOB_KINDS, cursor_key=KEY, what_ifs=TriedWhatIfs(), forecasts=Failing(error)
    )
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/api/v1/workloads/default/job/waits/eta")
        assert answer.status == 503
        assert says in await answer.text()


@pytest.fixture(scope="module")
def month() -> Month:
    played = Month("few long jobs", days=20)
    played.run()
    return played


@pytest.fixture(scope="module")
def busy(month: Month) -> datetime:
    """The first time after two weeks at which two workloads wait."""
    times = (START + timedelta(days=14, hours=hours) for hours in range(5 * 24))
    return next(when for when in times if len(waiting(month, when)) > 1)


def waiting(month: Month, when: datetime) -> list[WorkloadId]:
    found = at_once(month.ledger.at(when)).workloads
    return [one.id for one in found if one.phase is Phase.PENDING and obstacle(one) is None]


async def test_forecasts_come_from_the_ledger_and_past_ones_are_checked(
    month: Month, busy: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtest, "TIMES", 10)
    monkeypatch.setattr(backtest, "LEAST_CHECKED", 3)
    clock = Clock()
    forecaster = Forecaster(month.ledger, lambda _: DEFAULT_CONFIGURATION, clock)
    snapshot, waits = at_once(month.ledger.at(busy)), waiting(month, busy)[0]
    runs = next(one for one in snapshot.workloads if one.phase is Phase.ADMITTED)

    first = await forecaster.start_of(waits, busy)
    assert first.unknown is None
    assert first.low is not None
    assert first.calibration is None
    assert (await forecaster.start_of(runs.id, busy)).unknown == "it holds quota"
    assert (await forecaster.start_of(WorkloadId("none"), busy)).unknown == "it is over"

    calibration = await forecaster.calibration(frozenset("abc"), busy)
    assert calibration is not None
    assert 3 <= calibration.checked <= 30
    assert calibration.held <= calibration.checked
    assert calibration == await forecaster.calibration(frozenset("abc"), busy)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(forecaster.run())
        while (found := await forecaster.start_of(waits, busy)).calibration is None:
            await asyncio.sleep(0)
        running.cancel()
    assert found == first._replace(calibration=calibration)


async def test_a_state_is_used_for_some_seconds(month: Month, busy: datetime) -> None:
    clock = Clock()
    forecaster = Forecaster(month.ledger, lambda _: DEFAULT_CONFIGURATION, clock)
    waits = waiting(month, busy)[0]
    first = await forecaster.start_of(waits, busy)
    later = busy + timedelta(minutes=1)
    assert (await forecaster.start_of(waits, later)).at == first.at
    clock.now += FRESH_SECONDS
    assert (await forecaster.start_of(waits, later)).at == later
