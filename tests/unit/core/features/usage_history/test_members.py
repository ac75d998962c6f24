"""Past usage of users of a LocalQueue, and of the members of a Cohort (docs/scheduling.md, U6, U7, P5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from queuectl.core.decisions import Evict
from queuectl.core.model.policy import (
    AdmissionFairSharing,
    Cohort,
    FairSharing,
    LocalQueueName,
    Policy,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.core.past_usage import PlannedUsage, Turn
from queuectl.core.reports import ReportBuilder
from tests.builders import (
    GPU,
    World,
    admitted,
    group,
    local_queue,
    observed,
    policy,
    priority,
    queue,
    workload,
)
from tests.doubles.engine_state import state

SETTINGS = SchedulingConfiguration(usage_sharing=AdmissionFairSharing(half_life=3600, sampling_interval=300))
BY_USAGE = FairSharing(by_past_usage=True)


def cohort(name: str, parent: str | None = None, gpus: int = 0, **fields: object) -> Cohort:
    groups = (group({"default": {GPU: gpus}}),) if gpus else ()
    return Cohort(name=name, parent=parent, resource_groups=groups, **fields)  # type: ignore[arg-type]


def world(*policies: Policy, settings: SchedulingConfiguration = SETTINGS) -> World:
    found = World(*policies, settings=settings)
    found.tell(priority("low", -1), priority("high", 1))
    return found


def run_for_an_hour(world: World, *users: tuple[str, str, int]) -> None:
    """Workloads of these users in these LocalQueues hold so many GPUs, at the same time."""
    jobs = [workload(f"past-{user}-{name}", name, gpus, submitter=user) for user, name, gpus in users]
    world.submit(*jobs)
    assert len(admitted(world.run())) == len(jobs)
    world.settle()
    world.pass_time(3600)
    world.tell(*(observed(one, suspended=False, finished=WorkloadOutcome.SUCCEEDED) for one in jobs))
    world.run()


def order(world: World, users: Mapping[str, str]) -> list[str]:
    """Return the users in the order in which a workload of each, in that LocalQueue, is admitted. The
    oldest workload is that of the last user by name."""
    ranks = {user: n for n, user in enumerate(sorted(users, reverse=True))}
    world.submit(*(workload(user, name, submitter=user, created=ranks[user]) for user, name in users.items()))
    return admitted(world.run())


def positions(world: World) -> list[str]:
    """Return the names of the workloads of `cq` by position."""
    report = ReportBuilder(state(world.engine)).cluster_queue("cq")
    return [one.removeprefix("uid-") for one in report.line or ()]


# --- the cases of other schedulers


def test_the_order_is_that_of_fair_tree() -> None:
    """Slurm's own example (priority/multifactor, fair_tree.c): u5 1.0, u4 .8, u1 .6, u3 .4, u2 .2."""
    shares = {
        "A": (40, None),
        "D": (60, None),
        "B": (30, "A"),
        "C": (10, "A"),
        "E": (25, "D"),
        "F": (35, "D"),
    }
    cohorts = [cohort(name, shares[name][1] or "root", weight=1000 * shares[name][0]) for name in ("A", "D")]
    queues = [
        queue(
            name,
            0,
            cohort=shares[name][1],
            weight=1000 * shares[name][0],
            usage_based=True,
            users_by_usage=True,
        )
        for name in "BCEF"
    ]
    w = world(
        cohort("root", gpus=100, sharing=BY_USAGE),
        *cohorts,
        *queues,
        *(local_queue(f"lq-{name}", name) for name in "BCEF"),
    )
    run_for_an_hour(w, ("u1", "lq-B", 20), ("u2", "lq-C", 25), ("u4", "lq-E", 25))
    users = {"u1": "lq-B", "u2": "lq-C", "u3": "lq-C", "u4": "lq-E", "u5": "lq-F"}
    assert order(w, users) == ["u5", "u4", "u1", "u3", "u2"]


def test_users_of_tied_accounts_of_fair_tree_are_ordered_by_age() -> None:
    """X and Y are equal. Fair Tree is documented to order their users as if they were of one account (y1, x1,
    x2, y2), which its code does not do. Here the older head is first, then that of the member with less."""
    w = world(
        cohort("root", gpus=100, sharing=BY_USAGE),
        cohort("X", "root"),
        cohort("Y", "root"),
        *(queue(name, 0, cohort=name[0].upper()) for name in ("x1", "x2", "y1", "y2")),
        *(local_queue(name, name) for name in ("x1", "x2", "y1", "y2")),
    )
    used = {"x1": 10, "x2": 20, "y1": 5, "y2": 25}
    run_for_an_hour(w, *((name, name, gpus) for name, gpus in used.items()))
    w.submit(*(workload(name, name, created=n) for n, name in enumerate(used)))
    assert admitted(w.run()) == ["x1", "y1", "x2", "y2"]


def test_past_usage_counts_in_the_small_department_of_kai_as_much_as_elsewhere() -> None:
    """KAI compares usage over the capacity of the whole cluster with the weight among siblings: in a
    department with 2 of 100 GPUs, usage is nearly 0 for both, and its queues are served in turn."""
    w = world(
        cohort("root", gpus=98, sharing=BY_USAGE),
        cohort("small", "root", gpus=2),
        queue("big", 0, cohort="root"),
        *(queue(name, 0, cohort="small") for name in ("hog", "other")),
        *(local_queue(name, name) for name in ("big", "hog", "other")),
    )
    run_for_an_hour(w, ("hog", "hog", 2))
    w.submit(workload("fills", "big", 99))
    w.run()
    w.submit(workload("old", "hog", created=0), workload("new", "other", created=9))
    assert admitted(w.run()) == ["new"]


@pytest.mark.parametrize(
    ("sharing", "to_a", "to_b"), [(FairSharing(), 8, 8), (BY_USAGE, 0, 16)], ids=["k=0", "k=1"]
)
def test_kais_16_gpus_go_to_the_queue_without_past_usage(sharing: FairSharing, to_a: int, to_b: int) -> None:
    """KAI divides 16 GPUs 5 to 11 between queues of past .5 and 0, and 8 to 8 without history. Here it
    divides nothing: each free GPU goes to the queue with less, until it has used as much."""
    w = world(
        cohort("root", gpus=16, sharing=sharing),
        *(queue(name, 0, cohort="root") for name in "abc"),
        *(local_queue(name, name) for name in "abc"),
    )
    run_for_an_hour(w, ("a", "a", 8))
    holders = [workload(f"c{n}", "c") for n in range(16)]
    w.submit(*holders)
    assert len(admitted(w.run())) == 16
    w.settle()
    w.submit(*(workload(f"{name}{n:02}", name, created=n) for n in range(16) for name in "ab"))
    w.run()
    starts = []
    for holder in holders:
        w.tell(observed(holder, suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
        starts += admitted(w.run())
    expected = [f"{name}{n:02}" for name, most in (("a", to_a), ("b", to_b)) for n in range(most)]
    assert sorted(starts) == expected


# --- users


def users_of_a_queue() -> World:
    return world(
        queue("cq", 4, usage_based=True, users_by_usage=True),
        local_queue("lq", "cq"),
        local_queue("two", "cq"),
    )


def test_the_user_with_the_smaller_past_usage_is_first_regardless_of_age_and_priority() -> None:
    w = users_of_a_queue()
    run_for_an_hour(w, ("hog", "lq", 4))
    w.submit(workload("full", "lq", 3, submitter="hog"))
    w.run()
    w.submit(
        workload("old", submitter="hog", created=0, priority_class="high"),
        workload("new", submitter="mouse", created=9),
    )
    assert admitted(w.run()) == ["new"]


def test_the_usage_of_a_local_queue_counts_before_that_of_its_users() -> None:
    w = users_of_a_queue()
    run_for_an_hour(w, ("alice", "lq", 3), ("bob", "two", 1))
    w.submit(
        workload("carol", "lq", 2, submitter="carol"), workload("bob", "two", 3, submitter="bob", created=9)
    )
    assert admitted(w.run()) == ["bob"]


def queues_of_no_weight(gpus: int) -> World:
    """Usage of both is equal; user `ann` of `a` has some, and what the tenant of `b` makes up has none."""
    within = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    w = world(
        queue("cq", gpus, usage_based=True, users_by_usage=True, preemption=within),
        local_queue("a", "cq", weight=0),
        local_queue("b", "cq", weight=0),
    )
    run_for_an_hour(w, ("ann", "a", 1))
    return w


def test_users_are_not_compared_with_those_of_another_local_queue() -> None:
    w = queues_of_no_weight(2)
    full = workload("full", "a", 2, submitter="ann", priority_class="high")
    w.submit(full)
    w.run()
    w.settle()
    w.submit(
        workload("older", "a", 2, submitter="ann", created=1),
        workload("newer", "b", 2, submitter="made-up", created=2),
    )
    w.run()
    assert positions(w) == ["older", "newer"]
    w.tell(observed(full, suspended=False, finished=WorkloadOutcome.SUCCEEDED))
    assert admitted(w.run()) == ["older"]


@pytest.mark.parametrize(("gpus", "victims"), [(1, {"low"}), (2, {"low", "old"})])
def test_victims_are_not_chosen_by_users_of_another_local_queue(gpus: int, victims: set[str]) -> None:
    w = queues_of_no_weight(3)
    w.submit(
        workload("old", "a", submitter="ann", created=0),
        workload("new", "a", submitter="newcomer", created=1),
        workload("low", "b", submitter="made-up", created=2, priority_class="low"),
    )
    assert len(admitted(w.run())) == 3
    w.settle()
    w.submit(workload("high", "a", gpus, priority_class="high", created=9))
    assert {one.ref.name for one in w.run() if isinstance(one, Evict)} == victims


def test_workloads_without_a_known_user_count_as_those_of_one() -> None:
    w = users_of_a_queue()
    run_for_an_hour(w, ("alice", "lq", 1))
    first, second = workload("first", "lq", 3), workload("second", "lq", 3, created=1)
    w.submit(first, second, workload("alice", "lq", 1, submitter="alice", created=9))
    assert admitted(w.run()) == ["first", "alice"]


def test_an_admission_counts_at_once_so_the_next_one_is_of_another_user() -> None:
    w = users_of_a_queue()
    w.submit(
        *(workload(f"a{n}", "lq", submitter="alice", created=n) for n in range(4)),
        *(workload(f"b{n}", "lq", submitter="bob", created=9 + n) for n in range(4)),
    )
    assert admitted(w.run()) == ["a0", "b0", "a1", "b1"]


def test_users_are_not_ordered_unless_the_queue_says_so() -> None:
    w = world(queue("cq", 4, usage_based=True), local_queue("lq", "cq"))
    run_for_an_hour(w, ("z", "lq", 4))
    assert order(w, {"a": "lq", "z": "lq"}) == ["z", "a"]


def test_positions_in_the_queue_are_the_order_of_the_admissions() -> None:
    w = users_of_a_queue()
    run_for_an_hour(w, ("alice", "lq", 3), ("bob", "two", 1))
    users = (("alice", "lq"), ("bob", "lq"), ("bob", "two"), ("carol", "two"))
    w.submit(workload("full", "lq", 4, submitter="hog", created=-1))
    w.run()
    w.submit(
        *(
            workload(f"{user}-{name}-{n}", name, submitter=user, created=n + 3 * place)
            for n in range(3)
            for place, (user, name) in enumerate(users)
        )
    )
    w.run()
    told = positions(w)
    assert len(told) == 12
    w.tell(policy(queue("cq", 16, usage_based=True, users_by_usage=True)))
    assert admitted(w.run()) == told


# --- members of a Cohort


def two_teams(sharing: FairSharing, settings: SchedulingConfiguration = SETTINGS) -> World:
    return world(
        cohort("root", gpus=4, sharing=sharing),
        *(queue(name, 0, cohort="root") for name in ("busy", "idle")),
        *(local_queue(name, name) for name in ("busy", "idle")),
        settings=settings,
    )


@pytest.mark.parametrize("enabled", [True, False])
def test_the_member_with_the_smaller_past_usage_is_first(enabled: bool) -> None:
    w = two_teams(replace(BY_USAGE, enabled=enabled))
    run_for_an_hour(w, ("u", "busy", 4))
    w.submit(
        workload("old", "busy", 3, created=0, priority_class="high"), workload("new", "idle", 3, created=9)
    )
    assert admitted(w.run()) == ["new"]


@pytest.mark.parametrize(
    ("sharing", "settings"), [(FairSharing(), SETTINGS), (BY_USAGE, SchedulingConfiguration())]
)
def test_members_are_not_ordered_by_it_unless_root_and_configuration_say_so(
    sharing: FairSharing, settings: SchedulingConfiguration
) -> None:
    w = two_teams(sharing, settings)
    run_for_an_hour(w, ("u", "busy", 4))
    w.submit(
        workload("old", "busy", 3, created=0, priority_class="high"), workload("new", "idle", 3, created=9)
    )
    assert admitted(w.run()) == ["old"]


def test_own_quota_comes_before_past_usage() -> None:
    w = world(
        cohort("root", gpus=1, sharing=BY_USAGE),
        queue("busy", 2, cohort="root"),
        queue("idle", 0, cohort="root"),
        *(local_queue(name, name) for name in ("busy", "idle")),
    )
    run_for_an_hour(w, ("u", "busy", 2))
    w.submit(workload("borrows", "idle", 2, created=0), workload("own", "busy", 2, created=9))
    assert admitted(w.run()) == ["own"]


def test_an_admission_counts_at_once_for_the_members_of_the_tree() -> None:
    """A Cohort of two queues is not admitted twice in a cycle before the queue beside it."""
    w = world(
        cohort("root", gpus=2, sharing=BY_USAGE),
        cohort("pair", "root"),
        queue("one", 0, cohort="pair"),
        queue("two", 0, cohort="pair"),
        queue("single", 0, cohort="root"),
        *(local_queue(name, name) for name in ("one", "two", "single")),
    )
    w.submit(*(workload(name, name, created=n) for n, name in enumerate(("one", "two", "single"))))
    assert admitted(w.run()) == ["one", "single"]


# --- victims


LENDS = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)


def borrowers(sharing: FairSharing) -> World:
    """`busy` and `idle` borrow a GPU each of `owner`; `busy` has used more, and its workload is older."""
    w = world(
        cohort("root", sharing=sharing),
        queue("owner", 2, cohort="root", preemption=LENDS),
        *(queue(name, 0, cohort="root") for name in ("busy", "idle")),
        *(local_queue(name, name) for name in ("owner", "busy", "idle")),
    )
    run_for_an_hour(w, ("u", "busy", 2))
    w.submit(workload("b", "busy", priority_class="high"))
    w.run()
    w.pass_time(20)
    w.submit(workload("i", "idle", priority_class="low"))
    assert admitted(w.run()) == ["i"]
    w.settle()
    w.pass_time(20)
    return w


@pytest.mark.parametrize(("sharing", "victim"), [(BY_USAGE, "b"), (FairSharing(), "i")])
def test_of_legal_victims_that_of_the_member_with_the_larger_past_usage_is_taken(
    sharing: FairSharing, victim: str
) -> None:
    w = borrowers(sharing)
    w.submit(workload("reclaims", "owner"))
    assert [one.ref.name for one in w.run() if isinstance(one, Evict)] == [victim]


def test_past_usage_gives_no_right_to_preempt() -> None:
    w = borrowers(BY_USAGE)
    w.submit(workload("more", "idle", priority_class="high"))
    assert w.run() == [] or not any(isinstance(one, Evict) for one in w.run())


def test_users_that_a_tenant_makes_up_cost_a_plan_no_more_than_their_workloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant acts as any service account of its namespace. No workload fits: each user is nominated."""
    w = world(queue("cq", 1, usage_based=True, users_by_usage=True), local_queue("lq", "cq"))
    w.submit(workload("full", "lq", submitter="hog"))
    w.run()
    w.settle()
    asked: list[Turn] = []
    of_turn = PlannedUsage.of_turn

    def counted(self: PlannedUsage, turn: Turn) -> tuple[float, ...]:
        asked.append(turn)
        return of_turn(self, turn)

    monkeypatch.setattr(PlannedUsage, "of_turn", counted)
    users = 100
    w.submit(*(workload(f"w{n}", "lq", submitter=f"user-{n}") for n in range(users)))
    w.run()
    assert set(asked) == {Turn(LocalQueueName("ns", "lq"), f"user-{n}") for n in range(users)}
    assert len(asked) < 40 * users, "with each nomination all users are compared"
