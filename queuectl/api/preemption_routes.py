"""The endpoints of preemptions: those that were, and those that may come. From a Question to a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from queuectl.answers.exposure import threats
from queuectl.api import preemption_documents as documents
from queuectl.api import preemption_schemas, query, schemas
from queuectl.api.answer_routes import always, now, readable_nodes
from queuectl.api.identity import CLUSTER_QUEUES, WORKLOADS
from queuectl.api.problems import bad_request, not_found
from queuectl.api.requests import Endpoint, Question, Source, committed, page
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.redaction import named_in
from queuectl.ports.reader import PreemptionRow

SCAN_ROWS: Final = 1000
SCANS: Final = 5
"""How many preemptions one request reads to find those that pass its filter."""


class PreemptionRoutes:
    """They read the ledger's history, and the view for the state now."""

    def __init__(self, source: Source, workloads: WorkloadRoutes) -> None:
        self._source = source
        self._workloads = workloads

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/preemptions",
                "Workloads that were evicted for others, newest first: by which rule, and what was lost",
                self.preemptions,
                schemas.Page[preemption_schemas.Preemption],
                (
                    *(query.NAMESPACE, query.QUEUE, query.CLUSTER_QUEUE),
                    *(query.FROM, query.UNTIL, query.AS_OF, query.LIMIT, query.NEXT),
                ),
                always,
                "Those of workloads that the caller may list. A page may be empty although `next` is set.",
            ),
            Endpoint(
                "/api/v1/workloads/{namespace}/{kind}/{name}/exposure",
                "Whether one workload may be preempted now, and by which ClusterQueues",
                self.exposure,
                preemption_schemas.Exposure,
                (query.AS_OF,),
            ),
        )

    async def preemptions(self, question: Question) -> schemas.Committed:
        namespace = question.values.get("namespace")
        if namespace is not None and not await question.caller.may("list", WORKLOADS, namespace):
            raise not_found()
        since, until = question.values.get("since"), question.values.get("until")
        if since is not None and until is not None and since >= until:
            raise bad_request(f"parameter since must be before {until.isoformat()}")
        sight = await self._source.sight_of(question, WORKLOADS if namespace is None else None)
        rows, next = await self._rows(question, sight.state.sequence)
        readable = await readable_nodes(question, documents.nodes_of(rows))
        by = set(named_in(*(row.decision.reason for row in rows)))
        namespaces = await question.caller.namespaces("get", WORKLOADS, by)
        items = (documents.preemption(row, namespaces, readable) for row in rows)
        return await page(preemption_schemas.Preemption, items, next, sight)

    async def _rows(self, question: Question, last: int) -> tuple[list[PreemptionRow], str | None]:
        """Newest first, from a bounded number of rows; see `next`."""
        after = await self._source.after(question)
        before = int(after[0]) if after else last + 1
        rows: list[PreemptionRow] = []
        for _ in range(SCANS):
            found = await self._source.ask(
                self._source.readings.preemptions(
                    before=before,
                    since=question.values.get("since"),
                    until=question.values.get("until"),
                    limit=SCAN_ROWS,
                )
            )
            passing = await self._passing(question, found)
            for row in found:
                before = row.decision.sequence
                if before in passing:
                    rows.append(row)
                    if len(rows) == question.limit:
                        return rows, self._source.next(question, [before])
            if len(found) < SCAN_ROWS:
                return rows, None
        return rows, self._source.next(question, [before])

    async def _passing(self, question: Question, rows: Sequence[PreemptionRow]) -> set[int]:
        """Sequences of those that pass the filters, and whose workloads the caller may list."""
        values = question.values
        decisions = await self._workloads.passing(question, [row.decision for row in rows])
        queue = values.get("clusterqueue")
        return {
            row.decision.sequence
            for row in rows
            if row.decision.sequence in decisions
            if queue is None or (row.held is not None and row.held.cluster_queue == queue)
        }

    async def exposure(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.found(question)
        sight = await self._source.sight_of(question)
        found = await threats(workload, sight.state, now(sight))
        queues = await question.caller.names(CLUSTER_QUEUES, {one.cluster_queue for one in found})
        return documents.exposure(workload, found, queues, committed(sight))
