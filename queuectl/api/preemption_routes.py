"""Preemptions, those that were and those that may come: schemas, documents and endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from queuectl.answers.explanation import Visibility
from queuectl.answers.exposure import ExposureThreat, as_seen, threats
from queuectl.answers.outcomes import seconds
from queuectl.api import requests, schemas
from queuectl.api.answer_routes import visible_nodes
from queuectl.api.http import bad_request, not_found
from queuectl.api.requests import CLUSTER_QUEUES, WORKLOADS, Question, always, endpoint
from queuectl.api.schemas import Committed, Document, NamedDocument
from queuectl.api.view import AnswerSource, Routes, committed, now, page
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.model.reasons import PreemptionCause, named_in
from queuectl.core.model.resources import by_resource
from queuectl.ports.reader import PreemptionRow

SCAN_ROWS: Final = 1000
SCANS: Final = 5
"""How many preemptions one request reads to find those that pass its filter."""


class ShareMove(Document):
    """Dominant share of a node in thousandths; null: infinite."""

    node: str | None = Field(
        description="Such as ClusterQueue/team-a; null where the caller may not read it."
    )
    before: int | None = Field(description="Without the preemptor, and with its victims.")
    after: int | None = Field(description="With the preemptor, and without its victims.")


class Shares(Document):
    """The two sides that fair sharing compares: the children of the nearest common cohort (P8)."""

    preemptor: ShareMove
    victim: ShareMove


class Preemption(Document):
    """A workload that was evicted for another one."""

    sequence: int = Field(description="Of the decision.")
    time: datetime
    namespace: str
    kind: str
    name: str
    uid: str
    attempt: int | None
    cluster_queue: str | None = Field(description="Whose quota it held.")
    cause: PreemptionCause | None = Field(description="The rule (P2 to P9).")
    by: str | None = Field(
        description="The preemptor as namespace/kind/name; null where the caller may not read it."
    )
    shares: Shares | None = Field(
        description="Null in one queue, without fair sharing, and for older decisions."
    )
    ran_seconds: int | None = Field(
        description="From its admission to its eviction: this work is lost, unless it was saved."
    )
    lost: dict[str, int] = Field(description=f"Until its eviction. {schemas.RESOURCE_SECONDS}")


class Exposure(NamedDocument, Committed):
    """Whether a running workload may be preempted now. It may be: sizes and order decide the rest."""

    exposed: bool = Field(description="Some workload waits that may preempt it now.")
    threats: tuple[ExposureThreat, ...] = Field(
        description="Empty: no queue may preempt it, or it does not run."
    )


def _preemption(row: PreemptionRow, caller: Visibility) -> Preemption:
    decision = row.decision
    assert decision.ref is not None
    assert decision.reason is not None
    why = caller.reason(decision.reason)
    ran = None if row.admitted_at is None else int((decision.now - row.admitted_at).total_seconds())
    return Preemption(
        sequence=decision.sequence,
        time=decision.now,
        **decision.ref._asdict(),
        attempt=decision.attempt,
        cluster_queue=row.cluster_queue,
        cause=why.cause,
        by=why.by,
        shares=_shares(decision.payload.get("shares"), caller),
        ran_seconds=ran,
        lost=seconds(by_resource(row.held.items())),
    )


def _shares(stored: Any, caller: Visibility) -> Shares | None:
    if stored is None:
        return None
    return Shares(
        **{
            side: ShareMove(
                node=caller.node(move["node"]),
                before=move["before"],
                after=move["after"],
            )
            for side, move in stored.items()
        }
    )


def _nodes_of(rows: Iterable[PreemptionRow]) -> set[str]:
    """Every node of which a share was recorded."""
    nodes: set[str] = set()
    for row in rows:
        shares: Any = row.decision.payload.get("shares") or {}
        nodes |= {move["node"] for move in shares.values()}
    return nodes


class PreemptionRoutes(Routes):
    """They read the ledger's history, and the view for the state now."""

    def __init__(self, source: AnswerSource, workloads: WorkloadRoutes) -> None:
        self._source = source
        self._workloads = workloads

    @endpoint(
        "/api/v1/preemptions",
        "Workloads that were evicted for others, newest first: by which rule, and what was lost",
        schemas.Page[Preemption],
        (
            *(requests.NAMESPACE, requests.QUEUE, requests.CLUSTER_QUEUE),
            *(requests.FROM, requests.UNTIL, requests.AS_OF, requests.LIMIT, requests.NEXT),
        ),
        heavy=always,
        notes="Those of workloads that the caller may list. A page may be empty although `next` is set.",
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
        by = set(named_in(*(row.decision.reason for row in rows)))
        visible = replace(
            await visible_nodes(question, _nodes_of(rows)),
            namespaces=await question.caller.namespaces("get", WORKLOADS, by),
        )
        items = (_preemption(row, visible) for row in rows)
        return await page(Preemption, items, next, sight)

    async def _rows(self, question: Question, last: int) -> tuple[list[PreemptionRow], str | None]:
        """Newest first, from a bounded number of rows; see `next`."""
        after = await self._source.after(question)
        before = int(after[0]) if after else last + 1
        rows: list[PreemptionRow] = []
        for _ in range(SCANS):
            scanned = await self._source.ask(
                self._source.readings.preemptions(
                    before=before,
                    since=question.values.get("since"),
                    until=question.values.get("until"),
                    limit=SCAN_ROWS,
                )
            )
            passing = await self._passing(question, scanned)
            for row in scanned:
                before = row.decision.sequence
                if before in passing:
                    rows.append(row)
                    if len(rows) == question.limit:
                        return rows, self._source.next(question, [before])
            if len(scanned) < SCAN_ROWS:
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
            if queue is None or row.cluster_queue == queue
        }

    @endpoint(
        "/api/v1/workloads/{namespace}/{kind}/{name}/exposure",
        "Whether one workload may be preempted now, and by which ClusterQueues",
        Exposure,
        (requests.AS_OF,),
    )
    async def exposure(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.find(question)
        sight = await self._source.sight_of(question)
        threatening = await threats(workload, sight.state, now(sight))
        queues = {one.cluster_queue for one in threatening if one.cluster_queue is not None}
        visible = Visibility(cluster_queues=await question.caller.names(CLUSTER_QUEUES, queues))
        return Exposure(
            **workload.ref._asdict(),
            exposed=any(one.pending and one.protected_until is None for one in threatening),
            threats=as_seen(threatening, visible),
            **committed(sight),
        )
