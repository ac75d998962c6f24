"""Whether anything of a workload may still run: its object, its children, its pods."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from functools import partial
from typing import Any, Final

from queuectl.core.model.pods import PodOwner
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.kinds.admission import parse
from queuectl.kinds.jobs import REQUEST_SECONDS, Copies, JobKind, KindRegistry, PodLabel, value_at
from queuectl.kinds.json_fields import Json
from queuectl.kinds.owners import controller, controls
from queuectl.kinds.pod_group import Unit
from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION, STOPPED_ANNOTATION, WORKLOAD_LABEL
from queuectl.kinds.workloads import finished
from queuectl.kube.objects import child_row, read_child, read_object
from queuectl.kube.session import Object, Session, api_path

MAX_HOPS: Final = 10
"""From a pod to the object that it belongs to."""
_OVER: Final = ("Succeeded", "Failed")


class Liveness:
    """By consistent reads. Every method raises ApiError."""

    def __init__(self, session: Session, kinds: KindRegistry) -> None:
        self._session = session
        self._kinds = kinds

    async def may_make_pods(
        self, kind: JobKind, obj: Object, *, still: float, silent: bool, counts_deleted: bool = True
    ) -> bool:
        """May the object make pods, or a child that has its podsets or is suspended with it?

        `still`: for how many seconds it may already, without a change of it. `silent`: their controllers are
        not there, so that what is suspended makes none. `counts_deleted`: what their status says of pods
        counts, which has those that are being deleted on unreachable nodes.
        """
        may = partial(_may, silent=silent, counts_deleted=counts_deleted)
        told, row, above = kind.says_suspended(obj), kind, obj
        below = child_row(self._kinds, kind)
        if below is None and kind.suspends is None:
            return may(kind, obj, told=told)
        started = _started_at(obj) if still < REQUEST_SECONDS else None
        if below is not None:
            child = await read_child(below, self._session, obj)
            if child is not None:
                if may(below, child, told=_says_so_now((), below, child, started)):
                    return True
                row, above = below, child
        copies = row.suspends
        if copies is not None and finished(row, above) is None and not (silent or copies.over(still)):
            copied = self._kinds[copies.kind]
            for copy in await self._copied(copies, copied, above):
                if may(copied, copy, told=_says_so_now(copies.observed, copied, copy, started)):
                    return True
                told = told or _marks(copy) == _marks(obj) != (None, None)
        return may(kind, obj, told=told)

    async def _copied(self, copies: Copies, row: JobKind, obj: Object) -> list[Object]:
        metadata = obj["metadata"]
        path = api_path(row.group, row.version, row.plural, metadata["namespace"])
        selector = {"labelSelector": f"{copies.label}={metadata['name']}"}
        return [
            child
            async for page in self._session.pages(path, query=selector)
            for child in page.get("items") or ()
            if controls(metadata["uid"], child)
        ]

    async def pods_alive(
        self,
        kind: JobKind,
        ref: ObjectRef,
        obj: Object | None,
        unreachable: Set[str] = frozenset(),
        beyond: int = 0,
    ) -> int:
        """How many pods of the object are alive? Counts no further than one more than `beyond`.

        `obj`: None if it is gone. `unreachable`: names of nodes (M13).
        """
        if (own := _of_itself(kind, obj, unreachable)) is not None:
            return own
        pods = api_path("", "v1", "pods", ref.namespace)
        parents: dict[str, Object | None] = {}
        alive: set[str] = set()
        labelled = obj is not None and _started_at(obj) is not None
        for selector, label in kind.pod_selectors(obj, ref.name, ref.uid).items():
            if label.prefix and labelled:
                continue
            async for page in self._session.pages(pods, query={"labelSelector": selector}):
                for pod in page.get("items") or ():
                    if _ended(pod, unreachable):
                        continue
                    if label.prefix and not _label(pod, label.key).startswith(f"{ref.name}-"):
                        continue
                    if await self._belongs(kind, ref, pod, label, parents):
                        alive.add(pod["metadata"]["uid"])
                        if len(alive) > beyond:
                            return len(alive)
        return len(alive)

    async def is_above(self, kind: JobKind, ref: ObjectRef, owner: PodOwner) -> bool:
        """Is the object above the controller of a pod with its label (M21)?

        Where its kind says that every pod with the label counts, its owners do not tell.
        """
        if any(label.key == WORKLOAD_LABEL and label.sure for label in kind.pods):
            return True
        between = self._kinds.below(kind)
        for _ in range(MAX_HOPS):
            row = self._kinds.of_group(owner.api_version, owner.kind)
            if row is None or row not in between:
                return False
            obj = await read_object(
                self._session, row, ObjectRef(ref.namespace, row.name, owner.name, owner.uid)
            )
            found = controller(obj) if obj is not None else None
            if found is None or found.get("uid") == ref.uid:
                return found is not None
            owner = PodOwner(*(str(found.get(key) or "") for key in ("apiVersion", "kind", "name", "uid")))
        return False

    async def _belongs(
        self, kind: JobKind, ref: ObjectRef, pod: Any, label: PodLabel, parents: dict[str, Object | None]
    ) -> bool:
        """Does a pod with this label belong to the object, directly or by objects in between?

        One of these may be gone: then it may. `parents`: those read so far, by UID; None is gone.
        """
        if label.sure:
            return True
        between, child = self._kinds.below(kind), pod
        for _ in range(MAX_HOPS):
            owners = (child.get("metadata") or {}).get("ownerReferences") or []
            if any(owner.get("uid") == ref.uid for owner in owners):
                return True
            if not owners:
                # Left by an orphaning delete.
                return label.uid
            rows = (
                (owner, self._kinds.of_group(owner.get("apiVersion"), owner.get("kind"))) for owner in owners
            )
            known = [(owner, row) for owner, row in rows if row is not None and row in between]
            if not known:
                return False
            owner, row = known[0]
            uid = str(owner.get("uid"))
            if uid not in parents:
                parent = ObjectRef(ref.namespace, row.name, owner["name"], uid)
                parents[uid] = await read_object(self._session, row, parent)
            if (child := parents[uid]) is None:
                return True
        return True


def _ended(pod: Any, unreachable: Set[str]) -> bool:
    """Has it ended, or is it being deleted on a node that nothing ends it on (M13)?"""
    if (pod.get("status") or {}).get("phase") in _OVER:
        return True
    deleted = (pod.get("metadata") or {}).get("deletionTimestamp") is not None
    return deleted and (pod.get("spec") or {}).get("nodeName") in unreachable


def _of_itself(kind: JobKind, obj: Object | None, unreachable: Set[str]) -> int | None:
    """How many of the pods that the object is or is composed of are alive; None: labels tell."""
    if not kind.scheduling_gate:
        return None
    if kind.composed_of:
        if obj is None or obj["unit"].admission is not None:
            return None
        unit: Unit = obj["unit"]
        return sum(one.alive and not _ended(one.obj, unreachable) for one in unit.started)
    return int(obj is not None and not kind.suspended(obj) and not _ended(obj, unreachable))


def _may(kind: JobKind, obj: Object, *, silent: bool, told: bool, counts_deleted: bool) -> bool:
    """May it make pods? `told`: its controller has said that it has seen that it is suspended."""
    if finished(kind, obj) is not None:
        return False
    if not kind.suspended(obj):
        return True
    return not silent and (not told or (counts_deleted and kind.status(obj).quiet is False))


def _says_so_now(observed: tuple[str, ...], row: JobKind, child: Object, started: datetime | None) -> bool:
    """Has its own controller seen that it is suspended? It is not asked again: its status must be current.

    `observed`: path of the generation that it has seen; empty: there is none. `started`: when the object was
    let go, in UTC; None: any time counts. What was said before that is of an earlier suspension, and the
    controller may be making pods, or letting go what makes them, since.
    """
    generation = value_at(child, ("metadata", "generation"))
    if not row.says_suspended(child):
        return False
    if observed:
        return generation is not None and bool(value_at(child, observed) == generation)
    if generation == 1 or started is None:  # in the first case it was never let go
        return True
    said = row.said_suspended_at(child)
    return said is not None and said > started


def _marks(obj: Json) -> tuple[str | None, str | None]:
    """What the last start and the last stop wrote.

    A copy of it that is suspended was written by a controller that has seen the object suspended, after that
    start. Where neither is there, it may be from before the object ran.
    """
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(ADMISSION_ANNOTATION), annotations.get(STOPPED_ANNOTATION)


def _started_at(obj: Object) -> datetime | None:
    """When the object was let go last, in UTC; None: not by an admission."""
    metadata = obj["metadata"]
    annotation = (metadata.get("annotations") or {}).get(ADMISSION_ANNOTATION)
    admission = parse(annotation, WorkloadId(metadata["uid"]))
    return admission.attempt.admitted_at if admission is not None else None


def _label(pod: Any, key: str) -> str:
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(key))
