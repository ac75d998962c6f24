"""The policy kind UsageLimit as the API server stores it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from queuectl.kinds.policy_schema import (
    AMOUNTS,
    MAX_FLAVORS,
    Name,
    ObjectPart,
    Quantity,
    ResourceName,
    by_key,
    rule,
    rules,
)

_MOST_RESOURCES: Final = 16
Quantities = Annotated[
    dict[ResourceName, Quantity], Field(max_length=_MOST_RESOURCES, json_schema_extra=rules(*AMOUNTS))
]

MAX_WORKLOADS: Final = 1_000_000
"""Of one subject; more is no limit."""
Workloads = Annotated[int, Field(ge=0, le=MAX_WORKLOADS)]


class LimitTargetSpec(ObjectPart):
    """The object whose workloads count."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.kind == 'LocalQueue') == has(self.__namespace__)",
                "is required for a LocalQueue, and not allowed for other kinds",
                fieldPath=".namespace",
            )
        )
    )

    kind: Literal["Cohort", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"]
    """Cohort: the workloads of all ClusterQueues below it. ClusterQueue and LocalQueue: those of this queue.
    WorkloadPriorityClass: those that name it by label, or, for `default`, no class."""
    name: Name
    """Name of that object, which need not exist."""
    namespace: Name | None = None
    """Namespace of a LocalQueue."""


class LimitSubjectSpec(ObjectPart):
    """Whose workloads count together."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.kind in ['User', 'Account']) == has(self.name)",
                "is required for User and Account, and not allowed for other kinds",
                fieldPath=".name",
            ),
            rule(
                "(self.kind in ['Account', 'EachAccount']) == has(self.key)",
                "is required for Account and EachAccount, and not allowed for other kinds",
                fieldPath=".key",
            ),
        )
    )

    kind: Literal["User", "EachUser", "Account", "EachAccount", "All"]
    """User: one user. EachUser: each user alone, except those that a limit of kind User names at the same
    target. Account and EachAccount: the same by the values of an account key. All: all workloads together."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """The user that created the workload, as Kubernetes names it, or a value of the account key."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    """Name of an account key of the configuration."""


class FlavorLimitSpec(ObjectPart):
    """Limits in one flavor."""

    name: Name
    """Name of a ResourceFlavor."""
    resources: Quantities
    """By resource, the most that the workloads of one subject may hold in this flavor together."""


class UsageLimitSpec(ObjectPart):
    """What a limit applies to, and what it allows."""

    target: LimitTargetSpec
    """The object whose workloads count."""
    subject: LimitSubjectSpec
    """Whose workloads count together."""
    running: Workloads | None = None
    """How many workloads of one subject may hold quota at a time. Unset: any number."""
    pending: Workloads | None = None
    """How many eligible workloads of one subject may be in pending queues: those that arrived later wait
    outside. Unset: any number."""
    resources: Quantities = Field(default_factory=dict)
    """By resource, the most that the workloads of one subject may hold in all flavors together."""
    flavors: Annotated[
        tuple[FlavorLimitSpec, ...], Field(max_length=MAX_FLAVORS, json_schema_extra=by_key("name"))
    ] = ()
    """The same in single flavors. A workload waits for the flavor that it would get."""
    min_request: Quantities = Field(default_factory=dict)
    """By resource, the least that each workload must request."""


class UsageLimitObject(ObjectPart):
    """How much each user or account, or all together, may use of a queue, beside its quota. A workload above
    a limit waits, and others are admitted before it; nothing is evicted."""

    spec: UsageLimitSpec
    """What it applies to, and what it allows."""
