"""Where a request comes from that no manifest has: a LimitRange, a RuntimeClass, a device claim. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from queuectl.core.model.pod_limits import LimitRange, LimitType
from queuectl.core.model.policy import RuntimeClass
from queuectl.core.model.workload import ConfigKey, PodSet, StoredWorkload
from queuectl.kinds.context import kept_context

Specs = Mapping[ConfigKey, str]


def origin_of_request(workload: StoredWorkload, specs: Specs) -> str | None:
    """Return what adds the request that its queue does not cover, such as `LimitRange team-a/defaults`.

    None: its own manifest requests it, or it is not known. `specs`: of what the ledger keeps, as JSON.
    """
    resource = workload.reason.resource if workload.reason is not None else None
    if resource is None or any(resource in dict(pods.requests) for pods in workload.pod_sets):
        return None
    found = [*_limit_ranges(workload.ref.namespace, resource, specs)]
    for pods in workload.pod_sets:
        found += _runtime_class(pods, resource, specs)
    if not found and any(pods.claims for pods in workload.pod_sets):
        found.append("scheduling.resources.deviceClassMappings, for its device claims,")
    return found[0] if found else None


def _limit_ranges(namespace: str, resource: str, specs: Specs) -> Iterator[str]:
    """Yield those that have a default of `resource`, in the order in which they count (N1)."""
    for key in sorted(key for key in specs if (key.kind, key.namespace) == ("LimitRange", namespace)):
        with contextlib.suppress(ValueError):  # of another version
            value = kept_context(key, specs[key]).value
            items = value.items if isinstance(value, LimitRange) else ()
            for item in items:
                defaults = dict(item.default) | dict(item.default_request)
                if item.type is LimitType.CONTAINER and resource in defaults:
                    yield f"LimitRange {namespace}/{key.name}"


def _runtime_class(pods: PodSet, resource: str, specs: Specs) -> Iterator[str]:
    """Yield its RuntimeClass, where that has overhead of `resource` (H2)."""
    key = ConfigKey("RuntimeClass", "", pods.runtime_class or "")
    if key in specs:
        with contextlib.suppress(ValueError):
            value = kept_context(key, specs[key]).value
            if isinstance(value, RuntimeClass) and resource in dict(value.overhead):
                yield f"RuntimeClass {key.name}"
