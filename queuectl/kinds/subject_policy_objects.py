"""The policy kinds UsageLimit, Budget and IdlePolicy as the API server stores them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, StringConstraints, WithJsonSchema

from queuectl.kinds.policy_schema import (
    AMOUNTS,
    ATOMIC,
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


def _bounded(time: datetime) -> datetime:
    """Run times are added to it, and zones."""
    if not 1970 <= time.year <= 9000:
        raise ValueError("must be in the years 1970 to 9000")
    return time


Time = Annotated[
    AwareDatetime,
    AfterValidator(_bounded),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 64}),
]
Percent = Annotated[int, Field(ge=0, le=100)]


class BudgetPeriodSpec(ObjectPart):
    """When the hours begin anew."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                rule(
                    f"(self.kind == 'Dates') == has(self.{name})",
                    "is required for Dates, and not allowed for other kinds",
                    fieldPath=f".{name}",
                )
                for name in ("begins", "ends")
            ),
            rule(
                "self.kind != 'Dates' || !has(self.timeZone)",
                "is not allowed for Dates, which have their own",
                fieldPath=".timeZone",
            ),
            rule(
                "!has(self.begins) || !has(self.ends) || self.begins < self.ends",
                "must be later than begins",
                fieldPath=".ends",
            ),
        )
    )

    kind: Literal["Month", "Week", "Dates"]
    """Month: with each month. Week: with each Monday. Dates: never, there is one period."""
    time_zone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    """Time zone in which months and weeks begin, such as `Europe/Berlin`. Unset: UTC."""
    begins: Time | None = None
    """Of Dates: nothing is admitted before."""
    ends: Time | None = None
    """Of Dates: nothing is admitted after, nor by a Safe budget what may run beyond."""


class BudgetRefundSpec(ObjectPart):
    """What of the hours that an attempt has used is given back, in percent."""

    preempted: Percent = 0
    """Of an attempt that was preempted."""
    node_failures: Percent = 100
    """Of an attempt that was evicted because its pods failed with a node."""


class BudgetGrantSpec(ObjectPart):
    """Hours that were granted by hand, beside those of the Budget."""

    hours: Quantity
    """How many hours of one unit of the resource."""
    at: Time
    """A time in the period that they are for."""
    subject: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """The user, or the value of the account key, that gets them. Unset: each."""
    workload: Annotated[str, StringConstraints(min_length=1, max_length=600)] | None = None
    """Of a refund: the workload, as NAMESPACE/KIND/NAME, whose hours are given back."""
    reason: Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$", max_length=500)]
    """Why."""


class BudgetSpec(ObjectPart):
    """What a budget applies to, and how much it allows."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.onExhausted == 'LowerClass') == has(self.lowerClass)",
                "is required for onExhausted LowerClass, and not allowed with others",
                fieldPath=".lowerClass",
            )
        )
    )

    target: LimitTargetSpec
    """The object whose workloads count."""
    subject: LimitSubjectSpec
    """Whose workloads count together."""
    resource: ResourceName
    """The resource whose hours count, in all flavors."""
    hours: Quantity
    """How many hours of one unit of the resource each subject may use in each period. A workload with 8 GPUs
    uses 8 in an hour."""
    period: BudgetPeriodSpec
    """When the hours begin anew."""
    mode: Literal["Safe", "Metered"]
    """Safe: an admission needs a run time limit, and reserves all that it may use: the hours are never
    exceeded. Metered: it needs one hour in advance; what runs goes on when no hours are left."""
    refunds: BudgetRefundSpec = Field(default_factory=BudgetRefundSpec)
    """What is given back of an attempt that did not end by itself."""
    grants: Annotated[tuple[BudgetGrantSpec, ...], Field(max_length=256, json_schema_extra=ATOMIC)] = ()
    """What was granted by hand, each for one period. Who changes it needs the RBAC verb `grant` on budgets.
    The ledger keeps each version with its author."""
    on_exhausted: Literal["Wait", "LowerClass", "Refuse"] = "Wait"
    """What is done with a workload for which too few hours are left. Wait: it waits until enough are left.
    LowerClass: until then it is queued, admitted and preempted at the priority of lowerClass, and what is
    admitted so is not charged. Refuse: if too few were left when it was created, it is not queued until its
    user holds and releases it; others wait."""
    lower_class: Name | None = None
    """Of LowerClass: name of a WorkloadPriorityClass. Without it workloads wait; it raises no priority."""


class BudgetObject(ObjectPart):
    """How many hours of a resource each user or account, or all together, may use in a period. A workload for
    which too few are left waits, unless onExhausted says otherwise; nothing is preempted."""

    spec: BudgetSpec
    """What it applies to, and how much it allows."""


LEAST_SECONDS: Final = 600
"""A verdict has lasted for a window of samples before it is one."""
LEAST_NOTICE: Final = 300
"""Seconds between a notice and what it announces."""
MOST_SECONDS: Final = 90 * 24 * 3600
AFTER_NOTICE: Final = ("holdAfterSeconds", "cancelAfterSeconds", "lowerAfterSeconds")
IdleSeconds = Annotated[int, Field(ge=LEAST_SECONDS, le=MOST_SECONDS)]


class IdleTargetSpec(LimitTargetSpec):
    """The object whose admitted workloads the policy is for."""


class IdlePolicySpec(ObjectPart):
    """Which workloads it is for, and what is done when their devices are idle or hang. Time counts while the
    verdict is Idle or Hang; while it is Unknown, time stands still and nothing is done."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                rule(
                    f"!has(self.{name}) || self.{name} >= self.notifyAfterSeconds + {LEAST_NOTICE}",
                    f"must be at least {LEAST_NOTICE} more than notifyAfterSeconds",
                    fieldPath=f".{name}",
                )
                for name in AFTER_NOTICE
            ),
            rule(
                "!has(self.holdAfterSeconds) || !has(self.cancelAfterSeconds)",
                "is not allowed with holdAfterSeconds",
                fieldPath=".cancelAfterSeconds",
            ),
            rule(
                "has(self.lowerAfterSeconds) == has(self.lowerClass)",
                "is required with lowerAfterSeconds, and not allowed without",
                fieldPath=".lowerClass",
            ),
        )
    )

    target: IdleTargetSpec
    """The object whose admitted workloads it is for. Of several policies for a workload, the first by name
    counts."""
    notify_after_seconds: IdleSeconds = 3600
    """Idle seconds after which the user is told, by an Event and a notification, and preemption chooses the
    workload before other candidates."""
    hold_after_seconds: IdleSeconds | None = None
    """Idle seconds after which the workload is stopped and held until its user queues it again, not before
    the time that the notice said. Unset: it is not held."""
    cancel_after_seconds: IdleSeconds | None = None
    """The same, and then it is over: its object stays suspended until it is deleted. Unset: it goes on."""
    lower_after_seconds: IdleSeconds | None = None
    """Idle seconds after which the workload has the priority of lowerClass until its devices work, not before
    the time that the notice said. Unset: it keeps its own."""
    lower_class: Name | None = None
    """Name of a WorkloadPriorityClass. While it does not exist, nothing is lowered; it raises no priority."""
    dry_run: Annotated[bool, Field(strict=True)] = True
    """Record what would be done, and do nothing."""


class IdlePolicyObject(ObjectPart):
    """What is done about admitted workloads whose GPUs do nothing: their users are told, then priorities are
    lowered, or workloads held or cancelled. By default only what would be done is recorded."""

    spec: IdlePolicySpec
    """Which workloads it is for, and what is done."""
