"""A test cluster in which other clients act on the objects: they suspend them, start them, edit annotations,
delete and make them again, and restore the ledger from an older dump. Pods run where they were started."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from queuectl.core.decisions import Admit, Configure, Plan, subject
from queuectl.core.events import ContextObserved, EffectSettled, Event, Result
from queuectl.core.model import Assignment, Attempt, AttemptState, Phase, Verb, WorkloadId
from queuectl.core.policy import Gate, Preemption, PreemptionPolicy, WorkloadPriorityClass
from queuectl.core.resources import Usage
from tests.builders import GPU, T0, flavor, group, local_queue, queue, workload
from tests.doubles.readers import ReadableLedger
from tests.unit.core.machine import Cluster
from tests.unit.core.trees import Dice

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
QUOTA = {"a100": 4, "spot": 4}
ROUNDS = 40
"""Rounds of deliveries, plans, writes and ends of pods after which all is at rest."""


class OtherClients(Cluster):
    def __init__(self) -> None:
        self.pods_of: dict[WorkloadId, Assignment | None] = {}
        """What live pods were started with, by workload; None: not by an admission that says so."""
        self.edited: set[WorkloadId] = set()
        """Objects of which an annotation was edited: they may not say any more what runs."""
        self.unasked: set[WorkloadId] = set()
        """Objects that another client started while the ledger held no quota for them: it is told later."""
        self.dumps: list[ReadableLedger] = []
        self.made = 0
        super().__init__()
        self.label("ns", {})
        self.set(WorkloadPriorityClass("high", 10))
        for name in QUOTA:
            self.set(flavor(name))
        quotas = [group({name: {GPU: gpus} for name, gpus in QUOTA.items()})]
        self.set(queue("cq", groups=quotas, preemption=LOWER))
        self.set(local_queue("lq", "cq"))
        self.deliver()

    def everything(self) -> list[Event]:
        return [ContextObserved(Gate("queuectl-jobs", T0)), *super().everything()]

    # --- pods

    def write(self, uid: WorkloadId, *, spec: bool = True, **fields: object) -> None:
        super().write(uid, spec=spec, **fields)
        job = self.jobs[uid]
        if fields.get("pods"):
            self.pods_of[uid] = job.admission.assignment if job.admission is not None else None
            stored = self.ledger.store.workloads.get(uid)
            if stored is None or stored.attempt is None:
                self.unasked.add(uid)

    def kill_pods(self) -> None:
        super().kill_pods()
        alive = {uid for uid, job in self.jobs.items() if job.pods} | {
            u for u, left in self.left.items() if left
        }
        self.pods_of = {uid: of for uid, of in self.pods_of.items() if uid in alive}
        self.unasked &= alive

    def end_pods(self) -> None:
        self.kill_pods()
        for uid in list(self.probes):
            self.count(uid)

    # --- the driver

    def settle(self, uid: WorkloadId, *, denied: bool = False) -> None:
        effect, job = self.effects[uid], self.jobs.get(uid)
        if effect.key.verb is Verb.STOP and job is not None and _later(job.admission, effect.attempt):
            del self.effects[uid]
            self.answers.append(EffectSettled(effect.key, Result.DONE, job.generation))
            return
        super().settle(uid, denied=denied)

    def _commit(self, plan: Plan) -> None:
        super()._commit(plan)
        if any(isinstance(d, Admit) and not d.attempt.debt for d in plan.decisions) and not self.watch:
            self.check_that_all_live_pods_are_charged(plan)

    def check_that_all_live_pods_are_charged(self, plan: Plan) -> None:
        """All events were delivered: an admission took the quota of no live pod."""
        decided = {subject(d) for d in plan.decisions if not isinstance(d, Configure)}
        stored = self.ledger.store.workloads
        for uid, started in self.pods_of.items():
            unknown = uid not in self.jobs and uid not in stored  # gone, and not in the dump
            if uid in self.unasked or uid in self.edited or unknown:
                continue
            held = stored[uid].attempt if uid in stored else None
            assert held is not None, f"{uid} has live pods and no charge, {sorted(decided)} were decided"
            if started is not None:
                missing = Counter(started.usage()) - Counter(held.assignment.usage())
                assert not missing, f"{uid} has live pods on {started.usage()}, charged is {held}"

    def round(self) -> None:
        """One round of a driver that is not disturbed."""
        self.deliver()
        self.decide_all(1000)
        self.take_effects()
        for uid in list(self.effects):
            self.settle(uid)
        self.deliver()
        self.end_pods()
        self.deliver()
        self.decide_all(1000)
        self.take_effects()

    def take_effects(self) -> None:
        for effect in self.engine.take_effects():
            self.effects[effect.key.workload] = effect

    # --- other clients

    def act(self, dice: Dice) -> None:
        happens: list[Callable[[Dice], object]] = [
            self.submit_one,
            lambda _: self.round(),
            self.suspend,
            self.let_go,
            self.toggle,
            lambda _: self.deliver(),
            lambda _: self.decide(1000),
            self.settle_one,
            lambda _: self.end_pods(),
            self.edit_annotation,
            self.delete_one,
            self.make_again,
            lambda _: self.dumps.append(copy.deepcopy(self.ledger)),
            self.restore_a_dump,
            lambda _: self.start(),
            self.hold,
            self.wait,
            lambda _: self.round(),
            self.submit_one,
            self.restore_a_dump,
        ]
        happens[dice.below(len(happens))](dice)

    def any_job(self, dice: Dice) -> WorkloadId | None:
        found = sorted(uid for uid, job in self.jobs.items() if not job.finished)
        return found[dice.below(len(found))] if found else None

    def submit_one(self, dice: Dice) -> None:
        self.made += 1
        priority = dice.mostly(None, "high")
        self.submit(workload(f"w{self.made}", gpus=1 + dice.below(4), priority_class=priority))

    def suspend(self, dice: Dice) -> None:
        if (uid := self.any_job(dice)) is not None and not self.jobs[uid].suspended:
            self.write(uid, suspended=True)

    def let_go(self, dice: Dice) -> None:
        if (uid := self.any_job(dice)) is not None and self.jobs[uid].suspended:
            self.write(uid, suspended=False, pods=True)

    def toggle(self, dice: Dice) -> None:
        uid = self.any_job(dice)
        if uid is None or self.jobs[uid].suspended:
            return
        self.write(uid, suspended=True)
        if dice.below(2):
            self.deliver()
        if dice.below(2):
            self.decide(1000)
        if dice.below(2) and uid in self.effects:
            self.settle(uid)
        if uid in self.jobs and self.jobs[uid].suspended:
            self.write(uid, suspended=False, pods=True)

    def settle_one(self, dice: Dice) -> None:
        if self.effects:
            self.settle(dice.pick(*sorted(self.effects)))

    def edit_annotation(self, dice: Dice) -> None:
        uid = self.any_job(dice)
        marked = self.jobs[uid].admission if uid is not None else None
        if uid is None or marked is None:
            return
        number = dice.pick(marked.number, marked.number + 3, max(1, marked.number - 1))
        self.edited.add(uid)
        self.write(uid, spec=False, admission=dice.pick(None, replace(marked, number=number)))

    def delete_one(self, dice: Dice) -> None:
        if (uid := self.any_job(dice)) is not None:
            self.delete(uid)

    def make_again(self, dice: Dice) -> None:
        if (uid := self.any_job(dice)) is not None:
            self.made += 1
            former = self.jobs[uid].workload
            self.delete(uid)
            again = WorkloadId(f"uid-w{self.made}")
            self.submit(replace(former, id=again, ref=former.ref._replace(uid=again)))

    def restore_a_dump(self, dice: Dice) -> None:
        if self.dumps:
            self.ledger = copy.deepcopy(dice.pick(*self.dumps))
            self.start()

    def hold(self, dice: Dice) -> None:
        if (uid := self.any_job(dice)) is not None:
            one = self.jobs[uid].workload
            self.write(uid, spec=False, workload=replace(one, hold=not one.hold))

    def wait(self, dice: Dice) -> None:
        self.now += timedelta(seconds=dice.pick(1, 20, 600))

    # --- at rest

    def come_to_rest(self) -> None:
        for _ in range(ROUNDS):
            self.round()
            if not (self.effects or self.probes or self.watch or self.answers or self.engine.due):
                return
        raise AssertionError(f"not at rest after {ROUNDS} rounds")

    def check_that_the_ledger_says_what_runs(self) -> None:
        stored, used = self.ledger.store.workloads, Counter[object]()
        for uid, one in stored.items():
            job = self.jobs.get(uid)
            assert job is not None, f"{uid} is gone, and open in the ledger"
            assert one.phase is not Phase.EVICTING, f"{uid} is being evicted for ever: {one.reason}"
            assert (one.attempt is not None) is not job.suspended, (
                f"{uid}: {one.phase}, suspended {job.suspended}"
            )
        for uid, job in self.jobs.items():
            assert not (job.workload.hold and (job.pods or not job.suspended)), f"{uid} is held and runs"
            if job.suspended:
                continue
            held = stored[uid].attempt
            assert held is not None
            assert held.state is AttemptState.ADMITTED
            started = self.pods_of[uid]
            if started is not None and uid not in self.edited:
                assert _usage(held.assignment) == _usage(started), (
                    f"{uid} runs on another flavor than is charged"
                )
            assert sum(_usage(held.assignment).values()) == job.workload.pod_sets[0].requests[0][1]
            if not held.debt:
                used.update(_usage(held.assignment))
        assert all(used[cell] <= QUOTA[cell.flavor] for cell in used), used  # type: ignore[attr-defined]


def _usage(assignment: Assignment) -> Usage:
    return {cell: amount for cell, amount in assignment.usage().items() if cell.resource == GPU}


def _later(marked: Attempt | None, attempt: Attempt) -> bool:
    return marked is not None and marked.number > attempt.number
