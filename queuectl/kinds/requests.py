"""The resources of one pod, read from its spec: of each container, and what the scheduler counts in all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import (
    MAX_AMOUNT,
    Amounts,
    BadQuantity,
    Container,
    PodResources,
    QuantityOutOfRange,
    Role,
    format_amount,
    parse_quantity,
    pod_level_requests,
    requested,
)
from queuectl.kinds.json_fields import BadField, Json, array, checked, clean, mapping, objects, text

MAX_CONTAINERS: Final = 1000
MAX_RESOURCES: Final = 64
_MOST_CONTAINERS: Final = 1 << 15
"""A pod of the size that the API server accepts has fewer."""
_POD_LEVEL: Final = ("cpu", "memory")


class RequestProblem(Exception):
    """A request that cannot be charged; `reason` names it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


def pod_requests(pod: Json, path: str) -> Amounts:
    """Requests of a pod with spec `pod`, found at `path`, in base units; its overhead is included.

    Raises RequestProblem or BadField, which name the container.
    """
    return counted(pod_resources(pod, path), path)


def readable_requests(pod: Json) -> Amounts:
    """Requests of a pod with spec `pod`, in base units, of each resource that could be read alone.

    Its cost is linear in the size of `pod`. Nothing, if `pod` has not the shape of a spec.
    """
    try:
        specs = _by_resource(pod)
    except BadField:
        return ()
    found: dict[str, int] = {}
    for resource, spec in specs.items():
        with suppress(RequestProblem, BadField):
            found |= {name: amount for name, amount in pod_requests(spec, "spec") if name == resource}
    return tuple(sorted(found.items()))


def _by_resource(pod: Json) -> dict[str, dict[str, Any]]:
    """Of each resource that is requested, the spec of a pod that requests nothing else. Raises BadField."""
    specs: dict[str, dict[str, Any]] = {}
    for field in ("containers", "initContainers"):
        for container in objects(pod, field, "spec", _MOST_CONTAINERS):
            resources = mapping(container, "resources", "spec")
            amounts = {**mapping(resources, "limits", "spec"), **mapping(resources, "requests", "spec")}
            for name, amount in amounts.items():
                if amount not in ("0", 0):
                    part = {
                        "restartPolicy": container.get("restartPolicy"),
                        "resources": {"requests": {name: amount}},
                    }
                    specs.setdefault(name, {}).setdefault(field, []).append(part)
    level = mapping(mapping(pod, "resources", "spec"), "requests", "spec")
    for name, amount in level.items():
        specs.setdefault(name, {})["resources"] = {"requests": {name: amount}}
    for name, amount in mapping(pod, "overhead", "spec").items():
        specs.setdefault(name, {})["overhead"] = {name: amount}
    return specs


def counted(pod: PodResources, path: str) -> Amounts:
    """What is requested in all. Raises RequestProblem."""
    total = requested(pod)
    for resource, amount in total:
        if amount > MAX_AMOUNT:
            raise RequestProblem(
                Reason(
                    code=Code.QUANTITY_OUT_OF_RANGE,
                    resource=resource,
                    detail=f"{path}: its containers together request more than {MAX_AMOUNT} of {resource}",
                )
            )
    return total


def pod_resources(pod: Json, path: str) -> PodResources:
    """The resources of a pod with spec `pod`, found at `path`, in base units, for each container.

    Equal ones are one object. Raises RequestProblem or BadField, which name the container.
    """
    containers = (*_containers(pod, "containers", path), *_containers(pod, "initContainers", path))
    level = mapping(pod, "resources", path)
    limits = _for_pods(_parsed(mapping(level, "limits", path), f"{path}.resources.limits"))
    requests = _for_pods(_parsed(mapping(level, "requests", path), f"{path}.resources.requests"))
    overhead = _parsed(mapping(pod, "overhead", path), f"{path}.overhead")
    return _shared(
        PodResources(
            containers=containers,
            requests=pod_level_requests(containers, requests, limits),
            limits=tuple(sorted(limits.items())),
            overhead=tuple(sorted(overhead.items())),
            deadline=pod.get("activeDeadlineSeconds") is not None,
            priority_class=text(pod, "priorityClassName", path),
        )
    )


_KNOWN: Final[WeakKeyDictionary[PodResources, ref[PodResources]]] = WeakKeyDictionary()


def _shared(pod: PodResources) -> PodResources:
    """The one object that is equal to `pod`: workloads that are alike share it."""
    known = _KNOWN.setdefault(pod, ref(pod))()
    return pod if known is None else known


def with_init_container(pod: Json, path: str, requests: Json) -> Json:
    """The spec of a pod to which its operator adds an init container with these requests. Raises BadField.

    Of them count those of resources that the pod requests itself: no queue has to cover another one.
    """
    asked: set[str] = set()
    for field in ("containers", "initContainers"):
        for number, container in enumerate(objects(pod, field, path, MAX_CONTAINERS)):
            place = f"{path}.{field}[{number}].resources"
            resources = mapping(container, "resources", place.removesuffix(".resources"))
            asked |= {name for part in ("requests", "limits") for name in mapping(resources, part, place)}
    added = {"resources": {"requests": {name: amount for name, amount in requests.items() if name in asked}}}
    return {**pod, "initContainers": [*array(pod, "initContainers", path, MAX_CONTAINERS), added]}


def not_charged(pod: Json, path: str) -> str | None:
    """Path of a request of the pod that `pod_requests` does not count; None: it counts all. Raises BadField.

    A pod as a whole cannot request devices. Device claims are apart (`kinds/device_claims.py`).
    """
    level = mapping(pod, "resources", path)
    for field in ("requests", "limits"):
        for name in mapping(level, field, f"{path}.resources"):
            if not _of_pods(name):
                return clean(f"{path}.resources.{field}.{name}", 300)
    return None


def _containers(pod: Json, field: str, path: str) -> Iterator[Container]:
    for index, container in enumerate(objects(pod, field, path, MAX_CONTAINERS)):
        where = f"{path}.{field}[{index}]"
        role = Role.CONTAINER
        if field == "initContainers":
            role = Role.SIDECAR if container.get("restartPolicy") == "Always" else Role.INIT
        requests, limits = _effective(container, where)
        name = text(container, "name", where) or f"{field}[{index}]"
        yield Container(name, tuple(sorted(requests.items())), tuple(sorted(limits.items())), role)


def _for_pods(found: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in found.items() if _of_pods(name)}


def _of_pods(resource: str) -> bool:
    return resource in _POD_LEVEL or resource.startswith("hugepages-")


def _effective(container: Json, path: str) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits of one container; a limit counts for a resource without a request.

    A request above its limit is refused, as the API server refuses such pods: the workload would hold quota
    for pods that are never created.
    """
    resources = mapping(container, "resources", path)
    path = f"{path}.resources"
    requests = _parsed(mapping(resources, "requests", path), f"{path}.requests")
    limits = _parsed(mapping(resources, "limits", path), f"{path}.limits")
    for name, amount in requests.items():
        if amount > limits.get(name, amount):
            asked, limit = format_amount(name, amount), format_amount(name, limits[name])
            raise BadField(f"{path}.requests.{name}", f"{asked} is more than its limit {limit}")
    return limits | requests, limits


def _parsed(found: Json, path: str) -> dict[str, int]:
    if len(found) > MAX_RESOURCES:
        raise BadField(path, f"{len(found)} resources, at most {MAX_RESOURCES} are read")
    return {checked(name, path): _amount(value, name, path) for name, value in found.items()}


def _amount(value: object, resource: str, path: str) -> int:
    where = f"{path}.{resource}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadField(where, "not a quantity")
    if isinstance(value, int) and value.bit_length() > 128:
        raise RequestProblem(_out_of_range(resource, where, f"a number of {value.bit_length()} bits"))
    try:
        amount = parse_quantity(value, resource)
    except QuantityOutOfRange as error:
        raise RequestProblem(_out_of_range(resource, where, str(error))) from error
    except BadQuantity as error:
        raise BadField(where, str(error)) from error
    if amount < 0:
        detail = f"{where} is -{format_amount(resource, -amount)}, the minimum is 0"
        reason = Reason(
            code=Code.NEGATIVE_REQUEST, resource=resource, requested=amount, detail=clean(detail, 300)
        )
        raise RequestProblem(reason)
    return amount


def _out_of_range(resource: str, where: str, problem: str) -> Reason:
    return Reason(
        code=Code.QUANTITY_OUT_OF_RANGE, resource=resource, detail=clean(f"{where}: {problem}", 300)
    )
