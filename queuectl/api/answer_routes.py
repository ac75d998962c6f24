"""Answers from history, waits and shares: schemas, documents and endpoints (docs/answers.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import Field

from queuectl.answers import waits
from queuectl.answers.explanation import Visibility
from queuectl.answers.queue_states import QueueState
from queuectl.answers.state import OVER, CommittedState
from queuectl.answers.statements import (
    HOUR,
    MOST_ACCOUNTS,
    MOST_LOANS,
    MOST_PAIRS,
    MOST_STEPS,
    FairShare,
    QueueAccount,
    TooLong,
    TooManySteps,
    accounts_now,
    all_now,
    equal_steps,
    fair_share,
    lost,
    nodes_in,
    of_cohort,
    statements,
    totals,
)
from queuectl.answers.waits import WaitPart
from queuectl.api import requests, schemas
from queuectl.api.http import Refusal, bad_request, not_found
from queuectl.api.requests import CLUSTER_QUEUES, COHORTS, Question, always, endpoint
from queuectl.api.schemas import AMOUNT, Committed, Document, NamedDocument
from queuectl.api.view import AnswerSource, Routes, Sight, committed, may_get, now
from queuectl.api.workload_routes import PAGE, PAGES, WorkloadRoutes, decisions_on
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import Phase
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import MOST_HELD, PastHolds, PreemptionRow, TooMuchHistory

Account = TypeVar("Account", bound=Document)

MOST_PREEMPTIONS: Final = 10_000
"""Of one statement, in all queues."""


class Waited(NamedDocument, Committed):
    """Where the wait of a workload went. Seconds are whole, and add up exactly."""

    queue: str
    cluster_queue: str | None
    phase: Phase
    attempts: int = Field(description="Admissions so far.")
    since: datetime = Field(description="Its creation.")
    until: datetime = Field(description="Its end; of a workload that is not over: now.")
    waited_seconds: int = Field(description="The sum of `parts`.")
    ran_seconds: int = Field(description="From each admission to its eviction or end.")
    evicting_seconds: int = Field(description="From each eviction until its pods were gone.")
    parts: tuple[WaitPart, ...] = Field(description="The longest first.")


class Loan(Document):
    """Quota of one node that another one uses beyond its own."""

    node: str | None = Field(
        description="Such as ClusterQueue/team-b, or Cohort/all for the quota of the cohort itself; null for "
        "all ClusterQueues and Cohorts together that the caller may not read."
    )
    amount: float = Field(description="In the unit of the account that it is in.")


class QuotaAccount(Document):
    """One cell of a ClusterQueue: guaranteed = used - borrowed + lent + idle."""

    flavor: str
    resource: str
    guaranteed: float = Field(description="Nominal quota.")
    used: float = Field(description="Held by workloads that are admitted or being evicted.")
    borrowed: float = Field(description="Used beyond the nominal quota.")
    beyond: float = Field(description="The part of `borrowed` that no node had to lend.")
    lent: float = Field(description="Nominal quota that others use.")
    idle: float = Field(description="Nominal quota that is neither used nor lent.")
    borrowed_from: tuple[Loan, ...] = Field(description="By node, the largest first.")
    lent_to: tuple[Loan, ...] = Field(description="By node, the largest first.")


class QuotaNow(QuotaAccount):
    fair: int | None = Field(
        description=f"What the queue would use if its cohort divided what it can lend by weight among those "
        f"that borrow or wait. Null without fair sharing. {AMOUNT}"
    )


class PastAccount(QuotaAccount):
    lost: float = Field(
        description="Used by attempts that were preempted in this time, from their admission on; part of "
        "`used` as far as that was in this time."
    )


class Step(Document):
    """One of the equal parts of a statement's time, in its units."""

    since: datetime
    until: datetime
    accounts: tuple[QuotaAccount, ...] = Field(description="By flavor and resource.")


class Statement(Document):
    """Accounts over a time, in base units times hours: GPU-hours, milli-cpu-hours, byte-hours."""

    since: datetime = Field(description="As asked, or the time of the oldest decision that the ledger has.")
    until: datetime
    accounts: tuple[PastAccount, ...] = Field(description="By flavor and resource.")
    steps: tuple[Step, ...] = Field(description="With parameter `steps`; else empty.")


class QueueShare(Committed):
    """What a ClusterQueue may use, uses, borrows and lends, now and over a time."""

    name: str
    cohort: str | None
    fair_sharing: bool = Field(description="Whether its cohort tree shares fairly (S1).")
    weight: int = Field(description="Fair-sharing weight in thousandths.")
    share: int | None = Field(
        description="Dominant share in thousandths (S2, S3); null without fair sharing, and if infinite."
    )
    dominant_resource: str | None = Field(description="The resource that gives the share; null with share 0.")
    pending: int
    accounts: tuple[QuotaNow, ...] = Field(description=f"Now, by flavor and resource. {AMOUNT}")
    statement: Statement | None = Field(description="With parameter `since`; else null.")


class MemberAccount(QuotaAccount):
    cluster_queue: str


class MemberPast(PastAccount):
    cluster_queue: str


class MemberStep(Step):
    """One of the equal parts of a statement's time, in its units."""

    accounts: tuple[MemberAccount, ...] = Field(description="By ClusterQueue, flavor and resource.")


class CohortStatement(Statement):
    """Accounts over a time, in base units times hours. A ClusterQueue counts while it was in the cohort."""

    accounts: tuple[MemberPast, ...] = Field(description="By ClusterQueue, flavor and resource.")
    steps: tuple[MemberStep, ...] = Field(description="With parameter `steps`; else empty.")


class CohortShare(Committed):
    """What each ClusterQueue at or below a cohort uses, borrows from which nodes, and lends to which.

    Those that the caller may read.
    """

    name: str
    accounts: tuple[MemberAccount, ...] = Field(
        description=f"Now, by ClusterQueue, flavor and resource. {AMOUNT}"
    )
    statement: CohortStatement | None = Field(description="With parameter `since`; else null.")


Accounts = dict[FlavorResource, QueueAccount]
ByQueue = Mapping[str, Accounts]
"""By ClusterQueue."""
Amounts = Mapping[FlavorResource, float]


class _Forms(NamedTuple):
    """The documents of a statement: of one ClusterQueue, or of a cohort."""

    statement: type[Statement]
    account: type[PastAccount | MemberPast]
    step: type[Step]
    account_of_step: type[QuotaAccount]


_OF_QUEUE: Final = _Forms(Statement, PastAccount, Step, QuotaAccount)
_OF_COHORT: Final = _Forms(CohortStatement, MemberPast, MemberStep, MemberAccount)
_SUMS: Final = ("guaranteed", "used", "borrowed", "beyond", "lent", "idle")


def _accounts(
    model: type[Account], by_queue: ByQueue, unit: int, caller: Visibility, **more: Mapping[str, Amounts]
) -> tuple[Account, ...]:
    """`unit`: amounts are divided by it. `more`: further fields of the model, by ClusterQueue."""
    made = []
    for queue, accounts in by_queue.items():
        for cell, account in accounts.items():
            lent = {f"ClusterQueue/{name}": amount for name, amount in account.lent_to.items()}
            fields: dict[str, Any] = {
                "cluster_queue": queue,
                "flavor": cell.flavor,
                "resource": cell.resource,
                **{name: getattr(account, name) / unit for name in _SUMS},
                "borrowed_from": _loans(account.borrowed_from, unit, caller),
                "lent_to": _loans(lent, unit, caller),
                **{name: amounts[queue].get(cell) for name, amounts in more.items()},
            }
            made.append(model(**{name: fields[name] for name in model.model_fields}))
    return tuple(made)


def _share_now(
    queue: QueueState, state: CommittedState
) -> tuple[dict[FlavorResource, QueueAccount], FairShare | None, int]:
    """Its accounts, its fair share and its weight, with a tree of its own: this runs on a thread."""
    tree = state.tree_with(queue.name, {})
    present = accounts_now(queue, state, tree)
    return present, fair_share(queue, present, state, tree), tree.queue(queue.name).weight


def _loans(amounts: Mapping[str, int], unit: int, caller: Visibility) -> tuple[Loan, ...]:
    shown: dict[str | None, int] = {}
    for node, amount in amounts.items():
        name = caller.node(node)
        shown[name] = shown.get(name, 0) + amount
    ordered = sorted(shown.items(), key=lambda pair: (-pair[1], pair[0] or ""))
    return tuple(Loan(node=node, amount=amount / unit) for node, amount in ordered)


def _statement(
    forms: _Forms,
    past: ByQueue,
    rows: Sequence[PreemptionRow],
    bounds: Sequence[datetime],
    steps: Iterable[ByQueue],
    caller: Visibility,
) -> Statement:
    """`past` and `steps`: of ClusterQueues that the caller may read; `rows`: all preemptions then."""
    wasted = {}
    for queue, accounts in past.items():
        amounts = lost(rows, queue)
        wasted[queue] = {cell: amounts.get(cell, 0) / HOUR for cell in accounts}
    return forms.statement.of(
        since=bounds[0],
        until=bounds[-1],
        accounts=_accounts(forms.account, past, HOUR, caller, lost=wasted),
        steps=tuple(
            forms.step.of(
                since=begin, until=end, accounts=_accounts(forms.account_of_step, step, HOUR, caller)
            )
            for (begin, end), step in zip(pairwise(bounds), steps, strict=False)
        ),
    )


class AnswerRoutes(Routes):
    """They read the ledger's history, and the view for the state now."""

    def __init__(self, source: AnswerSource, workloads: WorkloadRoutes) -> None:
        self._source = source
        self._workloads = workloads

    @endpoint(
        "/api/v1/clusterqueues/{name}/share",
        "What one ClusterQueue is guaranteed, uses, borrows and lends, now and over a time",
        QueueShare,
        (requests.FROM, requests.UNTIL, requests.STEPS, requests.AS_OF),
        heavy=lambda values: "since" in values or "asOf" in values,
        notes=f"With `since`: also over that time, up to {MOST_HELD} hold lines; with `asOf` up to then.",
    )
    async def share(self, question: Question) -> schemas.Committed:
        name = await may_get(question, CLUSTER_QUEUES)
        sight = await self._source.sight_of(question)
        queue = sight.state.queues.get(name)
        if queue is None:
            raise not_found()
        amounts, fair, weight = await asyncio.to_thread(_share_now, queue, sight.state)
        present = {name: amounts}
        visible, statement = await self._statement(
            question,
            sight,
            present,
            lambda holds, bounds: [{name: part} for part in statements(name, holds, bounds, parse_policy)],
            _OF_QUEUE,
        )
        accounts = await asyncio.to_thread(
            lambda: _accounts(QuotaNow, present, 1, visible, fair={name: fair.amounts if fair else {}})
        )
        return QueueShare.of(
            name=queue.name,
            cohort=queue.queue.cohort if queue.queue else None,
            fair_sharing=fair is not None,
            weight=weight,
            share=fair.share if fair else None,
            dominant_resource=fair.dominant_resource if fair else None,
            pending=queue.pending,
            accounts=accounts,
            statement=statement,
            **committed(sight),
        )

    @endpoint(
        "/api/v1/cohorts/{name}/share",
        "What each ClusterQueue of a cohort uses, borrows and lends, now and over a time",
        CohortShare,
        (requests.FROM, requests.UNTIL, requests.STEPS, requests.AS_OF),
        heavy=lambda values: "since" in values or "asOf" in values,
        notes="Those that the caller may get; other nodes are null. `since` and `asOf` as for one queue. "
        f"All steps together have at most {MOST_ACCOUNTS} accounts and {MOST_LOANS} loans, also of "
        "queues that are not shown.",
    )
    async def cohort_share(self, question: Question) -> schemas.Committed:
        name = await may_get(question, COHORTS)
        sight = await self._source.sight_of(question)
        if name not in sight.state.cohorts():
            raise not_found()
        members = sight.state.below(f"Cohort/{name}")
        present = await asyncio.to_thread(all_now, members, sight.state)
        visible, statement = await self._statement(
            question,
            sight,
            present,
            lambda holds, bounds: of_cohort(name, holds, bounds, parse_policy),
            _OF_COHORT,
        )
        accounts = await asyncio.to_thread(
            lambda: _accounts(MemberAccount, _shown(present, visible), 1, visible)
        )
        return CohortShare.of(name=name, accounts=accounts, statement=statement, **committed(sight))

    async def _statement(
        self,
        question: Question,
        sight: Sight,
        present: ByQueue,
        told: Callable[[PastHolds, Sequence[datetime]], Sequence[ByQueue]],
        forms: _Forms,
    ) -> tuple[Visibility, Statement | None]:
        """What the caller may read of all accounts, and the statement, if it is asked for.

        `told`: the accounts of each step. Raises a 400 or a 503.
        """
        parts, bounds = await self._over_time(question, now(sight), told)
        past = totals(parts)
        accounts = (
            one for by_queue in (present, past) for cells in by_queue.values() for one in cells.values()
        )
        queues = {f"ClusterQueue/{queue}" for queue in (*present, *past)}
        visible = await visible_nodes(question, nodes_in(accounts) | queues)
        if not bounds:
            return visible, None
        rows = await self._preemptions(bounds[0], bounds[-1])
        steps = (_shown(part, visible) for part in parts) if "steps" in question.values else ()
        statement = await asyncio.to_thread(
            _statement, forms, _shown(past, visible), rows, bounds, steps, visible
        )
        return visible, statement

    async def _over_time(
        self,
        question: Question,
        present: datetime,
        told: Callable[[PastHolds, Sequence[datetime]], Sequence[ByQueue]],
    ) -> tuple[Sequence[ByQueue], Sequence[datetime]]:
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

    @endpoint(
        "/api/v1/workloads/{namespace}/{kind}/{name}/waited",
        "Where the wait of one workload went, also after its end",
        Waited,
        (requests.AS_OF,),
        heavy=always,
        notes=f"From its first {PAGE * PAGES} decisions; `until` is earlier than now if it has more.",
    )
    async def waited(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.find(question)
        sight = await self._source.sight_of(question)
        rows, more = await decisions_on(self._source, workload.id, sight.state.sequence)
        lasts = rows[-1].now if rows and (more or workload.phase in OVER) else now(sight)
        found = waits.spells(rows, workload.created_at, max(lasts, workload.created_at))
        asked = waits.spans(found, sight.state.sequence)
        told = await self._source.ask(self._source.readings.starts(list(asked.values()))) if asked else []
        wait = waits.breakdown(found, dict(zip(asked, told, strict=True)))
        return Waited(
            **workload.ref._asdict(),
            queue=workload.queue,
            cluster_queue=workload.cluster_queue,
            phase=workload.phase,
            attempts=workload.attempts,
            since=wait.start if wait else workload.created_at,
            until=wait.until if wait else workload.created_at,
            waited_seconds=wait.waited if wait else 0,
            ran_seconds=wait.ran if wait else 0,
            evicting_seconds=wait.evicting if wait else 0,
            parts=wait.parts if wait else (),
            **committed(sight),
        )


async def visible_nodes(question: Question, nodes: Collection[str]) -> Visibility:
    """`nodes`: those that an answer names, such as `ClusterQueue/team-a`."""
    return Visibility(
        cluster_queues=await question.caller.names(CLUSTER_QUEUES, named(nodes, "ClusterQueue")),
        cohorts=await question.caller.names(COHORTS, named(nodes, "Cohort")),
    )


def _shown(by_queue: ByQueue, caller: Visibility) -> dict[str, Accounts]:
    return {name: cells for name, cells in by_queue.items() if caller.cluster_queue(name) is not None}


def _too_much(until: datetime, what: str) -> Refusal:
    return bad_request(
        f"parameter since: from then to {until.isoformat()} there are {what}: ask for a shorter time"
    )


def named(nodes: Iterable[str], kind: str) -> set[str]:
    """The names of the nodes of this kind."""
    pairs = (node.split("/", 1) for node in nodes)
    return {name for of, name in pairs if of == kind}
