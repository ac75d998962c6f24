"""Events: the inputs of the engine. Each event carries the whole latest object, never a delta.

Therefore missed, merged and repeated events are harmless, and a relist is a sequence of events.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from queuectl.core.model.device_use import UseFinding
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Context, Policy
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.values import value
from queuectl.core.model.workload import (
    ConfigKey,
    EffectKey,
    Observation,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)


@value(frozen=True, slots=True)
class PolicyObserved:
    """A policy object, with its spec as canonical JSON (sorted keys) for the ledger."""

    key: ConfigKey
    value: Policy
    spec: str
    author: str | None = None
    """The user that wrote the spec; None: unknown."""
    status_lost: bool = False
    """Its status is not the one that was written last: it was deleted and made again, or another write came
    later."""


@value(frozen=True, slots=True)
class PolicyInvalid:
    """A policy object in the API server that cannot be parsed. Its last valid spec stays in force."""

    key: ConfigKey
    detail: str
    status_lost: bool = False


@value(frozen=True, slots=True)
class PolicyGone:
    """A policy object was deleted."""

    key: ConfigKey


@value(frozen=True, slots=True)
class ConfigurationObserved:
    """The component configuration as canonical JSON without secrets. The ledger keeps each version."""

    spec: str


@value(frozen=True, slots=True)
class ContextObserved:
    """A cluster object that decisions depend on, such as a Namespace."""

    value: Context
    key: ConfigKey | None = None
    """Under which the ledger keeps it; None: it is not kept."""
    spec: str = ""
    """With a key: what decisions depend on, as canonical JSON."""


@value(frozen=True, slots=True)
class ContextGone:
    """A cluster object that decisions depend on was deleted."""

    kind: type[Context]
    name: str


@value(frozen=True, slots=True)
class WorkloadObserved:
    """The object of a workload as last read: the request of its user, and its state."""

    workload: Workload
    observation: Observation
    ordered_from: datetime | None = None
    """It is ordered as if created then (O9); None: by its creation."""


@value(frozen=True, slots=True)
class WorkloadGone:
    """The object of a workload was deleted or has lost its queue label. Its pods may still be alive."""

    workload: WorkloadId
    resource_version: str = ""
    """resourceVersion of the deletion, empty if unknown. An older read does not restore the workload."""


@value(frozen=True, slots=True)
class Listed:
    """A complete list of the kind `source` has been passed in as events.

    For a job kind, `workloads` are all that exist: none if its definition is not installed. None: it cannot
    be read now, so nothing is known about its workloads, and the others do not wait for it.
    """

    source: str
    workloads: frozenset[WorkloadId] | None = None


class Result(StrEnum):
    """Outcome of an effect."""

    DONE = "Done"  # acknowledged: a 200, or a consistent read that shows the write
    REFUSED = "Refused"  # the object had changed; it was read again and passed in as an event
    GONE = "Gone"  # the object does not exist
    DENIED = "Denied"  # the API server refuses the write for another reason, such as a policy or RBAC


@value(frozen=True, slots=True)
class EffectSettled:
    """An effect has an outcome."""

    key: EffectKey
    result: Result
    generation: int | None = None
    """Generation of the object after the write. Observations of an older generation precede the write."""
    detail: str | None = None
    """Denied: the message of the API server."""


@value(frozen=True, slots=True)
class TimeCame:
    """The ledger clock has reached `now`. An earlier time than the last one is ignored."""

    now: datetime


@value(frozen=True, slots=True)
class PodsCounted:
    """Whether a consistent read found a pod of this attempt alive.

    With `at_most`: that no more are alive, and that a gate in force lets its object have no more. `alive`:
    its object was edited since, so nothing is known. Either ends the count.
    """

    workload: WorkloadId
    attempt: int
    alive: bool
    at_most: int | None = None


@value(frozen=True, slots=True)
class OwnerRead:
    """The owners of a child were read, and its family too: those reads are events of their own (K2)."""

    workload: WorkloadId
    holder: WorkloadId | None
    """The nearest object above it that has a queue label; None: see `problem`."""
    problem: str | None = None
    """Why no owner can hold quota for it, such as `is not there`."""
    stop: bool = True
    """Whether it is to be stopped if no owner holds quota for it."""


@value(frozen=True, slots=True)
class PodOwnerRead:
    """The controller of pods with the label of a workload was read (M21)."""

    workload: WorkloadId
    owner: str
    """UID of the controller; empty: the pods have none."""
    belongs: bool
    """Whether the workload controls it, directly or by objects in between."""


@value(frozen=True, slots=True)
class OutcomesRead:
    """How the last workloads of these names ended, by the ledger; None: it has none that is over (V2)."""

    outcomes: tuple[tuple[NamedWorkload, WorkloadOutcome | None], ...]


@value(frozen=True, slots=True)
class PodObserved:
    """A pod that is bound to a node, or that belongs to a workload, as last read."""

    pod: Pod


@value(frozen=True, slots=True)
class PodGone:
    """A pod has ended, or was deleted."""

    uid: str


@value(frozen=True, slots=True)
class DeviceUseFound:
    """What an admitted attempt does with its devices, as metrics say."""

    workload: WorkloadId
    attempt: int
    finding: UseFinding
    at: datetime
    """When it was found, by the clock of the ledger."""
    until: datetime
    """How long it says something: then nothing is known, unless it was found again."""


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
    | OwnerRead
    | PodOwnerRead
    | OutcomesRead
    | PodObserved
    | PodGone
    | DeviceUseFound
)
