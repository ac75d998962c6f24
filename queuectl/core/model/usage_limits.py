"""UsageLimits: how much each user, account or all may use of a queue (X)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.model.resources import Amounts
from queuectl.core.model.values import value

WORKLOADS: Final = "workloads"
"""In the place of a resource: the number of workloads. No Kubernetes resource has this name."""


class SubjectKind(StrEnum):
    """Whose use counts together."""

    USER = "User"
    EACH_USER = "EachUser"
    ACCOUNT = "Account"
    EACH_ACCOUNT = "EachAccount"
    ALL = "All"


@value(frozen=True, slots=True)
class LimitSubject:
    kind: SubjectKind
    name: str = ""
    """Of the user, or value of the account key; empty for the other kinds."""
    key: str = ""
    """The account key."""


@value(frozen=True, slots=True)
class LimitTarget:
    """Where the use counts."""

    kind: str
    """Cohort (with all below it), ClusterQueue, LocalQueue or WorkloadPriorityClass."""
    name: str
    namespace: str = ""
    """Of a LocalQueue."""

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


class Dimension(NamedTuple):
    """What is counted."""

    flavor: str | None
    """None: in all flavors."""
    resource: str
    """A resource, or WORKLOADS."""


@value(frozen=True, slots=True, kw_only=True)
class UsageLimit:
    name: str
    target: LimitTarget
    subject: LimitSubject
    most: tuple[tuple[Dimension, int], ...] = ()
    """What workloads of one subject may hold together, in base units, running workloads included."""
    pending: int | None = None
    """How many eligible workloads of one subject may be in pending queues; None: any number."""
    min_request: Amounts = ()
    """What each workload must request at least."""
