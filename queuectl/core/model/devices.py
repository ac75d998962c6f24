"""Devices that drivers of dynamic resource allocation publish, as values."""

from __future__ import annotations

from typing import Final

from queuectl.core.model.values import value

MAPPINGS: Final = "scheduling.resources.deviceClassMappings of the configuration"
"""The setting that says what devices of a DeviceClass are charged as (H10)."""


@value(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of which one is charged as a resource."""

    name: str
    """Unique in its pool."""
    resource: str
    """What one of it is charged as (H10)."""
    node: str | None = None
    """The only node that it is available on; None: it is not local to one node."""
    taints: tuple[tuple[str, str], ...] = ()
    """(key, effect) pairs."""
    consumes: tuple[tuple[str, str, int], ...] = ()
    """(counter set, counter, amount in thousandths): what it takes of the counters of its pool."""


@value(frozen=True, slots=True, kw_only=True)
class ResourceSlice:
    """A part of the devices of one pool."""

    name: str
    driver: str
    pool: str
    generation: int = 1
    """Only the slices of the newest generation of a pool count."""
    devices: tuple[Device, ...] = ()
    """Those that are charged as some resource."""
    counters: tuple[tuple[str, str, int], ...] = ()
    """(counter set, counter, amount in thousandths): what the devices of the pool share."""


@value(frozen=True, slots=True, kw_only=True)
class DeviceTaintRule:
    """A taint of all devices that it selects."""

    name: str
    key: str
    effect: str
    driver: str | None = None
    """None, here and in the next two: any."""
    pool: str | None = None
    device: str | None = None


@value(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim. Several alternatives: the scheduler allocates one of them."""

    path: str
    alternatives: tuple[tuple[str, int], ...] = ()
    """(DeviceClass, number of devices) pairs."""
    problem: str | None = None
    """Why the number of devices is not known."""
    admin: bool = False
    """With `adminAccess`: it shares devices that others hold, and takes none from them."""


@value(frozen=True, slots=True)
class PodClaim:
    """An entry of `spec.resourceClaims` of a pod."""

    path: str
    name: str
    """Of an object in the pod's namespace."""
    template: bool
    """Each pod gets a claim of its own from a ResourceClaimTemplate; else the pods share a ResourceClaim."""
    requests: tuple[DeviceRequest, ...] | None = None
    """The requests of that object, as the ledger has them with the podsets. None: the ledger does not have
    them, or the claim was read from a manifest."""


@value(frozen=True, slots=True)
class ResourceClaimTemplate:
    name: str
    """`NAMESPACE/NAME`."""
    requests: tuple[DeviceRequest, ...] = ()


@value(frozen=True, slots=True)
class ResourceClaim:
    name: str
    """`NAMESPACE/NAME`."""
    requests: tuple[DeviceRequest, ...] = ()
    generated: bool = False
    """Kubernetes made it from a template for one pod: no other pod may name it."""
