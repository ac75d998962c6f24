"""`queuectl replay`: a past time of the ledger under another policy, read from the ledger itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from queuectl.answers.replay import ReplayedPast
from queuectl.app.api import scheduling
from queuectl.app.dump import only
from queuectl.ledger.admin import schema
from queuectl.ledger.history.state_at import LedgerPast, configuration_of
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings, clusters
from queuectl.ports.reader import MOST_LIVES, TooMuchHistory
from queuectl.settings import Settings


async def past_since(settings: Settings, *, cluster: str | None, since: datetime | timedelta) -> ReplayedPast:
    """Return what the ledger has of the time from `since`, a time or how long ago, to now.

    Raises ConfigurationError, LedgerUnavailable, SchemaMismatch, NotStored, TooMuchHistory.
    """
    url = settings.database_url
    await schema.check(url)
    async with connection_pool(url, read_only=True) as pool:
        which = cluster or settings.api.cluster or only(await clusters(pool))
        now = (await LedgerReadings(pool, which).since(1 << 62)).read_at
        start = since if isinstance(since, datetime) else now - since
        past = LedgerPast(pool, which, scheduling)
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
