"""The policy kind IdlePolicy as the API server stores it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from queuectl.kinds.policy_schema import Name, ObjectPart, rule, rules
from queuectl.kinds.usage_limit_objects import LimitTargetSpec

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
