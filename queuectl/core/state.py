"""What the engine knows: entries, their places, what is charged, what is due, what is to be written.

Changed by `folding` (events) and `applying` (the ledger's memory, committed decisions) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from queuectl.core.decay import UsageHistory, UsageValue
from queuectl.core.directory import Directory
from queuectl.core.lifecycle import Resend, Step, next_time, step
from queuectl.core.model import (
    NORMAL_WEIGHT,
    Assignment,
    Attempt,
    ConfigKey,
    Effect,
    EffectKey,
    LocalQueueName,
    QueueingStrategy,
    UsageSum,
    Workload,
    WorkloadId,
)
from queuectl.core.ordering import Place, order
from queuectl.core.past import NOTHING, kept_out
from queuectl.core.pending import Entry, Line
from queuectl.core.reasons import Code, Reason
from queuectl.core.report import ClusterQueueReport, LocalQueueReport, Standing
from queuectl.core.rules import Settings
from queuectl.core.survey import Survey
from queuectl.core.timers import Timers
from queuectl.core.wakes import prune
from queuectl.core.waking import Waking

K = TypeVar("K")


class State:
    def __init__(self, sources: frozenset[str], settings: Settings = Settings()) -> None:  # noqa: B008 (frozen)
        self.settings = settings
        self.clock = datetime.min.replace(tzinfo=UTC)
        """As late as it is known to be."""
        self.now = self.clock
        """Of the plan that was applied last."""
        self.timers: Timers[WorkloadId] = Timers()
        """When to look at a workload again for nothing but the time."""
        self.past = UsageHistory(settings.usage_sharing) if settings.usage_sharing is not None else None
        self.directory = Directory()
        self.tree = self.directory.tree
        self.entries: dict[WorkloadId, Entry] = {}
        self.members: dict[LocalQueueName, dict[WorkloadId, Entry]] = {}
        """All entries, by the LocalQueue they name."""
        self.holders: dict[str, dict[WorkloadId, Entry]] = {}
        """Those with an open attempt, by the ClusterQueue that is charged."""
        self.lines: dict[str, Line] = {}
        self.missing = set(sources)
        """Lists that have not been read yet."""
        self.arrival = 0
        """Of the workload first seen last."""
        self.specs: dict[ConfigKey, str] = {}
        """As observed."""
        self.recorded_specs: dict[ConfigKey, str] = {}
        """As the ledger has them."""
        self.due_configs: set[ConfigKey] = set()
        self.due_entries: dict[WorkloadId, Entry] = {}
        self.due_lines: set[str] = set()
        self.waking = Waking(self.directory, self.lines, self.due_lines, settings)
        self.gated: dict[WorkloadId, Entry] = {}
        """Kept out of every line, and not yet told why."""
        self.frozen: set[str] = set()
        """Roots of which memory and ledger disagree."""
        self.outbox: dict[WorkloadId, Entry] = {}
        """Those with a committed write that nobody has in hands."""
        self.changed: set[LocalQueueName] = set()
        self.changed_queues: set[str] = set()

    @property
    def synced(self) -> bool:
        return not self.missing

    # --- what is due

    @property
    def due(self) -> bool:
        return bool(self.due_entries or self.gated or self.due_lines or self.due_configs)

    def prune(self) -> None:
        """Forget what is no longer due."""
        for name in self.due_lines:
            prune(self.tree, self.lines[name])
        self.due_lines -= {name for name in self.due_lines if not self.lines[name].due}
        self.due_configs = {key for key, _ in self.unrecorded_configs()}

    def unrecorded_configs(self) -> Iterator[tuple[ConfigKey, str | None]]:
        for key in sorted(self.due_configs):
            spec = self.specs.get(key)
            # What was good when the ledger last heard of it, and can't be read since, stays in force.
            if spec != self.recorded_specs.get(key) and (
                spec is not None or key not in self.directory.invalid
            ):
                yield key, spec

    def first_due(self, count: int) -> list[Entry]:
        return list(islice(self.due_entries.values(), count))

    def step(self, entry: Entry) -> Step | None:
        """The next decision about it, or None if nothing is due."""
        return step(entry, self.directory, self.settings, self.clock)

    def refresh(self, entry: Entry) -> None:
        """Is a decision on it due, now or later? Is a write of ours to be handed out (again)?"""
        if entry.id not in self.entries:
            return
        if self.frozen and self.root(entry) in self.frozen:
            self.due_entries.pop(entry.id, None)
            self.timers.set(entry.id, None)
            return
        what = self.step(entry)
        if isinstance(what, Resend):
            entry.refused = entry.handed = False
            what = self.step(entry)
        if what is None:
            self.due_entries.pop(entry.id, None)
            if entry.recorded is None and (entry.gone or (entry.observation and entry.observation.finished)):
                self.drop(entry)  # it ended before anything was decided about it
                return
        else:
            self.due_entries[entry.id] = entry
        self.timers.set(entry.id, next_time(entry, self.settings, self.clock))
        if entry.unsent is not None and not (entry.handed or entry.refused):
            self.outbox[entry.id] = entry
        else:
            self.outbox.pop(entry.id, None)

    def root(self, entry: Entry) -> str:
        """Of the quota tree that it belongs to, as `Cohort/research`; empty if its queue leads nowhere."""
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
        self.leave(entry)
        self.note_change(entry)
        del self.entries[entry.id]
        _take_out(self.members, entry.local_queue, entry)
        self.due_entries.pop(entry.id, None)
        self.outbox.pop(entry.id, None)
        self.timers.set(entry.id, None)

    def route(self, entry: Entry) -> None:
        """Put one that waits where it belongs: into a line, or before a gate."""
        self.note_change(entry)
        workload = entry.workload
        if entry.attempt is not None or workload is None or entry.gone:
            self.leave(entry)
            return
        if workload.queue != entry.queue:
            _take_out(self.members, entry.local_queue, entry)
            entry.queue = workload.queue
            self.enter(entry)
        route = self.directory.route(workload)
        entry.cluster_queue, entry.priority, entry.gate = route.cluster_queue, route.priority, route.gate
        kept = kept_out(entry.past, workload.max_run_seconds, self.clock)
        if kept is not None and workload.hold:  # L20
            entry.past, kept = NOTHING, None
        entry.gate = entry.gate or kept
        if self.frozen and (root := self.root(entry)) in self.frozen:
            if entry.recorded is None:
                self.leave(entry)
                return  # the ledger does not know it: nothing can be said of it
            entry.gate = Reason(code=Code.LEDGER_MISMATCH, node=root or None)
        seen = entry.observation
        waits = seen is not None and seen.suspended and not seen.finished and entry.current
        if entry.gate is not None or not waits or entry.cluster_queue is None:
            self.leave(entry)
            if entry.gate is not None and entry.reason != entry.gate:
                self.gated[entry.id] = entry
        else:
            self.gated.pop(entry.id, None)
            self._stand(entry, workload, entry.cluster_queue)
        self.note_change(entry)

    def leave(self, entry: Entry) -> None:
        """Out of its line, or from before its gate."""
        self.gated.pop(entry.id, None)
        self.waking.leave(entry)

    def _stand(self, entry: Entry, workload: Workload, queue: str) -> None:
        line = self.lines.get(queue)
        if line is None:
            line = self.lines[queue] = self.new_line(queue)
        place = self.place(entry, workload.created_at)
        shape = self.directory.charges(workload)
        if entry.group is not None:
            if entry.group.line is line and entry.order == place and entry.shape == shape:
                return
            self.leave(entry)
        line.add(entry, shape, place)
        self.waking.stands(entry, line)

    def place(self, entry: Entry, created_at: datetime) -> Place:
        """Its place in the order of O1, O2 and O6."""
        past = entry.past
        if past.until is not None and self.settings.requeueing.loses_place:
            created_at = max(created_at, past.until)
        return (*order(entry.priority, created_at, entry.arrival), entry.id)

    def new_line(self, name: str) -> Line:
        queue = self.directory.queues.get(name)
        strict = queue is not None and queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
        by_usage = queue is not None and queue.usage_based and self.settings.usage_sharing is not None
        return Line(name, strict=strict, by_usage=by_usage)

    # --- charges

    def charge(self, entry: Entry, attempt: Attempt) -> None:
        entry.attempt, entry.attempts = attempt, max(entry.attempts, attempt.number)
        entry.cells = self.tree.numbered(attempt.assignment.usage())
        queue = attempt.assignment.cluster_queue
        self.tree.add(self.tree.queue(queue), entry.cells)
        self.holders.setdefault(queue, {})[entry.id] = entry
        if entry.workload is not None:
            entry.order = self.place(entry, entry.workload.created_at)
        self.waking.charge(entry)
        self.changed_queues.add(queue)
        if self.past is not None:
            _count(self.past, entry, attempt)

    def recount(self, past: Iterable[UsageSum]) -> None:
        """Past usage anew: what the ledger says, and what is held now."""
        if self.settings.usage_sharing is None:
            return
        self.past = UsageHistory(self.settings.usage_sharing)
        self.past.restore(past)
        for entry in self.entries.values():
            if (attempt := entry.attempt) is not None:
                _count(self.past, entry, attempt)

    def past_usage(
        self, now: datetime, added: Mapping[LocalQueueName, Mapping[str, int]]
    ) -> Callable[[LocalQueueName], UsageValue] | None:
        """Of a LocalQueue at `now`, with what a plan under way has `added`; None: nobody counts it (U1)."""
        past, queues = self.past, self.directory.local_queues
        if past is None:
            return None

        def usage_of(name: LocalQueueName) -> UsageValue:
            queue = queues.get(name)
            weight = queue.weight if queue is not None else NORMAL_WEIGHT
            return past.usage(name, weight, now, added.get(name, {}))

        return usage_of

    def shrink(self, entry: Entry, assignment: Assignment) -> None:
        """It holds `assignment` from now on, which is no larger: wake those who lack the difference."""
        attempt = entry.attempt
        assert attempt is not None
        queue = attempt.assignment.cluster_queue
        node, held = self.tree.queue(queue), entry.cells
        self.tree.remove(node, held)
        entry.attempt = replace(attempt, assignment=assignment)
        entry.cells = self.tree.numbered(assignment.usage())
        self.tree.add(node, entry.cells)
        self.changed_queues.add(queue)
        left = dict(entry.cells)
        self.waking.free(node, (self.tree.names[cell] for cell, amount in held if left.get(cell, 0) < amount))
        if self.past is not None:
            now = max(self.now, attempt.admitted_at)
            self.past.resized((entry.id, attempt.number), assignment.resources(), now)

    def release(self, entry: Entry) -> None:
        """Give back what it holds, if anything, and wake those who lack it."""
        attempt = entry.attempt
        if attempt is None:
            return
        queue = attempt.assignment.cluster_queue
        node = self.tree.queue(queue)
        self.tree.remove(node, entry.cells)
        _take_out(self.holders, queue, entry)
        self.changed_queues.add(queue)
        self.waking.free(node, (self.tree.names[cell] for cell, _ in entry.cells))
        if self.past is not None:
            self.past.closed((entry.id, attempt.number), max(self.now, attempt.admitted_at))
        self.waking.ended(entry)
        entry.attempt, entry.unsent = None, None
        entry.counted = entry.probing = entry.refused = entry.handed = False
        self.outbox.pop(entry.id, None)

    # --- out

    def unacknowledged(self) -> frozenset[EffectKey]:
        return frozenset(
            EffectKey(entry.id, entry.attempt.number, entry.unsent)
            for entry in self.entries.values()
            if entry.unsent is not None and entry.attempt is not None
        )

    def take_effects(self) -> list[Effect]:
        effects: list[Effect] = []
        if not self.synced:
            return effects  # what its flavors add may not be known yet
        for entry in list(self.outbox.values()):
            attempt, workload, seen, verb = entry.attempt, entry.workload, entry.observation, entry.unsent
            if attempt is None or verb is None or workload is None or seen is None:
                continue  # restored, and its object not seen yet
            del self.outbox[entry.id]
            entry.handed = True
            names = sorted({flavor for p in attempt.assignment.pod_sets for _, flavor in p.flavors})
            flavors = tuple(f for name in names if (f := self.directory.flavors.get(name)))
            key = EffectKey(entry.id, attempt.number, verb)
            effects.append(
                Effect(key=key, workload=workload, observation=seen, attempt=attempt, flavors=flavors)
            )
        return effects

    def take_reports(self) -> tuple[list[LocalQueueReport], list[ClusterQueueReport], list[str]]:
        if not self.synced:
            return [], [], []
        locals_, queues = sorted(self.changed), sorted(self.changed_queues)
        self.changed, self.changed_queues = set(), set()
        directory, known = self.directory, self._known_queues()
        survey = self._survey()
        return (
            [survey.local_queue(name) for name in locals_ if name in directory.local_queues],
            [survey.cluster_queue(name) for name in queues if name in known],
            [name for name in queues if name not in known],
        )

    def standing(self) -> Standing:
        return Standing(
            strays=self._survey().strays(self._known_queues()),
            frozen=len(self.frozen),
            gated=self.directory.gate is not None,
        )

    def _survey(self) -> Survey:
        return Survey(self.directory, self.members, self.holders, self.lines)

    def _known_queues(self) -> Set[str]:
        invalid = {key.name for key in self.directory.invalid if key.kind == "ClusterQueue"}
        return self.directory.queues.keys() | invalid


def _take_out(places: dict[K, dict[WorkloadId, Entry]], key: K, entry: Entry) -> None:
    place = places[key]
    del place[entry.id]
    if not place:
        del places[key]


def _count(past: UsageHistory, entry: Entry, attempt: Attempt) -> None:
    """From its admission on it counts for its LocalQueue (U1)."""
    key = (entry.id, attempt.number)
    past.opened(entry.local_queue, key, attempt.assignment.resources(), attempt.admitted_at)
