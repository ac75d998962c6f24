"""Section `scheduling.resources` of the component configuration: in which forms resources are charged.

The words are those of Kueue's `resources`. Policy tests have the same section in their `config`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from queuectl.core.charging import ResourceForms, Transformation
from queuectl.core.resources import PODS, BadQuantity, parse_quantity
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
        )
