"""LimitRanges: what the API server adds to the pods of a namespace, and what it refuses them for (N1, N2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from queuectl.core.model.pod_limits import LimitRange, LimitRangeItem, LimitType, namespace_of
from queuectl.core.model.resources import (
    CPU,
    Container,
    Listed,
    PodResources,
    Role,
    format_amount,
    total_limits,
    total_requests,
)


class Named(Protocol):
    @property
    def name(self) -> str:
        """`namespace/name`."""
        ...


T = TypeVar("T", bound=Named)


class ByNamespace(Generic[T]):
    """A look-up of a namespace without objects costs one step."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, T]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._known)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._known

    def put(self, value: T) -> T | None:
        """Return what it replaces."""
        there = self._known.setdefault(namespace_of(value.name), {})
        before = there.get(value.name)
        there[value.name] = value
        return before

    def forget(self, name: str) -> bool:
        """Return whether it was there."""
        there = self._known.get(namespace_of(name), {})
        if there.pop(name, None) is None:
            return False
        if not there:
            del self._known[namespace_of(name)]
        return True

    def of(self, namespace: str) -> Sequence[T]:
        """Return those of a namespace, by name."""
        there = self._known.get(namespace)
        return [there[name] for name in sorted(there)] if there else ()


_KNOWN = 10_000
"""Pods of which the completed form is kept."""


class LimitRanges:
    """The LimitRanges of all namespaces. Where there is none, everything costs one look-up."""

    def __init__(self) -> None:
        self._known = ByNamespace[LimitRange]()
        self._completed: dict[tuple[str, PodResources], PodResources] = {}

    def observe(self, value: LimitRange) -> bool:
        """Return whether it has changed."""
        changed = self._known.put(value) != value
        if changed:
            self._completed.clear()
        return changed

    def forget(self, name: str) -> bool:
        """Return whether it was there."""
        there = self._known.forget(name)
        if there:
            self._completed.clear()
        return there

    def exist(self, namespace: str) -> bool:
        return namespace in self._known

    def completed(self, namespace: str, pod: PodResources) -> PodResources:
        """Return the pod with the defaults that the API server adds to its containers (N1)."""
        if namespace not in self._known:
            return pod
        found = self._completed.get((namespace, pod))
        if found is None:
            if len(self._completed) >= _KNOWN:
                self._completed.clear()
            found = self._completed[namespace, pod] = _completed(pod, self._known.of(namespace))
        return found

    def refusal(self, namespace: str, pod: PodResources) -> tuple[str, str] | None:
        """Return the name of a LimitRange that refuses a completed pod, and why; None: none does (N2)."""
        there = self._known.of(namespace)
        for limits in there:
            for item in limits.items:
                for what, requests, limit in _measured(item, pod):
                    for problem in _problems(item, requests, limit):
                        return limits.name, f"{what}: {problem}"
        for limits in there:
            if any(item.default or item.default_request for item in limits.items):
                for problem in _inconsistent(pod):
                    return limits.name, f"{problem}, with its defaults"
        return None


def _completed(pod: PodResources, there: Sequence[LimitRange]) -> PodResources:
    limits: dict[str, int] = {}
    requests: dict[str, int] = {}
    for one in reversed(there):  # of several, the first by name is used
        for item in one.items:
            if item.type is LimitType.CONTAINER:
                limits |= dict(item.default)
                requests |= dict(item.default_request)
    if not (limits or requests):
        return pod
    return replace(pod, containers=tuple(_with(one, requests, limits) for one in pod.containers))


def _with(one: Container, requests: Mapping[str, int], limits: Mapping[str, int]) -> Container:
    return replace(
        one,
        requests=tuple(sorted({**requests, **dict(one.requests)}.items())),
        limits=tuple(sorted({**limits, **dict(one.limits)}.items())),
    )


Measure = tuple[str, Mapping[str, int], Mapping[str, int]]
"""What it is, its requests, its limits."""


def _measured(item: LimitRangeItem, pod: PodResources) -> Iterator[Measure]:
    if item.type is LimitType.POD:
        yield "its containers together", total_requests(pod), total_limits(pod)
        return
    for one in pod.containers:
        yield f"container {one.name}", dict(one.requests), dict(one.limits)


def _problems(item: LimitRangeItem, requests: Mapping[str, int], limits: Mapping[str, int]) -> Iterator[str]:
    for name, least in item.min:
        for field, found in (("request", requests.get(name)), ("limit", limits.get(name))):
            if found is None and field == "request":
                yield f"it has no {name} request, the min is {format_amount(name, least)}"
            elif found is not None and found < least:
                yield f"{name} {field} {format_amount(name, found)}, the min is {format_amount(name, least)}"
    for name, most in item.max:
        for field, found in (("limit", limits.get(name)), ("request", requests.get(name))):
            if found is None and field == "limit":
                yield f"it has no {name} limit, the max is {format_amount(name, most)}"
            elif found is not None and found > most:
                yield f"{name} {field} {format_amount(name, found)}, the max is {format_amount(name, most)}"
    yield from _too_far_apart(item.ratio, requests, limits)


def _too_far_apart(ratios: Listed, requests: Mapping[str, int], limits: Mapping[str, int]) -> Iterator[str]:
    for name, ratio in ratios:
        request, limit = requests.get(name, 0), limits.get(name, 0)
        shown = f"maxLimitRequestRatio is {format_amount(CPU, ratio)}"
        if not request or not limit:
            yield f"{name} {'limit' if request else 'request'} is 0 or missing, {shown}"
        elif limit * 1000 > request * ratio:
            requested, limited = format_amount(name, request), format_amount(name, limit)
            yield f"{name} limit {limited} for a request of {requested}, {shown}"


def _inconsistent(pod: PodResources) -> Iterator[str]:
    """The API server refuses amounts that exceed others, also where it has added them itself."""
    level = dict(pod.limits)
    for one in pod.containers:
        limits = dict(one.limits)
        for name, amount in one.requests:
            if amount > limits.get(name, amount):
                yield _exceeds(f"container {one.name}: {name} request", name, amount, "limit", limits[name])
        for name, amount in one.limits if one.role is Role.CONTAINER else ():
            if amount > level.get(name, amount):
                yield _exceeds(
                    f"container {one.name}: {name} limit", name, amount, "pod's limit", level[name]
                )
    together = total_requests(replace(pod, requests=()))
    for name, amount in pod.requests:
        if together.get(name, 0) > amount:
            yield _exceeds(f"its containers: {name} request", name, together[name], "pod's request", amount)


def _exceeds(what: str, resource: str, amount: int, bound: str, limit: int) -> str:
    return f"{what} {format_amount(resource, amount)} exceeds the {bound} {format_amount(resource, limit)}"
