"""From objects of dynamic resource allocation, as raw JSON, to devices and claims of the core (M16 to M18).

The CEL expressions of a class select its devices. A device counts as the resource of the first class in the
configuration that selects it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from queuectl.core.model.devices import (
    Device,
    DeviceRequest,
    DeviceTaintRule,
    PodClaim,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.resources import CPU, BadQuantity, parse_quantity
from queuectl.kinds.cel import DEVICE, INTEGERS, BadExpression, check, first_selecting
from queuectl.kinds.json_fields import (
    BadField,
    Json,
    checked,
    clean,
    integer,
    mapping,
    namespaced_name,
    object_name,
    objects,
    shown,
    text,
)

GROUP: Final = "resource.k8s.io"
MAX_DEVICES: Final = 128
MAX_SELECTORS: Final = 32
MAX_TAINTS: Final = 16
MAX_ATTRIBUTES: Final = 64
MAX_COUNTERS: Final = 32
MAX_GENERATION: Final = 2**63 - 1


class DeviceSlices:
    """The slices and classes that are known. A change of a class may change the values of all slices.

    To read thousands of slices again takes seconds: `again` reads some at a time.
    """

    def __init__(self, classes: Iterable[tuple[str, str]]) -> None:
        """`classes`: (DeviceClass, resource that its devices are charged as) pairs."""
        self._resources = dict(classes)
        self._selectors: dict[str, tuple[str, ...]] = {}
        """Expressions of the classes that can be evaluated."""
        self._specs: dict[str, bytes] = {}
        """Of slices, compressed: the devices of a node are much alike."""
        self._outdated: dict[str, None] = {}
        """Slices that were read before a class changed."""
        self.problems: dict[str, str] = {}
        """Why a class selects no devices."""

    def observe_class(self, obj: Json) -> None:
        """Raises BadField for one without a name."""
        name = object_name(obj)
        if name not in self._resources:
            return
        before = self._selectors.get(name)
        self._selectors.pop(name, None)
        self.problems.pop(name, None)
        try:
            self._selectors[name] = _expressions(obj)
        except (BadField, BadExpression) as problem:
            self.problems[name] = str(problem)
        if self._selectors.get(name) != before:
            self._outdated = dict.fromkeys(self._specs)

    def forget_class(self, name: str) -> None:
        self.problems.pop(name, None)
        if self._selectors.pop(name, None) is not None:
            self._outdated = dict.fromkeys(self._specs)

    def observe_slice(self, obj: Json) -> ContextObserved | None:
        """None if it is malformed."""
        try:
            name, spec = object_name(obj), mapping(obj, "spec", "")
            value = self._value(name, spec)
        except BadField:
            return None
        self._specs[name] = zlib.compress(json.dumps(spec).encode(), level=1)
        self._outdated.pop(name, None)
        return ContextObserved(value)

    def forget_slice(self, name: str) -> ContextGone:
        self._specs.pop(name, None)
        self._outdated.pop(name, None)
        return ContextGone(ResourceSlice, name)

    def again(self, most: int) -> list[ContextObserved | ContextGone]:
        """Read up to `most` slices again that were read before a class changed; empty: none is left."""
        names = list(islice(self._outdated, most))
        for name in names:
            del self._outdated[name]
        return [self._again(name) for name in names]

    def _again(self, name: str) -> ContextObserved | ContextGone:
        try:
            return ContextObserved(self._value(name, json.loads(zlib.decompress(self._specs[name]))))
        except BadField:  # a device that no class selected before is malformed
            return ContextGone(ResourceSlice, name)

    def _value(self, name: str, spec: Json) -> ResourceSlice:
        """Raises BadField."""
        pool = mapping(spec, "pool", "spec")
        return ResourceSlice(
            name=name,
            driver=checked(spec.get("driver"), "spec.driver"),
            pool=checked(pool.get("name"), "spec.pool.name"),
            generation=integer(pool, "generation", "spec.pool", default=0, high=MAX_GENERATION),
            devices=tuple(self._devices(spec)),
            counters=tuple(_counters(spec, "sharedCounters", "name", "spec")),
        )

    def _devices(self, spec: Json) -> Iterator[Device]:
        each = spec.get("perDeviceNodeSelection") is True
        for index, one in enumerate(objects(spec, "devices", "spec", MAX_DEVICES)):
            path = f"spec.devices[{index}]"
            resource = self._resource(_selectable(one, checked(spec.get("driver"), "spec.driver"), path))
            if resource is None:
                continue
            yield Device(
                name=checked(one.get("name"), f"{path}.name"),
                resource=resource,
                node=text(one if each else spec, "nodeName", path),
                taints=tuple(_taint(taint, path) for taint in objects(one, "taints", path, MAX_TAINTS)),
                consumes=tuple(_counters(one, "consumesCounters", "counterSet", path)),
            )

    def _resource(self, device: Json) -> str | None:
        """Return what a device is charged as; None: no class selects it."""
        known = [name for name in self._resources if name in self._selectors]
        place = first_selecting((self._selectors[name] for name in known), device) if known else None
        return self._resources[known[place]] if place is not None else None


def device_taint_rule(obj: Json) -> ContextObserved | None:
    """None if it is malformed."""
    try:
        spec = mapping(obj, "spec", "")
        selector, path = mapping(spec, "deviceSelector", "spec"), "spec.deviceSelector"
        key, effect = _taint(mapping(spec, "taint", "spec"), "spec.taint")
        return ContextObserved(
            DeviceTaintRule(
                name=object_name(obj),
                key=key,
                effect=effect,
                driver=text(selector, "driver", path),
                pool=text(selector, "pool", path),
                device=text(selector, "device", path),
            )
        )
    except BadField:
        return None


def _expressions(obj: Json) -> tuple[str, ...]:
    """Raises BadField, BadExpression."""
    selectors = objects(mapping(obj, "spec", ""), "selectors", "spec", MAX_SELECTORS)
    found = []
    for index, one in enumerate(selectors):
        expression = mapping(one, "cel", f"spec.selectors[{index}]").get("expression")
        if not isinstance(expression, str):
            raise BadField(f"spec.selectors[{index}].cel.expression", f"{shown(expression)} is not text")
        try:
            check(expression, DEVICE)
        except BadExpression as error:
            raise BadExpression(f"spec.selectors[{index}].cel.expression: {error}") from None
        found.append(expression)
    return tuple(found)


def _selectable(device: Json, driver: str, path: str) -> Json:
    """Return a device as selectors see it: a name without a domain is of its driver. Raises BadField."""
    attributes: dict[str, dict[str, str | int]] = {driver: {}}
    for name, typed in list(mapping(device, "attributes", path).items())[:MAX_ATTRIBUTES]:
        value = next(iter(typed.values()), None) if isinstance(typed, Mapping) else None
        # One of another type, such as a list, is left out: what asks for it has no answer.
        if isinstance(value, str) or (isinstance(value, int) and value in INTEGERS):
            domain, _, own = name.rpartition("/")
            attributes.setdefault(domain or driver, {})[own] = value
    return {
        "driver": driver,
        "attributes": attributes,
        "allowMultipleAllocations": device.get("allowMultipleAllocations") is True,
    }


def _taint(taint: Json, path: str) -> tuple[str, str]:
    return checked(taint.get("key"), f"{path}.key"), checked(taint.get("effect"), f"{path}.effect")


def _counters(parent: Json, field: str, name: str, path: str) -> Iterator[tuple[str, str, int]]:
    """Yield (counter set, counter, amount in thousandths) tuples. Raises BadField."""
    for index, one in enumerate(objects(parent, field, path, MAX_COUNTERS)):
        where = f"{path}.{field}[{index}]"
        counter_set = checked(one.get(name), f"{where}.{name}")
        counters = mapping(one, "counters", where)
        for counter in sorted(counters)[:MAX_COUNTERS]:
            value = mapping(counters, counter, f"{where}.counters").get("value")
            try:
                amount = parse_quantity(value, CPU) if isinstance(value, str | int | float) else None
            except BadQuantity as error:
                raise BadField(f"{where}.counters.{counter}.value", str(error)) from None
            if amount is None:
                raise BadField(f"{where}.counters.{counter}.value", f"{shown(value)} is no quantity")
            yield counter_set, counter, amount


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
    return ResourceClaim(namespaced_name(obj), tuple(_requests(mapping(obj, "spec", ""), "spec")), generated)


def resource_claim_template(obj: Json) -> ResourceClaimTemplate:
    """Raises BadField."""
    spec = mapping(mapping(obj, "spec", ""), "spec", "spec")
    return ResourceClaimTemplate(namespaced_name(obj), tuple(_requests(spec, "spec.spec")))


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
