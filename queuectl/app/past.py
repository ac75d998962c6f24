"""`queuectl dump` and `queuectl replay`: read from the ledger itself; and which cluster of it is meant."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from queuectl.answers.replay import ReplayedPast
from queuectl.app.api import scheduling
from queuectl.ledger.admin import schema
from queuectl.ledger.history.state_at import LedgerPast, configuration_of
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings, clusters
from queuectl.ports.reader import MOST_LIVES, TooMuchHistory
from queuectl.scenarios.anonymous import anonymous
from queuectl.scenarios.dump import dump
from queuectl.settings import ConfigurationError, Settings

When = datetime | timedelta
"""A time, or how long ago."""


async def dumped(
    settings: Settings,
    *,
    cluster: str | None,
    as_of: When | None,
    tree: str | None,
    run_seconds: float | None,
    without_names: bool,
) -> dict[str, Any]:
    """The document, as JSON values. `as_of`: None: now.

    Raises ConfigurationError, LedgerUnavailable, SchemaMismatch, NotStored, NoSuchTree.
    """
    async with _past(settings, cluster) as (past, now):
        when = _time(as_of or timedelta(), now)
        snapshot = await past.at(None if as_of is None else when)
    configuration = configuration_of(snapshot.configs, scheduling)
    document = dump(snapshot, configuration, now=when, tree=tree, run_seconds=run_seconds)
    return anonymous(document) if without_names else document


async def past_since(settings: Settings, *, cluster: str | None, since: When) -> ReplayedPast:
    """Return what the ledger has of the time from `since` to now.

    Raises ConfigurationError, LedgerUnavailable, SchemaMismatch, NotStored, TooMuchHistory.
    """
    async with _past(settings, cluster) as (past, now):
        start = _time(since, now)
        snapshot = await past.at(start)
        lives = await past.past_lives(since=start)
        if lives.since > start or len(lives.lives) > MOST_LIVES:
            raise TooMuchHistory(
                f"more than {MOST_LIVES} workloads were open since {start.isoformat()}: ask for less"
            )
        changes, removed = await past.revisions(since=start)
    return ReplayedPast(
        since=start,
        until=now,
        snapshot=snapshot,
        lives=lives,
        changes=changes,
        removed=removed,
        configuration=configuration_of(snapshot.configs, scheduling),
    )


@contextlib.asynccontextmanager
async def _past(settings: Settings, cluster: str | None) -> AsyncIterator[tuple[LedgerPast, datetime]]:
    """The past of a cluster, by default the configured one or the only one, and the ledger's time."""
    url = settings.database_url
    await schema.check(url)
    async with connection_pool(url, read_only=True) as pool:
        which = cluster or settings.api.cluster or _only(await clusters(pool))
        now = (await LedgerReadings(pool, which).since(1 << 62)).read_at
        yield LedgerPast(pool, which, scheduling), now


def _time(when: When, now: datetime) -> datetime:
    return when if isinstance(when, datetime) else now - when


def _only(known: Sequence[str]) -> str:
    """Return the only cluster of a ledger. Raises ConfigurationError."""
    if len(known) != 1:
        told = f"holds {len(known)} clusters ({', '.join(known)})" if known else "holds no cluster yet"
        raise ConfigurationError(f"the ledger {told}: name one with --cluster")
    return known[0]
