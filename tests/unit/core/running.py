"""A test cluster with random actions of users and admins. Effects complete at once, pods end later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from queuectl.core.decisions import Admit, Plan
from queuectl.core.engine import DEFAULT_BUDGET, Engine
from queuectl.core.events import Event, PolicyObserved, TimeCame, WorkloadGone, WorkloadObserved
from queuectl.core.model import Outcome, WorkloadId
from queuectl.core.policy import LocalQueueName, StopPolicy, WorkloadPriorityClass
from tests.builders import SOURCES, T0
from tests.doubles.invariants import violations
from tests.doubles.readers import ReadableLedger
from tests.unit.core.laws import PlanContext
from tests.unit.core.machine import Cluster, wait_for
from tests.unit.core.reference import Policy
from tests.unit.core.trees import CLASSES, Dice, World, cluster_queue, cohort, job

Law = Callable[[PlanContext], None]


class Running(Cluster):
    """A cluster whose plans are checked against laws."""

    def __init__(self, world: World, *laws: Law) -> None:
        self.world = world
        self.laws = laws
        self.now = T0
        self.made = 0
        self.evicted: list[tuple[str, str]] = []
        """(victim, preemptor) pairs in order of preemption."""
        self.preemptors: set[WorkloadId] = set()
        """Preemptors since the last action of a user or admin."""
        self.admitted_since: set[WorkloadId] = set()
        super().__init__()
        self.ledger = ReadableLedger(lambda: self.now, settings=world.settings)
        self.start()
        self.label("ns", {})
        for value in world.policies:
            self.set(value)
        self.deliver()

    def start(self) -> None:
        self.epoch = wait_for(self.ledger.take_epoch("test"))
        self.engine = self.fresh()
        self.watch, self.answers, self.acknowledged = [], [], []
        self.effects, self.probes = {}, {}
        self.carry_out_effects()

    def fresh(self) -> Engine:
        """Return an engine that is started now."""
        engine = Engine(SOURCES, self.world.settings)
        engine.restore(wait_for(self.ledger.load()))
        engine.handle(self.everything())
        assert violations(engine) == []
        return engine

    # --- the driver

    def plan(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        plan = self.engine.decide(self.now, budget, cycles)
        assert self.engine.decide(self.now, budget, cycles) == plan, "deciding changed the state"
        return plan

    def carry_out(self, plan: Plan, *, one_cycle: bool) -> bool:
        """Commit a plan and carry out its effects. Return whether there was anything to do."""
        if not plan.decisions and not plan.probes:
            assert not self.engine.due or plan.more, "due without anything to do: the driver would loop"
            return plan.more
        assert violations(self.engine, plan) == []
        context = PlanContext(self, plan, one_cycle=one_cycle)
        for law in self.laws:
            law(context)
        self.preemptors |= {preempting.owner.id for preempting in context.preemptions}
        self.admitted_since |= {d.attempt.workload for d in plan.decisions if isinstance(d, Admit)}
        self.evicted += [(victim.workload, str(victim.preemptor)) for victim in plan.victims]
        self._commit(plan)
        self.carry_out_effects()
        return True

    def decide(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> bool:
        return self.carry_out(self.plan(budget, cycles), one_cycle=cycles == 1)

    def carry_out_effects(self) -> None:
        for effect in self.engine.take_effects():
            self.effects[effect.key.workload] = effect
        for uid in list(self.effects):
            self.settle(uid)
        self.deliver()

    def end_pods(self) -> None:
        """End the pods of all workloads that were stopped, have finished or are deleted."""
        self.kill_pods()
        for uid in list(self.probes):
            self.count(uid)
        self.deliver()

    def come_to_rest(self, cycles: int | None = None) -> None:
        """Decide until nothing is left, without actions of users and admins. Evictions complete."""
        bound = self.bound()
        self.preemptors, self.admitted_since = set(), set()
        for _ in range(bound):
            if not self.decide(cycles=cycles):
                if not self.probes:
                    return
                self.end_pods()
        raise AssertionError(f"not at rest after {bound} plans")

    @property
    def shares(self) -> bool:
        """Whether a tree has fair sharing, or may have it."""
        on = [cohort.sharing.enabled for cohort in self.policy.cohorts.values()]
        return self.world.settings.fair_sharing or any(on)

    def counting(self) -> Policy:
        """Return the policy with nominal quotas as they count."""
        return self.policy

    def bound(self) -> int:
        """Upper bound of plans: each workload is admitted, stopped, released and evaluated a few times."""
        return 20 + 8 * len(self.jobs.keys() | self.ledger.store.workloads.keys())

    # --- users and admins

    def act(self, dice: Dice) -> None:
        """Perform one random action."""
        happens: list[Callable[[Dice], object]] = [
            self.submit_some,
            lambda _: self.decide(cycles=1),
            lambda _: self.decide(),
            self.submit_some,
            lambda _: self.end_pods(),
            self.finish,
            lambda _: self.decide(cycles=1),
            lambda dice: self.decide(budget=1 + dice.below(4)),
            lambda dice: self.decide(cycles=1 + dice.below(3)),
            self.remove,
            self.hold,
            self.change_priority,
            self.change_policy,
            self.wait,
            self.end_some_pods,
            lambda _: self.start(),
            lambda _: self.decide(),
        ]
        happens[dice.below(len(happens))](dice)
        self.deliver()

    def submit_some(self, dice: Dice) -> None:
        for _ in range(1 + dice.below(3)):
            self.submit_one(dice)

    def remove_everything(self) -> None:
        """Delete all jobs, and all queues, cohorts and flavors in some order."""
        for uid in list(self.jobs):
            self.delete(uid)
        known = self.policy
        everything: dict[str, list[str] | list[LocalQueueName]] = {
            "ResourceFlavor": list(known.flavors),
            "ClusterQueue": list(known.queues),
            "LocalQueue": list(known.local_queues),
            "Cohort": list(known.cohorts),
        }
        for kind, names in everything.items():
            for name in names:
                self.unset(kind, name)
                self.deliver()

    def any_job(self, dice: Dice, *, running: bool | None = None) -> WorkloadId | None:
        found = [
            uid
            for uid, one in self.jobs.items()
            if one.finished is None and (running is None or one.suspended is not running)
        ]
        return found[dice.below(len(found))] if found else None

    def finish(self, dice: Dice) -> None:
        if uid := self.any_job(dice, running=True):
            quiet = dice.pick(True, False)
            self.write(uid, spec=False, finished=Outcome.SUCCEEDED, quiet=quiet, pods=not quiet)

    def end_some_pods(self, dice: Dice) -> None:
        """Some pods of the first podset of a running workload end for good."""
        uid = self.any_job(dice, running=True)
        if uid is not None and (most := self.jobs[uid].workload.pod_sets[0].count - 1) > self.jobs[uid].ended:
            self.write(
                uid, spec=False, ended=self.jobs[uid].ended + 1 + dice.below(most - self.jobs[uid].ended)
            )

    def remove(self, dice: Dice) -> None:
        if uid := self.any_job(dice):
            self.delete(uid)

    def hold(self, dice: Dice) -> None:
        if uid := self.any_job(dice):
            one = self.jobs[uid].workload
            self.write(uid, spec=False, workload=replace(one, hold=not one.hold))

    def change_priority(self, dice: Dice) -> None:
        """Change the priority of one pending workload or of a priority class."""
        uid = self.any_job(dice, running=False)
        if uid is None or dice.below(3) == 2:
            self.set(WorkloadPriorityClass(dice.pick(*CLASSES), dice.below(5) - 2))
        else:
            one = replace(self.jobs[uid].workload, priority_class=dice.pick(None, *CLASSES))
            self.write(uid, spec=False, workload=one)

    def change_policy(self, dice: Dice) -> None:
        """Change a queue or a cohort, as an admin does."""
        world, known = self.world, self.policy
        if world.depth and dice.below(4) == 3:
            self.set(cohort(dice, dice.below(world.depth), world.layout))
            return
        name = sorted(known.queues)[dice.below(len(known.queues))]
        if dice.below(4) == 3:
            stop = dice.pick(StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN)
            self.set(replace(known.queues[name], stop_policy=stop))
        else:
            self.set(cluster_queue(dice, name, world.depth, world.layout))

    def wait(self, dice: Dice) -> None:
        self.now += timedelta(seconds=dice.pick(1, 6, 20, 4000))
        due = self.engine.due_at
        if due is not None and due <= self.now:
            self.engine.handle([TimeCame(self.now)])
            assert violations(self.engine) == []

    def random_event(self, dice: Dice) -> Event | None:
        """Perform one random action and return its event without delivery; None: no event."""
        happens = (
            self.submit_one,
            self.finish,
            self.remove,
            self.hold,
            self.change_priority,
            self.change_policy,
        )
        happens[dice.below(len(happens))](dice)
        events, self.watch = self.watch, []
        return events[-1] if events else None

    def submit_one(self, dice: Dice) -> None:
        self.made += 1
        self.submit(job(dice, f"w{self.made}", self.world))

    @staticmethod
    def subject(event: Event) -> str:
        match event:
            case WorkloadObserved():
                return event.workload.id
            case WorkloadGone():
                return event.workload
            case PolicyObserved():
                return str(event.key)
        raise AssertionError(event)


def forked(engine: Engine, events: list[Event]) -> Engine:
    """Return a copy of the engine after `events`."""
    other = engine.fork()
    other.handle(events)
    assert violations(other) == []
    return other
