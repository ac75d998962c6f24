"""The status of the policy objects: written by the controller for users, never read back."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from queuectl.kinds.policy_schema import ATOMIC, Count, Part, Text, by_key

_ANY_QUANTITY: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
AnyQuantity = Annotated[int | str, WithJsonSchema(_ANY_QUANTITY)]
Timestamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class StatusCondition(Part):
    type: Annotated[str, StringConstraints(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, StringConstraints(max_length=1024)]
    message: Annotated[str, StringConstraints(max_length=32768)]
    last_transition_time: Timestamp
    observed_generation: int | None = None


Conditions = Annotated[tuple[StatusCondition, ...], Field(json_schema_extra=by_key("type"))]


class ResourceUsage(Part):
    name: str
    """The resource."""
    total: AnyQuantity | None = None
    """In use; terminating workloads count until their pods are gone."""
    borrowed: AnyQuantity | None = None
    """The part of the total above nominalQuota."""


class FlavorUsage(Part):
    name: str
    """The ResourceFlavor."""
    resources: Annotated[tuple[ResourceUsage, ...], Field(json_schema_extra=by_key("name"))] = ()


Usages = Annotated[tuple[FlavorUsage, ...], Field(json_schema_extra=by_key("name"))]


class WeightedShare(Part):
    weighted_share: int | None = None
    """Usage beyond its own quota in relation to its weight; larger is more."""


class ClusterQueueStatus(Part):
    conditions: Conditions = ()
    flavors_reservation: Usages = ()
    flavors_usage: Usages = ()
    pending_workloads: Count | None = None
    reserving_workloads: Count | None = None
    admitted_workloads: Count | None = None
    fair_sharing: WeightedShare | None = None


class CohortStatus(Part):
    conditions: Conditions = ()
    fair_sharing: WeightedShare | None = None


class WaitingReason(Part):
    code: Annotated[str, StringConstraints(max_length=63)]
    message: Text | None = None


class WaitingWorkload(Part):
    kind: str
    name: str
    uid: str
    position: Count
    """From 1, in the ClusterQueue."""
    reason: WaitingReason


class LocalQueueStatus(Part):
    conditions: Conditions = ()
    flavors_reservation: Usages = ()
    flavors_usage: Usages = ()
    pending_workloads: Count | None = None
    reserving_workloads: Count | None = None
    admitted_workloads: Count | None = None
    waiting: Annotated[tuple[WaitingWorkload, ...], Field(max_length=50, json_schema_extra=ATOMIC)] = ()
    """The first pending workloads, in order. Written by queuectl from time to time, never read back."""
