"""Quota of ClusterQueues over a time: used, borrowed, lent, idle (docs/answers.md, A5 and A29). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from queuectl.answers.attribution import Account, accounts
from queuectl.answers.policies import quota_tree
from queuectl.core.model import ConfigKey
from queuectl.core.policy import Policy
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.resources import FlavorResource
from queuectl.ports.reader import Held, PastHolds, Revision

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
Statement = dict[FlavorResource, Account]
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


def statement(name: str, past: PastHolds, since: datetime, until: datetime, parse: Parse) -> Statement:
    """Of ClusterQueue `name` from `since` to `until`. Raises TooLong."""
    return total(statements(name, past, (since, until), parse))


def total(parts: Iterable[Statement]) -> Statement:
    """Over all their times."""
    found: Statement = {}
    for part in parts:
        for cell, one in part.items():
            found.setdefault(cell, Account()).add(one)
    return found


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
    found: list[dict[str, Statement]] = [
        {name: {cell: Account() for cell in sorted(cells)} for name, cells in sorted(own.items())}
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
            part = found[bisect_right(bounds, begin) - 1]
            queues = [queue for queue in epoch.queues if cell in own[queue.name]]
            for name, one in accounts(queues, number, used, length).items():
                whole = part[name][cell]
                loans -= whole.loans
                whole.add(one)
                loans += whole.loans
            if parts > 1 and loans > MOST_LOANS:
                raise TooManySteps
    return found


def _cells(
    epochs: Sequence[_Epoch], changes: Mapping[FlavorResource, Sequence[_Change]]
) -> dict[str, set[FlavorResource]]:
    """The cells that each ClusterQueue had quota of or used."""
    found: dict[str, set[FlavorResource]] = {}
    for epoch in epochs:
        for queue in epoch.queues:
            cells = found.setdefault(queue.name, set())
            cells |= {cell for cell, number in epoch.tree.cells.items() if queue.nominal[number]}
    for cell, ones in changes.items():
        for name in {one.cluster_queue for one in ones} & found.keys():
            found[name].add(cell)
    return found


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
    found: defaultdict[FlavorResource, list[_Change]] = defaultdict(list)
    for one in holds:
        start, end = max(one.start, since), until if one.end is None else min(one.end, until)
        if start < end:
            ones = found[FlavorResource(one.flavor, one.resource)]
            ones.append(_Change(start, one.cluster_queue, one.amount))
            ones.append(_Change(end, one.cluster_queue, -one.amount))
    for ones in found.values():
        ones.sort()
    return dict(found)


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
