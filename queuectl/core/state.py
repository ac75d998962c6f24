"""The state of the engine: entries, their places, what is charged, what is due, what is to be written.

Only `observed_events` and `committed_plans` (committed decisions, the ledger's memory) change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from queuectl.core.context_records import ContextRecords, namespace_of
from queuectl.core.decisions import Amend, Enqueue
from queuectl.core.directory import Directory
from queuectl.core.entries import Entry
from queuectl.core.feature import Features
from queuectl.core.flavors.assignment import assign, never_fits
from queuectl.core.lifecycle import Resend, Step, may_have_pods, next_time, over, remaining, step
from queuectl.core.limits import AdmissionLimit, Limits
from queuectl.core.model.policy import (
    ClusterQueue,
    HeadCanNeverRun,
    LocalQueueName,
    QueueingStrategy,
)
from queuectl.core.model.priorities import counting_priority
from queuectl.core.model.reasons import Code, Family, Reason, passed_over
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attempt,
    ConfigKey,
    Observation,
    Place,
    Workload,
    WorkloadId,
)
from queuectl.core.preemption.claims import PreemptionClaims
from queuectl.core.queues.backoff import Timers, kept_out
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.inadmissible import Requeuer
from queuectl.core.queues.pending import PendingQueue, queue_place
from queuectl.core.quota.tree import QuotaNode

K = TypeVar("K")


class EngineState:
    def __init__(  # noqa: PLR0915 (a line per field)
        self, sources: frozenset[str], directory: Directory
    ) -> None:
        self.directory = directory
        self.features: Features
        self.configuration = directory.configuration
        self.clock = datetime.min.replace(tzinfo=UTC)
        """The latest time that was observed."""
        self.now = self.clock
        """Time of the plan that was applied last."""
        self.timers: Timers[WorkloadId] = Timers()
        """When the next decision about a workload may change by time alone."""
        self.tree = self.directory.tree
        self.limits = Limits(self.tree)
        """What limits admissions."""
        self.entries: dict[WorkloadId, Entry] = {}
        self.members: dict[LocalQueueName, dict[WorkloadId, Entry]] = {}
        """All entries, by the LocalQueue that they name."""
        self.holders: dict[str, dict[WorkloadId, Entry]] = {}
        """Entries with an open attempt, by the ClusterQueue that is charged."""
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
        self.requeuer = Requeuer(self.directory, self.pending, self.claims, self.due_queues)
        self.unreported: dict[WorkloadId, Entry] = {}
        """Ineligible workloads whose reason is not reported yet."""
        self.frozen: set[str] = set()
        """Roots of which memory and ledger disagree, and workloads that are set aside."""
        self.outbox: dict[WorkloadId, Entry] = {}
        """Entries with a committed write that the driver does not have yet."""
        self.may_forget = False
        """Nodes, cells or pending queues may be unused."""
        self.pods_changed: set[WorkloadId] = set()
        """Workloads of which another number of pods is ready than the driver knows."""
        self.changed: set[LocalQueueName] = set()
        self.changed_queues: set[str] = set()

    @property
    def latest(self) -> datetime:
        return max(self.clock, self.now)

    @property
    def synced(self) -> bool:
        return not self.missing

    # --- what is due

    @property
    def due(self) -> bool:
        return bool(
            self.due_steps or self.unreported or self.due_queues or self.due_configs or self.features.due
        )

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

    def refresh(self, entry: Entry) -> None:
        """`entry` changed: note what is due, when to ask again, and whether a write is to be dispatched.

        To be called once for each entry that a batch of events or decisions changed.
        """
        for feature in self.features.active:
            feature.changed(entry.id)
        if entry.id not in self.entries:
            return
        if self.is_frozen(entry):
            self.due_steps.set(entry, None)
            self.timers.set(entry.id, None)
            return
        what = step(entry, self.directory, self.features, self.clock)
        if isinstance(what, Resend):
            entry.start_refused = entry.dispatched = False
            entry.unacknowledged = what.verb
            what = step(entry, self.directory, self.features, self.clock)
            assert not isinstance(what, Resend), entry.ref
        self.due_steps.set(entry, what)
        ended = entry.gone or over(entry) is not None
        if what is None and entry.recorded is None and ended:
            self.drop(entry)  # it ended before anything was decided about it
            return
        for feature in self.features.active:
            if feature.gives_up(entry, self.clock):
                self.requeuer.give_up(entry.id)
        self.timers.set(entry.id, next_time(entry, self.features, self.clock))
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
        return "" if name is None else str(self.tree.root_of(name))

    def note_change(self, entry: Entry) -> None:
        self.changed.add(entry.local_queue)
        if entry.cluster_queue is not None:
            self.changed_queues.add(entry.cluster_queue)

    # --- places

    def enter(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        for feature in self.features.active:
            feature.entered(entry.id)
        entry.local_queue = LocalQueueName(entry.ref.namespace, entry.queue)
        self.members.setdefault(entry.local_queue, {})[entry.id] = entry

    def new_entry(self, workload: Workload, observation: Observation) -> Entry:
        """Return the new entry of an object that was observed before."""
        entry = Entry(workload.id, workload.ref)
        entry.queue = workload.queue
        entry.workload, entry.observation = remaining(workload, observation), observation
        self.arrival += 1
        entry.arrival = self.arrival
        self.enter(entry)
        return entry

    def drop(self, entry: Entry) -> None:
        self.features.waits(entry, eligible=False)
        self.leave(entry)
        self.note_change(entry)
        del self.entries[entry.id]
        for feature in self.features.active:
            feature.changed(entry.id)
        _take_out(self.members, entry.local_queue, entry)
        self.due_steps.set(entry, None)
        self.outbox.pop(entry.id, None)
        self.timers.set(entry.id, None)

    def route(self, entry: Entry) -> None:
        """Put a pending workload where it belongs: into a pending queue, or among the ineligible."""
        self.note_change(entry)
        workload = entry.workload
        if entry.attempt is not None or workload is None or entry.gone:
            if entry.attempt is not None and not entry.held_known:
                self._hold(entry, entry.attempt)
            self.features.waits(entry, eligible=False)
            self.leave(entry)
            return
        if workload.queue != entry.queue:
            _take_out(self.members, entry.local_queue, entry)
            entry.queue = workload.queue
            self.enter(entry)
        route = self.directory.route(workload)
        lowered, priority = entry.past.lowered, route.priority
        entry.priority = counting_priority(priority, lowered, None) if lowered else priority
        entry.cluster_queue, entry.ineligible = route.cluster_queue, route.gate
        kept = self.features.bars(entry) or kept_out(entry.past, self.clock)
        if kept is not None and workload.hold:  # L20
            entry.past, kept = NO_PAST_ATTEMPTS, None
        entry.ineligible = entry.ineligible or kept
        entry.ineligible = self.features.waits(entry, eligible=entry.ineligible is None) or entry.ineligible
        queue = self.directory.queues.get(entry.cluster_queue or "")
        if queue is not None and queue.head_can_never_run is HeadCanNeverRun.PASS_OVER:
            entry.ineligible = entry.ineligible or self._never_runs(workload, queue)
        if self.is_frozen(entry):
            if entry.recorded is None:
                self.leave(entry)
                return  # the ledger does not have it: nothing can be recorded of it
            entry.ineligible = Reason(code=Code.LEDGER_MISMATCH, node=self.root(entry) or None)
        seen = entry.observation
        waits = seen is not None and seen.suspended and over(entry) is None and entry.current
        waits = waits and not may_have_pods(entry, self.directory)
        if entry.ineligible is not None or not waits or entry.cluster_queue is None:
            self.leave(entry)
            if entry.recorded is not None:
                self.note_unreported(entry)
        else:
            self.unreported.pop(entry.id, None)
            self._queue(entry, workload, entry.cluster_queue)
        self.note_change(entry)

    def _never_runs(self, workload: Workload, queue: ClusterQueue) -> Reason | None:
        """Return why a StrictFIFO queue passes over a workload: no flavor could ever have enough (C4)."""
        if queue.queueing_strategy is not QueueingStrategy.STRICT_FIFO:
            return None
        if queue.name not in self.pending:  # it is nominated again when this may change
            self.pending[queue.name] = self.new_queue(queue.name)
        flavors, charges = self.directory.queue_flavors(queue.name), self.directory.pods.charges(workload)
        if not never_fits(flavors, charges):
            return None
        reason = assign(flavors, charges).reason
        if reason is None or reason.family is not Family.NEVER:
            return None  # a flavor is not used for a while (M20), and said so
        others = tuple(one for one in reason.others if one.family is Family.NEVER)
        return passed_over(replace(reason, others=others))

    def route_renominated(self) -> None:
        """Find out again what can never run in queues that were nominated again, and pass over it (C4)."""
        while self.requeuer.renominated:
            names, self.requeuer.renominated = sorted(self.requeuer.renominated), set()
            for name in names:
                for local in self.directory.pointing_to(name):
                    for entry in list(self.members.get(local, {}).values()):
                        if entry.attempt is None:
                            self.route(entry)
                            self.refresh(entry)
            for feature in self.features.active:
                feature.settle()

    def note_unreported(self, entry: Entry) -> None:
        """Its reason is to be reported, now that the ledger has it."""
        if entry.group is not None:
            self.pending[entry.group.cluster_queue].mark_unreported(entry.group, entry)
            self.due_queues.add(entry.group.cluster_queue)
        elif entry.ineligible is not None and entry.reason != entry.ineligible:
            self.unreported[entry.id] = entry

    def leave(self, entry: Entry) -> None:
        """Remove it from its pending queue, or from the ineligible."""
        self.unreported.pop(entry.id, None)
        self.requeuer.leave(entry)

    def _queue(self, entry: Entry, workload: Workload, name: str) -> None:
        queue = self.pending.get(name)
        if queue is None:
            queue = self.pending[name] = self.new_queue(name)
        place = self.place(entry, workload.created_at)
        shape = self.directory.pods.charges(workload)
        if entry.group is not None:
            if entry.group.cluster_queue == name and entry.order == place and entry.shape == shape:
                return
            self.leave(entry)
        queue.add(entry, shape, place)
        self.requeuer.queued(entry, queue)

    def renominate(self, cluster_queue: str) -> None:
        """Nominate again all that waits in a ClusterQueue."""
        if (queue := self.pending.get(cluster_queue)) is not None:
            self.requeuer.renominate(queue)

    def room_changed(self, limit: AdmissionLimit) -> None:
        """Nominate again what waits for room, if there may be more of it."""
        self.requeuer.room_changed(limit)

    def place(self, entry: Entry, created_at: datetime) -> Place:
        """Return its place in the order of O1, O2, O6 and O9."""
        past = entry.past
        loses = past.until is not None and self.directory.requeueing(entry.ruled_by).loses_place
        return queue_place(entry.priority, created_at, entry.arrival, entry.id, past=past, loses_place=loses)

    def new_queue(self, name: str) -> PendingQueue:
        queue = self.directory.queues.get(name)
        strict = queue is not None and queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
        usage_based = queue is not None and queue.usage_based and self.configuration.usage_sharing is not None
        by_user = usage_based and queue is not None and queue.users_by_usage
        return PendingQueue(name, self.claims, strict=strict, usage_based=usage_based, users_by_usage=by_user)

    # --- what is no longer due, and what may be forgotten

    def prune(self) -> None:
        """Forget what is no longer due. To be called after a batch of events or decisions."""
        requeued = [queue for name in self.due_queues if (queue := self.pending[name]).requeued]
        if requeued:
            self._forget_missed(requeued)
        if self.claims.helped:
            self.requeuer.forget_preemptors()
        self.due_queues -= {name for name in self.due_queues if not self.pending[name].due}
        if self.due_configs:
            self.due_configs = {key for key, _ in self.unrecorded_configs()}

    def _forget_missed(self, queues: Iterable[PendingQueue]) -> None:
        """Forget requeued groups for which too little is available, or it is taken already (W1, W7)."""
        late = self.features.set_aside

        def holding(node: QuotaNode) -> Iterable[Entry]:
            found = self.holders.get(node.name, {}).values()
            return [entry for entry in found if entry.id not in late] if late else found

        chances = Chances(self.directory, holding)
        for queue in queues:
            for group in list(queue.requeued):
                if not chances.has(queue, group):
                    queue.forget(group)

    def forget_unused(self) -> None:
        """Forget ClusterQueues without an object and usage, and cells that nothing names or holds.

        To be called if `may_forget` is set, where no cell number is kept outside of the state.
        """
        self.may_forget = False
        tree = self.tree
        for name in tree.queue_names() - self.directory.queues.keys() - self.holders.keys():
            queue = self.pending.get(name)
            if queue is None or not queue.groups:
                tree.forget_queue(name)
                self.pending.pop(name, None)
                self.due_queues.discard(name)
        if tree.numbering.unnamed:
            held = (entry.cells for holders in self.holders.values() for entry in holders.values())
            tree.numbering.forget({cell for cells in held for cell, _ in cells})

    # --- charges

    def charge(self, entry: Entry, attempt: Attempt) -> None:
        entry.attempt, entry.attempts = attempt, max(entry.attempts, attempt.number)
        entry.cells = self.tree.numbered(attempt.assignment.usage())
        queue = attempt.assignment.cluster_queue
        self.tree.add(self.tree.queue(queue), entry.cells)
        self.holders.setdefault(queue, {})[entry.id] = entry
        if entry.workload is not None:
            entry.order = self.place(entry, entry.workload.created_at)
        self.requeuer.charged.append(entry)
        self.changed_queues.add(queue)
        for feature in self.features.active:
            feature.charged(entry, attempt, self.now)

    def _hold(self, entry: Entry, attempt: Attempt) -> None:
        """The counts of its open attempt changed, or what else its pods follow from."""
        for feature in self.features.active:
            feature.recharged(entry, attempt)
        entry.held_known = True

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
        for feature in self.features.active:
            feature.resized(entry, entry.attempt, self.now)

    def release(self, entry: Entry) -> None:
        """Release what it holds, if anything."""
        attempt = entry.attempt
        if attempt is None:
            return
        queue = attempt.assignment.cluster_queue
        node = self.tree.queue(queue)
        self.tree.remove(node, entry.cells)
        _take_out(self.holders, queue, entry)
        self.changed_queues.add(queue)
        self.requeuer.free(node, (self.tree.names[cell] for cell, _ in entry.cells))
        self.features.released(entry, attempt, self.now)
        self.requeuer.ended(entry)
        entry.attempt, entry.unacknowledged = None, None
        entry.pods_gone = entry.counting_pods = entry.start_refused = entry.dispatched = False
        self.outbox.pop(entry.id, None)
        unnamed = self.tree.numbering.unnamed
        self.may_forget |= queue not in self.directory.queues or any(
            cell in unnamed for cell, _ in entry.cells
        )


def _take_out(places: dict[K, dict[WorkloadId, Entry]], key: K, entry: Entry) -> None:
    place = places[key]
    del place[entry.id]
    if not place:
        del places[key]


class DueSteps:
    """The steps that are due, in two classes.

    Requests are what users ask for: a workload is to be queued, or its priority to be changed. They are taken
    in turn by namespace. All other steps change what is in use or find it out, and come first.
    """

    def __init__(self) -> None:
        self._steps: dict[WorkloadId, tuple[Entry, Step]] = {}
        self.urgent: dict[WorkloadId, tuple[Entry, Step]] = {}
        self._requests: dict[str, dict[WorkloadId, tuple[Entry, Step]]] = {}
        """By namespace; the one that had its turn last comes last."""

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[WorkloadId]:
        return iter(self._steps)

    def get(self, workload: WorkloadId) -> Step | None:
        found = self._steps.get(workload)
        return None if found is None else found[1]

    @property
    def requested(self) -> int:
        """Number of requests."""
        return len(self._steps) - len(self.urgent)

    def set(self, entry: Entry, step: Step | None) -> None:
        """`step` is due for `entry` from now on, and nothing else; None: nothing is."""
        # A workload that runs already is charged as soon as possible.
        requested = isinstance(step, Amend) or (isinstance(step, Enqueue) and not runs_unasked(entry))
        known, namespace = self._steps.get(entry.id), entry.ref.namespace
        if known is not None:
            if known[1] == step and requested == (entry.id not in self.urgent):
                return  # it keeps its place
            del self._steps[entry.id]
            if self.urgent.pop(entry.id, None) is None:
                there = self._requests.pop(namespace)
                del there[entry.id]
                if there:
                    self._requests[namespace] = there  # its turn is over
        if step is None:
            return
        item = self._steps[entry.id] = (entry, step)
        if requested:
            self._requests.setdefault(namespace, {})[entry.id] = item
        else:
            self.urgent[entry.id] = item

    def requests(self, count: int) -> list[tuple[Entry, Step]]:
        """Return up to `count` requests, as many of each namespace as of any other that has so many."""
        if self.requested <= count:
            found = [item for there in self._requests.values() for item in there.values()]
        else:
            found = list(islice(self._in_turn(), count))
        return sorted(found, key=lambda item: item[0].arrival)

    def _in_turn(self) -> Iterator[tuple[Entry, Step]]:
        lines = [iter(there.values()) for there in self._requests.values()]
        while lines:
            left = []
            for line in lines:
                item = next(line, None)
                if item is not None:
                    yield item
                    left.append(line)
            lines = left


def runs_unasked(entry: Entry) -> bool:
    """Return whether `entry` is seen to run without an attempt: it is adopted once it is queued (L4)."""
    seen = entry.observation
    return entry.attempt is None and seen is not None and not seen.suspended and not seen.finished
