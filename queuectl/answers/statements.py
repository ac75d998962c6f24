"""Quota of ClusterQueues, now and over a time: used, borrowed from and lent to which nodes, idle, fair. Pure.

A4 to A6 and A29 of docs/answers.md. Amounts are integers: base units, or base units times microseconds where
they are added up over time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from queuectl.answers.queue_states import QueueState, quota_tree
from queuectl.answers.state import CommittedState
from queuectl.core.model.policy import Policy
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ConfigKey
from queuectl.core.quota.shares import dominant_share
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.ports.reader import Held, PastHolds, PreemptionRow, Revision


@dataclass(slots=True)
class QueueAccount:
    """One cell of one ClusterQueue."""

    guaranteed: int = 0
    used: int = 0
    borrowed: int = 0
    """Used beyond the guarantee: the sum of `borrowed_from`, and `beyond`."""
    beyond: int = 0
    """Borrowed while no node had quota to lend."""
    lent: int = 0
    """The sum of `lent_to`."""
    idle: int = 0
    """Guaranteed, and neither used nor lent."""
    borrowed_from: dict[str, int] = field(default_factory=dict)
    """By node, such as `ClusterQueue/team-b`."""
    lent_to: dict[str, int] = field(default_factory=dict)
    """By ClusterQueue."""

    @property
    def loans(self) -> int:
        """Number of nodes that it borrowed from or lent to."""
        return len(self.borrowed_from) + len(self.lent_to)

    def add(self, other: QueueAccount) -> None:
        self.guaranteed += other.guaranteed
        self.used += other.used
        self.borrowed += other.borrowed
        self.beyond += other.beyond
        self.lent += other.lent
        self.idle += other.idle
        for mine, others in (
            (self.borrowed_from, other.borrowed_from),
            (self.lent_to, other.lent_to),
        ):
            for name, amount in others.items():
                mine[name] = mine.get(name, 0) + amount


_Amounts = list[tuple[str, int]]
Loans = dict[tuple[str, str], int]
"""By lender, such as `Cohort/all`, and borrowing ClusterQueue."""


def account(queue: QuotaNode, cell: int, used: Mapping[str, int], times: int = 1) -> QueueAccount:
    """The account of a ClusterQueue while `used`, amounts by ClusterQueue, is in use for `times`.

    `cell`: its number in the tree.
    """
    return accounts([queue], cell, used, times)[queue.name]


def accounts(
    queues: Collection[QuotaNode], cell: int, used: Mapping[str, int], times: int = 1
) -> dict[str, QueueAccount]:
    """The accounts of ClusterQueues of one tree by name, each as `account` has it. Settled once for all."""
    if not queues:
        return {}
    root = next(iter(queues))
    while root.parent is not None:
        root = root.parent
    loans: Loans = {}
    settled: dict[QuotaNode, tuple[_Amounts, _Amounts]] = {}
    for node in reversed(list(root.below())):
        below = [settled.pop(child) for child in node.children.values()]
        settled[node] = _settle(node, cell, used.get(node.name, 0), below, times, loans)
    _, needs = settled[root]
    beyond = dict(needs)
    by_queue: dict[str, QueueAccount] = {}
    for queue in queues:
        own, uses = queue.nominal[cell] * times, used.get(queue.name, 0) * times
        by_queue[queue.name] = QueueAccount(
            guaranteed=own,
            used=uses,
            borrowed=max(0, uses - own),
            beyond=beyond.get(queue.name, 0),
            idle=max(0, own - uses),
        )
    for (lender, to), amount in loans.items():
        if to in by_queue:
            by_queue[to].borrowed_from[lender] = amount
        kind, _, name = lender.partition("/")
        if kind == "ClusterQueue" and name in by_queue:
            by_queue[name].lent_to[to] = amount
            by_queue[name].lent += amount
            by_queue[name].idle -= amount
    return by_queue


def _settle(
    node: QuotaNode,
    cell: int,
    used: int,
    below: Iterable[tuple[_Amounts, _Amounts]],
    times: int,
    loans: Loans,
) -> tuple[_Amounts, _Amounts]:
    """What the node offers and what it needs, after loans between the nodes below it.

    `used`: by a ClusterQueue. `below`: the same of the children of a cohort.
    """
    own = node.nominal[cell] * times
    if node.kind == "ClusterQueue":
        more = used * times - own
        offers = [(str(node), -more)] if more < 0 else []
        needs = [(node.name, more)] if more > 0 else []
    else:
        offers, needs = [(str(node), own)] if own else [], []
        for offered, needed in below:
            offers += offered
            needs += needed
        if offers and needs:
            offers, needs = _lend(offers, needs, loans)
    limit = node.lending[cell]
    total = sum(amount for _, amount in offers)
    if limit is not None and total > limit * times:
        offers = _parted(limit * times, offers)
    return offers, needs


def _lend(offers: _Amounts, needs: _Amounts, loans: Loans) -> tuple[_Amounts, _Amounts]:
    """Each need is met in proportion to all needs, by each offer in proportion to all offers."""
    offered, needed = (sum(amount for _, amount in side) for side in (offers, needs))
    met = dict(_parted(min(offered, needed), needs))
    for borrower, amount in met.items():
        given = dict(_parted(amount, offers))
        for lender, part in given.items():
            if part:
                loans[lender, borrower] = loans.get((lender, borrower), 0) + part
        offers = [(lender, left - given[lender]) for lender, left in offers]
    left = [(borrower, amount - met[borrower]) for borrower, amount in needs]
    return _positive(offers), _positive(left)


def _parted(total: int, among: Sequence[tuple[str, int]]) -> _Amounts:
    """`total`, at most the sum of `among`, in proportion to it: whole numbers that add up to `total`."""
    whole = sum(amount for _, amount in among)
    parts, before, seen = [], 0, 0
    for name, amount in among:
        seen += amount
        until = total * seen // whole if whole else 0
        parts.append((name, until - before))
        before = until
    return parts


def _positive(amounts: _Amounts) -> _Amounts:
    return [pair for pair in amounts if pair[1]]


def fair_amount(queue: QuotaNode, cell: int, waits: Callable[[str], bool]) -> int:
    """In base units. `waits`: whether a ClusterQueue has pending workloads. The queue has a cohort."""
    cohort = queue.parent
    assert cohort is not None
    divided, weights = cohort.nominal[cell], 0
    for child in cohort.children.values():
        if child is queue or child.borrows(cell) or any(waits(one.name) for one in child.queues()):
            weights += child.weight
        else:
            kept = max(child.usage[cell], child.private[cell])
            divided += max(0, child.subtree[cell] - kept)
    more = divided * queue.weight // weights if weights else 0
    limit = queue.borrowing[cell]
    return queue.subtree[cell] + (more if limit is None else min(more, limit))


MOST_STEPS: Final = 2_000_000
"""Nodes that are visited for one statement: those of the tree at each change of one of its cells."""
MOST_PAIRS: Final = 10_000_000
"""Of a borrower and a lender, likewise: some ten seconds of CPU."""
MOST_ACCOUNTS: Final = 10_000
"""Of all steps of one answer together: cells of ClusterQueues in each step."""
MOST_LOANS: Final = 100_000
"""In these accounts: each may have one for each other node of its tree."""
HOUR: Final = 3_600_000_000
"""In microseconds."""
_MICROSECOND: Final = timedelta(microseconds=1)

Parse = Callable[[ConfigKey, str], Policy]
Statement = dict[FlavorResource, QueueAccount]
"""By cell; amounts in base units times microseconds."""
Told = Callable[[QuotaTree], list[QuotaNode]]
"""The ClusterQueues, of one tree, whose statements are told."""


class TooLong(Exception):
    """The time has more changes than one answer may cost."""


class TooManySteps(Exception):
    """The steps have more than MOST_ACCOUNTS accounts, or more than MOST_LOANS loans in them."""


class _Change(NamedTuple):
    at: datetime
    cluster_queue: str
    amount: int


@dataclass(frozen=True, slots=True)
class _Epoch:
    """A time in which the policy did not change."""

    begin: datetime
    end: datetime
    tree: QuotaTree
    queues: list[QuotaNode]
    """Whose statements are told."""
    members: frozenset[str]
    """Names of the ClusterQueues of their tree."""
    nodes: int

    def pairs(self, cell: int, used: Mapping[str, int]) -> int:
        """Most loans of a cell, each from one member to another."""
        more = sum(used.get(name, 0) > self.tree.queue(name).nominal[cell] for name in self.members)
        return more * (len(self.members) - more)


def total(parts: Iterable[Statement]) -> Statement:
    """Over all their times."""
    sums: Statement = {}
    for part in parts:
        for cell, one in part.items():
            sums.setdefault(cell, QueueAccount()).add(one)
    return sums


def equal_steps(since: datetime, until: datetime, steps: int) -> list[datetime]:
    """The bounds of that many times of the same length, to the microsecond."""
    return [*(since + (until - since) * step // steps for step in range(steps)), until]


def statements(name: str, past: PastHolds, bounds: Sequence[datetime], parse: Parse) -> list[Statement]:
    """Of ClusterQueue `name`, for each time between two of `bounds`, all with the same cells.

    `bounds`: in order, two at least. Raises TooLong or TooManySteps.
    """
    parts = _statements(lambda tree: [tree.queue(name)], past, bounds, parse)
    return [part[name] for part in parts]


def of_cohort(
    name: str, past: PastHolds, bounds: Sequence[datetime], parse: Parse
) -> list[dict[str, Statement]]:
    """Of each ClusterQueue at the times at which it was at or below Cohort `name`, by name (A29).

    For each time between two of `bounds`, all with the same ClusterQueues and cells. Raises TooLong or
    TooManySteps.
    """

    def below(tree: QuotaTree) -> list[QuotaNode]:
        return list(tree.cohort(name).queues())

    return _statements(below, past, bounds, parse)


def totals(parts: Sequence[Mapping[str, Statement]]) -> dict[str, Statement]:
    """Of each ClusterQueue over all their times. All parts have the same ClusterQueues."""
    return {name: total(part[name] for part in parts) for part in parts[:1] for name in part}


def _statements(
    told: Told, past: PastHolds, bounds: Sequence[datetime], parse: Parse
) -> list[dict[str, Statement]]:
    """By ClusterQueue, for each time between two of `bounds`."""
    epochs = list(_epochs(told, past.revisions, bounds, parse))
    changes = _changes(past.holds, bounds[0], bounds[-1])
    own = _cells(epochs, changes)
    parts = len(bounds) - 1
    if parts > 1 and parts * sum(map(len, own.values())) > MOST_ACCOUNTS:
        raise TooManySteps
    by_part: list[dict[str, Statement]] = [
        {name: {cell: QueueAccount() for cell in sorted(cells)} for name, cells in sorted(own.items())}
        for _ in range(parts)
    ]
    steps = pairs = loans = 0
    for cell in sorted(set().union(*own.values())):
        for epoch, used, begin, end in _stretches(epochs, changes.get(cell, ())):
            number = epoch.tree.cell(cell)
            steps += epoch.nodes
            pairs += epoch.pairs(number, used)
            if steps > MOST_STEPS or pairs > MOST_PAIRS:
                raise TooLong
            length = (end - begin) // _MICROSECOND
            part = by_part[bisect_right(bounds, begin) - 1]
            queues = [queue for queue in epoch.queues if cell in own[queue.name]]
            for name, one in accounts(queues, number, used, length).items():
                whole = part[name][cell]
                loans -= whole.loans
                whole.add(one)
                loans += whole.loans
            if parts > 1 and loans > MOST_LOANS:
                raise TooManySteps
    return by_part


def _cells(
    epochs: Sequence[_Epoch], changes: Mapping[FlavorResource, Sequence[_Change]]
) -> dict[str, set[FlavorResource]]:
    """The cells that each ClusterQueue had quota of or used."""
    by_queue: dict[str, set[FlavorResource]] = {}
    for epoch in epochs:
        for queue in epoch.queues:
            cells = by_queue.setdefault(queue.name, set())
            cells |= {cell for cell, number in epoch.tree.cells.items() if queue.nominal[number]}
    for cell, ones in changes.items():
        for name in {one.cluster_queue for one in ones} & by_queue.keys():
            by_queue[name].add(cell)
    return by_queue


def _epochs(
    told: Told, revisions: Sequence[Revision], cuts: Sequence[datetime], parse: Parse
) -> Iterator[_Epoch]:
    """Cut also at `cuts`, the first and last of which are the bounds of all."""
    parsed: dict[tuple[ConfigKey, str], Policy | str] = {}

    def read(one: Revision) -> Policy | str:
        key = (one.key, one.spec)
        if key not in parsed:
            try:
                parsed[key] = parse(*key)
            except ValueError as error:
                parsed[key] = str(error)
        return parsed[key]

    times = {time for one in revisions for time in (one.since, one.until) if time is not None}
    bounds = sorted({*cuts, *(time for time in times if cuts[0] < time < cuts[-1])})
    former: list[Revision] | None = None
    for begin, end in pairwise(bounds):
        in_force = [
            one for one in revisions if one.since <= begin and (one.until is None or begin < one.until)
        ]
        if in_force != former:
            former = in_force
            tree = quota_tree({one.key: read(one) for one in in_force}, {})
            queues = told(tree)
            below = list(tree.root(queues[0]).below()) if queues else []
            members = frozenset(node.name for node in below if node.kind == "ClusterQueue")
        yield _Epoch(begin, end, tree, queues, members, len(below))


def _changes(holds: Sequence[Held], since: datetime, until: datetime) -> dict[FlavorResource, list[_Change]]:
    """By cell, in the order of time. What is held at `since` begins then."""
    by_cell: defaultdict[FlavorResource, list[_Change]] = defaultdict(list)
    for one in holds:
        start, end = max(one.start, since), until if one.end is None else min(one.end, until)
        if start < end:
            ones = by_cell[FlavorResource(one.flavor, one.resource)]
            ones.append(_Change(start, one.cluster_queue, one.amount))
            ones.append(_Change(end, one.cluster_queue, -one.amount))
    for ones in by_cell.values():
        ones.sort()
    return dict(by_cell)


def _stretches(
    epochs: Sequence[_Epoch], changes: Sequence[_Change]
) -> Iterator[tuple[_Epoch, dict[str, int], datetime, datetime]]:
    """Times in which neither the policy nor the usage of a cell in the tree changed, with that usage."""
    used: dict[str, int] = {}
    place = 0
    for epoch in epochs:
        at = epoch.begin
        while place < len(changes) and changes[place].at < epoch.end:
            change = changes[place]
            if change.cluster_queue in epoch.members and change.at > at:
                yield epoch, used, at, change.at
                at = change.at
            used[change.cluster_queue] = used.get(change.cluster_queue, 0) + change.amount
            place += 1
        if epoch.end > at:
            yield epoch, used, at, epoch.end


# --- now


class FairShare(NamedTuple):
    """Of a ClusterQueue in a tree with fair sharing."""

    share: int | None
    """Dominant share in thousandths (S2, S3); None: it is infinite."""
    dominant_resource: str | None
    """None with share 0."""
    amounts: dict[FlavorResource, int]
    """The fair amount of each cell, in base units."""


def fair_share(
    queue: QueueState, cells: Iterable[FlavorResource], state: CommittedState, tree: QuotaTree
) -> FairShare | None:
    """None without fair sharing. `tree`: of the state; cells may be added to it."""
    node = tree.queue(queue.name)
    if not tree.shares_fairly(node):
        return None

    def waits(name: str) -> bool:
        other = state.queues.get(name)
        return other is not None and other.pending > 0

    dominant = dominant_share(tree, node)
    amounts = {cell: fair_amount(node, tree.cell(cell), waits) for cell in cells}
    return FairShare(dominant.reported, dominant.resource or None, amounts)


def accounts_now(
    queue: QueueState, state: CommittedState, tree: QuotaTree
) -> dict[FlavorResource, QueueAccount]:
    """By cell, in base units. `tree`: of the state; cells may be added to it."""
    others, node = state.in_tree_of(queue.name), tree.queue(queue.name)
    return {
        cell: account(node, tree.cell(cell), {one.name: one.used.get(cell, 0) for one in others})
        for cell in (*queue.nominal, *(cell for cell in queue.used if cell not in queue.nominal))
    }


def members_now(
    queues: Iterable[QueueState], state: CommittedState, tree: QuotaTree | None = None
) -> dict[str, dict[FlavorResource, QueueAccount]]:
    """By ClusterQueue and cell, in base units. They are of one tree, `tree` (None: that of the state)."""
    members = {one.name: one for one in queues}
    if not members:
        return {}
    first = next(iter(members))
    tree, others = tree or state.tree_of(first), state.in_tree_of(first)
    cells = {name: {*one.nominal, *one.used} for name, one in members.items()}
    by_queue: dict[str, dict[FlavorResource, QueueAccount]] = {name: {} for name in sorted(members)}
    for cell in sorted(set().union(*cells.values())):
        used = {one.name: one.used.get(cell, 0) for one in others}
        nodes = [tree.queue(name) for name in by_queue if cell in cells[name]]
        for name, one in accounts(nodes, tree.cell(cell), used).items():
            by_queue[name][cell] = one
    return by_queue


def all_now(
    queues: Iterable[QueueState], state: CommittedState
) -> dict[str, dict[FlavorResource, QueueAccount]]:
    """By ClusterQueue and cell, in base units: as `accounts_now` has each."""
    trees: defaultdict[str, list[QueueState]] = defaultdict(list)
    for queue in queues:
        known = queue.name in state.trees.queues
        trees[(known and state.trees.root_of(queue.name)) or f"ClusterQueue/{queue.name}"].append(queue)
    found: dict[str, dict[FlavorResource, QueueAccount]] = {}
    for members in trees.values():
        # A tree of its own: this runs on a thread, and a cell without nominal quota is added to it.
        found |= members_now(members, state, state.tree_with(members[0].name, {}))
    return found


def nodes_in(accounts: Iterable[QueueAccount]) -> set[str]:
    """Every node that borrows or lends, such as `ClusterQueue/team-b`."""
    nodes: set[str] = set()
    for one in accounts:
        nodes |= {*one.borrowed_from, *(f"ClusterQueue/{name}" for name in one.lent_to)}
    return nodes


def lost(rows: Iterable[PreemptionRow], name: str) -> dict[FlavorResource, int]:
    """What preempted attempts of ClusterQueue `name` had used, in base units times microseconds (A7)."""
    amounts: dict[FlavorResource, int] = {}
    for row in rows:
        if row.cluster_queue == name:
            for cell, amount in row.held.items():
                amounts[cell] = amounts.get(cell, 0) + amount
    return amounts
