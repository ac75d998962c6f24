"""Section `scheduling`: parameters of decisions that are not in policy objects."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from queuectl.core.model import policy
from queuectl.core.model.resources import CPU, BadQuantity, format_amount, parse_quantity
from queuectl.kinds.invalid import Section
from queuectl.kinds.json_fields import kind_of
from queuectl.kinds.scheduling_sections import NodeSettings, ResourceSettings

DAY: Final = 86_400
_YEAR: Final = 365 * DAY
_MAX_WEIGHT: Final = 1_000_000


class FairSharingSettings(Section):
    enabled: bool = False
    """Default for cohort trees: the root cohort may say otherwise."""
    preemption_strategies: tuple[Annotated[policy.PreemptionStrategy, Field(strict=False)], ...] = Field(
        default=policy.STRATEGIES, strict=False
    )

    @field_validator("preemption_strategies")
    @classmethod
    def _in_order(cls, value: tuple[policy.PreemptionStrategy, ...]) -> tuple[policy.PreemptionStrategy, ...]:
        if value != policy.STRATEGIES and len(value) != 1:
            first, second = policy.STRATEGIES
            raise ValueError(f"must be one of {first} and {second}, or both in this order")
        return value


def parse_weight(value: object) -> int:
    """A weight in thousandths, rounded up, from a number or a quantity such as 500m. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a number, not {kind_of(value)}")
    try:
        weight = parse_quantity(value, CPU)
    except BadQuantity as error:
        raise ValueError(str(error)) from None
    if not 0 <= weight <= _MAX_WEIGHT * 1000:
        raise ValueError(f"must be between 0 and {_MAX_WEIGHT}, not {value}")
    return weight


Weight = Annotated[
    int,
    BeforeValidator(parse_weight),
    PlainSerializer(lambda weight: format_amount(CPU, weight), when_used="json"),
]


class AdmissionFairSharingSettings(Section):
    usage_half_life_seconds: int = Field(ge=0, le=10 * _YEAR)
    """0: past usage does not count."""
    usage_sampling_interval_seconds: int = Field(default=300, ge=1, le=DAY)
    """An admission counts as if it had run for this long at least."""
    resource_weights: dict[Annotated[str, Field(min_length=1, max_length=317)], Weight] = Field(
        default={}, max_length=256
    )
    """Of one core, byte or device; 1 for those not named."""


class WaitForPodsReadySettings(Section):
    timeout_seconds: int | None = Field(default=None, ge=1, le=30 * DAY)
    """From its start until all its pods are ready; none: no limit."""
    requeuing_backoff_base_seconds: int = Field(default=60, ge=1, le=DAY)
    requeuing_backoff_max_seconds: int = Field(default=3600, ge=1, le=30 * DAY)
    requeuing_backoff_limit_count: int | None = Field(default=None, ge=0, le=1_000_000)
    """Consecutive evictions for pods that were not ready after which it is deactivated; none: never."""
    requeuing_timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Its place in the pending queue after its pause: by the end of the pause, or by its creation."""

    @model_validator(mode="after")
    def _base_within_max(self) -> WaitForPodsReadySettings:
        base, most = self.requeuing_backoff_base_seconds, self.requeuing_backoff_max_seconds
        if base > most:
            raise ValueError(
                f"requeuingBackoffBaseSeconds is {base}, must be at most requeuingBackoffMaxSeconds, {most}"
            )
        return self


class PreemptionSettings(Section):
    eviction_budget: int = Field(default=8, ge=1, le=16)
    """Preemptions of one workload within the window; after so many it is protected for that long."""
    eviction_window_seconds: int = Field(default=3600, ge=1, le=7 * DAY)
    cooldown_seconds: int = Field(default=10, ge=0, le=DAY)
    """A workload that was preempted before is not preempted again so soon after its start."""


class SchedulingSettings(Section):
    """Parameters of decisions that are not in policy objects."""

    fair_sharing: FairSharingSettings = FairSharingSettings()
    admission_fair_sharing: AdmissionFairSharingSettings | None = None
    """None: past usage orders no LocalQueues, whatever their ClusterQueue says."""
    wait_for_pods_ready: WaitForPodsReadySettings = WaitForPodsReadySettings()
    preemption: PreemptionSettings = PreemptionSettings()
    resources: ResourceSettings = ResourceSettings()
    nodes: NodeSettings = NodeSettings()
    terminating_alarm_seconds: int = Field(default=600, ge=1, le=30 * DAY)
    """How long the pods of an evicted workload may take to end until an Event and a metric say so."""

    def configuration(self) -> policy.SchedulingConfiguration:
        """As the core's type."""
        usage, waiting, preemption = (
            self.admission_fair_sharing,
            self.wait_for_pods_ready,
            self.preemption,
        )
        return policy.SchedulingConfiguration(
            fair_sharing=self.fair_sharing.enabled,
            strategies=self.fair_sharing.preemption_strategies,
            usage_sharing=policy.AdmissionFairSharing(
                half_life=usage.usage_half_life_seconds,
                sampling_interval=usage.usage_sampling_interval_seconds,
                weights=tuple(sorted(usage.resource_weights.items())),
            )
            if usage is not None
            else None,
            pods_ready_timeout=waiting.timeout_seconds,
            requeueing=policy.RequeuingStrategy(
                base_seconds=waiting.requeuing_backoff_base_seconds,
                most_seconds=waiting.requeuing_backoff_max_seconds,
                limit=waiting.requeuing_backoff_limit_count,
                loses_place=waiting.requeuing_timestamp == "Eviction",
            ),
            eviction_budget=preemption.eviction_budget,
            eviction_window=preemption.eviction_window_seconds,
            cooldown=preemption.cooldown_seconds,
            resources=self.resources.forms(),
            terminating_alarm=self.terminating_alarm_seconds,
            nodes=self.nodes.rules(),
        )
