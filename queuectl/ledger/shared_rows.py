"""What is stored once for all that are alike: what workloads request, and what holds are booked on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import ARRAY, Text, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.policy import AccountSource
from queuectl.core.model.workload import AccountValue, Attribution, PodSet
from queuectl.ledger import tables as t
from queuectl.ledger.codec import Json, clean, clean_or_none, cleaned, dump

PodSets = tuple[PodSet, ...]

_POD_SETS: Final = TypeAdapter(PodSets)
_KEPT: Final = 10_000
"""Shapes, and attributions, that a process keeps in memory."""


class Shape(NamedTuple):
    """`id`: the first 128 bits of the SHA-256 of `json`, in hexadecimal."""

    id: str
    json: str


@lru_cache(maxsize=_KEPT)
def shape_of(pod_sets: PodSets) -> Shape:
    """Fields with their default value are left out of the JSON."""
    value = cleaned(_POD_SETS.dump_python(pod_sets, mode="json", exclude_defaults=True))
    return Shape(id_of(value), dump(value))


def id_of(value: Any) -> str:
    """The id of podsets as JSON."""
    return sha256(dump(value).encode()).hexdigest()[:32]


def shape_from_json(value: Any) -> PodSets:
    return _POD_SETS.validate_python(value)


class Shapes:
    """The stored shapes of one cluster, each read once."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._known: dict[str, PodSets] = {}

    async def read(self, connection: AsyncConnection, ids: Iterable[str]) -> None:
        """Make `get` know these."""
        if len(self._known) > _KEPT:
            self._known.clear()
        unknown = set(ids) - self._known.keys()
        if unknown:
            table = t.shape.c
            query = select(table.id, table.pod_sets)
            # One parameter, however many: Postgres takes 32,767.
            wanted = literal(sorted(unknown), ARRAY(Text))
            query = query.where(table.cluster_id == self._cluster, table.id == func.any(wanted))
            self._known |= {id: shape_from_json(value) for id, value in await connection.execute(query)}

    def get(self, id: str) -> PodSets:
        """Empty for a shape that is not stored: an older version has queued the workload."""
        return self._known.get(id, ())


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
