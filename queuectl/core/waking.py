"""Whom to look at again, and what is kept for whom meanwhile (docs/scheduling.md, C6, C7, W1 to W4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from queuectl.core.claims import Claims, OpenClaim
from queuectl.core.decisions import Claim
from queuectl.core.directory import Directory
from queuectl.core.model import WorkloadId
from queuectl.core.pending import Entry, Group, Line
from queuectl.core.quota import Node
from queuectl.core.resources import FlavorResource
from queuectl.core.rules import Settings
from queuectl.core.shares import shares_fairly
from queuectl.core.timers import Timers
from queuectl.core.wakes import Freed, helped, tempted


class Waking:
    """Wakes groups of `lines`, and notes in `due` the names of lines in which something is to be decided."""

    def __init__(
        self, directory: Directory, lines: Mapping[str, Line], due: set[str], settings: Settings
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._tree = directory.tree
        self._lines = lines
        self._due = due
        self.claims = Claims()
        self._freed: Freed = {}
        """What came free since somebody was last woken for it."""
        self._charged: list[Entry] = []
        """Those that have come to hold quota since then, or hold it at another priority."""
        self._protections: Timers[Group] = Timers()
        """When those whom a parked group might preempt are protected no longer (W4)."""
        self._preemptors: set[str] = set()
        """Those for whom somebody was being evicted when this process started, as evictions name them."""

    def wake(self) -> None:
        """Those whom what came free can help, and those who could take from who came to hold quota."""
        freed, self._freed = self._freed, {}
        charged, self._charged = self._charged, []
        woken = helped(self._tree, self._lines, freed)
        woken |= tempted(self._tree, self._lines, self._directory.queues, charged, self._fair)
        for group in woken:
            group.line.call(group)
            self._due.add(group.line.name)

    def _fair(self, node: Node) -> bool:
        return shares_fairly(self._tree, node, self._settings)

    def _wake(self, group: Group) -> None:
        group.line.wake(group)
        self._due.add(group.line.name)

    def rethink(self, line: Line) -> None:
        """Look at everybody in it again, and at what its preemptor claims."""
        line.wake_all()
        if line.preemptor is not None:
            self.claims.drop(line.preemptor.id)
            line.blocked, line.promised = False, None
        self._due.add(line.name)

    # --- what happened

    def free(self, node: Node, cells: Iterable[FlavorResource]) -> None:
        """Some of `cells` came free at a ClusterQueue."""
        self._freed.setdefault(node, set()).update(cells)

    def charge(self, entry: Entry) -> None:
        """It holds quota, or another priority than before: others may take its place now (W3)."""
        self._charged.append(entry)

    def ended(self, entry: Entry) -> None:
        """It holds nothing any more: who waited for that alone is looked at."""
        for claim in self.claims.gone(entry.id):
            if claim.owner.group is not None:
                claim.owner.group.line.blocked = False
                self._due.add(claim.owner.group.line.name)

    def leave(self, entry: Entry) -> None:
        """It leaves its line, and with it what was kept for it."""
        if entry.group is None:
            return
        line = entry.group.line
        if line.keeps and entry.group.head() is entry:
            self.keep_back(line, frozenset())
        self.drop_claim(entry)
        line.remove(entry)
        self._due.add(line.name)

    # --- what is kept

    def open_claim(self, entry: Entry, claim: Claim, entries: Mapping[WorkloadId, Entry]) -> None:
        """Nobody else gets what `entry`'s victims leave; nobody behind it is looked at meanwhile (C7)."""
        assert entry.group is not None
        line = entry.group.line
        if line.preemptor is not None and line.preemptor is not entry:
            self.drop_claim(line.preemptor)
        line.preemptor, line.promised = entry, claim.assignment
        victims = {
            victim.workload: holder
            for victim in claim.victims
            if (holder := entries.get(victim.workload)) is not None
            and holder.attempt is not None
            and holder.attempt.number == victim.attempt
        }
        line.blocked = bool(victims)
        if victims:
            node = self._tree.queue(claim.cluster_queue)
            self.claims.open(OpenClaim(entry, node, list(claim.cells), victims))
        else:
            self._due.add(line.name)

    def drop_claim(self, entry: Entry) -> None:
        claim = self.claims.drop(entry.id)
        if claim is not None:
            self.free(claim.node, (self._tree.names[cell] for cell, _ in claim.cells))

    def keep_back(self, line: Line, cells: frozenset[FlavorResource]) -> None:
        """What its head keeps back from others from now on (C6)."""
        if line.keeps - cells:
            self.free(self._tree.queue(line.name), line.keeps - cells)
        line.keeps = cells

    # --- what time and a restart bring

    def protect(self, group: Group, until: datetime | None) -> None:
        """Look at it again then."""
        self._protections.set(group, until)

    @property
    def due_at(self) -> datetime | None:
        return self._protections.earliest

    def time_came(self, now: datetime) -> None:
        for group in self._protections.take(now):
            self._wake(group)

    def expect(self, preemptor: str) -> None:
        """Somebody is being evicted for it: it comes first in its line when it is seen (C7)."""
        self._preemptors.add(preemptor)

    def stands(self, entry: Entry, line: Line) -> None:
        """It has come to stand in `line`."""
        self._due.add(line.name)
        if self._preemptors and line.preemptor is None and str(entry.ref) in self._preemptors:
            self._preemptors.discard(str(entry.ref))
            line.preemptor, line.promised = entry, None
