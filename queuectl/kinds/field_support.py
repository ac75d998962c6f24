"""Which fields of the policy kinds are not supported yet.

Queue conditions, policy tests, the notes of an import and docs/scheduling.md are all made from this table. A
field that is not supported makes the queues that it concerns inactive: an admin who asks for a check before
each start and gets none would not notice it. The fields are in the CRDs, so that the YAML of a Kueue user can
be applied. Paths are those of the CRDs; `[]` is an item of a list, `{}` a value of a map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from queuectl.kinds.json_fields import Json

NO_CHECKS: Final = "admission checks are not supported yet"
NO_TOPOLOGY: Final = "topology-aware placement is not supported yet"
_NOT_FOR_ITS_TREE: Final = "only a root Cohort decides what quotas of its tree count while nodes are missing"
_NOT_ON_A_ROOT: Final = "only a root Cohort decides on the fair sharing of its tree"


class Unsupported(NamedTuple):
    """A field, with all below it, that queuectl does not obey: the queues concerned are not active (Q1)."""

    why: str
    without: str = ""
    """What becomes of a queue if the field is left out."""
    beside: str | None = None
    """It is not supported beside this field of the object only; None: never."""


UNSUPPORTED: Final[Mapping[str, Mapping[str, Unsupported]]] = {
    "ClusterQueue": {
        "spec.admissionChecksStrategy": Unsupported(NO_CHECKS, "workloads start without them"),
        "spec.admissionChecks": Unsupported(NO_CHECKS, "workloads start without them"),
        "spec.concurrentAdmissionPolicy": Unsupported(
            "concurrent admission is not supported yet", "flavors are tried one after another"
        ),
    },
    "Cohort": {
        "spec.fairSharing.enabled": Unsupported(_NOT_ON_A_ROOT, beside="spec.parentName"),
        "spec.fairSharing.preemptionStrategies": Unsupported(_NOT_ON_A_ROOT, beside="spec.parentName"),
        "spec.fairSharing.admissionOrder": Unsupported(_NOT_ON_A_ROOT, beside="spec.parentName"),
        "spec.capacityShortage": Unsupported(_NOT_FOR_ITS_TREE, beside="spec.parentName"),
    },
    "ResourceFlavor": {"spec.topologyName": Unsupported(NO_TOPOLOGY, "only quota is counted")},
}
"""By kind and path."""


def unsupported(kind: str, obj: Json) -> tuple[str, ...]:
    """The fields of `obj` that queuectl does not obey, each as `PATH: WHY`."""
    return tuple(
        f"{path}: {field.why}"
        for path, field in UNSUPPORTED.get(kind, {}).items()
        if _set(obj, path) and (field.beside is None or _set(obj, field.beside))
    )


def leave_out(kind: str, obj: dict[str, Any]) -> dict[str, str]:
    """Remove the fields of `obj` that queuectl never obeys; what that means, by path."""
    found = {}
    for path, field in UNSUPPORTED.get(kind, {}).items():
        if field.beside is None and _set(obj, path):
            *above, last = path.split(".")
            del _at(obj, above)[last]
            found[path] = f"{field.why}: {field.without}"
    return found


def _set(obj: Json, path: str) -> bool:
    """Whether the field has a value. An empty list or object asks for nothing; `false` does."""
    return _at(obj, path.split(".")) not in (None, "", [], {})


def _at(obj: Any, path: list[str]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj
