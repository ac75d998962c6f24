"""The admission cycles of one plan: which heads are admitted, preempt, or stay pending and why (C1 to C9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from queuectl.core.cycle.cycle_pass import (
    CyclePass,
    Preempting,
    borrows_for_now,
    order_of_preemptor,
    waiting_again,
)
from queuectl.core.cycle.nomination import Nomination, Nominator
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.cycle.reserved_room import ReservedRoom
from queuectl.core.decisions import Evaluation, Keep
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.feature import StartCheck, lacking
from queuectl.core.flavors.assignment import NOTHING, AssignmentResult
from queuectl.core.flavors.queue_flavors import LastTriedFlavors, Mode
from queuectl.core.limits import Snapshot, Trial
from queuectl.core.model.policy import PreemptionPolicy
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.queues.inadmissible import Groups
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.shares import tournament
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree

ByRoot = dict[QuotaNode, list[QueueHeads]]
ClaimsByRoot = dict[QuotaNode, list[PreemptionClaim]]


@dataclass(slots=True)
class CycleOutcome:
    """What the cycles of one plan came to."""

    admitted: list[tuple[Entry, AssignmentResult]] = field(default_factory=list)
    preempting: list[Preempting] = field(default_factory=list)
    refused: dict[EquivalenceGroup, Keep] = field(default_factory=dict)
    """About the head of each group that becomes inadmissible."""
    waiting: list[Keep] = field(default_factory=list)
    """Preemptors that do not fit before their victims are gone, with what they claim (C13)."""
    must_wait: list[Keep] = field(default_factory=list)
    """Heads that would be admitted or preempt, but for a start check (N6)."""
    unfinished: list[Keep] = field(default_factory=list)
    """Heads that the next cycle would have nominated again, had there been one."""
    moved: set[WorkloadId] = field(default_factory=set)
    """Heads that were admitted, that preempt, or that must wait."""
    work: int = 0
    searched: int = 0
    """Nominations and searches, in addition to `work`."""
    left: list[str] = field(default_factory=list)
    """Roots of trees with heads that the budget did not reach, those first that got no cycle."""


@dataclass(slots=True, kw_only=True)
class PlanHeads:
    """Which heads a plan nominates, and why."""

    queues: list[PendingQueue]
    """Those in which anything is to be decided."""
    requeued: Groups
    """Inadmissible groups that what the plan makes available may help (W2)."""
    claims: ClaimsByRoot
    """Those that still wait for victims."""
    granted: ClaimsByRoot
    """Those that do not."""
    helped: set[str]
    """ClusterQueues of which the preemptor may fit before its victims are gone (C13)."""
    heads: list[QueueHeads]


def keep(
    entry: Entry,
    reason: Reason,
    evaluation: Evaluation | None = None,
    *,
    claim: PreemptionClaim | None = None,
) -> Keep:
    """Return the decision that a workload goes on waiting; it is a row of the ledger if the reason is new."""
    recorded = entry.reason is None or entry.reason.key != reason.key
    return Keep(entry.id, entry.ref, reason, recorded, evaluation=evaluation, claim=claim)


class Cycles:
    """Runs cycles until no head moves, `budget` heads were nominated, or a number of cycles is done (C1)."""

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        nominator: Nominator,
        checks: Sequence[StartCheck],
        heads: PlanHeads,
        budget: int,
    ) -> None:
        self._snapshot = snapshot
        self._tree = snapshot.tree
        self._nominator = nominator
        self._checks = checks
        self._budget = budget
        self._heads, self._helped = heads.heads, heads.helped
        self._claims, self._granted = heads.claims, heads.granted
        self._reserved_room: ReservedRoom | None = None
        """None: quota alone is limited."""
        if snapshot.limits.others:
            roots = heads.claims | heads.granted
            claims = {root: self._claims.get(root, []) + self._granted.get(root, []) for root in roots}
            self._reserved_room = ReservedRoom(snapshot, trial, claims)
        self._judged_again = 0
        """Groups judged before the cycles (C12), which have a budget of their own: each plan gets on."""
        self.outcome = CycleOutcome()

    def run(self, limit: int | None, first: Sequence[str]) -> CycleOutcome:
        """Run at most `limit` cycles (None: no limit). `first`: roots of trees that come first, in order."""
        roots: ByRoot = {}
        for heads in self._heads:
            roots.setdefault(self._tree.root_of(heads.queue.name), []).append(heads)
        if first:
            places = {root: place for place, root in enumerate(first)}
            roots = dict(sorted(roots.items(), key=lambda item: places.get(str(item[0]), len(places))))
        done = 0
        last: ByRoot = {}
        while roots and (limit is None or done < limit):
            self._round(roots, last, first=done == 0)
            done += 1
        if last:
            self._leave_unfinished(chain.from_iterable(last.values()))
        for heads in self._heads:
            heads.put_back()
        self.outcome.searched = self._nominator.work
        return self.outcome

    def _round(self, roots: ByRoot, last: ByRoot, *, first: bool) -> None:
        """One cycle of each tree. Trees where no head is left are taken out of `roots`; all are, at the end
        of the budget. `last`: by root, the heads that are to be nominated again."""
        order, room = list(roots), self._reserved_room
        for place, root in enumerate(order):
            if room is not None:
                room.lift(root)
            if first:
                self._begin(root, roots[root])
            left = [heads for heads in roots[root] if heads.advance() is not None]
            if all(heads.reserving_only for heads in left):
                del roots[root]
                last.pop(root, None)
            elif self.outcome.work >= self._budget:
                self.outcome.left = [str(root) for root in (*order[place:], *order[:place])]
                roots.clear()
                return
            else:
                roots[root] = left
                last[root] = self._cycle(root, left)
            if room is not None:  # other trees are decided next
                room.reserve(root, self._claims.get(root, ()))

    def _admit_early(self, root: QuotaNode, queues: Iterable[QueueHeads]) -> None:
        """Admit preemptors that fit before their victims are gone, in the order of O1 (C13)."""
        helped = [one for one in queues if one.queue.blocked and one.queue.name in self._helped]
        claims = {one.cluster_queue: one for one in self._claims.get(root, ())}
        for heads in sorted(helped, key=order_of_preemptor):
            entry, claim = heads.preemptor, claims.get(heads.queue.name)
            if entry is None or claim is None:
                continue  # its victims go in this plan
            self.outcome.work += 1
            nomination = self._nominator.claimed(entry)
            if nomination is None or not self._admit_beside(root, heads, nomination, claim):
                assert entry.reason is not None
                self.outcome.waiting.append(keep(entry, entry.reason, claim=claim))
                continue
            self._claims[root].remove(claim)
            heads.blocked = heads.beside = False
            heads.admit()
            self._note_admission(nomination)

    def _admit_beside(
        self, root: QuotaNode, heads: QueueHeads, nomination: Nomination, claim: PreemptionClaim
    ) -> bool:
        """Admit it, if it fits beside its victims, and borrows no more than when they are gone.

        Return whether it does.
        """
        if borrows_for_now(self._snapshot, nomination, claim):
            return False
        entry, assignment = nomination.entry, nomination.found.assignment
        if self._checks and lacking(self._checks, entry, assignment, (), observed=True) is not None:
            return False
        heads.nomination = nomination
        others = [one for one in (*self._granted.get(root, ()), *self._claims[root]) if one is not claim]
        with self._snapshot.limits.trying() as trial:
            cycle_pass = CyclePass(self._snapshot, trial, self._nominator, others, self._reserved_room or ())
            fits = cycle_pass.process(heads) is Mode.FIT
            self._take_over(root, cycle_pass)
        return fits

    def _begin(self, root: QuotaNode, queues: Iterable[QueueHeads]) -> None:
        """Before the first cycle of a tree: admit preemptors that fit (C13). Nominate what an earlier process
        refused: what has no chance now takes no turn in a cycle (C12)."""
        if self._helped:
            self._admit_early(root, queues)
        for heads in queues:
            if heads.refused and not heads.blocked and heads.preemptor is None:
                heads.drop({group for group in heads.refused if self._is_refused_again(heads, group)})

    def _is_refused_again(self, heads: QueueHeads, group: EquivalenceGroup) -> bool:
        entry = group.head()
        if entry is None or self._judged_again >= self._budget:
            return False
        self._judged_again += 1
        nomination = self._nominated(heads, entry, NOTHING)
        while nomination.found.tried and not nomination.promising:
            nomination = self._nominated(heads, entry, nomination.found.tried)
        reason = nomination.found.reason
        if nomination.promising or reason is None:
            return False
        if nomination.found.mode.preempts and not entry.refused:
            return False  # it came first in its group meanwhile: other workloads are newer than it (P2)
        reserves = self._note_refusal(heads, nomination, reason, reserved=False)
        heads.reserving_only |= reserves
        heads.blocked |= heads.queue.strict and not reserves
        return not reserves

    def _cycle(self, root: QuotaNode, queues: list[QueueHeads]) -> list[QueueHeads]:
        """One cycle of one tree: nominate all heads, then process them in order (C1 to C4).

        Returns the heads that are to be nominated again.
        """
        again: list[QueueHeads] = []
        skipped: list[QueueHeads] = []
        nominated, progress = self._nominate_all(queues, again)
        claims = self._claims.get(root, [])
        with self._snapshot.limits.trying() as trial:
            cycle_pass = CyclePass(self._snapshot, trial, self._nominator, claims, self._reserved_room or ())
            for heads in self._in_order(nominated):
                nomination = heads.nomination
                if self._checks and self._must_wait(heads):
                    heads.admit()
                    progress = True
                    continue
                match cycle_pass.process(heads):
                    case None:
                        skipped.append(heads)
                    case Mode.NO_CANDIDATES:
                        progress |= self._refuse(heads, again)
                    case Mode.FIT:
                        heads.admit()
                        self._note_admission(nomination)
                        progress = True
                    case _:
                        heads.preempt()
                        self._note_preemption(nomination)
                        progress = True
            self._take_over(root, cycle_pass)
        for heads in skipped:
            if progress:
                heads.last_tried[heads.nomination.entry.id] = NOTHING
                again.append(heads)
            else:  # only what is reserved for others is in its way, which changes by an event alone
                self._refuse(heads, again, self._reserved(heads.nomination))
        return again

    def _must_wait(self, heads: QueueHeads) -> bool:
        """Note a head that a start check does not admit; its next one takes its place (N6).

        The victims of a preemptor are gone: what the cluster says is used may be older than that.
        """
        nomination = heads.nomination
        if not nomination.promising:
            return False
        gone = (target.entry.id for target in nomination.victims)
        entry, assignment = nomination.entry, nomination.found.assignment
        reason = lacking(self._checks, entry, assignment, gone, observed=not heads.preempted)
        if reason is not None:
            self.outcome.moved.add(entry.id)
            self.outcome.must_wait.append(keep(entry, reason, Evaluation(must_wait=True)))
        return reason is not None

    def _note_admission(self, nomination: Nomination) -> None:
        """A head is admitted: from now on this counts as its usage, and for start checks."""
        self.outcome.moved.add(nomination.entry.id)
        self._snapshot.admit(nomination.entry, nomination.found.assignment)
        for check in self._checks:
            check.admit(nomination.entry, nomination.found.assignment)

    def _note_preemption(self, nomination: Nomination) -> None:
        self.outcome.moved.add(nomination.entry.id)
        for check in self._checks:
            check.preempt(nomination.entry, nomination.found.assignment)

    def _nominate_all(
        self, queues: Iterable[QueueHeads], again: list[QueueHeads]
    ) -> tuple[list[QueueHeads], bool]:
        """Return the heads with a chance, and whether one without a chance was refused."""
        nominated: list[QueueHeads] = []
        progress = False
        for heads in queues:
            nomination = heads.nomination = self._nominate(heads)
            if nomination.found.mode is Mode.NO_FIT:
                progress |= self._refuse(heads, again)
            elif heads.beside and nomination.victims:
                lacking = nomination.found.reason or heads.queue.waiting_for_head()
                progress |= self._refuse(heads, again, lacking)
            else:
                nominated.append(heads)
        return nominated, progress

    def _nominate(self, heads: QueueHeads) -> Nomination:
        entry = heads.head()
        assert entry is not None
        self.outcome.work += 1
        tried = heads.last_tried.get(entry.id, entry.last_tried)
        earlier = bool(entry.last_tried) and not heads.reserving_only
        nomination = self._nominated(heads, entry, tried, earlier=earlier)
        if heads.preemptor is entry and (claim := heads.queue.claim) is not None:
            return waiting_again(self._snapshot, self._nominator, nomination, claim, tried)
        return nomination

    def _nominated(
        self, heads: QueueHeads, entry: Entry, last_tried: LastTriedFlavors, *, earlier: bool = False
    ) -> Nomination:
        """`earlier`: an earlier plan tried some of these flavors, and quota or room may have come since."""
        nomination = self._nominator.nominate(entry, last_tried)
        over = not nomination.found.tried if last_tried else heads.reserving_only
        if over and not nomination.promising:
            return self._from_all_flavors(entry, tried_now=not earlier)
        return nomination

    def _take_over(self, root: QuotaNode, cycle_pass: CyclePass) -> None:
        """Add what came of a cycle to the outcome."""
        cycle_pass.end()
        self.outcome.admitted += [(one.entry, one.found) for one in cycle_pass.admitted]
        self.outcome.preempting += cycle_pass.preempting
        if cycle_pass.preempting:
            self._claims.setdefault(root, []).extend(one.claim for one in cycle_pass.preempting)

    def _from_all_flavors(self, entry: Entry, *, tried_now: bool) -> Nomination:
        """All flavors were tried, in several cycles: judge them together for the reason (F8)."""
        nomination = self._nominator.nominate(entry)
        found = nomination.found
        if nomination.promising and tried_now:  # and yet not admitted: the quota is reserved for others
            found.reason = _reserved_for_others(self._tree, nomination.flavors.node, found.cells)
            found.mode, nomination.victims, nomination.reserved = Mode.NO_FIT, (), True
        found.tried = NOTHING
        return nomination

    def _in_order(self, nominated: list[QueueHeads]) -> Iterator[QueueHeads]:
        """Yield the heads of one tree: preemptors first (C7), then in the order of O5, or of S4 and U7."""
        if len(nominated) < 2:
            yield from nominated
            return
        node = nominated[0].node
        usage = self._snapshot.usage_of_members(node)
        if usage is not None or self._tree.shares_fairly(node):
            first = [one for one in nominated if one.preempted]
            others = [one for one in nominated if not one.preempted]  # asked before any of `first` moves
            yield from first
            yield from tournament(self._tree, others, usage.of_node if usage is not None else None)
        else:
            yield from sorted(nominated, key=_place)

    def _refuse(self, heads: QueueHeads, again: list[QueueHeads], reason: Reason | None = None) -> bool:
        """The head stays pending: inadmissible with its group, unless it has flavors left to try (F8)."""
        nomination, found = heads.nomination, heads.nomination.found
        reserved = reason is not None or nomination.reserved
        reason = reason or found.reason
        assert reason is not None
        if found.tried:
            heads.last_tried[nomination.entry.id] = found.tried
            again.append(heads)
            return True
        if self._note_refusal(heads, nomination, reason, reserved=reserved):
            known = heads.reserving_only
            heads.reserving_only = True
            return not known
        heads.mark_inadmissible()
        return True

    def _note_refusal(
        self, heads: QueueHeads, nomination: Nomination, reason: Reason, *, reserved: bool
    ) -> bool:
        """Its group becomes inadmissible. Return whether the head reserves quota all the same (C6)."""
        rules = self._snapshot.rules(nomination.flavors.node)
        reserves = (
            heads.queue.strict
            and nomination.found.mode.preempts
            and rules.reclaim_within_cohort is not PreemptionPolicy.ANY
        )
        evaluation = Evaluation(
            may_preempt=rules.enabled or reserved,
            reserves=reserves,
            until=nomination.protected,
            lacking=nomination.lacking or ((nomination.pods,) if reserved else ()),
        )
        group = nomination.entry.group
        assert group is not None
        self.outcome.refused[group] = keep(nomination.entry, reason, evaluation)
        return reserves

    def _reserved(self, nomination: Nomination) -> Reason:
        """It would fit, but what is available is reserved for workloads that come first."""
        if nomination.lacks_room:
            return self._snapshot.limits.why_reserved(nomination.pods)
        return _reserved_for_others(self._tree, nomination.flavors.node, nomination.found.cells)

    def _leave_unfinished(self, nominated: Iterable[QueueHeads]) -> None:
        for heads in nominated:
            nomination, entry = heads.nomination, heads.nomination.entry
            if heads.head() is not entry:
                continue
            reason = nomination.found.reason or self._reserved(nomination)
            last_tried = heads.last_tried.get(entry.id, NOTHING)
            evaluation = Evaluation(again=True, last_tried=tuple(last_tried.items()))
            self.outcome.unfinished.append(keep(entry, reason, evaluation))


def _place(heads: QueueHeads) -> tuple[object, ...]:
    """Return the place of a head in O5; no two have the same."""
    return (not heads.preempted, heads.nomination.found.level, *heads.order)


def _reserved_for_others(tree: QuotaTree, node: QuotaNode, cells: Cells) -> Reason:
    """Return the reason of a workload whose quota is reserved for workloads ahead of it (C6, C7).

    It names the limit that leaves least: the limit that binds while that quota is in use.
    """
    cell, amount = max(cells, key=lambda item: item[1] - tree.available(node, item[0]))
    return replace(tree.explain(node, cell, amount), short_by=None, reserved=True)
