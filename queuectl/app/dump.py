"""`queuectl dump`: a state of the ledger as a document, read from the ledger itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from queuectl.app.api import scheduling
from queuectl.ledger.admin import schema
from queuectl.ledger.history.state_at import LedgerPast, configuration_of
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings, clusters
from queuectl.scenarios.anonymous import anonymous
from queuectl.scenarios.dump import dump
from queuectl.settings import ConfigurationError, Settings

When = datetime | timedelta | None


async def dumped(
    settings: Settings,
    *,
    cluster: str | None,
    as_of: When,
    tree: str | None,
    run_seconds: float | None,
    without_names: bool,
) -> dict[str, Any]:
    """The document, as JSON values. `as_of`: a time, or how long ago; None: now.

    Raises ConfigurationError, LedgerUnavailable, SchemaMismatch, NotStored, NoSuchTree.
    """
    url = settings.database_url
    await schema.check(url)
    async with connection_pool(url, read_only=True) as pool:
        which = cluster or settings.api.cluster or only(await clusters(pool))
        now = (await LedgerReadings(pool, which).since(1 << 62)).read_at
        when = as_of if isinstance(as_of, datetime) else now - (as_of or timedelta())
        snapshot = await LedgerPast(pool, which, scheduling).at(None if as_of is None else when)
    configuration = configuration_of(snapshot.configs, scheduling)
    found = dump(snapshot, configuration, now=when, tree=tree, run_seconds=run_seconds)
    return anonymous(found) if without_names else found


def only(known: list[str]) -> str:
    """Return the only cluster of a ledger. Raises ConfigurationError."""
    if len(known) != 1:
        told = f"holds {len(known)} clusters ({', '.join(known)})" if known else "holds no cluster yet"
        raise ConfigurationError(f"the ledger {told}: name one with --cluster")
    return known[0]
