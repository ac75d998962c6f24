"""What limits an admission, as one interface, and trials: changes of limits that are rolled back.

Quota (`core/quota/tree.py`) and room on nodes (`core/features/nodes/room.py`) are its implementations; a
topology can be a third. Admission cycles, preemption searches and claims use this interface only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import Protocol

from queuectl.core.features.nodes.placing import Spots
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.pods import Pods
from queuectl.core.model.values import value
from queuectl.core.model.workload import WorkloadId
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree


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
        self.journal: list[Change] = []
        """The changes of all open trials, in order."""
        self.released: set[WorkloadId] = set()
        """Holders that an open trial releases."""

    def fits(self, hold: Hold) -> bool:
        """Return whether all of `hold` is available now."""
        return self._quota.fits(hold) and self._nodes.fits(hold)

    def lacks_room(self, hold: Hold) -> bool:
        """Return whether nodes alone prevent `hold`: quota is available."""
        return self._quota.fits(hold) and not self._nodes.fits(hold)

    def placed(self, hold: Hold) -> Hold:
        """Return `hold` with the nodes that its pods would get now."""
        return replace(hold, spots=self._room.place(hold.pods)) if hold.pods else hold

    def trying(self) -> Trial:
        """Return a trial, the only way to change limits: `with limits.trying() as trial:`. Trials nest."""
        return Trial(self)

    def charge(self, hold: Hold) -> None:
        """For trials: charge `hold`, whether it fits or not."""
        self._quota.add(hold)
        self._nodes.add(hold)

    def discharge(self, hold: Hold) -> None:
        """For trials: undo `charge`, exactly; or take away what a workload holds."""
        self._quota.remove(hold)
        self._nodes.remove(hold)


class _Kind(Enum):
    ADDED = auto()
    REMOVED = auto()
    RELEASED = auto()


Change = tuple[Hold, _Kind]


class Trial:
    """What is tried on limits. It is rolled back at the end of its `with` block, in any case (C5)."""

    __slots__ = ("_journal", "_limits", "_start")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._journal = limits.journal
        self._start = len(limits.journal)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.roll_back()

    def add(self, hold: Hold) -> None:
        """Charge `hold`, whether it fits or not."""
        self._limits.charge(hold)
        self._journal.append((hold, _Kind.ADDED))

    def remove(self, hold: Hold) -> None:
        """Take away `hold`, which was added, or is what a workload holds."""
        self._limits.discharge(hold)
        self._journal.append((hold, _Kind.REMOVED))

    def release(self, hold: Hold) -> None:
        """Take away what a workload holds, which then counts as released: it is no candidate of a search."""
        owner, released = hold.owner, self._limits.released
        if owner is None or owner in released:
            self.remove(hold)
            return
        self._limits.discharge(hold)
        released.add(owner)
        self._journal.append((hold, _Kind.RELEASED))

    def keep(self) -> None:
        """What was tried so far stays for the outer trial, which rolls it back at its own end."""
        self._start = len(self._journal)

    def roll_back(self) -> None:
        """Undo what was tried so far and not kept, the last change first."""
        journal, limits = self._journal, self._limits
        while len(journal) > self._start:
            hold, kind = journal.pop()
            if kind is _Kind.ADDED:
                limits.discharge(hold)
                continue
            limits.charge(hold)
            if kind is _Kind.RELEASED and hold.owner is not None:
                limits.released.discard(hold.owner)
