"""The state of the engine: entries, their places, what is charged, what is due, what is to be written.

Only `observing` (events) and `applying` (committed decisions, the ledger's memory) change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from queuectl.core.children import Children
from queuectl.core.context_records import ContextRecords, namespace_of
from queuectl.core.directory import Directory
from queuectl.core.due import DueSteps
from queuectl.core.entries import Entry, Shape
from queuectl.core.lifecycle import Resend, Step, next_time, step
from queuectl.core.limits import Limits
from queuectl.core.model import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attempt,
    ConfigKey,
    Effect,
    EffectKey,
    Eviction,
    Place,
    PodsReady,
    UsageSum,
    Workload,
    WorkloadId,
)
from queuectl.core.namespaces.room import NamespaceRoom
from queuectl.core.nodes.predictions import Predictions
from queuectl.core.nodes.room import NodeRoom
from queuectl.core.nodes.warnings import CapacityWarning
from queuectl.core.policy import (
    DEFAULT_CONFIGURATION,
    NORMAL_WEIGHT,
    LocalQueueName,
    QueueingStrategy,
    SchedulingConfiguration,
)
from queuectl.core.preemption.claims import PreemptionClaims
from queuectl.core.promises import Promises
from queuectl.core.queues.inadmissible import Requeuer, forget_missed, queues_below
from queuectl.core.queues.pending import PendingQueue, queue_place
from queuectl.core.queues.requeueing import Timers, kept_out
from queuectl.core.queues.usage_history import UsageHistory, UsageValue
from queuectl.core.readiness import ReadinessRules, readiness_rules
from queuectl.core.reasons import Code, Reason
from queuectl.core.reports import ClusterQueueReport, ClusterReport, LocalQueueReport, ReportBuilder
from queuectl.core.slow_stops import SlowStop, SlowStops

K = TypeVar("K")


class State:
    def __init__(  # noqa: PLR0915 (a line per field)
        self, sources: frozenset[str], configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION
    ) -> None:
        self.configuration = configuration
        self.clock = datetime.min.replace(tzinfo=UTC)
        """The latest time that was observed."""
        self.now = self.clock
        """Time of the plan that was applied last."""
        self.timers: Timers[WorkloadId] = Timers()
        """When the next decision about a workload may change by time alone."""
        sharing = configuration.usage_sharing
        self.usage_history = UsageHistory(sharing) if sharing is not None else None
        self.directory = Directory(configuration.resources)
        self.room = NamespaceRoom(self.directory.pods)
        self.tree = self.directory.tree
        self.nodes = NodeRoom(self.directory.flavors, configuration.nodes)
        self.promises = Promises(self.directory, self.nodes)
        self.predictions = Predictions()
        self.limits = Limits(self.tree, self.nodes)
        """What limits admissions."""
        self.entries: dict[WorkloadId, Entry] = {}
        self.members: dict[LocalQueueName, dict[WorkloadId, Entry]] = {}
        """All entries, by the LocalQueue that they name."""
        self.holders: dict[str, dict[WorkloadId, Entry]] = {}
        """Entries with an open attempt, by the ClusterQueue that is charged."""
        self.children = Children()
        """Objects whose owners queue. Only those that no owner holds quota for are entries too."""
        self.pending: dict[str, PendingQueue] = {}
        """By ClusterQueue."""
        self.claims = PreemptionClaims()
        self.missing = set(sources)
        """Sources whose lists have not been read yet."""
        self.arrival = 0
        """Of the workload that was first seen last."""
        self.specs: dict[ConfigKey, str] = {}
        """As observed."""
        self.contexts = ContextRecords()
        self.authors: dict[ConfigKey, str | None] = {}
        """Of the specs as observed; None: unknown."""
        self.recorded_specs: dict[ConfigKey, str] = {}
        """As the ledger has them."""
        self.due_configs: set[ConfigKey] = set()
        self.due_steps = DueSteps()
        """What lifecycle decides next, of workloads where anything is due."""
        self.apart: frozenset[str] = frozenset()
        """Roots of trees in which the last plan ran no cycles, because of other decisions (C11)."""
        self.left: tuple[str, ...] = ()
        """Roots of trees that the budget of the last plan did not reach: they come first (C1)."""
        self.due_queues: set[str] = set()
        self.requeuer = Requeuer(self.directory, self.pending, self.claims, self.due_queues, configuration)
        self.slow_stops = SlowStops(configuration.terminating_alarm)
        self.unreported: dict[WorkloadId, Entry] = {}
        """Ineligible workloads whose reason is not reported yet."""
        self.frozen: set[str] = set()
        """Roots of which memory and ledger disagree, and workloads that are set aside."""
        self.outbox: dict[WorkloadId, Entry] = {}
        """Entries with a committed write that the driver does not have yet."""
        self.may_forget = False
        """Nodes, cells or pending queues may be unused: see `forgetting`."""
        self.pods_changed: set[WorkloadId] = set()
        """Workloads of which another number of pods is ready than the driver knows."""
        self.changed: set[LocalQueueName] = set()
        self.changed_queues: set[str] = set()

    @property
    def synced(self) -> bool:
        return not self.missing

    # --- what is due

    @property
    def due(self) -> bool:
        return bool(
            self.due_steps or self.unreported or self.due_queues or self.due_configs or self.children.doubtful
        )

    def prune(self) -> None:
        """Forget what is no longer due."""
        for name in self.due_queues:
            forget_missed(self.tree, self.pending[name])
        self.due_queues -= {name for name in self.due_queues if not self.pending[name].due}
        self.due_configs = {key for key, _ in self.unrecorded_configs()}

    def unrecorded_configs(self) -> Iterator[tuple[ConfigKey, str | None]]:
        for key in sorted(self.due_configs):
            spec = self.specs.get(key)
            if key not in self.recorded_specs and not self.matters(key):
                continue
            # The last good spec of an object that can't be read any more stays in force.
            if spec != self.recorded_specs.get(key) and (
                spec is not None or key not in self.directory.invalid
            ):
                yield key, spec

    def matters(self, key: ConfigKey) -> bool:
        """Return whether the ledger is to have it: context of a namespace only with a LocalQueue there."""
        namespace = namespace_of(key)
        context = key in self.contexts.of(namespace)
        return not context or not namespace or namespace in self.directory.queue_namespaces

    def step(self, entry: Entry) -> Step | None:
        """Return what lifecycle decides next about `entry`; None: nothing is due."""
        return step(entry, self.directory, self.clock)

    def refresh(self, entry: Entry) -> None:
        """`entry` changed: note what is due, when to ask again, and whether a write is to be dispatched.

        To be called once for each entry that a batch of events or decisions changed.
        """
        self.children.touch(entry.id)
        if entry.id not in self.entries:
            return
        if self.is_frozen(entry):
            self.due_steps.set(entry, None)
            self.timers.set(entry.id, None)
            return
        what = self.step(entry)
        if isinstance(what, Resend):
            entry.start_refused = entry.dispatched = False
            what = self.step(entry)
        self.due_steps.set(entry, what)
        ended = entry.gone or (entry.observation and entry.observation.finished)
        if what is None and entry.recorded is None and ended:
            self.drop(entry)  # it ended before anything was decided about it
            return
        self.slow_stops.note(entry, self.clock)
        times = (next_time(entry, self.clock), self.slow_stops.due_at(entry))
        later = (when for when in times if when is not None and when > self.clock)
        self.timers.set(entry.id, min(later, default=None))
        if entry.unacknowledged is not None and not (entry.dispatched or entry.start_refused):
            self.outbox[entry.id] = entry
        else:
            self.outbox.pop(entry.id, None)

    def is_frozen(self, entry: Entry) -> bool:
        """Return whether nothing is decided about `entry`, alone or with its tree."""
        return bool(self.frozen) and (entry.id in self.frozen or self.root(entry) in self.frozen)

    def root(self, entry: Entry) -> str:
        """Return the root of its tree, as `Cohort/research`; empty if its queue does not exist."""
        return self.root_of_queue(entry.cluster_queue)

    def root_of_queue(self, name: str | None) -> str:
        return "" if name is None else str(list(self.tree.queue(name).path())[-1])

    def note_change(self, entry: Entry) -> None:
        self.changed.add(entry.local_queue)
        if entry.cluster_queue is not None:
            self.changed_queues.add(entry.cluster_queue)

    # --- places

    def enter(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        entry.local_queue = LocalQueueName(entry.ref.namespace, entry.queue)
        self.members.setdefault(entry.local_queue, {})[entry.id] = entry

    def drop(self, entry: Entry) -> None:
        self._waits_no_more(entry)
        self.leave(entry)
        self.note_change(entry)
        del self.entries[entry.id]
        self.children.touch(entry.id)
        _take_out(self.members, entry.local_queue, entry)
        self.due_steps.set(entry, None)
        self.outbox.pop(entry.id, None)
        self.timers.set(entry.id, None)
        self.slow_stops.forget(entry.id)

    def route(self, entry: Entry) -> None:
        """Put a pending workload where it belongs: into a pending queue, or among the ineligible."""
        self.note_change(entry)
        workload = entry.workload
        entry.run_limit = self.directory.run_limit(workload, entry.attempt) if workload is not None else None
        entry.readiness = self._readiness(entry)
        if entry.attempt is not None or workload is None or entry.gone:
            if entry.attempt is not None:
                self._hold(entry, entry.attempt)
            self._waits_no_more(entry)
            self.leave(entry)
            return
        if workload.queue != entry.queue:
            _take_out(self.members, entry.local_queue, entry)
            entry.queue = workload.queue
            self.enter(entry)
        route = self.directory.route(workload)
        entry.cluster_queue, entry.priority, entry.ineligible = (
            route.cluster_queue,
            route.priority,
            route.gate,
        )
        kept = kept_out(entry.past, entry.run_limit, self.clock)
        if kept is not None and workload.hold:  # L20
            entry.past, kept = NO_PAST_ATTEMPTS, None
        entry.ineligible = entry.ineligible or kept or entry.no_room
        if entry.no_room is not None and entry.ineligible is entry.no_room:
            self.room.wait(entry)
        else:
            self._waits_no_more(entry)
        if self.is_frozen(entry):
            if entry.recorded is None:
                self.leave(entry)
                return  # the ledger does not have it: nothing can be recorded of it
            entry.ineligible = Reason(code=Code.LEDGER_MISMATCH, node=self.root(entry) or None)
        seen = entry.observation
        waits = seen is not None and seen.suspended and not seen.finished and entry.current
        if entry.ineligible is not None or not waits or entry.cluster_queue is None:
            self.leave(entry)
            if entry.ineligible is not None and entry.reason != entry.ineligible:
                self.unreported[entry.id] = entry
        else:
            self.unreported.pop(entry.id, None)
            self._queue(entry, workload, entry.cluster_queue)
        self.note_change(entry)

    def _readiness(self, entry: Entry) -> ReadinessRules:
        """Of the ClusterQueue that it is charged to, or waits in."""
        name = entry.cluster_queue
        if entry.attempt is not None:
            name = entry.attempt.assignment.cluster_queue
        return readiness_rules(self.configuration, self.directory.queues.get(name or ""))

    def wake(self) -> None:
        """Queue the workloads for which a ResourceQuota has room again (N6)."""
        for entry in self.room.woken():
            entry.no_room = None
            self.route(entry)
            self.refresh(entry)

    def under_other_rules(self, namespaces: Set[str]) -> set[LocalQueueName]:
        """Objects of these namespaces changed: return the LocalQueues whose workloads this affects."""
        found = {local for local in self.members if local.namespace in namespaces}
        for local in found:
            for entry in self.members[local].values():
                entry.no_room = None
        return found

    def _waits_no_more(self, entry: Entry) -> None:
        entry.no_room = None
        self.room.leave(entry.id, entry.ref.namespace)

    def leave(self, entry: Entry) -> None:
        """Remove it from its pending queue, or from the ineligible."""
        self.unreported.pop(entry.id, None)
        self.requeuer.leave(entry)

    def _queue(self, entry: Entry, workload: Workload, name: str) -> None:
        queue = self.pending.get(name)
        if queue is None:
            queue = self.pending[name] = self.new_queue(name)
        place = self.place(entry, workload.created_at)
        shape = self.directory.charges(workload)
        if entry.group is not None:
            if entry.group.cluster_queue == name and entry.order == place and entry.shape == shape:
                return
            self.leave(entry)
        queue.add(entry, shape, place)
        self.requeuer.queued(entry, queue)

    def place(self, entry: Entry, created_at: datetime) -> Place:
        """Return its place in the order of O1, O2 and O6."""
        requeued_at = entry.past.until if entry.readiness.requeueing.loses_place else None
        return queue_place(entry.priority, created_at, entry.arrival, entry.id, requeued_at=requeued_at)

    def new_queue(self, name: str) -> PendingQueue:
        queue = self.directory.queues.get(name)
        strict = queue is not None and queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
        usage_based = queue is not None and queue.usage_based and self.configuration.usage_sharing is not None
        touched = self.requeuer.alike.touched
        return PendingQueue(name, self.claims, strict=strict, usage_based=usage_based, touched=touched)

    # --- charges

    def charge(self, entry: Entry, attempt: Attempt) -> None:
        entry.attempt, entry.attempts = attempt, max(entry.attempts, attempt.number)
        entry.cells = self.tree.numbered(attempt.assignment.usage())
        queue = attempt.assignment.cluster_queue
        self.tree.add(self.tree.queue(queue), entry.cells)
        self.room.hold(entry)
        if self.nodes:
            # What it was nominated with: its charges need not be computed again.
            self._hold_pods(entry, attempt, entry.shape if entry.workload is not None else ())
        entry.lost = self.nodes.losses.lost_under(entry.id)
        self.holders.setdefault(queue, {})[entry.id] = entry
        if entry.workload is not None:
            entry.order = self.place(entry, entry.workload.created_at)
        self.requeuer.charge(entry)
        self.changed_queues.add(queue)
        if self.usage_history is not None:
            _count(self.usage_history, entry, attempt)

    def _hold(self, entry: Entry, attempt: Attempt) -> None:
        """The counts of its open attempt changed, or its object was observed."""
        self.room.hold(entry)
        if self.nodes:
            self._hold_pods(entry, attempt, self._charges(entry))

    def _charges(self, entry: Entry) -> Shape:
        return self.directory.charges(entry.workload) if entry.workload is not None else ()

    def _hold_pods(self, entry: Entry, attempt: Attempt, charges: Shape) -> None:
        # What ran before its admission has pods without our label, which count where they are.
        pods = () if attempt.debt else self.nodes.pods_of(charges, attempt.assignment)
        self.nodes.hold(entry.id, attempt.sequence, pods)

    def settle_nodes(self) -> None:
        """Nodes, their pods, or what is held changed: bring the room on nodes up to date."""
        nodes, limited = self.nodes, bool(self.nodes)
        nodes.note()
        if nodes and not limited:
            for entry in self.entries.values():
                if entry.attempt is not None:
                    self._hold_pods(entry, entry.attempt, self._charges(entry))
            nodes.note()
        for workload in nodes.bound.take_moved():
            moved = self.entries.get(workload)
            if moved is not None and moved.bound != (bound := nodes.bound.count(workload)):
                matters = moved.readiness.counts_bound or not moved.bound or not bound
                moved.bound = bound
                if matters:
                    self.refresh(moved)
        for workload in nodes.losses.take_affected():
            affected = self.entries.get(workload)
            if affected is not None and affected.lost != (lost := nodes.losses.lost_under(workload)):
                affected.lost = lost
                self.refresh(affected)
        self.requeuer.room_changed(nodes)

    def settle_quota(self) -> None:
        """Nodes or policy may have changed: nominal quotas count as nodes allow (M11)."""
        changed = self.promises.share_out()
        for root in dict.fromkeys(map(self.tree.root, changed)):
            for queue in queues_below(root, self.pending):
                self.requeuer.renominate(queue)
        self.changed_queues.update(node.name for node in changed if node.kind == "ClusterQueue")

    def recount(self, past: Iterable[UsageSum]) -> None:
        """Compute past usage anew, from the ledger and from what is held now (U5)."""
        if self.configuration.usage_sharing is None:
            return
        self.usage_history = UsageHistory(self.configuration.usage_sharing)
        self.usage_history.restore(past)
        for entry in self.entries.values():
            if (attempt := entry.attempt) is not None:
                _count(self.usage_history, entry, attempt)

    def past_usage(
        self, now: datetime, added: Mapping[LocalQueueName, Mapping[str, int]]
    ) -> Callable[[LocalQueueName], UsageValue] | None:
        """Return past usage at `now` by LocalQueue, with what a plan `added`; None: not counted (U1)."""
        past, queues = self.usage_history, self.directory.local_queues
        if past is None:
            return None

        def usage_of(name: LocalQueueName) -> UsageValue:
            queue = queues.get(name)
            weight = queue.weight if queue is not None else NORMAL_WEIGHT
            return past.usage(name, weight, now, added.get(name, {}))

        return usage_of

    def shrink(self, entry: Entry, assignment: Assignment) -> None:
        """It holds `assignment` from now on, which is no larger: the difference becomes available."""
        attempt = entry.attempt
        assert attempt is not None
        queue = attempt.assignment.cluster_queue
        node, held = self.tree.queue(queue), entry.cells
        self.tree.remove(node, held)
        entry.attempt = replace(attempt, assignment=assignment)
        entry.cells = self.tree.numbered(assignment.usage())
        self.tree.add(node, entry.cells)
        self._hold(entry, entry.attempt)
        self.changed_queues.add(queue)
        left = dict(entry.cells)
        self.requeuer.free(
            node, (self.tree.names[cell] for cell, amount in held if left.get(cell, 0) < amount)
        )
        if self.usage_history is not None:
            now = max(self.now, attempt.admitted_at)
            self.usage_history.resized((entry.id, attempt.number), assignment.resources(), now)

    def release(self, entry: Entry) -> None:
        """Release what it holds, if anything."""
        attempt = entry.attempt
        if attempt is None:
            return
        queue = attempt.assignment.cluster_queue
        node = self.tree.queue(queue)
        self.tree.remove(node, entry.cells)
        self.room.drop(entry.id)
        self.nodes.drop(entry.id)
        self.predictions.ended(entry.id)
        _take_out(self.holders, queue, entry)
        self.changed_queues.add(queue)
        self.requeuer.free(node, (self.tree.names[cell] for cell, _ in entry.cells))
        if self.usage_history is not None:
            self.usage_history.closed((entry.id, attempt.number), max(self.now, attempt.admitted_at))
        self.requeuer.ended(entry)
        entry.attempt, entry.unacknowledged = None, None
        entry.pods_gone = entry.counting_pods = entry.start_refused = entry.dispatched = False
        self.outbox.pop(entry.id, None)
        unnamed = self.tree.numbering.unnamed
        self.may_forget |= queue not in self.directory.queues or any(
            cell in unnamed for cell, _ in entry.cells
        )

    # --- out

    def unacknowledged(self) -> frozenset[EffectKey]:
        return frozenset(
            EffectKey(entry.id, entry.attempt.number, entry.unacknowledged)
            for entry in self.entries.values()
            if entry.unacknowledged is not None and entry.attempt is not None
        )

    def take_effects(self) -> list[Effect]:
        effects: list[Effect] = []
        if not self.synced:
            return effects  # flavors may not have been read yet
        for entry in list(self.outbox.values()):
            attempt, workload, seen, verb = (
                entry.attempt,
                entry.workload,
                entry.observation,
                entry.unacknowledged,
            )
            if attempt is None or verb is None or workload is None or seen is None:
                continue  # restored, and its object is not observed yet
            del self.outbox[entry.id]
            entry.dispatched = True
            names = sorted({flavor for p in attempt.assignment.pod_sets for _, flavor in p.flavors})
            flavors = tuple(f for name in names if (f := self.directory.flavors.get(name)))
            key = EffectKey(entry.id, attempt.number, verb)
            effects.append(
                Effect(
                    key=key,
                    workload=workload,
                    observation=seen,
                    attempt=attempt,
                    flavors=flavors,
                    eviction=_eviction(entry),
                )
            )
        return effects

    def take_pods_ready(self) -> list[PodsReady]:
        changed, self.pods_changed = self.pods_changed, set()
        return [
            PodsReady(entry.id, entry.attempt.number, entry.observation.pods_ready)
            for entry in map(self.entries.get, sorted(changed))
            if entry is not None and entry.attempt is not None and entry.observation is not None
            if entry.observation.pods_ready is not None
        ]

    def take_slow_stops(self) -> list[SlowStop]:
        found = (self.entries[workload] for workload in self.slow_stops.take_fresh())
        return [self.slow_stops.described(one, self.nodes.bound.named(one.id)) for one in found]

    def take_reports(self) -> tuple[list[LocalQueueReport], list[ClusterQueueReport], list[str]]:
        if not self.synced:
            return [], [], []
        self.changed_queues |= self.promises.compare()
        # An admission changes the positions in all LocalQueues of its ClusterQueue.
        self.changed.update(*(self.directory.pointing_to(name) for name in self.changed_queues))
        locals_, queues = sorted(self.changed), sorted(self.changed_queues)
        self.changed, self.changed_queues = set(), set()
        directory, known = self.directory, self._known_queues()
        survey = self._survey()
        return (
            [survey.local_queue(name) for name in locals_ if name in directory.local_queues],
            [survey.cluster_queue(name) for name in queues if name in known],
            [name for name in queues if name not in known],
        )

    def warnings(self) -> tuple[CapacityWarning, ...]:
        """Return the warnings about quota and nodes as of now (M15)."""
        self.changed_queues |= self.promises.compare()
        return self.promises.warnings

    def cluster_report(self) -> ClusterReport:
        aside = sum(what in self.entries for what in self.frozen)
        strays, gate = self._survey().strays(self._known_queues()), self.directory.gate is not None
        return ClusterReport(
            strays=strays,
            frozen=len(self.frozen) - aside,
            set_aside=aside,
            gate_installed=gate,
            slow_stops=len(self.slow_stops),
            warnings=self.warnings(),
        )

    def _survey(self) -> ReportBuilder:
        now = max(self.now, self.clock)
        return ReportBuilder(
            self.directory,
            self.members,
            self.holders,
            self.pending,
            self.usage_history,
            self.promises,
            now,
        )

    def _known_queues(self) -> Set[str]:
        invalid = {key.name for key in self.directory.invalid if key.kind == "ClusterQueue"}
        return self.directory.queues.keys() | invalid


def _eviction(entry: Entry) -> Eviction | None:
    if entry.evicted_at is None or entry.reason is None:
        return None
    return Eviction(entry.reason, entry.evicted_at)


def _take_out(places: dict[K, dict[WorkloadId, Entry]], key: K, entry: Entry) -> None:
    place = places[key]
    del place[entry.id]
    if not place:
        del places[key]


def _count(past: UsageHistory, entry: Entry, attempt: Attempt) -> None:
    """Count an attempt for its LocalQueue, from its admission on (U1)."""
    key = (entry.id, attempt.number)
    past.opened(entry.local_queue, key, attempt.assignment.resources(), attempt.admitted_at)
