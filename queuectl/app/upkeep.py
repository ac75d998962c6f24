"""`queuectl migrate` and `queuectl verify`."""

from __future__ import annotations

from collections.abc import Sequence

from queuectl.ledger.admin import schema
from queuectl.ledger.admin import verify as verifying
from queuectl.settings import Settings


async def migrate(settings: Settings) -> None:
    """Migrate the ledger's schema to this version."""
    await schema.migrate(settings.database_url)


async def verify(settings: Settings, *, from_checkpoint: bool) -> Sequence[object]:
    """Differences between the ledger and its own history, of all clusters in it."""
    await schema.check(settings.database_url)
    return await verifying.verify(settings.database_url, from_checkpoint=from_checkpoint)
