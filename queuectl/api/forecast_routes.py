"""The endpoint that tells when a pending workload starts (docs/answers.md, A12 to A17)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from pydantic import Field

from queuectl.answers.state import OVER
from queuectl.api import schemas
from queuectl.api.http import unavailable
from queuectl.api.limits import Turns
from queuectl.api.requests import Question, always, endpoint
from queuectl.api.view import AnswerSource, Routes, committed, now, while_asked
from queuectl.api.workload_routes import Times, WorkloadRoutes, decisions_on, times
from queuectl.core.model.workload import Phase, StoredWorkload
from queuectl.ports.ledger import LedgerUnavailable, NotStored, SchemaMismatch
from queuectl.ports.reader import Calibration, Forecasts, StartForecast

FORECAST_SECONDS: Final = 60.0
"""How long one forecast may take, with the time that it waits for others."""


class Eta(schemas.NamedDocument, schemas.Committed):
    """When a pending workload starts. Seconds are from `at`, and null where it starts later than `after`."""

    queue: str
    cluster_queue: str | None
    phase: Phase
    at: datetime = Field(description="The time of the forecast.")
    unknown: str | None = Field(description="Why there is no forecast; null: there is one.")
    started_at: datetime | None = Field(
        description="The last admission of a workload that holds quota or is over; null: it has none."
    )
    ended_at: datetime | None = Field(description="The end of a workload that is over.")
    low_seconds: float | None = Field(description="One of ten draws starts earlier.")
    median_seconds: float | None = Field(description="Half of the draws start earlier.")
    high_seconds: float | None = Field(
        description="One of ten draws starts later: 80 % are from low to high."
    )
    after_seconds: float | None = Field(
        description="All draws were played up to here: null if it starts in all of them."
    )
    draws: int
    calibration: Calibration | None = Field(
        description="How often such intervals held in its cohort tree; null: not checked yet, or too few."
    )


class ForecastRoutes(Routes):
    """One endpoint. Without `forecasts` it is unavailable."""

    def __init__(self, source: AnswerSource, workloads: WorkloadRoutes, forecasts: Forecasts | None) -> None:
        self._source = source
        self._workloads = workloads
        self._forecasts = forecasts
        self._turns = Turns()

    @endpoint(
        "/api/v1/workloads/{namespace}/{kind}/{name}/eta",
        "When one pending workload starts: median and 80 % interval",
        Eta,
        heavy=always,
        notes=f"It may take up to {FORECAST_SECONDS:g} s; a state is used again for some seconds.",
    )
    async def start(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.find(question)
        known = await self._known(workload)
        sight = self._source.sight()
        if known is None:
            found = await self._forecast(question, workload, now(sight))
            if found.unknown is not None:
                # It may have started or ended after the state of this server.
                await self._source.view.refresh(self._source.view.moment())
                workload = await self._workloads.find(question)
                known, sight = await self._known(workload), self._source.sight()
        if known is not None:
            found = StartForecast(now(sight), sight.state.sequence, str(known))
        started, ended = known or Times()
        return Eta(
            **workload.ref._asdict(),
            queue=workload.queue,
            cluster_queue=workload.cluster_queue,
            phase=workload.phase,
            at=found.at,
            unknown=found.unknown,
            started_at=started,
            ended_at=ended,
            low_seconds=found.low,
            median_seconds=found.median,
            high_seconds=found.high,
            after_seconds=found.after,
            draws=found.draws,
            calibration=found.calibration,
            **committed(sight),
        )

    async def _known(self, workload: StoredWorkload) -> Times | None:
        """None: it waits, or its pods are ending, so it may start again. Raises a 503."""
        if workload.phase in OVER:
            last = self._source.sight().state.sequence
            rows, _ = await decisions_on(self._source, workload.id, last)
            return times(rows)
        if workload.phase is Phase.ADMITTED and workload.attempt is not None:
            return Times(workload.attempt.admitted_at)
        return None

    async def _forecast(self, question: Question, workload: StoredWorkload, at: datetime) -> StartForecast:
        """Raises a 503."""
        if self._forecasts is None:
            raise unavailable("this server makes no forecasts")
        try:
            async with asyncio.timeout(FORECAST_SECONDS), self._turns.turn(question.caller.tenant):
                return await while_asked(question, self._forecasts.start_of(workload.id, at))
        except TimeoutError:
            raise unavailable(f"no forecast within {FORECAST_SECONDS:g} s: others are computed") from None
        except (LedgerUnavailable, NotStored, SchemaMismatch) as error:
            raise unavailable(str(error)) from None
