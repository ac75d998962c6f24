"""No stream of requests or ends keeps a workload that fits from being admitted (C10, C11).

A round is what a controller does: events come in, one plan is decided and committed, its writes are done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.policy import WorkloadPriorityClass
from queuectl.core.model.workload import WorkloadId, WorkloadOutcome
from tests.builders import flavor, local_queue, queue, workload
from tests.unit.core import profiles
from tests.unit.core.driver import Driver
from tests.unit.core.late_channels import LATE

BUDGET = st.integers(1, 40)
RUNNING = 24
HUGE = 10_000
"""GPUs of a Job that never fits."""
MOST = 4
"""Plans within which what fits is admitted."""


class Rounds(Driver):
    """LocalQueue lqN of ClusterQueue cqN, each with room for all that fits; Jobs run in lq0."""

    def __init__(self, queues: int = 2, *, one_tree: bool = True) -> None:
        super().__init__(LATE, prompt=False)
        self.set(flavor("default"))
        for name, value in (("low", 1), ("high", 2)):
            self.set(WorkloadPriorityClass(name, value))
        for namespace in ("alice", "bob"):
            self.label(namespace, {})
        for n in range(queues):
            self.set(queue(f"cq{n}", 100, cohort="all" if one_tree else None))
            self.set(local_queue(f"lq{n}", f"cq{n}", "bob" if n else "alice"))
        self.running = [self.arrive(f"r{n}") for n in range(RUNNING)]
        for _ in range(4):
            self.round(1000)
        assert all(self.runs(uid) for uid in self.running)

    def arrive(self, name: str, gpus: int = 1, line: int = 0) -> WorkloadId:
        namespace = "bob" if line else "alice"
        one = workload(name, f"lq{line}", gpus, namespace=namespace, created=self.version)
        self.submit(one)
        return one.id

    def runs(self, uid: WorkloadId) -> bool:
        return not self.jobs[uid].suspended

    def round(self, budget: int) -> None:
        self.deliver()
        self.decide(budget)
        for uid in list(self.effects):
            self.settle(uid)
        self.kill_pods()
        for uid in list(self.probes):
            self.count(uid)

    def rounds_until_run(
        self, uid: WorkloadId, budget: int, most: int, others: Callable[[], None] = lambda: None
    ) -> int:
        for number in range(1, most + 1):
            self.round(budget)
            if self.runs(uid):
                return number
            others()
        raise AssertionError(f"{uid} fits, and is not admitted within {most} plans")


class Stream(NamedTuple):
    """What another tenant does before each plan."""

    arrivals: int
    """New Jobs that never fit."""
    amended: int
    """Running Jobs whose priority changes."""
    held: int
    """Running Jobs that are held, or held ones that may run again."""
    ended: int
    """Running Jobs that end, with a new one for each."""

    def flow(self, cluster: Rounds) -> None:
        for n in range(self.arrivals):
            cluster.arrive(f"a{cluster.version}-{n}", HUGE)
        for uid in cluster.running[: self.amended]:
            one = cluster.jobs[uid].workload
            level = "low" if one.priority_class == "high" else "high"
            cluster.write(uid, spec=False, workload=replace(one, priority_class=level))
        for uid in cluster.running[RUNNING - self.held :]:
            one = cluster.jobs[uid].workload
            cluster.write(uid, spec=False, workload=replace(one, hold=not one.hold))
        for n in range(self.ended):
            uid = cluster.running[12 + n]
            if cluster.runs(uid):
                cluster.write(uid, spec=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True, pods=False)
                cluster.running[12 + n] = cluster.arrive(f"e{cluster.version}-{n}")


STREAMS = st.builds(Stream, st.integers(0, 40), st.integers(0, 12), st.integers(0, 6), st.integers(0, 6))


@profiles.sequences(80)
@given(STREAMS, BUDGET, st.integers(0, 4))
def test_what_fits_is_admitted_within_few_plans_whatever_others_do(
    stream: Stream, budget: int, before: int
) -> None:
    """And the plans that it takes to release all that was in use, with half of the budget (C11)."""
    cluster = Rounds()
    for _ in range(before):
        stream.flow(cluster)
        cluster.round(budget)
    stream.flow(cluster)
    mine = cluster.arrive("mine", line=1)
    most = MOST + (RUNNING + 1) // max(1, budget // 2)
    cluster.rounds_until_run(mine, budget, most, lambda: stream.flow(cluster))


@profiles.sequences(30)
@given(st.integers(1, 400), st.integers(4, 40), st.booleans(), st.booleans())
def test_the_jobs_of_one_tenant_at_most_double_the_wait_of_another(
    jobs: int, budget: int, fit: bool, one_tree: bool
) -> None:
    alone = Rounds(one_tree=one_tree)
    mine = alone.arrive("mine", line=1)
    wait = alone.rounds_until_run(mine, budget, MOST)
    busy = Rounds(one_tree=one_tree)
    for n in range(jobs):
        busy.arrive(f"a{n}", 1 if fit else HUGE)
    mine = busy.arrive("mine", line=1)
    busy.rounds_until_run(mine, budget, 2 * wait)


@profiles.sequences(30)
@given(st.integers(2, 12), st.integers(1, 12))
def test_trees_take_turns_where_the_budget_is_too_small_for_all(trees: int, budget: int) -> None:
    """Each other tree gets a new Job before each plan: none of them comes before a tree that was left."""
    cluster = Rounds(trees, one_tree=False)

    def others() -> None:
        for n in range(1, trees - 1):
            cluster.arrive(f"o{cluster.version}-{n}", HUGE + cluster.version, line=n)

    for _ in range(3):
        others()
        cluster.round(budget)
    others()
    mine = cluster.arrive("mine", line=trees - 1)
    cluster.rounds_until_run(mine, budget, 2 * trees + MOST, others)


def test_a_stream_of_amendments_leaves_every_second_plan_to_admissions() -> None:
    cluster = Rounds()
    stream = Stream(arrivals=0, amended=12, held=0, ended=0)
    waits = []
    for n in range(6):
        stream.flow(cluster)
        mine = cluster.arrive(f"mine{n}", line=1)
        waits.append(cluster.rounds_until_run(mine, 1000, MOST, lambda: stream.flow(cluster)))
    assert max(waits) == 2


def test_arrivals_are_recorded_in_turn_by_namespace() -> None:
    cluster = Rounds()
    for n in range(50):
        cluster.arrive(f"a{n}", HUGE)
    cluster.arrive("head", HUGE, line=1)  # queued with its reason, whatever its turn is
    late = cluster.arrive("late", HUGE, line=1)
    cluster.round(8)
    assert late in cluster.ledger.store.workloads
    recorded = [uid for uid in cluster.jobs if uid in cluster.ledger.store.workloads]
    assert len(recorded) < 50, "the budget limits arrivals"


def test_a_workload_that_runs_already_is_charged_before_others_are_admitted() -> None:
    cluster = Rounds(one_tree=False)
    for n in range(20):
        cluster.submit(workload(f"ran{n}", "lq1", 5, namespace="bob"), running=True)
    mine = cluster.arrive("mine", 10, line=1)
    for _ in range(25):
        cluster.round(4)
        assert not cluster.runs(mine), "admitted on quota that is in use"
    assert all(cluster.ledger.store.workloads[WorkloadId(f"uid-ran{n}")].attempt for n in range(20))
