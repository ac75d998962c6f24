"""Lines of a statement as rows of FOCUS 1.2, the format of cost data that finance tools read. Pure.

Quantities have 9 decimals, costs 6: the costs of all rows add up to the total of the statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from queuectl.answers.usage import axis_value
from queuectl.ports.periods import Piece
from queuectl.ports.rates import MICROSECONDS, cost_of, decimal_text, hour_unit, money, rounded
from queuectl.ports.reader import USAGE_AXES
from queuectl.ports.statements import ChargeKind, StatementLine

VERSION: Final = "1.2"
UNASSIGNED: Final = "unassigned"
_ISSUER: Final = "queuectl"
_DIGITS: Final = 9
_UNITS: Final = {"core-hours": "CPU-Hours", "GiB-hours": "GiB-Hours", "device-hours": "GPU-Hours"}
_CATEGORIES: Final = {
    ChargeKind.USAGE: "Usage",
    ChargeKind.FREE: "Usage",
    ChargeKind.LOST: "Credit",
}
_TAGS: Final = tuple(axis for axis in USAGE_AXES if axis not in ("clusterqueue", "flavor"))
Row = dict[str, str | None]


class Bill(NamedTuple):
    """What all rows of an export have in common."""

    period: Piece
    currency: str
    account_key: str | None
    """The account key whose values are the billing accounts; None: there is one account."""


def focus_rows(lines: Iterable[StatementLine], bill: Bill) -> Iterator[Row]:
    """One row for each line that has a price, or a cost."""
    for line in lines:
        if line.price is not None or line.cost:
            yield _row(line, bill)


def _row(line: StatementLine, bill: Bill) -> Row:
    account = _ISSUER
    if bill.account_key is not None:
        account = axis_value(line, bill.account_key) or UNASSIGNED
    cost = money(line.cost, 6)
    return {
        "BilledCost": cost,
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingAccountType": bill.account_key or "Cluster",
        "BillingCurrency": bill.currency,
        "BillingPeriodStart": _time(bill.period.begins),
        "BillingPeriodEnd": _time(bill.period.ends),
        "ChargeCategory": _CATEGORIES[line.kind],
        "ChargeClass": None if line.of_month is None else "Correction",
        "ChargeDescription": _description(line),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _time(line.begins),
        "ChargePeriodEnd": _time(line.ends),
        "CommitmentDiscountStatus": None,  # rules on quantities read it
        **_quantities(line, cost),
        "EffectiveCost": cost,
        "InvoiceId": None,  # a statement is no invoice
        "InvoiceIssuerName": _ISSUER,
        "ProviderName": _ISSUER,
        "PublisherName": _ISSUER,
        "ResourceId": f"{line.cluster_queue}/{line.flavor}",
        "ResourceName": line.flavor,
        "ResourceType": "ResourceFlavor",
        "ServiceCategory": "Compute",
        "ServiceName": _ISSUER,
        "ServiceSubcategory": "Other (Compute)",
        "SubAccountId": line.cluster_queue,
        "SubAccountName": line.cluster_queue,
        "SubAccountType": "ClusterQueue",
        "Tags": json.dumps(dict(_tags(line)), ensure_ascii=False),
        "x_Kind": line.kind.value,
        "x_CorrectedMonth": line.of_month,
    }


def _quantities(line: StatementLine, cost: str) -> Row:
    """Of what has a price for a quantity, else none."""
    names = ("ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit", "PricingCategory")
    found: Row = dict.fromkeys(
        (*names, "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuMeter", "SkuPriceId", "SkuPriceDetails")
    )
    found |= {"ListCost": cost, "ContractedCost": cost}
    if _CATEGORIES[line.kind] != "Usage" or line.price is None or line.list_price is None:
        return found
    unit, size = hour_unit(line.resource)
    quantity = decimal_text(rounded(line.amount * 10**_DIGITS, size * MICROSECONDS), _DIGITS)
    return found | {
        "ConsumedQuantity": quantity,
        "ConsumedUnit": _UNITS[unit],
        "PricingQuantity": quantity,
        "PricingUnit": _UNITS[unit],
        "PricingCategory": "Standard",
        "ListUnitPrice": money(line.list_price, 6),
        "ContractedUnitPrice": money(line.price, 6),
        "ListCost": money(cost_of(line.resource, line.amount, line.list_price), 6),
        "SkuId": line.flavor,
        "SkuMeter": line.resource,
        "SkuPriceId": f"{line.flavor}/{line.resource}/{money(line.price, 6)}",
    }


def _description(line: StatementLine) -> str:
    what = f"{line.resource} of flavor {line.flavor}"
    text = {
        ChargeKind.USAGE: f"{what}, held",
        ChargeKind.FREE: f"{what}, held by nothing",
        ChargeKind.LOST: f"{what}, held by attempts that were preempted or lost their nodes",
    }[line.kind]
    return text if line.reason is None else f"{text}; {line.reason}"


def _tags(line: StatementLine) -> Iterator[tuple[str, str]]:
    if line.booked is None:
        return
    for axis in _TAGS:
        if value := axis_value(line, axis):
            yield f"queuectl/{axis}", value
    yield from sorted(line.booked.account.items())


def _time(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
