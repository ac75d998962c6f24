"""Section `accounting`: what usage is accounted by, in which time zone months begin, and what usage costs."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from queuectl.core.model import policy
from queuectl.core.model.device_use import IDLE_OF
from queuectl.kinds.invalid import Section
from queuectl.ports.periods import day_begins, zone_named
from queuectl.ports.rates import FreePayer, LostPayer, Rate, RateCard, decimal
from queuectl.ports.reader import USAGE_AXES

MAX_KEYS: Final = 8
MAX_ALLOWED: Final = 1000
_NAME: Final = r"^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$"
_QUALIFIED: Final = r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
MAX_RATES: Final = 1000
_FROM: Final = re.compile(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:00:00Z)?")
_OBJECT: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_VALUE: Final = r"^[A-Za-z0-9/]([-A-Za-z0-9_.:/@ ]{0,61}[A-Za-z0-9])?$"
"""Of a label, or the name of a group."""
_TAKEN: Final = frozenset((*USAGE_AXES, "resource", "label", "kind"))
"""Names of what usage is accounted by in any case: no account key may have one."""


class AccountKeySettings(Section):
    name: str = Field(pattern=_NAME)
    """As in `queuectl usage --by NAME`."""
    label: str | None = Field(default=None, pattern=_QUALIFIED)
    """The label that has the value; none where `sources` has Group and Owner alone."""
    sources: tuple[Annotated[policy.AccountSource, Field(strict=False)], ...] = Field(
        default=(policy.AccountSource.WORKLOAD, policy.AccountSource.NAMESPACE),
        min_length=1,
        max_length=len(policy.AccountSource),
        strict=False,
    )
    """Labels of which objects, the groups of its user, or what controls it, such as `CronJob/nightly`; the
    first with an allowed value counts. Labels and owners of workloads are their users'."""
    allowed: tuple[Annotated[str, Field(pattern=_VALUE)], ...] | None = Field(
        default=None, min_length=1, max_length=MAX_ALLOWED, strict=False
    )
    """A label with another value, or another group, does not count; none: every label does."""
    required: bool = False
    """A workload without a value waits; false: it is booked on none."""

    @field_validator("name")
    @classmethod
    def _not_taken(cls, value: str) -> str:
        if value in _TAKEN:
            raise ValueError(f"{value} is accounted in any case: choose another name")
        return value

    @model_validator(mode="after")
    def _source_of_each(self) -> AccountKeySettings:
        if policy.AccountSource.GROUP in self.sources and self.allowed is None:
            raise ValueError("allowed: must list the groups that count where sources has Group")
        labels = {policy.AccountSource.WORKLOAD, policy.AccountSource.NAMESPACE} & {*self.sources}
        if (self.label is None) == bool(labels):
            raise ValueError("label: must be given where sources has Workload or Namespace, and only then")
        return self

    @field_validator("sources")
    @classmethod
    def _distinct_sources(cls, value: tuple[policy.AccountSource, ...]) -> tuple[policy.AccountSource, ...]:
        if len(set(value)) != len(value):
            raise ValueError("names an object twice")
        return value


class RateSettings(Section):
    """From when on a resource costs what. An hour of a unit: a device, a core, a GiB."""

    resource: str = Field(pattern=_QUALIFIED.replace("^", f"^({IDLE_OF})?"))
    """`idle:` before its name: what of it was held and idle, beside the price of what was held."""
    flavor: str | None = Field(default=None, pattern=_OBJECT, max_length=253)
    """None: every flavor without a rate of its own."""
    class_: str | None = Field(default=None, alias="class", pattern=_OBJECT, max_length=253)
    """WorkloadPriorityClass; none: every one without a rate of its own, and none at all."""
    from_: str = Field(alias="from", max_length=40)
    """A day such as 2026-07-01, from its beginning in `accounting.zone` on, or a whole hour of UTC such as
    2026-07-01T06:00:00Z."""
    price: str
    """In text, such as "2.50": floating point is not exact."""
    list_price: str | None = None
    """What others ask for it, for comparison; none: the price."""

    @field_validator("price", "list_price")
    @classmethod
    def _exact_price(cls, value: str | None) -> str | None:
        if value is not None and decimal(value) < 0:
            raise ValueError(f"is {value}, must be at least 0")
        return value

    @field_validator("from_")
    @classmethod
    def _whole_hour(cls, value: str) -> str:
        rate_begins(value, ZoneInfo("UTC"))
        return value


class RateCardSettings(Section):
    currency: str = Field(pattern="^[A-Z]{3}$")
    """ISO 4217, such as EUR."""
    decimals: int = Field(default=2, ge=0, le=4)
    """Of the amounts of money that are shown."""
    account: str | None = None
    """The account key, such as cost-center, whose values are the billing accounts of an export; none: there
    is one account."""
    free: Annotated[FreePayer, Field(strict=False)] = FreePayer.NOBODY
    """Who pays for what nothing held of usable nodes."""
    lost: Annotated[LostPayer, Field(strict=False)] = LostPayer.HOLDER
    """Who pays for what attempts held that were preempted, or lost their nodes."""
    rates: tuple[RateSettings, ...] = Field(min_length=1, max_length=MAX_RATES, strict=False)

    @model_validator(mode="after")
    def _distinct_rates(self) -> RateCardSettings:
        seen = dict[object, int]()
        for number, rate in enumerate(self.rates):
            key = (rate.resource, rate.flavor, rate.class_, rate.from_)
            if key in seen:
                raise ValueError(
                    f"rates[{number}]: is for the same as rates[{seen[key]}], from the same time"
                )
            seen[key] = number
        return self


def rate_begins(text: str, zone: ZoneInfo) -> datetime:
    """When a rate begins, in UTC. Raises ValueError."""
    try:
        if not _FROM.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text) if "T" in text else day_begins(date.fromisoformat(text), zone)
    except ValueError:
        example = "a day such as 2026-07-01, or an hour of UTC such as 2026-07-01T06:00:00Z"
        raise ValueError(f"is {text!r}, must be {example}") from None


class AccountingSettings(Section):
    keys: tuple[AccountKeySettings, ...] = Field(default=(), max_length=MAX_KEYS, strict=False)
    """What an admission is booked on beside its queues and its user."""
    zone: str = Field(default="UTC", max_length=64)
    """Time zone, such as Europe/Berlin, in which days and months of usage begin."""

    rate_card: RateCardSettings | None = None
    """What usage costs; none: there are no statements."""

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if zone_named(value) is None:
            raise ValueError(f"{value!r} is not the name of a time zone, such as Europe/Berlin")
        return value

    @model_validator(mode="after")
    def _distinct_keys(self) -> AccountingSettings:
        names = [one.name for one in self.keys]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"keys: the name {name} is used twice")
        return self

    @model_validator(mode="after")
    def _known_account(self) -> AccountingSettings:
        names = [one.name for one in self.keys]
        if self.rate_card is not None and self.rate_card.account not in (None, *names):
            raise ValueError(f"rateCard.account is {self.rate_card.account!r}, must be one of keys: {names}")
        return self

    def account_keys(self) -> tuple[policy.AccountKey, ...]:
        """As the core's type."""
        return tuple(
            policy.AccountKey(
                name=one.name,
                label=one.label or "",
                sources=one.sources,
                allowed=None if one.allowed is None else frozenset(one.allowed),
                required=one.required,
            )
            for one in self.keys
        )

    def card(self) -> RateCard | None:
        """What usage costs; None: nothing is configured."""
        if (card := self.rate_card) is None:
            return None
        zone = ZoneInfo(self.zone)
        rates = (
            Rate(
                resource=rate.resource,
                flavor=rate.flavor,
                priority_class=rate.class_,
                begins=rate_begins(rate.from_, zone),
                price=(price := decimal(rate.price)),
                list_price=price if rate.list_price is None else decimal(rate.list_price),
            )
            for rate in card.rates
        )
        return RateCard(card.currency, card.decimals, card.account, card.free, card.lost, tuple(rates))
