"""What was seen. Each event carries the whole latest object, never a delta.

So missed, merged and repeated events are harmless, and a relist is just more events.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from queuectl.core.model import ConfigKey, EffectKey, Observation, Workload, WorkloadId
from queuectl.core.policy import Context, Policy
from queuectl.core.values import value


@value(frozen=True, slots=True)
class PolicyObserved:
    """A policy object of ours, with its spec as canonical JSON (sorted keys) for the ledger."""

    key: ConfigKey
    value: Policy
    spec: str


@value(frozen=True, slots=True)
class PolicyInvalid:
    """A policy object that got past the API server but can't be read. The last good one stays in force."""

    key: ConfigKey
    detail: str


@value(frozen=True, slots=True)
class PolicyGone:
    key: ConfigKey


@value(frozen=True, slots=True)
class ConfigurationObserved:
    """The component's own configuration, as canonical JSON without secrets: the ledger keeps each version."""

    spec: str


@value(frozen=True, slots=True)
class ContextObserved:
    value: Context


@value(frozen=True, slots=True)
class ContextGone:
    kind: type[Context]
    name: str


@value(frozen=True, slots=True)
class WorkloadObserved:
    workload: Workload
    observation: Observation


@value(frozen=True, slots=True)
class WorkloadGone:
    """Its object is deleted, or no longer carries our label. Its pods may still be alive."""

    workload: WorkloadId
    resource_version: str = ""
    """At which it left, where that is known: an older read does not bring it back."""


@value(frozen=True, slots=True)
class Listed:
    """A complete list of `source` (a kind's name) has been handed in.

    For a job kind `workloads` are all that exist; None means that the kind is not installed, which says
    nothing about what runs.
    """

    source: str
    workloads: frozenset[WorkloadId] | None = None


class Result(StrEnum):
    DONE = "Done"  # acknowledged: a 200, or a consistent read that shows it
    REFUSED = "Refused"  # the object has changed since; it was read again and handed in
    GONE = "Gone"  # there is no such object any more
    DENIED = "Denied"  # the API server keeps refusing it, for a reason that is not ours


@value(frozen=True, slots=True)
class EffectSettled:
    key: EffectKey
    result: Result
    generation: int | None = None
    """Of the object after our write: older observations say nothing about it."""
    detail: str | None = None
    """Denied: in the API server's words."""


@value(frozen=True, slots=True)
class TimeCame:
    """It is as late as this by the ledger's clock. An earlier one says nothing."""

    now: datetime


@value(frozen=True, slots=True)
class PodsCounted:
    """Answer to a probe: by a consistent read, is any pod of this attempt still alive?"""

    workload: WorkloadId
    attempt: int
    alive: bool


Event = (
    PolicyObserved
    | PolicyInvalid
    | PolicyGone
    | ConfigurationObserved
    | ContextObserved
    | ContextGone
    | WorkloadObserved
    | WorkloadGone
    | Listed
    | EffectSettled
    | TimeCame
    | PodsCounted
)
