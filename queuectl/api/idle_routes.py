"""What admitted workloads do with their devices: schemas and the endpoint (docs/accounting.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from queuectl.answers.state import CommittedState
from queuectl.api import schemas
from queuectl.api.http import unavailable
from queuectl.api.requests import ALL, WORKLOADS, Allowed, Endpoint, Parameter, Question
from queuectl.api.schemas import Committed, NamedDocument
from queuectl.api.view import AnswerSource, committed
from queuectl.core.model.workload import StoredWorkload, WorkloadId
from queuectl.ports.idle import RecordedUse, UseReadings, UseVerdict

VERDICT: Final = Parameter(
    "verdict",
    Annotated[UseVerdict, Field(strict=False)],
    "Only workloads of this verdict. Without it: all that hold devices.",
)


class WorkloadUse(NamedDocument):
    """What one admitted workload does with its devices."""

    queue: str
    cluster_queue: str | None
    submitter: str | None
    attempt: int
    verdict: UseVerdict
    since: datetime = Field(description="When it was found first. What it says lasted for a window by then.")
    devices: int = Field(description="It holds quota for so many.")
    idle_devices: int = Field(description="Of these, how many are idle or hang.")
    wasted_seconds: int = Field(description="Seconds of devices that this attempt has left idle so far.")
    coverage: float = Field(description="The least share of the expected samples that a device has, 0 to 1.")
    engine: float | None = Field(
        description="Mean activity of the engines, 0 to 1, when the verdict was found. Null: unknown."
    )
    multiprocessors: float | None = Field(description="The same of the streaming multiprocessors.")


class IdleReport(Committed):
    """What admitted workloads do with their devices, as last checked."""

    checked_at: datetime | None = Field(
        description="Null: there was no check yet, or none is configured (idle.prometheus)."
    )
    problem: str | None = Field(description="Why the last check found nothing. Null: it found what is there.")
    items: tuple[WorkloadUse, ...] = Field(
        description="Of namespaces in which the caller may list workloads; what wastes most comes first."
    )
    others: int = Field(description="Devices that are idle or hang in all other namespaces.")


class IdleRoutes:
    def __init__(self, source: AnswerSource, use: UseReadings | None) -> None:
        """Without `use` every answer is a 503."""
        self._source = source
        self._use = use

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/idle",
                "What admitted workloads do with their GPUs",
                self.idle,
                IdleReport,
                (VERDICT,),
            ),
        )

    async def idle(self, question: Question) -> schemas.Committed:
        if self._use is None:
            raise unavailable("this server has no verdicts about devices")
        sight = self._source.sight()
        found = await self._source.ask(self._use.device_use())
        workloads = sight.state.workloads
        # Of another attempt, or of none: it was evicted, or is over, since the check.
        rows = [row for row in found.verdicts if _is_held(row, workloads)]
        namespaces = {workloads[row.workload].ref.namespace for row in rows}
        allowed = await question.caller.namespaces("list", WORKLOADS, namespaces)
        problem = found.problem
        if problem is not None and not await question.caller.may("list", WORKLOADS):
            problem = "the last check failed"
        wanted = question.values.get("verdict")
        if wanted is not None:
            rows = [row for row in rows if row.finding.verdict == wanted]
        items, others = await asyncio.to_thread(_items, rows, sight.state, allowed)
        return IdleReport(
            checked_at=found.checked_at, problem=problem, items=items, others=others, **committed(sight)
        )


def _items(
    rows: Iterable[RecordedUse], state: CommittedState, allowed: Allowed
) -> tuple[tuple[WorkloadUse, ...], int]:
    """Those that the caller may read, and how many devices of all others are idle or hang."""
    items, others = [], 0
    for row in rows:
        if allowed is ALL or state.workloads[row.workload].ref.namespace in allowed:
            items.append(_item(row, state))
        else:
            others += row.finding.idle_devices
    items.sort(key=lambda item: (-item.wasted_seconds, -item.idle_devices, item.namespace, item.name))
    return tuple(items), others


def _is_held(row: RecordedUse, workloads: Mapping[WorkloadId, StoredWorkload]) -> bool:
    """Return whether the attempt that the verdict is about holds quota."""
    workload = workloads.get(row.workload)
    return workload is not None and workload.attempt is not None and workload.attempt.number == row.attempt


def _item(row: RecordedUse, state: CommittedState) -> WorkloadUse:
    workload, finding = state.workloads[row.workload], row.finding
    return WorkloadUse(
        **workload.ref._asdict(),
        queue=workload.queue,
        cluster_queue=workload.cluster_queue,
        submitter=workload.submitter,
        attempt=row.attempt,
        verdict=finding.verdict,
        since=row.since,
        devices=finding.devices,
        idle_devices=finding.idle_devices,
        wasted_seconds=row.wasted,
        coverage=finding.coverage,
        engine=finding.engine,
        multiprocessors=finding.multiprocessors,
    )
