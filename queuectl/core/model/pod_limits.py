"""LimitRange and ResourceQuota objects of Kubernetes, as values: what the API server refuses pods for."""

from __future__ import annotations

from enum import StrEnum

from queuectl.core.model.resources import Listed
from queuectl.core.model.values import value


class LimitType(StrEnum):
    CONTAINER = "Container"
    POD = "Pod"


@value(frozen=True, slots=True, kw_only=True)
class LimitRangeItem:
    """One item of `spec.limits`, with the API server's defaults."""

    type: LimitType
    min: Listed = ()
    max: Listed = ()
    default: Listed = ()
    """Limits of containers without one."""
    default_request: Listed = ()
    """Requests of containers without one."""
    ratio: Listed = ()
    """`maxLimitRequestRatio`, in thousandths."""


@value(frozen=True, slots=True)
class LimitRange:
    name: str
    """`NAMESPACE/NAME`."""
    items: tuple[LimitRangeItem, ...] = ()


@value(frozen=True, slots=True)
class QuotaScope:
    """A condition on pods. Operators: In, NotIn, Exists, DoesNotExist."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Counts(StrEnum):
    REQUESTS = "requests"
    LIMITS = "limits"
    PODS = "pods"


@value(frozen=True, slots=True)
class HardLimit:
    """One entry of `spec.hard`. Amounts are in base units of `resource`."""

    key: str
    """Such as `requests.nvidia.com/gpu`."""
    counts: Counts
    resource: str
    hard: int
    used: int = 0
    """`status.used`: by all pods that it counts and that have not ended."""


@value(frozen=True, slots=True)
class NamespaceQuota:
    """A ResourceQuota, as far as it counts pods."""

    name: str
    """`NAMESPACE/NAME`."""
    limits: tuple[HardLimit, ...] = ()
    scopes: tuple[QuotaScope, ...] = ()
    """It counts the pods that meet all of them."""


def namespace_of(name: str) -> str:
    """Return the namespace in `NAMESPACE/NAME`."""
    return name.partition("/")[0]
