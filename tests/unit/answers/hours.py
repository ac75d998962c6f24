"""A busy simulated hour with a ledger: jobs arrive and end, users hold and release, admins change policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from queuectl.core.decisions import Admit, Plan
from queuectl.core.engine import Engine
from queuectl.core.model.capacity import FlavorCapacity
from queuectl.core.model.events import (
    ConfigurationObserved,
    ContextGone,
    ContextObserved,
    Event,
    Listed,
    PolicyObserved,
    TimeCame,
)
from queuectl.core.model.policy import AdmissionFairSharing, Node, SchedulingConfiguration
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import EffectKey, ForReaders, LedgerSnapshot, Workload
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.policy import policy_event
from queuectl.scenarios.arrivals import Arrival
from queuectl.scenarios.build import SOURCE
from queuectl.simulation.player import Play
from tests.builders import GPU, pod_set, workload
from tests.doubles.readers import ReadableLedger
from tests.unit.core.driver import wait_for

START = datetime(2026, 11, 2, 9, tzinfo=UTC)
HOUR = 3600.0
TEAMS = ("research", "product", "students")
CONFIGURATION = ConfigurationObserved('{"scheduling":{}}')


def manifest(kind: str, name: str, namespace: str | None = None, **content: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": metadata, **content}


def flavors(**gpus: int) -> list[dict[str, Any]]:
    found = [
        {
            "name": name,
            "resources": [{"name": GPU, "nominalQuota": n}, {"name": "cpu", "nominalQuota": 8 * n}],
        }
        for name, n in gpus.items()
    ]
    return [{"coveredResources": [GPU, "cpu"], "flavors": found}]


def cluster_queue(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    taken = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    content = {
        "cohortName": "gpus",
        "namespaceSelector": {"matchLabels": {"queued": "yes"}},
        "preemption": taken,
        "resourceGroups": flavors(a100=gpus, spot=2),
    }
    return manifest("ClusterQueue", name, spec=content | spec)


def context(kind: str, name: str, namespace: str | None = None, **content: Any) -> ContextObserved:
    event = CONTEXT_KINDS[kind].event({"metadata": {"name": name, "namespace": namespace}, **content})
    assert event is not None
    return event


def labelled(team: str, *, queued: bool = True) -> ContextObserved:
    labels = {"queued": "yes"} if queued else {}
    return CONTEXT_KINDS["Namespace"].event({"metadata": {"name": team, "labels": labels}})  # type: ignore[return-value]


def site(*, on_nodes: bool = False) -> list[Event]:
    """The policy and context at the start. `on_nodes`: nodes limit a flavor, and a shortage is shared."""
    labels = {"nodeLabels": {"pool": "a100"}} if on_nodes else {}
    shortage = {"capacityShortage": "ProRata"} if on_nodes else {}
    objects = [
        manifest("ResourceFlavor", "a100", spec=labels),
        manifest("ResourceFlavor", "spot", spec={}),
        manifest("Cohort", "gpus", spec={"fairSharing": {"enabled": True}, **shortage}),
        cluster_queue("research", 12),
        cluster_queue("product", 8, queueingStrategy="StrictFIFO"),
        cluster_queue("students", 4, admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"}),
        cluster_queue("alone", 1, cohortName="apart"),
        *(manifest("WorkloadPriorityClass", name, value=n) for name, n in (("low", -5), ("high", 50))),
        *(manifest("LocalQueue", "main", team, spec={"clusterQueue": team}) for team in TEAMS),
        manifest("LocalQueue", "other", "students", spec={"clusterQueue": "students"}),
    ]
    limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
    return [
        CONFIGURATION,
        *map(labelled, TEAMS),
        context("PriorityClass", "usual", value=0, globalDefault=True),
        context("LimitRange", "defaults", "product", spec={"limits": limits}),
        context("ResourceQuota", "most", "students", spec={"hard": {"pods": "12"}}),
        *map(policy_event, objects),
    ]


def some_nodes() -> dict[str, Node]:
    """Together they have a little more than is promised."""
    there = amounts({GPU: 4, "cpu": 64})
    created = START - timedelta(days=1)
    return {
        name: Node(name, (("pool", "a100"),), there, created_at=created)
        for name in (f"node-{number}" for number in range(7))
    }


class Hour(Play):
    """Plays it with its decisions in a ledger. `times`: when to keep what is stored and what is there.

    `seconds`: it ends earlier. Each minute costs more than the one before, as more workloads wait.

    `on_nodes`: nodes come and go, and quotas follow them in proportion (M11). What they have is told to
    readers, and stored as history, whenever it changes. No pod is bound: all are expected (M7).
    """

    def __init__(
        self, seed: int, times: Iterable[datetime], *, on_nodes: bool = False, seconds: float = HOUR
    ) -> None:
        self.dice = Random(seed)
        self.seconds = seconds
        self.settings = SchedulingConfiguration(
            usage_sharing=AdmissionFairSharing(half_life=600, sampling_interval=60)
        )
        self.ledger = ReadableLedger(lambda: self._clock(), settings=self.settings)
        self.epoch = wait_for(self.ledger.take_epoch("test"))
        self.rules: dict[object, Event] = {}
        self.plans: list[tuple[Plan, tuple[EffectKey, ...]]] = []
        self.stored: dict[datetime, LedgerSnapshot] = {}
        self.there: dict[datetime, tuple[list[Event], datetime]] = {}
        """By time, all that a controller would read from the cluster."""
        self.capacities: dict[datetime, tuple[FlavorCapacity, ...]] = {}
        """By time, what nodes had."""
        self.newest: dict[datetime, LedgerSnapshot] = {}
        """By time, what readers were told last, with the nodes. Only where there are some."""
        self.nodes = some_nodes() if on_nodes else {}
        self._told: dict[str, FlavorCapacity] = {}
        self._times = sorted(times, reverse=True)
        self._done: list[EffectKey] = []
        engine = Engine(frozenset({SOURCE}), self.settings)
        super().__init__(engine, START, eviction_seconds=20)
        engine.handle([*self.ruled(site(on_nodes=on_nodes)), *self._seen_nodes(), Listed(SOURCE)])

    def ruled(self, events: Iterable[Event]) -> list[Event]:
        """Rules that are in force from now on."""
        found = list(events)
        for event in found:
            key = event.key if isinstance(event, PolicyObserved | ContextObserved) else None
            self.rules[key] = event
        return found

    def run(self) -> None:
        happens: list[tuple[Callable[[], Iterable[Event]], float]] = [
            (self._hold, 60.0),
            (self._admin, 240.0),
        ]
        if self.nodes:
            happens.append((self._change_node, 40.0))
        for what, mean in happens:
            at = self.dice.expovariate(1 / mean)
            while at < self.seconds:
                self._at(round(at * 1000), what)
                at += self.dice.expovariate(1 / mean)
        self.play(self._arrivals(), until=self.seconds)

    def everything(self) -> list[Event]:
        """All that a controller that starts now reads."""
        jobs = [job.seen() for job in self._jobs.values() if not job.finished]
        return [*self.rules.values(), *self._seen_nodes(), *jobs, Listed(SOURCE)]

    def _seen_nodes(self) -> Iterable[Event]:
        return map(ContextObserved, self.nodes.values())

    # --- what happens

    def _arrivals(self) -> Iterable[Arrival]:
        at = 0.0
        for number in range(400):
            at += self.dice.expovariate(1 / 13.0)
            if at >= self.seconds:
                return
            yield Arrival(
                at=round(at * 1000),
                workload=self._workload(number, START + timedelta(seconds=int(at))),
                run=round(self.dice.lognormvariate(5.0, 0.9) * 1000),
            )

    def _workload(self, number: int, created_at: datetime) -> Workload:
        pick, team = self.dice.choice, self.dice.choice(TEAMS)
        pods = pod_set(pick((1, 1, 2, 4)), {GPU: pick((1, 1, 2)), "cpu": pick((1, 2))})
        return replace(
            workload(f"{team}-{number:03}", namespace=team),
            queue=pick(("main", "other")) if team == "students" else "main",
            created_at=created_at,
            pod_sets=(replace(pods, min_count=1) if self.dice.random() < 0.2 else pods,),
            priority_class=pick((None, None, "low", "high", "unknown" if number % 40 == 7 else None)),
            max_run_seconds=pick((None, None, None, 300)),
            submitter=pick((None, "ada", "grace")),
        )

    def _hold(self) -> Iterable[Event]:
        """A user holds a job, or releases it."""
        jobs = [job for job in self._jobs.values() if not job.finished]
        for job in self.dice.sample(jobs, min(1, len(jobs))):
            job.workload = replace(job.workload, hold=not job.workload.hold)
            yield job.seen()

    def _admin(self) -> Iterable[Event]:
        team, low = self.dice.choice(TEAMS), self.dice.randint(-9, 9)
        changes: list[Callable[[], Event]] = [
            partial(policy_event, cluster_queue(team, self.dice.randint(2, 14))),
            partial(policy_event, manifest("WorkloadPriorityClass", "low", value=low)),
            partial(labelled, team, queued=self.dice.random() < 0.7),
        ]
        return self.ruled([self.dice.choice(changes)()])

    def _change_node(self) -> Iterable[Event]:
        """A node is cordoned, fails, gets another size or goes; half of the times it is whole again."""
        yield TimeCame(self._clock())  # nodes are judged by the time at which they change (M5)
        name = self.dice.choice(sorted(some_nodes()))
        node = some_nodes()[name]
        changed = self.dice.choice(("cordoned", "ready", "size", "gone", *["whole"] * 4))
        if changed == "gone":
            if self.nodes.pop(name, None) is not None:
                yield ContextGone(Node, name)
            return
        if changed == "cordoned":
            node = replace(node, cordoned=True)
        elif changed == "ready":
            node = replace(node, ready=False, ready_since=self._clock())
        elif changed == "size":
            node = replace(node, allocatable=amounts({GPU: self.dice.choice((1, 2, 8)), "cpu": 64}))
        self.nodes[name] = node
        yield ContextObserved(node)

    # --- what is stored

    def _decide(self) -> None:
        super()._decide()
        self._tell()

    def _tell(self) -> None:
        """Tell readers what nodes have, as the controller does; its history has each change here."""
        now = (
            {one.flavor: one for one in self._engine.features.nodes.take_capacities() or ()}
            if self.nodes
            else {}
        )
        changed = tuple(one for name, one in now.items() if self._told.get(name) != one)
        facts = self._engine.features.nodes.take_facts() if self.nodes else None
        if not changed and (facts is None or not facts.changed):
            return
        self._told |= now
        nodes = facts.changed if facts is not None else ()
        told = ForReaders(capacities=changed, nodes=tuple(nodes), past_capacities=changed)
        plan = Plan(version=0, cycle=0, now=self._clock())
        batch = f"told {self._now}"
        wait_for(self.ledger.commit(plan, (), epoch=self.epoch, batch=batch, for_readers=told))

    def _happen(self) -> None:
        self._keep()
        super()._happen()

    def _keep(self) -> None:
        """The times up to now that are left: nothing happened since the last commit."""
        while self._times and self._times[-1] < self._clock():
            when = self._times.pop()
            self.stored[when] = wait_for(self.ledger.load())
            self.there[when] = self.everything(), when
            self.capacities[when] = tuple(self._told[name] for name in sorted(self._told))
            if self.nodes and len(self.stored) % 2 == 0:
                self.newest[when] = wait_for(self.ledger.at(None))

    def _commit(self, plan: Plan) -> None:
        if plan.recorded:
            done, self._done = tuple(self._done), []
            batch = str(len(self.plans))
            self.plans.append((plan, done))
            first = wait_for(self.ledger.commit(plan, done, epoch=self.epoch, batch=batch))
            assert first == self._sequence
        super()._commit(plan)

    def _write(self, effect: Any) -> Iterable[Event]:
        self._done.append(effect.key)
        return super()._write(effect)


def moves(plan: Plan) -> list[str]:
    """What a plan admits and evicts."""
    admitted = [f"{d.ref}: {d.attempt.assignment}" for d in plan.decisions if isinstance(d, Admit)]
    return sorted([*admitted, *(f"{victim.ref} for {victim.preemptor}" for victim in plan.victims)])
