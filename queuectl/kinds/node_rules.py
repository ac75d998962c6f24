"""Section `scheduling.nodes` of the component configuration: which nodes count as capacity (M3, M5)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from queuectl.core.policy import NODE_RULES, NodeRules
from queuectl.kinds.invalid import Section

MAX_NAMES: Final = 64

Name = Annotated[str, Field(min_length=1, max_length=317, pattern=r"^[A-Za-z0-9]([A-Za-z0-9./_-]*)$")]


class UnusableCondition(Section):
    type: Name
    status: Literal["True", "False", "Unknown"] = "True"
    """The status of the condition that makes a node unusable."""


class NodeSettings(Section):
    unusable_conditions: tuple[UnusableCondition, ...] = Field(default=(), max_length=MAX_NAMES, strict=False)
    """A node with one of these conditions does not count as capacity."""
    unusable_taints: tuple[Name, ...] = Field(default=(), max_length=MAX_NAMES, strict=False)
    """Keys of taints: a node with one of them does not count, whatever a pod tolerates."""
    settle_seconds: int = Field(default=NODE_RULES.settle_seconds, ge=0, le=86_400)
    """How long a node that was not ready must be ready again before it counts."""
    loss_seconds: int = Field(default=NODE_RULES.loss_seconds, ge=1, le=86_400)
    """How long a node must be not ready until the workloads with pods on it are evicted."""

    stock_out_seconds: int = Field(default=NODE_RULES.stock_out_seconds, ge=0, le=86_400)
    """How long an Elastic flavor is not used whose nodes did not come in time. 0: it is used all the same."""

    @model_validator(mode="after")
    def _each_once(self) -> NodeSettings:
        pairs = tuple(f"{one.type}={one.status}" for one in self.unusable_conditions)
        for field, names in (("unusableConditions", pairs), ("unusableTaints", self.unusable_taints)):
            first: dict[str, int] = {}
            for number, name in enumerate(names):
                if first.setdefault(name, number) != number:
                    raise ValueError(f"{field}.{number}: {name} is {field}.{first[name]} already")
        return self

    def rules(self) -> NodeRules:
        """As the core's type."""
        return NodeRules(
            unusable_conditions=tuple((one.type, one.status) for one in self.unusable_conditions),
            unusable_taints=self.unusable_taints,
            settle_seconds=self.settle_seconds,
            loss_seconds=self.loss_seconds,
            stock_out_seconds=self.stock_out_seconds,
        )
