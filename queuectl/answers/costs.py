"""What usage costs by a rate card, who pays for what nothing held and for what was lost (B7 to B12). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from queuectl.answers.queue_states import nominal_quota
from queuectl.answers.usage import axis_value
from queuectl.core.model.device_use import IDLE_OF
from queuectl.core.model.resources import FlavorResource
from queuectl.kinds.policy import parse_policy
from queuectl.ports.periods import Piece
from queuectl.ports.rates import FreePayer, LostPayer, Rate, RateCard, cost_of, in_units, money, shares_of
from queuectl.ports.reader import BookedOn, Revision, UsageOfTime, UsageSumOf
from queuectl.ports.statements import BillableMonth, ChargeKind, LostHold, StatementLine

_MICROSECOND: Final = timedelta(microseconds=1)
MILLIONTHS: Final = 6
"""Decimals of an exact cost."""
Booking = tuple[str | None, ...]


def charges(month: BillableMonth, pieces: Sequence[Piece], card: RateCard) -> list[StatementLine]:
    """All of a month: of each booking and cell, in each piece. `pieces`: as the card cuts the month."""
    lines: list[StatementLine] = []
    for piece, usage in zip(pieces, month.times, strict=True):
        for row in usage.rows:
            rate = card.rate(row.flavor, row.resource, _class_of(row.booked), piece.begins)
            lines.append(_charge(ChargeKind.USAGE, piece, row, rate))
        lines += _free(piece, usage, month.policies or (), card)
    if card.lost is LostPayer.NOBODY:
        lines += _lost(pieces, month.lost or (), card)
    return lines


def computable(month: BillableMonth, card: RateCard) -> frozenset[ChargeKind]:
    """The kinds that `charges` computes whole: others need history that is no longer kept."""
    kinds = {ChargeKind.USAGE}
    if card.free is not FreePayer.BY_QUOTA or month.policies is not None:
        kinds.add(ChargeKind.FREE)
    if card.lost is LostPayer.HOLDER or month.lost is not None:
        kinds.add(ChargeKind.LOST)
    return frozenset(kinds)


def _charge(kind: ChargeKind, piece: Piece, row: UsageSumOf, rate: Rate | None) -> StatementLine:
    price, list_price = (None, None) if rate is None else (rate.price, rate.list_price)
    cost = 0 if price is None else cost_of(row.resource, row.amount, price)
    return StatementLine(
        *(kind, *piece, row.booked, row.cluster_queue, row.flavor, row.resource),
        *(row.amount, price, list_price, -cost if kind is ChargeKind.LOST else cost),
    )


def _class_of(booked: BookedOn | None) -> str | None:
    return booked.priority_class if booked is not None else None


# --- what nothing held


def _free(
    piece: Piece, usage: UsageOfTime, policies: Sequence[Revision], card: RateCard
) -> Iterator[StatementLine]:
    if card.free is FreePayer.NOBODY:
        return
    payers: defaultdict[FlavorResource, list[UsageSumOf]] = defaultdict(list)
    rows = usage.rows if card.free is FreePayer.BY_USE else _quota(piece, policies)
    for row in rows:
        payers[FlavorResource(row.flavor, row.resource)].append(row)
    for had in usage.capacity:
        own = payers[FlavorResource(had.flavor, had.resource)]
        rate = card.rate(had.flavor, had.resource, None, piece.begins)
        if had.free and rate is not None and own:
            for row, amount in zip(own, shares_of(had.free, [row.amount for row in own]), strict=True):
                if amount:
                    yield _charge(ChargeKind.FREE, piece, row._replace(amount=amount), rate)


def _quota(piece: Piece, policies: Sequence[Revision]) -> list[UsageSumOf]:
    """Nominal quota of ClusterQueues times how long it was in force."""
    sums: defaultdict[tuple[str, FlavorResource], int] = defaultdict(int)
    for revision in policies:
        begins, ends = max(revision.since, piece.begins), min(revision.until or piece.ends, piece.ends)
        if begins >= ends:
            continue
        try:
            policy = parse_policy(revision.key, revision.spec)
        except ValueError:
            continue  # it was not Active
        for cell, amount in nominal_quota(policy).items():
            sums[revision.key.name, cell] += amount * ((ends - begins) // _MICROSECOND)
    return [UsageSumOf(None, name, *cell, amount) for (name, cell), amount in sorted(sums.items()) if amount]


# --- what was lost


def _lost(pieces: Sequence[Piece], holds: Iterable[LostHold], card: RateCard) -> Iterator[StatementLine]:
    """In the piece of the eviction, at the rates of the time for which it was held."""
    sums: defaultdict[tuple[Piece, Booking, str, str, str, Rate | None], int] = defaultdict(int)
    bookings: dict[Booking, BookedOn | None] = {}
    for hold in holds:
        piece = next(one for one in pieces if one.begins <= hold.evicted_at < one.ends)
        booking = _booking_of(hold.booked)
        bookings[booking] = hold.booked
        for begins, ends in card.pieces(Piece(hold.begins, hold.ends)):
            rate = card.rate(hold.flavor, hold.resource, _class_of(hold.booked), begins)
            key = (piece, booking, hold.cluster_queue, hold.flavor, hold.resource, rate)
            sums[key] += hold.amount * ((ends - begins) // _MICROSECOND)
    for (piece, booking, queue, flavor, resource, rate), amount in sums.items():
        yield _charge(
            ChargeKind.LOST, piece, UsageSumOf(bookings[booking], queue, flavor, resource, amount), rate
        )


def _booking_of(booked: BookedOn | None) -> Booking:
    """What can be compared and sorted."""
    if booked is None:
        return ()
    *names, account = booked
    return (*names, *(text for pair in sorted(account.items()) for text in pair))


# --- corrections


def differences(
    now: Iterable[StatementLine], before: Iterable[StatementLine], month: str, reason: str
) -> list[StatementLine]:
    """What must be added to `before` so that it becomes `now`: a line for each that differs.

    A new rate is a reversal of what was charged at the old one, and a new line.
    """
    sums: dict[tuple[object, ...], list[int]] = {}
    lines: dict[tuple[object, ...], StatementLine] = {}
    for sign, side in ((1, now), (-1, before)):
        for line in side:
            key = (*line[:3], _booking_of(line.booked), *line[4:7], line.price, line.list_price)
            lines.setdefault(key, line)
            amounts = sums.setdefault(key, [0, 0])
            amounts[0] += sign * line.amount
            amounts[1] += sign * line.cost
    return [
        lines[key]._replace(amount=amount, cost=cost, of_month=month, reason=reason)
        for key, (amount, cost) in sums.items()
        if amount or cost
    ]


# --- by keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CostItem:
    """All that has the same keys."""

    keys: dict[str, str | None]
    """By name in `by`. Null: nothing is booked there."""
    others: bool
    """All that the caller may not read, in one item."""
    cost: str
    """Rounded: the items add up to the total."""
    exact: str
    """With 6 decimals."""
    amount: str | None
    """With `resource` in `by`: what was held, in base units times microseconds."""


STATEMENT_AXES: Final = ("kind", "resource")
"""What charges may be divided by beside what usage may be."""


def cost_by(
    rows: Iterable[StatementLine], by: Sequence[str], visible: Callable[[str | None], bool], decimals: int
) -> list[CostItem]:
    """The costs by these axes, the largest first. `visible`: what is booked on a namespace."""
    costs: defaultdict[tuple[bool, tuple[str | None, ...]], int] = defaultdict(int)
    amounts: defaultdict[tuple[bool, tuple[str | None, ...]], int] = defaultdict(int)
    for row in rows:
        shown = visible(row.booked.namespace if row.booked is not None else None)
        key = (not shown, tuple(_key(row, axis) for axis in by) if shown else (None,) * len(by))
        costs[key] += row.cost
        amounts[key] += row.amount if row.kind is ChargeKind.USAGE else 0
    order = sorted(costs, key=lambda key: (key[0], -costs[key], [text or "" for text in key[1]]))
    unit = 10 ** (MILLIONTHS - decimals)
    return [
        CostItem(
            keys=dict(zip(by, key[1], strict=True)),
            others=key[0],
            cost=money(units * unit, decimals),
            exact=money(costs[key], MILLIONTHS),
            amount=str(amounts[key]) if "resource" in by and not key[0] else None,
        )
        for key, units in zip(order, in_units([costs[key] for key in order], unit), strict=True)
    ]


def _key(row: StatementLine, axis: str) -> str | None:
    if axis == "kind":
        return row.kind.value if row.of_month is None else f"Correction of {row.of_month}"
    if axis == "resource":
        return row.resource
    return axis_value(row, axis)


def unpriced(rows: Iterable[StatementLine]) -> list[FlavorResource]:
    """Cells of which something was held without a rate."""
    return sorted(
        {
            FlavorResource(row.flavor, row.resource)
            for row in rows
            if row.kind is ChargeKind.USAGE and row.price is None and not row.resource.startswith(IDLE_OF)
        }
    )
