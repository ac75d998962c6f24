"""Pending queues, eligibility and policy with many pending workloads: each is admitted once, in order."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.decisions import Admit, Configure, Evict, Keep, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Listed,
    PolicyGone,
    PolicyInvalid,
    Result,
)
from queuectl.core.model.policy import (
    AdmissionFairSharing,
    HeadCanNeverRun,
    Namespace,
    PriorityClass,
    QueueingStrategy,
    RuntimeClass,
    SchedulingConfiguration,
    StopPolicy,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ConfigKey, LedgerSnapshot, WorkloadId, WorkloadOutcome
from queuectl.core.state import DueSteps
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pending_row,
    pod_set,
    policy,
    priority,
    queue,
    workload,
)
from tests.doubles.engine_state import entries

LQ = local_queue("lq", "cq")
STRICT = QueueingStrategy.STRICT_FIFO


def codes(world: World) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in world.run() if isinstance(d, Keep)}


def test_a_workload_that_left_its_pending_queue_and_returned_is_admitted_once() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(*(workload(f"w{n}", created=n) for n in range(4)))
    world.run()
    world.submit(workload("w2", created=2, hold=True))
    world.run()
    world.submit(workload("w2", created=2))
    world.run()
    world.tell(policy(queue("cq", 4)))
    assert admitted(world.run()) == ["w0", "w1", "w2", "w3"]


def test_quota_released_in_the_batch_of_a_new_arrival_is_not_lost() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    done = observed(workload("a"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2)
    world.tell(done, observed(workload("b", created=1)))
    assert admitted(world.run()) == ["b"]


def test_free_quota_goes_to_the_first_in_order_even_if_it_was_inadmissible() -> None:
    world = World(queue("cq", 2), LQ)
    world.tell(priority("high", 1))
    world.submit(workload("a", gpus=2))
    world.run()
    world.settle()
    world.submit(workload("urgent", gpus=2, priority_class="high", created=1))
    world.run()
    done = observed(workload("a", gpus=2), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2)
    world.tell(done, observed(workload("small", created=2)))
    assert admitted(world.run()) == ["urgent"]


def test_a_released_workload_competes_for_the_quota_it_released() -> None:
    world = World(queue("cq", 2), LQ)
    world.submit(workload("first", gpus=1))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(
        observed(workload("first", gpus=2), generation=2),
        EffectSettled(effect.key, Result.REFUSED),
        observed(workload("later", gpus=2, created=5)),
    )
    decisions = world.run()
    assert [type(d) for d in decisions if not isinstance(d, Keep)] == [Release, Admit]
    assert admitted(decisions) == ["first"]


def test_a_workload_that_ends_when_its_queue_is_deleted_is_only_retired() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(workload("a"))
    world.run()
    world.tell(
        PolicyGone(ConfigKey("LocalQueue", "ns", "lq")),
        observed(workload("a"), finished=WorkloadOutcome.DELETED),
    )
    assert [type(d) for d in world.run()] == [Retire]


def test_a_workload_on_hold_started_past_the_admission_policy_is_charged_and_then_evicted() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a", gpus=2))
    world.run()
    world.tell(observed(workload("a", gpus=2, hold=True), suspended=False, generation=2))
    assert [type(d) for d in world.run()] == [Admit, Evict]


def test_an_invalid_spec_does_not_hide_that_a_flavor_is_missing() -> None:
    groups = [group({"gone": {GPU: 1}, "there": {GPU: 1}})]
    world = World(flavor("there"), queue("cq", groups=groups), LQ)
    world.tell(PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec.resourceGroups: too many"))
    world.submit(workload("a"))
    assert codes(world) == {"a": Code.MISCONFIGURED}


def test_an_invalid_spec_leaves_the_last_valid_one_in_force() -> None:
    world = World(queue("cq", 1), LQ)
    world.run()
    world.tell(PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec: what is this"))
    world.submit(workload("a"))
    assert admitted(world.run()) == ["a"]
    ((report,), _, _) = world.engine.take_reports()
    assert report.condition.message.startswith("InvalidSpec")


def test_a_spec_that_was_valid_for_a_moment_is_recorded() -> None:
    world = World(queue("cq", 1), LQ)
    world.run()
    world.tell(
        policy(queue("cq", 2)), PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec: what is this")
    )
    assert [d.key.name for d in world.plan().decisions if isinstance(d, Configure)] == ["cq"]


def test_a_spec_that_is_valid_again_is_reported_although_it_is_unchanged() -> None:
    world = World(queue("cq", 1), LQ)
    world.run()
    world.tell(PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec: what is this"))
    (_, (report,), _) = world.engine.take_reports()
    assert report.condition.reason == "InvalidSpec"
    world.tell(policy(queue("cq", 1)))
    ((local,), (report,), _) = world.engine.take_reports()
    assert (local.condition.active, report.condition.active) == (True, True)


def test_draining_a_queue_also_evicts_workloads_whose_local_queue_now_points_elsewhere() -> None:
    world = World(queue("cq", 1), queue("other", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(policy(local_queue("lq", "other")))
    world.run()
    world.tell(policy(queue("cq", 1, stop=StopPolicy.HOLD_AND_DRAIN)))
    (evict,) = world.run()
    assert isinstance(evict, Evict)
    assert evict.reason.code is Code.CLUSTER_QUEUE_STOPPED


def test_when_the_head_moves_to_another_queue_the_next_workload_is_evaluated() -> None:
    world = World(queue("cq", 1, strategy=STRICT), queue("big", 4), LQ, local_queue("big", "big"))
    world.submit(workload("head", gpus=4), workload("next", created=1))
    world.run()
    world.submit(workload("head", "big", gpus=4))
    assert admitted(world.run()) == ["head", "next"]


def test_a_head_with_a_lower_new_priority_moves_back() -> None:
    world = World(queue("cq", 1, strategy=STRICT), LQ)
    world.tell(priority("high", 2), priority("low", 1))
    world.submit(workload("head", gpus=4, priority_class="high"))
    world.submit(workload("next", gpus=2, priority_class="low", created=1))
    assert codes(world) == {"head": Code.EXCEEDS_MAX_QUOTA, "next": Code.WAITING_FOR_HEAD}
    world.tell(priority("high", 0))
    assert codes(world) == {"head": Code.WAITING_FOR_HEAD, "next": Code.EXCEEDS_MAX_QUOTA}


def test_those_behind_a_head_that_can_never_run_are_told_its_reason() -> None:
    world = World(queue("cq", 1, strategy=STRICT), queue("big", 4), LQ, local_queue("big", "big"))
    world.submit(workload("head", gpus=4), workload("next", created=1), workload("last", created=2))
    world.run()
    what = "ExceedsMaxQuota of nvidia.com/gpu in flavor default"
    never = f"its head can never run with the present configuration: {what}"
    for name in ("next", "last"):
        assert world.reason(name).message == f"WaitingForHead at ClusterQueue/cq: {never}"  # type: ignore[union-attr]
    world.submit(workload("head", gpus=1))
    assert admitted(world.run()) == ["head"]
    assert codes(world) == {}
    assert world.reason("last").message == "WaitingForHead at ClusterQueue/cq"  # type: ignore[union-attr]


def test_a_head_that_can_never_run_is_told_in_all_local_queues() -> None:
    """With usage-based order each LocalQueue has a group of its own (C4)."""
    sharing = AdmissionFairSharing(half_life=3600, sampling_interval=300)
    settings = SchedulingConfiguration(usage_sharing=sharing)
    strict = queue("cq", 4, strategy=STRICT, usage_based=True)
    world = World(strict, LQ, local_queue("other", "cq"), settings=settings)
    world.submit(workload("runs", gpus=4))
    world.run()
    world.settle()
    world.submit(workload("head", gpus=2, created=1), workload("behind", "other", gpus=2, created=2))
    world.run()
    names = ("head", "behind")
    assert "WaitingForHead at ClusterQueue/cq" in {world.reason(name).message for name in names}  # type: ignore[union-attr]
    world.tell(policy(queue("cq", 1, strategy=STRICT, usage_based=True)))
    world.run()
    found = [world.reason(name).message for name in names]  # type: ignore[union-attr]
    assert sorted("its head can never run" in message for message in found) == [False, True], found


PASS_OVER: dict[str, Any] = {"strategy": STRICT, "head_can_never_run": HeadCanNeverRun.PASS_OVER}


def test_a_queue_may_pass_over_a_head_that_can_never_run() -> None:
    world = World(queue("cq", 2, **PASS_OVER), LQ)
    world.submit(workload("never", gpus=4), workload("uncovered", pods=[pod_set(1, {"tpu": 1})], created=1))
    world.submit(workload("runs", gpus=1, created=2), workload("waits", gpus=2, created=3))
    world.submit(workload("behind", gpus=1, created=4), workload("never too", gpus=4, created=5))
    assert admitted(world.run()) == ["runs"]
    named = ("never", "uncovered", "waits", "behind", "never too")
    assert {name: world.reason(name).code for name in named} == {  # type: ignore[union-attr]
        "never": Code.EXCEEDS_MAX_QUOTA,
        "uncovered": Code.RESOURCE_NOT_COVERED,
        "waits": Code.WAITING_FOR_QUOTA,
        "behind": Code.WAITING_FOR_HEAD,
        "never too": Code.EXCEEDS_MAX_QUOTA,
    }


def test_what_is_passed_over_comes_first_again_when_it_can_run() -> None:
    world = World(queue("cq", 2, **PASS_OVER), LQ)
    world.submit(workload("runs", gpus=2))
    assert admitted(world.run()) == ["runs"]
    world.settle()
    world.submit(workload("never", gpus=4, created=1), workload("never too", gpus=4, created=2))
    world.submit(workload("waits", gpus=1, created=3))
    assert codes(world)["waits"] is Code.WAITING_FOR_QUOTA
    world.tell(policy(queue("cq", 4, **PASS_OVER)))
    assert codes(world) == {
        "never": Code.WAITING_FOR_QUOTA,
        "never too": Code.WAITING_FOR_HEAD,
        "waits": Code.WAITING_FOR_HEAD,
    }
    world.tell(policy(queue("cq", 2, **PASS_OVER)))
    assert codes(world) == {
        "never": Code.EXCEEDS_MAX_QUOTA,
        "never too": Code.EXCEEDS_MAX_QUOTA,
        "waits": Code.WAITING_FOR_QUOTA,
    }


def test_what_comes_before_a_head_of_another_shape_is_nominated() -> None:
    world = World(queue("cq", 2, **PASS_OVER), LQ)
    world.submit(workload("small", gpus=1), workload("other", gpus=1, created=1))
    assert admitted(world.run()) == ["small", "other"]
    world.settle()
    world.submit(workload("head", gpus=2, created=3), workload("behind", gpus=1, created=5))
    assert codes(world) == {"head": Code.WAITING_FOR_QUOTA, "behind": Code.WAITING_FOR_HEAD}
    world.submit(workload("first", gpus=1, created=2))
    assert codes(world) == {"first": Code.WAITING_FOR_QUOTA, "head": Code.WAITING_FOR_HEAD}


def test_two_heads_that_can_never_run_keep_no_workload_waiting() -> None:
    """As the request for 100 CPUs where the quota is 4, and that for a resource that no group covers."""
    world = World(
        queue("q", groups=[group({"f": {"cpu": 4}})], **PASS_OVER), flavor("f"), local_queue("lq", "q")
    )
    world.submit(
        workload("never-too-big", pods=[pod_set(1, {"cpu": 100})]),
        workload("never-uncovered", pods=[pod_set(1, {"cpu": 1, "ephemeral-storage": 1})], created=1),
        workload("fits", pods=[pod_set(1, {"cpu": 1})], created=2),
    )
    assert admitted(world.run()) == ["fits"]
    never = [world.reason(name) for name in ("never-too-big", "never-uncovered")]
    assert all(one is not None and one.passed_over for one in never), never
    assert [one.code for one in never if one] == [Code.EXCEEDS_MAX_QUOTA, Code.RESOURCE_NOT_COVERED]
    assert never[0] is not None
    assert never[0].message.endswith(": its queue passes over it")
    assert not world.run(), "each is evaluated once"


def test_what_may_start_with_fewer_pods_is_not_passed_over_where_these_could_have_quota() -> None:
    world = World(queue("cq", 2, **PASS_OVER), LQ)
    world.submit(workload("runs", gpus=2))
    world.run()
    world.settle()
    world.submit(workload("elastic", pods=[pod_set(4, {GPU: 1}, min_count=2)], created=1))
    world.submit(workload("behind", gpus=1, created=2))
    assert codes(world) == {"elastic": Code.EXCEEDS_MAX_QUOTA, "behind": Code.WAITING_FOR_HEAD}


def test_what_is_passed_over_returns_when_it_is_edited() -> None:
    world = World(queue("cq", 2, **PASS_OVER), LQ)
    world.submit(workload("never", gpus=4), workload("runs", gpus=2, created=1))
    assert admitted(world.run()) == ["runs"]
    world.settle()
    world.submit(workload("waits", gpus=1, created=2))
    assert codes(world) == {"waits": Code.WAITING_FOR_QUOTA}
    world.submit(workload("never", gpus=1))
    assert codes(world) == {"never": Code.WAITING_FOR_QUOTA, "waits": Code.WAITING_FOR_HEAD}


def test_what_is_passed_over_returns_when_its_cohort_has_enough() -> None:
    world = World(queue("cq", 2, cohort="all", **PASS_OVER), LQ)
    world.submit(workload("never", gpus=4))
    assert codes(world) == {"never": Code.EXCEEDS_MAX_QUOTA}
    world.tell(policy(queue("other", 2, cohort="all")))
    assert admitted(world.run()) == ["never"]


def test_a_queue_that_blocks_from_now_on_waits_for_what_it_passed_over() -> None:
    world = World(queue("cq", 2, **PASS_OVER), LQ)
    world.submit(workload("never", gpus=4), workload("runs", gpus=2, created=1))
    assert admitted(world.run()) == ["runs"]
    world.settle()
    world.submit(workload("waits", gpus=1, created=2))
    world.run()
    world.tell(policy(queue("cq", 2, strategy=STRICT)))
    assert codes(world) == {"never": Code.EXCEEDS_MAX_QUOTA, "waits": Code.WAITING_FOR_HEAD}
    reason = world.reason("never")
    assert reason is not None
    assert not reason.passed_over


def test_a_head_on_hold_does_not_block_the_others() -> None:
    world = World(queue("cq", 1, strategy=STRICT), LQ)
    world.submit(workload("head", gpus=4), workload("next", created=1))
    world.run()
    world.submit(workload("head", gpus=4, hold=True))
    assert admitted(world.run()) == ["next"]


def test_a_change_of_the_queueing_strategy_reevaluates_all_pending_workloads() -> None:
    world = World(queue("cq", 1, strategy=STRICT), LQ)
    world.submit(workload("head", gpus=4), workload("next", created=1), workload("last", created=2))
    world.run()
    world.tell(policy(queue("cq", 1)))
    decisions = world.run()
    assert admitted(decisions) == ["next"]
    assert {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)} == {
        "last": Code.WAITING_FOR_QUOTA
    }
    world.tell(policy(queue("cq", 1, strategy=STRICT)))
    assert codes(world) == {"last": Code.WAITING_FOR_HEAD}


def test_less_overhead_admits_a_workload_that_was_inadmissible_because_of_it() -> None:
    world = World(queue("cq", 2), LQ)
    world.tell(ContextObserved(RuntimeClass("kata", ((GPU, 2),))))
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1}, runtime_class="kata")]))
    assert codes(world) == {"a": Code.EXCEEDS_MAX_QUOTA}
    world.tell(ContextObserved(RuntimeClass("kata", ((GPU, 1),))))
    assert admitted(world.run()) == ["a"]


def test_a_change_that_affects_all_is_not_lost_to_one_that_affects_nothing() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1}, priority_class="urgent")]))
    assert codes(world) == {"a": Code.PRIORITY_NOT_FOUND}
    world.tell(ContextObserved(PriorityClass("urgent", 5)), ContextGone(PriorityClass, "missing"))
    assert codes(world) == {"a": Code.EXCEEDS_MAX_QUOTA}


def test_workloads_that_name_no_class_have_the_priority_of_the_class_default() -> None:
    world = World(queue("cq", 0), LQ)
    pods = [pod_set(1, {GPU: 1}, priority_class="pods")]
    world.tell(ContextObserved(PriorityClass("pods", 7)), priority("default", 5), priority("high", 9))
    world.submit(
        workload("unlabelled"), workload("of-pods", pods=pods), workload("high", priority_class="high")
    )
    world.run()
    assert priorities(world) == {"unlabelled": 5, "of-pods": 5, "high": 9}
    world.tell(PolicyGone(ConfigKey("WorkloadPriorityClass", "", "default")))
    world.run()
    assert priorities(world) == {"unlabelled": 0, "of-pods": 7, "high": 9}


def priorities(world: World) -> dict[str, int]:
    return {entry.ref.name: entry.priority for entry in entries(world.engine).values()}


def test_workloads_with_equal_order_are_ordered_by_identity() -> None:
    """A ledger that is rebuilt from the cluster may have no order of first observation."""
    world = World(queue("cq", 1), LQ)
    ones = [workload(name) for name in ("b", "a", "c")]
    stored = tuple(pending_row(one, arrival=0, attempts=0) for one in ones)
    world.engine = Engine(SOURCES)
    world.engine.restore(LedgerSnapshot(sequence=3, now=T0, workloads=stored))
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 1)))
    world.tell(policy(LQ), Listed("policies"), *(observed(one) for one in ones))
    world.tell(Listed("Job", frozenset(one.id for one in ones)))
    assert admitted(world.run()) == ["a"]


def looks_at_arrivals(number: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often plans of 50 units of work ask what is due of `number` workloads that arrive together."""
    world = World(queue("cq", 0), LQ)
    world.submit(*(workload(f"w{n:04}", created=n) for n in range(number)))
    looks = 0
    get = DueSteps.get

    def counted(steps: DueSteps, id: WorkloadId) -> object:
        nonlocal looks
        looks += 1
        return get(steps, id)

    while world.engine.due:
        with monkeypatch.context() as patched:
            patched.setattr(DueSteps, "get", counted)
            plan = world.plan(budget=50)
        world.commit(plan)
    return looks


def test_what_arrives_together_costs_each_workload_the_same_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = (looks_at_arrivals(number, monkeypatch) / number for number in (100, 800))
    assert many <= 1.5 * few
