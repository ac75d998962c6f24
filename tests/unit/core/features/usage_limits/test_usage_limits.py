"""UsageLimits: who waits for which limit, who goes before, and who is nominated again (X1 to X8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuectl.core.decisions import Admit, Evict, Keep, Plan, Release
from queuectl.core.directory import AffectedObjects, Directory
from queuectl.core.features.usage_limits import MOST_NOMINATED
from queuectl.core.features.usage_limits.usage import LimitRules, LimitUsage
from queuectl.core.model.budgets import HOUR, Budget, BudgetMode, BudgetPeriods, PeriodKind
from queuectl.core.model.events import PodsCounted, PolicyGone, WorkloadGone
from queuectl.core.model.policy import (
    AccountKey,
    AccountSource,
    Cohort,
    MinRunTime,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
)
from queuectl.core.model.reasons import Code, Limit
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import Attribution, ConfigKey, Workload, WorkloadId
from queuectl.core.subjects import Place
from tests.builders import (
    GPU,
    SETTINGS,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    policy,
    priority,
    queue,
    workload,
)
from tests.doubles.engine_state import state

LQ = local_queue("lq", "cq")
CQ = LimitTarget("ClusterQueue", "cq")
EACH_USER = LimitSubject(SubjectKind.EACH_USER)
ALL = LimitSubject(SubjectKind.ALL)


def user(name: str) -> LimitSubject:
    return LimitSubject(SubjectKind.USER, name)


def running(
    most: int, subject: LimitSubject = EACH_USER, target: LimitTarget = CQ, name: str = "x"
) -> UsageLimit:
    return UsageLimit(name=name, target=target, subject=subject, most=((Dimension(None, WORKLOADS), most),))


def gpus(
    most: int, subject: LimitSubject = EACH_USER, target: LimitTarget = CQ, name: str = "x"
) -> UsageLimit:
    return UsageLimit(name=name, target=target, subject=subject, most=((Dimension(None, GPU), most),))


def of(who: str, name: str, gpus: int = 1, created: float = 0, **fields: Any) -> Workload:
    return workload(name, gpus=gpus, created=created, submitter=who, **fields)


def end(world: World, *names: str) -> None:
    world.settle()
    world.tell(*(WorkloadGone(WorkloadId(f"uid-{name}")) for name in names))
    world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    world.probes.clear()


def test_a_user_at_the_limit_waits_and_the_next_head_of_a_strict_queue_is_admitted() -> None:
    world = World(queue("cq", 8, strategy=QueueingStrategy.STRICT_FIFO), LQ, running(1))
    world.submit(of("ann", "a1"), of("ann", "a2", created=1), of("bob", "b1", created=2))
    assert admitted(world.run()) == ["a1", "b1"]
    reason = world.reason("a2")
    assert reason is not None
    assert (reason.code, reason.limit, reason.node) == (
        Code.WAITING_FOR_USAGE_LIMIT,
        Limit.RUNNING,
        "UsageLimit/x",
    )
    assert (reason.requested, reason.available, reason.short_by) == (1, 0, 1)
    assert reason.message == (
        "WaitingForUsageLimit: requests 1 workloads, 0 available, short by 1 "
        "(bound by spec.running of UsageLimit/x): user ann at ClusterQueue/cq, at most 1"
    )


def test_a_release_admits_the_first_that_waits_for_the_limit() -> None:
    world = World(queue("cq", 8), LQ, running(1))
    world.submit(of("ann", "a1"), *(of("ann", f"a{n}", created=n) for n in (2, 3)))
    world.run()
    end(world, "a1")
    assert admitted(world.run()) == ["a2"]


def test_two_admissions_of_one_plan_do_not_exceed_a_limit_of_resources() -> None:
    everywhere = gpus(5, user("ann"), LimitTarget("Cohort", "root"))
    world = World(
        *(queue(name, 8, cohort="root") for name in ("cq", "dq")), LQ, local_queue("other", "dq"), everywhere
    )
    world.submit(of("ann", "a1", 3), replace(of("ann", "a2", 3, created=1), queue="other"))
    assert admitted(world.run()) == ["a1"]
    assert world.reason("a2").short_by == 1  # type: ignore[union-attr]


def test_what_waits_for_quota_lets_the_next_of_its_user_be_nominated() -> None:
    """a2 fits the limit when a1 ends, but not the quota: a3, behind it, does not wait for the limit."""
    world = World(queue("cq", 4), LQ, running(1))
    world.submit(of("bob", "b1", 2), of("ann", "a1", 2, created=1))
    world.run()
    world.submit(of("ann", "a2", 4, created=2), of("ann", "a3", 1, created=3))
    world.run()
    end(world, "a1")
    assert admitted(world.run()) == ["a3"]
    assert world.reason("a2").code is Code.WAITING_FOR_QUOTA  # type: ignore[union-attr]


def test_a_named_user_has_the_own_limit_in_the_place_of_that_for_each() -> None:
    world = World(queue("cq", 8), LQ, running(1), running(2, user("ann"), name="ann"))
    world.submit(*(of(who, f"{who}{n}", created=n) for who in ("ann", "bob") for n in range(3)))
    assert sorted(admitted(world.run())) == ["ann0", "ann1", "bob0"]


def test_a_lowered_limit_evicts_nothing_and_a_raised_one_admits() -> None:
    world = World(queue("cq", 8), LQ, running(2))
    world.submit(*(of("ann", f"a{n}", created=n) for n in range(4)))
    world.run()
    world.tell(policy(running(1)))
    assert not [one for one in world.run() if not isinstance(one, Keep)]
    end(world, "a0")
    assert admitted(world.run()) == []
    world.tell(policy(running(3)))
    assert admitted(world.run()) == ["a2", "a3"]


def test_without_any_limit_left_nothing_waits() -> None:
    world = World(queue("cq", 8), LQ, running(0))
    world.submit(of("ann", "a1"))
    world.run()
    assert world.reason("a1").code is Code.OUTSIDE_USAGE_LIMIT  # type: ignore[union-attr]
    world.tell(PolicyGone(ConfigKey("UsageLimit", "", "x")))
    assert admitted(world.run()) == ["a1"]


def test_requests_that_a_limit_never_allows_are_refused_at_once() -> None:
    smallest = UsageLimit(name="s", target=CQ, subject=ALL, min_request=((GPU, 2),))
    world = World(queue("cq", 8), LQ, gpus(4), smallest)
    world.submit(of("ann", "large", 5), of("ann", "small", 1))
    world.run()
    assert {name: world.reason(name).message for name in ("large", "small")} == {  # type: ignore[union-attr]
        "large": "OutsideUsageLimit: requests 5 nvidia.com/gpu, at most 4 ever, short by 1 "
        "(bound by spec.resources of UsageLimit/x): user ann at ClusterQueue/cq, at most 4",
        "small": "OutsideUsageLimit: requests 1 nvidia.com/gpu, short by 1 "
        "(bound by spec.minRequest of UsageLimit/s): all at ClusterQueue/cq, at least 2",
    }


@pytest.mark.parametrize("subject", [ALL, EACH_USER])
def test_a_limit_of_zero_refuses_what_requests_any(subject: LimitSubject) -> None:
    world = World(queue("cq", 8), LQ, gpus(0, subject))
    world.submit(of("ann", "one", 1), of("ann", "none", 0))
    assert admitted(world.run()) == ["none"]
    assert world.reason("one").code is Code.OUTSIDE_USAGE_LIMIT  # type: ignore[union-attr]


def test_a_limit_of_a_flavor_counts_that_flavor_alone() -> None:
    cq = queue("cq", groups=[group({"h100": {GPU: 3}, "a100": {GPU: 8}})])
    limit = UsageLimit(name="x", target=CQ, subject=EACH_USER, most=((Dimension("h100", GPU), 1),))
    world = World(flavor("h100"), flavor("a100"), cq, LQ, limit)
    world.submit(of("ann", "a1"), of("ann", "a2", created=1), of("bob", "b1", created=2))
    assert admitted(world.run()) == ["a1", "b1"]
    reason = world.reason("a2")
    assert reason is not None
    assert (reason.flavor, reason.limit) == ("h100", Limit.FLAVORS)
    world.submit(of("eve", "e1", created=3))
    assert admitted(world.run()) == ["e1", "a2"], "h100 is full: a2 gets a100"


def test_those_above_a_limit_of_pending_workloads_wait_outside_in_order_of_arrival() -> None:
    limit = UsageLimit(name="x", target=CQ, subject=EACH_USER, pending=1)
    world = World(queue("cq", 1), LQ, limit)
    world.submit(of("bob", "b0"))
    world.run()
    world.submit(*(of("ann", f"a{n}", created=1 + n) for n in range(3)))
    world.run()
    assert [world.reason(f"a{n}").limit for n in range(3)] == [  # type: ignore[union-attr]
        Limit.NOMINAL_QUOTA,
        Limit.PENDING,
        Limit.PENDING,
    ]
    world.tell(WorkloadGone(WorkloadId("uid-a0")))
    world.run()
    assert world.reason("a1").limit is Limit.NOMINAL_QUOTA  # type: ignore[union-attr]
    assert world.reason("a2").limit is Limit.PENDING  # type: ignore[union-attr]


def test_an_admitted_workload_is_pending_no_longer_before_its_object_has_started() -> None:
    limit = UsageLimit(name="x", target=CQ, subject=ALL, pending=1)
    world = World(queue("cq", 2), LQ, limit)
    world.submit(*(of("ann", f"a{n}", created=n) for n in range(3)))
    assert admitted(world.run()) == ["a0", "a1"], "a1 may wait once a0 is admitted"
    assert world.reason("a2").limit is Limit.NOMINAL_QUOTA  # type: ignore[union-attr]


def test_account_keys_and_priority_classes_have_limits() -> None:
    keys = (AccountKey(name="project", label="project", sources=(AccountSource.WORKLOAD,)),)
    each = running(1, LimitSubject(SubjectKind.EACH_ACCOUNT, key="project"))
    urgent = running(1, ALL, LimitTarget("WorkloadPriorityClass", "urgent"), name="urgent")
    world = World(queue("cq", 8), LQ, each, urgent, settings=replace(SETTINGS, account_keys=keys))
    world.submit(
        *(of("ann", f"{p}{n}", labels=(("project", p),), created=n) for p in ("ml", "bio") for n in (0, 1)),
        of("bob", "none"),
    )
    assert sorted(admitted(world.run())) == ["bio0", "ml0", "none"]
    assert world.reason("ml1").detail == "project ml at ClusterQueue/cq, at most 1"  # type: ignore[union-attr]


def test_a_group_has_a_limit_as_a_value_of_an_account_key() -> None:
    """`gpu-users` for all of its members together, and each other group for itself; users write no group."""
    key = AccountKey(name="group", label="group", sources=(AccountSource.GROUP,))
    key = replace(key, allowed=frozenset({"gpu-users", "ml", "bio"}))
    named = running(2, LimitSubject(SubjectKind.ACCOUNT, "gpu-users", "group"), name="named")
    each = running(1, LimitSubject(SubjectKind.EACH_ACCOUNT, key="group"))
    world = World(queue("cq", 9), LQ, named, each, settings=replace(SETTINGS, account_keys=(key,)))
    members = {"ann": ("gpu-users",), "bob": ("all", "gpu-users"), "eve": ("ml",), "joe": ("bio",)}
    world.submit(
        *(
            of(who, f"{who}{n}", groups=groups, labels=(("group", "none"),), created=n)
            for who, groups in members.items()
            for n in range(3)
        )
    )
    assert sorted(admitted(world.run())) == ["ann0", "bob0", "eve0", "joe0"]
    assert world.reason("ann1").detail == "group gpu-users at ClusterQueue/cq, at most 2"  # type: ignore[union-attr]
    assert world.reason("eve1").detail == "group ml at ClusterQueue/cq, at most 1"  # type: ignore[union-attr]


def test_a_preemptor_over_its_limit_evicts_nobody() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    cq = queue("cq", 2, preemption=rules)
    world = World(cq, LQ, running(1, user("ann")))
    world.tell(priority("high", 10), priority("low", 0))
    world.submit(of("ann", "a1", priority_class="high"), of("bob", "b1", priority_class="low"))
    world.run()
    world.submit(of("ann", "a2", priority_class="high", created=2))
    assert not [one for one in world.run() if isinstance(one, Evict)]
    world.submit(of("eve", "e1", priority_class="high", created=3))
    assert [one.ref.name for one in world.run() if isinstance(one, Evict)] == ["b1"]


def test_what_a_preemptor_waits_for_is_kept_for_it() -> None:
    """The limit's last place is not given to another workload of its user while its victim ends."""
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(
        *(queue(name, 2, cohort="root", preemption=rules) for name in ("cq", "dq")),
        *(LQ, local_queue("other", "dq"), running(1, user("ann"), LimitTarget("Cohort", "root"))),
    )
    world.tell(priority("high", 10), priority("low", 0))
    world.submit(of("bob", "b1", 3, priority_class="low"))
    world.run()
    world.settle()
    world.submit(of("ann", "a1", 2, priority_class="high", created=2))
    assert [one.ref.name for one in world.run() if isinstance(one, Evict)] == ["b1"]
    world.submit(replace(of("ann", "a2", 1, created=3), queue="other"))
    assert admitted(world.run()) == []
    assert world.reason("a2").code is Code.WAITING_FOR_USAGE_LIMIT  # type: ignore[union-attr]


def test_labels_that_change_later_do_not_move_what_runs_to_another_account() -> None:
    keys = (AccountKey(name="project", label="project", sources=(AccountSource.WORKLOAD,)),)
    each = running(1, LimitSubject(SubjectKind.EACH_ACCOUNT, key="project"))
    world = World(queue("cq", 8), LQ, each, settings=replace(SETTINGS, account_keys=keys))
    world.submit(of("ann", "a1", labels=(("project", "ml"),)))
    world.run()
    world.settle()
    world.submit(of("ann", "a1", labels=(("project", "bio"),)), of("ann", "a2", labels=(("project", "ml"),)))
    assert admitted(world.run()) == []


def test_a_workload_that_ends_counts_until_its_pods_are_gone() -> None:
    world = World(queue("cq", 8), LQ, running(1))
    world.submit(of("ann", "a1"), of("ann", "a2", created=1))
    world.run()
    world.settle()
    world.tell(WorkloadGone(WorkloadId("uid-a1")))
    made = world.run()
    assert not [one for one in made if isinstance(one, Admit | Release)], "its pods may be alive"


def test_what_runs_below_a_cycle_of_cohorts_counts_once_at_each_of_them() -> None:
    directory = Directory()
    for policy_object in (
        queue("cq", 8, cohort="one"),
        Cohort(name="one", parent="two"),
        Cohort(name="two", parent="one"),
    ):
        directory.observe(policy_object, AffectedObjects())
    rules = LimitRules(directory)
    rules.set("x", running(1, ALL, LimitTarget("Cohort", "one")))
    assert rules.places(Attribution(namespace="ns", queue="lq"), "cq") == (Place("x", ""),)


def test_the_work_to_queue_workloads_again_grows_with_their_number_whatever_each_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tenants choose what they request: no two may wait for the same amount."""
    asked: list[Dimension] = []
    left = LimitUsage.left

    def counted(use: LimitUsage, place: Place, dimension: Dimension) -> int:
        asked.append(dimension)
        return left(use, place, dimension)

    monkeypatch.setattr(LimitUsage, "left", counted)
    most = sum(range(41))
    world = World(queue("cq", 2 * most), LQ, gpus(most))
    world.submit(of("ann", "all", gpus=most))
    world.run()
    world.submit(*(of("ann", f"job-{n}", gpus=n, created=n) for n in range(1, 41)))
    world.run()
    asked.clear()
    end(world, "all")
    world.run()
    assert len(admitted(world.decided)) == 41
    assert 40 <= len(asked) <= 160


def test_a_waiter_that_may_preempt_what_took_the_last_place_is_nominated_again() -> None:
    """What its victim holds does not count: a restart would nominate it, too (X5)."""
    reclaims = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = World(
        *(queue("cq", 4, cohort="root", preemption=reclaims), queue("dq", 0, cohort="root")),
        *(LQ, local_queue("other", "dq"), running(1, target=LimitTarget("Cohort", "root"))),
    )
    world.tell(priority("high", 10), priority("low", 0))
    world.submit(of("ann", "a1", priority_class="high"))
    world.run()
    world.submit(
        of("ann", "a2", 4, priority_class="low", created=1),
        replace(of("ann", "d1", 4, priority_class="high", created=2), queue="other"),
    )
    world.run()
    end(world, "a1")
    world.run()
    assert "d1" in admitted(world.decided)
    assert [one.ref.name for one in world.decided if isinstance(one, Evict)] == ["d1"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_waiter_is_nominated_again_when_others_or_policy_leave_it_no_quota_without_victims(
    taken: bool,
) -> None:
    """With quota left it had no victims. Without, one of its own user gives it room under the limit too."""
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 4, preemption=rules), LQ, running(1))
    world.tell(priority("high", 10), priority("low", 0))
    world.submit(of("ann", "a1", 2, priority_class="low"))
    world.run()
    world.settle()
    world.submit(of("ann", "a2", 2, priority_class="high", created=1))
    world.run()
    assert world.reason("a2").code is Code.WAITING_FOR_USAGE_LIMIT  # type: ignore[union-attr]
    if taken:
        world.submit(of("bob", "b1", 2, priority_class="high", created=2))
    else:
        world.tell(policy(queue("cq", 2, preemption=rules)))
    made = world.run()
    assert [one.ref.name for one in (*made, *world.run()) if isinstance(one, Evict)] == ["a1"]


def test_a_waiter_is_nominated_again_once_one_of_its_own_user_is_protected_no_longer() -> None:
    """Before, it had another victim, which leaves it no room under the limit."""
    protects = MinRunTime(in_cluster_queue=60)
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, min_run_time=protects)
    world = World(queue("cq", 4, preemption=rules), LQ, running(1))
    world.tell(priority("high", 10), priority("low", 0))
    for name in ("bob", "ann"):
        world.submit(of(name, f"{name}-1", 2, priority_class="low"))
        world.run()
        world.settle()
        if name == "bob":
            world.pass_time(100)
    world.submit(of("ann", "ann-2", 2, priority_class="high", created=101))
    world.run()
    assert world.reason("ann-2").code is Code.WAITING_FOR_USAGE_LIMIT  # type: ignore[union-attr]
    world.pass_time(59)
    assert world.run() == []
    world.pass_time(1)
    assert [one.ref.name for one in world.run() if isinstance(one, Evict)] == ["ann-1"]


def test_what_was_preempted_is_admitted_again_before_any_timer_was_due() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 2, preemption=rules), LQ, running(2))
    world.tell(priority("high", 10), priority("low", 0))
    bob = of("bob", "bob-1", 2, priority_class="low")
    world.submit(bob)
    world.run()
    end(world)
    world.submit(of("ann", "ann-1", 2, priority_class="high", created=1))
    world.run()
    end(world)
    assert admitted(world.run()) == ["ann-1"]
    world.tell(observed(bob, generation=2))
    end(world, "ann-1")
    assert admitted(world.run()) == ["bob-1"]


def test_of_waiters_that_are_alike_one_is_nominated_for_each_admission() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 8, preemption=rules), LQ, running(1))
    world.tell(priority("high", 10))
    world.submit(of("ann", "a0"))
    world.run()
    world.submit(*(of("ann", f"a{n}", created=n, priority_class="high") for n in range(1, 20)))
    world.run()
    before = len(world.decided)
    world.submit(of("bob", "b1", created=30))
    world.run()
    kept = [one.ref.name for one in world.decided[before:] if isinstance(one, Keep)]
    assert (admitted(world.decided[before:]), kept) == (["b1"], ["a1"])


def test_of_many_users_at_their_limits_some_are_nominated_in_one_plan_and_all_in_the_end() -> None:
    """Else an admission costs as much as all of them."""
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world, plans = World(queue("cq", 200, preemption=rules), LQ, running(1)), list[int]()
    users = [f"u{n}" for n in range(4 * MOST_NOMINATED)]
    classes = ["high"] * (3 * MOST_NOMINATED) + [None] * MOST_NOMINATED
    world.tell(priority("high", 10))
    world.submit(*(of(user, f"{user}-0") for user in users))
    world.run()
    world.submit(
        *(
            of(user, f"{user}-1", created=1, priority_class=one)
            for user, one in zip(users, classes, strict=True)
        )
    )
    world.run()
    commit = world.commit

    def counted(plan: Plan) -> None:
        plans.append(sum(isinstance(one, Keep) for one in plan.decisions))
        commit(plan)

    world.commit = counted  # type: ignore[method-assign]
    world.submit(of("bob", "b", created=30))
    world.run()
    assert 0 < max(plans) <= MOST_NOMINATED + 1
    assert (
        sum(plans) == 3 * MOST_NOMINATED
    )  # what counts at the limits of the others is no candidate of theirs


URGENT = LimitTarget("WorkloadPriorityClass", "urgent")
HOURS = Budget(
    name="x",
    target=URGENT,
    subject=EACH_USER,
    resource=GPU,
    amount=100 * HOUR,
    periods=BudgetPeriods(PeriodKind.MONTH),
    mode=BudgetMode.METERED,
)


@pytest.mark.parametrize("limit", [running(1, target=URGENT), HOURS])
def test_a_running_workload_enters_a_limited_class_by_an_admission_alone(limit: UsageLimit | Budget) -> None:
    """X8: else its user would have all at the priority of a class in which one may run."""
    world = World(queue("cq", 8), LQ, limit)
    world.tell(priority("urgent", 1000), priority("low", 10), priority("other", 500))
    world.submit(*(of("ann", name, priority_class="low") for name in ("a1", "a2", "a3")))
    world.submit(of("bob", "b1", priority_class="urgent"))
    world.run()
    world.settle()

    def priorities() -> dict[str, int]:
        world.run()
        return {one.ref.name: one.priority for one in state(world.engine).entries.values()}

    world.submit(of("ann", "a1", priority_class="urgent"), of("ann", "a2", priority_class="other"))
    world.submit(of("bob", "b1", priority_class="low"))
    assert priorities() == {"a1": 10, "a2": 500, "a3": 10, "b1": 10}
    world.tell(priority("low", 20))
    assert priorities()["a1"] == 20
    world.tell(PolicyGone(ConfigKey(type(limit).__name__, "", "x")))
    assert priorities()["a1"] == 1000
    world.tell(policy(limit))
    assert priorities()["a1"] == 20
    world.submit(of("ann", "a1", priority_class="other"))
    assert priorities()["a1"] == 500
