"""What makes the pods of a group and says how many they are: a LeaderWorkerSet, or a StatefulSet.

Where the template of a StatefulSet has the label of a pod group and no number of pods, `spec.replicas` is
their number. All that exist or are to come are one workload; those beyond pods that run are workloads of
their own, so that it can be scaled and rolled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from queuectl.kinds.json_fields import Json, mapping
from queuectl.kinds.leader_worker_set import LEADER_WORKER_SETS, LaterWorkers, later_workers, set_of
from queuectl.kinds.owners import controller
from queuectl.kinds.reserved_keys import GROUP_SIZE

_STATEFUL_SET: Final = ("apps/v1", "StatefulSet")


class Replicas(NamedTuple):
    """The pods of a StatefulSet."""

    number: int


OwnerOfGroup = LaterWorkers | Replicas


class GroupOwner(NamedTuple):
    """A kind whose objects say how many pods a group has."""

    kind: str
    resource: tuple[str, str, str]
    """API group, version and plural."""
    custom: bool
    of_pods: Callable[[Iterable[Json]], str | None]
    """The name of the object of the pods of a group; None: they are of none. Raises BadField."""
    read: Callable[[Json], OwnerOfGroup | None]
    """What its object says; None: nothing. Raises BadField."""


def replicas(obj: Json) -> Replicas | None:
    """Raises BadField."""
    number = mapping(obj, "spec", "").get("replicas")
    return Replicas(number) if type(number) is int and number >= 0 else None


def stateful_set_of(pods: Iterable[Json]) -> str | None:
    """The StatefulSet that has the number of the pods of a group; None: an annotation has it.

    The first one of several, which their user has written. Raises BadField.
    """
    names = set()
    for pod in pods:
        if GROUP_SIZE in mapping(mapping(pod, "metadata", ""), "annotations", "metadata"):
            continue
        owner = controller(pod) or {}
        if (owner.get("apiVersion"), owner.get("kind")) == _STATEFUL_SET:
            names.add(str(owner.get("name")))
    return min(names, default=None)


GROUP_OWNERS: Final[Mapping[str, GroupOwner]] = {
    owner.kind: owner
    for owner in (
        GroupOwner("LeaderWorkerSet", LEADER_WORKER_SETS, True, set_of, later_workers),
        GroupOwner("StatefulSet", ("apps", "v1", "statefulsets"), False, stateful_set_of, replicas),
    )
}


def owner_of(pods: Iterable[Json]) -> tuple[str, str] | None:
    """Kind and name of what says how many pods their group has; None: an annotation does. Raises BadField."""
    listed = list(pods)
    names = ((kind, owner.of_pods(listed)) for kind, owner in GROUP_OWNERS.items())
    return next(((kind, name) for kind, name in names if name is not None), None)
