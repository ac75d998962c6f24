"""Children: objects that the controller of another object makes. Only the topmost managed object queues.

A child is not an entry, and nothing is recorded of it, as long as its owner holds quota for it (section K of
docs/scheduling.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from queuectl.core.model.events import OwnerRead
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
