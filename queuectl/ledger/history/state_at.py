"""The state of the ledger as it was stored at an earlier time: workloads from their rows and decisions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ARRAY, BigInteger, Row, Text, and_, case, cast, func, literal, or_, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Verdict
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity, NodeFacts
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    LedgerSnapshot,
    Phase,
    PodSet,
    StoredWorkload,
    WorkloadId,
)
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLOCK
from queuectl.ledger.budget_rows import budgets_at
from queuectl.ledger.codec import (
    Parsed,
    options_from_json,
    past_from_json,
    pod_sets_from_json,
    reason_or_none,
)
from queuectl.ledger.history.past_lives import first_and_last, last_decision, past_lives
from queuectl.ledger.history.past_usage import last_times, past_usage, preempted_since
from queuectl.ledger.pool import LONG_READ, ledger_call, reading, stream
from queuectl.ledger.published_facts import capacity_from_json, nodes_now
from queuectl.ledger.rows import (
    booked_on,
    configs_in_force,
    effects_due,
    stored_workload,
    workloads_with_attempts,
)
from queuectl.ledger.shared_rows import Shapes
from queuectl.ports.history import StoredDecision, WorkloadHistory
from queuectl.ports.ledger import LedgerUnavailable, NotStored
from queuectl.ports.reader import PastLives, PastRevision, TooMuchHistory

_IDLE: Final = 20.0
"""Seconds for what is computed between two statements."""

MOST_REVISED: Final = 256 << 20
"""Characters of the revisions of policy and context in one answer. An equal spec counts once."""
EACH_REVISION: Final = 512
"""Counted for each revision, besides its spec."""

Configure = Callable[[str], SchedulingConfiguration]
"""The configuration of the component as canonical JSON to its section `scheduling`; raises ValueError."""


class LedgerPast:
    """ports.reader.PastWork over a pool made by `create_pool`, for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster_id: str, configure: Configure) -> None:
        self._pool = pool
        self._cluster = cluster_id
        self._configure = configure
        self._shapes = Shapes(cluster_id)

    @ledger_call
    async def at(self, when: datetime | None) -> LedgerSnapshot:
        async with reading(self._pool, statement_timeout=LONG_READ, idle_timeout=_IDLE) as connection:
            nodes: tuple[NodeFacts, ...] = ()
            if when is None:
                when = (await connection.execute(CLOCK, {"p_cluster": self._cluster})).scalar_one()
                nodes = await nodes_now(connection, self._cluster)
            last, now = await self._last_decision(connection, when)
            configs = await configs_in_force(connection, self._cluster, last)
            settings = configuration_of(configs, self._configure)
            workloads = await self._workloads(connection, last, now, settings.preemptions_count_for)
            sums, entries = await budgets_at(connection, self._cluster, last, workloads, now or when)
            return LedgerSnapshot(
                sequence=last,
                now=now,
                workloads=tuple(workloads),
                configs=tuple(configs),
                effects=tuple(await effects_due(connection, self._cluster, (last, when))),
                past_usage=await past_usage(
                    connection, self._cluster, settings.usage_sharing, last, now, earlier=True
                ),
                budget_sums=sums,
                budget_entries=entries,
                nodes=nodes,
                capacities=await capacities_at(connection, self._cluster, when, flavors_of(configs)),
            )

    @ledger_call
    async def first_capacity(self) -> datetime | None:
        async with reading(self._pool, statement_timeout=LONG_READ, idle_timeout=_IDLE) as connection:
            return await first_capacity(connection, self._cluster)

    @ledger_call
    async def nodes_now(self) -> tuple[NodeFacts, ...]:
        async with reading(self._pool, statement_timeout=LONG_READ, idle_timeout=_IDLE) as connection:
            return await nodes_now(connection, self._cluster)

    @ledger_call
    async def past_lives(self, *, since: datetime, known: PastLives | None = None) -> PastLives:
        async with reading(self._pool, statement_timeout=LONG_READ, idle_timeout=_IDLE) as connection:
            found = await past_lives(connection, self._cluster, since, self._shapes, known)
        if found is None:
            raise LedgerUnavailable(f"the ledger has no decision on cluster {self._cluster} yet")
        return found

    @ledger_call
    async def revisions(self, *, since: datetime) -> tuple[list[PastRevision], int]:
        """Return what was created or changed after `since`, in order, and how many objects were deleted and
        are gone. An equal spec is in memory once. Raises TooMuchHistory."""
        row = t.config_revision.c
        query = (
            select(row.from_at, row.to_at, row.kind, row.namespace, row.name)
            .add_columns(case((row.from_at > since, row.spec)).label("spec"))
            .where(row.cluster_id == self._cluster, or_(row.from_at > since, row.to_at > since))
            .order_by(row.from_seq, row.kind, row.namespace, row.name)
        )
        gone: dict[ConfigKey, bool] = {}
        keys: dict[ConfigKey, ConfigKey] = {}
        specs: dict[str, str] = {}
        found: list[PastRevision] = []
        size = 0
        async with reading(self._pool, statement_timeout=LONG_READ, idle_timeout=_IDLE) as connection:
            async for at, to_at, *names, spec in stream(connection, query):
                key = ConfigKey(*names)
                key = keys.setdefault(key, key)
                gone[key] = to_at is not None
                size += EACH_REVISION
                if spec is not None:
                    size += len(spec) if spec not in specs else 0
                    found.append(PastRevision(at, key, specs.setdefault(spec, spec)))
                if size > MOST_REVISED:
                    limit = f"{MOST_REVISED >> 20} MiB"
                    raise TooMuchHistory(
                        f"policy and context changed by more than {limit} since {since}: ask for less"
                    )
        return found, sum(gone.values())

    async def _last_decision(self, connection: AsyncConnection, when: datetime) -> tuple[int, datetime]:
        """Sequence and time of the last decision at `when` or before. Raises NotStored."""
        found = await last_decision(connection, self._cluster, lambda row: row.now <= when)
        if found is None:
            first, _ = await first_and_last(connection, self._cluster)
            if first is None:
                raise LedgerUnavailable(f"the ledger has no decision on cluster {self._cluster} yet")
            raise NotStored(when, first.now)
        return found.sequence, found.now

    async def _workloads(
        self, connection: AsyncConnection, last: int, now: datetime, counts_for: timedelta
    ) -> Sequence[StoredWorkload]:
        row = t.workload.c
        ended_later = and_(~row.open, row.closed_seq > last, row.closed_at >= now)
        query = (
            workloads_with_attempts()
            .where(row.cluster_id == self._cluster, row.queued_seq <= last, or_(row.open, ended_later))
            .order_by(row.arrival, row.id)
        )
        rows = (await connection.execute(query)).all()
        lives = [(one.id, one.queued_seq) for one in rows]
        parsed = Parsed()
        decisions = await self._decisions(connection, [*_changed(rows, last)], last, now, parsed)
        row, life = t.decision.c, _lives(lives)
        times = (
            preempted_since(self._cluster, now - counts_for)
            .join(life, row.workload == life.c.id)
            .where(row.sequence >= life.c.first, row.sequence <= last, row.now <= now)
        )
        preempted = last_times(await connection.execute(times))
        queued = (one for found in decisions.values() for one in found if one.verdict == Verdict.QUEUED)
        ids = {one.shape for one in rows} | {str(one.payload.get("shape", "")) for one in queued}
        await self._shapes.read(connection, ids)
        line = t.hold_line.c
        given_back_later = and_(~line.open, line.to_seq > last, line.closed_at >= now)
        held = and_(line.from_seq <= last, or_(line.open, given_back_later))
        booked = await booked_on(connection, self._cluster, held)

        def then() -> list[StoredWorkload]:
            shapes = self._shapes
            stored = (
                replace(stored_workload(one, shapes, parsed), attribution=booked.get(one.id)) for one in rows
            )
            return [
                as_of(one, decisions.get(one.id, ()), shapes.get, preempted.get(one.id, ()))
                if one.id in decisions or one.id in preempted
                else one
                for one in stored
            ]

        # Beside the event loop: with thousands of workloads this takes a second.
        return await asyncio.to_thread(then)

    async def _decisions(
        self,
        connection: AsyncConnection,
        lives: Sequence[tuple[str, int]],
        last: int,
        now: datetime,
        parsed: Parsed,
    ) -> dict[str, list[StoredDecision]]:
        """Of each workload the last decision of each verdict, with and without what attempts left."""
        row, life = t.decision.c, _lives(lives)
        key = (row.workload, row.verdict, row.payload.has_key("past"))
        query = (
            select(row.workload, row.sequence, row.now, row.verdict, row.attempt)
            .add_columns(cast(row.reason, Text), cast(row.payload, Text))
            .ext(distinct_on(*key))
            .select_from(life.join(t.decision, row.workload == life.c.id))
            .where(row.cluster_id == self._cluster, row.sequence >= life.c.first)
            .where(row.sequence <= last, row.now <= now)
            .order_by(*key, row.sequence.desc())
        )
        found: defaultdict[str, list[StoredDecision]] = defaultdict(list)
        rows = (await connection.execute(query)).all()
        for workload, sequence, at, verdict, attempt, reason, payload in rows:
            one = StoredDecision(
                sequence=sequence,
                now=at,
                verdict=verdict,
                attempt=attempt,
                reason=parsed(reason_or_none, reason),
                payload=parsed(dict, payload),
            )
            found[workload].append(one)
        return found


def configuration_of(
    configs: Iterable[tuple[ConfigKey, str]], configure: Configure
) -> SchedulingConfiguration:
    """The section `scheduling` in force; the default where none was recorded. Raises ValueError."""
    for key, spec in configs:
        if key.kind == "Configuration":
            return configure(spec)
    return DEFAULT_CONFIGURATION


def _changed(rows: Iterable[Row[Any]], last: int) -> Iterator[tuple[str, int]]:
    """Yield the lives whose rows do not say what they were after decision `last`.

    When an eviction was decided, and for which preemptor, no row says.
    """
    for row in rows:
        if row.updated_seq > last or row.phase == Phase.EVICTING:
            yield row.id, row.queued_seq


def _lives(lives: Sequence[tuple[str, int]]) -> Any:
    """Workloads with the sequence that began each, as a table. Two parameters, however many there are."""
    ids, firsts = [id for id, _ in lives], [first for _, first in lives]
    arrays = (literal(ids, ARRAY(Text)), literal(firsts, ARRAY(BigInteger)))
    return func.unnest(*arrays).table_valued("id", "first", name="life").render_derived()


def flavors_of(configs: Iterable[tuple[ConfigKey, str]]) -> list[str]:
    """Return the names under which capacity is stored: of all flavors in force, and that of no flavor."""
    return sorted({NO_FLAVOR, *(key.name for key, _ in configs if key.kind == "ResourceFlavor")})


async def capacities_at(
    connection: AsyncConnection, cluster: str, when: datetime, flavors: list[str]
) -> tuple[FlavorCapacity, ...]:
    """Return what was stored last of each of `flavors` at `when` or before, by name. Reads a row of each."""
    row = t.past_capacity.c
    given = func.unnest(literal(flavors, ARRAY(Text))).table_valued("name", name="given").render_derived()
    last = (
        select(row.capacity)
        .where(row.cluster_id == cluster, row.flavor == given.c.name, row.at <= when)
        .order_by(row.at.desc())
        .limit(1)
        .lateral("last")
    )
    query = select(given.c.name, last.c.capacity).select_from(given.join(last, true()))
    found = await connection.execute(query)
    return tuple(sorted((capacity_from_json(*one) for one in found), key=lambda one: one.flavor))


async def first_capacity(connection: AsyncConnection, cluster: str) -> datetime | None:
    """Return the time of the first row. Nodes without a flavor have one from the start, and each day."""
    row = t.past_capacity.c
    query = select(func.min(row.at)).where(row.cluster_id == cluster, row.flavor == NO_FLAVOR)
    found: datetime | None = (await connection.execute(query)).scalar_one()
    return found


Shape = Callable[[str], tuple[PodSet, ...]]
"""Podsets by the id of a shape."""
Fields = dict[str, Any]
"""Fields of a StoredWorkload that are not as in its row."""


def as_of(
    row: StoredWorkload,
    decisions: Iterable[StoredDecision],
    shape: Shape,
    preempted_at: tuple[datetime, ...] = (),
) -> StoredWorkload:
    """Return `row` as it was after the last of `decisions`, which are about it, in any order.
    `row.attribution` must be as of then.

    Needed are the last decision of each verdict, and the last of each that says what attempts left (`past`);
    none, if the row has not changed since and the workload is not being evicted. Where the first decisions
    are no longer stored, what they would say is taken from `row`.
    """
    known = sorted(decisions, key=lambda one: one.sequence)
    history = WorkloadHistory(cluster_queue=row.cluster_queue, priority=row.priority)
    if all(one.verdict != Verdict.QUEUED for one in known):
        history.phase, history.number, history.reason = _phase(row.attempt), row.attempts, row.reason
    for one in known:
        history.add(one)
    then: Fields = {
        "cluster_queue": history.cluster_queue,
        "priority": history.priority,
        "reason": history.reason,
        "phase": history.phase,
        "attempts": history.number,
        "attempt": _attempt(row, history),
        "preempted_at": preempted_at,
        "evicted_at": None,
        "preemptor": None,
    }
    if history.queued is not None:
        then |= _queued(row, history.queued.payload, shape)
    if history.queued is not None or history.past is not None:
        then["past"] = past_from_json(history.past)
    if then["attempt"] is not None and history.phase is Phase.EVICTING and history.moved is not None:
        by = history.moved.payload.get("preemptor")
        then |= {
            "evicted_at": history.moved.now,
            "preemptor": None if by is None else WorkloadId(str(by)),
        }
    return replace(row, **then)


def _queued(row: StoredWorkload, payload: Mapping[str, Any], shape: Shape) -> Fields:
    return {
        "queue": payload["queue"],
        "pod_sets": shape(payload["shape"]) if "shape" in payload else (),
        "options": options_from_json(payload.get("options")),
        "submitter": payload.get("submitter") or row.submitter,
    }


def _phase(attempt: Attempt | None) -> Phase:
    if attempt is None:
        return Phase.PENDING
    return Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED


def _attempt(row: StoredWorkload, history: WorkloadHistory) -> Attempt | None:
    if history.phase is Phase.PENDING:
        return None
    state = AttemptState.EVICTING if history.phase is Phase.EVICTING else AttemptState.ADMITTED
    known = history.open_attempt
    if known is None:
        return (
            None if history.queued is not None or row.attempt is None else replace(row.attempt, state=state)
        )
    payload, number = known.admission.payload, known.admission.attempt
    assert number is not None
    pod_sets = (known.resize or known.admission).payload["podSets"]
    return Attempt(
        workload=row.id,
        number=number,
        state=state,
        assignment=Assignment(cluster_queue=payload["clusterQueue"], pod_sets=pod_sets_from_json(pod_sets)),
        admitted_at=datetime.fromisoformat(payload["admittedAt"]),
        sequence=payload.get("rebuiltFrom") or known.admission.sequence,
        debt=payload["debt"],
    )
