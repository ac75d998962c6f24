"""Admission cycles: who goes, who makes room, who stays and why (docs/scheduling.md, C1 to C9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from queuectl.core.claims import OpenClaim
from queuectl.core.contest import Field, Target, leaving
from queuectl.core.cursor import Cursor
from queuectl.core.decisions import Claim, Look, Victim
from queuectl.core.explaining import NO_BOUND, kept_for_others
from queuectl.core.fairness import tournament
from queuectl.core.flavors import Assigned, Mode
from queuectl.core.menus import Group, Tried
from queuectl.core.model import WorkloadId
from queuectl.core.nominating import Nomination
from queuectl.core.ordering import Place
from queuectl.core.pending import Entry, Line
from queuectl.core.pending import Group as Equals
from queuectl.core.quota import Cells, Node
from queuectl.core.reasons import Code, Reason
from queuectl.core.rules import Within
from queuectl.core.trial import Trial

Nominate = Callable[[Entry, Tried, Mapping[Group, str]], Nomination]


@dataclass(slots=True)
class Schedule:
    """Outcome of the cycles of one decision."""

    admitted: list[tuple[Entry, Assigned]] = field(default_factory=list)
    preempting: list[tuple[Entry, Reason, Claim, list[Target]]] = field(default_factory=list)
    refused: dict[Equals, tuple[Entry, Reason, Look]] = field(default_factory=dict)
    """Head and finding of each group that was looked at in vain."""
    lingering: list[tuple[Entry, Reason, Look]] = field(default_factory=list)
    """Heads that would have been looked at again in the next cycle, where there was none."""
    work: int = 0
    more: bool = False


@dataclass(slots=True)
class _Head:
    cursor: Cursor
    nomination: Nomination

    @property
    def entry(self) -> Entry:
        return self.nomination.entry

    @property
    def node(self) -> Node:
        return self.nomination.menu.node

    @property
    def cells(self) -> Cells:
        return self.nomination.cells

    @property
    def order(self) -> Place:
        return self.entry.order

    @property
    def sticky(self) -> bool:
        """It has preempted before."""
        return self.cursor.first is self.entry


class Cycles:
    """Runs cycles until nobody else fits, `budget` heads have been looked at or `limit` cycles are done."""

    def __init__(
        self,
        field: Field,
        trial: Trial,
        nominate: Nominate,
        claims: Iterable[OpenClaim],
        budget: int,
        limit: int | None = None,
    ) -> None:
        self._field = field
        self._trial = trial
        self._tree = trial.tree
        self._nominate = nominate
        self._budget = budget
        self._limit = limit
        self._claims: dict[Node, list[OpenClaim]] = {}
        for claim in claims:
            self._claims.setdefault(self._tree.root(claim.node), []).append(claim)
        self.outcome = Schedule()

    def run(self, cursors: Iterable[Cursor]) -> Schedule:
        roots: dict[Node, list[Cursor]] = {}
        for cursor in cursors:
            roots.setdefault(self._tree.root(self._tree.queue(cursor.line.name)), []).append(cursor)
        all_cursors = [cursor for found in roots.values() for cursor in found]
        done = 0
        last: dict[Node, list[_Head]] = {}
        while roots and (self._limit is None or done < self._limit):
            done += 1
            for root in list(roots):
                alive = [c for c in roots[root] if c.advance(self._tree) is not None]
                if all(cursor.passive for cursor in alive):
                    del roots[root]
                    last.pop(root, None)
                    continue
                if self.outcome.work >= self._budget:
                    self.outcome.more = True
                    roots.clear()
                    break
                roots[root] = alive
                last[root] = self._cycle(root, alive)
        if last:
            self._linger(head for heads in last.values() for head in heads)
        for cursor in all_cursors:
            cursor.put_back()
        return self.outcome

    def _cycle(self, root: Node, cursors: Sequence[Cursor]) -> list[_Head]:
        """One cycle of one tree: nominate all heads, then go through them in order (C1 to C4).

        Returns those that are to be looked at again.
        """
        outcome = self.outcome
        heads: list[_Head] = []
        again: list[_Head] = []
        progress = False
        for cursor in cursors:
            entry = cursor.peek()
            assert entry is not None
            outcome.work += 1
            tried = cursor.tried.get(entry.id, entry.tried)
            nomination = self._nominate(entry, tried, NO_BOUND)
            if tried and not nomination.found.tried and not _promising(nomination):
                nomination = self._all_together(entry)
            head = _Head(cursor, nomination)
            if nomination.mode is Mode.NO_FIT:
                progress |= self._refuse(head, again)
            else:
                heads.append(head)
        course = _Course(self._field, self._trial, self._claims.get(root, []), self._nominate)
        skipped: list[_Head] = []
        for head in self._in_order(heads):
            verdict = course.process(head)
            if verdict is None:
                skipped.append(head)
            elif verdict is Mode.NO_CANDIDATES:
                progress |= self._refuse(head, again)
            else:
                progress = True
                head.cursor.take()
                if verdict is Mode.PREEMPT:
                    head.cursor.blocked = True
        course.end()
        outcome.admitted += course.admitted
        for entry, found in course.admitted:
            self._field.add(entry, found.assignment)
        outcome.preempting += course.preempting
        if course.claims:
            self._claims.setdefault(root, []).extend(course.claims)
        for head in skipped:
            if progress:
                head.cursor.tried[head.entry.id] = NO_BOUND
                again.append(head)
            else:  # only what is kept for others stands in its way: that changes by an event alone
                self._refuse(head, again, self._kept(head))
        return again

    def _all_together(self, entry: Entry) -> Nomination:
        """All flavors were looked at, each in another cycle: what keeps it out of all of them (F8)?"""
        nomination = self._nominate(entry, NO_BOUND, NO_BOUND)
        found = nomination.found
        if _promising(nomination):  # and yet it did not get it: it is kept for others
            found.reason = kept_for_others(self._tree, nomination.menu.node, found.cells)
            found.mode, nomination.victims = Mode.NO_FIT, ()
        found.tried = NO_BOUND
        return nomination

    def _in_order(self, heads: list[_Head]) -> Iterator[_Head]:
        """Of one tree: preemptors first (C7), then as O5 or S4 say."""
        if heads and self._field.fair(heads[0].node):
            first = [head for head in heads if head.sticky]
            others = [head for head in heads if not head.sticky]  # taking one of `first` makes it look so
            yield from first
            yield from tournament(self._tree, others)
        else:
            yield from sorted(
                heads, key=lambda head: (not head.sticky, head.nomination.found.level, *head.order)
            )

    def _refuse(self, head: _Head, again: list[_Head], reason: Reason | None = None) -> bool:
        """Leave it waiting: parked with its group, unless it has flavors left to try (F8)."""
        found = head.nomination.found
        reason = reason or found.reason
        assert reason is not None
        if found.tried:
            head.cursor.tried[head.entry.id] = found.tried
            again.append(head)
            return True
        rules = self._field.rules(head.node)
        holds_back = (
            head.cursor.line.strict
            and found.mode is not Mode.FIT
            and found.mode.preempts
            and rules.reclaim_within_cohort is not Within.ANY
        )
        look = Look(
            contends=rules.any,
            holds_back=holds_back,
            until=head.nomination.protected,
        )
        group = head.entry.group
        assert group is not None
        if holds_back:
            known = head.cursor.passive
            head.cursor.passive = True
            self.outcome.refused[group] = (head.entry, reason, look)
            return not known
        head.cursor.park()
        self.outcome.refused[group] = (head.entry, reason, look)
        return True

    def _kept(self, head: _Head) -> Reason:
        """It would fit, but what is free is kept for those that come before it."""
        return kept_for_others(self._tree, head.node, head.nomination.cells)

    def _linger(self, heads: Iterable[_Head]) -> None:
        for head in heads:
            if head.cursor.peek() is not head.entry:
                continue
            found = head.nomination.found
            reason = found.reason or self._kept(head)
            tried = head.cursor.tried.get(head.entry.id, NO_BOUND)
            look = Look(again=True, tried=tuple(tried.items()))
            self.outcome.lingering.append((head.entry, reason, look))


def _promising(nomination: Nomination) -> bool:
    return nomination.mode is Mode.FIT or bool(nomination.victims)


class _Course:
    """One cycle's way through its heads, as if everybody chosen to go were gone already (C3).

    Claims of earlier cycles count as processed first.
    """

    def __init__(self, field: Field, trial: Trial, claims: Iterable[OpenClaim], nominate: Nominate) -> None:
        self._field = field
        self._trial = trial
        self._nominate = nominate
        self._mark = trial.mark()
        self._chosen: dict[WorkloadId, Entry] = {}
        self.admitted: list[tuple[Entry, Assigned]] = []
        self.preempting: list[tuple[Entry, Reason, Claim, list[Target]]] = []
        self.claims: list[OpenClaim] = []
        for claim in claims:
            self._chosen |= claim.victims
            trial.add(claim.node, claim.cells)
        self._ahead = trial.mark() > self._mark
        """Is more charged than is true now?"""

    def process(self, head: _Head) -> Mode | None:
        """FIT: admitted. PREEMPT: its victims are chosen. NO_CANDIDATES: refused. None: skipped."""
        nomination = head.nomination
        if nomination.mode.preempts and not nomination.victims:
            self._hold_back(head)
            return Mode.NO_CANDIDATES
        awaited = [t.entry for t in nomination.victims if t.entry.id in self._chosen]
        if awaited:
            again = self._again(nomination)
            if again is None:
                return None
            nomination = again
        own = {target.entry.id: target.entry for target in nomination.victims}
        fits_now = nomination.mode is Mode.FIT and not awaited
        with self._without((self._chosen | own).values()):
            fits = self._fits(head.node, nomination.cells)
        if not fits or (fits_now and self._ahead and not self._fits_now(head.node, nomination.cells)):
            return None
        self._trial.add(head.node, nomination.cells)
        if fits_now:
            self.admitted.append((head.entry, nomination.found))
            return Mode.FIT
        self._ahead = True
        self._chosen |= own
        self._claim(head, nomination, awaited)
        return Mode.PREEMPT

    @contextmanager
    def _without(self, victims: Collection[Entry]) -> Iterator[None]:
        mark = self._trial.mark()
        for victim in victims:
            assert victim.attempt is not None
            node = self._trial.tree.queue(victim.attempt.assignment.cluster_queue)
            self._trial.remove(node, victim.cells)
        yield
        self._trial.undo(mark)

    def _again(self, nomination: Nomination) -> Nomination | None:
        """Its victims are others' already: what would it get once those are gone, from the same flavors?"""
        menu = nomination.menu
        pinned = {
            (p.name, menu.of_resource[resource]): flavor
            for p in nomination.found.assignment.pod_sets
            for resource, flavor in p.flavors
        }
        chosen = self._chosen.keys() - self._field.away
        self._field.away |= chosen
        with self._without(self._chosen.values()):
            again = self._nominate(nomination.entry, NO_BOUND, pinned)
        self._field.away -= chosen
        return again if again.mode is Mode.FIT or again.victims else None

    def _claim(self, head: _Head, nomination: Nomination, awaited: list[Entry]) -> None:
        victims = {v.id: v for v in (*awaited, *(target.entry for target in nomination.victims))}
        claim = Claim(
            head.node.name,
            tuple(nomination.cells),
            tuple(Victim(v.id, v.attempt.number) for v in victims.values() if v.attempt is not None),
        )
        evicted = [target for target in nomination.victims if not leaving(target.entry)]
        self.preempting.append((head.entry, _waits_for(nomination, len(victims)), claim, evicted))
        self.claims.append(OpenClaim(head.entry, head.node, nomination.cells, victims))

    def _hold_back(self, head: _Head) -> None:
        """Keep what it could use from those that come after it in this cycle (C6)."""
        node = head.node
        if self._field.rules(node).reclaim_within_cohort is Within.ANY:
            return
        kept: Cells = []
        for cell, amount in head.nomination.cells:
            own = node.nominal[cell] - node.usage[cell]
            limit = node.borrowing[cell]
            if head.nomination.found.level > 0:
                amount = amount if limit is None else min(amount, own + limit)
            else:
                amount = min(amount, own)
            kept.append((cell, max(0, amount)))
        self._trial.add(node, kept)
        self._ahead = True

    def _fits(self, node: Node, cells: Cells) -> bool:
        tree = self._trial.tree
        for cell, amount in cells:
            if amount > max(0, tree.available(node, cell)):
                return False
        return True

    def _fits_now(self, node: Node, cells: Cells) -> bool:
        """While the victims are still there, too: nobody is let go on quota that is not free yet."""
        ahead = self._trial.undo(self._mark)
        mark = self._trial.mark()
        for entry, found in self.admitted:
            self._trial.add(self._node_of(entry, found), found.cells)
        fits = self._fits(node, cells)
        self._trial.undo(mark)
        self._trial.redo(ahead)
        return fits

    def _node_of(self, entry: Entry, found: Assigned) -> Node:
        return self._trial.tree.queue(found.assignment.cluster_queue)

    def end(self) -> None:
        """Back to what is true now, with those admitted charged."""
        if not self._ahead:
            return  # nothing else was charged
        self._trial.undo(self._mark)
        for entry, found in self.admitted:
            self._trial.add(self._node_of(entry, found), found.cells)


def _waits_for(nomination: Nomination, victims: int) -> Reason:
    found = nomination.found.reason
    detail = f"{victims} {'workload has' if victims == 1 else 'workloads have'} to end first"
    return Reason(
        code=Code.WAITING_FOR_PREEMPTED_WORKLOADS,
        flavor=found.flavor if found else None,
        resource=found.resource if found else None,
        requested=found.requested if found else None,
        available=found.available if found else None,
        short_by=found.short_by if found else None,
        node=str(nomination.menu.node),
        detail=detail,
    )


def tell(
    lines: Iterable[Line], outcome: Schedule, woken: Mapping[Equals, None]
) -> Iterator[tuple[Entry, Reason]]:
    """Who else than the heads that were refused is to be told why it waits, group by group in order (R2)."""
    leaving_ = {entry.id for entry, _ in outcome.admitted} | {item[0].id for item in outcome.preempting}
    blocked = {item[0].group.line for item in outcome.preempting if item[0].group is not None}
    groups = dict.fromkeys(outcome.refused)
    for line in lines:
        groups |= line.untold
    for group in groups:
        line = group.line
        known = None if group in woken or group in line.woken else group.parked
        head, reason, _ = outcome.refused.get(group, (None, known, None))
        if reason is None and (line.blocked or line in blocked):
            for entry in group.fresh.values():
                if entry.id not in leaving_ and entry is not line.preemptor:
                    yield entry, line.behind()
            continue
        if reason is None:
            continue  # it will be looked at
        told = line.behind() if line.strict else reason
        for entry in _untold(group, told):
            if entry is not head and entry.id not in leaving_:
                yield entry, told


def _untold(group: Equals, told: Reason) -> Iterable[Entry]:
    if group.reported == told.key:
        return group.fresh.values()
    return sorted(group.members.values(), key=lambda entry: entry.order)
