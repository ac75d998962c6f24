"""What the engine knows: entries, their lines, what is charged, what is due.

Changed by `restore`, `fold` (events) and `apply` (committed decisions) alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from queuectl.core.decisions import Admit, Configure, Decision, Enqueue, Evict, Keep, Release, Retire
from queuectl.core.directory import Directory, Touched
from queuectl.core.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PodsCounted,
    PolicyGone,
    PolicyInvalid,
    PolicyObserved,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.lifecycle import Resend, Surroundings, facts, step
from queuectl.core.matching import mismatch
from queuectl.core.model import (
    Attempt,
    AttemptState,
    ConfigKey,
    Effect,
    EffectKey,
    Gate,
    LocalQueueName,
    ObjectRef,
    Observation,
    Phase,
    QueueingStrategy,
    Snapshot,
    StopPolicy,
    StoredWorkload,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.core.ordering import order
from queuectl.core.pending import Entry, Line
from queuectl.core.report import ClusterQueueReport, LocalQueueReport
from queuectl.core.resources import PODS, amounts
from queuectl.core.survey import cluster_queue_report, local_queue_report

_GATE = "Gate"


class State:
    def __init__(self, sources: frozenset[str]) -> None:
        self.directory = Directory()
        self.tree = self.directory.tree
        self.entries: dict[WorkloadId, Entry] = {}
        self.lines: dict[str, Line] = {}
        self.members: dict[LocalQueueName, dict[WorkloadId, Entry]] = {}
        self._missing = set(sources)
        self._arrival = 0
        self._specs: dict[ConfigKey, str] = {}
        """As observed."""
        self._recorded_specs: dict[ConfigKey, str] = {}
        """As the ledger has them."""
        self._due_configs: set[ConfigKey] = set()
        self._due: dict[WorkloadId, Entry] = {}
        self._gated: dict[WorkloadId, Entry] = {}
        """Kept out of every line, and not yet told why."""
        self._due_lines: set[str] = set()
        self._outbox: dict[WorkloadId, Entry] = {}
        self._changed: set[LocalQueueName] = set()
        self._changed_queues: set[str] = set()

    @property
    def synced(self) -> bool:
        return not self._missing

    # --- what is due, for the engine to decide

    @property
    def due(self) -> bool:
        return bool(self._due or self._gated or self._due_lines or self._due_configs)

    def prune(self) -> None:
        """Forget what is no longer due."""
        self._due_lines = {name for name in self._due_lines if self.lines[name].due}
        self._due_configs = {key for key, _ in self.unrecorded_configs()}

    def unrecorded_configs(self) -> Iterator[tuple[ConfigKey, str | None]]:
        for key in sorted(self._due_configs):
            # What can't be read any more stays in force as it was.
            if self._specs.get(key) != self._recorded_specs.get(key) and key not in self.directory.invalid:
                yield key, self._specs.get(key)

    def due_entries(self) -> list[Entry]:
        return sorted(self._due.values(), key=lambda entry: (entry.arrival, entry.id))

    def due_lines(self) -> list[Line]:
        return [self.lines[name] for name in sorted(self._due_lines)]

    def gated_entries(self) -> list[Entry]:
        return sorted(self._gated.values(), key=lambda entry: (entry.arrival, entry.id))

    def around(self, entry: Entry) -> Surroundings:
        directory = self.directory
        stop = StopPolicy.NONE
        if entry.cluster_queue is not None and (queue := directory.queues.get(entry.cluster_queue)):
            stop = queue.stop_policy
        return Surroundings(
            local_queue=directory.local_queues.get(LocalQueueName(entry.ref.namespace, entry.queue)),
            cluster_queue_stop=stop,
            gate_since=directory.gate_since,
            gate_in_force=directory.gate is not None,
            charge_unchanged=self._charge_unchanged,
        )

    def unacknowledged(self) -> frozenset[EffectKey]:
        return frozenset(
            EffectKey(entry.id, entry.attempt.number, entry.unsent)
            for entry in self.entries.values()
            if entry.unsent is not None and entry.attempt is not None
        )

    # --- restore

    def restore(self, snapshot: Snapshot) -> None:
        unsent = {(key.workload, key.attempt, key.verb) for key in snapshot.effects}
        for key, spec in snapshot.configs:
            self._recorded_specs[key] = spec
            self._due_configs.add(key)
            if key.kind == _GATE:
                self._specs[key] = spec
                self.directory.gate_since = datetime.fromisoformat(json.loads(spec)["installedAt"])
        for stored in snapshot.workloads:
            self._restore(stored, unsent)

    def _restore(self, stored: StoredWorkload, unsent: set[tuple[WorkloadId, int, Verb]]) -> None:
        entry = Entry(stored.id, stored.ref)
        entry.queue, entry.cluster_queue, entry.priority = stored.queue, stored.cluster_queue, stored.priority
        entry.arrival, entry.attempts, entry.reason = stored.arrival, stored.attempts, stored.reason
        entry.recorded = facts(entry)
        self._arrival = max(self._arrival, stored.arrival)
        attempt = stored.attempt
        if attempt is not None:
            self._charge(entry, attempt)
            entry.phase = Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED
            verb = Verb.STOP if entry.phase is Phase.EVICTING else Verb.START
            if (entry.id, attempt.number, verb) in unsent:
                entry.unsent = verb
        self._enter(entry)
        self._refresh(entry)

    # --- fold: events

    def fold(self, events: Iterable[Event]) -> None:
        touched = Touched()
        seen: dict[WorkloadId, Entry] = {}
        new: list[Entry] = []
        for event in events:
            self._fold(event, touched, seen, new)
        # Arrival counts first sight; within one batch it must not depend on the order of the events.
        for entry in sorted(new, key=_first_sight):
            self._arrival += 1
            entry.arrival = self._arrival
        for entry in self._concerned(touched):
            seen[entry.id] = entry
        for entry in seen.values():
            self._route(entry)
            self._refresh(entry)
        if self.synced:
            self.prune()

    def _fold(  # noqa: C901, PLR0912 (one flat dispatch over all events)
        self, event: Event, touched: Touched, seen: dict[WorkloadId, Entry], new: list[Entry]
    ) -> None:
        match event:
            case PolicyObserved(key, value, spec):
                self.directory.invalid.pop(key, None)
                if self._specs.get(key) != spec or key not in self._specs:
                    self._specs[key] = spec
                    self._due_configs.add(key)
                    self.directory.observe(value, touched)
            case PolicyInvalid(key, detail):
                self.directory.invalid[key] = detail
                if key.kind == "ClusterQueue":
                    self._changed_queues.add(key.name)
            case PolicyGone(key):
                self._specs.pop(key, None)
                self._due_configs.add(key)
                self.directory.forget(key, touched)
            case ContextObserved(value):
                self.directory.observe_context(value, touched)
                if isinstance(value, Gate):
                    installed = {"installedAt": value.installed_at.isoformat()}
                    key = ConfigKey(_GATE, "", value.name)
                    self._specs[key] = json.dumps(installed)
                    self._due_configs.add(key)
            case ContextGone(kind, name):
                self.directory.forget_context(kind, name, touched)
            case WorkloadObserved(workload, observation):
                self._observe(workload, observation, seen, new)
            case WorkloadGone(workload_id):
                self._lose(self.entries.get(workload_id), seen)
            case Listed(source, workloads):
                self._list(source, workloads, seen)
            case EffectSettled():
                self._settle(event, seen)
            case PodsCounted(workload_id, attempt, alive):
                entry = self.entries.get(workload_id)
                if entry is not None and entry.attempt is not None and entry.attempt.number == attempt:
                    entry.counted = not alive
                    entry.probing = alive
                    seen[entry.id] = entry
            case _:
                assert_never(event)

    def _observe(
        self, workload: Workload, observation: Observation, seen: dict[WorkloadId, Entry], new: list[Entry]
    ) -> None:
        entry = self.entries.get(workload.id)
        if entry is None:
            if observation.finished:
                return  # it ended before we ever knew it
            entry = Entry(workload.id, workload.ref)
            entry.queue = workload.queue
            self._enter(entry)
            new.append(entry)
        last = entry.observation
        if last is not None and not entry.gone and _older(observation, last):
            return
        entry.workload, entry.observation, entry.gone = workload, observation, False
        if not observation.suspended and not observation.finished:
            entry.counted = False
        seen[entry.id] = entry

    def _lose(self, entry: Entry | None, seen: dict[WorkloadId, Entry]) -> None:
        if entry is not None:
            entry.gone = True
            seen[entry.id] = entry

    def _list(
        self, source: str, workloads: frozenset[WorkloadId] | None, seen: dict[WorkloadId, Entry]
    ) -> None:
        if source in self._missing:
            self._missing.discard(source)
            if not self._missing:
                self._changed |= self.directory.local_queues.keys()
                self._changed_queues |= self.directory.queues.keys()
        if workloads is None:
            return
        for entry in self.entries.values():
            if entry.ref.kind == source and entry.id not in workloads:
                self._lose(entry, seen)

    def _settle(self, event: EffectSettled, seen: dict[WorkloadId, Entry]) -> None:
        entry = self.entries.get(event.key.workload)
        if entry is None or entry.attempt is None or entry.attempt.number != event.key.attempt:
            return
        if entry.unsent is not event.key.verb:
            return  # superseded: it was stopped before its start was settled
        if event.result is Result.REFUSED:
            entry.refused = True
        else:
            entry.unsent = None
            entry.generation = event.generation
            entry.gone = entry.gone or event.result is Result.GONE
        seen[entry.id] = entry

    def _concerned(self, touched: Touched) -> Iterator[Entry]:
        """Whom a change of policy or context may concern."""
        for name in touched.cluster_queues:
            self._rebuild(name)
        for local, members in self.members.items():
            queue = self.directory.local_queues.get(local)
            if (
                touched.everybody
                or local in touched.local_queues
                or local.namespace in touched.namespaces
                or (queue is not None and queue.cluster_queue in touched.cluster_queues)
            ):
                self._changed.add(local)
                yield from members.values()
        self._changed |= touched.local_queues
        for local in touched.local_queues:
            if queue := self.directory.local_queues.get(local):
                self._changed_queues.add(queue.cluster_queue)

    def _rebuild(self, name: str) -> None:
        """The policy of a ClusterQueue changed: look at everybody in its line again."""
        self._changed_queues.add(name)
        self._changed |= {q.name for q in self.directory.local_queues.values() if q.cluster_queue == name}
        line = self.lines.get(name)
        if line is None:
            return
        queue = self.directory.queues.get(name)
        strict = queue is not None and queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
        if line.strict is strict:
            line.wake_all()
            self._due_lines.add(name)
            return
        for entry in list(line.waiting()):
            line.remove(entry)
        self.lines[name] = Line(name, strict=strict)

    # --- places

    def _enter(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        self.members.setdefault(LocalQueueName(entry.ref.namespace, entry.queue), {})[entry.id] = entry

    def _move(self, entry: Entry, queue: str) -> None:
        if queue != entry.queue:
            former = LocalQueueName(entry.ref.namespace, entry.queue)
            self._note_change(entry)
            del self.members[former][entry.id]
            entry.queue = queue
            self._enter(entry)

    def _route(self, entry: Entry) -> None:
        """Put one that waits where it belongs: into a line, or before a gate."""
        self._note_change(entry)
        workload = entry.workload
        if entry.attempt is not None or workload is None or entry.gone:
            self._leave(entry)
            return
        self._move(entry, workload.queue)
        route = self.directory.route(workload)
        entry.cluster_queue, entry.priority, entry.gate = route.cluster_queue, route.priority, route.gate
        seen = entry.observation
        waits = seen is not None and seen.suspended and not seen.finished and entry.current
        if entry.gate is not None or not waits or entry.cluster_queue is None:
            self._leave(entry)
            if entry.gate is not None and (entry.reason is None or entry.reason != entry.gate):
                self._gated[entry.id] = entry
            return
        self._gated.pop(entry.id, None)
        self._stand(entry, workload, entry.cluster_queue)
        self._note_change(entry)

    def _stand(self, entry: Entry, workload: Workload, queue: str) -> None:
        line = self.lines.get(queue)
        if line is None:
            strict = self.directory.queues[queue].queueing_strategy is QueueingStrategy.STRICT_FIFO
            line = self.lines[queue] = Line(queue, strict=strict)
        place = order(entry.priority, workload.created_at, entry.arrival)
        shape = workload.pod_sets
        if entry.group is not None:
            same = entry.group.line is line and entry.order == place and entry.shape == shape
            if same:
                return
            entry.group.line.remove(entry)
        entry.shape = shape
        line.add(entry, shape, place)
        self._due_lines.add(queue)

    def _leave(self, entry: Entry) -> None:
        self._gated.pop(entry.id, None)
        if entry.group is not None:
            line = entry.group.line
            line.remove(entry)
            self._due_lines.add(line.name)

    def _refresh(self, entry: Entry) -> None:
        """Is a decision on it due? Is a write of ours to be handed out (again)?"""
        what = step(entry, self.around(entry)) if entry.id in self.entries else None
        if isinstance(what, Resend):
            entry.refused = entry.handed = False
            what = None
        if what is None:
            self._due.pop(entry.id, None)
            if entry.recorded is None and (entry.gone or (entry.observation and entry.observation.finished)):
                self._drop(entry)  # it ended before anything was decided about it
                return
        else:
            self._due[entry.id] = entry
        if entry.unsent is not None and not entry.handed:
            self._outbox[entry.id] = entry

    def _note_change(self, entry: Entry) -> None:
        self._changed.add(LocalQueueName(entry.ref.namespace, entry.queue))
        if entry.cluster_queue is not None:
            self._changed_queues.add(entry.cluster_queue)

    # --- apply: committed decisions

    def apply(self, decision: Decision, sequence: int) -> None:
        if isinstance(decision, Configure):
            if decision.spec is None:
                self._recorded_specs.pop(decision.key, None)
            else:
                self._recorded_specs[decision.key] = decision.spec
            return
        entry = self.entries[_subject(decision)]
        match decision:
            case Enqueue():
                entry.recorded = facts(entry)
            case Keep():
                self._keep(entry, decision)
            case Admit():
                self._admit(entry, replace(decision.attempt, sequence=sequence))
            case Evict():
                assert entry.attempt is not None
                entry.attempt = replace(entry.attempt, state=AttemptState.EVICTING)
                entry.phase, entry.unsent, entry.handed = Phase.EVICTING, Verb.STOP, False
                entry.counted = entry.probing = entry.refused = False
            case Release():
                self._release(entry)
                entry.phase = Phase.PENDING
                self._route(entry)
            case Retire():
                self._release(entry)
                self._drop(entry)
            case _:
                assert_never(decision)
        self._note_change(entry)
        if self.entries.get(entry.id) is entry:
            self._refresh(entry)

    def probe(self, workload: WorkloadId) -> None:
        entry = self.entries[workload]
        entry.probing = True
        self._refresh(entry)

    def _keep(self, entry: Entry, decision: Keep) -> None:
        entry.reason = decision.reason
        group = entry.group
        if group is None:
            self._gated.pop(entry.id, None)
            return
        line = group.line
        if line.strict and decision.reason.key == line.behind().key:
            group.fresh.pop(entry.id, None)
        elif group.head() is entry or group.parked is None:
            line.park(entry, decision.reason)
        else:
            group.fresh.pop(entry.id, None)

    def _admit(self, entry: Entry, attempt: Attempt) -> None:
        self._leave(entry)
        self._charge(entry, attempt)
        entry.phase, entry.reason, entry.gate = Phase.ADMITTED, None, None
        entry.counted = entry.probing = entry.refused = entry.handed = False
        entry.generation = None
        entry.unsent = None if attempt.debt else Verb.START

    def _charge(self, entry: Entry, attempt: Attempt) -> None:
        entry.attempt, entry.attempts = attempt, max(entry.attempts, attempt.number)
        node = self.tree.queue(attempt.assignment.cluster_queue)
        self.tree.add(node, self.tree.numbered(attempt.assignment.usage()))

    def _release(self, entry: Entry) -> None:
        attempt = entry.attempt
        if attempt is None:
            return
        usage = attempt.assignment.usage()
        queue = attempt.assignment.cluster_queue
        self.tree.remove(self.tree.queue(queue), self.tree.numbered(usage))
        self._changed_queues.add(queue)
        line = self.lines.get(queue)
        if line is not None and line.wake(frozenset(usage)):
            self._due_lines.add(queue)
        entry.attempt, entry.unsent = None, None
        entry.counted = entry.probing = entry.refused = entry.handed = False
        self._outbox.pop(entry.id, None)

    def _drop(self, entry: Entry) -> None:
        self._leave(entry)
        self._note_change(entry)
        del self.entries[entry.id]
        local = LocalQueueName(entry.ref.namespace, entry.queue)
        members = self.members[local]
        del members[entry.id]
        if not members:
            del self.members[local]
        self._due.pop(entry.id, None)
        self._outbox.pop(entry.id, None)

    # --- out

    def take_effects(self) -> list[Effect]:
        effects = []
        for entry in list(self._outbox.values()):
            attempt, workload, seen, verb = entry.attempt, entry.workload, entry.observation, entry.unsent
            if attempt is None or verb is None or workload is None or seen is None:
                continue  # restored, and its object not seen yet
            del self._outbox[entry.id]
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
        locals_, queues = sorted(self._changed), sorted(self._changed_queues)
        self._changed, self._changed_queues = set(), set()
        at = (self.directory, self.members, self.lines)
        return (
            [local_queue_report(*at, name) for name in locals_ if name in self.directory.local_queues],
            [cluster_queue_report(*at, name) for name in queues if name in self.directory.queues],
            [name for name in queues if name not in self.directory.queues],
        )

    def _charge_unchanged(self, entry: Entry) -> bool:
        """Would the object as it is now be charged what its open attempt holds, from the same flavors?"""
        workload, attempt = entry.workload, entry.attempt
        if workload is None or attempt is None or workload.problem or workload.queue != entry.queue:
            return False
        charges = {c.pod_set.name: c for c in self.directory.charges(workload)}
        held = attempt.assignment.pod_sets
        if charges.keys() != {p.name for p in held}:
            return False
        for assigned in held:
            charge = charges[assigned.name]
            requests = amounts(item for item in assigned.requests if item[0] != PODS)
            if charge.pod_set.count != assigned.count or charge.requests != requests:
                return False
            for _, name in assigned.flavors:
                flavor = self.directory.flavors.get(name)
                if flavor is None or mismatch(flavor, charge.pod_set):
                    return False
        return True


def _subject(decision: Decision) -> WorkloadId:
    match decision:
        case Enqueue():
            return decision.workload.id
        case Admit():
            return decision.attempt.workload
        case Configure():
            raise AssertionError("a policy object is no workload")
        case _:
            return decision.workload


def _first_sight(entry: Entry) -> tuple[datetime, ObjectRef]:
    assert entry.workload is not None
    return (entry.workload.created_at, entry.ref)


def _older(observation: Observation, last: Observation) -> bool:
    """A read may overtake a watch event: what is older by generation, or takes an end back, says nothing."""
    if observation.generation != last.generation:
        return observation.generation < last.generation
    return last.finished is not None and observation.finished is None
