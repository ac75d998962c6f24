"""Claims of dynamic resource allocation, as values: which devices they ask for, by DeviceClass."""

from __future__ import annotations

from queuectl.core.model.values import value


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
