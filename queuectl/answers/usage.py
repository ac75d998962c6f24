"""Usage by users, queues, account keys: sums of what was held over a time (B5, B6). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from queuectl.core.model.device_use import IDLE_OF
from queuectl.ports.reader import BookedOn, UsageSumOf

Read = Callable[[BookedOn], str | None]
_Line = tuple[bool, tuple[str | None, ...], str]
_OF_BOOKING: Final[dict[str, Read]] = {
    "user": lambda one: one.user,
    "submitter": lambda one: one.submitter,
    "namespace": lambda one: one.namespace,
    "localqueue": lambda one: f"{one.namespace}/{one.queue}",
    "class": lambda one: one.priority_class,
}


class OfBooking(Protocol):
    """A row of usage or of costs."""

    @property
    def booked(self) -> BookedOn | None: ...
    @property
    def cluster_queue(self) -> str: ...
    @property
    def flavor(self) -> str: ...


class UsageLine(NamedTuple):
    """One row of an answer."""

    keys: tuple[str | None, ...]
    """A value for each axis; None: nothing is known, or nothing is booked."""
    others: bool
    """All that the caller may not read."""
    resource: str
    amount: int
    """Base units times microseconds."""
    idle: int
    """Of these, what was idle or hung (B19)."""


def usage_by(
    rows: Iterable[UsageSumOf], by: Sequence[str], visible: Callable[[str | None], bool]
) -> list[UsageLine]:
    """The sums by these axes, the largest of a resource first. `visible`: what is booked on a namespace.

    The lines of a resource add up to all that was held of it.
    """
    sums, idle = defaultdict[_Line, int](int), defaultdict[_Line, int](int)
    for row in rows:
        shown = visible(row.booked.namespace if row.booked is not None else None)
        keys = tuple(axis_value(row, axis) for axis in by) if shown else (None,) * len(by)
        resource = row.resource.removeprefix(IDLE_OF)
        (sums if resource == row.resource else idle)[not shown, keys, resource] += row.amount
    lines = [
        UsageLine(keys, others, resource, amount, idle[others, keys, resource])
        for (others, keys, resource), amount in sums.items()
    ]
    return sorted(
        lines, key=lambda one: (one.resource, one.others, -one.amount, [key or "" for key in one.keys])
    )


def axis_value(row: OfBooking, axis: str) -> str | None:
    """What a row is booked on by one of the axes of usage, or an account key; None: nothing."""
    if axis == "clusterqueue":
        return row.cluster_queue
    if axis == "flavor":
        return row.flavor
    if row.booked is None:
        return None
    of_booking = _OF_BOOKING.get(axis)
    return row.booked.account.get(axis) if of_booking is None else of_booking(row.booked)
