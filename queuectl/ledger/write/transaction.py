"""The writes of one transaction: a few statements, each of which must change exactly the rows it names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Delete, Executable, Insert, Row, Update
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.budgets import BudgetEntry
from queuectl.core.model.workload import AttemptState, EffectKey, ForReaders, PastAttempts
from queuectl.ledger import published_facts as for_readers
from queuectl.ledger.arrays import Columns
from queuectl.ledger.codec import PAYLOAD_VERSION, dump, past_to_json, reason_to_json
from queuectl.ledger.shared_rows import StoredAttribution, shape_of
from queuectl.ledger.write import statements as s
from queuectl.ledger.write.plan_rows import (
    RULES_VERSION,
    Fold,
    NewConfig,
    NewDecision,
    ResizedAttempt,
    SeenWorkload,
    Segment,
    WorkloadChange,
    decision_reason,
)
from queuectl.ports.ledger import LedgerRefused

_BATCHES_KEPT: Final = 256
"""Batches stored to recognize a repeated commit whose answer was lost."""


class Fence(NamedTuple):
    sequence: int
    """Of the last decision of this transaction."""
    config_sequence: int
    batches: int


class Writing:
    """Writes of one transaction on `connection`. Raises LedgerRefused if a row differs from memory."""

    def __init__(
        self,
        connection: AsyncConnection,
        cluster: str,
        now: datetime,
        shapes: Collection[str] = (),
        attributions: Collection[str] = (),
    ) -> None:
        """`shapes`, `attributions`: ids of those that are known to be stored."""
        self._connection = connection
        self._shapes = shapes
        self._attributions = attributions
        self.new_attributions: set[str] = set()
        """Ids of those that this transaction stores."""
        self.new_shapes: dict[str, str] = {}
        """JSON by id, of those that this transaction stores."""
        self._fixed: dict[str, Any] = {"cluster": cluster, "now": now}

    async def fence(self, epoch: int, holder: str, rows: int) -> Fence | None:
        """Lock the cluster's row and number `rows` decisions. None: another leads, or time ran back."""
        found = await self._rows(s.FENCE, epoch=epoch, holder=holder, rows=rows)
        return Fence._make(found[0]) if found else None

    async def begin_batch(self, batch: str, epoch: int, first: int, number: int) -> int | None:
        """Store this batch; if it is stored already, returns its first sequence number."""
        noted = await self._rows(s.NEW_BATCH, batch=batch, epoch=epoch, first=first, number=number)
        if not noted:
            ((known,),) = await self._rows(s.KNOWN_BATCH, batch=batch)
            return int(known)
        if number % _BATCHES_KEPT == 0:
            await self._run(s.FORGET_BATCHES, number=number - _BATCHES_KEPT)
        return None

    async def acknowledge(self, keys: Sequence[EffectKey]) -> None:
        """Effects that are acknowledged or withdrawn already are left unchanged."""
        if keys:
            await self._bulk(s.ACKNOWLEDGE, s.ACKNOWLEDGED_ROWS, sorted(set(keys)))

    async def tell_readers(self, found: ForReaders, batch: int) -> None:
        """After `store`: of workloads that are over nothing is stored."""
        if found.pods_ready:
            await self._bulk(
                for_readers.PODS_READY, for_readers.PODS_READY_ROWS, sorted(found.pods_ready), number=batch
            )
        for facts, rows in for_readers.facts_of(found):
            await self._bulk(facts.statement, facts.rows, rows, number=batch)
        for statement, parameters in for_readers.dropped(found, batch):
            await self._run(statement, **parameters)

    async def store(self, fold: Fold, *, epoch: int, cycle: int) -> None:
        if not fold.lines:
            return
        await self._bulk(
            s.DECISIONS,
            s.DECISION_ROWS,
            map(_decision_row, fold.lines),
            epoch=epoch,
            cycle=cycle,
            payload_version=PAYLOAD_VERSION,
            rules_version=RULES_VERSION,
        )
        for segment in fold.segments:
            await self._configs(segment.configs)
            await self._workloads(segment)
            await self._attempts(segment)
        if any(segment.configs for segment in fold.segments):
            await self._run(s.CONFIGURED, config_sequence=fold.config_version)

    async def _configs(self, configs: list[NewConfig]) -> None:
        if not configs:
            return
        await self._bulk(s.END_CONFIGS, s.CONFIG_END_ROWS, [(*one.key, one.sequence) for one in configs])
        fresh = [(*one.key, one.sequence, one.spec, one.author) for one in configs if one.spec is not None]
        if fresh:
            await self._bulk(s.CONFIGS, s.CONFIG_ROWS, fresh)

    async def _workloads(self, segment: Segment) -> None:
        if segment.seen:
            await self._store_shapes(segment.seen)
            rows = [
                (
                    *(one.id, *one.ref, one.queue, one.cluster_queue, one.priority, one.created_at),
                    *(one.arrival, one.submitter, dump(one.labels), one.shape),
                    *(_past(one.past), None if one.options is None else dump(one.options), one.sequence),
                )
                for one in segment.seen
            ]
            await self._bulk(s.SEEN, s.SEEN_ROWS, rows)
            objects = [(one.ref.uid, one.id, one.ref.kind) for one in segment.seen]
            await self._bulk(s.OBJECTS, s.OBJECT_ROWS, objects)
        changes = segment.changes.values()
        if changes:
            await self._bulk(s.CHANGES, s.CHANGE_ROWS, map(_change_row, changes), expect=len(changes))
        ended = [change.id for change in changes if change.closes]
        if ended:
            await self._run(s.NO_OBJECTS, workloads=ended)
            await self._run(for_readers.NO_PODS_READY, workloads=ended)

    async def _store_shapes(self, seen: Iterable[SeenWorkload]) -> None:
        found = {
            one.shape: shape_of(one.pod_sets).json
            for one in seen
            if one.shape not in self._shapes and one.shape not in self.new_shapes
        }
        if found:
            await self._bulk(s.SHAPES, s.SHAPE_ROWS, sorted(found.items()))
            self.new_shapes |= found

    async def _store_attributions(self, ones: Iterable[StoredAttribution]) -> None:
        rows = [
            (*one[:-1], dump(one.account))
            for one in ones
            if one.id not in self._attributions and one.id not in self.new_attributions
        ]
        if rows:
            await self._bulk(s.ATTRIBUTIONS, s.ATTRIBUTION_ROWS, sorted(rows, key=itemgetter(0)))
            self.new_attributions |= {row[0] for row in rows}

    async def _attempts(self, segment: Segment) -> None:
        if segment.attempts:
            moves = segment.attempts
            await self._bulk(s.MOVES, s.MOVE_ROWS, moves, expect=len(moves))
            over = [(one.workload, one.number, one.sequence) for one in moves]
            await self._bulk(s.WITHDRAW, s.END_ROWS, over)
            ended = [row for row, one in zip(over, moves, strict=True) if one.state is AttemptState.CLOSED]
            if ended:
                await self._bulk(s.END_HOLDS, s.END_ROWS, ended)
        if segment.resized:
            await self._resize(segment.resized)
        if segment.opened:
            rows = [(*one[:-1], dump(one.pod_sets)) for one in segment.opened]
            await self._bulk(s.ATTEMPTS, s.ATTEMPT_ROWS, rows)
        if segment.holds:
            await self._store_attributions(segment.attributions.values())
            await self._bulk(s.HOLDS, s.HOLD_ROWS, segment.holds)
        if segment.effects:
            await self._bulk(s.EFFECTS, s.EFFECT_ROWS, [(seq, *key) for seq, key in segment.effects])
        if segment.budget:
            await self._bulk(s.BUDGET_ENTRIES, s.BUDGET_ROWS, map(_budget_row, segment.budget))
        if segment.idle:
            await self._bulk(s.IDLE_TIMES, s.IDLE_ROWS, segment.idle)

    async def _resize(self, resized: list[ResizedAttempt]) -> None:
        lines = [line for one in resized for line in one.lines]
        counted = await self._connection.execute(s.NO_SMALLER, s.HOLD_ROWS.bind(lines) | self._named({}))
        if larger := counted.scalar_one():
            raise LedgerRefused(f"{larger} of {len(lines)} hold lines would not be smaller ones of the same")
        rows = [(one.workload, one.number, dump(one.pod_sets)) for one in resized]
        await self._bulk(s.RESIZE, s.RESIZE_ROWS, rows, expect=len(rows))
        await self._bulk(s.END_LARGER, s.HOLD_ROWS, lines)
        await self._bulk(s.SMALLER_HOLDS, s.HOLD_ROWS, lines)

    async def _rows(self, statement: Executable, **parameters: Any) -> Sequence[Row[Any]]:
        return (await self._connection.execute(statement, self._named(parameters))).all()

    async def _run(self, statement: Update | Delete, **parameters: Any) -> None:
        await self._execute(statement, self._named(parameters))

    async def _execute(self, statement: Insert | Update | Delete, given: dict[str, Any]) -> int:
        """How many rows it changed."""
        return (await self._connection.execute(statement, given)).rowcount

    def _named(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return {f"p_{name}": value for name, value in (self._fixed | parameters).items()}

    async def _bulk(
        self,
        statement: Insert | Update,
        columns: Columns,
        rows: Iterable[Sequence[Any]],
        *,
        expect: int | None = None,
        **parameters: Any,
    ) -> None:
        """Run `statement` on all rows at once; with `expect`, it must have changed that many rows."""
        touched = await self._execute(statement, columns.bind(rows) | self._named(parameters))
        if expect is not None and touched != expect:
            raise LedgerRefused(
                f"{expect - touched} of {expect} rows of {statement.table.name} are not "  # type: ignore[union-attr]
                "in the state that memory has them in"
            )


def _decision_row(line: NewDecision) -> tuple[Any, ...]:
    reason = decision_reason(line)
    return (
        *(line.sequence, line.verdict, line.config_version, line.workload),
        *(line.ref or (None, None, None, None)),
        *(line.attempt, None if reason is None else dump(reason), dump(line.payload)),
    )


def _budget_row(found: tuple[int, int, str, BudgetEntry]) -> tuple[Any, ...]:
    sequence, number, namespace, one = found
    return (
        *(sequence, number, one.kind, one.budget, one.subject, one.resource, *one.period),
        *(one.workload, one.attempt, one.at, one.rate, one.until),
        *(Decimal(one.reserved), Decimal(one.used), namespace),
    )


def _past(past: PastAttempts) -> str | None:
    found = past_to_json(past)
    return None if found is None else dump(found)


def _change_row(change: WorkloadChange) -> tuple[Any, ...]:
    reason = None if change.reason is None else dump(reason_to_json(change.reason))
    return (
        *(change.id, change.sequence, change.held, change.phase, change.cluster_queue, change.opened),
        *(change.reason_set, reason, change.priority),
        *(change.past is not None, None if change.past is None else _past(change.past), change.closes),
    )
