"""A test cluster around one engine: Jobs, policy, a ledger, and two lagging, repeating event channels."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from queuectl.core.decisions import Keep, Plan, PodsToCount
from queuectl.core.engine import Engine
from queuectl.core.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PodsCounted,
    PolicyGone,
    PolicyObserved,
    Result,
    TimeCame,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model import (
    Attempt,
    AttemptState,
    ConfigKey,
    Effect,
    EffectKey,
    ForcedRelease,
    Observation,
    Outcome,
    PastAttempts,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.core.policy import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    LocalQueueName,
    Namespace,
    RequeuingStrategy,
    ResourceFlavor,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import PODS, Amounts
from tests.builders import SOURCES, T0, policy
from tests.doubles.invariants import violations
from tests.doubles.readers import ReadableLedger
from tests.unit.core.reference import Policy, Usage

T = TypeVar("T")
SETTINGS = SchedulingConfiguration(
    pods_ready_timeout=30, requeueing=RequeuingStrategy(base_seconds=10, most_seconds=30, limit=3)
)

PREEMPTED_FIRST = Code.WAITING_FOR_PREEMPTED_WORKLOADS


def wait_for(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    raise AssertionError("the coroutine suspended")


@dataclass
class Job:
    workload: Workload
    suspended: bool = True
    generation: int = 1
    finished: Outcome | None = None
    quiet: bool = False
    admission: Attempt | None = None
    pods: bool = False
    version: int = 0
    ready: bool | None = None
    ended: int = 0
    """Number of its pods that have ended for good."""
    release: ForcedRelease | None = None


class Cluster:
    """The objects in the API server, the driver of the engine, and the ledger."""

    SAME = frozenset({Code.WAITING_FOR_QUOTA})
    """Codes of which a newly started process may say another one: what is not there is not evaluated anew."""

    def __init__(self) -> None:
        self.now = T0
        self.policy = Policy()
        self.jobs: dict[WorkloadId, Job] = {}
        self.left: dict[WorkloadId, bool] = {}
        """Deleted objects, and whether their pods are alive."""
        self.ledger = ReadableLedger(lambda: self.now)
        self.watch: list[Event] = []
        self.answers: list[Event] = []
        self.effects: dict[WorkloadId, Effect] = {}
        self.probes: dict[WorkloadId, PodsToCount] = {}
        self.acknowledged: list[EffectKey] = []
        self.sizes: dict[WorkloadId, object] = {}
        self.reshaped: set[WorkloadId] = set()
        """Those that request something else than when a reason of them was recorded."""
        self.version = 0
        self.batch = 0
        self.start()

    # --- processes

    def start(self) -> None:
        """Start a new process: load the ledger, then deliver complete lists."""
        self.epoch = wait_for(self.ledger.take_epoch("test"))
        self.engine = Engine(SOURCES, SETTINGS)
        self.engine.restore(wait_for(self.ledger.load()))
        self.watch, self.answers, self.acknowledged = [], [], []
        self.effects, self.probes = {}, {}
        for event in self.everything():
            if isinstance(event, WorkloadObserved):
                self._note_size(event)
            self.engine.handle([event])
            assert violations(self.engine) == []

    def everything(self) -> list[Event]:
        known = self.policy
        values = (*known.flavors.values(), *known.cohorts.values(), *known.queues.values())
        return [
            *(
                ContextObserved(Namespace(name, tuple(labels.items())))
                for name, labels in known.namespaces.items()
            ),
            *(_policy(value) for value in (*values, *known.local_queues.values())),
            *(_policy(WorkloadPriorityClass(name, value)) for name, value in known.priorities.items()),
            Listed("policies"),
            *(self.seen(uid) for uid in self.jobs),
            Listed("Job", frozenset(self.jobs)),
        ]

    def relist(self) -> None:
        """The watch fails: its undelivered events are lost, and a list replaces them."""
        self.watch = [event for event in self.watch if not isinstance(event, WorkloadObserved | WorkloadGone)]
        self.watch += [*(self.seen(uid) for uid in self.jobs), Listed("Job", frozenset(self.jobs))]

    def fold(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, EffectSettled) and event.result in (Result.DONE, Result.GONE):
                self.acknowledged.append(event.key)
            if isinstance(event, WorkloadObserved):
                self._note_size(event)
        self.engine.handle(events)
        assert violations(self.engine) == []

    def _note_size(self, event: WorkloadObserved) -> None:
        size = event.workload.pod_sets, event.observation.reclaimable
        if self.sizes.setdefault(event.workload.id, size) != size:
            self.sizes[event.workload.id] = size
            self.reshaped.add(event.workload.id)

    def deliver(self) -> None:
        events, self.watch, self.answers = [*self.watch, *self.answers], [], []
        if events:
            self.fold(events)

    def decide(self, budget: int) -> bool:
        """Decide and commit one plan. Return whether there was anything to do."""
        engine = self.engine
        self.tell_time()
        plan = engine.decide(self.now, budget)
        assert engine.decide(self.now, budget) == plan, "deciding changed something"
        idle = not plan.decisions and not plan.probes
        if idle and not self.acknowledged:
            assert not engine.due or plan.more, "due, and nothing to do: a driver would spin"
            return plan.more
        assert violations(engine, plan) == [], violations(engine, plan)
        self._reasons_are_new(plan)
        self._commit(plan)
        return True

    def tell_time(self) -> None:
        """Deliver the time, as the driver does, if a timer is due."""
        if self.engine.due_at is not None and self.engine.due_at <= self.now:
            self.engine.handle([TimeCame(self.now)])
            assert violations(self.engine) == []

    def _commit(self, plan: Plan) -> None:
        self.batch += 1
        done, self.acknowledged = self.acknowledged, []
        first = wait_for(self.ledger.commit(plan, done, epoch=self.epoch, batch=f"{self.batch}"))
        self.engine.commit_part(plan, first)
        assert violations(self.engine) == []
        for effect in self.engine.take_effects():
            self.effects[effect.key.workload] = effect
        self.probes |= {probe.workload: probe for probe in plan.probes}

    def refuse(self, budget: int, number: int) -> None:
        """The ledger refuses the whole plan, and then one of its parts again: that tree is frozen."""
        plan = self.engine.decide(self.now, budget)
        parts = self.engine.split(plan)
        for count, (root, part) in enumerate(parts):
            if root and count == number % len(parts):
                self.engine.freeze(root)
                assert root in self.engine.frozen
            else:
                self._commit(part)
            assert violations(self.engine) == []

    def thaw(self) -> None:
        for root in self.engine.frozen:
            self.engine.thaw(root, wait_for(self.ledger.load()))
            assert violations(self.engine) == []

    def decide_all(self, budget: int) -> None:
        for _ in range(5000):
            if not self.decide(budget):
                return
        raise AssertionError("decisions never end")

    def _reasons_are_new(self, plan: Plan) -> None:
        for decision in plan.decisions:
            if isinstance(decision, Keep):
                before = self.ledger.store.workloads.get(decision.workload)
                reason = before.reason if before is not None else None
                changed = reason is None or reason.key != decision.reason.key
                assert decision.recorded or not changed, (decision, reason)
                if decision.recorded:
                    assert changed or decision.workload in self.reshaped, (decision, reason)  # R2, L29
                    self.reshaped.discard(decision.workload)

    # --- users

    def seen(self, uid: WorkloadId) -> WorkloadObserved:
        job = self.jobs[uid]
        return WorkloadObserved(
            job.workload,
            Observation(
                resource_version=str(job.version),
                generation=job.generation,
                suspended=job.suspended,
                annotated=True,
                finished=job.finished,
                quiet=job.quiet,
                admission=job.admission,
                ready=job.ready,
                reclaimable=((job.workload.pod_sets[0].name, job.ended),) if job.ended else (),
                release=job.release,
            ),
        )

    def write(self, uid: WorkloadId, *, spec: bool = True, **fields: Any) -> None:
        """Write a Job once, and queue the events of the write."""
        job = self.jobs[uid]
        self.version += 1
        generation = job.generation + (1 if spec else 0)
        self.jobs[uid] = replace(job, version=self.version, generation=generation, **fields)
        self.watch.append(self.seen(uid))

    def submit(self, one: Workload, *, running: bool = False) -> None:
        self.version += 1
        self.jobs[one.id] = Job(one, suspended=not running, pods=running, version=self.version)
        self.watch.append(self.seen(one.id))

    def delete(self, uid: WorkloadId) -> None:
        self.left[uid] = self.jobs.pop(uid).pods
        self.version += 1
        self.watch.append(WorkloadGone(uid, str(self.version)))

    def kill_pods(self) -> None:
        """End the pods of all Jobs that do not run any more."""
        self.left = dict.fromkeys(self.left, False)
        for uid, job in self.jobs.items():
            if job.suspended or job.finished:
                self.jobs[uid] = replace(job, pods=False)

    # --- driver

    def settle(self, uid: WorkloadId, *, denied: bool = False) -> None:
        effect = self.effects.pop(uid)
        job = self.jobs.get(uid)
        if denied and job is not None and effect.key.verb is Verb.START and job.suspended:
            self.answers.append(EffectSettled(effect.key, Result.DENIED, detail="no"))
        elif job is None:
            self.answers += [WorkloadGone(uid, str(self.version)), EffectSettled(effect.key, Result.GONE)]
        elif effect.key.verb is Verb.STOP:
            if not job.finished and not job.suspended:
                self.write(uid, suspended=True)
            self.answers.append(EffectSettled(effect.key, Result.DONE, self.jobs[uid].generation))
        elif job.admission is not None and job.admission.number == effect.key.attempt and not job.suspended:
            self.answers.append(EffectSettled(effect.key, Result.DONE, job.generation))
        elif job.generation != effect.observation.generation or job.workload.queue != effect.workload.queue:
            self.answers += [self.seen(uid), EffectSettled(effect.key, Result.REFUSED)]
        else:
            self.write(uid, suspended=False, pods=True, admission=effect.attempt, ready=False)
            self.answers.append(EffectSettled(effect.key, Result.DONE, self.jobs[uid].generation))

    def count(self, uid: WorkloadId) -> None:
        """Count pods by a consistent read. There is no result while a pod is alive."""
        job = self.jobs.get(uid)
        runs = job is not None and not job.suspended and not job.finished
        probe = self.probes[uid]
        if probe.at_most is not None:  # the operator has deleted the pods that are too many
            gone = True
        else:
            gone = not runs and not (job.pods if job is not None else self.left.get(uid, False))
        if gone:
            del self.probes[uid]
            self.answers.append(PodsCounted(uid, probe.attempt, alive=False, at_most=probe.at_most))

    # --- admins

    def set(self, value: ClusterQueue | Cohort | ResourceFlavor | LocalQueue | WorkloadPriorityClass) -> None:
        known: dict[Any, Any] = self._table(type(value).__name__)
        known[value.name] = value.value if isinstance(value, WorkloadPriorityClass) else value
        self.watch.append(_policy(value))

    def unset(self, kind: str, name: str | LocalQueueName) -> None:
        self._table(kind).pop(name, None)
        key = ConfigKey(kind, *name) if isinstance(name, LocalQueueName) else ConfigKey(kind, "", name)
        self.watch.append(PolicyGone(key))

    def label(self, namespace: str, labels: dict[str, str] | None) -> None:
        if labels is None:
            self.policy.namespaces.pop(namespace, None)
            self.watch.append(ContextGone(Namespace, namespace))
        else:
            self.policy.namespaces[namespace] = labels
            self.watch.append(_namespace(namespace, labels))

    def _table(self, kind: str) -> dict[Any, Any]:
        known = self.policy
        tables: dict[str, dict[Any, Any]] = {
            "ClusterQueue": known.queues,
            "Cohort": known.cohorts,
            "ResourceFlavor": known.flavors,
            "LocalQueue": known.local_queues,
            "WorkloadPriorityClass": known.priorities,
        }
        return tables[kind]

    # --- invariants after all events are delivered and all decisions are made

    def compare(self) -> None:
        """Compare the ledger with the reference, and with a process started now."""
        if self.engine.frozen:
            return
        stored = self.ledger.store.workloads
        usage: Usage = {}
        for one in stored.values():
            if one.attempt is not None:
                queue = one.attempt.assignment.cluster_queue
                for (flavor, resource), amount in one.attempt.assignment.usage().items():
                    key = (queue, flavor, resource)
                    usage[key] = usage.get(key, 0) + amount
        waiting = {
            uid: _left(job)
            for uid, job in self.jobs.items()
            if job.suspended and not job.finished and (uid not in stored or stored[uid].attempt is None)
        }
        assert waiting.keys() <= stored.keys(), "a pending workload is not in the ledger"
        claiming = {
            uid
            for uid in waiting
            if (reason_now := stored[uid].reason) and reason_now.code is PREEMPTED_FIRST
        }
        blocked = {str(stored[uid].cluster_queue) for uid in claiming}
        kept_out = {uid: self._kept_out(one, stored[uid].past) for uid, one in waiting.items()}
        pairs = ((_as_of(one, stored[uid].past), stored[uid].arrival) for uid, one in waiting.items())
        expected = self.policy.waits_for(pairs, usage, blocked, kept_out)
        for uid, code in expected.items():
            reason = stored[WorkloadId(uid)].reason
            assert reason is not None, f"{uid} is pending with {code}, but has no reason"
            if self.excused(code, reason):
                continue
            if code is None and (claiming or self.policy.has_strict_queue):
                # What is available is reserved. The row may be older, from when it was in use (R2).
                assert reason.code is Code.WAITING_FOR_QUOTA, f"{uid} fits, but has reason {reason}"
                continue
            assert code is not None, f"{uid} fits, but was not admitted"
            assert reason.code is code, f"{uid} is pending with {code}, but has reason {reason}"
        for uid, job in self.jobs.items():
            if not job.suspended and not job.finished and self.policy.queue_of(job.workload):
                attempt = stored[uid].attempt
                assert attempt is not None, f"{uid} runs, but is not charged"
                held = [(p.name, _without_pods(p.requests)) for p in attempt.assignment.pod_sets]
                asked = [(p.name, p.requests) for p in job.workload.pod_sets]
                assert attempt.debt or held == asked, (
                    f"{uid} runs with a charge that differs from its request"
                )
                more = attempt.assignment.pods - sum(p.count for p in _left(job).pod_sets)
                settled = attempt.state is AttemptState.ADMITTED and uid not in self.effects
                assert attempt.debt or more >= 0, f"{uid} holds less than its pods"
                assert attempt.debt or more == 0 or not settled, f"{uid} holds what {more} pods have left"
        assert not [uid for uid in stored.keys() - self.jobs.keys() if stored[uid].attempt is None]

    def excused(self, code: Code | None, reason: Reason) -> bool:
        """Return whether a workload with `code` by the reference may wait with `reason`."""
        return code is Code.WAITING_FOR_QUOTA and reason.code is Code.MIN_RUN_TIME_PROTECTED

    def _kept_out(self, one: Workload, past: PastAttempts) -> Code | None:
        if one.max_run_seconds is not None and past.run_ms >= one.max_run_seconds * 1000:
            return Code.DEACTIVATED
        if past.barred is None or (past.until is not None and past.until <= self.now):
            return None
        return past.barred.code

    def compare_with_another(self) -> None:
        """At rest, an engine that is loaded from the ledger now must not decide differently.

        It may report another one of several limits: inadmissible workloads are not evaluated for that alone.
        """
        other = Engine(SOURCES, SETTINGS)
        other.restore(wait_for(self.ledger.load()))
        other.handle(self.everything())
        if other.due_at is not None and other.due_at <= self.now:
            other.handle([TimeCame(self.now)])
        for _ in range(50):
            plan = other.decide(self.now)
            if not plan.decisions and not plan.probes:
                break
            for decision in plan.recorded:
                assert isinstance(decision, Keep), decision
                before = self.ledger.store.workloads[decision.workload].reason
                assert before is not None, decision
                assert {before.code, decision.reason.code} <= self.SAME, (before, decision)
            other.commit(plan, 0)
        assert violations(other) == []
        assert other.unacknowledged() == self.engine.unacknowledged()


def _left(job: Job) -> Workload:
    """Return the requests without the pods that have ended for good."""
    pod_sets = tuple(replace(p, count=max(0, p.count - job.ended)) for p in job.workload.pod_sets)
    return replace(job.workload, pod_sets=pod_sets)


def _without_pods(requests: Amounts) -> Amounts:
    return tuple(item for item in requests if item[0] != PODS)


def _namespace(name: str, labels: dict[str, str]) -> ContextObserved:
    return ContextObserved(Namespace(name, tuple(labels.items())))


def _policy(value: Any) -> PolicyObserved:
    return replace(policy(value), spec=json.dumps(repr(value)))


def _as_of(one: Workload, past: PastAttempts) -> Workload:
    """Return the workload with the end of its backoff as its creation time (O6)."""
    return one if past.until is None else replace(one, created_at=max(one.created_at, past.until))
