"""What each path answers. No HTTP here: a Question goes in, a document comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from queuectl.api import documents, query, schemas
from queuectl.api.identity import Caller
from queuectl.api.problems import not_found, unavailable
from queuectl.api.query import Cursor, Cursors, Parameter
from queuectl.api.state import OVER, State
from queuectl.api.view import Sight, View
from queuectl.core.model import LocalQueueName, StoredWorkload, WorkloadId
from queuectl.kinds.jobs import job_kind
from queuectl.ports import LedgerUnavailable, Readings, SchemaMismatch

LEDGER_SECONDS: Final = 5.0
"""How long one look into the ledger's history may take."""
SCAN_ROWS: Final = 1000
SCANS: Final = 5
"""How far one request looks through what is over for rows that pass its filter."""

_PAGE: Final = (query.LIMIT, query.NEXT)
_FILTERS: Final = (
    query.NAMESPACE,
    query.QUEUE,
    query.CLUSTER_QUEUE,
    query.PHASE,
    query.REASON,
    query.KIND,
)

Item = TypeVar("Item", bound=schemas.Document)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Question:
    caller: Caller
    path: Mapping[str, str]
    values: Mapping[str, Any]
    """Query parameters, parsed."""
    scope: str
    """What a cursor is bound to."""

    @property
    def limit(self) -> int:
        return int(self.values.get("limit", query.DEFAULT_LIMIT))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the table of paths."""

    path: str
    summary: str
    answer: Callable[[Question], Awaitable[schemas.Committed]]
    model: type[schemas.Committed]
    parameters: tuple[Parameter, ...] = ()


class Routes:
    """Reads the view, and the ledger's history where the view has no answer."""

    def __init__(self, view: View, readings: Readings, cursors: Cursors) -> None:
        self._view = view
        self._readings = readings
        self._cursors = cursors

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (*self._of_queues(), *self._of_workloads())

    def _of_queues(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/clusterqueues",
                "ClusterQueues by name",
                self.cluster_queues,
                schemas.Page[schemas.ClusterQueue],
                _PAGE,
            ),
            Endpoint(
                "/api/v1/clusterqueues/{name}",
                "One ClusterQueue",
                self.cluster_queue,
                schemas.ClusterQueueDetail,
            ),
            Endpoint(
                "/api/v1/localqueues",
                "LocalQueues by namespace and name",
                self.local_queues,
                schemas.Page[schemas.LocalQueue],
                (query.NAMESPACE, query.CLUSTER_QUEUE, *_PAGE),
            ),
            Endpoint(
                "/api/v1/localqueues/{namespace}/{name}",
                "One LocalQueue",
                self.local_queue,
                schemas.LocalQueueDetail,
            ),
        )

    def _of_workloads(self) -> tuple[Endpoint, ...]:
        one = "/api/v1/workloads/{namespace}/{kind}/{name}"
        return (
            Endpoint(
                "/api/v1/workloads",
                "Workloads in the order of their first sight",
                self.workloads,
                schemas.Page[schemas.Workload],
                (*_FILTERS, *_PAGE),
            ),
            Endpoint(
                one,
                "One workload: why it waits, who holds what it lacks, what would help",
                self.workload,
                schemas.WorkloadDetail,
            ),
            Endpoint(
                f"{one}/history",
                "Decisions on one workload, oldest first",
                self.history,
                schemas.Page[schemas.Decision],
                _PAGE,
            ),
        )

    # --- queues -----------------------------------------------------------------------------------

    async def cluster_queues(self, question: Question) -> schemas.Committed:
        sight = self._sight()
        after = self._after(question)
        rows = [queue for queue in sight.state.cluster_queues() if after is None or queue.name > after[0]]
        page, next = self._cut(question, rows, lambda queue: [queue.name])
        return _page(schemas.ClusterQueue, map(documents.cluster_queue, page), next, sight)

    async def cluster_queue(self, question: Question) -> schemas.Committed:
        sight = self._sight()
        queue = sight.state.queues.get(question.path["name"])
        if queue is None:
            raise not_found()
        return documents.cluster_queue_detail(queue, _committed(sight))

    async def local_queues(self, question: Question) -> schemas.Committed:
        sight = self._sight()
        after = self._after(question)
        namespace, parent = question.values.get("namespace"), question.values.get("clusterqueue")
        rows = [
            queue
            for queue in sight.state.local_queues()
            if question.caller.may_read(queue.local.name.namespace)
            if namespace is None or queue.local.name.namespace == namespace
            if parent is None or queue.local.cluster_queue == parent
            if after is None or queue.local.name > tuple(after)
        ]
        page, next = self._cut(question, rows, lambda queue: list(queue.local.name))
        return _page(schemas.LocalQueue, map(documents.local_queue, page), next, sight)

    async def local_queue(self, question: Question) -> schemas.Committed:
        sight = self._sight()
        name = LocalQueueName(question.path["namespace"], question.path["name"])
        queue = sight.state.local_queue(name)
        if queue is None or not question.caller.may_read(name.namespace):
            raise not_found()
        return documents.local_queue_detail(queue, _committed(sight))

    # --- workloads --------------------------------------------------------------------------------

    async def workloads(self, question: Question) -> schemas.Committed:
        sight = self._sight()
        after = self._after(question)
        if question.values.get("phase") in OVER:
            page, next = await self._over(question, after[0] if after else None)
        else:
            rows = self._open(question, sight.state, after)
            page, next = self._cut(question, rows, lambda workload: [workload.arrival, workload.id])
        items = (documents.workload(workload, sight.state) for workload in page)
        return _page(schemas.Workload, items, next, sight)

    def _open(self, question: Question, state: State, after: Cursor | None) -> list[StoredWorkload]:
        """One more than the page holds, where there are as many."""
        start = 0 if after is None else state.after(after[0], WorkloadId(after[1]))
        rows: list[StoredWorkload] = []
        for _, id in state.arrivals[start:]:
            workload = state.workloads[id]
            if _passes(question, workload):
                rows.append(workload)
                if len(rows) > question.limit:
                    break
        return rows

    async def _over(
        self, question: Question, before: int | None
    ) -> tuple[Sequence[StoredWorkload], str | None]:
        """What is over, newest first. Looks through a bounded number of rows; `next` goes on from there."""
        rows: list[StoredWorkload] = []
        for _ in range(SCANS):
            found = await self._ask(self._readings.finished(before=before, limit=SCAN_ROWS))
            for ended, workload in found:
                before = ended
                if _passes(question, workload):
                    rows.append(workload)
                    if len(rows) == question.limit:
                        return rows, self._cursors.write([before], question.scope)
            if len(found) < SCAN_ROWS:
                return rows, None
        return rows, self._cursors.write([before], question.scope)

    async def workload(self, question: Question) -> schemas.Committed:
        workload = await self._find(question)
        sight = self._sight()
        return documents.workload_detail(workload, sight.state, question.caller.may_read, _committed(sight))

    async def history(self, question: Question) -> schemas.Committed:
        workload = await self._find(question)
        sight = self._sight()
        after = self._after(question)
        found = await self._ask(
            self._readings.history(workload.id, after=after[0] if after else 0, limit=question.limit + 1)
        )
        # One answer, one state: what was decided since belongs to the next one.
        rows = [row for row in found if row.sequence <= sight.state.sequence]
        page, next = self._cut(question, rows, lambda row: [row.sequence])
        return _page(schemas.Decision, map(documents.decision, page), next, sight)

    async def _find(self, question: Question) -> StoredWorkload:
        asked = self._view.moment()
        namespace, name = question.path["namespace"], question.path["name"]
        kind = job_kind(question.path["kind"])
        if kind is None or not question.caller.may_read(namespace):
            raise not_found()
        if not (query.is_name(namespace) and query.is_name(name)):
            raise not_found()
        found = self._sight().state.find(namespace, kind.name, name)
        if found is None:
            # It may be newer than the state, or over.
            await self._view.refresh(asked)
            found = self._sight().state.find(namespace, kind.name, name)
        if found is None:
            found = await self._ask(self._readings.find(namespace, kind.name, name))
            if found is not None and found.phase not in OVER:
                # Committed since: the answer is to be from one state, and one that has it.
                await self._view.refresh(self._view.moment())
                found = self._sight().state.find(namespace, kind.name, name) or found
        if found is None:
            raise not_found()
        return found

    # --- shared by all ----------------------------------------------------------------------------

    def _sight(self) -> Sight:
        sight = self._view.sight()
        if sight is None:
            raise unavailable(self._view.problem or "not read yet")
        return sight

    def _after(self, question: Question) -> Cursor | None:
        text = question.values.get("next")
        return None if text is None else self._cursors.read(text, question.scope)

    def _cut(
        self, question: Question, rows: list[Found], end: Callable[[Found], Cursor]
    ) -> tuple[Sequence[Found], str | None]:
        page = rows[: question.limit]
        more = len(rows) > len(page)
        return page, self._cursors.write(end(page[-1]), question.scope) if more else None

    async def _ask(self, reading: Awaitable[Found]) -> Found:
        try:
            async with asyncio.timeout(LEDGER_SECONDS):
                return await reading
        except TimeoutError:
            raise unavailable(f"no answer within {LEDGER_SECONDS:g} s") from None
        except (LedgerUnavailable, SchemaMismatch) as error:
            raise unavailable(str(error)) from None


def _passes(question: Question, workload: StoredWorkload) -> bool:
    values = question.values
    code = workload.reason.code if workload.reason else None
    return (
        question.caller.may_read(workload.ref.namespace)
        and values.get("namespace", workload.ref.namespace) == workload.ref.namespace
        and values.get("queue", workload.queue) == workload.queue
        and values.get("clusterqueue", workload.cluster_queue) == workload.cluster_queue
        and values.get("phase", workload.phase) == workload.phase
        and values.get("kind", workload.ref.kind) == workload.ref.kind
        and values.get("reason", code) == code
    )


def _committed(sight: Sight) -> dict[str, Any]:
    return {
        "sequence": sight.state.sequence,
        "age_seconds": round(sight.age_seconds, 3),
        "stale": sight.stale,
    }


def _page(model: type[Item], items: Iterator[Item], next: str | None, sight: Sight) -> schemas.Page[Item]:
    return schemas.Page[model](items=tuple(items), next=next, **_committed(sight))  # type: ignore[valid-type]
