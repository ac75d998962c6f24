"""Section `accounting`: what usage is accounted by, and in which time zone months begin."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from queuectl.core.model import policy
from queuectl.kinds.invalid import Section
from queuectl.ports.periods import zone_named
from queuectl.ports.reader import USAGE_AXES

MAX_KEYS: Final = 8
MAX_ALLOWED: Final = 1000
_NAME: Final = r"^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$"
_LABEL: Final = r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_VALUE: Final = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_TAKEN: Final = frozenset((*USAGE_AXES, "resource", "label"))
"""Names of what usage is accounted by in any case: no account key may have one."""


class AccountKeySettings(Section):
    name: str = Field(pattern=_NAME)
    """As in `queuectl usage --by NAME`."""
    label: str = Field(pattern=_LABEL)
    """The label that has the value."""
    sources: tuple[Annotated[policy.AccountSource, Field(strict=False)], ...] = Field(
        default=tuple(policy.AccountSource), min_length=1, max_length=2, strict=False
    )
    """Of which objects; the first with an allowed value counts. The labels of a workload are its user's."""
    allowed: tuple[Annotated[str, Field(pattern=_VALUE)], ...] | None = Field(
        default=None, min_length=1, max_length=MAX_ALLOWED, strict=False
    )
    """A label with another value does not count; none: every value does."""

    @field_validator("name")
    @classmethod
    def _not_taken(cls, value: str) -> str:
        if value in _TAKEN:
            raise ValueError(f"{value} is accounted in any case: choose another name")
        return value

    @field_validator("sources")
    @classmethod
    def _distinct_sources(cls, value: tuple[policy.AccountSource, ...]) -> tuple[policy.AccountSource, ...]:
        if len(set(value)) != len(value):
            raise ValueError("names an object twice")
        return value


class AccountingSettings(Section):
    keys: tuple[AccountKeySettings, ...] = Field(default=(), max_length=MAX_KEYS, strict=False)
    """What an admission is booked on beside its queues and its user."""
    zone: str = Field(default="UTC", max_length=64)
    """Time zone, such as Europe/Berlin, in which days and months of usage begin."""

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

    def account_keys(self) -> tuple[policy.AccountKey, ...]:
        """As the core's type."""
        return tuple(
            policy.AccountKey(
                name=one.name,
                label=one.label,
                sources=one.sources,
                allowed=None if one.allowed is None else frozenset(one.allowed),
            )
            for one in self.keys
        )
