"""Types of the fields of scenario documents, and the base of their models."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
)
from pydantic.alias_generators import to_camel

from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import BadQuantity, QuantityOutOfRange, format_amount, parse_quantity
from queuectl.kinds.json_fields import BadField, kind_of, timestamp

_CODES: Final = sorted(Code)
_DURATION: Final = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")


def _time(value: object) -> datetime:
    # YAML parses an unquoted time as one, JSON has text.
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)
    try:
        return timestamp(value, "")
    except BadField as problem:
        raise ValueError(f"{str(problem).removeprefix(': ')}, such as 2024-01-01T00:00:00Z") from None


def _seconds(value: object) -> int:
    found = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if found is None:
        raise ValueError(f"{value!r:.40} is not a duration such as 168h, 5m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _quantities(value: object) -> dict[str, int | float | str]:
    """As written: a workload may request a quantity that is out of range."""
    if not isinstance(value, dict):
        raise ValueError("must be quantities by resource, such as {cpu: 2}")
    for resource, quantity in value.items():
        if isinstance(quantity, bool) or not isinstance(quantity, int | float | str):
            raise ValueError(f"{resource}: {kind_of(quantity)} is not a quantity")
        try:
            parse_quantity(quantity, resource)
        except QuantityOutOfRange:
            continue
        except BadQuantity as problem:
            raise ValueError(f"{resource}: {problem}") from None
    return value


def _amounts(value: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource, quantity in _quantities(value).items():
        try:
            found[resource] = parse_quantity(quantity, resource)
        except BadQuantity as problem:
            raise ValueError(f"{resource}: {problem}") from None
        if found[resource] < 0:
            raise ValueError(f"{resource}: {quantity} must be at least 0")
    return found


def _written(found: dict[str, int]) -> dict[str, str]:
    return {resource: format_amount(resource, amount) for resource, amount in found.items()}


def _reason(code: str) -> str:
    if code not in _CODES:
        raise ValueError(f"no reason is called {code!r}; there are {', '.join(_CODES)}")
    return code


Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^/\s]+$")]
Reference = Annotated[str, StringConstraints(max_length=507, pattern=r"^[^/\s]+/[^/\s]+$")]
"""NAMESPACE/NAME of a workload."""
Quantities = Annotated[dict[str, int | float | str], BeforeValidator(_quantities)]
"""By resource, as written."""
Amounts = Annotated[dict[str, int], BeforeValidator(_amounts), PlainSerializer(_written)]
"""Quantities by resource; in base units once read."""
Time = Annotated[datetime, BeforeValidator(_time)]
Duration = Annotated[int, BeforeValidator(_seconds)]
"""In seconds once read."""
Whole = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Priority = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)]
MOST_SECONDS: Final = 10 * 366 * 86_400
"""Ten years."""
Seconds = Annotated[float, Field(strict=True, ge=0, le=MOST_SECONDS, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, le=MOST_SECONDS, allow_inf_nan=False)]
ReasonCode = Annotated[str, AfterValidator(_reason)]


class ScenarioPart(BaseModel):
    """Fields in camelCase; an unknown field is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )
