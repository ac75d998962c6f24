"""Recomputes the open state from history and compares it with the rows.

Both are streamed: memory grows with the open state, not with history. History is read from its beginning, or
from the decision after a stored checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Numeric, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import AttemptState, ConfigKey, Verb
from queuectl.ledger import tables as t
from queuectl.ledger.admin.partitions import used_defaults
from queuectl.ledger.admin.schema import check_schema
from queuectl.ledger.admin.statements import compare_statements
from queuectl.ledger.admin.sums_check import compare_budgets, compare_usage
from queuectl.ledger.codec import cleaned, dump
from queuectl.ledger.history import checkpoint
from queuectl.ledger.history.replay import Expected, Holding, LedgerFinding, Line, Replay, lines_of
from queuectl.ledger.history.usage_hours import rolled
from queuectl.ledger.pool import UPKEEP, connection_pool, ledger_call, reading, stream
from queuectl.ledger.read.queries import clusters
from queuectl.ledger.shared_rows import id_of

_FIRST_HOURS: Final = timedelta(hours=25)
_CHUNK: Final = 1000
"""Sequences that one statement asks for."""


async def verify(
    url: str, cluster_id: str | None = None, *, from_checkpoint: bool = False
) -> list[LedgerFinding]:
    """All findings on the ledger of one cluster, or of all in this database; empty if it is consistent.

    `from_checkpoint`: decisions that a stored checkpoint covers are not read. Raises LedgerUnavailable or
    SchemaMismatch.
    """
    async with connection_pool(url, read_only=True, statement_timeout=UPKEEP) as pool:
        await check_schema(pool)
        found: list[LedgerFinding] = []
        for cluster in [cluster_id] if cluster_id is not None else await clusters(pool):
            found += await Verifier(pool, cluster).run(whole=not from_checkpoint)
        return found


class Verifier:
    """Verifies one cluster's ledger repeatedly: each run reads only what is newer than the last one.

    The first run, and each one after findings or a restore of the ledger, begins at the stored checkpoint.
    """

    def __init__(self, pool: AsyncEngine, cluster_id: str) -> None:
        self._pool = pool
        self._cluster = cluster_id
        self._replay: Replay | None = None
        """The state of the last run; None after findings, and before the first decision."""
        self._stored = 0
        """Sequence of the stored checkpoint."""
        self._usage_until: datetime | None = None
        """Up to when roll-ups of usage were compared."""
        self._budgets: tuple[int, frozenset[str]] | None = None
        """Up to which decision rows of budgets were compared, and the workloads that were running then."""
        self._statements: set[str] = set()
        """Closed months that were compared, without a difference."""

    @ledger_call
    async def run(self, *, whole: bool = False) -> list[LedgerFinding]:
        """The current findings. `whole`: of all history, also of what was read before."""
        replay, self._replay = self._replay, None
        async with reading(self._pool) as connection:
            if replay is not None and not await checkpoint.continues(connection, self._cluster, replay):
                replay = None  # the ledger was restored since
            if whole or replay is None:
                replay = None if whole else await checkpoint.load(connection, self._cluster)
                self._stored = replay.sequence if replay else 0
                replay = replay or await self._beginning(connection)
            await self._play(connection, replay)
            await self._compare(connection, replay)
            if replay.sequence and not replay.findings:
                self._replay = replay
            # Not of the replayed state: a run after it need not read that again.
            shapes = await self._changed_shapes(connection) if whole else []
            usage = await self._compare_usage_hours(connection, whole=whole)
            usage += await self._compare_statements(connection, whole=whole)
            usage += await self._compare_budgets(connection, replay.sequence, whole=whole)
            return [*replay.findings, *shapes, *usage, *await self._used_defaults(connection)]

    @ledger_call
    async def store(self, least: int) -> None:
        """Store the state of the last run as checkpoint, if it had no findings and `least` are new."""
        replay = self._replay
        if replay is not None and replay.sequence >= self._stored + least:
            await checkpoint.store(self._pool, self._cluster, replay)
            self._stored = replay.sequence

    async def _beginning(self, connection: AsyncConnection) -> Replay:
        """The state before the first stored decision: the policy then in force, which is kept."""
        replay, decision, row = Replay(), t.decision.c, t.config_revision.c
        decided = select(func.min(decision.sequence)).where(decision.cluster_id == self._cluster)
        first: int | None = (await connection.execute(decided)).scalar_one()
        if first is None or first == 1:
            return replay
        query = (
            select(row.kind, row.namespace, row.name, row.from_seq, row.spec)
            .where(row.cluster_id == self._cluster, row.from_seq < first)
            .where(or_(row.to_seq.is_(None), row.to_seq >= first))
            .order_by(row.from_seq)
        )
        async for kind, namespace, name, sequence, spec in stream(connection, query):
            replay.configure(ConfigKey(kind, namespace, name), sequence, cleaned(json.loads(spec)))
        return replay

    async def _play(self, connection: AsyncConnection, replay: Replay) -> None:
        closed = _Groups(self._closed_lines(connection, replay.sequence))
        row = t.decision.c
        query = select(
            *(row.sequence, row.now, row.epoch, row.verdict, row.workload, row.attempt, row.payload),
            *(row.namespace, row.kind, row.name),
        )
        query = query.where(row.cluster_id == self._cluster, row.sequence > replay.sequence)
        async for one in stream(connection, query.order_by(row.sequence)):
            lines = replay.apply(one)
            stored = await closed.take(one.sequence, replay)
            if lines is not None and one.workload not in replay.trusted and stored != lines:
                replay.find(
                    "ClosedHolds",
                    f"attempt {one.attempt} of {one.workload}",
                    f"decision {one.sequence} ends {len(lines)} hold lines {lines}, stored are {stored}",
                )
            elif lines is None and stored and one.workload not in replay.trusted:
                replay.find("ClosedHolds", f"decision {one.sequence}", f"ends no attempt, but {stored}")
            replay.forget(one)
        await closed.take(None, replay)

    async def _closed_lines(self, connection: AsyncConnection, after: int) -> AsyncIterator[tuple[int, Line]]:
        row = t.hold_line.c
        query = (
            select(row.to_seq, row.pod_set, row.count, row.flavor, row.resource, row.amount)
            .where(row.cluster_id == self._cluster, ~row.open, row.to_seq > after)
            .order_by(row.to_seq)
        )
        async for to_seq, *line in stream(connection, query):
            yield to_seq, (line[0], line[1], line[2], line[3], line[4])

    async def _compare(self, connection: AsyncConnection, replay: Replay) -> None:
        await self._compare_leadership(connection, replay)
        await self._compare_workloads(connection, replay)
        await self._compare_holds(connection, replay)
        await self._compare_usage(connection, replay)
        await self._compare_effects(connection, replay)
        await self._compare_configs(connection, replay)

    async def _used_defaults(self, connection: AsyncConnection) -> list[LedgerFinding]:
        detail = "has rows: a month's partition was missing when they came"
        return [LedgerFinding("DefaultPartition", name, detail) for name in await used_defaults(connection)]

    async def _changed_shapes(self, connection: AsyncConnection) -> list[LedgerFinding]:
        row = t.shape.c
        query = select(row.id, row.pod_sets).where(row.cluster_id == self._cluster).order_by(row.id)
        return [
            LedgerFinding("Shapes", f"shape {id}", "its podsets are not those that its id is made of")
            async for id, pod_sets in stream(connection, query)
            if id != id_of(pod_sets)
        ]

    async def _compare_usage_hours(self, connection: AsyncConnection, *, whole: bool) -> list[LedgerFinding]:
        """Of hours that no run before has compared; the first run compares those of a day."""
        since = None if whole else self._usage_until
        if since is None and not whole and (state := await rolled(connection, self._cluster)) is not None:
            since = state.until - _FIRST_HOURS
        found, until = await compare_usage(connection, self._cluster, since)
        self._usage_until = None if found else until
        return found

    async def _compare_statements(self, connection: AsyncConnection, *, whole: bool) -> list[LedgerFinding]:
        checked = () if whole else self._statements
        found, self._statements = await compare_statements(connection, self._cluster, checked)
        return found

    async def _compare_budgets(
        self, connection: AsyncConnection, sequence: int, *, whole: bool
    ) -> list[LedgerFinding]:
        """Of attempts with rows after the last run without findings, the stored checkpoint at first."""
        self._budgets = self._budgets or (self._stored, frozenset())
        after, running = (0, frozenset[str]()) if whole else self._budgets
        found, still = await compare_budgets(connection, self._cluster, after, running)
        if not found:
            self._budgets = sequence, still
        return found

    async def _compare_leadership(self, connection: AsyncConnection, replay: Replay) -> None:
        row = t.leadership.c
        query = select(row.sequence, row.now, row.epoch).where(row.cluster_id == self._cluster)
        found = (await connection.execute(query)).one_or_none()
        name = f"leadership of cluster {self._cluster}"
        if found is None:
            if replay.sequence:
                replay.find("Leadership", name, f"is missing, there are {replay.sequence} decisions")
            return
        if not replay.sequence:
            replay.begins = found.sequence + 1  # all months of history have been dropped
        elif found.sequence != replay.sequence:
            replay.find("Gap", name, f"is at {found.sequence}, the last decision is {replay.sequence}")
        if replay.epoch > found.epoch:
            replay.find("OldEpoch", name, f"is {found.epoch}, a decision has epoch {replay.epoch}")
        if replay.now is not None and (found.now is None or found.now < replay.now):
            replay.find("TimeRanBack", name, f"is of {found.now}, the last decision of {replay.now}")

    async def _compare_workloads(self, connection: AsyncConnection, replay: Replay) -> None:
        w, a = t.workload.c, t.attempt.c
        query = (
            select(w.id, w.phase, w.attempts, w.updated_seq, w.queued_seq, w.past)
            .where(w.cluster_id == self._cluster, w.open)
            .order_by(w.id)
        )
        missing = set(replay.workloads)
        async for row in stream(connection, query):
            missing.discard(row.id)
            expected = replay.workloads.get(row.id)
            if expected is not None:
                _compare_workload(replay, row, expected)
            elif row.id not in replay.trusted and row.queued_seq >= replay.begins:
                replay.find("ExtraWorkload", f"workload {row.id}", "is open, by no decision")
        for lost in sorted(missing):
            replay.find("MissingWorkload", f"workload {lost}", "should be open by its decisions, has no row")
        holding = {id: one.holding for id, one in replay.workloads.items() if one.holding is not None}
        attempts = select(a.workload, a.number, a.state, a.cluster_queue, a.sequence, a.debt, a.pod_sets)
        attempts = attempts.where(a.cluster_id == self._cluster, a.open)
        async for row in stream(connection, attempts):
            held = holding.pop(row.workload, None)
            if held is not None:
                _compare_attempt(replay, row, held)
            elif row.workload not in replay.trusted and row.sequence >= replay.begins:
                replay.find(
                    "ExtraAttempt", f"attempt {row.number} of {row.workload}", "is open, by no decision"
                )
        for workload, held in sorted(holding.items()):
            replay.find(
                "MissingAttempt", f"attempt {held.number} of {workload}", "should be open, has no row"
            )

    async def _compare_holds(self, connection: AsyncConnection, replay: Replay) -> None:
        row = t.hold_line.c
        query = (
            select(*(row.workload, row.attempt, row.pod_set, row.count, row.flavor, row.resource, row.amount))
            .where(row.cluster_id == self._cluster, row.open, row.from_seq >= replay.begins)
            .order_by(row.workload, row.attempt)
        )
        held = {
            (id, one.holding.number): one.holding.lines
            for id, one in replay.workloads.items()
            if one.holding is not None and one.holding.lines
        }
        async for (workload, number), lines in _by_attempt(stream(connection, query)):
            expected = held.pop((workload, number), ())
            if lines != expected and workload not in replay.trusted:
                subject = f"holds of attempt {number} of {workload}"
                replay.find("OpenHolds", subject, f"are {lines}, by its decisions {expected}")
        for (workload, number), expected in sorted(held.items()):
            replay.find("OpenHolds", f"holds of attempt {number} of {workload}", f"are missing: {expected}")

    async def _compare_usage(self, connection: AsyncConnection, replay: Replay) -> None:
        if replay.trusted:
            return
        row = t.hold_line.c
        total = func.sum(cast(row.count, Numeric) * row.amount)
        query = (
            select(row.cluster_queue, row.flavor, row.resource, total)
            .where(row.cluster_id == self._cluster, row.open, row.from_seq >= replay.begins)
            .group_by(row.cluster_queue, row.flavor, row.resource)
        )
        stored = {(q, FlavorResource(f, r)): int(n) for q, f, r, n in await connection.execute(query) if n}
        played = {(q, cell): n for q, usage in replay.usage.items() for cell, n in usage.items() if n}
        for key in sorted(stored.keys() | played.keys()):
            if stored.get(key, 0) != played.get(key, 0):
                numbers = f"open lines sum to {stored.get(key, 0)}, decisions to {played.get(key, 0)}"
                replay.find("Usage", f"ClusterQueue {key[0]}, {key[1]}", numbers)

    async def _compare_effects(self, connection: AsyncConnection, replay: Replay) -> None:
        row = t.effect.c
        query = select(row.sequence, row.workload, row.attempt, row.verb)
        query = query.where(row.cluster_id == self._cluster, row.open)
        async for one in stream(connection, query):
            known = replay.workloads.get(one.workload)
            held = known.holding if known else None
            if one.workload in replay.trusted or one.sequence < replay.begins:
                continue
            if held is None or (held.effect, held.number, _verb(held)) != (
                one.sequence,
                one.attempt,
                one.verb,
            ):
                subject = f"{one.verb} of attempt {one.attempt} of {one.workload}"
                replay.find("ExtraEffect", subject, f"of decision {one.sequence} is due, by no open attempt")
        wanted = {
            one.holding.effect: (id, one.holding)
            for id, one in replay.workloads.items()
            if one.holding is not None and one.holding.effect is not None
        }
        for sequences in _chunks(sorted(wanted)):
            query = select(row.sequence).where(row.cluster_id == self._cluster, row.sequence.in_(sequences))
            there = set((await connection.execute(query)).scalars())
            for sequence in sorted(set(sequences) - there):
                workload, held = wanted[sequence]
                subject = f"{_verb(held)} of attempt {held.number} of {workload}"
                replay.find("MissingEffect", subject, f"decision {sequence} asks for it, there is no row")

    async def _compare_configs(self, connection: AsyncConnection, replay: Replay) -> None:
        row = t.config_revision.c
        query = select(row.kind, row.namespace, row.name, row.from_seq, row.spec)
        query = query.where(row.cluster_id == self._cluster, row.to_seq.is_(None))
        played = dict(replay.configs)
        async for kind, namespace, name, sequence, spec in stream(connection, query):
            key = ConfigKey(kind, namespace, name)
            expected = played.pop(key, None)
            if sequence < replay.begins:
                continue
            stored = (sequence, dump(cleaned(json.loads(spec))))
            if expected != stored:
                by = f"decision {expected[0]}: {expected[1]}" if expected else "no decision"
                replay.find("Policy", str(key), f"is {stored[1]} since decision {sequence}, but by {by}")
        for key, (sequence, _) in sorted(played.items()):
            replay.find("Policy", str(key), f"is in force by decision {sequence}, has no row")


def _compare_workload(replay: Replay, row: Any, expected: Expected) -> None:
    stored = (row.phase, row.attempts, row.updated_seq)
    played = (expected.phase.value, expected.attempts, expected.updated)
    if stored != played:
        subject = f"workload {row.id}"
        replay.find("Workload", subject, f"phase, attempts and sequence are {stored}, by decisions {played}")
    if row.past != expected.past:
        replay.find("Past", f"workload {row.id}", f"is {row.past}, by decisions {expected.past}")


def _compare_attempt(replay: Replay, row: Any, held: Holding) -> None:
    stored = (row.number, row.state, row.cluster_queue, row.sequence, row.debt, lines_of(row.pod_sets))
    played = (held.number, held.state.value, held.cluster_queue, held.sequence, held.debt, held.lines)
    if stored != played:
        subject = f"attempt {row.number} of {row.workload}"
        replay.find("Attempt", subject, f"is {stored}, by its decisions {played}")


def _verb(held: Holding) -> str:
    return (Verb.STOP if held.state is AttemptState.EVICTING else Verb.START).value


class _Groups:
    """Closed hold lines, grouped by decision, in the order of the decisions."""

    def __init__(self, lines: AsyncIterator[tuple[int, Line]]) -> None:
        self._lines = lines
        self._next: tuple[int, Line] | None = None
        self._begun = False

    async def take(self, sequence: int | None, replay: Replay) -> tuple[Line, ...]:
        """Lines that decision `sequence` closed, sorted; None: no more decisions."""
        if not self._begun:
            self._begun = True
            self._next = await anext(self._lines, None)
        found = []
        while self._next is not None and (sequence is None or self._next[0] <= sequence):
            closed_by, line = self._next
            if closed_by == sequence:
                found.append(line)
            elif closed_by >= replay.begins:
                replay.find(
                    "ClosedHolds", f"hold line {line}", f"is closed by decision {closed_by}, not there"
                )
            self._next = await anext(self._lines, None)
        return tuple(sorted(found))


async def _by_attempt(rows: AsyncIterator[Any]) -> AsyncIterator[tuple[tuple[str, int], tuple[Line, ...]]]:
    """Hold lines, ordered by attempt, as sorted groups."""
    current: tuple[str, int] | None = None
    lines: list[Line] = []
    async for workload, number, *line in rows:
        if current is not None and current != (workload, number):
            yield current, tuple(sorted(lines))
            lines = []
        current = (workload, number)
        lines.append((line[0], line[1], line[2], line[3], line[4]))
    if current is not None:
        yield current, tuple(sorted(lines))


def _chunks(numbers: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), _CHUNK):
        yield numbers[start : start + _CHUNK]
