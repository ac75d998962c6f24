"""Parts of section `scheduling` of the component configuration: resource forms and node rules (M3, M5)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from queuectl.core.model.policy import NODE_RULES, NodeRules
from queuectl.core.model.resources import PODS, BadQuantity, ResourceForms, Transformation, parse_quantity
from queuectl.kinds.invalid import Section

MAX_RULES: Final = 256
MAX_OUTPUTS: Final = 64

ResourceName = Annotated[str, Field(min_length=1, max_length=317, pattern=r"^[A-Za-z0-9]([A-Za-z0-9./_-]*)$")]


class ResourceTransformation(Section):
    input: ResourceName
    strategy: Literal["Retain", "Replace"] = "Retain"
    """`Retain`: the input is charged beside its outputs; `Replace`: the outputs are charged instead."""
    multiply_by: ResourceName | None = None
    """Another requested resource, whose amount multiplies the outputs. Where it is not requested: by 1."""
    outputs: dict[ResourceName, str | int | float] = Field(default={}, max_length=MAX_OUTPUTS)
    """Quantity of each resource that is charged for one core, byte or device of the input."""

    @model_validator(mode="after")
    def _exact(self) -> ResourceTransformation:
        for name in (self.input, self.multiply_by, *self.outputs):
            if name == PODS:
                raise ValueError(f"{PODS} is counted by itself: it can't be transformed")
        for output, quantity in self.outputs.items():
            _factor(output, quantity)
        return self

    def value(self) -> Transformation:
        return Transformation(
            input=self.input,
            replace=self.strategy == "Replace",
            multiply_by=self.multiply_by,
            outputs=tuple(sorted((name, _factor(name, found)) for name, found in self.outputs.items())),
        )


def _factor(output: str, quantity: str | int | float) -> int:
    """In base units of `output`. Raises ValueError."""
    try:
        factor = parse_quantity(quantity, output, exact=True)
    except BadQuantity as error:
        raise ValueError(f"outputs.{output}: {error}") from None
    if factor <= 0:
        raise ValueError(f"outputs.{output}: must be more than 0, not {quantity}")
    return factor


class DeviceClassMapping(Section):
    name: ResourceName
    """The resource that devices of these classes are charged as."""
    device_class_names: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        min_length=1, max_length=MAX_RULES, strict=False
    )


class ResourceSettings(Section):
    exclude_resource_prefixes: tuple[Annotated[str, Field(min_length=1, max_length=317)], ...] = Field(
        default=(), max_length=MAX_RULES, strict=False
    )
    """Resources whose names start with one of them are not charged."""
    transformations: tuple[ResourceTransformation, ...] = Field(
        default=(), max_length=MAX_RULES, strict=False
    )
    """Resources that are charged as others."""
    device_class_mappings: tuple[DeviceClassMapping, ...] = Field(
        default=(), max_length=MAX_RULES, strict=False
    )
    """What the devices of claims are charged as. Without one, workloads with claims are not admitted."""
    uncovered: Literal["Refuse", "Ignore"] = "Refuse"
    """A workload that requests a resource which its ClusterQueue does not cover is not admitted (Refuse), or
    admitted without a charge for that resource (Ignore)."""

    @model_validator(mode="after")
    def _each_class_once(self) -> ResourceSettings:
        classes: dict[str, int] = {}
        for number, mapping in enumerate(self.device_class_mappings):
            if mapping.name == PODS:
                raise ValueError(f"deviceClassMappings.{number}.name: {PODS} is counted by itself")
            for name in mapping.device_class_names:
                if (first := classes.setdefault(name, number)) != number:
                    field = f"deviceClassMappings.{number}.deviceClassNames"
                    raise ValueError(f"{field}: {name} is in deviceClassMappings.{first} too")
        return self

    @model_validator(mode="after")
    def _one_rule_for_each_resource(self) -> ResourceSettings:
        inputs: dict[str, int] = {}
        for number, rule in enumerate(self.transformations):
            field = f"transformations.{number}.input"
            if (first := inputs.setdefault(rule.input, number)) != number:
                raise ValueError(f"{field}: {rule.input} is the input of transformations.{first} too")
            if rule.input.startswith(self.exclude_resource_prefixes):
                raise ValueError(f"{field}: {rule.input} is excluded by excludeResourcePrefixes")
        return self

    def forms(self) -> ResourceForms:
        """As the core's type."""
        return ResourceForms(
            excluded_prefixes=self.exclude_resource_prefixes,
            transformations=tuple(rule.value() for rule in self.transformations),
            device_classes=tuple(
                (name, mapping.name)
                for mapping in self.device_class_mappings
                for name in mapping.device_class_names
            ),
            ignore_uncovered=self.uncovered == "Ignore",
        )


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
