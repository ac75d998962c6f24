"""Answers to readers from a MemoryLedger: what ledger/read and ledger/history read from Postgres.

The bounds of an answer (MOST_HELD, MOST_STARTS, MOST_LIVES) are not applied.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity, NodeFacts
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import FlavorResource, by_resource
from queuectl.core.model.workload import (
    Assignment,
    ConfigKey,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    StoredWorkload,
    WorkloadId,
)
from queuectl.ledger.codec import pod_sets_from_json
from queuectl.ledger.history.past_usage import PREEMPTIONS_KEPT
from queuectl.ledger.history.state_at import as_of, flavors_of
from queuectl.ledger.write.plan_rows import HoldLine
from queuectl.ports.history import LIFE, WorkloadHistory
from queuectl.ports.ledger import LedgerUnavailable, NotStored
from queuectl.ports.periods import Piece
from queuectl.ports.reader import (
    BookedOn,
    CapacitySum,
    DecisionRow,
    EvictionTimes,
    Held,
    PastHolds,
    PastLife,
    PastLives,
    PastRun,
    PreemptionRow,
    Reading,
    Revision,
    StartsSpan,
    StoryRows,
    UsageOfTime,
    UsageSumOf,
    WorkloadStarts,
)
from tests.doubles.ledger import MemoryLedger, MemoryStore


class ReadableLedger(MemoryLedger):
    """A MemoryLedger that also is a ports.reader.Readings, and a ports.reader.PastWork."""

    async def at(self, when: datetime | None) -> LedgerSnapshot:
        nodes: tuple[NodeFacts, ...] = ()
        if when is None:
            when, nodes = await self.now(), await self.nodes_now()
        rows = [row for row in self.store.decisions if row.now <= when]
        if not rows:
            raise NotStored(when, self._first_decision().now)
        snapshot = snapshot_at(self.store, rows, when, self._settings.preemptions_count_for)
        capacities = self._capacities_at(when, flavors_of(snapshot.configs))
        past_usage = self._past_usage(snapshot.now, snapshot.workloads)
        return replace(snapshot, past_usage=past_usage, nodes=nodes, capacities=capacities)

    async def first_capacity(self) -> datetime | None:
        return next((at for at, row in self.store.past_capacities if row.flavor == NO_FLAVOR), None)

    async def past_lives(self, *, since: datetime, known: PastLives | None = None) -> PastLives:
        first, until = self._first_decision().now, await self.now()
        return past_lives(self.store, max(since, first), until)

    async def nodes_now(self) -> tuple[NodeFacts, ...]:
        present = (row for _, row in self.store.nodes.values() if not row.gone)
        return tuple(sorted(present, key=lambda row: row.name))

    async def since(self, sequence: int, batch: int = 0) -> Reading:
        store = self.store
        if not store.epoch:
            raise LedgerUnavailable("no controller has led this cluster yet")
        changed = [(store.updated[row.id], row) for row in store.workloads.values()]
        configs = list(self._in_force())
        if sequence:
            changed = [pair for pair in (*store.ended, *changed) if pair[0] > sequence]
            configs = [(key, spec) for key, (at, spec) in store.configs.items() if at > sequence]  # type: ignore[misc]
        clock = await self.now()
        return Reading(
            sequence=store.sequence,
            committed_at=store.now or clock,
            read_at=clock,
            epoch=store.epoch,
            workloads=tuple(row for _, row in sorted(changed, key=lambda pair: pair[0])),
            configs=tuple(configs),
            batch=store.batch,
            for_readers=ForReaders(
                tuple(
                    row
                    for at, row in store.pods_ready.values()
                    if at > batch and row.workload in store.workloads
                ),
                tuple(row for at, row in store.lines.values() if at > batch),
                tuple(row for at, row in store.capacities.values() if at > batch),
                tuple(row for at, row in store.demands.values() if at > batch),
                tuple(row for at, row in store.nodes.values() if at > batch),
            ),
        )

    async def find(
        self, namespace: str, kind: str, name: str, *, ended_by: int | None = None
    ) -> StoredWorkload | None:
        wanted = (namespace, kind, name)
        same = [row for row in self.store.workloads.values() if row.ref[:3] == wanted]
        if same and ended_by is None:
            return max(same, key=lambda row: self.store.updated[row.id])
        ended = reversed(self.store.ended)
        over = (row for at, row in ended if ended_by is None or at <= ended_by)
        return next((row for row in over if row.ref[:3] == wanted), None)

    async def finished(
        self, *, before: int | None, since: datetime | None, limit: int
    ) -> list[tuple[int, StoredWorkload]]:
        ended_at = {row.sequence: row.now for row in self.store.decisions}
        ended = [
            pair
            for pair in reversed(self.store.ended)
            if (before is None or pair[0] < before) and (since is None or ended_at[pair[0]] >= since)
        ]
        return ended[:limit]

    async def history(self, workload: WorkloadId, *, after: int, limit: int) -> list[DecisionRow]:
        rows = [row for row in self.store.decisions if row.workload == workload and row.sequence > after]
        return rows[:limit]

    async def lives(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[WorkloadId, list[DecisionRow]]:
        return lives(self.store.decisions, workloads, until)

    async def held_by_attempts(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[int, dict[str, int]]:
        return held_by_attempts(self.store.decisions, workloads, until)

    async def story(self, workload: WorkloadId, *, until: int, limit: int) -> StoryRows:
        raise NotImplementedError("no test reads a story from memory")

    async def decisions(self, *, after: int, limit: int) -> list[DecisionRow]:
        return [row for row in self.store.decisions if row.sequence > after][:limit]

    async def last_of(self, epoch: int) -> int:
        return max((row.sequence for row in self.store.decisions if row.epoch <= epoch), default=0)

    async def starts(self, spans: Sequence[StartsSpan]) -> list[WorkloadStarts]:
        return [starts(self.store.decisions, span) for span in spans]

    async def preemptions(
        self, *, before: int | None, since: datetime | None, until: datetime | None, limit: int
    ) -> list[PreemptionRow]:
        return preemptions(self.store.decisions, before, since, until, limit)

    async def eviction_times(self, sequence: int, since: datetime) -> dict[WorkloadId, EvictionTimes]:
        preempted, evicted = self._preemptions(), self._evictions()
        return {
            one: EvictionTimes(preempted[one], *evicted.get(one, (None, None)))
            for one in {**preempted, **evicted}
        }

    async def past_holds(self, *, since: datetime, until: datetime) -> PastHolds:
        return past_holds(self.store.decisions, self._all_holds(), since, until)

    def _all_holds(self) -> list[tuple[tuple[HoldLine, ...], datetime, datetime | None]]:
        """Lines with their start and end."""
        store = self.store
        open_holds = [
            (lines, attempt.admitted_at, None)
            for (workload, _), lines in store.holds.items()
            if (attempt := store.workloads[workload].attempt) is not None
        ]
        return [*((hold.lines, hold.start, hold.end) for hold in store.ended_holds), *open_holds]

    async def usage_zone(self) -> str:
        return "UTC"

    async def usage(self, *, since: datetime, until: datetime) -> UsageOfTime:
        """Without capacity, and from the first hour of the first decision on."""
        first = self._first_decision().now.replace(minute=0, second=0, microsecond=0)
        since, until = max(since, first), min(until, await self.now())
        sums: defaultdict[tuple[str, str, str, str], int] = defaultdict(int)
        for lines, start, end in self._all_holds():
            length = min(until, end or until) - max(since, start)
            for line in lines:
                key = (line.cluster_queue, line.attribution or "", line.flavor, line.resource)
                amount = line.pods * line.amount * (length // timedelta(microseconds=1))
                if amount > 0:
                    sums[key] += amount
        rows = [
            UsageSumOf(self._booked(attribution), queue, flavor, resource, amount)
            for (queue, attribution, flavor, resource), amount in sorted(sums.items())
        ]
        return UsageOfTime(since, max(since, until), rows, [])

    async def capacity_trend(self, *, flavor: str, steps: Sequence[Piece]) -> list[tuple[Piece, CapacitySum]]:
        """No capacity is kept."""
        return []

    async def decayed_usage(self, *, until: datetime, half_life: int) -> UsageOfTime:
        """Exact: the integral of what was held, times 2^-(age / half_life)."""
        until = min(until, await self.now())
        sums: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)

        def since(when: datetime) -> float:
            return math.exp2(-max(until - when, timedelta()).total_seconds() / half_life)

        for lines, start, end in self._all_holds():
            counts = (since(end or until) - since(start)) * half_life * 1_000_000 / math.log(2)
            for line in lines:
                key = (line.cluster_queue, line.attribution or "", line.flavor, line.resource)
                sums[key] += line.pods * line.amount * counts
        rows = [
            UsageSumOf(self._booked(attribution), queue, flavor, resource, int(amount))
            for (queue, attribution, flavor, resource), amount in sorted(sums.items())
            if amount
        ]
        return UsageOfTime(until, until, rows, [])

    def _booked(self, id: str) -> BookedOn | None:
        one = self.store.attributions.get(id)
        if one is None:
            return None
        account = {key: value["value"] for key, value in one.account.items()}
        return BookedOn(one.namespace, one.queue, one.submitter, one.user_name, one.priority_class, account)

    async def queues_of(self, workloads: Collection[WorkloadId], *, until: int) -> dict[WorkloadId, str]:
        return {
            row.workload: str(row.payload["queue"])
            for row in self.store.decisions
            if row.workload is not None and row.workload in workloads and row.verdict == Verdict.QUEUED
            if row.sequence <= until
        }

    def _first_decision(self) -> DecisionRow:
        if not self.store.decisions:
            raise LedgerUnavailable("the ledger has no decision on this cluster yet")
        return self.store.decisions[0]

    def _capacities_at(self, when: datetime, flavors: Collection[str]) -> tuple[FlavorCapacity, ...]:
        """The last of each of `flavors` that was stored at `when` or before, by name."""
        stored = self.store.past_capacities
        last = {row.flavor: row for at, row in stored if at <= when and row.flavor in flavors}
        return tuple(last[flavor] for flavor in sorted(last))


# --- rows of history; `rows` are in the order of their sequences -----------------------------------------


def starts(rows: Iterable[DecisionRow], span: StartsSpan) -> WorkloadStarts:
    times = [
        row.now
        for row in rows
        if row.verdict == Verdict.ADMITTED
        and row.payload.get("clusterQueue") == span.cluster_queue
        and span.after < row.sequence < span.before
    ]
    return WorkloadStarts(len(times), times[-1] if times else None)


def preemptions(
    rows: Iterable[DecisionRow],
    before: int | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[PreemptionRow]:
    """Newest first. `rows`: all decisions."""
    opened: dict[tuple[WorkloadId | None, int | None], tuple[datetime, str]] = {}
    held = held_until(rows, {Verdict.EVICTED})
    preempted = []
    for row in rows:
        key = (row.workload, row.attempt)
        if row.verdict == Verdict.ADMITTED:
            opened[key] = (_admitted_at(row), str(row.payload["clusterQueue"]))
        elif row.verdict == Verdict.EVICTED and row.reason and row.reason.code is Code.PREEMPTED:
            admitted_at, queue = opened.get(key, (None, None))
            preempted.append(PreemptionRow(row, admitted_at, queue, held.get(row.sequence, {})))
    return [
        eviction
        for eviction in reversed(preempted)
        if (before is None or eviction.decision.sequence < before)
        and (since is None or eviction.decision.now >= since)
        and (until is None or eviction.decision.now < until)
    ][:limit]


def _admitted_at(row: DecisionRow) -> datetime:
    return datetime.fromisoformat(str(row.payload.get("admittedAt", row.now)))


def _assignment(row: DecisionRow, cluster_queue: str) -> Assignment:
    pod_sets: Any = row.payload.get("podSets", ())
    return Assignment(cluster_queue=cluster_queue, pod_sets=pod_sets_from_json(pod_sets))


def lives(
    rows: Iterable[DecisionRow], workloads: Collection[WorkloadId], until: int
) -> dict[WorkloadId, list[DecisionRow]]:
    """`rows`: all decisions."""
    found: dict[WorkloadId, list[DecisionRow]] = {}
    for row in rows:
        if row.workload in workloads and row.sequence <= until and row.verdict in LIFE:
            found.setdefault(WorkloadId(str(row.workload)), []).append(row)
    return found


def held_by_attempts(
    rows: Iterable[DecisionRow], workloads: Collection[WorkloadId], until: int
) -> dict[int, dict[str, int]]:
    """By the decision that ended an attempt. `rows`: all decisions."""
    some = [row for row in rows if row.workload in workloads and row.sequence <= until]
    return {
        sequence: by_resource(held.items())
        for sequence, held in held_until(some, {Verdict.RELEASED, Verdict.RETIRED}).items()
    }


_SIZES: Final = (Verdict.SHRUNK, Verdict.EVICTED, Verdict.RELEASED, Verdict.RETIRED)


def held_until(
    rows: Iterable[DecisionRow], verdicts: Collection[Verdict]
) -> dict[int, dict[FlavorResource, int]]:
    """What attempts held until each such decision, from the sizes that decisions give them."""
    sizes: dict[WorkloadId, tuple[datetime, Assignment, Counter[FlavorResource]]] = {}
    found: dict[int, dict[FlavorResource, int]] = {}
    for row in rows:
        one = WorkloadId(str(row.workload))
        if row.verdict == Verdict.ADMITTED:
            sizes[one] = (row.now, _assignment(row, str(row.payload.get("clusterQueue"))), Counter())
        elif one in sizes and row.verdict in _SIZES:
            since, size, sums = sizes.pop(one)
            lasted = max(row.now - since, timedelta()) // timedelta(microseconds=1)
            sums.update({cell: lasted * amount for cell, amount in size.usage().items()})
            if row.verdict == Verdict.SHRUNK:
                size = _assignment(row, size.cluster_queue)
            if row.verdict in verdicts:
                found[row.sequence] = dict(sums)
            if row.verdict in (Verdict.SHRUNK, Verdict.EVICTED):
                sizes[one] = (row.now, size, sums)
    return found


def past_holds(
    rows: Sequence[DecisionRow],
    holds: Iterable[tuple[Iterable[HoldLine], datetime, datetime | None]],
    since: datetime,
    until: datetime,
) -> PastHolds:
    """`rows`: all decisions; `holds`: lines with their start and end."""
    held = [
        Held(line.cluster_queue, line.flavor, line.resource, line.pods * line.amount, start, end)
        for lines, start, end in holds
        for line in lines
        if start < until and (end is None or end > since)
    ]
    revisions = [
        revision
        for revision in _revisions(rows)
        if revision.since < until and (revision.until is None or revision.until > since)
    ]
    return PastHolds(held, revisions, rows[0].now if rows else None)


def _revisions(rows: Iterable[DecisionRow]) -> Iterable[Revision]:
    in_force: dict[ConfigKey, Revision] = {}
    for row in rows:
        if row.verdict != Verdict.CONFIGURED or row.payload["kind"] not in ("ClusterQueue", "Cohort"):
            continue
        key = ConfigKey(*(str(row.payload[part]) for part in ("kind", "namespace", "name")))
        if (former := in_force.pop(key, None)) is not None:
            yield former._replace(until=row.now)
        if row.payload["spec"] is not None:
            in_force[key] = Revision(key, json.dumps(row.payload["spec"]), row.now, None)
    yield from in_force.values()


# --- an earlier state ------------------------------------------------------------------------------------


def snapshot_at(
    store: MemoryStore, rows: Sequence[DecisionRow], when: datetime, counts_for: timedelta
) -> LedgerSnapshot:
    """The state after the decisions `rows`, without past usage. They are all up to `when`, at least one.

    `counts_for`: how long a preemption counts (P11).
    """
    last, now = rows[-1].sequence, rows[-1].now
    workloads = [
        _with_attribution(store, as_of(row, own, store.shapes.__getitem__, _preempted(own, now - counts_for)))
        for row, own in _open(store, rows)
    ]
    specs = {key: spec for sequence, key, spec in store.revisions if sequence <= last}
    return LedgerSnapshot(
        sequence=last,
        now=now,
        workloads=tuple(sorted(workloads, key=lambda workload: (workload.arrival, workload.id))),
        configs=tuple((key, spec) for key, spec in sorted(specs.items()) if spec is not None),
        effects=tuple(key for _, key in sorted(_effects(store, last, when))),
    )


def _with_attribution(store: MemoryStore, one: StoredWorkload) -> StoredWorkload:
    booked = None if one.attempt is None else store.booked[one.id, one.attempt.number]
    return replace(one, attribution=booked)


def _open(
    store: MemoryStore, rows: Sequence[DecisionRow]
) -> Iterator[tuple[StoredWorkload, list[DecisionRow]]]:
    """Rows of the workloads that were open, with their decisions up to then."""
    lives: dict[WorkloadId, list[DecisionRow]] = {}
    for row in rows:
        if row.workload is not None:
            lives.setdefault(row.workload, []).append(row)
            if row.verdict == Verdict.RETIRED:
                del lives[row.workload]
    # A workload that lost its label and got it again has several lives: the first that ended later counts.
    ended: dict[WorkloadId, StoredWorkload] = {}
    for sequence, workload in reversed(store.ended):
        if sequence > rows[-1].sequence:
            ended[workload.id] = workload
    for id_, own in lives.items():
        yield ended.get(id_) or store.workloads[id_], own


def _preempted(rows: Sequence[DecisionRow], since: datetime) -> tuple[datetime, ...]:
    times = (
        row.now
        for row in rows
        if row.verdict == Verdict.EVICTED and row.now >= since
        if row.reason is not None and row.reason.code is Code.PREEMPTED
    )
    return tuple(times)[-PREEMPTIONS_KEPT:]


def _effects(store: MemoryStore, last: int, when: datetime) -> Iterator[tuple[int, EffectKey]]:
    """Writes that were due then, each with the sequence of its decision."""
    subjects = {row.sequence: row.workload for row in store.decisions}
    for key, sequence in store.effects.items():
        if sequence <= last:
            yield sequence, key
    for row in store.closed_effects.values():
        ended, workload = row.acknowledged_at or row.withdrawn_at, subjects[row.sequence]
        if row.sequence <= last and workload is not None and ended is not None and ended > when:
            yield row.sequence, EffectKey(workload, row.attempt, row.verb)


# --- workloads of the last weeks -------------------------------------------------------------------------


def past_lives(store: MemoryStore, since: datetime, until: datetime) -> PastLives:
    """Those that were open at `since` or later. The store has a decision."""
    runs = _runs(store.decisions)
    times = {row.sequence: row.now for row in store.decisions}
    over = [PastLife(row, times[end], tuple(runs[row.id, end])) for end, row in store.ended]
    open_ = [PastLife(row, None, tuple(runs[row.id, 0])) for row in store.workloads.values()]
    lives = [life for life in (*over, *open_) if life.ended_at is None or life.ended_at >= since]
    lives.sort(key=lambda life: (life.workload.created_at, life.workload.arrival, life.workload.id))
    return PastLives(tuple(lives), since, until, store.decisions[-1].sequence)


def _runs(rows: Iterable[DecisionRow]) -> Mapping[tuple[WorkloadId, int], list[PastRun]]:
    """By workload and sequence of its end, 0 if it is open."""
    histories: defaultdict[WorkloadId, WorkloadHistory] = defaultdict(WorkloadHistory)
    runs: defaultdict[tuple[WorkloadId, int], list[PastRun]] = defaultdict(list)
    for row in rows:
        if row.workload is not None:
            history = histories[row.workload]
            history.add(row)
            if row.verdict == Verdict.RETIRED:
                runs[row.workload, row.sequence] = _runs_of(history)
    for workload, history in histories.items():
        if history.ended_at is None:
            runs[workload, 0] = _runs_of(history)
    return runs


def _runs_of(history: WorkloadHistory) -> list[PastRun]:
    return [
        PastRun(one.admitted_at, one.ended_at, None if one.eviction is None else one.eviction.now)
        for one in history.attempts
    ]
