"""LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): leader and workers of one replica are a pod group.

The gate names the group after the leader, and writes the size that the controller of LeaderWorkerSets has on
the templates of both: `group_of`. A tenant can forge these keys on pods of their own, and gains nothing: they
are then a group that the tenant made, in which each pod is charged for what it requests.

Where its workers are created only after the leader has started (`startupPolicy: LeaderReady`, exclusive
topology), `later_workers` has them from the LeaderWorkerSet: their places are charged with the leader, and
only a pod of that shape takes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from queuectl.kinds.json_fields import Json, mapping
from queuectl.kinds.reserved_keys import SCHEDULING_GATE

LEADER_WORKER_SETS: Final = ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")
"""API group, version and plural."""
NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
"""On its pods, the place in their replica, of the leader 0."""
SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"
LEADER_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/leader-name"
"""On workers, the name of their leader."""
TOPOLOGY_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""On it and its pods, a label of nodes: workers get a node selector for its value on their leader's node."""
_MAX_SIZE: Final = 1000


class LaterWorkers(NamedTuple):
    """The workers of a LeaderWorkerSet that come after the start of their leader."""

    size: int
    """Of a replica, the leader included."""
    template: Json
    """Of each of them."""
    has_class: bool
    """Whether the leader is given a priority class."""

    def pod(self, leader: Json) -> dict[str, Any]:
        """A worker as it will be created for this leader. Raises BadField.

        What the API server adds to a pod is taken from the leader, where the two agree on its cause.
        """
        spec = {
            **mapping(self.template, "spec", "workerTemplate"),
            "schedulingGates": [{"name": SCHEDULING_GATE}],
        }
        of_leader, metadata = mapping(leader, "spec", ""), mapping(leader, "metadata", "")
        if "priorityClassName" not in spec and not self.has_class:  # the default of the cluster
            spec["priorityClassName"] = of_leader.get("priorityClassName")
        if spec.get("runtimeClassName") == of_leader.get("runtimeClassName"):
            spec["overhead"] = of_leader.get("overhead")
        own = mapping(self.template, "metadata", "workerTemplate")
        labels, annotations = (dict(mapping(own, key, "metadata")) for key in ("labels", "annotations"))
        return {
            "metadata": {
                "name": f"{metadata.get('name')}-1",
                "namespace": metadata.get("namespace"),
                "labels": labels,
                "annotations": {**mapping(metadata, "annotations", "metadata"), **annotations},
            },
            "spec": spec,
        }


def later_workers(obj: Json) -> LaterWorkers | None:
    """Of a LeaderWorkerSet; None: its workers do not wait for the start of their leader. Raises BadField."""
    spec, metadata = mapping(obj, "spec", ""), mapping(obj, "metadata", "")
    annotations = mapping(metadata, "annotations", "metadata")
    if spec.get("startupPolicy") != "LeaderReady" and TOPOLOGY_ANNOTATION not in annotations:
        return None
    both = mapping(spec, "leaderWorkerTemplate", "spec")
    size, template = both.get("size"), mapping(both, "workerTemplate", "leaderWorkerTemplate")
    if not isinstance(size, int) or not 1 < size <= _MAX_SIZE:
        return None
    of_leader = mapping(both, "leaderTemplate", "leaderWorkerTemplate") or template
    has_class = "priorityClassName" in mapping(of_leader, "spec", "leaderTemplate")
    return LaterWorkers(size, template, has_class)


def set_of(pods: Iterable[Json]) -> str | None:
    """The name of the LeaderWorkerSet of the pods of a group, by their label; None: they are of none.

    The first one of several, which their user has written. Raises BadField.
    """
    labels = (mapping(mapping(one, "metadata", ""), "labels", "metadata") for one in pods)
    return min((str(one[NAME_LABEL]) for one in labels if NAME_LABEL in one), default=None)


def is_leader(pod: Json) -> bool:
    """Whether a pod of a LeaderWorkerSet is a leader. Raises BadField."""
    return LEADER_ANNOTATION not in mapping(mapping(pod, "metadata", ""), "annotations", "metadata")


def group_of(metadata: Json) -> tuple[str, str] | None:
    """Name and size of the group of a pod that its controller creates; None: it is of no LeaderWorkerSet.

    Raises BadField.
    """
    labels, annotations = (mapping(metadata, key, "metadata") for key in ("labels", "annotations"))
    name, size = annotations.get(LEADER_ANNOTATION) or metadata.get("name"), annotations.get(SIZE_ANNOTATION)
    if NAME_LABEL not in labels or not isinstance(name, str) or not name or not isinstance(size, str):
        return None
    return name, size
