"""What holds are booked on: stored once for all attempts that are booked on the same."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from queuectl.core.model.policy import AccountSource
from queuectl.core.model.workload import AccountValue, Attribution
from queuectl.ledger.codec import Json, clean, clean_or_none, cleaned, dump

_KEPT: Final = 10_000
"""Attributions that a process keeps in memory."""


class StoredAttribution(NamedTuple):
    """A row of table attribution."""

    id: str
    """The first 128 bits of the SHA-256 of the other columns as JSON, in hexadecimal."""
    namespace: str
    queue: str
    submitter: str | None
    user_name: str | None
    priority_class: str | None
    account: Json
    """By account key: the value, and the object that it was read from. Keys without a value are left out."""


def attribution_of(one: StoredAttribution) -> Attribution:
    """Return what is stored as `one`. Account keys without a value are left out."""
    return Attribution(
        namespace=one.namespace,
        queue=one.queue,
        submitter=one.submitter,
        user=one.user_name,
        priority_class=one.priority_class,
        account=tuple(
            AccountValue(key, found["value"], AccountSource(found["source"]))
            for key, found in sorted(one.account.items())
        ),
    )


@lru_cache(maxsize=_KEPT)
def stored_attribution(one: Attribution) -> StoredAttribution:
    account = {key: {"value": value, "source": source} for key, value, source in one.account if value}
    columns = (
        *(clean(one.namespace), clean(one.queue), clean_or_none(one.submitter), clean_or_none(one.user)),
        *(clean_or_none(one.priority_class), cleaned(account)),
    )
    return StoredAttribution(sha256(dump(columns).encode()).hexdigest()[:32], *columns)
