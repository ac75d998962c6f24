"""Children: objects that the controller of another object makes. Only the topmost managed object queues.

A child is not an entry, and nothing is recorded of it, as long as its owner holds quota for it (section K of
docs/scheduling.md). Pods belong to the workload that their label names as far as their owners say so (M21).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from queuectl.core.decisions import PodOwnerToRead
from queuectl.core.model.events import OwnerRead, PodOwnerRead
from queuectl.core.model.pods import Pod, PodOwner
from queuectl.core.model.workload import ObjectRef, Observation, Workload, WorkloadId


class OwnedChild:
    """One child, as last observed."""

    __slots__ = ("asked", "holder", "observation", "read", "workload")

    def __init__(self, workload: Workload, observation: Observation, holder: WorkloadId) -> None:
        self.workload = workload
        self.observation = observation
        self.holder = holder
        """The object that it belongs to: its owner, or the next one above that has a queue label."""
        self.read: OwnerRead | None = None
        """What consistent reads found; None: nothing was doubtful since it last started."""
        self.asked = False
        """The driver reads its owners."""

    @property
    def runs(self) -> bool:
        return not self.observation.suspended and self.observation.finished is None


class Children:
    def __init__(self) -> None:
        self._children: dict[WorkloadId, OwnedChild] = {}
        self._families: dict[WorkloadId, dict[WorkloadId, OwnedChild]] = {}
        """By holder."""
        self._changed: dict[WorkloadId, None] = {}
        self.doubtful: dict[WorkloadId, OwnedChild] = {}
        """Those of which the owners are to be read."""

    @property
    def known(self) -> bool:
        """Whether there is any, or one that is gone is to be noticed."""
        return bool(self._children or self._changed)

    def get(self, workload: WorkloadId) -> OwnedChild | None:
        return self._children.get(workload)

    def family(self, holder: WorkloadId) -> list[OwnedChild]:
        """Return the children of `holder`, oldest first."""
        there = self._families.get(holder, {}).values()
        return sorted(there, key=lambda child: (child.workload.created_at, child.workload.id))

    def observe(self, workload: Workload, observation: Observation, owner: ObjectRef) -> None:
        child = self._children.get(workload.id)
        if child is not None and child.workload.owner != owner:
            self.forget(workload.id)
            child = None
        if child is None:
            child = self._children[workload.id] = OwnedChild(workload, observation, WorkloadId(owner.uid))
            self._join(child)
        child.workload, child.observation = workload, observation
        self._changed[child.holder] = None

    def read(self, event: OwnerRead) -> None:
        """The owners of a child were read."""
        child = self._children.get(event.workload)
        if child is None:
            return
        child.asked, child.read = False, event
        if event.holder is not None and event.holder != child.holder:
            self._leave(child)
            child.holder = event.holder
            self._join(child)
        self._changed[child.holder] = None

    def forget(self, workload: WorkloadId) -> None:
        child = self._children.pop(workload, None)
        if child is not None:
            self.doubtful.pop(workload, None)
            self._leave(child)

    def forget_unlisted(self, kind: str, listed: Collection[WorkloadId]) -> None:
        """All objects of this kind are in `listed`."""
        gone = [
            key for key, one in self._children.items() if one.workload.ref.kind == kind and key not in listed
        ]
        for workload in gone:
            self.forget(workload)

    def touch(self, holder: WorkloadId) -> None:
        """What `holder` holds may have changed."""
        if holder in self._families:
            self._changed[holder] = None

    def doubt(self, child: OwnedChild) -> None:
        if not child.asked:
            self.doubtful[child.workload.id] = child

    def trust(self, child: OwnedChild) -> None:
        """Its owner holds quota for it, or it does not run."""
        child.read = None
        self.doubtful.pop(child.workload.id, None)

    def ask(self, workload: WorkloadId) -> None:
        """The driver has been asked to read its owners."""
        child = self.doubtful.pop(workload, None)
        if child is not None:
            child.asked = True

    def take_changed(self) -> Iterator[WorkloadId]:
        """Holders of which a child, or what they hold, changed; also while they are taken. Each once."""
        taken: set[WorkloadId] = set()
        while self._changed:
            holder, _ = self._changed.popitem()
            if holder not in taken:
                taken.add(holder)
                yield holder

    def _join(self, child: OwnedChild) -> None:
        self._families.setdefault(child.holder, {})[child.workload.id] = child

    def _leave(self, child: OwnedChild) -> None:
        there = self._families[child.holder]
        del there[child.workload.id]
        self._changed[child.holder] = None
        if not there:
            del self._families[child.holder]


class _Named(Protocol):
    """A workload."""

    @property
    def ref(self) -> ObjectRef: ...


class _Labelled(NamedTuple):
    """All pods with the label of one workload."""

    pods: dict[str, Pod]
    """As observed, by UID."""
    belongs: dict[str, bool]
    """Of the owners that were read, by UID: whether the workload is above them."""
    asked: set[str]
    """Owners that are being read."""


class PodOwners:
    """A pod belongs to a workload of its namespace that controls it, directly or by objects in between.

    Objects in between are read once each. Until then, and without a controller, the pod is no workload's.
    """

    def __init__(self, workloads: Mapping[WorkloadId, _Named]) -> None:
        self._workloads = workloads
        self._labelled: dict[WorkloadId, _Labelled] = {}
        self._by_uid: dict[str, WorkloadId] = {}
        """The label of each pod that has one."""
        self._doubtful: dict[tuple[WorkloadId, str], PodOwner] = {}
        """Owners to be read, by UID."""
        self._changed: set[WorkloadId] = set()
        """Workloads of whose label other pods may belong to them now."""

        self._loose: set[WorkloadId] = set()
        """Workloads of whose label pods without a controller came or went."""

    @property
    def known(self) -> bool:
        """Whether any pod has the label of a workload, or one that is gone is to be noticed."""
        return bool(self._labelled or self._changed or self._loose)

    def __bool__(self) -> bool:
        """Whether any owner is to be read."""
        return bool(self._doubtful)

    def observe(self, pod: Pod) -> Pod:
        """Return the pod with the workload that it belongs to."""
        if self._by_uid.get(pod.uid, pod.workload) != pod.workload:
            self.forget(pod.uid)
        if pod.workload is None:
            return pod
        self._by_uid[pod.uid] = pod.workload
        labelled = self._labelled.setdefault(pod.workload, _Labelled({}, {}, set()))
        self._note(labelled.pods.get(pod.uid))
        labelled.pods[pod.uid] = pod
        self._note(pod)
        return self._judged(pod, labelled)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        label = self._by_uid.pop(uid, None)
        if label is None:
            return
        labelled = self._labelled[label]
        self._note(labelled.pods.pop(uid))
        if not labelled.pods:
            del self._labelled[label]
            for key in [key for key in self._doubtful if key[0] == label]:
                del self._doubtful[key]

    def entered(self, workload: WorkloadId) -> None:
        """The workload is known now."""
        if workload in self._labelled:
            self._changed.add(workload)
            self._loose.add(workload)

    def ask(self, check: PodOwnerToRead) -> None:
        """The driver has been asked to read this owner."""
        if self._doubtful.pop((check.workload, check.owner.uid), None) is not None:
            self._labelled[check.workload].asked.add(check.owner.uid)

    def read(self, event: PodOwnerRead) -> None:
        """An owner was read."""
        labelled = self._labelled.get(event.workload)
        if labelled is not None:
            labelled.asked.discard(event.owner)
            labelled.belongs[event.owner] = event.belongs
            self._doubtful.pop((event.workload, event.owner), None)
            self._changed.add(event.workload)

    def take_changed(self) -> Iterator[Pod]:
        """Yield the pods that may belong to another workload than at their last observation."""
        changed, self._changed = sorted(self._changed), set()
        for workload in changed:
            if (labelled := self._labelled.get(workload)) is not None:
                yield from (self._judged(pod, labelled) for pod in labelled.pods.values())

    def take_loose(self) -> Iterator[tuple[WorkloadId, bool]]:
        """Yield workloads, and whether pods of their namespace with their label have no controller."""
        loose, self._loose = sorted(self._loose), set()
        for workload in loose:
            named, labelled = self._workloads.get(workload), self._labelled.get(workload)
            if named is not None:
                pods = labelled.pods.values() if labelled is not None else ()
                yield workload, any(_is_loose(pod) and pod.namespace == named.ref.namespace for pod in pods)

    def to_read(self) -> Iterator[PodOwnerToRead]:
        for (workload, _), owner in self._doubtful.items():
            if workload in self._workloads:
                yield PodOwnerToRead(workload, self._workloads[workload].ref, owner)

    def _note(self, pod: Pod | None) -> None:
        if pod is not None and pod.workload is not None and _is_loose(pod):
            self._loose.add(pod.workload)

    def _judged(self, pod: Pod, labelled: _Labelled) -> Pod:
        assert pod.workload is not None
        named = self._workloads.get(pod.workload)
        if named is None or named.ref.namespace != pod.namespace:
            return replace(pod, workload=None)
        owner = pod.owner
        if owner is None or labelled.belongs.get(owner.uid, False):
            return pod
        if owner.uid not in labelled.belongs and owner.uid not in labelled.asked:
            self._doubtful[pod.workload, owner.uid] = owner
        return replace(pod, workload=None)


def _is_loose(pod: Pod) -> bool:
    return pod.owner is not None and not pod.owner.uid
