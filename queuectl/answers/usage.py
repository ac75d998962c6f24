"""Usage by users, queues, account keys: sums of what was held over a time (B5, B6). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from queuectl.core.model.device_use import IDLE_OF
from queuectl.ports.rates import MICROSECONDS
from queuectl.ports.reader import BookedOn, UsageSumOf

Read = Callable[[BookedOn], str | None]
_Line = tuple[bool, tuple[str | None, ...], str]
"""Whether it is what the caller may not read, a value for each axis, and the resource."""
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


@dataclass(frozen=True, slots=True)
class UsageItem:
    """What was held of one resource by all that have the same keys."""

    keys: dict[str, str | None]
    """By name in `by`. Null: nothing is booked there, or it is not known."""
    others: bool
    """All that the caller may not read, in one item."""
    resource: str
    amount: float
    """Base units times hours: GPU-hours, milli-cpu-hours, byte-hours."""
    exact: str
    """The same in base units times microseconds, as a whole number."""
    idle: float
    """Of `amount`: while the devices were known to be idle or to hang."""


def usage_by(
    rows: Iterable[UsageSumOf], by: Sequence[str], visible: Callable[[str | None], bool]
) -> list[UsageItem]:
    """The sums by these axes, the largest of a resource first. `visible`: what is booked on a namespace.

    The items of a resource add up to all that was held of it.
    """
    sums, idle = defaultdict[_Line, int](int), defaultdict[_Line, int](int)
    for row in rows:
        shown = visible(row.booked.namespace if row.booked is not None else None)
        keys = tuple(axis_value(row, axis) for axis in by) if shown else (None,) * len(by)
        resource = row.resource.removeprefix(IDLE_OF)
        (sums if resource == row.resource else idle)[not shown, keys, resource] += row.amount
    order = sorted(sums, key=lambda one: (one[2], one[0], -sums[one], [key or "" for key in one[1]]))
    return [
        UsageItem(
            keys=dict(zip(by, line[1], strict=True)),
            others=line[0],
            resource=line[2],
            amount=sums[line] / MICROSECONDS,
            exact=str(sums[line]),
            idle=idle[line] / MICROSECONDS,
        )
        for line in order
    ]


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
