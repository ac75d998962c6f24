"""The stored state of a replay, so that the next one need not read all history again.

A checkpoint has the state after one decision, and a digest of it. It counts only while that decision is
stored as it was: after its month was dropped, or the history was replaced, all history is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.model.workload import ConfigKey
from queuectl.ledger import tables as t
from queuectl.ledger.history.replay import Expected, Replay

log = logging.getLogger(__name__)

INTERVAL: Final = 50_000
"""Decisions between two checkpoints: replayed in seconds, while the state may be megabytes."""
_FORMAT: Final = 1
"""Of `_State`, and of what a replay makes of decisions: a change of either needs the next number."""


@dataclass(frozen=True, slots=True)
class _State:
    """What can't be computed from the rest of a Replay."""

    sequence: int
    epoch: int
    now: datetime | None
    begins: int
    workloads: dict[str, Expected]
    configs: list[tuple[ConfigKey, int, str]]
    """Key, sequence and spec, the oldest first."""
    trusted: list[str]


_STATES: Final = TypeAdapter(_State)


def encode(replay: Replay) -> str:
    """The state of a replay without findings, as JSON."""
    state = _State(
        replay.sequence,
        replay.epoch,
        replay.now,
        replay.begins,
        replay.workloads,
        sorted(((key, *stored) for key, stored in replay.configs.items()), key=lambda one: one[1]),
        sorted(replay.trusted),
    )
    return _STATES.dump_json(state).decode()


def decode(text: str) -> Replay:
    """The inverse of `encode`."""
    state = _STATES.validate_json(text)
    replay = Replay(state.sequence, state.epoch, state.now, state.begins, state.workloads)
    replay.trusted = set(state.trusted)
    for key, sequence, spec in state.configs:
        replay.configure(key, sequence, json.loads(spec))
    for one in state.workloads.values():
        if one.holding is not None:
            replay.charge(one.holding, 1)
    return replay


async def load(connection: AsyncConnection, cluster: str) -> Replay | None:
    """The state of the stored checkpoint; None if there is none, or none that counts."""
    row = t.checkpoint.c
    query = select(row.sequence, row.digest, row.state)
    query = query.where(row.cluster_id == cluster, row.format == _FORMAT)
    found = (await connection.execute(query)).one_or_none()
    if found is None:
        return None
    if _digest(found.state) != found.digest:
        log.warning("the checkpoint at decision %d is damaged: all history is read", found.sequence)
        return None
    replay = decode(found.state)
    same = replay.sequence == found.sequence and await continues(connection, cluster, replay)
    return replay if same else None


async def continues(connection: AsyncConnection, cluster: str, replay: Replay) -> bool:
    """Return whether the last decision that `replay` has is stored.

    It is not if the ledger was restored since: another decision, of another epoch, may have its sequence.
    """
    row = t.decision.c
    query = select(row.epoch, row.now).where(row.cluster_id == cluster, row.sequence == replay.sequence)
    found = (await connection.execute(query)).one_or_none()
    return found is not None and (found.epoch, found.now) == (replay.epoch, replay.now)


async def store(pool: AsyncEngine, cluster: str, replay: Replay) -> None:
    """Replace the checkpoint. No epoch is needed: `load` tells if it is one of this history."""
    state = encode(replay)
    values = {"format": _FORMAT, "sequence": replay.sequence, "digest": _digest(state), "state": state}
    values |= {"stored_at": func.clock_timestamp()}
    statement = insert(t.checkpoint).values(cluster_id=cluster, **values)
    async with pool.begin() as connection:
        await connection.execute(statement.on_conflict_do_update(index_elements=["cluster_id"], set_=values))


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()
