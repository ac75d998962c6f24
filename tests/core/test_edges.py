"""What happens when two things happen at once, late, twice, or not at all."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.decisions import Admit, Configure, Evict, Keep, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PodsCounted,
    PolicyGone,
    PolicyInvalid,
    Result,
    WorkloadGone,
)
from queuectl.core.model import (
    ConfigKey,
    Gate,
    Namespace,
    Outcome,
    Phase,
    PriorityClass,
    QueueingStrategy,
    ResourceFlavor,
    RuntimeClass,
    Snapshot,
    StopPolicy,
    StoredWorkload,
    Verb,
    WorkloadId,
)
from queuectl.core.reasons import Code
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
    pod_set,
    policy,
    priority,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")
STRICT = QueueingStrategy.STRICT_FIFO


def codes(world: World) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in world.run() if isinstance(d, Keep)}


def test_one_that_left_the_line_and_came_back_is_admitted_once() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(*(workload(f"w{n}", created=n) for n in range(4)))
    world.run()
    world.submit(workload("w2", created=2, hold=True))
    world.run()
    world.submit(workload("w2", created=2))
    world.run()
    world.tell(policy(queue("cq", 4)))
    assert admitted(world.run()) == ["w0", "w1", "w2", "w3"]


def test_what_comes_free_in_the_batch_of_a_new_arrival_is_not_lost() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    done = observed(workload("a"), suspended=False, finished=Outcome.SUCCEEDED, generation=2)
    world.tell(done, observed(workload("b", created=1)))
    assert admitted(world.run()) == ["b"]


def test_what_comes_free_goes_to_the_first_in_order_also_when_it_was_parked() -> None:
    world = World(queue("cq", 2), LQ)
    world.tell(priority("high", 1))
    world.submit(workload("a", gpus=2))
    world.run()
    world.settle()
    world.submit(workload("urgent", gpus=2, priority_class="high", created=1))
    world.run()
    done = observed(workload("a", gpus=2), suspended=False, finished=Outcome.SUCCEEDED, generation=2)
    world.tell(done, observed(workload("small", created=2)))
    assert admitted(world.run()) == ["urgent"]


def test_one_that_is_taken_back_competes_for_what_it_gave_back() -> None:
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


def test_one_that_ends_as_its_queue_vanishes_is_retired_and_no_more() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(workload("a"))
    world.run()
    world.tell(
        PolicyGone(ConfigKey("LocalQueue", "ns", "lq")),
        observed(workload("a"), finished=Outcome.DELETED),
    )
    assert [type(d) for d in world.run()] == [Retire]


def test_one_let_past_the_gate_while_on_hold_is_charged_and_then_evicted() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a", gpus=2))
    world.run()
    world.tell(observed(workload("a", gpus=2, hold=True), suspended=False, generation=2))
    assert [type(d) for d in world.run()] == [Admit, Evict]


def test_an_unreadable_spec_does_not_hide_that_a_flavor_is_missing() -> None:
    groups = [group({"gone": {GPU: 1}, "there": {GPU: 1}})]
    world = World(flavor("there"), queue("cq", groups=groups), LQ)
    world.tell(PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec.resourceGroups: too many"))
    world.submit(workload("a"))
    assert codes(world) == {"a": Code.MISCONFIGURED}


def test_an_unreadable_spec_leaves_the_last_good_one_in_force() -> None:
    world = World(queue("cq", 1), LQ)
    world.run()
    world.tell(PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec: what is this"))
    world.submit(workload("a"))
    assert admitted(world.run()) == ["a"]
    ((report,), _, _) = world.engine.take_reports()
    assert report.condition.message.startswith("InvalidSpec")


def test_a_spec_that_was_good_for_a_moment_is_recorded() -> None:
    world = World(queue("cq", 1), LQ)
    world.run()
    world.tell(
        policy(queue("cq", 2)), PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec: what is this")
    )
    assert [d.key.name for d in world.plan().decisions if isinstance(d, Configure)] == ["cq"]


def test_a_spec_that_can_be_read_again_is_reported_although_it_is_the_same() -> None:
    world = World(queue("cq", 1), LQ)
    world.run()
    world.tell(PolicyInvalid(ConfigKey("ClusterQueue", "", "cq"), "spec: what is this"))
    (_, (report,), _) = world.engine.take_reports()
    assert report.condition.reason == "InvalidSpec"
    world.tell(policy(queue("cq", 1)))
    ((local,), (report,), _) = world.engine.take_reports()
    assert (local.condition.active, report.condition.active) == (True, True)


def test_draining_a_queue_evicts_also_those_whose_local_queue_points_elsewhere_by_now() -> None:
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


def test_when_the_head_moves_to_another_queue_the_next_is_looked_at() -> None:
    world = World(queue("cq", 1, strategy=STRICT), queue("big", 4), LQ, local_queue("big", "big"))
    world.submit(workload("head", gpus=4), workload("next", created=1))
    world.run()
    world.submit(workload("head", "big", gpus=4))
    assert admitted(world.run()) == ["head", "next"]


def test_a_head_that_is_re_prioritised_goes_behind() -> None:
    world = World(queue("cq", 1, strategy=STRICT), LQ)
    world.tell(priority("high", 2), priority("low", 1))
    world.submit(workload("head", gpus=4, priority_class="high"))
    world.submit(workload("next", gpus=2, priority_class="low", created=1))
    assert codes(world) == {"head": Code.EXCEEDS_MAX_QUOTA, "next": Code.WAITING_FOR_HEAD}
    world.tell(priority("high", 0))
    assert codes(world) == {"head": Code.WAITING_FOR_HEAD, "next": Code.EXCEEDS_MAX_QUOTA}


def test_a_head_on_hold_lets_the_others_go_on() -> None:
    world = World(queue("cq", 1, strategy=STRICT), LQ)
    world.submit(workload("head", gpus=4), workload("next", created=1))
    world.run()
    world.submit(workload("head", gpus=4, hold=True))
    assert admitted(world.run()) == ["next"]


def test_changing_the_strategy_while_many_wait_looks_at_all_of_them_again() -> None:
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


def test_less_overhead_lets_one_go_that_was_parked_for_it() -> None:
    world = World(queue("cq", 2), LQ)
    world.tell(ContextObserved(RuntimeClass("kata", ((GPU, 2),))))
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1}, runtime_class="kata")]))
    assert codes(world) == {"a": Code.EXCEEDS_MAX_QUOTA}
    world.tell(ContextObserved(RuntimeClass("kata", ((GPU, 1),))))
    assert admitted(world.run()) == ["a"]


def test_what_concerns_everybody_is_not_forgotten_for_something_that_concerns_nobody() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1}, priority_class="urgent")]))
    assert codes(world) == {"a": Code.PRIORITY_NOT_FOUND}
    world.tell(ContextObserved(PriorityClass("urgent", 5)), ContextGone(PriorityClass, "nobody"))
    assert codes(world) == {"a": Code.EXCEEDS_MAX_QUOTA}


def test_two_with_the_same_place_in_time_go_by_their_identity() -> None:
    """A ledger made again from the cluster may know no order of first sight."""
    world = World(queue("cq", 1), LQ)
    ones = [workload(name) for name in ("b", "a", "c")]
    stored = tuple(
        StoredWorkload(
            id=one.id,
            ref=one.ref,
            queue="lq",
            cluster_queue="cq",
            priority=0,
            created_at=one.created_at,
            arrival=0,
            phase=Phase.PENDING,
            attempts=0,
            attempt=None,
            reason=None,
        )
        for one in ones
    )
    world.engine = Engine(SOURCES)
    world.engine.restore(Snapshot(sequence=3, now=T0, workloads=stored))
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 1)))
    world.tell(policy(LQ), Listed("policies"), *(observed(one) for one in ones))
    world.tell(Listed("Job", frozenset(one.id for one in ones)))
    assert admitted(world.run()) == ["a"]


def test_one_let_past_the_gate_is_not_stopped_because_the_gate_is_gone_later() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)))
    one = workload("a", created=5)
    world.submit(one)
    world.run()
    world.engine.take_effects()
    passed = workload("passed", created=6)
    world.tell(observed(passed, suspended=False, bypassed_by="admin"))
    assert admitted(world.run()) == ["passed"]
    world.tell(ContextGone(Gate, "queuectl-jobs"))
    world.tell(observed(passed, suspended=False, bypassed_by="admin", generation=2))
    assert world.run() == []


def test_one_that_starts_while_no_gate_is_in_force_is_charged_and_stopped_at_once() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)), ContextGone(Gate, "queuectl-jobs"))
    world.tell(observed(workload("slipped", created=5), suspended=False))
    made = world.run()
    assert [type(d) for d in made] == [Admit, Evict]
    assert [d.reason.code for d in made if isinstance(d, Evict)] == [Code.BYPASS]
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)))
    assert world.run() == []


def test_a_start_that_is_refused_is_not_sent_again_to_one_on_hold() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    held = observed(workload("a", hold=True), generation=2)
    world.tell(held, EffectSettled(effect.key, Result.REFUSED))
    (evict,) = world.run()
    assert isinstance(evict, Evict)
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]


def test_a_stop_that_is_refused_is_sent_again() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    world.run()
    world.settle(Result.REFUSED)
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]


def test_a_start_that_was_superseded_by_a_stop_says_nothing_when_it_is_settled() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (start,) = world.engine.take_effects()
    world.submit(workload("a", hold=True))
    world.run()
    (stop,) = world.engine.take_effects()
    world.tell(EffectSettled(start.key, Result.DONE, 2), EffectSettled(start.key, Result.REFUSED))
    assert world.plan().probes == ()
    assert world.engine.unacknowledged() == {stop.key}
    world.tell(EffectSettled(stop.key, Result.DONE, 3))
    assert len(world.plan().probes) == 1


def test_a_read_that_was_overtaken_by_the_watch_says_nothing() -> None:
    world = World(queue("cq", 0), queue("other", 0), LQ, local_queue("other", "other"))
    newer, older = observed(workload("a", "other")), observed(workload("a", "lq"))
    newer = replace(newer, observation=replace(newer.observation, resource_version="12"))
    older = replace(older, observation=replace(older.observation, resource_version="9"))
    world.tell(newer)
    world.tell(older)
    (keep,) = world.run()
    assert isinstance(keep, Keep)
    assert keep.reason.node == "ClusterQueue/other"


def test_a_name_that_comes_back_is_another_workload() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    again = replace(workload("a", created=9), id=WorkloadId("uid-2"))
    again = replace(again, ref=again.ref._replace(uid="uid-2"))
    world.tell(WorkloadGone(WorkloadId("uid-a")), observed(again))
    assert codes(world) == {"a": Code.WAITING_FOR_QUOTA}
    world.tell(PodsCounted(WorkloadId("uid-a"), 1, alive=False))
    decisions = world.run()
    assert [type(d) for d in decisions] == [Retire, Admit]
    assert [d.attempt.workload for d in decisions if isinstance(d, Admit)] == ["uid-2"]


def test_a_count_of_the_pods_is_void_once_the_object_is_seen_again() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(WorkloadGone(WorkloadId("uid-a")))
    world.run()
    world.tell(
        PodsCounted(WorkloadId("uid-a"), 1, alive=False),
        observed(workload("a"), suspended=False, generation=2, finished=Outcome.SUCCEEDED, quiet=False),
    )
    assert len(world.plan().probes) == 1


def test_a_full_budget_of_events_says_that_the_lines_are_still_to_be_looked_at() -> None:
    world = World(queue("cq", 9), LQ)
    world.submit(*(workload(f"w{n}") for n in range(5)))
    plan = world.plan(5)
    assert (len(plan.decisions) >= 5, plan.more) == (True, True)


def test_the_order_of_events_in_one_batch_makes_no_difference() -> None:
    def plan(reverse: bool) -> object:
        world = World(queue("cq", 2), queue("empty", 0), LQ, local_queue("x", "empty"))
        events: list[Event] = [
            *(observed(workload(f"w{n}", created=n % 3, gpus=1 + n % 2)) for n in range(9)),
            *(observed(workload(f"x{n}", "x", created=n % 2)) for n in range(4)),
            *(observed(workload(f"n{n}", "nowhere")) for n in range(3)),
            priority("any", 3),
        ]
        world.tell(*(reversed(events) if reverse else events))
        made = [world.plan()]
        world.commit(made[0])
        made.append(world.plan())
        return made

    assert plan(False) == plan(True)


def test_the_same_events_twice_change_nothing() -> None:
    world = World(queue("cq", 1), LQ)
    events: list[Event] = [observed(workload("a")), observed(workload("b", created=1))]
    world.tell(*events)
    world.run()
    done = world.settle()
    world.tell(
        *events,
        *done,
        Listed("policies"),
        Listed("Job", frozenset({WorkloadId("uid-a"), WorkloadId("uid-b")})),
    )
    assert world.run() == []
    assert not world.engine.due


def test_a_flavor_renamed_in_the_queue_frees_what_the_old_one_held_only_when_it_ends() -> None:
    world = World(flavor("old"), flavor("new"), queue("cq", groups=[group({"old": {GPU: 1}})]), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(policy(queue("cq", groups=[group({"new": {GPU: 1}})])))
    made = world.run()
    assert admitted(made) == ["b"]
    (_, (report,), _) = world.engine.take_reports()
    assert dict(report.used) == {("new", GPU): 1}


def test_a_queue_deleted_and_made_again_still_holds_what_was_charged() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(PolicyGone(ConfigKey("ClusterQueue", "", "cq")))
    assert codes(world) == {"b": Code.QUEUE_NOT_FOUND}
    world.tell(policy(queue("cq", 1)))
    assert codes(world) == {"b": Code.WAITING_FOR_QUOTA}
    world.tell(observed(workload("a"), suspended=False, finished=Outcome.SUCCEEDED, generation=2))
    assert admitted(world.run()) == ["b"]


def test_a_flavor_that_nobody_uses_any_more_does_not_leave_a_decision_undone() -> None:
    world = World(flavor("old"), flavor("new"), queue("cq", groups=[group({"old": {GPU: 1}})]), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(policy(queue("cq", groups=[group({"new": {GPU: 0}})])))
    world.run()
    world.tell(PolicyGone(ConfigKey("ResourceFlavor", "", "old")), EffectSettled(effect.key, Result.REFUSED))
    assert world.engine.due
    world.tell(policy(ResourceFlavor(name="old")))
    plan = world.plan()
    assert world.engine.due is bool(plan.decisions or plan.probes)
