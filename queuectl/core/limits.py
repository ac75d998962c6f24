"""What limits an admission, as one interface, and a journal of changes that are tried on it.

Quota (`core/quota/tree.py`) and room on nodes (`core/nodes/room.py`) are its implementations; a topology can
be a third. Admission cycles, preemption searches and claims use this interface only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from queuectl.core.model import WorkloadId
from queuectl.core.nodes.placing import Spots
from queuectl.core.nodes.pods import Pods
from queuectl.core.nodes.room import NodeRoom
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree
from queuectl.core.values import value


@value(frozen=True, slots=True)
class Hold:
    """What one workload holds, or would hold."""

    node: QuotaNode
    """Of the ClusterQueue that is charged."""
    cells: Cells
    """Pairs of a cell number and an amount in base units."""
    owner: WorkloadId | None = None
    """None: quota alone is held, such as what a head reserves (C6)."""
    pods: Pods = ()
    """The pods that it would have. Empty for a workload that has an open attempt: its pods are known."""
    spots: Spots | None = None
    """The nodes of its pods, where these are given; None: where they fit."""
    ended: bool = False
    """It is released: its pods that are bound count until they are gone (M9), and no others are expected."""

    @property
    def nodes(self) -> Iterator[str]:
        """The names of the nodes that are given, once for each pod."""
        return (name for name, _ in self.spots or ())


class AdmissionLimit(Protocol):
    """Counts what admitted workloads use, and decides whether more fits."""

    def fits(self, hold: Hold) -> bool:
        """Return whether all of `hold` is available now."""

    def add(self, hold: Hold) -> None:
        """Charge `hold`, whether it fits or not."""

    def remove(self, hold: Hold) -> None:
        """Undo `add`, exactly; or try without what a workload holds, which `add` undoes exactly."""


class QuotaLimit:
    """Quota of ClusterQueues and Cohorts as a limit."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree

    def fits(self, hold: Hold) -> bool:
        return self._tree.fits(hold.node, hold.cells)

    def add(self, hold: Hold) -> None:
        self._tree.add(hold.node, hold.cells)

    def remove(self, hold: Hold) -> None:
        self._tree.remove(hold.node, hold.cells)


class RoomLimit:
    """Room on nodes as a limit."""

    def __init__(self, room: NodeRoom) -> None:
        self._room = room

    def fits(self, hold: Hold) -> bool:
        return not hold.pods or self._room.fits(hold.pods)

    def add(self, hold: Hold) -> None:
        if hold.owner is not None and self._room:
            self._room.add(hold.owner, hold.pods, hold.spots)

    def remove(self, hold: Hold) -> None:
        if hold.owner is not None and self._room:
            self._room.remove(hold.owner, ended=hold.ended)


class Limits:
    """All limits together. Quota is asked first: it is cheaper, and binds more often."""

    def __init__(self, tree: QuotaTree, room: NodeRoom) -> None:
        self._quota: AdmissionLimit = QuotaLimit(tree)
        self._nodes: AdmissionLimit = RoomLimit(room)
        self._room = room

    def fits(self, hold: Hold) -> bool:
        return self._quota.fits(hold) and self._nodes.fits(hold)

    def add(self, hold: Hold) -> None:
        self._quota.add(hold)
        self._nodes.add(hold)

    def remove(self, hold: Hold) -> None:
        self._quota.remove(hold)
        self._nodes.remove(hold)

    def lacks_room(self, hold: Hold) -> bool:
        """Return whether nodes alone prevent `hold`: quota is available."""
        return self._quota.fits(hold) and not self._nodes.fits(hold)

    def placed(self, hold: Hold) -> Hold:
        """Return `hold` with the nodes that its pods would get now."""
        return replace(hold, spots=self._room.place(hold.pods)) if hold.pods else hold


Change = tuple[Hold, bool]
"""What was held, and whether it was added."""


class LimitsJournal:
    """Limits whose changes are recorded, so that they can be undone and redone (C5)."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changes: list[Change] = []

    @property
    def changed(self) -> Iterable[QuotaNode]:
        """The ClusterQueues that changes were made at."""
        return (hold.node for hold, _ in self._changes)

    def fits(self, hold: Hold) -> bool:
        return self._limits.fits(hold)

    def lacks_room(self, hold: Hold) -> bool:
        return self._limits.lacks_room(hold)

    def placed(self, hold: Hold) -> Hold:
        return self._limits.placed(hold)

    def add(self, hold: Hold) -> None:
        self._limits.add(hold)
        self._changes.append((hold, True))

    def remove(self, hold: Hold) -> None:
        self._limits.remove(hold)
        self._changes.append((hold, False))

    def mark(self) -> int:
        """Return a position in the journal for `undo`."""
        return len(self._changes)

    def undo(self, mark: int = 0) -> list[Change]:
        """Undo the changes since `mark`. Return them in the order in which they were made, for `redo`."""
        undone = self._changes[mark:]
        del self._changes[mark:]
        for hold, added in reversed(undone):
            if added:
                self._limits.remove(hold)
            else:
                self._limits.add(hold)
        return undone

    def redo(self, changes: Iterable[Change]) -> None:
        """Make `changes` again."""
        for hold, added in changes:
            if added:
                self.add(hold)
            else:
                self.remove(hold)
