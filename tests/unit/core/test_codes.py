"""Each reason code is given to some workload: no code is documented that nothing produces (R1)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from queuectl.core.decisions import Evict, Keep
from queuectl.core.model.budgets import HOUR, Budget, BudgetMode, BudgetPeriods, PeriodKind
from queuectl.core.model.device_use import IdlePolicy, UseFinding, UseVerdict
from queuectl.core.model.events import (
    ContextObserved,
    DeviceUseFound,
    EffectSettled,
    PodsCounted,
    Result,
)
from queuectl.core.model.pod_limits import Counts, HardLimit, NamespaceQuota
from queuectl.core.model.policy import (
    MinRunTime,
    Policy,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    SchedulingConfiguration,
    StopPolicy,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import Container, PodResources
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.workloads import observe
from tests.builders import GPU, T0, World, flavor, local_queue, observed, pod_set, policy, queue, workload
from tests.job_kinds import JOB_KINDS
from tests.unit.core.node_worlds import NodeWorld, gang, node
from tests.unit.core.room import OWN, PreemptionWorld
from tests.unit.kinds.job_objects import container, job

LQ = local_queue("lq", "cq")
SETTINGS = SchedulingConfiguration(pods_ready_timeout=30)


def one(*policies: Policy, **fields: Any) -> World:
    """A workload in these policies."""
    world = World(*(policies or (queue("cq", 1), LQ)))
    world.submit(workload("a", **fields))
    return world


def requesting(amount: str) -> World:
    """A Job whose container requests this amount."""
    event = observe(JOB_KINDS["Job"], job(pod={"containers": [container({GPU: amount})]}))
    assert event is not None
    world = World(queue("cq", 1), local_queue("main", "cq", namespace="team-a"), namespaces=("team-a",))
    world.tell(event)
    return world


def full(*, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> World:
    """A queue that `a` fills and that `b` and `c` wait for."""
    world = World(queue("cq", 1, strategy=strategy), LQ)
    world.submit(*(workload(name, created=number) for number, name in enumerate("abc")))
    return world


def running(**fields: Any) -> World:
    """A workload that was started and runs, with pods that are not ready."""
    world = World(queue("cq", 1), LQ, settings=SETTINGS)
    world.submit(workload("a", **fields))
    world.run()
    world.settle()
    world.tell(observed(workload("a", **fields), suspended=False, ready=False, generation=2))
    return world


def later(world: World, seconds: float) -> World:
    world.run()
    world.pass_time(seconds)
    return world


def drained(value: Policy) -> World:
    world = running()
    world.tell(policy(value))
    return world


def held() -> World:
    world = running()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    return world


def suspended_by_another_client() -> World:
    world = running()
    world.tell(observed(workload("a"), suspended=True, generation=3))
    return world


def denied() -> World:
    world = one()
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(EffectSettled(effect.key, Result.DENIED, detail="policy x says no"))
    return world


def deactivated() -> World:
    """Its label allows less than it has run: evicted, stopped, and kept out."""
    world = later(running(max_run_seconds=10), 10)
    world.run()
    world.settle(generation=3)
    world.tell(observed(workload("a", max_run_seconds=10), generation=3))
    world.run()
    world.tell(PodsCounted(WorkloadId("uid-a"), 1, alive=False))
    return world


def preempting(rules: Preemption = OWN) -> World:
    world = PreemptionWorld(queue("q", 1, preemption=rules))
    world.hold("there", "q")
    world.submit(workload("asks", "q", priority_class="high"))
    return world


def frozen() -> World:
    world = full()
    world.run()
    world.engine.freeze("ClusterQueue/cq")
    return world


def resource_quota(hard: int, used: int = 0) -> World:
    """One that counts pods, and a workload of two."""
    world = World(queue("cq", 4), LQ)
    limit = HardLimit("pods", Counts.PODS, "pods", hard, used)
    world.tell(ContextObserved(NamespaceQuota("ns/x", (limit,))))
    pod = PodResources(containers=(Container("main", ((GPU, 1),)),))
    world.submit(workload("a", pods=[pod_set(2, {GPU: 1}, pod=pod)]))
    return world


def usage_limit(running: int) -> World:
    """Two workloads, of which so many may run."""
    target, subject = LimitTarget("ClusterQueue", "cq"), LimitSubject(SubjectKind.ALL)
    most = ((Dimension(None, WORKLOADS), running),)
    world = World(queue("cq", 4), LQ, UsageLimit(name="x", target=target, subject=subject, most=most))
    world.submit(workload("a"), workload("b"))
    return world


def idle_devices(*, cancels: bool = False) -> World:
    """A workload that leaves its device idle, and was told of it."""
    target = LimitTarget("ClusterQueue", "cq")
    world = World(
        queue("cq", 1),
        LQ,
        IdlePolicy(name="x", target=target, notify_after=600, hold_after=900, cancels=cancels, dry_run=False),
    )
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a"), suspended=False, generation=2))
    finding, end = UseFinding(UseVerdict.IDLE, 1, 1, 1.0), world.now + timedelta(hours=1)
    world.tell(DeviceUseFound(WorkloadId("uid-a"), 1, finding, world.now, end))
    for seconds in (0, 600, 300):
        world.pass_time(seconds)
        if seconds != 300:
            world.run()
    return world


def budget(hours: int, **fields: Any) -> World:
    """A workload, and a budget of so many GPU hours."""
    spec = Budget(
        name="x",
        target=LimitTarget("ClusterQueue", "cq"),
        subject=LimitSubject(SubjectKind.ALL),
        resource=GPU,
        amount=hours * HOUR,
        periods=BudgetPeriods(PeriodKind.MONTH),
        mode=BudgetMode.SAFE,
    )
    world = World(queue("cq", 4), LQ, spec)
    world.submit(workload("a", **fields))
    return world


def raised_limit() -> World:
    """A workload whose run time limit was raised after its admission."""
    world = budget(1, max_run_seconds=10)
    world.run()
    world.settle()
    world.submit(workload("a", max_run_seconds=1000))
    return later(world, 10)


def node_lost() -> World:
    """One of the two nodes under a gang is deleted."""
    world = NodeWorld(node("a"), node("b"))
    world.submit(gang("gang", 2))
    world.run()
    world.bind("gang", "a", "b")
    world.lose("a")
    return world


def on_nodes(*gpus: int, used: int = 0) -> World:
    """`used`: by unmanaged pods on each node."""
    world = NodeWorld(*(node(f"n{number}", count) for number, count in enumerate(gpus)))
    world.bind(None, *(f"n{number}" for number in range(len(gpus)) for _ in range(used)))
    world.submit(gang("a", 1, 2))
    return world


def after(name: str) -> StartConditions:
    return StartConditions(after=(AfterWorkload(AfterOutcome.OK, "Job", name),))


def in_an_array() -> World:
    """Two workloads of an array that runs one at a time."""
    start = StartConditions(max_running=1, array="sweep")
    world = one(queue("cq", 2), LQ, start=start)
    world.submit(workload("b", created=1, start=start))
    return world


GUARDED = Preemption(
    within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, min_run_time=MinRunTime(in_cluster_queue=60)
)
STOPPED = queue("cq", 1, stop=StopPolicy.HOLD_AND_DRAIN)
PRODUCED: dict[Code, Callable[[], World]] = {
    Code.EXCEEDS_MAX_QUOTA: lambda: one(gpus=2),
    Code.NO_MATCHING_FLAVOR: lambda: one(
        flavor("default", {"gpu": "a100"}),
        queue("cq", 1),
        LQ,
        pods=[pod_set(1, {GPU: 1}, node_selector=(("gpu", "x"),))],
    ),
    Code.RESOURCE_NOT_COVERED: lambda: one(pods=[pod_set(1, {"example.com/x": 1})]),
    Code.MISCONFIGURED: lambda: one(flavor("other"), queue("cq", 1), LQ),
    Code.EXCEEDS_RESOURCE_QUOTA: lambda: resource_quota(1),
    Code.OUTSIDE_USAGE_LIMIT: lambda: usage_limit(0),
    Code.DEPENDENCY_NEVER_SATISFIED: lambda: one(start=after("a")),
    Code.BUDGET_NEEDS_LIMIT: lambda: budget(1),
    Code.BUDGET_EXHAUSTED: lambda: budget(0, max_run_seconds=10),
    Code.BUDGET_TIME_EXCEEDED: raised_limit,
    Code.QUEUE_NOT_FOUND: lambda: one(queue("cq", 1)),
    Code.NAMESPACE_NOT_ALLOWED: lambda: one(queue("cq", 1, selector=None), LQ),
    Code.QUANTITY_OUT_OF_RANGE: lambda: requesting("1e99"),
    Code.NEGATIVE_REQUEST: lambda: requesting("-1"),
    Code.PRIORITY_NOT_FOUND: lambda: one(priority_class="missing"),
    Code.PENDING_EVALUATION: one,
    Code.WAITING_FOR_QUOTA: full,
    Code.WAITING_FOR_RESOURCE_QUOTA: lambda: resource_quota(2, used=1),
    Code.WAITING_FOR_USAGE_LIMIT: lambda: usage_limit(1),
    Code.WAITING_FOR_DEPENDENCY: lambda: one(start=after("other")),
    Code.WAITING_FOR_BEGIN_TIME: lambda: one(start=StartConditions(begin_at=T0 + timedelta(hours=1))),
    Code.WAITING_FOR_ARRAY: in_an_array,
    Code.WAITING_FOR_PREEMPTED_WORKLOADS: preempting,
    Code.CAPACITY_MISSING: lambda: on_nodes(2, used=1),
    Code.NO_NODE_FITS: lambda: on_nodes(2, 2, used=1),
    Code.NO_NODE_CAN_FIT: lambda: on_nodes(1, 1),
    Code.WAITING_FOR_HEAD: lambda: full(strategy=QueueingStrategy.STRICT_FIFO),
    Code.BACKING_OFF: denied,
    Code.MIN_RUN_TIME_PROTECTED: lambda: preempting(GUARDED),
    Code.ON_HOLD: lambda: one(hold=True),
    Code.SUSPENDED: lambda: one(STOPPED, LQ),
    Code.DEACTIVATED: deactivated,
    Code.LEDGER_MISMATCH: frozen,
    Code.PREEMPTED: preempting,
    Code.PODS_READY_TIMEOUT: lambda: later(running(), 30),
    Code.NODE_FAILURES: node_lost,
    Code.CLUSTER_QUEUE_STOPPED: lambda: drained(STOPPED),
    Code.LOCAL_QUEUE_STOPPED: lambda: drained(local_queue("lq", "cq", stop=StopPolicy.HOLD_AND_DRAIN)),
    Code.MAXIMUM_EXECUTION_TIME_EXCEEDED: lambda: later(running(max_run_seconds=10), 10),
    Code.IDLE_DEVICES: idle_devices,
    Code.IDLE_CANCELLED: partial(idle_devices, cancels=True),
    Code.USER_HOLD: held,
    Code.BYPASS: suspended_by_another_client,
}


def test_each_code_has_a_world_here() -> None:
    assert set(PRODUCED) == set(Code), "remove a code that nothing produces, or show here what does"


@pytest.mark.parametrize("code", Code)
def test_a_code_is_produced(code: Code) -> None:
    world = PRODUCED[code]()
    if code is Code.PENDING_EVALUATION:  # in reports, until it is evaluated
        _, (report,), _ = world.engine.take_reports()
        assert report.reasons == ((code, 1),)
        return
    before = len(world.decided)
    world.run()
    assert code in {d.reason.code for d in world.decided[before:] if isinstance(d, Keep | Evict)}
