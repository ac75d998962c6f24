"""What readers see of the engine: immutable, made on demand."""

from __future__ import annotations

from queuectl.core.model import LocalQueueName, ObjectRef
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import FlavorResource
from queuectl.core.values import value


@value(frozen=True, slots=True)
class Condition:
    """Whether a queue can admit. `reason` is one word, as in a Kubernetes condition."""

    active: bool
    reason: str
    message: str


@value(frozen=True, slots=True)
class Waiting:
    ref: ObjectRef
    position: int
    """From 1, in its ClusterQueue."""
    reason: Reason


@value(frozen=True, slots=True, kw_only=True)
class LocalQueueReport:
    name: LocalQueueName
    cluster_queue: str
    condition: Condition
    pending: int
    admitted: int
    first: tuple[Waiting, ...]
    """The first that wait, in order."""


@value(frozen=True, slots=True, kw_only=True)
class ClusterQueueReport:
    name: str
    condition: Condition
    pending: int
    admitted: int
    nominal: tuple[tuple[FlavorResource, int], ...]
    used: tuple[tuple[FlavorResource, int], ...]
    """Held by open attempts, those being evicted included."""
    reasons: tuple[tuple[Code, int], ...] = ()
    """How many wait, by the code of why."""


@value(frozen=True, slots=True, kw_only=True)
class Standing:
    """What no queue's report shows."""

    strays: tuple[tuple[Code, int], ...]
    """How many wait without a ClusterQueue, by the code of why."""
    frozen: int
    """Root cohorts about which nothing is decided: memory and ledger disagree about them."""
    gated: bool
    """The policy that keeps labelled work suspended has been seen in the cluster."""
