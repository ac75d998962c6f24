"""A small ledger that tests edit by hand, and such edits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.decisions import Admit, Decision
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.write.postgres import PostgresLedger
from tests.integration.ledger.plans import (
    BACKING_OFF,
    admit,
    amend,
    configure,
    enqueue,
    evict,
    keep,
    plan,
    release,
    retire,
    shrink,
)


@dataclass
class World:
    pool: AsyncEngine
    url: str
    cluster: str
    ledger: PostgresLedger
    epoch: int
    batches: int = 0

    async def write(self, *decisions: Decision) -> int:
        self.batches += 1
        now = await self.ledger.now()
        batch = f"{self.cluster}-{self.batches}"
        return await self.ledger.commit(plan(*decisions, now=now), [], epoch=self.epoch, batch=batch)

    async def admit(self, name: str, number: int = 1, *, gpus: int = 4, debt: bool = False) -> Admit:
        return admit(name, number, now=await self.ledger.now(), gpus=gpus, debt=debt)

    async def tamper(self, statement: str) -> None:
        """Run SQL as a superuser, without the triggers."""
        async with self.pool.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            result = await connection.execute(text(statement), {"c": self.cluster})
            assert result.rowcount > 0

    async def codes(self) -> set[str]:
        return {finding.code for finding in await verify(self.url, self.cluster)}


async def write_each_kind(world: World) -> None:
    """Write each kind of decision once: decisions 1 to 22."""
    await world.write(configure("team-a", 100), configure("old", 1), configure("old", None))
    names = ("runs", "waits", "leaves", "ended", "adopted", "again")
    await world.write(*(enqueue(name, arrival=i) for i, name in enumerate(names)), keep("waits"))
    await world.write(
        *[await world.admit(name) for name in ("runs", "leaves", "ended", "again")],
        await world.admit("adopted", debt=True),
    )
    await world.write(evict("leaves"), evict("again"), release("again"), retire("ended", 1))
    await world.write(amend("runs", past=BACKING_OFF), shrink("adopted", workers=1))
    await world.write(await world.admit("again", 2, gpus=2))


class Edit(NamedTuple):
    """An edit of the rows that `write_each_kind` leaves."""

    statement: str
    code: str
    """Code of a finding that it causes."""
    at: int | None = None
    """The decision whose history it changes; None: it changes the open state."""


EDITS: Final = (
    Edit("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence = 9", "Gap", 9),
    Edit(
        "DELETE FROM queuectl.decision WHERE cluster_id = :c AND "
        "sequence = (SELECT max(sequence) FROM queuectl.decision WHERE cluster_id = :c)",
        "Gap",
        22,
    ),
    Edit("UPDATE queuectl.decision SET epoch = 1 WHERE cluster_id = :c AND sequence = 9", "OldEpoch", 9),
    Edit(
        "UPDATE queuectl.decision SET now = now - interval '1 minute' "
        "WHERE cluster_id = :c AND sequence = 11",
        "TimeRanBack",
        11,
    ),
    Edit("UPDATE queuectl.workload SET past = NULL WHERE cluster_id = :c AND name = 'runs'", "Past"),
    Edit(
        "UPDATE queuectl.hold_line SET count = 2 WHERE cluster_id = :c AND open "
        "AND workload = 'uid-adopted' AND pod_set = 'worker'",
        "OpenHolds",
    ),
    Edit(
        "UPDATE queuectl.hold_line SET count = 3 WHERE cluster_id = :c AND NOT open "
        "AND workload = 'uid-adopted'",
        "ClosedHolds",
        21,
    ),
    Edit(
        "UPDATE queuectl.attempt SET pod_sets = jsonb_set(pod_sets, '{1,count}', '2') "
        "WHERE cluster_id = :c AND workload = 'uid-adopted'",
        "Attempt",
    ),
    Edit("UPDATE queuectl.leadership SET sequence = sequence + 1 WHERE cluster_id = :c", "Gap"),
    Edit(
        "UPDATE queuectl.workload SET phase = 'Evicting' WHERE cluster_id = :c AND name = 'runs'", "Workload"
    ),
    Edit("UPDATE queuectl.workload SET attempts = 7 WHERE cluster_id = :c AND name = 'waits'", "Workload"),
    Edit("DELETE FROM queuectl.workload WHERE cluster_id = :c AND name = 'waits'", "MissingWorkload"),
    Edit(
        "UPDATE queuectl.attempt SET workload = 'uid-waits' WHERE cluster_id = :c AND workload = 'uid-runs'",
        "ExtraAttempt",
    ),
    Edit("DELETE FROM queuectl.attempt WHERE cluster_id = :c AND workload = 'uid-runs'", "MissingAttempt"),
    Edit(
        "UPDATE queuectl.attempt SET debt = true WHERE cluster_id = :c AND workload = 'uid-runs'", "Attempt"
    ),
    Edit(
        "UPDATE queuectl.hold_line SET amount = amount + 1 WHERE cluster_id = :c "
        "AND workload = 'uid-runs' AND resource = 'cpu'",
        "Usage",
    ),
    Edit("DELETE FROM queuectl.hold_line WHERE cluster_id = :c AND workload = 'uid-runs'", "OpenHolds"),
    Edit(
        "UPDATE queuectl.hold_line SET cluster_queue = 'other' WHERE cluster_id = :c "
        "AND workload = 'uid-runs'",
        "Usage",
    ),
    Edit(
        "UPDATE queuectl.hold_line SET amount = 1 WHERE cluster_id = :c AND workload = 'uid-ended'",
        "ClosedHolds",
        19,
    ),
    Edit(
        "UPDATE queuectl.hold_line SET to_seq = to_seq + 1 WHERE cluster_id = :c AND workload = 'uid-ended'",
        "ClosedHolds",
        19,
    ),
    Edit(
        "DELETE FROM queuectl.hold_line WHERE cluster_id = :c AND workload = 'uid-ended'", "ClosedHolds", 19
    ),
    Edit("DELETE FROM queuectl.effect WHERE cluster_id = :c AND workload = 'uid-runs'", "MissingEffect"),
    Edit(
        "UPDATE queuectl.effect SET verb = 'Stop' WHERE cluster_id = :c AND workload = 'uid-runs'",
        "ExtraEffect",
    ),
    Edit(
        "UPDATE queuectl.config_revision SET spec = '{}' WHERE cluster_id = :c AND name = 'team-a'", "Policy"
    ),
    Edit("DELETE FROM queuectl.config_revision WHERE cluster_id = :c AND name = 'team-a'", "Policy"),
    Edit(
        "UPDATE queuectl.config_revision SET to_seq = NULL, to_at = NULL "
        "WHERE cluster_id = :c AND name = 'old'",
        "Policy",
    ),
)
