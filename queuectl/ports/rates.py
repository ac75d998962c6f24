"""What resources cost: a rate card. Money is whole millionths of a currency, never floating point."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from queuectl.core.model.resources import CPU, format_amount
from queuectl.ports.periods import Piece

_DECIMALS: Final = 6
_MOST_DIGITS: Final = 15
MICROSECONDS: Final = 3_600_000_000
"""Of an hour."""


def hour_unit(resource: str) -> tuple[str, int]:
    """The unit of an amount times hours for users, and its base units."""
    if resource == CPU:
        return "core-hours", 1000
    if format_amount(resource, 1024) == "1Ki":
        return "GiB-hours", 1 << 30
    return "device-hours", 1


class FreePayer(StrEnum):
    """Who pays for what nothing held of usable nodes."""

    NOBODY = "Nobody"
    BY_USE = "ByUse"
    """All that held some of the flavor and resource, in proportion to what they held."""
    BY_QUOTA = "ByQuota"
    """The ClusterQueues with nominal quota of it, in proportion to that."""


class LostPayer(StrEnum):
    """Who pays for what attempts held that were preempted, or lost their nodes."""

    HOLDER = "Holder"
    NOBODY = "Nobody"
    """It is credited."""


class Rate(NamedTuple):
    """The price of one resource from a time on."""

    resource: str
    flavor: str | None
    """None: of every flavor without a rate of its own."""
    priority_class: str | None
    """WorkloadPriorityClass; None: of every class without a rate of its own."""
    begins: datetime
    """Where an hour of UTC or a day of the zone of accounting begins."""
    price: int
    """Millionths of the currency for a unit of `hour_unit`."""
    list_price: int
    """What others would ask for it: not what is paid."""


@dataclass(frozen=True)
class RateCard:
    currency: str
    """ISO 4217."""
    decimals: int
    """Of an amount of money as it is shown."""
    account_key: str | None
    """The account key whose values are the billing accounts; None: there is one account."""
    free: FreePayer
    lost: LostPayer
    rates: tuple[Rate, ...]

    def pieces(self, period: Piece) -> list[Piece]:
        """The period, cut where a rate begins."""
        cuts = {rate.begins for rate in self.rates if period.begins < rate.begins < period.ends}
        return [Piece(*pair) for pair in pairwise(sorted({*period, *cuts}))]

    def rate(self, flavor: str, resource: str, priority_class: str | None, when: datetime) -> Rate | None:
        """The rate that counts at a time: of those that have begun, the one that names most, flavor before
        class, and the last of these. None: it costs nothing."""
        found: Rate | None = None
        for rate in self._by_resource.get(resource, ()):
            if (
                rate.begins <= when
                and rate.flavor in (None, flavor)
                and rate.priority_class in (None, priority_class)
                and (found is None or _rank(rate) >= _rank(found))
            ):
                found = rate
        return found

    @cached_property
    def _by_resource(self) -> dict[str, list[Rate]]:
        found: dict[str, list[Rate]] = {}
        for rate in sorted(self.rates, key=lambda rate: rate.begins):
            found.setdefault(rate.resource, []).append(rate)
        return found


def _rank(rate: Rate) -> tuple[bool, bool]:
    return rate.flavor is not None, rate.priority_class is not None


def cost_of(resource: str, amount: int, price: int) -> int:
    """Millionths, rounded half to even. `amount`: base units times microseconds."""
    return rounded(amount * price, hour_unit(resource)[1] * MICROSECONDS)


def rounded(value: int, unit: int) -> int:
    """`value` / `unit`, rounded half to even."""
    whole, rest = divmod(value, unit)
    return whole + (2 * rest > unit or (2 * rest == unit and whole % 2 == 1))


def shares_of(total: int, weights: list[int]) -> list[int]:
    """Divide a whole number in proportion to weights of which one is not 0: what is left over of the division
    goes to the largest remainders, of equal ones to the first."""
    whole = sum(weights)
    parts = [divmod(total * weight, whole) for weight in weights]
    return _spread(parts, total)


def in_units(values: list[int], unit: int) -> list[int]:
    """Round to units so that the sum is the sum of `values`, rounded half to even: what the values lack goes
    to the largest remainders, of equal ones to the first."""
    return _spread([divmod(value, unit) for value in values], rounded(sum(values), unit))


def _spread(parts: list[tuple[int, int]], total: int) -> list[int]:
    """`parts`: whole numbers and remainders."""
    found = [whole for whole, _ in parts]
    order = sorted(range(len(parts)), key=lambda n: (-parts[n][1], n))
    for n in order[: total - sum(found)]:
        found[n] += 1
    return found


def money(millionths: int, decimals: int) -> str:
    """As a decimal number. It must be whole in those decimals."""
    return decimal_text(millionths // 10 ** (_DECIMALS - decimals), decimals)


def decimal_text(value: int, decimals: int) -> str:
    """`value` units of the last of some decimals as a number, such as 1.05 of 105."""
    whole, part = divmod(abs(value), 10**decimals)
    text = f"{whole}.{part:0{decimals}}" if decimals else str(whole)
    return f"-{text}" if value < 0 else text


def decimal(text: str) -> int:
    """Millionths of a number with at most 15 digits before and 6 after the point. Raises ValueError."""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    whole, point, part = body.partition(".")
    digits = whole + part
    valid = digits.isascii() and digits.isdigit() and whole and bool(point) == bool(part)
    if not valid or len(whole) > _MOST_DIGITS or len(part) > _DECIMALS:
        most = f"at most {_MOST_DIGITS} digits before the point and {_DECIMALS} after it"
        raise ValueError(f'must be a decimal number such as "2.50", with {most}')
    return sign * int(whole + part.ljust(_DECIMALS, "0"))
