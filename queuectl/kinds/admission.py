"""The reserved-admission annotation: an admission, stored on the admitted object.

It allows to restore the open holds if the database is lost, and to distinguish the user's own scheduling
fields from those that an admission added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import orjson

from queuectl.core.model.policy import ResourceFlavor, Toleration
from queuectl.core.model.resources import MAX_AMOUNT, amounts
from queuectl.core.model.workload import Assignment, Attempt, AttemptState, PodSetAssignment, WorkloadId
from queuectl.kinds.json_fields import (
    BadField,
    Json,
    checked,
    integer,
    mapping,
    objects,
    pairs,
    timestamp,
)
from queuectl.kinds.node_constraints import (
    MAX_ENTRIES,
    NodeConstraints,
    constraints_json,
    read_constraints,
)

CONTROLLER_USER: Final = "system:serviceaccount:queuectl-system:queuectl"
"""The user that may start pending workloads, as in the policies of manifests/."""

MAX_ANNOTATION: Final = 200_000
"""Longest annotation that is read, in characters; the API server allows 262,144 bytes for all together."""

MAX_POD_SETS: Final = 512

_MAX_SEQUENCE: Final = 2**63 - 1
NO_COUNTS: Final[Mapping[str, Mapping[str, int]]] = {}


@dataclass(frozen=True, slots=True)
class AdmissionAnnotation:
    """The content of the annotation: the attempt, and per podset the fields before it and the added ones."""

    attempt: Attempt
    queue: str
    before: Mapping[str, NodeConstraints]
    added: Mapping[str, NodeConstraints]
    counts: Mapping[str, Mapping[str, int]]
    """Per podset, the fields whose number of pods was reduced: from a JSON pointer to the number before."""
    shapes: tuple[str, ...] = ()
    """On a pod of a group: the digest of what it requests, then those of all pods of the group."""

    def own(self, pod_set: str, current: NodeConstraints) -> NodeConstraints:
        """The user's own fields of a podset: those before the admission, unless it was edited since."""
        before, added = self.before.get(pod_set), self.added.get(pod_set)
        if before is None or added is None or current != before.steered(added):
            return current
        return before


def additions(pod_set: PodSetAssignment, flavors: Sequence[ResourceFlavor]) -> NodeConstraints:
    """The scheduling fields that the flavors of a podset add to its own ones.

    If flavors disagree on a label, the last one by resource name wins: no node has both.
    """
    by_name = {flavor.name: flavor for flavor in flavors}
    charged = dict.fromkeys(name for _, name in pod_set.flavors if name in by_name)
    labels: dict[str, str] = {}
    tolerations: dict[Toleration, None] = {}
    for name in charged:
        labels.update(by_name[name].node_labels)
        tolerations.update(dict.fromkeys(by_name[name].tolerations))
    own = dict(pod_set.node_selector)
    return NodeConstraints(
        tuple(sorted((key, value) for key, value in labels.items() if own.get(key) != value)),
        tuple(item for item in tolerations if item not in pod_set.tolerations),
    )


def render(
    attempt: Attempt,
    queue: str,
    flavors: Sequence[ResourceFlavor],
    counts: Mapping[str, Mapping[str, int]] = NO_COUNTS,
    shapes: Sequence[str] = (),
) -> str:
    """The annotation's text, compact and in a fixed order. `counts`, `shapes`: as in AdmissionAnnotation."""
    steered = {pod_set.name: pod_set for pod_set in attempt.assignment.steered()}
    return orjson.dumps(
        ({"shapes": list(shapes)} if shapes else {})
        | {
            "workload": attempt.workload,
            "attempt": attempt.number,
            "sequence": attempt.sequence,
            "queue": queue,
            "clusterQueue": attempt.assignment.cluster_queue,
            "admittedAt": rfc3339(attempt.admitted_at),
            "podSets": [
                {
                    "name": pod_set.name,
                    "count": pod_set.count,
                    "requests": dict(pod_set.requests),
                    "flavors": dict(pod_set.flavors),
                    "before": constraints_json(NodeConstraints(pod_set.node_selector, pod_set.tolerations))
                    | ({"counts": counts[pod_set.name]} if pod_set.name in counts else {}),
                    "added": constraints_json(additions(steered.get(pod_set.name, pod_set), flavors)),
                }
                for pod_set in attempt.assignment.pod_sets
            ],
        }
    ).decode()


def with_fewer(annotation: str, counts: Mapping[str, int]) -> str:
    """A parsed annotation with other numbers of pods, by podset. Those before the start of these podsets are
    taken out: their user has edited the numbers since, and no stop restores others (F9)."""
    content = orjson.loads(annotation)
    for pod_set in content["podSets"]:
        if pod_set["name"] in counts:
            pod_set["count"] = counts[pod_set["name"]]
            pod_set["before"].pop("counts", None)
    return orjson.dumps(content).decode()


def parse(annotation: object, workload: WorkloadId) -> AdmissionAnnotation | None:
    """The annotation of the object of `workload`; None if it is malformed or of another workload."""
    if not isinstance(annotation, str) or len(annotation) > MAX_ANNOTATION:
        return None
    try:
        read = orjson.loads(annotation)
        if not isinstance(read, Mapping) or read.get("workload") != workload:
            return None
        return _admission(read, workload)
    except (orjson.JSONDecodeError, UnicodeEncodeError, BadField, RecursionError):
        return None


def _admission(read: Json, workload: WorkloadId) -> AdmissionAnnotation:
    pod_sets, before, added, counts = [], {}, {}, {}
    for entry in objects(read, "podSets", "", MAX_POD_SETS):
        own = _constraints(entry, "before")
        name = checked(entry.get("name"), "podSets.name")
        flavors = pairs(entry, "flavors", "podSets", MAX_ENTRIES)
        requests = _requests(entry)
        if {resource for resource, _ in flavors} != set(requests) or name in before:
            raise BadField("podSets", "each podset once, with a flavor for each of its resources")
        before[name], added[name] = own, _constraints(entry, "added")
        counts[name] = _counts(mapping(entry, "before", "podSets"))
        pod_sets.append(
            PodSetAssignment(
                name=name,
                count=integer(entry, "count", "podSets", default=None),
                requests=amounts(requests),
                flavors=flavors,
                node_selector=own.node_selector,
                tolerations=own.tolerations,
            )
        )
    attempt = Attempt(
        workload=workload,
        number=integer(read, "attempt", "", default=None, low=1),
        state=AttemptState.ADMITTED,
        assignment=Assignment(
            cluster_queue=checked(read.get("clusterQueue"), "clusterQueue"), pod_sets=tuple(pod_sets)
        ),
        admitted_at=timestamp(read.get("admittedAt"), "admittedAt"),
        sequence=integer(read, "sequence", "", default=None, high=_MAX_SEQUENCE),
    )
    queue, shapes = checked(read.get("queue"), "queue"), read.get("shapes")
    digests = tuple(map(str, shapes[:MAX_POD_SETS])) if isinstance(shapes, list) else ()
    return AdmissionAnnotation(attempt, queue, before, added, counts, digests)


def _requests(entry: Json) -> dict[str, int]:
    found = mapping(entry, "requests", "podSets")
    if len(found) > MAX_ENTRIES:
        raise BadField("podSets.requests", f"{len(found)} resources, at most {MAX_ENTRIES} are read")
    return {
        checked(name, "podSets.requests"): integer(
            found, name, "podSets.requests", default=None, low=1, high=MAX_AMOUNT
        )
        for name in found
    }


def _counts(before: Json) -> dict[str, int]:
    found = mapping(before, "counts", "podSets.before")
    if len(found) > MAX_ENTRIES:
        raise BadField("podSets.before.counts", f"{len(found)} fields, at most {MAX_ENTRIES} are read")
    return {path: integer(found, path, "podSets.before.counts", default=None) for path in found}


def _constraints(entry: Json, key: str) -> NodeConstraints:
    return read_constraints(mapping(entry, key, "podSets"), f"podSets.{key}")


def rfc3339(time: datetime) -> str:
    """UTC with microseconds and a Z, as Kubernetes' MicroTime."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
