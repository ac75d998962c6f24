"""The endpoints that answer from history: waits and shares. From a Question to a document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from queuectl.answers import waits
from queuectl.answers.state import OVER
from queuectl.answers.statements import (
    MOST_ACCOUNTS,
    MOST_LOANS,
    MOST_PAIRS,
    MOST_STEPS,
    TooLong,
    TooManySteps,
    equal_steps,
    of_cohort,
    statements,
    total,
    totals,
)
from queuectl.api import answer_documents as documents
from queuectl.api import answer_schemas, query, schemas
from queuectl.api.identity import CLUSTER_QUEUES, COHORTS
from queuectl.api.lives import PAGE, PAGES, decisions_on
from queuectl.api.problems import Refusal, bad_request, not_found
from queuectl.api.requests import Endpoint, Question, Source, committed, may_get
from queuectl.api.view import Sight
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import MOST_HELD, PastHolds, PreemptionRow, TooMuchHistory

Found = TypeVar("Found")

MOST_PREEMPTIONS: Final = 10_000
"""Of one statement, in all queues."""


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
                (query.AS_OF,),
                heavy=always,
                notes=f"From its first {PAGE * PAGES} decisions; `until` is earlier than now if it has more.",
            ),
            Endpoint(
                "/api/v1/clusterqueues/{name}/share",
                "What one ClusterQueue is guaranteed, uses, borrows and lends, now and over a time",
                self.share,
                answer_schemas.QueueShare,
                (query.FROM, query.UNTIL, query.STEPS, query.AS_OF),
                lambda values: "since" in values or "asOf" in values,
                f"With `since`: also over that time, up to {MOST_HELD} hold lines; with `asOf` up to then.",
            ),
            Endpoint(
                "/api/v1/cohorts/{name}/share",
                "What each ClusterQueue of a cohort uses, borrows and lends, now and over a time",
                self.cohort_share,
                answer_schemas.CohortShare,
                (query.FROM, query.UNTIL, query.STEPS, query.AS_OF),
                lambda values: "since" in values or "asOf" in values,
                "Those that the caller may get; other nodes are null. `since` and `asOf` as for one queue. "
                f"All steps together have at most {MOST_ACCOUNTS} accounts and {MOST_LOANS} loans, also of "
                "queues that are not shown.",
            ),
        )

    async def share(self, question: Question) -> schemas.Committed:
        name = question.path["name"]
        # First, so that the response time does not reveal whether the queue exists.
        if not query.is_name(name) or not await question.caller.may("get", CLUSTER_QUEUES, "", name):
            raise not_found()
        sight = await self._source.sight_of(question)
        queue = sight.state.queues.get(name)
        if queue is None:
            raise not_found()
        present = documents.accounts_now(queue, sight.state)
        parts, bounds = await self._over_time(
            question, now(sight), lambda holds, bounds: statements(name, holds, bounds, parse_policy)
        )
        past = total(parts)
        readable = await readable_nodes(question, documents.nodes_in([*present.values(), *past.values()]))
        told = None
        if bounds:
            since, until = bounds[0], bounds[-1]
            lost = documents.lost(await self._preemptions(since, until), name)
            steps = zip(bounds, bounds[1:], parts, strict=False) if "steps" in question.values else ()
            told = documents.statement(past, lost, since, until, steps, readable)
        return documents.queue_share(queue, sight.state, present, told, readable, committed(sight))

    async def cohort_share(self, question: Question) -> schemas.Committed:
        name = await may_get(question, COHORTS)
        sight = await self._source.sight_of(question)
        if name not in sight.state.cohorts():
            raise not_found()
        present = documents.members_now(sight.state.below(f"Cohort/{name}"), sight.state)
        await asyncio.sleep(0)
        parts, bounds = await self._over_time(
            question, now(sight), lambda holds, bounds: of_cohort(name, holds, bounds, parse_policy)
        )
        past = totals(parts)
        nodes = documents.nodes_in(
            one for told in (present, past) for cells in told.values() for one in cells.values()
        )
        members = {f"ClusterQueue/{queue}" for queue in (*present, *past)}
        readable = await readable_nodes(question, nodes | members)
        told = None
        if bounds:
            since, until = bounds[0], bounds[-1]
            rows = await self._preemptions(since, until)
            shown = (_shown(part, readable) for part in parts) if "steps" in question.values else ()
            steps = zip(bounds, bounds[1:], shown, strict=False)
            told = await asyncio.to_thread(
                documents.cohort_statement, _shown(past, readable), rows, since, until, steps, readable
            )
        accounts = _shown(present, readable)
        return documents.cohort_share(name, accounts, told, readable, committed(sight))

    async def _over_time(
        self,
        question: Question,
        present: datetime,
        told: Callable[[PastHolds, Sequence[datetime]], list[Found]],
    ) -> tuple[list[Found], Sequence[datetime]]:
        """What `told` makes of each step of the time that is asked for, and their bounds; none: of no time.

        Raises a 400 or a 503.
        """
        since = question.values.get("since")
        until = min(question.values.get("until", present), present)
        if since is None:
            for other in question.values.keys() & {"until", "steps"}:
                raise bad_request(f"parameter {other} goes with since")
            return [], ()
        if since >= until:
            raise bad_request(f"parameter since must be before {until.isoformat()}")
        try:
            past = await self._source.ask(self._source.readings.past_holds(since=since, until=until))
            since = min(max(since, past.first or since), until)
            bounds = equal_steps(since, until, question.values.get("steps", 1))
            # In a thread: it may take a second, and others are answered meanwhile.
            found = await asyncio.to_thread(told, past, bounds)
        except (TooLong, TooMuchHistory):
            limits = f"{MOST_HELD} hold lines, {MOST_STEPS} steps or {MOST_PAIRS} loans"
            raise _too_much(until, f"more changes of usage than {limits}") from None
        except TooManySteps:
            limits = f"{MOST_ACCOUNTS} accounts or {MOST_LOANS} loans"
            what = f"{len(bounds) - 1} steps have more than {limits}"
            raise bad_request(f"parameter steps: {what}: ask for fewer") from None
        return found, bounds

    async def _preemptions(self, since: datetime, until: datetime) -> list[PreemptionRow]:
        found = await self._source.ask(
            self._source.readings.preemptions(
                before=None, since=since, until=until, limit=MOST_PREEMPTIONS + 1
            )
        )
        if len(found) > MOST_PREEMPTIONS:
            raise _too_much(until, f"more than {MOST_PREEMPTIONS} preemptions")
        return found

    async def waited(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.found(question)
        sight = await self._source.sight_of(question)
        rows, more = await decisions_on(self._source, workload.id, sight.state.sequence)
        lasts = rows[-1].now if more or workload.phase in OVER else now(sight)
        found = waits.spells(rows, workload.created_at, max(lasts, workload.created_at))
        asked = waits.spans(found, sight.state.sequence)
        told = await self._source.ask(self._source.readings.starts(list(asked.values()))) if asked else []
        wait = waits.breakdown(found, dict(zip(asked, told, strict=True)))
        return documents.waited(workload, wait, committed(sight))


async def readable_nodes(question: Question, nodes: Collection[str]) -> documents.Readable:
    """Those of `nodes` that the caller may read."""
    return documents.Readable(
        await question.caller.names(CLUSTER_QUEUES, named(nodes, "ClusterQueue")),
        await question.caller.names(COHORTS, named(nodes, "Cohort")),
    )


def _shown(
    told: Mapping[str, documents.Accounts], readable: documents.Readable
) -> dict[str, documents.Accounts]:
    return {name: cells for name, cells in told.items() if f"ClusterQueue/{name}" in readable}


def _too_much(until: datetime, what: str) -> Refusal:
    return bad_request(
        f"parameter since: from then to {until.isoformat()} there are {what}: ask for a shorter time"
    )


def now(sight: Sight) -> datetime:
    """By the clock of the ledger."""
    return sight.committed_at + timedelta(seconds=sight.silent_seconds)


def named(nodes: Iterable[str], kind: str) -> set[str]:
    """The names of the nodes of this kind."""
    pairs = (node.split("/", 1) for node in nodes)
    return {name for of, name in pairs if of == kind}


def always(values: Mapping[str, Any]) -> bool:
    return True
