"""What admitted workloads do with their devices: schemas and the endpoint (docs/accounting.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from queuectl.answers.state import CommittedState
from queuectl.api import schemas
from queuectl.api.http import unavailable
from queuectl.api.requests import WORKLOADS, Allowed, Parameter, Question, endpoint
from queuectl.api.schemas import Committed, Document, NamedDocument
from queuectl.api.view import AnswerSource, Routes, committed
from queuectl.core.model.device_use import DeviceUse, UseVerdict
from queuectl.core.model.workload import StoredWorkload
from queuectl.ports.idle import UseReadings

VERDICT: Final = Parameter(
    "verdict",
    Annotated[UseVerdict, Field(strict=False)],
    "Only workloads of this verdict. Without it: all that hold devices.",
)


class GivenNotice(Document):
    """An IdlePolicy has told the user that the devices do nothing, or would have."""

    policy: str
    at: datetime
    hold_at: datetime | None = Field(
        description="When it is stopped, and held or cancelled, at the earliest. Null: it is not."
    )
    cancels: bool = Field(description="It is cancelled then, and is over. Else it is held.")
    lower_at: datetime | None = Field(
        description="When it has the priority of a lower class at the earliest. Null: it keeps its own."
    )
    dry_run: bool = Field(description="The user was not told, and nothing will be done.")
    held_at: datetime | None = Field(description="Of a dry run: when it would have been held. Null: not yet.")


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
    idle_since: datetime | None = Field(
        description="Since when it is Idle or hangs, Unknown left out. Null: it does not."
    )
    notice: GivenNotice | None = Field(description="Of an IdlePolicy, since then. Null: none.")


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


class IdleRoutes(Routes):
    def __init__(self, source: AnswerSource, use: UseReadings | None) -> None:
        """Without `use` every answer is a 503."""
        self._source = source
        self._use = use

    @endpoint("/api/v1/idle", "What admitted workloads do with their GPUs", IdleReport, (VERDICT,))
    async def idle(self, question: Question) -> schemas.Committed:
        if self._use is None:
            raise unavailable("this server has no verdicts about devices")
        sight = self._source.sight()
        found = await self._source.ask(self._use.device_check())
        rows = await asyncio.to_thread(_judged, sight.state)
        namespaces = {workload.ref.namespace for workload, _ in rows}
        allowed = await question.caller.namespaces("list", WORKLOADS, namespaces)
        problem = found.problem
        if problem is not None and not await question.caller.may("list", WORKLOADS):
            problem = "the last check failed"
        wanted = question.values.get("verdict")
        if wanted is not None:
            rows = [row for row in rows if row[1].finding.verdict == wanted]
        items, others = await asyncio.to_thread(_items, rows, allowed, found.checked_at)
        return IdleReport(
            checked_at=found.checked_at, problem=problem, items=items, others=others, **committed(sight)
        )


def _judged(state: CommittedState) -> list[tuple[StoredWorkload, DeviceUse]]:
    """Workloads with a verdict about the attempt that they hold quota for."""
    return [(one, use) for one in state.workloads.values() if (use := one.use) is not None]


def _items(
    rows: Iterable[tuple[StoredWorkload, DeviceUse]], allowed: Allowed, checked_at: datetime | None
) -> tuple[tuple[WorkloadUse, ...], int]:
    """Those that the caller may read, and how many devices of all others are idle or hang."""
    items, others = [], 0
    for workload, use in rows:
        if workload.ref.namespace in allowed:
            items.append(_item(workload, use, checked_at))
        else:
            others += use.finding.idle_devices
    items.sort(key=lambda item: (-item.wasted_seconds, -item.idle_devices, item.namespace, item.name))
    return tuple(items), others


def _item(workload: StoredWorkload, use: DeviceUse, checked_at: datetime | None) -> WorkloadUse:
    return WorkloadUse.of(
        **workload.ref._asdict(),
        **use.finding._asdict(),
        queue=workload.queue,
        cluster_queue=workload.cluster_queue,
        submitter=workload.submitter,
        attempt=use.attempt,
        since=use.since,
        wasted_seconds=use.wasted_at(checked_at or use.since) // 1000,
        idle_since=use.idle_since,
        notice=use.notice,
    )
