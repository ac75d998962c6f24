"""UsageLimits: how much users, accounts or all may use of a queue, beside its quota (X1 to X8).

A workload that has quota, but no room under a limit, leaves its pending queue until the limit has room: the
next head takes its place, under StrictFIFO too. A limit evicts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import ClassVar

from queuectl.core.charges import PodRequests
from queuectl.core.decisions import Admit, Amend, Decision, Keep
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.usage_limits.usage import (
    Holder,
    LimitRules,
    LimitUsage,
    add_demand,
    demand_for,
    demand_of,
)
from queuectl.core.features.usage_limits.waiters import Alike, LimitWaiters, PendingCounts, Want
from queuectl.core.model.events import Event, PolicyGone, PolicyObserved, TimeCame
from queuectl.core.model.policy import ClusterQueue, Cohort
from queuectl.core.model.reasons import Code, Limit, PreemptionCause, Reason, waits_for_victims
from queuectl.core.model.resources import FlavorResource, format_amount
from queuectl.core.model.usage_limits import WORKLOADS, Dimension, UsageLimit
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    Attribution,
    LedgerSnapshot,
    Workload,
    WorkloadId,
)
from queuectl.core.preemption.search import protected_until
from queuectl.core.queues.backoff import Timers
from queuectl.core.subjects import Place, Waiter, subject_of

KIND = "UsageLimit"
MOST_NOMINATED = 16
"""Waiters that are nominated again in one plan because of other victims: 1,000 users may wait for limits."""


class UsageLimits(Feature):
    """Is active while there is a UsageLimit."""

    events: ClassVar = frozenset({PolicyObserved})
    events_while_active: ClassVar = frozenset({PolicyGone, TimeCame})
    policies: ClassVar = UsageLimit
    decisions_while_active: ClassVar = frozenset({Admit, Amend, Keep})

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rules = LimitRules(kernel.directory)
        self.held = LimitUsage(self._rules)
        self._waiting = LimitWaiters()
        self.pending = PendingCounts()
        self._planned: dict[WorkloadId, tuple[Assignment, Holder]] = {}
        """What assignments of the plan under way take, as long as no policy changes."""
        self._parents: dict[tuple[str, str], str | None] = {}
        """The Cohorts above ClusterQueues and Cohorts, by kind and name."""
        self._outdated = False
        """Limits, or what they apply to, have changed: all use is to be added up again."""
        self._flavors_changed = False
        """What flavors offer may be less, or other, than before."""
        self._charged: set[str] = set()
        """ClusterQueues of workloads that came to hold quota, have another priority, or are not protected any
        more; of all waiters if policy has changed."""
        self._protections: Timers[WorkloadId] = Timers()
        """When holders may be preempted that are protected until then (P10, P11)."""
        self._to_nominate: dict[Alike, None] = {}
        """Waiters that may have other victims by now; the longest due first."""
        self._to_route: dict[WorkloadId, Entry] = {}
        """Workloads that may not wait any more, or have to wait from now on."""

    # --- what happens

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case PolicyObserved(value=UsageLimit() as limit):
                self._set(limit.name, limit, affected)
            case PolicyGone(key) if key.kind == KIND:
                self._set(key.name, None, affected)
            case TimeCame(now):
                for workload in self._protections.take(now):
                    self._unprotected(workload)
            case _ if self.active:
                self._rules.forget()
                self._planned.clear()
                self._renominate_those_of_flavors()
                self._charged.update(self._waiting.cluster_queues)
                self._note_parent(event)
            case _:
                pass

    def _note_parent(self, event: Event) -> None:
        match event:
            case PolicyObserved(value=ClusterQueue() | Cohort() as found):
                parent = found.cohort if isinstance(found, ClusterQueue) else found.parent
                self._outdated |= self._parents.get((type(found).__name__, found.name)) != parent
            case PolicyGone(key):
                self._outdated |= self._parents.get((key.kind, key.name)) is not None
            case _:
                pass

    def _set(self, name: str, limit: UsageLimit | None, affected: AffectedObjects) -> None:
        self._planned.clear()
        if self._rules.set(name, limit):
            self._outdated = affected.everything = affected.rules = True
            self.active = bool(self._rules.limits)

    def due_at(self) -> datetime | None:
        return self._protections.earliest

    def recharged(self, entry: Entry, attempt: Attempt) -> None:
        self.held.hold(entry.id, self.use(entry, attempt.assignment))
        self._note_protection(entry, attempt)

    def _note_protection(self, entry: Entry, attempt: Attempt) -> None:
        queue = self._kernel.directory.queues.get(attempt.assignment.cluster_queue)
        if queue is None:
            return
        seconds = {queue.preemption.min_run_time.seconds(cause) for cause in PreemptionCause}
        rules, now = self._kernel.directory.configuration, self._kernel.latest
        ends = [protected_until(entry, one, rules, now) for one in sorted(seconds)]
        self._protections.set(entry.id, min((end for end in ends if end and end > now), default=None))

    def _unprotected(self, workload: WorkloadId) -> None:
        """It may be preempted, by some cause at least."""
        entry = self._kernel.entries.get(workload)
        if entry is not None and entry.attempt is not None:
            self._charged.add(entry.attempt.assignment.cluster_queue)
            self._note_protection(entry, entry.attempt)

    def released(self, entry: Entry, attempt: Attempt, now: object) -> None:
        self.held.drop(entry.id)
        self._protections.set(entry.id, None)

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        self._outdated = True

    def decided(self, decision: Decision, entry: Entry) -> None:
        self._waiting.answered(entry.id, self.held.changed)
        if entry.attempt is not None:
            self._charged.add(entry.attempt.assignment.cluster_queue)
            if isinstance(decision, Admit):
                self._flavors_changed = True
                if self._rules.count_pending:
                    self._to_route[entry.id] = entry  # it is pending no longer
                self.recharged(entry, entry.attempt)

    def changed(self, workload: WorkloadId) -> None:
        entry = self._kernel.entries.get(workload)
        if entry is not None and entry.attempt is None and waits_for_victims(entry.reason):
            self.held.keep(workload, self._claimed(entry))
        elif workload in self.held.kept:
            self.held.keep(workload, None)

    def _claimed(self, entry: Entry) -> Holder | None:
        """Return what is kept for a workload that waits for its victims: others must not take it."""
        if entry.workload is None or entry.cluster_queue is None:
            return None
        places = self._places(entry, entry.cluster_queue)
        return (
            Holder(places, demand_for(self._kernel.directory.pods.total(entry.workload))) if places else None
        )

    def revised(self, workload: WorkloadId) -> None:
        self._waiting.leave(workload)

    def _renominate_those_of_flavors(self) -> None:
        for waiter in list(self._waiting.of_flavors.values()):
            self._waiting.leave(waiter.entry.id)
            self._to_route[waiter.entry.id] = waiter.entry

    def _leave_full_flavors(self) -> None:
        """Where quota of the flavor is not available any more, a workload may get another flavor (X4)."""
        self._flavors_changed = False
        tree = self._kernel.directory.tree
        for waiter in list(self._waiting.of_flavors.values()):
            flavor, resource = waiter.want[0]
            queue = waiter.entry.cluster_queue
            if flavor is None or queue is None:
                continue
            (cell, amount), *_ = tree.numbered({FlavorResource(flavor, resource): waiter.want[1]})
            if amount > tree.available(tree.queue(queue), cell):
                self._waiting.leave(waiter.entry.id)
                self._to_route[waiter.entry.id] = waiter.entry

    def _renominate_preemptors(self) -> None:
        """An admission may give a workload other victims, whose use does not count for it (X5, W3)."""
        directory, tree = self._kernel.directory, self._kernel.directory.tree
        charged, self._charged = self._charged, set()
        waiting = self._waiting.cluster_queues
        roots = {tree.root(tree.queue(name)) for name in charged & tree.queue_names()} if waiting else ()
        for name in waiting:
            queue = directory.queues.get(name)
            if queue is None or not queue.preemption.enabled or tree.root(tree.queue(name)) not in roots:
                continue
            may: dict[tuple[Place, int], bool] = {}
            for alike in self._waiting.alike(name):
                key = (alike.place, alike.priority)
                if key not in may:
                    may[key] = self._may_preempt_at(*key, queue)
                if may[key]:
                    self._to_nominate[alike] = None
        for alike in list(islice(self._to_nominate, MOST_NOMINATED)):
            del self._to_nominate[alike]
            if (entry := self._waiting.first(alike)) is not None:
                self._waiting.leave(entry.id)
                self._to_route[entry.id] = entry

    def _may_preempt_at(self, place: Place, priority: int, queue: ClusterQueue) -> bool:
        """Whether a holder that counts there is a candidate of its priority, by P2: no other makes room."""
        rules = queue.preemption
        of_own, of_others = (
            policy.highest(priority) for policy in (rules.within_cluster_queue, rules.reclaim_within_cohort)
        )
        for entry in map(self._kernel.entries.__getitem__, self.held.at(place)):
            own = entry.attempt is not None and entry.attempt.assignment.cluster_queue == queue.name
            if entry.priority <= (of_own if own else of_others):
                return True
        return False

    def settle(self) -> None:
        """Queue the workloads for which a limit may have room again."""
        if self._outdated:
            self._renew()
        if self._charged or self._to_nominate:
            self._renominate_preemptors()
        if self._flavors_changed and self._waiting.of_flavors:
            self._leave_full_flavors()
        while self._to_route or self.held.changed:
            places, self.held.changed = sorted(self.held.changed), set()
            for place in places:
                left = partial(self.held.left, place)
                self._to_route |= {one.id: one for one in self._waiting.called(place, _amount, left)}
            entries, self._to_route = self._to_route, {}
            for workload, entry in entries.items():
                if self._kernel.entries.get(workload) is entry:
                    self._kernel.route(entry)
                    self._kernel.refresh(entry)

    def _renew(self) -> None:
        """Add up all use again, if limits have changed. What waits for one is nominated again."""
        self._outdated = False
        directory = self._kernel.directory
        self._parents = {("ClusterQueue", one.name): one.cohort for one in directory.queues.values()}
        self._parents |= {("Cohort", one.name): one.parent for one in directory.cohorts.values()}
        self.held.clear()
        self._planned.clear()
        self._to_route |= {entry.id: entry for entry in self._waiting.clear()}
        entries = self._kernel.entries
        self._to_route |= {one: entries[one] for one in self.pending.all() if one in entries}
        self.pending.clear()
        for entry in entries.values():
            if entry.attempt is not None:
                self.recharged(entry, entry.attempt)
            else:
                self.changed(entry.id)

    # --- what is booked

    def _places(self, entry: Entry, cluster_queue: str) -> tuple[Place, ...]:
        """Return where an open attempt counts, or an admission now would; none if that is unknown."""
        if entry.attempt is not None and entry.attribution is not None:
            return self._rules.places(entry.attribution, cluster_queue)
        if entry.workload is None:
            return ()
        return self._rules.would_count(entry.workload, cluster_queue, self._kernel.features.account)

    def limits_class(self, booked: Attribution, cluster_queue: str) -> bool:
        return self._rules.at_class(booked, cluster_queue)

    def use(self, entry: Entry, assignment: Assignment) -> Holder:
        """Return what an open attempt takes of limits, or an admission now would."""
        known = self._planned.get(entry.id)
        return known[1] if known is not None and known[0] is assignment else self._use(entry, assignment)

    def _use(self, entry: Entry, assignment: Assignment) -> Holder:
        places = self._places(entry, assignment.cluster_queue)
        return Holder(places, demand_of(assignment, self._rules) if places else {})

    def plan(self, entry: Entry, assignment: Assignment) -> Holder:
        """Return what an admission in the plan under way takes."""
        use = self._use(entry, assignment)
        self._planned[entry.id] = assignment, use
        return use

    # --- what waits

    def problem(self, workload: Workload, pods: list[PodRequests], cluster_queue: str) -> Reason | None:
        """Return which limit alone, with nothing in use, does not allow what it requests (X7)."""
        places = self._rules.would_count(workload, cluster_queue, self._kernel.features.account)
        if not places:
            return None
        # All pods, also where it may start with fewer (F9).
        requests = self._kernel.directory.pods.total_of(pods)
        requests[WORKLOADS] = 1
        for place in places:
            limit = self._rules.limits[place.limit]
            for dimension, most in limit.most:
                asked = requests.get(dimension.resource, 0)
                if asked > most and dimension.flavor is None:
                    return self.held.reason(place, dimension, asked, 0)
            for resource, smallest in limit.min_request:
                asked = requests.get(resource, 0)
                if asked < smallest:
                    return _too_small(limit, place, Dimension(None, resource), asked, smallest)
        return None

    def begin_plan(self, now: datetime) -> PlannedUse:
        self._planned.clear()
        return PlannedUse(self)

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        if reason.limit not in (Limit.RUNNING, Limit.RESOURCES, Limit.FLAVORS) or entry.cluster_queue is None:
            return
        name = (reason.node or "").removeprefix(f"{KIND}/")
        place = next((one for one in self._places(entry, entry.cluster_queue) if one.limit == name), None)
        if place is not None and reason.resource is not None and reason.requested is not None:
            want = (Dimension(reason.flavor, reason.resource), reason.requested)
            self._waiting.wait(Waiter(entry, place, want, reason, entry.order))

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        if self._outdated:
            self._renew()
        if not (self._rules.count_pending or self._waiting.knows(entry.id)):
            return None
        seen = entry.observation
        finished = seen is not None and seen.over is not None
        if not eligible or entry.cluster_queue is None or finished:
            self._waiting.answered(entry.id, self.held.changed)
            self._waiting.leave(entry.id)
            if self._rules.count_pending:
                self._note(self.pending.leave(entry.id, self._most_pending))
            return None
        waiter = self._waiting.of(entry.id)
        places = self._places(entry, entry.cluster_queue)
        if waiter is not None and (waiter.place not in places or entry.order[0] != -entry.priority):
            self._waiting.leave(entry.id)  # it waits for another limit, or in another place
            waiter = None
        counted = tuple(one for one in places if self._rules.limits[one.limit].pending is not None)
        self._note(self.pending.enter(entry, counted, self._most_pending))
        above = self.pending.above(entry.id, self._most_pending)
        if above is not None:
            return self._above(above)
        return waiter.reason if waiter is not None else None

    def _most_pending(self, place: Place) -> int:
        most = self._rules.limits[place.limit].pending
        assert most is not None
        return most

    def _note(self, workloads: Iterable[WorkloadId]) -> None:
        """Other pending workloads are above a limit now, or not any more."""
        for workload in workloads:
            if (entry := self._kernel.entries.get(workload)) is not None:
                self._to_route[workload] = entry

    def _above(self, place: Place) -> Reason:
        limit, most = self._rules.limits[place.limit], self._most_pending(place)
        return Reason(
            code=Code.WAITING_FOR_USAGE_LIMIT,
            resource=WORKLOADS,
            requested=1,
            available=0,
            short_by=1,
            limit=Limit.PENDING,
            node=f"{KIND}/{limit.name}",
            detail=f"{subject_of(limit, place)}, at most {most}",
        )


def _amount(want: Want) -> tuple[Want]:
    return (want,)


class PlannedUse:
    """Use beside what a plan under way admits."""

    def __init__(self, limits: UsageLimits) -> None:
        self._limits = limits
        self._added: dict[Place, dict[Dimension, int]] = {}

    def lacking(
        self, entry: Entry, assignment: Assignment, gone: Collection[WorkloadId], *, observed: bool
    ) -> Reason | None:
        """Return which limit has no room for an admission now; None: each has."""
        use = self._limits.plan(entry, assignment)
        return self._limits.held.lacking(use, entry.id, gone, self._added)

    def admit(self, entry: Entry, assignment: Assignment) -> None:
        places, demand = self._limits.use(entry, assignment)
        for place in places:
            add_demand(self._added.setdefault(place, {}), demand)

    def release(self, entry: Entry) -> None:
        """What ends is seen once the plan is committed."""

    def preempt(self, entry: Entry, assignment: Assignment) -> None:
        self.admit(entry, assignment)


def _too_small(limit: UsageLimit, place: Place, dimension: Dimension, asked: int, smallest: int) -> Reason:
    return Reason(
        code=Code.OUTSIDE_USAGE_LIMIT,
        resource=dimension.resource,
        requested=asked,
        short_by=smallest - asked,
        limit=Limit.MIN_REQUEST,
        node=f"{KIND}/{limit.name}",
        detail=f"{subject_of(limit, place)}, at least {format_amount(dimension.resource, smallest)}",
    )
