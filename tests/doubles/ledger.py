"""A ledger in memory that stores and refuses what the one in Postgres does."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from queuectl.core.decisions import Plan, Verdict
from queuectl.core.features.usage_history.decay import UsageHistory, counted_from
from queuectl.core.model.budgets import BudgetEntry, BudgetSum, Period
from queuectl.core.model.capacity import ClusterQueueDemand, FlavorCapacity, NodeFacts
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    Assignment,
    Attempt,
    AttemptState,
    Attribution,
    ConfigKey,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    PastAttempts,
    PendingLine,
    Phase,
    PodSet,
    PodsReady,
    StoredWorkload,
    UsageAccount,
    UsageSum,
    WorkloadId,
    WorkloadOutcome,
    usage_accounts,
)
from queuectl.ledger.codec import (
    options_from_json,
    past_from_json,
    past_to_json,
    pod_sets_from_json,
    reason_from_json,
    reason_to_json,
)
from queuectl.ledger.history.past_usage import PREEMPTIONS_KEPT
from queuectl.ledger.shared_rows import StoredAttribution, attribution_of, shape_from_json, shape_of
from queuectl.ledger.write.plan_rows import (
    AttemptChange,
    Beside,
    Fold,
    HoldLine,
    NewAttempt,
    NewDecision,
    ResizedAttempt,
    SeenWorkload,
    Segment,
    WorkloadChange,
    decision_reason,
)
from queuectl.ports.ledger import LedgerRefused, LostLeadership
from queuectl.ports.reader import DecisionRow, EffectRow


class EndedHold(NamedTuple):
    """A closed hold."""

    accounts: tuple[UsageAccount, ...]
    lines: tuple[HoldLine, ...]
    start: datetime
    end: datetime


@dataclass(slots=True)
class MemoryStore:
    """The rows of one cluster. Several MemoryLedgers may share one, as leaders share a database."""

    epoch: int = 0
    epochs: int = 0
    """The highest that was ever taken: those in Postgres are times, which do not go back."""
    holder: str = ""
    sequence: int = 0
    config_sequence: int = 0
    now: datetime | None = None
    batches: dict[str, int] = field(default_factory=dict)
    workloads: dict[WorkloadId, StoredWorkload] = field(default_factory=dict)
    updated: dict[WorkloadId, int] = field(default_factory=dict)
    holds: dict[tuple[WorkloadId, int], tuple[HoldLine, ...]] = field(default_factory=dict)
    attributions: dict[str, StoredAttribution] = field(default_factory=dict)
    booked: dict[tuple[WorkloadId, int], Attribution | None] = field(default_factory=dict)
    """What each attempt is booked on."""
    read_up_to: tuple[int, tuple[tuple[str, int], ...]] = (-1, ())
    """What the leader had read when it stopped, with the number of the last batch then."""
    begun: dict[tuple[WorkloadId, int], datetime] = field(default_factory=dict)
    """When each attempt began to hold quota."""
    ended_holds: list[EndedHold] = field(default_factory=list)
    effects: dict[EffectKey, int] = field(default_factory=dict)
    closed_effects: dict[int, EffectRow] = field(default_factory=dict)
    """By the sequence of the decision that requested it."""
    configs: dict[ConfigKey, tuple[int, str | None]] = field(default_factory=dict)
    revisions: list[tuple[int, ConfigKey, str | None]] = field(default_factory=list)
    """All that `configs` ever held, in order."""
    shapes: dict[str, tuple[PodSet, ...]] = field(default_factory=dict)
    ended: list[tuple[int, StoredWorkload]] = field(default_factory=list)
    decisions: list[DecisionRow] = field(default_factory=list)
    batch: int = 0
    """Number of the last one."""
    pods_ready: dict[WorkloadId, tuple[int, PodsReady]] = field(default_factory=dict)
    """With the batch that stored it."""
    lines: dict[str, tuple[int, PendingLine]] = field(default_factory=dict)
    capacities: dict[str, tuple[int, FlavorCapacity]] = field(default_factory=dict)
    past_capacities: list[tuple[datetime, FlavorCapacity]] = field(default_factory=list)
    demands: dict[str, tuple[int, ClusterQueueDemand]] = field(default_factory=dict)
    nodes: dict[str, tuple[int, NodeFacts]] = field(default_factory=dict)
    budget: list[tuple[int, int, BudgetEntry]] = field(default_factory=list)

    def copy(self) -> MemoryStore:
        """Of the tables: their rows are values."""
        return MemoryStore(**{one.name: copy(getattr(self, one.name)) for one in fields(self)})

    def become(self, earlier: MemoryStore) -> None:
        """Lack what was stored since. Readers of a table keep reading it."""
        for one in fields(self):
            now, then = getattr(self, one.name), getattr(earlier, one.name)
            if isinstance(now, dict):
                now.clear()
                now.update(then)
            elif isinstance(now, list):
                now[:] = then
            elif one.name != "epochs":
                setattr(self, one.name, then)


class _Journal:
    """Changes of dictionaries that can be undone: a refused commit leaves no change."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if key in table:
            before = table[key]
            self._undo.append(lambda: table.__setitem__(key, before))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> Any:
        before = table.pop(key)
        self._undo.append(lambda: table.__setitem__(key, before))
        return before

    def append(self, rows: list[Any], row: Any) -> None:
        rows.append(row)
        self._undo.append(rows.pop)

    def roll_back(self) -> None:
        for undo in reversed(self._undo):
            undo()


class MemoryLedger:
    """ports.ledger.Ledger over a MemoryStore. `clock` stands for the database's, in UTC."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        store: MemoryStore | None = None,
        *,
        beside: Beside | None = None,
        settings: SchedulingConfiguration | None = None,
    ) -> None:
        self._clock = clock
        self._beside = beside
        self._settings = settings or SchedulingConfiguration()
        self.store = store if store is not None else MemoryStore()

    async def take_epoch(self, holder: str) -> int:
        self.store.epochs += 1
        self.store.epoch = self.store.epochs
        self.store.holder = holder
        self.store.batches.clear()
        return self.store.epoch

    async def load(self) -> LedgerSnapshot:
        store = self.store
        times = self._preemptions()
        evicted = self._evictions()
        workloads = [
            replace(one, preempted_at=times[one.id], evicted_at=at, preemptor=by)
            for one in store.workloads.values()
            for at, by in [evicted.get(one.id, (None, None))]
        ]
        return LedgerSnapshot(
            sequence=store.sequence,
            now=store.now,
            workloads=tuple(sorted(workloads, key=lambda one: (one.arrival, one.id))),
            configs=tuple(self._in_force()),
            effects=tuple(sorted(store.effects, key=lambda key: store.effects[key])),
            past_usage=self._past_usage(store.now, workloads),
            budget_sums=self._budget_sums(),
            budget_entries=tuple(one for *_, one in store.budget if self._is_open(one)),
            read_up_to=store.read_up_to[1] if store.read_up_to[0] == store.batch else (),
        )

    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        if epoch == self.store.epoch:
            self.store.read_up_to = (self.store.batch, tuple(sorted(read_up_to.items())))

    def _is_open(self, entry: BudgetEntry) -> bool:
        known = self.store.workloads.get(WorkloadId(entry.workload))
        return known is not None and known.attempt is not None and known.attempt.number == entry.attempt

    def _budget_sums(self) -> tuple[BudgetSum, ...]:
        sums: defaultdict[tuple[str, str, str, Period], int] = defaultdict(int)
        for *_, one in self.store.budget:
            if not self._is_open(one) and self.store.now is not None and one.period.ends > self.store.now:
                sums[one.budget, one.subject, one.resource, one.period] += one.used
        return tuple(BudgetSum(*key, used) for key, used in sorted(sums.items()) if used)

    def _past_usage(self, now: datetime | None, then: Iterable[StoredWorkload]) -> tuple[UsageSum, ...]:
        """`then`: the workloads that were open at that time."""
        sharing = self._settings.usage_sharing
        if sharing is None or not sharing.half_life or now is None:
            return ()
        history = UsageHistory(sharing)
        since = history.horizon(now)
        for hold in self.store.ended_holds:
            if since <= hold.end <= now:
                for line in hold.lines:
                    held = {line.resource: line.pods * line.amount}
                    history.add_interval(hold.accounts, held, hold.start, hold.end)
        for one in then:
            if (attempt := one.attempt) is not None:
                accounts = usage_accounts(attempt.assignment.cluster_queue, one.attribution)
                held = {resource: -amount for resource, amount in attempt.assignment.resources().items()}
                counted = counted_from(attempt.admitted_at, now)
                history.add_interval(accounts, held, counted, self.store.begun[one.id, attempt.number])
        return history.sums(now)

    def _evictions(self) -> dict[WorkloadId, tuple[datetime, WorkloadId | None]]:
        """Of each workload that is being evicted, the time of that decision, and its preemptor if any."""
        found: dict[WorkloadId, tuple[datetime, WorkloadId | None]] = {}
        for row in self.store.decisions:
            one = self.store.workloads.get(row.workload) if row.workload is not None else None
            if row.verdict != Verdict.EVICTED or one is None:
                continue
            attempt = one.attempt
            if attempt is not None and (attempt.state, attempt.number) == (
                AttemptState.EVICTING,
                row.attempt,
            ):
                by = row.payload.get("preemptor")
                found[one.id] = (row.now, WorkloadId(str(by)) if by is not None else None)
        return found

    def _preemptions(self) -> defaultdict[WorkloadId, tuple[datetime, ...]]:
        """Times at which each open workload was preempted, as far as they count (P11)."""
        times: defaultdict[WorkloadId, tuple[datetime, ...]] = defaultdict(tuple)
        counts_for = self._settings.preemptions_count_for
        for row in self.store.decisions:
            if row.workload is None:
                continue
            if row.verdict == Verdict.RETIRED:
                times.pop(row.workload, None)
            elif row.reason is not None and (row.verdict, row.reason.code) == (
                Verdict.EVICTED,
                Code.PREEMPTED,
            ):
                assert self.store.now is not None
                if row.now >= self.store.now - counts_for:
                    times[row.workload] = (*times[row.workload], row.now)[-PREEMPTIONS_KEPT:]
        return times

    async def outcomes(
        self, names: Sequence[NamedWorkload]
    ) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        return [(name, self._outcome(name)) for name in names]

    def _outcome(self, name: NamedWorkload) -> WorkloadOutcome | None:
        rows = {row.sequence: row for row in self.store.decisions if row.verdict == Verdict.RETIRED}
        ended = (
            WorkloadOutcome(str(rows[sequence].payload["outcome"]))
            for sequence, one in reversed(self.store.ended)
            if (one.ref.namespace, one.ref.kind, one.ref.name) == name
        )
        return next(ended, None)

    async def now(self) -> datetime:
        clock = self._clock()
        return clock if self.store.now is None else max(clock, self.store.now)

    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        store = self.store
        if epoch != store.epoch:
            raise LostLeadership(f"epoch {epoch} is over: {store.holder} took epoch {store.epoch}")
        if store.now is not None and plan.now < store.now:
            raise LedgerRefused(f"time ran back: the plan is of {plan.now}, the last commit of {store.now}")
        if batch in store.batches:
            return store.batches[batch]
        first = store.sequence + 1
        fold = Fold(first, plan.now, store.config_sequence, self._beside)
        fold.add_all(plan.recorded)
        journal = _Journal()
        try:
            for done in set(acknowledged) & store.effects.keys():
                self._close(done, journal, acknowledged_at=plan.now)
            for line in fold.lines:
                journal.append(store.decisions, _decision_row(line, plan, epoch))
            for segment in fold.segments:
                self._apply(segment, plan.now, journal)
        except LedgerRefused:
            journal.roll_back()
            raise
        store.batches[batch] = first
        store.batch += 1
        store.pods_ready |= {
            one.workload: (store.batch, one)
            for one in for_readers.pods_ready
            if one.workload in store.workloads
        }
        store.lines |= {one.cluster_queue: (store.batch, one) for one in for_readers.lines}
        store.capacities |= {one.flavor: (store.batch, one) for one in for_readers.capacities}
        store.past_capacities += ((plan.now, one) for one in for_readers.past_capacities)
        store.demands |= {one.cluster_queue: (store.batch, one) for one in for_readers.demands}
        store.nodes = nodes_after(store.nodes, for_readers, store.batch)
        store.sequence += len(fold.lines)
        store.config_sequence = fold.config_version
        store.now = plan.now
        return first

    def _apply(self, segment: Segment, now: datetime, journal: _Journal) -> None:
        store = self.store
        store.attributions |= segment.attributions
        self._configure(segment, journal)
        self._book(segment, journal)
        for seen in segment.seen:
            self._see(seen, journal)
        for change in segment.changes.values():
            self._change(change, journal)
        for move in segment.attempts:
            self._move(move, now, journal)
        for resized in segment.resized:
            self._resize(resized, now, journal)
        lines: dict[WorkloadId, list[HoldLine]] = {}
        for line in segment.holds:
            lines.setdefault(line.workload, []).append(line)
        for opened in segment.opened:
            held = tuple(lines.get(opened.workload, ()))
            self._open(opened, held, journal)
            journal.put(store.begun, (opened.workload, opened.number), now)
            journal.put(store.holds, (opened.workload, opened.number), held)
        for sequence, effect in segment.effects:
            journal.put(store.effects, effect, sequence)
        for change in segment.changes.values():
            if change.closes:
                ended = journal.drop(store.workloads, change.id)
                journal.drop(store.updated, change.id)
                journal.append(store.ended, (change.sequence, ended))

    def _book(self, segment: Segment, journal: _Journal) -> None:
        for row in segment.budget:
            journal.append(self.store.budget, row)

    def _configure(self, segment: Segment, journal: _Journal) -> None:
        configs = self.store.configs
        for sequence, key, spec, _ in segment.configs:
            if spec is not None or configs.get(key, (0, None))[1] is not None:
                journal.put(configs, key, (sequence, spec))
                journal.append(self.store.revisions, (sequence, key, spec))

    def _see(self, line: SeenWorkload, journal: _Journal) -> None:
        journal.put(self.store.shapes, line.shape, _pod_sets_as_stored(line.pod_sets))
        known = self.store.workloads.get(line.id)
        fresh = StoredWorkload(
            id=line.id,
            ref=line.ref,
            queue=line.queue,
            cluster_queue=line.cluster_queue,
            priority=line.priority,
            created_at=line.created_at,
            arrival=line.arrival,
            phase=Phase.PENDING,
            attempts=0,
            attempt=None,
            reason=None,
            pod_sets=self.store.shapes[line.shape],
            submitter=line.submitter,
            labels=tuple(sorted(line.labels.items())),
            past=_past_as_stored(line.past),
            options=options_from_json(line.options),
        )
        if known is not None:
            fresh = replace(
                known,
                queue=line.queue,
                cluster_queue=line.cluster_queue,
                priority=line.priority,
                pod_sets=fresh.pod_sets,
                submitter=line.submitter if line.submitter is not None else known.submitter,
                labels=fresh.labels,
                past=fresh.past,
                options=fresh.options,
            )
        journal.put(self.store.workloads, line.id, fresh)
        journal.put(self.store.updated, line.id, line.sequence)

    def _change(self, change: WorkloadChange, journal: _Journal) -> None:
        known = self.store.workloads.get(change.id)
        if known is None or (change.held is not None and change.held != (known.phase is not Phase.PENDING)):
            raise LedgerRefused(f"workload {change.id} is not in the state that memory has it in")
        if change.opened is not None and change.opened <= known.attempts:
            raise LedgerRefused(f"workload {change.id} has had attempt {change.opened} already")
        changed = replace(
            known,
            phase=change.phase or known.phase,
            cluster_queue=change.cluster_queue or known.cluster_queue,
            attempts=change.opened or known.attempts,
            reason=_as_stored(change.reason) if change.reason_set else known.reason,
            priority=known.priority if change.priority is None else change.priority,
            past=known.past if change.past is None else _past_as_stored(change.past),
        )
        journal.put(self.store.workloads, change.id, changed)
        journal.put(self.store.updated, change.id, change.sequence)

    def _close(
        self,
        key: EffectKey,
        journal: _Journal,
        *,
        acknowledged_at: datetime | None = None,
        withdrawn_at: datetime | None = None,
    ) -> None:
        """The write is no longer due."""
        sequence = journal.drop(self.store.effects, key)
        row = EffectRow(sequence, key.verb, key.attempt, acknowledged_at, withdrawn_at)
        journal.put(self.store.closed_effects, sequence, row)

    def _move(self, move: AttemptChange, now: datetime, journal: _Journal) -> None:
        store = self.store
        workload = store.workloads.get(move.workload)
        attempt = workload.attempt if workload else None
        closes = move.state is AttemptState.CLOSED
        again = attempt is not None and attempt.state is AttemptState.EVICTING and not closes
        if workload is None or attempt is None or attempt.number != move.number or again:
            raise LedgerRefused(f"attempt {move.number} of {move.workload} is not open as memory has it")
        for key in [key for key in store.effects if key[:2] == (move.workload, move.number)]:
            self._close(key, journal, withdrawn_at=now)
        left = None if closes else replace(attempt, state=move.state)
        booked = None if closes else workload.attribution
        journal.put(store.workloads, move.workload, replace(workload, attempt=left, attribution=booked))
        if closes:
            lines = journal.drop(store.holds, (move.workload, move.number))
            accounts = usage_accounts(attempt.assignment.cluster_queue, workload.attribution)
            begun = store.begun[move.workload, move.number]
            journal.append(store.ended_holds, EndedHold(accounts, lines, begun, now))

    def _resize(self, resized: ResizedAttempt, now: datetime, journal: _Journal) -> None:
        store, key = self.store, (resized.workload, resized.number)
        workload = store.workloads.get(resized.workload)
        attempt = workload.attempt if workload else None
        if workload is None or attempt is None or attempt.number != resized.number:
            raise LedgerRefused(
                f"attempt {resized.number} of {resized.workload} is not open as memory has it"
            )
        if attempt.state is AttemptState.EVICTING:
            raise LedgerRefused(f"attempt {resized.number} of {resized.workload} is being evicted")
        held = {(line.pod_set, line.flavor, line.resource, line.amount): line for line in store.holds[key]}
        given_back = []
        for line in resized.lines:
            before = held.get(same := (line.pod_set, line.flavor, line.resource, line.amount))
            if before is None or line.pods > before.pods:
                raise LedgerRefused(f"{line} would not be a smaller line of the same as {before}")
            if line.pods < before.pods:
                held[same] = line._replace(attribution=before.attribution)
                given_back.append(before._replace(pods=before.pods - line.pods))
        # As if the remaining part had been a hold of its own from the start: the sums are equal.
        accounts = usage_accounts(attempt.assignment.cluster_queue, workload.attribution)
        ended = EndedHold(accounts, tuple(given_back), store.begun[key], now)
        journal.append(store.ended_holds, ended)
        journal.put(store.holds, key, tuple(held.values()))
        assignment = replace(attempt.assignment, pod_sets=pod_sets_from_json(resized.pod_sets))
        resized_attempt = replace(attempt, assignment=assignment)
        journal.put(store.workloads, resized.workload, replace(workload, attempt=resized_attempt))

    def _open(self, opened: NewAttempt, lines: Sequence[HoldLine], journal: _Journal) -> None:
        workload = self.store.workloads[opened.workload]
        attempt = Attempt(
            workload=opened.workload,
            number=opened.number,
            state=AttemptState.ADMITTED,
            assignment=Assignment(
                cluster_queue=opened.cluster_queue, pod_sets=pod_sets_from_json(opened.pod_sets)
            ),
            admitted_at=opened.admitted_at,
            sequence=opened.sequence,
            debt=opened.debt,
        )
        ids = [line.attribution for line in lines if line.attribution is not None]
        booked = attribution_of(self.store.attributions[ids[0]]) if ids else None
        stored = replace(workload, attempt=attempt, attribution=booked)
        journal.put(self.store.workloads, opened.workload, stored)
        journal.put(self.store.booked, (opened.workload, opened.number), booked)

    def _in_force(self) -> Iterator[tuple[ConfigKey, str]]:
        for key, (_, spec) in sorted(self.store.configs.items()):
            if spec is not None:
                yield key, spec


def nodes_after(
    known: Mapping[str, tuple[int, NodeFacts]], told: ForReaders, batch: int
) -> dict[str, tuple[int, NodeFacts]]:
    """The rows of nodes, each with the batch that stored it, after a batch that tells readers of some.

    Rows of nodes that are gone stay: GONE_KEPT is not applied.
    """
    rows = dict(known)
    for told_of in told.nodes:
        node = told_of.node and replace(told_of.node, uid="")  # not stored
        facts = replace(told_of, node=node)
        if rows.get(facts.name, (0, None))[1] != facts:
            rows[facts.name] = (batch, facts)
    if told.all_nodes is not None:
        others = [name for name, (_, facts) in rows.items() if name not in told.all_nodes and not facts.gone]
        rows |= {name: (batch, NodeFacts(name=name, node=None)) for name in others}
    return rows


@lru_cache(maxsize=10_000)
def _pod_sets_as_stored(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    return shape_from_json(json.loads(shape_of(pod_sets).json))


def _as_stored(reason: Reason | None) -> Reason | None:
    return None if reason is None else reason_from_json(reason_to_json(reason))


def _past_as_stored(past: PastAttempts) -> PastAttempts:
    return past_from_json(past_to_json(past))


def _decision_row(line: NewDecision, plan: Plan, epoch: int) -> DecisionRow:
    reason = decision_reason(line)
    return DecisionRow(
        sequence=line.sequence,
        cycle=plan.cycle,
        now=plan.now,
        epoch=epoch,
        verdict=line.verdict,
        workload=None if line.workload is None else WorkloadId(line.workload),
        ref=line.ref,
        attempt=line.attempt,
        reason=None if reason is None else reason_from_json(reason),
        payload=line.payload,
    )
