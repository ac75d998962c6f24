"""What the containers of one pod request and may use, and the totals that the API server computes (H1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from queuectl.core.model.resources import CPU, Amounts, amounts
from queuectl.core.model.values import value

Listed = tuple[tuple[str, int], ...]
"""As Amounts, but with zero amounts: a request of 0 is a request."""


class Role(StrEnum):
    CONTAINER = "Container"
    SIDECAR = "Sidecar"  # an init container that runs as long as the pod
    INIT = "Init"


@value(frozen=True, slots=True)
class Container:
    """A container of a pod, as the API server completes it: a limit without a request is a request."""

    name: str
    requests: Listed
    limits: Listed = ()
    role: Role = Role.CONTAINER


@value(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class PodResources:
    """The resources of one pod of a podset."""

    containers: tuple[Container, ...]
    """Init containers last, each kind in its order."""
    requests: Listed = ()
    """Of the pod itself, instead of those of its containers."""
    limits: Listed = ()
    overhead: Listed = ()
    deadline: bool = False
    """It has activeDeadlineSeconds, which ResourceQuotas with scope Terminating count."""
    priority_class: str | None = None
    """Name in its spec."""


def total_requests(pod: PodResources) -> dict[str, int]:
    """Return the requests of the pod without its overhead."""
    return _total(pod.containers, lambda one: one.requests) | dict(pod.requests)


def total_limits(pod: PodResources) -> dict[str, int]:
    """Return the limits of the pod without its overhead."""
    return _total(pod.containers, lambda one: one.limits) | dict(pod.limits)


def total_limits_with_overhead(pod: PodResources) -> dict[str, int]:
    """Return the limits of the pod, with the overhead of those that are not 0."""
    overhead, total = dict(pod.overhead), total_limits(pod)
    return {name: amount and amount + overhead.get(name, 0) for name, amount in total.items()}


def requested(pod: PodResources) -> Amounts:
    """Return what the scheduler counts for the pod: its requests and its overhead."""
    total = total_requests(pod)
    _add(total, pod.overhead)
    return amounts(total)


def pod_level_requests(
    containers: Iterable[Container], requests: dict[str, int], limits: dict[str, int]
) -> Listed:
    """Return the requests of the pod itself with the API server's defaults, which depend on its limits."""
    if not limits:
        return tuple(sorted(requests.items()))
    of_containers = _total(containers, lambda one: one.requests)
    # Hugepages cannot be overcommitted: the pod's limit counts, whatever its containers request.
    found = {name: amount for name, amount in of_containers.items() if name in (CPU, "memory")}
    return tuple(sorted((limits | found | requests).items()))


def _total(containers: Iterable[Container], of: Callable[[Container], Listed]) -> dict[str, int]:
    """Containers are summed; init containers run one after another, with the sidecars started before them."""
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for one in containers:
        match one.role:
            case Role.CONTAINER:
                _add(total, of(one))
            case Role.SIDECAR:
                _add(total, of(one))
                _add(sidecars, of(one))
                _raise(peak, sidecars)
            case Role.INIT:
                beside = dict(of(one))
                _add(beside, sidecars.items())
                _raise(peak, beside)
    _raise(total, peak)
    return total


def _add(total: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for name, amount in more:
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], floor: dict[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
