"""The endpoints that answer from history: where a wait went. From a Question to a document."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from queuectl.api import answer_documents, answer_schemas, schemas, waits
from queuectl.api.asking import Endpoint, Question, Source, committed
from queuectl.api.state import OVER
from queuectl.api.view import Sight
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.model import StoredWorkload
from queuectl.ports import DecisionRow

PAGE: Final = 1000
PAGES: Final = 10
"""Decisions on one workload are read in so many pages at most: its wait is told up to there."""


class AnswerRoutes:
    """They read the ledger's history, and the view for the state now."""

    def __init__(self, source: Source, workloads: WorkloadRoutes) -> None:
        self._source = source
        self._workloads = workloads

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/workloads/{namespace}/{kind}/{name}/waited",
                "Where the wait of one workload went, also after its end",
                self.waited,
                answer_schemas.Waited,
                heavy=_always,
                notes=f"From its first {PAGE * PAGES} decisions; `until` is earlier than now if it has more.",
            ),
        )

    async def waited(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.found(question)
        sight = self._source.sight()
        rows, more = await self._decisions(workload, sight.state.sequence)
        lasts = rows[-1].now if more or workload.phase in OVER else now(sight)
        found = waits.spells(rows, workload.created_at, max(lasts, workload.created_at))
        asked = waits.spans(found)
        told = await self._source.ask(self._source.readings.starts(list(asked.values()))) if asked else []
        wait = waits.breakdown(found, dict(zip(asked, told, strict=True)))
        return answer_documents.waited(workload, wait, committed(sight))

    async def _decisions(self, workload: StoredWorkload, last: int) -> tuple[list[DecisionRow], bool]:
        """Oldest first, up to sequence `last`, and whether there are more."""
        rows: list[DecisionRow] = []
        for _ in range(PAGES):
            after = rows[-1].sequence if rows else 0
            found = await self._source.ask(
                self._source.readings.history(workload.id, after=after, limit=PAGE)
            )
            rows += [row for row in found if row.sequence <= last]
            if len(found) < PAGE or found[-1].sequence >= last:
                return rows, False
        return rows, True


def now(sight: Sight) -> datetime:
    """By the clock of the ledger."""
    return sight.committed_at + timedelta(seconds=sight.silent_seconds)


def _always(values: Mapping[str, Any]) -> bool:
    return True
