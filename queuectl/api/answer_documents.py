"""Answers from history as documents of the REST API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from queuectl.answers import waits
from queuectl.answers.attribution import Account, account, accounts
from queuectl.answers.fair_amount import fair_amount
from queuectl.answers.queue_states import QueueState
from queuectl.answers.state import State
from queuectl.answers.statements import HOUR
from queuectl.api import answer_schemas
from queuectl.api.identity import Allowed
from queuectl.core.model import StoredWorkload
from queuectl.core.quota.shares import dominant_share, shares_fairly
from queuectl.core.resources import FlavorResource
from queuectl.ports.reader import PreemptionRow


def waited(
    workload: StoredWorkload, wait: waits.Wait | None, committed: dict[str, Any]
) -> answer_schemas.Waited:
    return answer_schemas.Waited(
        namespace=workload.ref.namespace,
        kind=workload.ref.kind,
        name=workload.ref.name,
        uid=workload.ref.uid,
        queue=workload.queue,
        cluster_queue=workload.cluster_queue,
        phase=workload.phase,
        attempts=workload.attempts,
        since=wait.start if wait else workload.created_at,
        until=wait.until if wait else workload.created_at,
        waited_seconds=wait.waited if wait else 0,
        ran_seconds=wait.ran if wait else 0,
        evicting_seconds=wait.evicting if wait else 0,
        parts=tuple(map(_part, wait.parts)) if wait else (),
        **committed,
    )


def _part(part: waits.Part) -> answer_schemas.WaitPart:
    return answer_schemas.WaitPart(
        text=waits.text(part), seconds=part.seconds, ahead=part.ahead, **part.why._asdict()
    )


@dataclass(frozen=True, slots=True)
class Readable:
    """The nodes that the caller may read."""

    cluster_queues: Allowed
    cohorts: Allowed

    def __contains__(self, node: object) -> bool:
        kind, _, name = str(node).partition("/")
        return name in (self.cluster_queues if kind == "ClusterQueue" else self.cohorts)


Accounts = Mapping[FlavorResource, Account]


def accounts_now(queue: QueueState, state: State) -> dict[FlavorResource, Account]:
    """By cell, in base units."""
    tree, others = state.tree_of(queue.name), state.in_tree_of(queue.name)
    node = tree.queue(queue.name)
    return {
        cell: account(node, tree.cell(cell), {one.name: one.used.get(cell, 0) for one in others})
        for cell in (*queue.nominal, *(cell for cell in queue.used if cell not in queue.nominal))
    }


def members_now(queues: Iterable[QueueState], state: State) -> dict[str, dict[FlavorResource, Account]]:
    """By ClusterQueue and cell, in base units. They are of one tree."""
    members = {one.name: one for one in queues}
    if not members:
        return {}
    first = next(iter(members))
    tree, others = state.tree_of(first), state.in_tree_of(first)
    cells = {name: {*one.nominal, *one.used} for name, one in members.items()}
    found: dict[str, dict[FlavorResource, Account]] = {name: {} for name in sorted(members)}
    for cell in sorted(set().union(*cells.values())):
        used = {one.name: one.used.get(cell, 0) for one in others}
        nodes = [tree.queue(name) for name in found if cell in cells[name]]
        for name, one in accounts(nodes, tree.cell(cell), used).items():
            found[name][cell] = one
    return found


def nodes_in(accounts: Iterable[Account]) -> set[str]:
    """Every node that borrows or lends, such as `ClusterQueue/team-b`."""
    found: set[str] = set()
    for one in accounts:
        found |= {*one.borrowed_from, *(f"ClusterQueue/{name}" for name in one.lent_to)}
    return found


def queue_share(
    queue: QueueState,
    state: State,
    now: Accounts,
    statement: answer_schemas.Statement | None,
    readable: Readable,
    committed: dict[str, Any],
) -> answer_schemas.QueueShare:
    tree = state.tree_of(queue.name)
    node = tree.queue(queue.name)
    fair = shares_fairly(tree, node, state.configuration)
    share = dominant_share(tree, node) if fair else None

    def waits(name: str) -> bool:
        found = state.queues.get(name)
        return found is not None and found.pending > 0

    return answer_schemas.QueueShare(
        name=queue.name,
        cohort=queue.queue.cohort if queue.queue else None,
        fair_sharing=fair,
        weight=node.weight,
        share=share.reported if share else None,
        dominant_resource=(share.resource or None) if share else None,
        pending=queue.pending,
        accounts=tuple(
            answer_schemas.QuotaNow(
                **_account(cell, one, 1, readable),
                fair=fair_amount(node, tree.cell(cell), waits) if fair else None,
            )
            for cell, one in now.items()
        ),
        statement=statement,
        **committed,
    )


def lost(rows: Iterable[PreemptionRow], name: str) -> dict[FlavorResource, int]:
    """What preempted attempts of ClusterQueue `name` had used, in base units times microseconds (A7)."""
    found: dict[FlavorResource, int] = {}
    for row in rows:
        if row.held is not None and row.admitted_at is not None and row.held.cluster_queue == name:
            ran = (row.decision.now - row.admitted_at) // timedelta(microseconds=1)
            for cell, amount in row.held.usage().items():
                found[cell] = found.get(cell, 0) + amount * ran
    return found


def statement(
    accounts: Accounts,
    lost: Mapping[FlavorResource, int],
    since: datetime,
    until: datetime,
    steps: Iterable[tuple[datetime, datetime, Accounts]],
    readable: Readable,
) -> answer_schemas.Statement:
    return answer_schemas.Statement(
        since=since,
        until=until,
        accounts=tuple(
            answer_schemas.PastAccount(**_account(cell, one, HOUR, readable), lost=lost.get(cell, 0) / HOUR)
            for cell, one in accounts.items()
        ),
        steps=tuple(
            answer_schemas.Step(
                since=begin,
                until=end,
                accounts=tuple(
                    answer_schemas.QuotaAccount(**_account(cell, one, HOUR, readable))
                    for cell, one in step.items()
                ),
            )
            for begin, end, step in steps
        ),
    )


def cohort_share(
    name: str,
    now: Mapping[str, Accounts],
    statement: answer_schemas.CohortStatement | None,
    readable: Readable,
    committed: dict[str, Any],
) -> answer_schemas.CohortShare:
    """`now`: by ClusterQueue, those that the caller may read."""
    return answer_schemas.CohortShare(
        name=name,
        accounts=_members(now, 1, readable),
        statement=statement,
        **committed,
    )


def _members(
    told: Mapping[str, Accounts], unit: int, readable: Readable
) -> tuple[answer_schemas.MemberAccount, ...]:
    return tuple(
        answer_schemas.MemberAccount(cluster_queue=queue, **_account(cell, one, unit, readable))
        for queue, cells in told.items()
        for cell, one in cells.items()
    )


def cohort_statement(
    past: Mapping[str, Accounts],
    rows: Sequence[PreemptionRow],
    since: datetime,
    until: datetime,
    steps: Iterable[tuple[datetime, datetime, Mapping[str, Accounts]]],
    readable: Readable,
) -> answer_schemas.CohortStatement:
    """`past` and `steps`: by ClusterQueue, those that the caller may read; `rows`: all preemptions then."""
    wasted = {queue: lost(rows, queue) for queue in past}
    return answer_schemas.CohortStatement(
        since=since,
        until=until,
        accounts=tuple(
            answer_schemas.MemberPast(
                cluster_queue=queue,
                **_account(cell, one, HOUR, readable),
                lost=wasted[queue].get(cell, 0) / HOUR,
            )
            for queue, cells in past.items()
            for cell, one in cells.items()
        ),
        steps=tuple(
            answer_schemas.MemberStep(since=begin, until=end, accounts=_members(step, HOUR, readable))
            for begin, end, step in steps
        ),
    )


_SUMS: Final = ("guaranteed", "used", "borrowed", "beyond", "lent", "idle")


def _account(cell: FlavorResource, one: Account, unit: int, readable: Readable) -> dict[str, Any]:
    to = {f"ClusterQueue/{name}": amount for name, amount in one.lent_to.items()}
    return {
        "flavor": cell.flavor,
        "resource": cell.resource,
        **{name: getattr(one, name) / unit for name in _SUMS},
        "borrowed_from": _loans(one.borrowed_from, unit, readable),
        "lent_to": _loans(to, unit, readable),
    }


def _loans(amounts: Mapping[str, int], unit: int, readable: Readable) -> tuple[answer_schemas.Loan, ...]:
    shown: dict[str | None, int] = {}
    for node, amount in amounts.items():
        name = node if node in readable else None
        shown[name] = shown.get(name, 0) + amount
    ordered = sorted(shown.items(), key=lambda pair: (-pair[1], pair[0] or ""))
    return tuple(answer_schemas.Loan(node=node, amount=amount / unit) for node, amount in ordered)
