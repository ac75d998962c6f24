"""One small cluster per test: policy and workloads in, decisions out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queuectl.core.decisions import Admit, Amend, Evict, Keep, Release, Retire
from queuectl.core.engine import StalePlan
from queuectl.core.model.events import EffectSettled, PodsCounted, Result, TimeCame, WorkloadGone
from queuectl.core.model.policy import Cohort, QueueingStrategy, StopPolicy, Taint
from queuectl.core.model.reasons import Code, Limit
from queuectl.core.model.workload import WorkloadId, WorkloadOutcome
from tests.builders import (
    GPU,
    T0,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    policy,
    priority,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")


def reasons(world: World) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in world.run() if isinstance(d, Keep)}


def test_a_workload_that_fits_is_admitted_with_its_flavor() -> None:
    world = World(queue("cq", 8), LQ)
    world.submit(workload("a", gpus=8))
    (admit,) = world.run()
    assert isinstance(admit, Admit)
    assert admit.attempt.number == 1
    assert admit.attempt.assignment.pod_sets[0].flavors == ((GPU, "default"),)


def test_earlier_goes_before_later_and_higher_priority_before_both() -> None:
    world = World(queue("cq", 3), LQ)
    world.tell(priority("high", 100))
    world.submit(
        workload("late", created=2),
        workload("early", created=1),
        workload("urgent", created=3, priority_class="high"),
    )
    assert admitted(world.run()) == ["urgent", "early", "late"]


def test_a_pending_workload_reports_what_it_lacks_and_by_how_much() -> None:
    world = World(queue("cq", 8), LQ)
    world.submit(workload("a", gpus=6), workload("b", gpus=4, created=1))
    keep = next(d for d in world.run() if isinstance(d, Keep))
    reason = keep.reason
    assert (reason.code, reason.requested, reason.available, reason.short_by) == (
        Code.WAITING_FOR_QUOTA,
        4,
        2,
        2,
    )
    assert (reason.limit, reason.node, reason.flavor) == (Limit.NOMINAL_QUOTA, "ClusterQueue/cq", "default")


def test_a_workload_larger_than_its_queue_never_fits() -> None:
    world = World(queue("cq", 8), LQ)
    world.submit(workload("huge", gpus=16))
    (keep,) = world.run()
    assert isinstance(keep, Keep)
    assert keep.reason.code is Code.EXCEEDS_MAX_QUOTA
    assert (keep.reason.available, keep.reason.short_by) == (8, 8)


def test_best_effort_fifo_admits_a_small_workload_behind_a_large_one() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("large", gpus=8), workload("small", gpus=4, created=1))
    assert admitted(world.run()) == ["small"]


def test_strict_fifo_admits_no_workload_behind_the_head() -> None:
    world = World(queue("cq", 4, strategy=QueueingStrategy.STRICT_FIFO), LQ)
    world.submit(workload("large", gpus=8), workload("small", gpus=4, created=1))
    assert reasons(world) == {"large": Code.EXCEEDS_MAX_QUOTA, "small": Code.WAITING_FOR_HEAD}


def test_under_strict_fifo_a_new_head_pushes_the_old_one_behind() -> None:
    world = World(queue("cq", 4, strategy=QueueingStrategy.STRICT_FIFO), LQ)
    world.tell(priority("high", 1))
    world.submit(workload("first", gpus=8))
    assert reasons(world) == {"first": Code.EXCEEDS_MAX_QUOTA}
    world.submit(workload("second", gpus=9, priority_class="high"))
    assert reasons(world) == {"second": Code.EXCEEDS_MAX_QUOTA, "first": Code.WAITING_FOR_HEAD}
    world.tell(WorkloadGone(WorkloadId("uid-second")))
    decisions = world.run()
    assert [d.reason.code for d in decisions if isinstance(d, Keep)] == [Code.EXCEEDS_MAX_QUOTA]


def test_equal_workloads_are_evaluated_once() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(*(workload(f"w{n}") for n in range(100)))
    world.commit(world.plan())  # queued, and evaluated
    assert reasons(world) == {}
    world.tell(policy(queue("cq", 1, cohort="c")))
    assert len(admitted(world.run())) == 1


def test_a_reason_is_recorded_again_only_when_its_code_or_limit_changes() -> None:
    world = World(queue("cq", 8), LQ)
    world.submit(workload("a", gpus=4), workload("b", gpus=5, created=1))
    assert len([d for d in world.run() if isinstance(d, Keep)]) == 1
    world.submit(workload("c", gpus=1, created=2))
    assert admitted(world.run()) == ["c"]
    world.settle()
    world.tell(
        observed(
            workload("c", gpus=1, created=2),
            suspended=False,
            finished=WorkloadOutcome.SUCCEEDED,
            generation=2,
        )
    )
    assert [type(d) for d in world.run()] == [Retire]
    world.tell(policy(queue("cq", 4)))
    (keep,) = world.run()
    assert isinstance(keep, Keep)
    assert keep.reason.code is Code.EXCEEDS_MAX_QUOTA


def test_the_quota_of_a_finished_job_goes_to_the_next_workload() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(observed(workload("a"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
    assert [type(d) for d in world.run()] == [Retire, Admit]


def test_a_finished_workload_that_is_not_quiet_is_probed_first() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    done = workload("a")
    world.tell(observed(done, suspended=False, finished=WorkloadOutcome.FAILED, quiet=False, generation=2))
    plan = world.plan()
    assert [probe[0] for probe in plan.probes] == [done.id]
    world.commit(plan)
    assert world.run() == []
    world.tell(PodsCounted(done.id, 1, alive=True))
    world.tell(PodsCounted(done.id, 1, alive=False))
    (retire,) = world.run()
    assert isinstance(retire, Retire)
    assert retire.outcome is WorkloadOutcome.FAILED


def test_quota_released_in_the_same_batch_requeues_a_new_workload() -> None:
    """The new workload was evaluated before the release was applied and marked inadmissible after it."""
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(
        observed(workload("a"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2),
        observed(workload("b", created=1)),
    )
    assert admitted(world.run()) == ["b"]


def test_the_reason_of_a_hold_is_part_of_its_reason() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a"))
    assert admitted(world.run()) == ["a"]
    world.settle()
    held = workload("a", hold=True, hold_reason="by alice: node 7")
    world.tell(observed(held, suspended=False, generation=2))
    (evict,) = world.run()
    assert isinstance(evict, Evict)
    assert evict.reason.message == "UserHold: by alice: node 7"
    world.submit(workload("b", hold=True, hold_reason="by bob: later"))
    (keep,) = (decision for decision in world.run() if isinstance(decision, Keep))
    assert keep.reason.message == "OnHold: by bob: later"


def test_hold_makes_a_pending_workload_ineligible_and_evicts_an_admitted_one() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    (evict,) = world.run()
    assert isinstance(evict, Evict)
    assert evict.reason.code is Code.USER_HOLD
    world.submit(workload("b", created=1))
    assert reasons(world) == {"b": Code.WAITING_FOR_QUOTA}
    world.settle(generation=3)
    (probe,) = world.plan().probes
    world.run()
    world.tell(PodsCounted(probe[0], 1, alive=False))
    decisions = world.run()
    assert [type(d) for d in decisions] == [Release, Admit, Keep]
    assert admitted(decisions) == ["b"]
    assert [d.reason.code for d in decisions if isinstance(d, Keep)] == [Code.ON_HOLD]
    world.tell(observed(workload("a", hold=True), suspended=True, generation=3))
    assert world.run() == []


def test_a_stopped_queue_admits_nothing_and_a_drained_queue_evicts() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(policy(queue("cq", 1, stop=StopPolicy.HOLD)))
    world.submit(workload("b", created=1))
    assert reasons(world) == {"b": Code.SUSPENDED}
    world.tell(policy(queue("cq", 1, stop=StopPolicy.HOLD_AND_DRAIN)))
    evict = next(d for d in world.run() if isinstance(d, Evict))
    assert evict.reason.code is Code.CLUSTER_QUEUE_STOPPED


@pytest.mark.parametrize("stopped", ["ClusterQueue", "LocalQueue"])
def test_the_reason_of_a_stop_is_told_to_those_who_wait_and_those_who_are_evicted(stopped: str) -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    stop: dict[str, Any] = {"stop": StopPolicy.HOLD_AND_DRAIN, "stop_reason": "by ada: node 7"}
    of = queue("cq", 1, **stop) if stopped == "ClusterQueue" else local_queue("lq", "cq", **stop)
    world.tell(policy(of))
    world.submit(workload("b", created=1))
    decisions = world.run()
    told = {d.ref.name: d.reason.message for d in decisions if isinstance(d, Evict | Keep)}
    assert told["a"].endswith("by ada: node 7")
    assert told["b"].endswith("stopPolicy is HoldAndDrain: by ada: node 7")


def test_a_start_that_is_refused_is_sent_again_when_the_charge_is_the_same() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle(Result.REFUSED)
    (effect,) = world.engine.take_effects()
    assert effect.key.attempt == 1


def test_a_start_that_is_refused_is_released_when_the_charge_changed() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(observed(workload("a", gpus=2), generation=2))
    world.tell(EffectSettled(effect.key, Result.REFUSED))
    decisions = world.run()
    assert [type(d) for d in decisions] == [Release, Admit]
    assert decisions[1].attempt.number == 2  # type: ignore[union-attr]


def test_a_denied_start_releases_its_quota_and_backs_off_until_an_edit() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(EffectSettled(effect.key, Result.DENIED, detail="policy x says no"))
    world.submit(workload("b", created=1))
    decisions = world.run()
    assert [type(d) for d in decisions] == [Release, Admit, Keep]
    assert admitted(decisions) == ["b"]
    (keep,) = (d for d in decisions if isinstance(d, Keep))
    assert keep.reason.message == (
        "BackingOff, until 2030-01-01T00:01:00Z: its start was denied: policy x says no"
    )
    world.tell(observed(workload("a"), generation=2))
    assert reasons(world) == {"a": Code.WAITING_FOR_QUOTA}


def test_a_denied_start_is_repeated_after_the_backoff() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(EffectSettled(effect.key, Result.DENIED, detail="policy x says no"))
    assert [type(d) for d in world.run()] == [Release, Keep]
    assert world.engine.due_at == T0 + timedelta(seconds=60)
    world.tell(TimeCame(T0 + timedelta(seconds=60)))
    assert admitted(world.run()) == ["a"]
    (again,) = world.engine.take_effects()
    assert again.key.attempt == 2


def test_pods_that_are_ready_after_a_denied_start_reset_its_failures() -> None:
    """L16, also where no clock is configured, and in the process that counted the failure."""
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(EffectSettled(effect.key, Result.DENIED, detail="policy x says no"))
    world.run()
    world.tell(TimeCame(T0 + timedelta(seconds=60)))
    assert admitted(world.run()) == ["a"]
    world.settle()
    world.tell(observed(workload("a"), suspended=False, generation=2, ready=True))
    (amend,) = world.run()
    assert isinstance(amend, Amend)
    assert (amend.past.failures, amend.past.ready) == (0, 2)


def test_a_flavor_with_an_untolerated_taint_is_skipped() -> None:
    spot = flavor("spot", taints=[Taint("spot", "true", "NoSchedule")])
    groups = [group({"spot": {GPU: 8}, "a100": {GPU: 8}})]
    world = World(spot, flavor("a100"), queue("cq", groups=groups), LQ)
    world.submit(workload("a"))
    (admit,) = world.run()
    assert isinstance(admit, Admit)
    assert admit.attempt.assignment.pod_sets[0].flavors == ((GPU, "a100"),)


def test_the_first_fitting_flavor_is_chosen_and_the_second_when_the_first_is_full() -> None:
    groups = [group({"a100": {GPU: 4}, "spot": {GPU: 4}})]
    world = World(flavor("a100"), flavor("spot"), queue("cq", groups=groups), LQ)
    world.submit(workload("a", gpus=3), workload("b", gpus=3, created=1), workload("c", gpus=3, created=2))
    decisions = world.run()
    flavors = [d.attempt.assignment.pod_sets[0].flavors[0][1] for d in decisions if isinstance(d, Admit)]
    assert flavors == ["a100", "spot"]


def test_a_gang_is_charged_whole_or_not_at_all() -> None:
    world = World(queue("cq", 3), LQ)
    gang = [pod_set(1, {GPU: 1}, "Master"), pod_set(3, {GPU: 1}, "Worker")]
    world.submit(workload("gang", pods=gang))
    (keep,) = world.run()
    assert isinstance(keep, Keep)
    assert (keep.reason.requested, keep.reason.available) == (4, 3)


CLAIMS = pod_set(1, {GPU: 1}, not_charged="spec.template.spec.resourceClaims[0]")


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        ("no local queue", Code.QUEUE_NOT_FOUND),
        ("no cluster queue", Code.QUEUE_NOT_FOUND),
        ("no flavor", Code.MISCONFIGURED),
        ("namespace", Code.NAMESPACE_NOT_ALLOWED),
        ("resource", Code.RESOURCE_NOT_COVERED),
        ("not charged", Code.RESOURCE_NOT_COVERED),
        ("unsupported", Code.MISCONFIGURED),
        ("priority", Code.PRIORITY_NOT_FOUND),
        ("hold", Code.ON_HOLD),
    ],
)
def test_each_failed_eligibility_check_has_its_own_reason(setup: str, code: Code) -> None:
    given = {
        "no local queue": (World(queue("cq", 1)), workload("a")),
        "no cluster queue": (World(LQ), workload("a")),
        "no flavor": (World(flavor("other"), queue("cq", 1), LQ), workload("a")),
        "namespace": (World(queue("cq", 1, selector=None), LQ), workload("a")),
        "resource": (World(queue("cq", 1), LQ), workload("a", pods=[pod_set(1, {"foo.com/x": 1})])),
        "not charged": (World(queue("cq", 1), LQ), workload("a", pods=[CLAIMS])),
        "unsupported": (World(queue("cq", 1, unsupported=("spec.x: why",)), LQ), workload("a")),
        "priority": (World(queue("cq", 1), LQ), workload("a", priority_class="missing")),
        "hold": (World(queue("cq", 1), LQ), workload("a", hold=True)),
    }
    world, one = given[setup]
    world.submit(one)
    assert reasons(world) == {"a": code}


def test_a_request_that_cannot_be_charged_is_named_and_never_started() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1}), CLAIMS]), workload("b"))
    decisions = world.run()
    assert admitted(decisions) == ["b"]
    (keep,) = (d for d in decisions if isinstance(d, Keep))
    assert keep.reason.message == (
        "ResourceNotCovered: spec.template.spec.resourceClaims[0] cannot be charged to a quota"
    )
    # An edit between its admission and its start adds the claim.
    (effect,) = world.engine.take_effects()
    world.tell(observed(workload("b", pods=[CLAIMS]), generation=2))
    world.tell(EffectSettled(effect.key, Result.REFUSED))
    assert [type(d) for d in world.run()] == [Release, Keep]
    assert world.engine.take_effects() == []


def test_what_can_be_charged_of_a_running_workload_is_charged() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(observed(workload("a", pods=[CLAIMS]), suspended=False))
    (admit,) = (d for d in world.run() if isinstance(d, Admit))
    assert admit.attempt.debt
    assert admit.attempt.assignment.resources() == {GPU: 1}


def test_a_queue_with_an_unsupported_field_admits_nothing_until_the_field_is_gone() -> None:
    world = World(queue("cq", 2), LQ)
    world.submit(workload("a"))
    assert admitted(world.run()) == ["a"]
    world.tell(policy(queue("cq", 2, unsupported=("spec.x: why",))))
    world.submit(workload("b"))
    assert reasons(world) == {"b": Code.MISCONFIGURED}
    assert world.run() == [], "what runs is left alone"
    world.tell(policy(queue("cq", 2)))
    assert admitted(world.run()) == ["b"]
    for concerned in (
        flavor("default", unsupported=("spec.x: why",)),
        Cohort(name="all", unsupported=("spec.x: why",)),
    ):
        world = World(
            queue("cq", 2, cohort="c"), LQ, Cohort(name="c", parent="all"), queue("other", 2), concerned
        )
        world.submit(workload("a"))
        assert reasons(world) == {"a": Code.MISCONFIGURED}


def test_a_new_flavor_requeues_the_workloads_that_need_it() -> None:
    world = World(flavor("other"), queue("cq", 1), LQ)
    world.submit(workload("a"))
    assert reasons(world) == {"a": Code.MISCONFIGURED}
    world.tell(policy(flavor("default")))
    assert admitted(world.run()) == ["a"]


def test_a_quota_below_the_current_usage_evicts_nothing_and_admits_nothing() -> None:
    world = World(queue("cq", 2), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(policy(queue("cq", 1)))
    world.submit(workload("c", created=2))
    assert reasons(world) == {"c": Code.WAITING_FOR_QUOTA}


def test_deciding_twice_gives_equal_plans_and_an_outdated_plan_is_refused() -> None:
    world = World(queue("cq", 2), LQ)
    world.submit(*(workload(f"w{n}", created=n % 3) for n in range(9)))
    first, second = world.plan(), world.plan()
    assert first == second
    world.commit(first)
    with pytest.raises(StalePlan):
        world.engine.commit(second, 1)


def test_a_small_budget_gives_the_same_result_in_more_plans() -> None:
    def end(budget: int) -> list[str]:
        world = World(queue("cq", 5), LQ)
        world.submit(*(workload(f"w{n}", created=n % 3) for n in range(9)))
        return admitted(world.run(budget))

    assert end(1) == end(1000)


def test_a_workload_running_before_the_admission_policy_is_charged_as_debt_and_runs_on() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(observed(workload("a", gpus=4), suspended=False))
    (admit,) = world.run()
    assert isinstance(admit, Admit)
    assert admit.attempt.debt
    assert world.engine.take_effects() == []
    world.submit(workload("b"))
    assert reasons(world) == {"b": Code.WAITING_FOR_QUOTA}
