"""One driver of random sequences: the objects of a cluster, an engine, a ledger, and two event channels.

The channels lag, and may repeat events. A prompt driver delivers all at once and carries out the effects of
each plan; pods end later. What happens is a table of actions.py, what must hold is a list of laws.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from queuectl.core.decisions import Admit, Keep, Plan, PodsToCount, Release, Retire
from queuectl.core.engine import DEFAULT_BUDGET, Engine
from queuectl.core.model.events import (
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
from queuectl.core.model.policy import LocalQueueName, Namespace, WorkloadPriorityClass
from queuectl.core.model.policy import Policy as PolicyObject
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    ConfigKey,
    Effect,
    EffectKey,
    ForcedRelease,
    LedgerSnapshot,
    Observation,
    Verb,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from tests.builders import SOURCES, T0, policy
from tests.doubles.invariants import violations
from tests.doubles.readers import ReadableLedger
from tests.unit.core.laws import ALWAYS
from tests.unit.core.node_pool import NodePool
from tests.unit.core.plans import Law, PlanContext, When
from tests.unit.core.reference import Policy
from tests.unit.core.trees import Dice, Setup

T = TypeVar("T")
Action = Callable[["Driver", Dice], object]


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
    finished: WorkloadOutcome | None = None
    quiet: bool = False
    admission: Attempt | None = None
    pods: bool = False
    """Whether a pod of it is alive."""
    version: int = 0
    ready: bool | None = None
    ended: int = 0
    """Number of its pods that have ended for good."""
    release: ForcedRelease | None = None
    started: Assignment | None = None
    """What its live pods were started with; None: not by an admission that says so."""
    unasked: bool = False
    """Its pods were started while the ledger held no quota for them: it is told later."""
    edited: bool = False
    """Its annotation was edited: it may not say any more what runs."""


class Driver:
    """The objects in the API server, the ledger, the engine, and the laws that it keeps."""

    def __init__(self, setup: Setup, *laws: Law, actions: Action | None = None, prompt: bool = True) -> None:
        """`prompt`: see the module."""
        self.setup, self.laws, self.actions, self.prompt = setup, (*ALWAYS, *laws), actions, prompt
        self.now = T0
        self.policy = Policy()
        self.nodes = NodePool(self, setup.nodes)
        self.jobs: dict[WorkloadId, Job] = {}
        self.left: dict[WorkloadId, Job] = {}
        """Deleted objects; their pods may be alive."""
        self.ledger = ReadableLedger(lambda: self.now, settings=setup.settings)
        self.sizes: dict[WorkloadId, object] = {}
        self.reshaped: set[WorkloadId] = set()
        """Those that request something else than when a reason of them was recorded."""
        self.made = self.version = self.batch = 0
        self.evicted: list[tuple[WorkloadId, str]] = []
        """(victim, preemptor) pairs in order of preemption."""
        self.preemptors: set[WorkloadId] = set()
        """Preemptors since the cluster began to come to rest."""
        self.evicted_before = 0
        """Number of those of `evicted` before that."""
        self.preempted_before: set[WorkloadId] = set()
        """Workloads with a preemption before that which still counts."""
        self.admitted_since: set[WorkloadId] = set()
        self.start()
        self.label("ns", {})
        for value in setup.policies:
            self.set(value)
        self.deliver()

    def keep(self, when: When, subject: object) -> None:
        """Check the laws of that moment."""
        for law in self.laws:
            if law.when is when:
                law.check(subject)

    def check(self, engine: Engine | None = None, plan: Plan | None = None) -> None:
        """Check the invariants of an engine, by default the running one, before `plan` is committed."""
        assert violations(engine or self.engine, plan) == []

    # --- processes

    def start(self) -> None:
        """Start a new process: load the ledger, then deliver complete lists."""
        self.epoch = wait_for(self.ledger.take_epoch("test"))
        self.watch: list[Event] = []
        self.answers: list[Event] = []
        self.acknowledged: list[EffectKey] = []
        self.effects: dict[WorkloadId, Effect] = {}
        self.probes: dict[WorkloadId, PodsToCount] = {}
        self.engine = Engine(SOURCES, self.setup.settings)
        self.engine.restore(self.loaded())
        for event in self.everything():
            self.fold([event])
        self.take_effects()

    def loaded(self) -> LedgerSnapshot:
        return wait_for(self.ledger.load())

    def fresh(self) -> Engine:
        """Return an engine of a process that is started now."""
        engine = Engine(SOURCES, self.setup.settings)
        engine.restore(self.loaded())
        engine.handle(self.everything())
        self._tell_time(engine)
        return engine

    def forked(self, events: list[Event]) -> Engine:
        """Return a copy of the engine after `events`."""
        engine = self.engine.fork()
        engine.handle(events)
        self.check(engine)
        return engine

    def everything(self) -> list[Event]:
        known = self.policy
        values = (*known.flavors.values(), *known.cohorts.values(), *known.queues.values())
        others = (*known.local_queues.values(), *known.limits.values(), *known.idle.values())
        return [
            *map(ContextObserved, self.setup.gates),
            *self.nodes.everything(),
            *(
                ContextObserved(Namespace(name, tuple(labels.items())))
                for name, labels in known.namespaces.items()
            ),
            *(_observed(value) for value in (*values, *others)),
            *map(_observed, known.budgets.values()),
            *(_observed(WorkloadPriorityClass(name, value)) for name, value in known.priorities.items()),
            Listed("policies"),
            *self.jobs_listed(),
        ]

    def jobs_listed(self) -> list[Event]:
        return [*(self.seen(uid) for uid in self.jobs), Listed("Job", frozenset(self.jobs))]

    def relist(self) -> None:
        """The watch fails: its undelivered events are lost, and a list replaces them."""
        self.watch = [event for event in self.watch if not isinstance(event, WorkloadObserved | WorkloadGone)]
        self.watch += self.jobs_listed()

    # --- events, plans and effects

    def fold(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, EffectSettled) and event.result in (Result.DONE, Result.GONE):
                self.acknowledged.append(event.key)
            if isinstance(event, WorkloadObserved):
                size = event.workload.pod_sets, event.observation.reclaimable
                if self.sizes.setdefault(event.workload.id, size) != size:
                    self.sizes[event.workload.id] = size
                    self.reshaped.add(event.workload.id)
        self.engine.handle(events)
        self.check()

    def deliver(self) -> None:
        self.nodes.end_dead_pods()
        events, self.watch, self.answers = [*self.watch, *self.answers], [], []
        if events:
            self.fold(events)

    def tell_time(self) -> None:
        """Deliver the time, as the controller does, if a timer is due."""
        self._tell_time(self.engine)

    def _tell_time(self, engine: Engine) -> None:
        if engine.due_at is not None and engine.due_at <= self.now:
            engine.handle([TimeCame(self.now)])
        self.check(engine)

    def plan(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        self.tell_time()
        plan = self.engine.decide(self.now, budget, cycles)
        self.keep(When.DECIDE, PlanContext(self, plan, budget, cycles))
        return plan

    def decide(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> bool:
        """Decide and commit one plan. Return whether there was anything to do."""
        return self.carry_out(self.plan(budget, cycles), budget, cycles)

    def carry_out(self, plan: Plan, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> bool:
        """Commit a plan, and carry out its effects if the driver is prompt."""
        if not plan.decisions and not plan.probes and (self.prompt or not self.acknowledged):
            return plan.more
        self.check(plan=plan)
        context = PlanContext(self, plan, budget, cycles)
        self.keep(When.PLAN, context)
        self.preemptors |= {preempting.owner.id for preempting in context.preemptions}
        self.admitted_since |= {d.attempt.workload for d in plan.decisions if isinstance(d, Admit)}
        self.evicted += [(victim.workload, str(victim.preemptor)) for victim in plan.victims]
        self.commit(plan)
        self.keep(When.COMMIT, context)
        if self.prompt:
            self.settle_all()
        return True

    def commit(self, plan: Plan) -> None:
        self.batch += 1
        done, self.acknowledged = self.acknowledged, []
        first = wait_for(self.ledger.commit(plan, done, epoch=self.epoch, batch=f"{self.batch}"))
        self.engine.commit_part(plan, first)
        self.check()
        self.reshaped -= {d.workload for d in plan.decisions if isinstance(d, Keep) and d.recorded}
        self.probes |= {probe.workload: probe for probe in plan.probes}
        for decision in plan.decisions:
            if isinstance(decision, Release | Retire):
                self.probes.pop(decision.workload, None)  # counts end with their attempt
        self.take_effects()

    def take_effects(self) -> None:
        for effect in self.engine.take_effects():
            self.effects[effect.key.workload] = effect

    def refuse(self, budget: int, number: int) -> None:
        """The ledger refuses the whole plan, and then one of its parts again: that tree is frozen."""
        parts = self.engine.split(self.engine.decide(self.now, budget))
        for count, (root, part) in enumerate(parts):
            if root and count == number % len(parts):
                self.engine.freeze(root)
                assert root in self.engine.frozen
            else:
                self.commit(part)
            self.check()

    def thaw(self) -> None:
        for root in self.engine.frozen:
            self.engine.thaw(root, self.loaded())
            self.check()

    def decide_all(self, budget: int = DEFAULT_BUDGET) -> None:
        """Decide until nothing is left to decide. Pods do not end."""
        for _ in range(5000):
            if not self.decide(budget):
                self.keep(When.DECIDED, self)
                return
        raise AssertionError("decisions never end")

    def settle_all(self) -> None:
        self.take_effects()
        for uid in list(self.effects):
            self.settle(uid)
        self.deliver()

    def end_pods(self) -> None:
        """End the pods of all workloads that were stopped, have finished or are deleted, and tell so."""
        self.end_and_count_pods()
        self.deliver()

    def end_and_count_pods(self) -> None:
        self.kill_pods()
        for uid in list(self.probes):
            self.count(uid)

    def come_to_rest(self, cycles: int | None = None, budget: int = DEFAULT_BUDGET) -> None:
        """Decide, write and end pods until nothing is left, without actions of users and admins."""
        self.thaw()
        # Also pods that no probe counts: a client started their object and suspended it between two events.
        self.kill_pods()
        self.deliver()
        self.preemptors, self.admitted_since = set(), set()
        self.evicted_before = len(self.evicted)
        self.preempted_before = {uid for uid, times in self.ledger._preemptions().items() if times}
        bound, rounds = (self.bound() if self.prompt else 5000), 0
        for _ in range(bound):
            if self.decide(budget, cycles):
                continue
            self.take_effects()
            if not (self.effects or self.probes or self.watch or self.answers):
                self.keep(When.DECIDED, self)
                self.keep(When.REST, self)
                return
            rounds += 1
            assert self.prompt or rounds <= 60, f"never at rest: {self.effects} {self.probes}"
            self.settle_all()
            self.end_pods()
        raise AssertionError(f"not at rest after {bound} plans")

    def bound(self) -> int:
        """Upper bound of plans: each workload is admitted, stopped, released and evaluated a few times."""
        return 20 + 8 * len(self.jobs.keys() | self.ledger.store.workloads.keys())

    def plans_of(self, engine: Engine) -> Iterator[Plan]:
        """Yield the plans of another engine until it decides nothing. They reach no ledger."""
        for _ in range(self.bound()):
            plan = engine.decide(self.now)
            if not plan.decisions and not plan.probes:
                return
            yield plan
            engine.commit(plan, 1)
        raise AssertionError("decisions never end")

    @property
    def shares(self) -> bool:
        """Whether a tree has fair sharing, or may have it."""
        enabled = [cohort.sharing.enabled for cohort in self.policy.cohorts.values()]
        return self.setup.settings.fair_sharing or any(enabled)

    # --- what happens

    def act(self, dice: Dice) -> None:
        """Perform one random action of the table."""
        assert self.actions is not None
        self.actions(self, dice)
        if self.prompt:
            self.deliver()
        self.keep(When.ACTION, self)

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
        job = self.jobs[uid] = replace(job, version=self.version, generation=generation, **fields)
        if fields.get("pods"):
            row = self.ledger.store.workloads.get(uid)
            job.started = job.admission.assignment if job.admission is not None else None
            job.unasked = job.unasked or row is None or row.attempt is None
        self.watch.append(self.seen(uid))

    def submit(self, workload: Workload, *, running: bool = False) -> None:
        self.version += 1
        self.jobs[workload.id] = Job(workload, suspended=not running, pods=running, version=self.version)
        self.watch.append(self.seen(workload.id))

    def delete(self, uid: WorkloadId) -> None:
        self.left[uid] = self.jobs.pop(uid)
        self.version += 1
        self.watch.append(WorkloadGone(uid, str(self.version)))

    def kill_pods(self) -> None:
        """End the pods of all Jobs that do not run any more."""
        for job in (*self.left.values(), *(j for j in self.jobs.values() if j.suspended or j.finished)):
            job.pods = job.unasked = False

    def settle(self, uid: WorkloadId, *, denied: bool = False) -> None:
        """Carry out one effect."""
        effect, job = self.effects.pop(uid), self.jobs.get(uid)
        key = effect.key
        if job is None:
            self.answers += [WorkloadGone(uid, str(self.version)), EffectSettled(key, Result.GONE)]
        elif denied and key.verb is Verb.START and job.suspended:
            self.answers.append(EffectSettled(key, Result.DENIED, detail="no"))
        elif key.verb is Verb.STOP:
            superseded = job.admission is not None and job.admission.number > key.attempt
            if not job.finished and not job.suspended and not superseded:
                self.write(uid, suspended=True)
            self.answers.append(EffectSettled(key, Result.DONE, self.jobs[uid].generation))
        elif job.admission is not None and job.admission.number == key.attempt and not job.suspended:
            self.answers.append(EffectSettled(key, Result.DONE, job.generation))
        elif job.generation != effect.observation.generation or job.workload.queue != effect.workload.queue:
            self.answers += [self.seen(uid), EffectSettled(key, Result.REFUSED)]
        else:
            self.write(uid, suspended=False, pods=True, admission=effect.attempt, ready=False)
            self.answers.append(EffectSettled(key, Result.DONE, self.jobs[uid].generation))

    def count(self, uid: WorkloadId) -> None:
        """Count pods by a consistent read. There is no result while a pod is alive."""
        probe, job = self.probes[uid], self.jobs.get(uid) or self.left.get(uid)
        runs = uid in self.jobs and not self.jobs[uid].suspended and not self.jobs[uid].finished
        # Of pods that are too many, the operator has deleted some.
        if probe.at_most is not None or not (runs or (job is not None and job.pods)):
            del self.probes[uid]
            self.answers.append(PodsCounted(uid, probe.attempt, alive=False, at_most=probe.at_most))

    # --- admins

    def set(self, value: PolicyObject) -> None:
        table: dict[Any, Any] = self._table(type(value).__name__)
        table[value.name] = value.value if isinstance(value, WorkloadPriorityClass) else value
        self.watch.append(_observed(value))

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
            self.watch.append(ContextObserved(Namespace(namespace, tuple(labels.items()))))

    def _table(self, kind: str) -> dict[Any, Any]:
        known = self.policy
        tables: dict[str, dict[Any, Any]] = {
            "ClusterQueue": known.queues,
            "Cohort": known.cohorts,
            "ResourceFlavor": known.flavors,
            "LocalQueue": known.local_queues,
            "WorkloadPriorityClass": known.priorities,
            "UsageLimit": known.limits,
            "IdlePolicy": known.idle,
            "Budget": known.budgets,
        }
        return tables[kind]


def _observed(value: Any) -> PolicyObserved:
    return replace(policy(value), spec=json.dumps(repr(value)))
