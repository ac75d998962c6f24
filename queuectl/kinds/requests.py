"""The requests of one pod, computed as the Kubernetes scheduler does.

Containers are summed; init containers run one after another together with the sidecars started before them;
resources of the pod itself replace those of its containers; a limit without a request is a request.
"""

from __future__ import annotations

from typing import Final

from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import (
    MAX_AMOUNT,
    Amounts,
    BadQuantity,
    QuantityOutOfRange,
    amounts,
    format_amount,
    parse_quantity,
)
from queuectl.kinds.fields import BadField, Json, array, checked, clean, mapping, objects

MAX_CONTAINERS: Final = 1000
MAX_RESOURCES: Final = 64
_POD_LEVEL: Final = ("cpu", "memory")


class RequestProblem(Exception):
    """A request that cannot be charged; `reason` names it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


def pod_requests(pod: Json, path: str) -> Amounts:
    """Requests of a pod with spec `pod`, found at `path`, in base units.

    Overhead in the spec is included. Raises RequestProblem or BadField, which name the container.
    """
    total = _containers(pod, path)
    level = mapping(pod, "resources", path)
    if level:
        total |= _pod_level(level, total, f"{path}.resources")
    _add(total, _parsed(mapping(pod, "overhead", path), f"{path}.overhead"))
    for resource, amount in total.items():
        if amount > MAX_AMOUNT:
            raise RequestProblem(
                Reason(
                    code=Code.QUANTITY_OUT_OF_RANGE,
                    resource=resource,
                    detail=f"{path}: its containers together request more than {MAX_AMOUNT} of {resource}",
                )
            )
    return amounts(total)


def not_charged(pod: Json, path: str) -> str | None:
    """Path of a request of the pod that `pod_requests` does not count; None: it counts all. Raises BadField.

    What a resource claim amounts to is known only when its devices are allocated, and a pod as a whole cannot
    request devices.
    """
    if array(pod, "resourceClaims", path, MAX_CONTAINERS):
        return f"{path}.resourceClaims[0]"
    level = mapping(pod, "resources", path)
    for field in ("requests", "limits"):
        for name in mapping(level, field, f"{path}.resources"):
            if not _of_pods(name):
                return clean(f"{path}.resources.{field}.{name}", 300)
    return None


def _containers(pod: Json, path: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for index, container in enumerate(objects(pod, "containers", path, MAX_CONTAINERS)):
        _add(total, _effective(container, f"{path}.containers[{index}]"))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for index, container in enumerate(objects(pod, "initContainers", path, MAX_CONTAINERS)):
        requests = _effective(container, f"{path}.initContainers[{index}]")
        if container.get("restartPolicy") == "Always":
            _add(total, requests)
            _add(sidecars, requests)
            _raise(peak, sidecars)
        else:
            _add(requests, sidecars)
            _raise(peak, requests)
    _raise(total, peak)
    return total


def _pod_level(level: Json, containers: dict[str, int], path: str) -> dict[str, int]:
    """Requests of the pod itself, with the API server's defaults for missing ones."""
    requests = _for_pods(_parsed(mapping(level, "requests", path), f"{path}.requests"))
    limits = _for_pods(_parsed(mapping(level, "limits", path), f"{path}.limits"))
    # Hugepages cannot be overcommitted: the pod's limit counts, whatever its containers request.
    from_containers = {
        name: amount for name, amount in containers.items() if not (_hugepages(name) and name in limits)
    }
    return {
        name: requests.get(name, from_containers.get(name, amount))
        for name, amount in (limits | requests).items()
    }


def _for_pods(found: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in found.items() if _of_pods(name)}


def _of_pods(resource: str) -> bool:
    return resource in _POD_LEVEL or _hugepages(resource)


def _hugepages(resource: str) -> bool:
    return resource.startswith("hugepages-")


def _effective(container: Json, path: str) -> dict[str, int]:
    """Requests of one container; a limit counts for a resource without a request.

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
    return limits | requests


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


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], floor: dict[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
