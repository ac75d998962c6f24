"""From the claims of a pod, ResourceClaims and ResourceClaimTemplates, as raw JSON, to values of the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queuectl.core.model.devices import DeviceRequest, PodClaim, ResourceClaim, ResourceClaimTemplate
from queuectl.kinds.json_fields import BadField, Json, checked, clean, integer, mapping, objects, text

GENERATED: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of ResourceClaims that Kubernetes makes from a template for one pod."""
MAX_CLAIMS: Final = 1000
MAX_REQUESTS: Final = 32


def pod_claims(pod: Json, path: str) -> tuple[PodClaim, ...]:
    """The claims in the spec of a pod. Raises BadField."""
    return tuple(_pod_claims(pod, path))


def _pod_claims(pod: Json, path: str) -> Iterator[PodClaim]:
    for index, one in enumerate(objects(pod, "resourceClaims", path, MAX_CLAIMS)):
        where = f"{path}.resourceClaims[{index}]"
        template = text(one, "resourceClaimTemplateName", where)
        name = template or text(one, "resourceClaimName", where)
        if name is None:
            raise BadField(where, "neither resourceClaimName nor resourceClaimTemplateName is set")
        yield PodClaim(where, name, template=template is not None)


def held_claims(pod: Json) -> tuple[PodClaim, ...]:
    """The claims of a pod that exists. Raises BadField.

    Where its status names the ResourceClaim that Kubernetes made from a template for it, this is its claim:
    the template may be deleted or replaced by now.
    """
    found = pod_claims(mapping(pod, "spec", ""), "spec")
    listed = objects(mapping(pod, "status", ""), "resourceClaimStatuses", "status", MAX_CLAIMS)
    made = {one.get("name"): one.get("resourceClaimName") for one in listed}
    if not made:
        return found
    names = (
        one.get("name") for one in objects(mapping(pod, "spec", ""), "resourceClaims", "spec", MAX_CLAIMS)
    )
    return tuple(
        PodClaim(claim.path, clean(str(made[name]), 512), template=False)
        if claim.template and made.get(name)
        else claim
        for claim, name in zip(found, names, strict=True)
    )


def resource_claim(obj: Json) -> ResourceClaim:
    """Raises BadField."""
    generated = GENERATED in mapping(mapping(obj, "metadata", ""), "annotations", "metadata")
    return ResourceClaim(_name(obj), tuple(_requests(mapping(obj, "spec", ""), "spec")), generated)


def resource_claim_template(obj: Json) -> ResourceClaimTemplate:
    """Raises BadField."""
    spec = mapping(mapping(obj, "spec", ""), "spec", "spec")
    return ResourceClaimTemplate(_name(obj), tuple(_requests(spec, "spec.spec")))


def _requests(spec: Json, path: str) -> Iterator[DeviceRequest]:
    devices, path = mapping(spec, "devices", path), f"{path}.devices"
    for index, one in enumerate(objects(devices, "requests", path, MAX_REQUESTS)):
        yield _request(one, f"{path}.requests[{index}]")


def _request(one: Json, path: str) -> DeviceRequest:
    exactly = mapping(one, "exactly", path)
    found = (exactly,) if exactly else objects(one, "firstAvailable", path, MAX_REQUESTS)
    path = f"{path}.{'exactly' if exactly else 'firstAvailable'}"
    if not found:
        return DeviceRequest(path, problem="it asks for nothing that is known")
    if exactly.get("adminAccess") is True:
        return DeviceRequest(path, admin=True)
    if any(part.get("allocationMode") not in (None, "ExactCount") for part in found):
        mode = next(part["allocationMode"] for part in found if part.get("allocationMode") != "ExactCount")
        return DeviceRequest(path, problem=f"allocationMode {checked(mode, path)} has no fixed count")
    return DeviceRequest(path, tuple(_alternative(part, path) for part in found))


def _alternative(part: Json, path: str) -> tuple[str, int]:
    name = checked(part.get("deviceClassName"), f"{path}.deviceClassName")
    return name, integer(part, "count", path, default=1, low=1)


def _name(obj: Json) -> str:
    metadata = mapping(obj, "metadata", "")
    return "/".join(checked(metadata.get(key), f"metadata.{key}") for key in ("namespace", "name"))
