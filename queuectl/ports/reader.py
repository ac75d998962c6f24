"""What readers of the ledger ask for, the rows and states that they get, and the errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.events import OutcomesRead, PolicyGone, PolicyObserved
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.what_if import Counterfactuals, PlannedPolicy
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    ConfigKey,
    ForReaders,
    LedgerSnapshot,
    ObjectRef,
    StoredWorkload,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.ports.history import StoredDecision
from queuectl.ports.periods import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow(StoredDecision):
    """One decision with what it is about, and when it was made."""

    cycle: int
    epoch: int
    workload: WorkloadId | None
    ref: ObjectRef | None


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One write to the object of a workload, as stored in the ledger. Without both times it is due."""

    sequence: int
    """Of the decision that requests it."""
    verb: Verb
    attempt: int
    acknowledged_at: datetime | None = None
    withdrawn_at: datetime | None = None
    """When a later decision made it unnecessary."""


class StoryRows(NamedTuple):
    """The last decisions on one workload and the writes that they request, each oldest first."""

    decisions: list[DecisionRow]
    effects: list[EffectRow]


class StartsSpan(NamedTuple):
    """Decisions between two sequences, both excluded, that admit workloads to one ClusterQueue."""

    cluster_queue: str
    after: int
    before: int


class WorkloadStarts(NamedTuple):
    """`number` is at most MOST_STARTS. `last`: the time of the last one; None: there is none."""

    number: int
    last: datetime | None


class Held(NamedTuple):
    """What workloads of one ClusterQueue held of a cell for one time, in base units."""

    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    start: datetime
    end: datetime | None
    """None: it is held."""


class Revision(NamedTuple):
    """The spec of a policy object, and when it was in force."""

    key: ConfigKey
    spec: str
    """As canonical JSON."""
    since: datetime
    until: datetime | None
    """None: it is in force."""


class PastHolds(NamedTuple):
    """What was held at some time, and the queues and cohorts that were in force."""

    holds: list[Held]
    revisions: list[Revision]
    first: datetime | None
    """Time of the oldest decision that the ledger still has; None: there is none."""


USAGE_AXES: Final = ("user", "submitter", "namespace", "localqueue", "class", "clusterqueue", "flavor")
"""What usage may be divided by, beside account keys. It is always divided by resource."""


class BookedOn(NamedTuple):
    """What holds are booked on, as it was at their admission."""

    namespace: str
    queue: str
    """Name of the LocalQueue."""
    submitter: str | None
    user: str | None
    priority_class: str | None
    account: dict[str, str]
    """By account key; keys without a value are left out."""


class UsageSumOf(NamedTuple):
    """All that was held of one cell in one ClusterQueue and is booked on the same."""

    booked: BookedOn | None
    """None: they are not booked."""
    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    """Base units times microseconds."""


class CapacitySum(NamedTuple):
    """What the nodes of a flavor had over a time, as far as it is known: held + free + unmanaged = usable +
    overcommitted. Amounts are base units times microseconds."""

    flavor: str
    resource: str
    usable: int
    unusable: int
    unmanaged: int
    held: int
    free: int
    overcommitted: int


CAPACITY_AMOUNTS: Final = CapacitySum._fields[2:]


class UsageOfTime(NamedTuple):
    """`since` and `until`: as asked, as far as the ledger knows that time."""

    since: datetime
    until: datetime
    rows: list[UsageSumOf]
    capacity: list[CapacitySum]


class EvictionTimes(NamedTuple):
    """What later decisions on an open workload depend on (P11, L27, C7)."""

    preempted_at: tuple[datetime, ...]
    """When it was preempted, oldest first, as far as that counts."""
    evicted_at: datetime | None
    """When its open attempt was evicted; None: it was not."""
    preemptor: WorkloadId | None
    """For which workload."""


class PreemptionRow(NamedTuple):
    """The decision that evicted a workload by preemption, and the attempt that it ended."""

    decision: DecisionRow
    admitted_at: datetime | None
    """None: the ledger no longer has the attempt."""
    cluster_queue: str | None
    """Whose quota it held. None: as above."""
    held: Mapping[FlavorResource, int]
    """From its admission to its eviction, as `usage` counts it: base units times microseconds."""


class PastRun(NamedTuple):
    """One attempt, from its admission to the return of its quota."""

    admitted_at: datetime
    ended_at: datetime | None
    """None: it holds quota."""
    evicted_at: datetime | None = None
    """From then on its pods ended; None: it was not evicted."""

    @property
    def stopped_at(self) -> datetime | None:
        """When it stopped running; None: it runs."""
        return self.evicted_at or self.ended_at


class PastLife(NamedTuple):
    """A workload with its attempts, oldest first, as far as the ledger still has them."""

    workload: StoredWorkload
    """Its row of today."""
    ended_at: datetime | None
    """None: it is pending, or holds quota."""
    runs: tuple[PastRun, ...]

    @property
    def ended_in_a_run(self) -> bool:
        """Whether its last run is a whole one: it ended, or was deleted, while it ran."""
        last = self.runs[-1] if self.runs else PastRun(self.workload.created_at, None)
        return last.evicted_at is None and last.ended_at is not None and last.ended_at == self.ended_at


class PastLives(NamedTuple):
    """All workloads that were open at `since` or later, at most MOST_LIVES of those that are over."""

    lives: tuple[PastLife, ...]
    since: datetime
    """Later than asked if the ledger has no decision of that time, or if more are over."""
    until: datetime
    """When they were read: what ran then may have ended since."""
    sequence: int = 0
    """Of the last decision then."""


class PastRevision(NamedTuple):
    """An object of policy or context that was created or changed."""

    at: datetime
    key: ConfigKey
    spec: str
    """In force from then on, as canonical JSON."""


class TooMuchHistory(Exception):
    """A time has more rows than one answer may cost."""


MOST_USAGE: Final = 100_000
"""Different bookings, ClusterQueues and cells in one answer about usage."""
MOST_HELD: Final = 100_000
"""Rows of `past_holds`."""
MOST_STARTS: Final = 10_000
GONE_KEPT: Final = 10_000
"""Batches for which `since` says that a node is gone. A reader that is further behind reads all again."""
MOST_LIVES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One committed state, or the part of it that is newer than a sequence."""

    sequence: int
    committed_at: datetime
    """When the leader last committed, or took the lead. It commits every 10 s, also without decisions."""
    read_at: datetime
    """The database's clock when this was read."""
    epoch: int
    workloads: tuple[StoredWorkload, ...]
    """In the order of their last changes. One that has ended and come again is in it twice."""
    configs: tuple[tuple[ConfigKey, str | None], ...]
    """Spec as canonical JSON; None: gone."""
    batch: int = 0
    """Number of the last batch that was stored. A batch may have no decision."""
    for_readers: ForReaders = NOTHING_FOR_READERS


class Past(Protocol):
    """The ledger as it was, read only. Raises LedgerUnavailable or SchemaMismatch."""

    async def at(self, when: datetime | None) -> LedgerSnapshot:
        """The open state after all commits at `when` or before; `now` of it is the time of its last decision.

        Labels are those of today, and what attempts are booked on may be missing.
        None: now, with the nodes that readers were told of last. Raises NotStored.
        """

    async def first_capacity(self) -> datetime | None:
        """From when on `at` knows what nodes had; None: of no time yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """A state of the ledger to try changes on, or the part of it with some trees."""

    namespace: str | None
    """Of the workload that is asked about: the trees of its LocalQueues are in it. None: all trees are."""
    configuration: SchedulingConfiguration
    snapshot: Callable[[], LedgerSnapshot]
    """Called in another thread."""
    outcomes: OutcomesRead = field(default_factory=lambda: OutcomesRead(()))
    """How workloads that are over ended, of those that the workload that is asked about waits for (V2)."""


class NotAtRest(ValueError):
    """There is always more to decide at one time: a change cannot be compared with what is without it."""


class WhatIfs(Protocol):
    """What would be decided after a change: tried on an engine of its own, never on the controller's.

    Answers are about the state of `basis`, or one that is a few seconds older: they have its sequence.
    Each raises ValueError for a state that cannot be tried, such as NotAtRest.
    """

    async def counterfactuals(self, basis: Basis, workload: WorkloadId) -> Counterfactuals:
        """What would let a pending workload start. Raises KeyError: it is not in the state."""

    async def quote(self, basis: Basis, workload: Workload) -> Counterfactuals:
        """Whether a new workload would start, and what would let it start if not."""

    async def plan(self, basis: Basis, changes: Sequence[PolicyObserved | PolicyGone]) -> PlannedPolicy:
        """What other policy would decide at once."""


class PastWork(Past, Protocol):
    """The same with what workloads did, for forecasts."""

    async def past_lives(self, *, since: datetime, known: PastLives | None = None) -> PastLives:
        """Workloads with their attempts from then on, in the order of their creation.

        `known`: what was read of this ledger before; then the cost is that of what has changed since.
        """

    async def nodes_now(self) -> tuple[NodeFacts, ...]:
        """The nodes that readers were told of last, by name."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Forecasts of past times, made again from what was known then."""

    checked: int
    held: int
    """Of these, how many started within their interval."""
    since: datetime
    """The first of these times."""
    until: datetime


class StartForecast(NamedTuple):
    """When a pending workload starts. Times are seconds from `at`; None: later than `after`."""

    at: datetime
    sequence: int
    """Of the state that it was made from."""
    unknown: str | None
    """Why there is no forecast; None: there is one."""
    low: float | None = None
    """10 % of the draws start earlier."""
    median: float | None = None
    high: float | None = None
    """10 % of the draws start later."""
    after: float | None = None
    """The time up to which all draws were played; None: it starts in all of them."""
    draws: int = 0
    calibration: Calibration | None = None
    """None: not known yet, or too few forecasts could be checked."""


class Forecasts(Protocol):
    """Forecasts for pending workloads. Raises LedgerUnavailable or SchemaMismatch."""

    async def start_of(self, workload: WorkloadId, now: datetime) -> StartForecast:
        """`now`: by the clock of the ledger."""


class Readings(Past, Protocol):
    """The ledger, read only. Raises LedgerUnavailable or SchemaMismatch."""

    async def since(self, sequence: int, batch: int = 0) -> Reading:
        """Everything changed after `sequence`, in one transaction; 0 reads the whole open state.

        Workloads that ended after `sequence` are in it, with phase Finished or Deleted. What has no sequence
        is read as of the batches after number `batch`.
        """

    async def find(
        self, namespace: str, kind: str, name: str, *, ended_by: int | None = None
    ) -> StoredWorkload | None:
        """The newest workload of that name, also if it is over.

        `ended_by`: the newest of those that were over after the decision with this sequence.
        """

    async def finished(
        self, *, before: int | None, since: datetime | None, limit: int
    ) -> list[tuple[int, StoredWorkload]]:
        """Workloads that are over, newest first, each with the sequence of its end; keyset by `before`.

        `since`: only those that ended then or later.
        """

    async def history(self, workload: WorkloadId, *, after: int, limit: int) -> list[DecisionRow]:
        """Decisions on one workload with a sequence above `after`, oldest first."""

    async def lives(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[WorkloadId, list[DecisionRow]]:
        """Decisions of `history.LIFE` on each, up to sequence `until`, oldest first."""

    async def held_by_attempts(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[int, dict[str, int]]:
        """What each attempt held that ended up to sequence `until`, as `usage` counts it.

        By the sequence of the decision that ended it, and by resource: base units times microseconds.
        """

    async def story(self, workload: WorkloadId, *, until: int, limit: int) -> StoryRows:
        """The last `limit` decisions on one workload up to sequence `until`, and the writes they request.

        The writes are as they are now: an acknowledgement has no sequence.
        """

    async def decisions(self, *, after: int, limit: int) -> list[DecisionRow]:
        """All decisions with a sequence above `after`, oldest first."""

    async def last_of(self, epoch: int) -> int:
        """The sequence of the last decision of this epoch or one before; 0: none is stored.

        What an answer of that epoch told up to a higher sequence is lost: the ledger was restored since.
        """

    async def starts(self, spans: Sequence[StartsSpan]) -> list[WorkloadStarts]:
        """How many workloads started in each, and when the last one did."""

    async def preemptions(
        self, *, before: int | None, since: datetime | None, until: datetime | None, limit: int
    ) -> list[PreemptionRow]:
        """Preemptions from `since` up to `until`, newest first; keyset by `before`."""

    async def eviction_times(self, sequence: int, since: datetime) -> dict[WorkloadId, EvictionTimes]:
        """Of open workloads that were preempted since then, or are being evicted.

        `sequence`: of the last decision that is known.
        """

    async def past_holds(self, *, since: datetime, until: datetime) -> PastHolds:
        """What was held between these times, however short. Raises TooMuchHistory."""

    async def usage_zone(self) -> str:
        """The time zone in which days and months of usage begin."""

    async def usage(self, *, since: datetime, until: datetime) -> UsageOfTime:
        """What was held and what nodes had from `since` to `until`, or to now. Raises TooMuchHistory."""

    async def capacity_trend(self, *, flavor: str, steps: Sequence[Piece]) -> list[tuple[Piece, CapacitySum]]:
        """What the nodes of a flavor had in each step up to now, as far as it is known.

        `steps` follow each other: hours of UTC, or days of the zone of usage. The last is cut at now.
        """

    async def decayed_usage(self, *, until: datetime, half_life: int) -> UsageOfTime:
        """What was held up to `until`, or to now: what is `half_life` seconds ago counts half. No capacity.

        All of an hour, or with a half-life of 30 days of a day, counts as of its middle. With a half-life H
        that differs by 2^(hour / 2H) - 1 at most: 1.5 % with a day, 0.2 % with a week. Raises TooMuchHistory.
        """

    async def queues_of(self, workloads: Collection[WorkloadId], *, until: int) -> dict[WorkloadId, str]:
        """The LocalQueue in which each was last queued up to sequence `until`, also if it is over."""
