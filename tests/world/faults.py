"""Faults of the network and of the database: which requests they concern, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Fault(NamedTuple):
    """From its start until `until`, in virtual seconds."""

    kind: str
    client: str
    """Whose requests are concerned: the beginning of the name of a process."""
    until: float
    rate: float = 1.0
    """Share of the requests."""
    leases: bool = False
    """Also requests for the Lease."""


def first_met(faults: Iterable[Fault], client: str, now: float, random: Random) -> Fault | None:
    """Return the first of `faults` that concerns a request of `client` now, if any."""
    for one in faults:
        if (
            now < one.until
            and client.startswith(one.client)
            and (one.rate >= 1.0 or random.random() < one.rate)
        ):
            return one
    return None


def answer_with(answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        answer.set_result(value)


def fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
