"""LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): leader and workers of one replica are a pod group.

The gate names the group after the leader, and writes the size that the controller of LeaderWorkerSets has on
the templates of both: `group_of`. A tenant can forge these keys on pods of their own, and gains nothing: they
are then a group that the tenant made, in which each pod is charged for what it requests.
"""

from __future__ import annotations

from typing import Final

from queuectl.kinds.json_fields import Json, mapping

NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"
LEADER_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/leader-name"
"""On workers, the name of their leader."""


def group_of(metadata: Json) -> tuple[str, str] | None:
    """Name and size of the group of a pod that its controller creates; None: it is of no LeaderWorkerSet.

    Raises BadField.
    """
    labels, annotations = (mapping(metadata, key, "metadata") for key in ("labels", "annotations"))
    name, size = annotations.get(LEADER_ANNOTATION) or metadata.get("name"), annotations.get(SIZE_ANNOTATION)
    if NAME_LABEL not in labels or not isinstance(name, str) or not name or not isinstance(size, str):
        return None
    return name, size
