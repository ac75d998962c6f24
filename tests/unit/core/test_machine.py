"""All actions in any order: the engine is compared with the reference implementation after each step."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from queuectl.core.model import ForcedRelease, Outcome, PodSet, WorkloadId
from queuectl.core.policy import (
    NO_PREEMPTION,
    BorrowWithinCohort,
    CapacityMode,
    Cohort,
    FairSharing,
    FlavorNodes,
    LabelSelector,
    LocalQueueName,
    MinRunTime,
    Preemption,
    PreemptionPolicy,
    PreemptionStrategy,
    QueueingStrategy,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Taint,
    Toleration,
    WorkloadPriorityClass,
)
from tests.builders import ALL_NAMESPACES, GPU, flavor, group, local_queue, pod_set, queue, workload
from tests.unit.core import profiles
from tests.unit.core.machine_on_nodes import ClusterOnNodes, NodeActions

profiles.load()

QUEUES = ("qa", "qb")
LOCALS = ("la", "lb")
SPOT = flavor("f2", labels={"zone": "b"}, taints=[Taint("spot", "yes", "NoSchedule")])
FLAVORS = [
    *(flavor("f1"), flavor("f1", labels={"zone": "a"}), flavor("f2"), SPOT, flavor("f3")),
    replace(flavor("f1"), nodes=FlavorNodes(mode=CapacityMode.ENFORCE, headroom=((GPU, 1),))),
    replace(flavor("f2", labels={"zone": "b"}), nodes=FlavorNodes(mode=CapacityMode.OBSERVE)),
]
PICK = st.integers(0, 1000)
BUDGET = st.sampled_from([1000, 1, 2, 3, 7])


def mostly(usual: object, *others: object) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * (3 + len(others)) + list(others))


def quotas(
    first: int, second: int, rest: int, borrowing: int | None = None, lending: int | None = None
) -> list[ResourceGroup]:
    found = [group({"f1": {GPU: first}, "f2": {GPU: second}})]
    if rest:
        found.append(group({"f3": {"cpu": rest, "pods": rest}}))
    return [limited(one, borrowing, lending) for one in found]


def limited(one: ResourceGroup, borrowing: int | None, lending: int | None) -> ResourceGroup:
    def quota(amount: ResourceQuota) -> ResourceQuota:
        lent = None if lending is None else min(lending, amount.nominal)
        return replace(amount, borrowing_limit=borrowing, lending_limit=lent)

    return replace(
        one,
        flavors=tuple(
            replace(f, resources=tuple((name, quota(amount)) for name, amount in f.resources))
            for f in one.flavors
        ),
    )


def pods(count: int, gpus: int, cpu: int, spot: bool, zone: str | None) -> PodSet:
    tolerations = (Toleration("spot", "Exists"),) if spot else ()
    selector = (("zone", zone),) if zone else ()
    return pod_set(count, {GPU: gpus, "cpu": cpu}, tolerations=tolerations, node_selector=selector)


LIMIT = mostly(None, 0, 1, 3)
GROUPS = st.builds(quotas, st.integers(0, 6), st.integers(0, 3), mostly(0, 1, 3), LIMIT, LIMIT)
PREEMPTION = st.builds(
    Preemption,
    within_cluster_queue=st.sampled_from(
        [
            PreemptionPolicy.NEVER,
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
        ]
    ),
    reclaim_within_cohort=st.sampled_from(
        [PreemptionPolicy.ANY, PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY]
    ),
    borrow_within_cohort=mostly(None, BorrowWithinCohort(), BorrowWithinCohort(0)),
    min_run_time=mostly(MinRunTime(), MinRunTime(5, 5, 5, 5)),
)
SHARING = st.builds(
    FairSharing,
    enabled=st.sampled_from([None, True, True]),
    strategies=st.sampled_from([None, *((s,) for s in PreemptionStrategy)]),
)
ASKS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    pod_sets=st.builds(
        lambda *sets: sets,
        st.builds(pods, mostly(1, 2), st.integers(1, 3), mostly(0, 1), st.booleans(), mostly(None, "a")),
    ),
    queue=mostly("la", "la", "lb", "lb", "nowhere"),
    priority_class=mostly(None, "high", "low", "unknown"),
    max_run_seconds=mostly(None, 40),
)
CLUSTER_QUEUES = st.builds(
    queue,
    st.sampled_from(QUEUES),
    groups=GROUPS,
    strategy=st.sampled_from(QueueingStrategy),
    stop=mostly(StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN),
    selector=mostly(ALL_NAMESPACES, None, LabelSelector((("team", "a"),))),
    cohort=st.sampled_from([None, "c1", "c2"]),
    preemption=PREEMPTION,
    weight=mostly(1000, 0, 2500),
)
POLICY = st.one_of(
    CLUSTER_QUEUES,
    CLUSTER_QUEUES,
    st.builds(local_queue, st.just("la"), mostly("qa", "qb", "none"), stop=mostly(*StopPolicy)),
    st.builds(local_queue, st.just("lb"), mostly("qb", "qa")),
    st.sampled_from(FLAVORS),
    st.builds(
        Cohort,
        name=st.sampled_from(["c1", "c2"]),
        parent=mostly(None, "c1", "c2"),
        resource_groups=mostly((), tuple(quotas(2, 1, 0))),
        weight=mostly(1000, 0),
        sharing=SHARING,
    ),
    st.builds(WorkloadPriorityClass, st.sampled_from(["high", "low"]), st.integers(-1, 2)),
)
NAMES = [
    ("ClusterQueue", "qa"),
    ("LocalQueue", LocalQueueName("ns", "la")),
    ("ResourceFlavor", "f1"),
    ("ResourceFlavor", "f3"),
    ("Cohort", "c1"),
    ("WorkloadPriorityClass", "high"),
]


class Anything(NodeActions):
    def __init__(self) -> None:
        super().__init__(ClusterOnNodes())
        self.made = 0

    def set_up(
        self,
        *groups: list[ResourceGroup],
        cohort: str | None = None,
        preemption: Preemption = NO_PREEMPTION,
    ) -> None:
        for value in (FLAVORS[0], FLAVORS[2], FLAVORS[4]):
            self.cluster.set(value)
        for name, local, found in zip(QUEUES, LOCALS, groups, strict=True):
            self.cluster.set(queue(name, groups=found, cohort=cohort, preemption=preemption))
            self.cluster.set(local_queue(local, name))
        self.cluster.set(WorkloadPriorityClass("high", 1))
        self.cluster.set(WorkloadPriorityClass("low", -1))
        self.cluster.label("ns", {"team": "a"})

    @initialize(
        first=GROUPS,
        second=GROUPS,
        asked=st.lists(ASKS, min_size=3, max_size=6),
        cohort=st.sampled_from([None, "c1"]),
        preemption=PREEMPTION,
    )
    def begin(
        self,
        first: list[ResourceGroup],
        second: list[ResourceGroup],
        asked: list[dict[str, Any]],
        cohort: str | None,
        preemption: Preemption,
    ) -> None:
        self.set_up(first, second, cohort=cohort, preemption=preemption)
        for number, asks in enumerate(asked):
            self.submit_some(asks, number % 2, copies=2)

    # --- users

    @rule(asks=ASKS, created=st.integers(0, 3), copies=st.integers(1, 3), runs=mostly(False, True))
    def submit(self, asks: dict[str, Any], created: int, copies: int, runs: bool) -> None:
        self.submit_some(asks, created, copies, running=runs)

    def submit_some(self, asks: dict[str, Any], created: int, copies: int, *, running: bool = False) -> None:
        for _ in range(copies):
            self.made += 1
            one = replace(workload(f"w{self.made}", created=created), **asks)
            self.cluster.submit(one, running=running)

    @rule(number=PICK, what=mostly("edit", "hold", "unhold", "delete", "bypass", "suspend"), asks=ASKS)
    def change(self, number: int, what: str, asks: dict[str, Any]) -> None:
        """Edit a Job within what the admission policy allows users and break-glass admins."""
        cluster = self.cluster
        uid = self.pick(number)
        if uid is None:
            return
        job = cluster.jobs[uid]
        if what in ("hold", "unhold"):
            cluster.write(uid, spec=False, workload=replace(job.workload, hold=what == "hold"))
        elif what == "delete":
            cluster.delete(uid)
        elif what == "suspend" or not job.suspended:
            cluster.write(uid, suspended=True)
        elif what == "edit":
            cluster.write(uid, workload=replace(job.workload, **asks))
        else:
            cluster.write(uid, suspended=False, pods=True)

    @rule(number=PICK)
    def hold_for_a_moment(self, number: int) -> None:
        if uid := self.pick(number, running=False):
            one = self.cluster.jobs[uid].workload
            for hold in (True, False):
                self.cluster.write(uid, spec=False, workload=replace(one, hold=hold))
                self.cluster.deliver()

    @rule(number=PICK, quiet=st.booleans(), many=st.integers(1, 3))
    def finish(self, number: int, quiet: bool, many: int) -> None:
        for _ in range(many):
            if uid := self.pick(number, running=True):
                alive = not quiet and self.cluster.jobs[uid].pods
                self.cluster.write(uid, spec=False, finished=Outcome.SUCCEEDED, quiet=quiet, pods=alive)

    @rule(seconds=st.sampled_from([1, 9, 10, 25, 31, 100]))
    def pass_time(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @rule(number=PICK, ready=st.sampled_from([True, False, None]), ends=st.booleans())
    def progress(self, number: int, ready: bool | None, ends: bool) -> None:
        """Change the readiness of pods of a running Job, or end one of its pods for good, except the last."""
        if uid := self.pick(number, running=True):
            job = self.cluster.jobs[uid]
            ended = min(job.ended + ends, min(p.count for p in job.workload.pod_sets) - 1)
            self.cluster.write(uid, spec=False, ready=ready, ended=max(ended, job.ended))

    @rule(number=PICK)
    def release_by_force(self, number: int) -> None:
        uid = self.pick(number)
        if uid is not None and (stored := self.cluster.ledger.store.workloads.get(uid)) is not None:
            release = ForcedRelease(stored.attempts, "ann", "scrap")
            self.cluster.write(uid, spec=False, release=release)

    def pick(self, number: int, *, running: bool | None = None) -> WorkloadId | None:
        """Return a Job that has not finished."""
        jobs = [
            uid
            for uid, job in self.cluster.jobs.items()
            if job.finished is None and (running is None or job.suspended is not running)
        ]
        return jobs[number % len(jobs)] if jobs else None

    # --- the cluster, and the driver

    @rule(number=PICK, pods_end=st.booleans())
    def answer(self, number: int, pods_end: bool) -> None:
        """Complete one effect or one pod count."""
        cluster = self.cluster
        if pods_end:
            cluster.kill_pods()
        if cluster.effects:
            cluster.settle(list(cluster.effects)[number % len(cluster.effects)], denied=number % 7 == 0)
        elif cluster.probes:
            cluster.count(list(cluster.probes)[number % len(cluster.probes)])

    @rule(count=st.integers(1, 5), answers=st.booleans(), twice=st.booleans())
    def hear(self, count: int, answers: bool, twice: bool) -> None:
        """Deliver some events of one channel, possibly repeated. The other channel may be ahead or behind."""
        channel = self.cluster.answers if answers else self.cluster.watch
        events = channel[:count]
        del channel[:count]
        self.cluster.fold(events)
        if twice:
            self.cluster.fold(events)

    @rule(budget=BUDGET)
    def decide(self, budget: int) -> None:
        self.cluster.decide(budget)

    @rule(budget=BUDGET, number=PICK, thaw=st.booleans())
    def refuse(self, budget: int, number: int, thaw: bool) -> None:
        self.cluster.refuse(budget, number)
        if thaw:
            self.cluster.thaw()

    @rule(budget=BUDGET)
    def quiesce(self, budget: int) -> None:
        self.cluster.deliver()
        self.cluster.decide_all(budget)
        self.cluster.compare()

    @rule(budget=BUDGET)
    def rest(self, budget: int) -> None:
        """Complete everything until nothing is left to do, so that released quota is admitted again."""
        cluster = self.cluster
        cluster.thaw()
        for _ in range(60):
            cluster.deliver()
            cluster.decide_all(budget)
            if not (cluster.effects or cluster.probes or cluster.watch or cluster.answers):
                break
            cluster.kill_pods()
            for uid in list(cluster.effects):
                cluster.settle(uid)
            for uid in list(cluster.probes):
                cluster.count(uid)
        else:
            raise AssertionError(f"never at rest: {cluster.effects} {cluster.probes}")
        cluster.compare()
        cluster.compare_with_another()

    @rule()
    def relist(self) -> None:
        self.cluster.relist()

    @rule(number=PICK, asks=st.none() | ASKS)
    def crash(self, number: int, asks: dict[str, Any] | None) -> None:
        """Restart. A Job whose start was due may be edited during the restart."""
        cluster = self.cluster
        if asks is not None and cluster.effects:
            uid = list(cluster.effects)[number % len(cluster.effects)]
            if uid in cluster.jobs and cluster.jobs[uid].suspended and not cluster.jobs[uid].finished:
                cluster.write(uid, workload=replace(cluster.jobs[uid].workload, **asks))
        cluster.start()

    # --- admins

    @rule(value=POLICY)
    def write(self, value: Any) -> None:
        self.cluster.set(value)

    @rule(name=st.sampled_from(NAMES), labels=st.sampled_from([None, {"team": "b"}]), what=st.booleans())
    def spoil(self, name: tuple[str, str], labels: dict[str, str] | None, what: bool) -> None:
        if what:
            self.cluster.unset(*name)
        else:
            self.cluster.label("ns", labels)

    @rule(first=GROUPS, second=GROUPS, cohort=st.sampled_from(["c1", None]), preemption=PREEMPTION)
    def repair(
        self,
        first: list[ResourceGroup],
        second: list[ResourceGroup],
        cohort: str | None,
        preemption: Preemption,
    ) -> None:
        self.set_up(first, second, cohort=cohort, preemption=preemption)

    def teardown(self) -> None:
        self.rest(1000)


Anything.TestCase.settings = settings(
    settings(),
    max_examples=5 * settings().max_examples // 2,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestAnything = Anything.TestCase
