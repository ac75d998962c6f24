"""From which nodes borrowed quota comes (docs/answers.md, A4). Pure.

Amounts are integers: base units, or base units times microseconds where they are added up over time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from queuectl.core.quota.tree import QuotaNode


@dataclass(slots=True)
class Account:
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

    def add(self, other: Account) -> None:
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


def account(queue: QuotaNode, cell: int, used: Mapping[str, int], times: int = 1) -> Account:
    """The account of a ClusterQueue while `used`, amounts by ClusterQueue, is in use for `times`.

    `cell`: its number in the tree.
    """
    return accounts([queue], cell, used, times)[queue.name]


def accounts(
    queues: Collection[QuotaNode], cell: int, used: Mapping[str, int], times: int = 1
) -> dict[str, Account]:
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
    found: dict[str, Account] = {}
    for queue in queues:
        own, uses = queue.nominal[cell] * times, used.get(queue.name, 0) * times
        found[queue.name] = Account(
            guaranteed=own,
            used=uses,
            borrowed=max(0, uses - own),
            beyond=beyond.get(queue.name, 0),
            idle=max(0, own - uses),
        )
    for (lender, to), amount in loans.items():
        if to in found:
            found[to].borrowed_from[lender] = amount
        kind, _, name = lender.partition("/")
        if kind == "ClusterQueue" and name in found:
            found[name].lent_to[to] = amount
            found[name].lent += amount
            found[name].idle -= amount
    return found


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
    found, before, seen = [], 0, 0
    for name, amount in among:
        seen += amount
        until = total * seen // whole if whole else 0
        found.append((name, until - before))
        before = until
    return found


def _positive(amounts: _Amounts) -> _Amounts:
    return [pair for pair in amounts if pair[1]]
