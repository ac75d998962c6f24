"""When a workload starts, over REST, on the command line, and from the ledger of a simulated month."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from aiohttp.test_utils import TestClient, TestServer

from benchmarks.months import START, Month, at_once
from queuectl.answers.forecast import backtest
from queuectl.answers.forecast.forecast import obstacle
from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.forecast_routes import FORECAST_SECONDS
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.api.workload_routes import Times, times
from queuectl.app.forecasts import FRESH_SECONDS, WHOLE_SECONDS, Forecaster
from queuectl.core.decisions import Verdict
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.workload import Phase, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.reader import PastLives, StartForecast
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import EPOCH_START, CannedReadings, decision, two_teams, workload
from tests.unit.api.conftest import KEY, Clock, Rest, Serve


async def test_rest_tells_the_interval_and_how_often_such_intervals_held(rest: Rest) -> None:
    found = await rest.get("/api/v1/workloads/default/job/waits/eta")
    seconds = [found[f"{key}Seconds"] for key in ("low", "median", "high", "after")]
    assert seconds == [2463, 7512, None, 22_960]
    assert (found["unknown"], found["draws"]) == (None, 19)
    assert (found["calibration"]["checked"], found["calibration"]["held"]) == (45, 37)


WORKS = workload("works", 20, phase=Phase.ADMITTED, gpus=1)
STARTED, ENDED = EPOCH_START + timedelta(minutes=20), EPOCH_START + timedelta(seconds=60)


async def test_what_does_not_wait_has_the_times_of_its_start_and_end(serve: Serve) -> None:
    readings = two_teams()
    runs, over = workload("runs", 20, phase=Phase.ADMITTED, gpus=1), workload("over", 21)
    left = workload("left", 22)
    readings.commit(runs, over, left)
    readings.end(over)
    readings.end(left, Phase.DELETED)
    readings.rows += [
        *(decision(30, left, Verdict.QUEUED), decision(31, over, Verdict.ADMITTED)),
        *(decision(60, over, Verdict.RETIRED), decision(60, left, Verdict.RETIRED)),
    ]
    readings.sequence = 60
    rest = await serve(readings)
    began = EPOCH_START + timedelta(seconds=31)
    for name, started, ended, why in (
        ("runs", STARTED, None, f"it started at {STARTED.isoformat()}"),
        ("over", began, ENDED, f"it started at {began.isoformat()} and ended at {ENDED.isoformat()}"),
        ("left", None, ENDED, f"it ended at {ENDED.isoformat()}"),
    ):
        found = await rest.get(f"/api/v1/workloads/default/job/{name}/eta")
        assert (found["unknown"], found["medianSeconds"], found["calibration"]) == (why, None, None)
        told = [found[key] and datetime.fromisoformat(found[key]) for key in ("startedAt", "endedAt")]
        assert told == [started, ended]


def test_an_id_that_is_used_again_has_the_times_of_its_last_life() -> None:
    one = workload("one", 1)
    rows = [
        decision(number, one, verdict)
        for number, verdict in enumerate(
            (
                *(Verdict.QUEUED, Verdict.ADMITTED, Verdict.EVICTED, Verdict.RELEASED, Verdict.ADMITTED),
                *(Verdict.QUEUED, Verdict.RETIRED, Verdict.QUEUED, Verdict.RETIRED),
            )
        )
    ]
    at = [row.now for row in rows]
    assert times(rows[:4]) == Times(at[1], None)
    assert times(rows[:7]) == Times(at[4], at[6])
    assert times(rows[:8]) == Times(None, None)
    assert times(rows) == Times(None, at[8])
    assert str(Times()) == "it has ended"


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


@pytest.mark.parametrize("then", [Phase.ADMITTED, Phase.FINISHED, Phase.PENDING])
async def test_what_started_or_ended_after_the_state_of_rest_has_its_times_too(then: Phase) -> None:
    """The forecast is made from a later state of the ledger."""
    readings = two_teams()
    one = workload("one", 20)
    readings.commit(one)

    class Later(CannedReadings):
        async def start_of(self, workload: WorkloadId, now: datetime) -> StartForecast:
            if then is Phase.FINISHED:
                readings.end(one)
                readings.rows.append(decision(readings.sequence, one, Verdict.RETIRED))
            elif then is Phase.ADMITTED:
                readings.commit(replace(WORKS, id=one.id, ref=one.ref))
            return StartForecast(now, readings.sequence, f"it did not wait at {now.isoformat()}")

    view = View(readings, parse_policy)
    await view.refresh()
    app = application(
        view, readings, kinds=JOB_KINDS, cursor_key=KEY, what_ifs=TriedWhatIfs(), forecasts=Later()
    )
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/api/v1/workloads/default/job/one/eta")
        found = await answer.json()
    assert found["phase"] == then
    match then:
        case Phase.ADMITTED:
            assert found["unknown"] == f"it started at {STARTED.isoformat()}"
        case Phase.FINISHED:
            assert found["endedAt"] is not None
        case _:
            assert (found["startedAt"], found["endedAt"]) == (None, None)
            assert found["unknown"].startswith("it did not wait at 20")


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
    assert runs.attempt is not None
    started = (await forecaster.start_of(runs.id, busy)).unknown
    assert started == f"it started at {runs.attempt.admitted_at.isoformat()}"
    gone = (await forecaster.start_of(WorkloadId("none"), busy)).unknown
    assert gone == f"it did not wait at {busy.isoformat()}"

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


@pytest.mark.acceptance
async def test_the_past_is_read_whole_at_first_after_an_error_and_after_hours(
    month: Month, busy: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, whole, down = Clock(), list[bool](), False
    read = month.ledger.past_lives

    async def noted(*, since: datetime, known: PastLives | None = None) -> PastLives:
        if down:
            raise LedgerUnavailable("away")
        whole.append(known is None)
        return await read(since=since, known=known)

    monkeypatch.setattr(month.ledger, "past_lives", noted)
    forecaster = Forecaster(month.ledger, lambda _: DEFAULT_CONFIGURATION, clock)
    waits = waiting(month, busy)[0]

    async def later(seconds: float) -> None:
        clock.now += seconds
        await forecaster.start_of(waits, busy)

    await later(0)
    await later(FRESH_SECONDS)
    down = True
    with pytest.raises(LedgerUnavailable):
        await later(FRESH_SECONDS)
    down = False
    await later(FRESH_SECONDS)
    await later(FRESH_SECONDS)
    await later(WHOLE_SECONDS)
    assert whole == [True, False, True, False, True]
