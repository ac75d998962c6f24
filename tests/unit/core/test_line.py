"""The order shown is the order admitted (docs/scheduling.md, O7): in status, and as REST reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from queuectl.answers.state import CommittedState
from queuectl.core.decisions import Admit, Plan
from queuectl.core.model.policy import (
    AdmissionFairSharing,
    ClusterQueue,
    LocalQueueName,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    RequeuingStrategy,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import ConfigKey, ForReaders, PendingLine, WorkloadId
from tests.builders import GPU, flavor, group, local_queue, pod_set, queue, workload
from tests.doubles import engine_state
from tests.unit.core import profiles
from tests.unit.core.driver import Driver, wait_for
from tests.unit.core.trees import Setup

LOCALS = ("a", "b", "c")
JOBS = st.lists(
    st.tuples(st.sampled_from(LOCALS), st.integers(0, 3), st.sampled_from([None, "low", "high"])),
    min_size=1,
    max_size=9,
)
"""LocalQueue, second of creation, and priority class of each."""
Job = tuple[str, int, str | None]


def shared_queue(gpus: int, strategy: QueueingStrategy, *, usage_based: bool) -> ClusterQueue:
    within = PreemptionPolicy.NEVER if usage_based else PreemptionPolicy.LOWER_PRIORITY
    preemption = Preemption(within_cluster_queue=within)
    groups = [group({"default": {GPU: gpus}})]
    return queue("cq", groups=groups, strategy=strategy, usage_based=usage_based, preemption=preemption)


class Line(Driver):
    """One ClusterQueue of three LocalQueues; each workload requests one GPU."""

    def __init__(self, shared: ClusterQueue, weights: Sequence[int], *, loses_place: bool = True) -> None:
        sharing = AdmissionFairSharing(half_life=3600, sampling_interval=300)
        settings = SchedulingConfiguration(
            usage_sharing=sharing,
            pods_ready_timeout=60,
            requeueing=RequeuingStrategy(base_seconds=1000, loses_place=loses_place),
        )
        locals_ = [
            replace(local_queue(name, "cq"), weight=weight)
            for name, weight in zip(LOCALS, weights, strict=True)
        ]
        classes = [WorkloadPriorityClass("low", -1), WorkloadPriorityClass("high", 1)]
        self.shared = shared
        super().__init__(Setup((flavor("default"), *classes, shared, *locals_), settings, LOCALS))

    def submit_all(self, prefix: str, jobs: Sequence[Job]) -> None:
        for number, (name, created, priority) in enumerate(jobs):
            self.submit(workload(f"{prefix}{number}", name, created=created, priority_class=priority))
        self.deliver()

    def shown(self) -> list[str]:
        """Return the names of the workloads in the statuses of the LocalQueues, by position."""
        engine_state.state(self.engine).changed |= {LocalQueueName("ns", name) for name in LOCALS}
        reports, _, _ = self.engine.take_reports()
        found = {one.position: one.ref.name for report in reports for one in report.first if one.position}
        assert sorted(found) == list(range(1, len(found) + 1))
        return [found[position] for position in sorted(found)]

    def tell_readers(self) -> None:
        """Store what the controller tells them, which is all that has no decision."""
        _, reports, _ = self.engine.take_reports()
        lines = tuple(PendingLine(one.name, one.line) for one in reports if one.line is not None)
        wait_for(
            self.ledger.commit(
                Plan(version=0, cycle=0, now=self.now),
                (),
                epoch=self.epoch,
                batch=f"readers {self.now} {self.engine._version}",
                for_readers=ForReaders(lines=lines),
            )
        )

    def told_by_rest(self) -> list[str]:
        """Return the names by position, as REST has them from the rows of the ledger."""
        reading = wait_for(self.ledger.since(0))
        queue = ConfigKey("ClusterQueue", "", "cq")
        state = CommittedState(configuration=self.setup.settings).advance(
            replace(reading, configs=((queue, ""),)), lambda key, spec: self.shared
        )
        positions = {one.ref.name: state.position(one) for one in state.workloads.values()}
        known = {name: position for name, position in positions.items() if position is not None}
        return sorted(known, key=lambda name: known[name])

    def admitted_one_by_one(self) -> list[str]:
        """Return the names in the order in which they are admitted as the quota grows unit by unit."""
        order: list[str] = []
        nominal = self.shared.resource_groups[0].flavors[0].resources[0][1].nominal
        for gpus in range(nominal + 1, nominal + 20):
            groups = (group({"default": {GPU: gpus}}),)
            self.set(replace(self.shared, resource_groups=groups))
            self.deliver()
            for _ in range(50):
                plan = self.plan()
                order += [one.ref.name for one in plan.decisions if isinstance(one, Admit)]
                if not self.carry_out(plan):
                    break
        return order


STRATEGY = st.sampled_from(list(QueueingStrategy))
WEIGHTS = st.lists(st.sampled_from([1000, 3000, 0]), min_size=3, max_size=3)


@profiles.sequences(150)
@given(STRATEGY, WEIGHTS, JOBS, JOBS, st.integers(0, 4000))
def test_the_order_shown_is_the_order_admitted_when_local_queues_take_turns(
    strategy: QueueingStrategy, weights: list[int], ran: list[Job], waits: list[Job], seconds: int
) -> None:
    found = Line(shared_queue(2, strategy, usage_based=True), weights)
    found.submit_all("ran", ran)
    found.come_to_rest()
    found.now += timedelta(seconds=min(seconds, 50))
    found.submit_all("waits", waits)
    found.come_to_rest()
    found.tell_readers()
    shown = found.shown()
    assert found.told_by_rest() == shown
    assert found.admitted_one_by_one() == shown


@profiles.sequences(150)
@given(STRATEGY, JOBS, JOBS)
def test_the_order_shown_is_the_order_admitted_and_that_of_rest(
    strategy: QueueingStrategy, ran: list[Job], waits: list[Job]
) -> None:
    found = Line(shared_queue(1, strategy, usage_based=False), [1000] * 3)
    found.submit_all("ran", [(name, created, "low") for name, created, _ in ran])
    found.come_to_rest()
    found.submit_all("waits", waits)
    found.come_to_rest()
    shown = found.shown()
    assert found.told_by_rest() == shown
    assert found.admitted_one_by_one() == shown


def test_a_preemptor_is_first_wherever_its_order_is_shown() -> None:
    found = Line(shared_queue(1, QueueingStrategy.BEST_EFFORT_FIFO, usage_based=False), [1000] * 3)
    found.submit_all("victim", [("a", 0, "low")])
    found.come_to_rest()
    found.submit_all("preempts", [("a", 2, None)])
    found.decide()
    found.submit_all("urgent", [("b", 3, "high")])
    found.decide()
    assert found.shown()[0] == "preempts0"
    assert found.told_by_rest() == found.shown() == ["preempts0", "urgent0"]


def test_what_backs_off_has_no_position_anywhere_and_comes_back_at_the_end_of_its_pause() -> None:
    for loses_place, after in ((True, ["waits0", "fails0"]), (False, ["fails0", "waits0"])):
        shared = shared_queue(1, QueueingStrategy.STRICT_FIFO, usage_based=False)
        found = Line(shared, [1000] * 3, loses_place=loses_place)
        found.submit_all("fails", [("a", 0, None)])
        found.come_to_rest()
        found.write(next(iter(found.jobs)), spec=False, ready=False)
        found.deliver()
        found.now += timedelta(seconds=61)
        found.tell_time()
        found.submit_all("holds", [("c", 1, "high")])
        found.decide()
        found.end_pods()
        found.come_to_rest()
        found.write(WorkloadId("uid-holds0"), spec=False, ready=True)
        found.submit_all("waits", [("b", 100, None)])
        found.come_to_rest()
        assert found.shown() == ["waits0"]
        assert found.told_by_rest() == ["waits0"]
        found.now += timedelta(seconds=1000)
        found.tell_time()
        found.come_to_rest()
        assert found.shown() == after
        assert found.told_by_rest() == after


def test_what_no_quota_can_be_charged_for_has_no_position_anywhere() -> None:
    """Unlike a resource that no quota covers yet, which is found out when it is nominated."""
    found = Line(shared_queue(0, QueueingStrategy.BEST_EFFORT_FIFO, usage_based=False), [1000] * 3)
    claims = replace(pod_set(1, {GPU: 1}), not_charged="spec.template.spec.resourceClaims")
    found.submit(replace(workload("claims", "a", created=0), pod_sets=(claims,)))
    other = pod_set(1, {"example.com/dpu": 1})
    found.submit(replace(workload("uncovered", "a", created=1), pod_sets=(other,)))
    found.submit(workload("waits", "a", created=2))
    found.deliver()
    found.come_to_rest()
    stored = found.ledger.store.workloads
    reasons = [stored[WorkloadId(f"uid-{name}")].reason for name in ("claims", "uncovered")]
    assert [one and one.code for one in reasons] == [Code.RESOURCE_NOT_COVERED] * 2
    assert found.shown() == ["uncovered", "waits"]
    assert found.told_by_rest() == found.shown()


def test_a_pod_group_that_misses_a_pod_has_no_position_anywhere() -> None:
    found = Line(shared_queue(0, QueueingStrategy.BEST_EFFORT_FIFO, usage_based=False), [1000] * 3)
    awaited = Reason(code=Code.PENDING_EVALUATION, detail="1 of 2 pods of the group exist")
    found.submit(replace(workload("group", "a", created=0), pod_sets=(), problem=awaited))
    found.submit(workload("waits", "a", created=1))
    found.deliver()
    found.come_to_rest()
    assert found.shown() == ["waits"]
    assert found.told_by_rest() == ["waits"]


def test_the_line_is_kept_in_order_and_not_sorted_again() -> None:
    found = Line(shared_queue(0, QueueingStrategy.BEST_EFFORT_FIFO, usage_based=False), [1000] * 3)
    found.submit_all("w", [("a", n % 4, None) for n in range(20)])
    found.come_to_rest()
    line = engine_state.state(found.engine).pending["cq"].in_order()
    found.submit_all("more", [("b", 2, "high")])
    assert found.shown()[0] == "more0"
    found.delete(WorkloadId("uid-w7"))
    found.deliver()
    found.come_to_rest()
    assert engine_state.state(found.engine).pending["cq"].in_order() is line
    assert list(line) == sorted(line, key=lambda entry: entry.order)
    assert len(found.shown()) == len(line) == 20
