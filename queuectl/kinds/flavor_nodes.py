"""What the nodes of a ResourceFlavor limit: part of its spec."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from queuectl.kinds.policy_schema import ObjectPart, Quantity, ResourceName, divisible, rule, rules

MAX_RESOURCES: Final = 16

Mode = Literal["Static", "Observe", "Enforce", "Elastic"]

_KEYS: Final = rule(
    "self.all(k, size(k) <= 317 && k.matches('^([-a-z0-9.]{1,253}/)?[-A-Za-z0-9_.]{1,63}$'))",
    "keys must be resource names, such as nvidia.com/gpu",
)


def _of_resources(*more: dict[str, str]) -> Any:
    return Field(default_factory=dict, max_length=MAX_RESOURCES, json_schema_extra=rules(_KEYS, *more))


class FlavorNodesModel(ObjectPart):
    """What its nodes limit. By default they limit the devices that they have, such as nvidia.com/gpu: an
    admission needs quota and room for its pods on them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.headroom) || self.headroom.all(k, (has(self.resources) && k in self.resources ? "
                "self.resources[k] : has(self.mode) ? self.mode : k.contains('/') ? 'Enforce' : 'Observe') "
                "== 'Enforce')",
                "is kept for resources with mode Enforce only",
                fieldPath=".headroom",
            )
        )
    )

    mode: Mode | None = None
    """What the nodes mean for all resources of the flavor. Static: nothing, quota alone decides. Observe:
    their capacity is compared with the quota, and limits nothing. Enforce: they limit what is admitted.
    Elastic: they come on demand, so they limit nothing, and what waits is reported as demand. Unset: Enforce
    for devices that some node of the flavor has, Observe for all other resources."""
    resources: dict[ResourceName, Mode] = _of_resources()
    """Other modes of single resources, such as memory: Enforce. The values are those of mode."""
    headroom: dict[ResourceName, Quantity] = _of_resources(
        rule(
            "self.all(k, type(self[k]) == int ? int(self[k]) >= 0 : !self[k].startsWith('-'))",
            "must be at least 0",
        ),
        rule(
            f"self.all(k, {divisible('k')} || type(self[k]) == int || (!self[k].endsWith('m') && "
            "[2, 3, 4, 5, 6, 7].all(i, size(self[k]) < i || self[k].charAt(size(self[k]) - i) != '.')))",
            "must be a whole number: only cpu, memory, ephemeral-storage and hugepages can be divided",
        ),
    )
    """What an admission leaves free on all ready nodes of the flavor together, by resource with mode
    Enforce. Unset: nothing."""
