"""The endpoints of workloads and decisions, without HTTP: from a Question to a document."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from queuectl.answers.explanation import Explanation, Visibility, as_of, booked_on, explain
from queuectl.answers.outcomes import WorkloadEnd, end_of, seconds
from queuectl.answers.state import OVER, CommittedState, in_parts
from queuectl.answers.story import STORY_LIMIT, remarks
from queuectl.answers.workload_filters import passes
from queuectl.api import requests, schemas
from queuectl.api.http import bad_request, not_found
from queuectl.api.requests import (
    CLUSTER_QUEUES,
    WORKLOADS,
    Allowed,
    Caller,
    Cursor,
    Question,
    always,
    endpoint,
)
from queuectl.api.view import (
    HEARTBEAT_SECONDS,
    AnswerSource,
    Routes,
    Sight,
    committed,
    links_of,
    now,
    page,
    shallow,
)
from queuectl.core.features.nodes.inventory import is_device
from queuectl.core.model.device_use import DeviceUse
from queuectl.core.model.priorities import lowered_in
from queuectl.core.model.reasons import Reason, named_in
from queuectl.core.model.workload import ObjectRef, Phase, StoredWorkload, WorkloadId
from queuectl.ports.history import history_of
from queuectl.ports.reader import DecisionRow

SCAN_ROWS: Final = 1000
SCANS: Final = 5
"""How many rows of history one request reads to find rows that pass its filter."""

_NEWEST: Final = (requests.LIMIT, requests.NEXT)
_PAGE: Final = (requests.AS_OF, *_NEWEST)
_ONE: Final = "/api/v1/workloads/{namespace}/{kind}/{name}"
_FILTERS: Final = (
    requests.NAMESPACE,
    requests.QUEUE,
    requests.CLUSTER_QUEUE,
    requests.PHASE,
    requests.REASON,
    requests.SUBMITTER,
    requests.LABELS,
    requests.NAME,
    requests.SINCE,
    requests.ORDER,
)


# --- documents

REASONS: Final = 8192
"""How many different reasons are kept as documents."""


@lru_cache(REASONS)
def _reason(value: Reason) -> schemas.Reason:
    """Workloads that wait for the same have equal reasons: most of a page are found here."""
    return schemas.Reason.model_validate(value)


def _reasons(state: CommittedState, caller: Visibility) -> Callable[[Reason], schemas.Reason]:
    """The reasons of a page as documents: many workloads have the same one."""
    return cache(lambda value: _reason(as_of(caller.reason(value), state)))


def _workload(value: StoredWorkload, state: CommittedState) -> dict[str, Any]:
    """All fields but the reason and the position."""
    attempt = value.attempt
    return {
        **value.ref._asdict(),
        "queue": value.queue,
        "cluster_queue": value.cluster_queue,
        "phase": value.phase,
        "priority": value.priority,
        "lowered": [
            schemas.LoweredBy(policy=one.policy, priority_class=one.priority_class)
            for one in lowered_in(value.past.lowered, attempt.number if attempt else None)
        ],
        "created_at": value.created_at,
        "submitter": value.submitter,
        "requests": _requests(value),
        "labels": dict(value.labels),
        "attempts": value.attempts,
        "attempt": attempt.number if attempt else None,
        "admitted_at": attempt.admitted_at if attempt else None,
        "pods": attempt.assignment.pods if attempt else sum(one.count for one in value.pod_sets),
        "pods_ready": state.ready(value),
        "use": _use(value.use),
        "admission": attempt.assignment if attempt else None,
    }


def _use(use: DeviceUse | None) -> schemas.DeviceVerdict | None:
    if use is None:
        return None
    found = use.finding
    return schemas.DeviceVerdict(
        verdict=found.verdict, since=use.since, devices=found.devices, idle_devices=found.idle_devices
    )


def _requests(value: StoredWorkload) -> dict[str, int]:
    """The total per resource of the open attempt, else of what its user requests."""
    if value.attempt is not None:
        return value.attempt.assignment.resources()
    total: dict[str, int] = {}
    for pod_set in value.pod_sets:
        for resource, amount in pod_set.requests:
            total[resource] = total.get(resource, 0) + amount * pod_set.count
    return total


def _listed(
    value: StoredWorkload,
    state: CommittedState,
    reasons: Callable[[Reason], schemas.Reason],
    end: WorkloadEnd | None,
) -> schemas.Workload:
    return schemas.Workload(
        **_workload(value, state),
        position=state.position(value),
        reason=None if value.reason is None else reasons(value.reason),
        end=end,
    )


def _explained(
    value: StoredWorkload,
    state: CommittedState,
    explanation: Explanation,
    end: WorkloadEnd | None,
    committed: dict[str, Any],
) -> schemas.WorkloadDetail:
    fields = _workload(value, state) | shallow(explanation) | committed
    own = {"pod_sets": value.pod_sets, "booked": booked_on(value.attribution), "end": end}
    return schemas.WorkloadDetail.model_validate(fields | own)


def _fields(row: DecisionRow) -> dict[str, Any]:
    return {
        "sequence": row.sequence,
        "time": row.now,
        "cycle": row.cycle,
        "epoch": row.epoch,
        "verdict": row.verdict,
        "attempt": row.attempt,
        "reason": _reason(row.reason) if row.reason else None,
        "details": row.payload,
    }


def _decision(
    row: DecisionRow, caller: Visibility, held: Mapping[str, int] | None
) -> schemas.WorkloadDecision:
    return schemas.WorkloadDecision(
        **_fields(caller.decision(row)), resource_seconds=None if held is None else seconds(held)
    )


def _ledger_decision(row: DecisionRow, caller: Visibility, *, specs: bool) -> schemas.LedgerDecision:
    """`specs`: the caller may read the policy too."""
    named = row.ref._asdict() if row.ref else dict.fromkeys(ObjectRef._fields)
    return schemas.LedgerDecision(**_fields(caller.decision(row, specs=specs)), **named)


# --- endpoints


class WorkloadRoutes(Routes):
    """They read the view, and the ledger's history for data that is not in the view."""

    def __init__(self, source: AnswerSource, links: Mapping[str, str] | None = None) -> None:
        self._source, self._links = source, links or {}

    # --- workloads --------------------------------------------------------------------------------

    @endpoint(
        "/api/v1/workloads",
        "Workloads in the order in which they were first seen",
        schemas.Page[schemas.Workload],
        (*_FILTERS, requests.kind_parameter, *_PAGE),
        heavy=lambda values: values.get("phase") in OVER or "asOf" in values,
    )
    async def workloads(self, question: Question) -> schemas.Committed:
        after = await self._source.after(question)
        question = of_caller(question)
        namespace = question.values.get("namespace")
        order = question.values.get("order", "arrival")
        in_line = order == "position"
        if namespace is not None:
            await self._may(question.caller, "list", namespace)
        sight = await self._source.sight_of(question, WORKLOADS if namespace is None else None)
        if question.values.get("phase") in OVER and not in_line:
            ended_by = sight.state.sequence + 1 if "asOf" in question.values else None
            before = after[0] if after else ended_by
            rows, next = await self._over(question, before, _since(question, sight))
        else:
            if namespace is None:
                wanted = await question.caller.namespaces("list", WORKLOADS, sight.state.arrivals)
            else:
                wanted = Allowed(frozenset({namespace}))
            if in_line:
                rows, next = await self._in_line(question, sight, wanted, after)
            elif order in _ORDERS:
                rows, next = await self._ordered(question, sight, wanted, after)
            else:
                open = await self._open(question, sight.state, wanted, after, _since(question, sight))
                rows, next = self._source.cut(question, open, lambda one: [one.arrival, one.id])
        visible = await self._visible(question.caller, "list", *(workload.reason for workload in rows))
        reasons = _reasons(sight.state, visible)
        ends = await self._ends(rows, question, sight.state)
        items = (_listed(workload, sight.state, reasons, ends.get(workload.id)) for workload in rows)
        return await page(schemas.Workload, items, next, sight)

    async def _open(
        self,
        question: Question,
        state: CommittedState,
        namespaces: Allowed,
        after: Cursor | None,
        since: datetime | None,
    ) -> list[StoredWorkload]:
        """One more than the page holds, if there are as many."""
        rows: list[StoredWorkload] = []
        began = (after[0], WorkloadId(after[1])) if after else None
        async for workload in in_parts(state.in_order(namespaces, began)):
            if passes(question.values, workload, since):
                rows.append(workload)
                if len(rows) > question.limit:
                    break
        return rows

    async def _ordered(
        self, question: Question, sight: Sight, namespaces: Allowed, after: Cursor | None
    ) -> tuple[Sequence[StoredWorkload], str | None]:
        """Those that are not over, by `order`. They may move between two pages."""
        key, since = _ORDERS[question.values["order"]], _since(question, sight)
        keyed = [
            ([key(one), one.arrival, one.id], one)
            async for one in in_parts(sight.state.in_order(namespaces, None))
            if passes(question.values, one, since)
        ]
        passing = (row for row in keyed if after is None or row[0] > after)  # 50,000 may take 0.1 s
        rows = await asyncio.to_thread(lambda: heapq.nsmallest(question.limit + 1, passing, itemgetter(0)))
        shown, next = self._source.cut(question, rows, itemgetter(0))
        return [one for _, one in shown], next

    async def _in_line(
        self, question: Question, sight: Sight, namespaces: Allowed, after: Cursor | None
    ) -> tuple[Sequence[StoredWorkload], str | None]:
        """Of one pending queue, by position. The line moves between two pages. Raises a 400."""
        queue = question.values.get("clusterqueue")
        if queue is None or question.values.get("phase", Phase.PENDING) != Phase.PENDING:
            raise bad_request(
                "parameter order=position goes with clusterqueue, and with no phase but Pending"
            )
        since = _since(question, sight)
        rows: list[tuple[int, StoredWorkload]] = []
        async for position, one in in_parts(sight.state.line(queue, after[0] if after else 0)):
            if one.ref.namespace in namespaces and passes(question.values, one, since):
                rows.append((position, one))
                if len(rows) > question.limit:
                    break
        shown, next = self._source.cut(question, rows, lambda row: [row[0]])
        return [one for _, one in shown], next

    async def _over(
        self, question: Question, before: int | None, since: datetime | None
    ) -> tuple[Sequence[StoredWorkload], str | None]:
        """Finished and deleted workloads, newest first, from a bounded number of rows; see `next`."""
        rows: list[StoredWorkload] = []
        for _ in range(SCANS):
            scanned = await self._source.ask(
                self._source.readings.finished(before=before, since=since, limit=SCAN_ROWS)
            )
            passing = {workload.id for _, workload in scanned if passes(question.values, workload)}
            namespaces = {workload.ref.namespace for _, workload in scanned if workload.id in passing}
            allowed = await question.caller.namespaces("list", WORKLOADS, namespaces)
            for ended, workload in scanned:
                before = ended
                if workload.id in passing and workload.ref.namespace in allowed:
                    rows.append(workload)
                    if len(rows) == question.limit:
                        return rows, self._source.next(question, [before])
            if len(scanned) < SCAN_ROWS:
                return rows, None
        return rows, self._source.next(question, [before])

    @endpoint(
        _ONE,
        "One workload: why it is pending, what holds the missing quota, what would help",
        schemas.WorkloadDetail,
        (requests.AS_OF,),
    )
    async def workload(self, question: Question) -> schemas.Committed:
        workload = await self.find(question)
        sight = await self._source.sight_of(question)
        queue = workload.cluster_queue
        if queue is not None and queue in sight.state.queues:
            # The first answer about a tree builds it, for all that follow.
            await asyncio.to_thread(sight.state.tree_of, queue)
        explanation = explain(workload, sight.state)
        visible = Visibility(
            namespaces=await question.caller.namespaces("get", WORKLOADS, explanation.namespaces()),
            cluster_queues=await question.caller.names(CLUSTER_QUEUES, explanation.cluster_queues()),
        )
        end = (await self._ends([workload], question, sight.state)).get(workload.id)
        more = {**committed(sight), "links": links_of(self._links, workload.ref)}
        return _explained(workload, sight.state, explanation.to(visible), end, more)

    async def _ends(
        self, workloads: Iterable[StoredWorkload], question: Question, state: CommittedState
    ) -> dict[WorkloadId, WorkloadEnd | None]:
        """How those that are over ended: also those that ended after this state, which the ledger has."""
        over = [workload.id for workload in workloads if workload.phase in OVER]
        if not over:
            return {}
        readings = self._source.readings
        until = state.sequence if "asOf" in question.values else requests.MAX_SEQUENCE
        lives = await self._source.ask(readings.lives(over, until=until))
        held = await self._source.ask(readings.held_by_attempts(over, until=until))
        return {workload: end_of(decisions, held) for workload, decisions in lives.items()}

    @endpoint(
        f"{_ONE}/history",
        "Decisions on one workload, oldest first",
        schemas.Page[schemas.WorkloadDecision],
        _PAGE,
        heavy=always,
    )
    async def history(self, question: Question) -> schemas.Committed:
        workload = await self.find(question)
        sight = await self._source.sight_of(question)
        after = await self._source.after(question)
        readings, first = self._source.readings, after[0] if after else 0
        decided = await self._source.ask(readings.history(workload.id, after=first, limit=question.limit + 1))
        # An answer is of one state: later decisions belong to the next answer.
        rows = [row for row in decided if row.sequence <= sight.state.sequence]
        shown, next = self._source.cut(question, rows, lambda row: [row.sequence])
        visible = await self._visible(question.caller, "get", *(row.reason for row in shown))
        ended = await self._source.ask(readings.held_by_attempts([workload.id], until=sight.state.sequence))
        items = (_decision(row, visible, ended.get(row.sequence)) for row in shown)
        return await page(schemas.WorkloadDecision, items, next, sight)

    @endpoint(
        f"{_ONE}/story",
        "The last decisions on one workload and the writes to its object, oldest first",
        schemas.Page[schemas.Remark],
        (requests.AS_OF,),
        heavy=always,
        notes=f"At most {STORY_LIMIT} items; `next` is always null.",
    )
    async def story(self, question: Question) -> schemas.Committed:
        workload = await self.find(question)
        sight = await self._source.sight_of(question)
        rows = await self._source.ask(
            self._source.readings.story(workload.id, until=sight.state.sequence, limit=STORY_LIMIT)
        )
        visible = await self._visible(question.caller, "get", *(row.reason for row in rows.decisions))
        items = (
            schemas.Remark(time=at, what=what, detail=str(detail))
            for at, what, detail in remarks(rows, visible)
        )
        return await page(schemas.Remark, items, None, sight)

    async def find(self, question: Question) -> StoredWorkload:
        """The workload that the path names. Raises a 404."""
        view = self._source.view
        asked = view.moment()
        namespace, name = question.path["namespace"], question.path["name"]
        kind = self._source.kinds.find(question.path["kind"])
        if kind is None or not (requests.is_name(namespace) and requests.is_workload_name(name)):
            raise not_found()
        # First, so that the response time does not reveal whether the workload exists.
        await self._may(question.caller, "get", namespace)
        if "asOf" in question.values:
            return await self._find_then(question, (namespace, kind.name, name))
        workload = self._source.sight().state.find(namespace, kind.name, name)
        if workload is None:
            # It may be newer than the state, or Finished or Deleted.
            await view.refresh(asked)
            workload = self._source.sight().state.find(namespace, kind.name, name)
        if workload is None:
            workload = await self._source.ask(self._source.readings.find(namespace, kind.name, name))
            if workload is not None and workload.phase not in OVER:
                # Committed after this state: answer from a state that includes it.
                await view.refresh(view.moment())
                workload = self._source.sight().state.find(namespace, kind.name, name) or workload
        if workload is None:
            raise not_found()
        return workload

    async def _find_then(self, question: Question, which: tuple[str, str, str]) -> StoredWorkload:
        """The workload of that name at an earlier time, also if it was over then."""
        state = (await self._source.sight_of(question)).state
        if (workload := state.find(*which)) is not None:
            return workload
        workload = await self._source.ask(self._source.readings.find(*which, ended_by=state.sequence))
        if workload is None:
            raise not_found()
        return workload

    # --- decisions --------------------------------------------------------------------------------

    @endpoint(
        "/api/v1/decisions",
        "Decisions by sequence, oldest first",
        schemas.Decisions,
        (requests.AFTER, requests.EPOCH, requests.WAIT, requests.NAMESPACE, requests.QUEUE, *_PAGE),
        heavy=always,
        notes="All decisions for callers that may list all workloads; for others those on workloads they "
        "may list. If `next` is null, all decisions up to `sequence` have been returned: continue "
        "with `after` set to it and `epoch` set to that of the answer. A page may be empty although "
        "`next` is set.",
    )
    async def decisions(self, question: Question) -> schemas.Committed:
        namespace = question.values.get("namespace")
        if namespace is not None:
            await self._may(question.caller, "list", namespace)
        if "asOf" in question.values and "wait" in question.values:
            raise bad_request("parameter wait does not go with asOf: no decisions will come")
        sight = await self._source.sight_of(question, WORKLOADS if namespace is None else None)
        cursor = await self._source.after(question)
        newest = max(0, sight.state.sequence - question.limit)
        after = int(cursor[0]) if cursor else int(question.values.get("after", newest))
        if cursor is None and "after" in question.values and "epoch" in question.values:
            after = await self._source.still_there(after, question.values["epoch"])
        rows, more = await self._decided(question, after, sight.state.sequence)
        if not rows and more is None and (seconds := question.values.get("wait")):
            with question.waiting():
                until = self._source.view.moment() + seconds
                while not rows and more is None and (left := until - self._source.view.moment()) > 0:
                    after = max(after, sight.state.sequence)
                    await self._source.view.beyond(after, min(left, HEARTBEAT_SECONDS))
                    if question.gone():
                        break
                    # The caller's rights may have changed during the wait.
                    question = replace(question, caller=await question.again())
                    if namespace is not None:
                        await self._may(question.caller, "list", namespace)
                    epoch, sight = sight.state.epoch, self._source.sight()
                    after = await self._source.still_there(after, epoch)
                    rows, more = await self._decided(question, after, sight.state.sequence)
        specs = await question.caller.may("list", CLUSTER_QUEUES)
        visible = await self._visible(question.caller, "list", *(row.reason for row in rows))
        items = (_ledger_decision(row, visible, specs=specs) for row in rows)
        next = None if more is None else self._source.next(question, [more])
        listed = await page(schemas.LedgerDecision, items, next, sight)
        return schemas.Decisions(**dict(listed), epoch=sight.state.epoch)

    async def _decided(
        self, question: Question, after: int, last: int
    ) -> tuple[list[DecisionRow], int | None]:
        """Decisions up to `last`, and the sequence to continue after; None: there are no more."""
        rows: list[DecisionRow] = []
        everything = not question.values.keys() & {"namespace", "queue"} and await question.caller.may(
            "list", WORKLOADS
        )
        step = question.limit + 1 if everything else SCAN_ROWS
        for _ in range(SCANS):
            if after >= last:
                return rows, None
            scanned = await self._source.ask(self._source.readings.decisions(after=after, limit=step))
            passing = None if everything else await self.passing(question, scanned)
            for row in scanned:
                if row.sequence > last:
                    return rows, None
                if passing is None or row.sequence in passing:
                    if len(rows) == question.limit:
                        return rows, after
                    rows.append(row)
                after = row.sequence
            if len(scanned) < step:
                return rows, None
        return rows, after

    async def passing(self, question: Question, rows: Sequence[DecisionRow]) -> set[int]:
        """Sequences of the decisions whose workloads pass the filters and may be read."""
        namespace, queue = question.values.get("namespace"), question.values.get("queue")
        about = [
            (row.sequence, row.ref.namespace, row.workload)
            for row in rows
            if row.ref is not None and row.workload is not None
        ]
        if namespace is None:
            among = {one for _, one, _ in about}
            allowed = await question.caller.namespaces("list", WORKLOADS, among)
        else:
            allowed = Allowed(frozenset({namespace}))
        about = [item for item in about if item[1] in allowed]
        if queue is None:
            return {sequence for sequence, _, _ in about}
        state = (await self._source.sight_of(question)).state
        queues = {id: state.workloads[id].queue for _, _, id in about if id in state.workloads}
        over = {id for _, _, id in about} - queues.keys()
        if over:
            ask = self._source.readings.queues_of(over, until=state.sequence)
            queues |= await self._source.ask(ask)
        return {sequence for sequence, _, id in about if queues.get(id) == queue}

    # --- rights -----------------------------------------------------------------------------------

    async def _may(self, caller: Caller, verb: str, namespace: str) -> None:
        """Raises the same 404 for a namespace that does not exist and for one the caller may not read."""
        if not await caller.may(verb, WORKLOADS, namespace):
            raise not_found()

    async def _visible(self, caller: Caller, verb: str, *reasons: Reason | None) -> Visibility:
        """Of the workloads named here: by the right that the question itself takes, whose reviews are
        cached."""
        return Visibility(namespaces=await caller.namespaces(verb, WORKLOADS, set(named_in(*reasons))))


def _since(question: Question, sight: Sight) -> datetime | None:
    """By the clock of the ledger."""
    seconds = question.values.get("sinceSeconds")
    if seconds is None:
        return None
    return now(sight) - timedelta(seconds=seconds)


_ORDERS: Final[Mapping[str, Callable[[StoredWorkload], Any]]] = {
    "newest": lambda one: -one.arrival,
    "priority": lambda one: -one.priority,
    "devices": lambda one: -sum(size for name, size in _requests(one).items() if is_device(name)),
    "name": lambda one: one.ref.name,
    "submitter": lambda one: [one.submitter is None, one.submitter or ""],
}
"""By value of `order`: what is compared first, and is part of a cursor."""


def of_caller(question: Question) -> Question:
    """With the caller's name for CALLER. Raises a 400."""
    if question.values.get("submitter") != requests.CALLER:
        return question
    if question.caller.user is None:
        raise bad_request("parameter submitter: this server authenticates no caller: name the user")
    return replace(question, values={**question.values, "submitter": question.caller.user})


PAGE: Final = 1000
PAGES: Final = 10
"""Decisions on one workload are read in so many pages at most."""


class Times(NamedTuple):
    """Of a workload that does not wait. None: it did not, or that is not known."""

    started: datetime | None = None
    """Its last admission."""
    ended: datetime | None = None

    def __str__(self) -> str:
        known = (("started", self.started), ("ended", self.ended))
        told = " and ".join(f"{what} at {time.isoformat()}" for what, time in known if time is not None)
        return f"it {told}" if told else "it has ended"


async def decisions_on(
    source: AnswerSource, workload: WorkloadId, last: int
) -> tuple[list[DecisionRow], bool]:
    """Oldest first, up to sequence `last`, and whether there are more. Raises a 503."""
    rows: list[DecisionRow] = []
    for _ in range(PAGES):
        after = rows[-1].sequence if rows else 0
        found = await source.ask(source.readings.history(workload, after=after, limit=PAGE))
        rows += [row for row in found if row.sequence <= last]
        if len(found) < PAGE or found[-1].sequence >= last:
            return rows, False
    return rows, True


def times(rows: Iterable[DecisionRow]) -> Times:
    """By the decisions on one workload, oldest first. A former life with the same id does not count."""
    history = history_of(rows)
    started = history.attempts[-1].admitted_at if history.attempts else None
    return Times(started, history.ended_at)
