"""The policy kind Budget as the API server stores it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, StringConstraints, WithJsonSchema

from queuectl.kinds.policy_schema import ATOMIC, Name, ObjectPart, Quantity, ResourceName, rule, rules
from queuectl.kinds.usage_limit_objects import LimitSubjectSpec, LimitTargetSpec


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
