"""The status of the policy objects: written by the controller for users, never read back."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from queuectl.kinds.policy_schema import ATOMIC, Count, ObjectPart, Text, by_key

_ANY_QUANTITY: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
AnyQuantity = Annotated[int | str, WithJsonSchema(_ANY_QUANTITY)]
Timestamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class StatusCondition(ObjectPart):
    """One condition."""

    type: Annotated[str, StringConstraints(max_length=316)]
    """Active: whether it can admit workloads. CapacityWarning: its quota and the nodes of its flavors do not
    belong together; it is there only as long as that is so, and changes no decision."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    reason: Annotated[str, StringConstraints(max_length=1024)]
    """Why, in one word: Ready, Stopped, FlavorNotFound, CohortCycle, Unsupported, InvalidSpec,
    QuotaBeyondNodes, FlavorWithoutNodes and others."""
    message: Annotated[str, StringConstraints(max_length=32768)]
    """Why, as a sentence that names the field or object."""
    last_transition_time: Timestamp
    """When `status` changed last."""
    observed_generation: int | None = None
    """The metadata.generation that the condition is about. Not written."""


Conditions = Annotated[tuple[StatusCondition, ...], Field(json_schema_extra=by_key("type"))]


class ResourceUsage(ObjectPart):
    """Usage of one resource."""

    name: str
    """The resource."""
    total: AnyQuantity | None = None
    """In use; terminating workloads count until their pods are gone."""
    borrowed: AnyQuantity | None = None
    """The part of the total above effectiveQuota."""
    effective_quota: AnyQuantity | None = None
    """What counts of nominalQuota. It is less while nodes have less than is promised, and the root of the
    cohort tree has capacityShortage ProRata."""


class FlavorUsage(ObjectPart):
    """Usage of one flavor."""

    name: str
    """The ResourceFlavor."""
    resources: Annotated[tuple[ResourceUsage, ...], Field(json_schema_extra=by_key("name"))] = ()
    """Usage by resource."""


Usages = Annotated[tuple[FlavorUsage, ...], Field(json_schema_extra=by_key("name"))]


class WeightedShare(ObjectPart):
    """Its share in fair sharing."""

    weighted_share: int | None = None
    """The largest part, over all resources, of the cohort's lendable quota that it borrows, in thousandths,
    divided by its weight. 9223372036854775807: it borrows with weight 0."""


class ClusterQueueStatus(ObjectPart):
    """State of the queue, and the quota in use."""

    conditions: Conditions = ()
    """Active: whether it can admit workloads, and why not. CapacityWarning: its quota and nodes differ."""
    flavors_reservation: Usages = ()
    """Quota that its workloads hold, by flavor and resource."""
    flavors_usage: Usages = ()
    """The same as flavorsReservation: a workload that holds quota is admitted."""
    pending_workloads: Count | None = None
    """Number of pending workloads."""
    reserving_workloads: Count | None = None
    """The same as admittedWorkloads."""
    admitted_workloads: Count | None = None
    """Number of workloads that hold quota: they run, are being started, or are terminating."""
    fair_sharing: WeightedShare | None = None
    """Its share, in a tree with fair sharing."""


class CohortStatus(ObjectPart):
    """State of the cohort."""

    conditions: Conditions = ()
    """Active: whether it can admit workloads, and why not."""
    fair_sharing: WeightedShare | None = None
    """Its share, in a tree with fair sharing. Not written."""


class WaitingReason(ObjectPart):
    """Why a workload is pending."""

    code: Annotated[str, StringConstraints(max_length=63)]
    """One word of a closed set, such as WaitingForQuota."""
    message: Text | None = None
    """The reason as a sentence, with its numbers."""


class WaitingWorkload(ObjectPart):
    """A pending workload."""

    kind: str
    """Kind of its object, such as Job."""
    name: str
    """Name of its object."""
    uid: str
    """UID of its object."""
    position: Count
    """From 1, in the ClusterQueue."""
    reason: WaitingReason
    """Why it is pending."""


class LocalQueueStatus(ObjectPart):
    """State of the queue, and its first pending workloads."""

    conditions: Conditions = ()
    """Active: whether it can admit workloads, and why not."""
    flavors_reservation: Usages = ()
    """Quota of its ClusterQueue that its workloads hold, by flavor and resource."""
    flavors_usage: Usages = ()
    """The same as flavorsReservation: a workload that holds quota is admitted."""
    pending_workloads: Count | None = None
    """Number of pending workloads."""
    reserving_workloads: Count | None = None
    """The same as admittedWorkloads."""
    admitted_workloads: Count | None = None
    """Number of workloads that hold quota: they run, are being started, or are terminating."""
    waiting: Annotated[tuple[WaitingWorkload, ...], Field(max_length=50, json_schema_extra=ATOMIC)] = ()
    """The first pending workloads, in order. Written by queuectl from time to time, never read back."""
