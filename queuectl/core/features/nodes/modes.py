"""What the nodes of a flavor limit: the mode of each flavor and resource (M2)."""

from __future__ import annotations

from queuectl.core.model.policy import CapacityMode, FlavorNodes


def is_device(resource: str) -> bool:
    """Return whether a resource is an extended one, such as `nvidia.com/gpu`: pods take whole units of it."""
    return "/" in resource


def mode_of(rules: FlavorNodes, resource: str, *, offered: bool) -> CapacityMode:
    """Return the mode of one resource. `offered`: nodes of the flavor have some of it (M2)."""
    for name, mode in rules.modes:
        if name == resource:
            return mode
    if rules.mode is not None:
        return rules.mode
    return CapacityMode.ENFORCE if is_device(resource) and offered else CapacityMode.OBSERVE


def limited_by_spec(rules: FlavorNodes) -> bool:
    """Return whether the spec of a flavor has the mode Enforce, for all its resources or for one."""
    return CapacityMode.ENFORCE in (rules.mode, *(mode for _, mode in rules.modes))
