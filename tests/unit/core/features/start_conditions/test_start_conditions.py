"""What users let workloads wait for: others, a time, their array (V1 to V4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from queuectl.core.features.start_conditions.dependencies import Dependencies
from queuectl.core.model.events import OutcomesRead, PodsCounted, WorkloadGone, WorkloadObserved
from queuectl.core.model.policy import QueueingStrategy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import (
    AfterOutcome,
    AfterWorkload,
    NamedWorkload,
    StartConditions,
)
from queuectl.core.model.workload import Workload, WorkloadId, WorkloadOutcome
from tests.builders import T0, World, admitted, local_queue, queue, seen, workload

LQ = local_queue("lq", "cq")


def after(*names: str, outcome: AfterOutcome = AfterOutcome.OK) -> StartConditions:
    return StartConditions(after=tuple(AfterWorkload(outcome, "Job", name) for name in names))


def strict(gpus: int = 8) -> World:
    return World(queue("cq", gpus, strategy=QueueingStrategy.STRICT_FIFO), LQ)


def read(world: World, outcome: WorkloadOutcome | None) -> list[NamedWorkload]:
    """Answer all reads with `outcome`; return what was asked."""
    names = world.engine.features.start_conditions.unread(100)
    world.tell(OutcomesRead(tuple((name, outcome) for name in names)))
    return names


def finish(world: World, *workloads: Workload, outcome: WorkloadOutcome = WorkloadOutcome.SUCCEEDED) -> None:
    world.settle()
    for one in workloads:
        world.tell(WorkloadObserved(one, seen(suspended=False, finished=outcome, quiet=True, generation=3)))
    world.run()


def reason(world: World, name: str) -> Reason:
    found = world.reason(name)
    assert found is not None
    return found


def in_array(count: int, most: int, name: str = "sweep", **fields: int) -> list[Workload]:
    start = StartConditions(max_running=most, array=name)
    return [workload(f"{name}-{n}", created=n, start=start, **fields) for n in range(count)]  # type: ignore[arg-type]


def test_a_dependent_waits_in_no_queue_and_starts_when_the_other_succeeded() -> None:
    world = strict()
    first = workload("first")
    world.submit(first, workload("second", created=1, start=after("first")), workload("third", created=2))
    assert admitted(world.run()) == ["first", "third"]
    assert reason(world, "second").message == ("WaitingForDependency at Job/first: it has to succeed first")
    finish(world, first)
    assert "second" in admitted(world.decided)
    assert world.engine.features.start_conditions.unread(1) == []


@pytest.mark.parametrize(
    ("outcome", "wanted", "starts"),
    [
        (WorkloadOutcome.SUCCEEDED, AfterOutcome.OK, True),
        (WorkloadOutcome.SUCCEEDED, AfterOutcome.ANY, True),
        (WorkloadOutcome.SUCCEEDED, AfterOutcome.FAILED, False),
        (WorkloadOutcome.FAILED, AfterOutcome.OK, False),
        (WorkloadOutcome.FAILED, AfterOutcome.ANY, True),
        (WorkloadOutcome.FAILED, AfterOutcome.FAILED, True),
        (WorkloadOutcome.TIMED_OUT, AfterOutcome.FAILED, True),
        (WorkloadOutcome.DELETED, AfterOutcome.OK, False),
        (WorkloadOutcome.DELETED, AfterOutcome.ANY, True),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
def test_the_outcome_decides_whether_the_object_is_gone_or_not(
    outcome: WorkloadOutcome, wanted: AfterOutcome, starts: bool, gone: bool
) -> None:
    world, first = strict(), workload("first")
    dependent = workload("second", created=1, start=after("first", outcome=wanted))
    if gone:
        world.submit(dependent)
        assert reason(world, "second") if world.run() else None
        assert read(world, outcome) == [NamedWorkload("ns", "Job", "first")]
        world.run()
    else:
        world.submit(first, dependent)
        world.run()
        if outcome in (WorkloadOutcome.SUCCEEDED, WorkloadOutcome.FAILED):
            finish(world, first, outcome=outcome)
        else:
            world.settle()
            world.tell(WorkloadGone(first.id))
            world.run()
            world.tell(*(PodsCounted(one.workload, one.attempt, alive=False) for one in world.probes))
            world.run()
            if outcome is WorkloadOutcome.TIMED_OUT:
                return  # that its stop is recorded is what test_lifecycle shows
    assert ("second" in admitted(world.decided)) is starts
    if not starts:
        assert reason(world, "second").message == (
            f"DependencyNeverSatisfied at Job/first: its outcome is {outcome}, and it had to "
            + ("succeed" if wanted is AfterOutcome.OK else "fail")
        )


def test_a_name_that_no_workload_ever_had_says_so_and_starts_once_it_is_made_and_succeeds() -> None:
    world, first = strict(), workload("first", created=5)
    world.submit(workload("second", start=after("first")))
    world.run()
    read(world, None)
    world.run()
    assert "no workload of this name is known" in reason(world, "second").message
    world.submit(first)
    world.run()
    finish(world, first)
    assert admitted(world.decided) == ["first", "second"]


def test_a_name_is_that_of_the_workload_that_is_not_over() -> None:
    world = strict()
    world.submit(workload("second", start=after("first")))
    read(world, WorkloadOutcome.FAILED)
    world.run()
    assert reason(world, "second").code is Code.DEPENDENCY_NEVER_SATISFIED
    again = workload("first", created=9)
    world.submit(again)
    world.run()
    assert reason(world, "second").code is Code.WAITING_FOR_DEPENDENCY
    finish(world, again)
    assert admitted(world.decided) == ["first", "second"]


def test_a_cycle_is_named_to_each_of_its_workloads_and_ends_with_an_edit() -> None:
    world = strict()
    a, b, c = (
        workload(name, created=n, start=after(other))
        for n, (name, other) in enumerate((("a", "b"), ("b", "c"), ("c", "a")))
    )
    world.submit(a, b, c, workload("d", created=9, start=after("a")))
    world.run()
    for name in "abc":
        found = reason(world, name)
        assert found.code is Code.DEPENDENCY_NEVER_SATISFIED
        assert "each of these waits for the next one" in found.message
    assert reason(world, "a").node == "Job/b"
    assert reason(world, "d").code is Code.WAITING_FOR_DEPENDENCY
    world.tell(WorkloadObserved(replace(c, start=None), seen(generation=2)))
    assert admitted(world.run()) == ["c"]
    assert reason(world, "a").code is reason(world, "b").code is Code.WAITING_FOR_DEPENDENCY


def test_a_workload_that_waits_for_itself_is_told() -> None:
    world = strict()
    world.submit(workload("a", start=after("a")))
    world.run()
    assert reason(world, "a").code is Code.DEPENDENCY_NEVER_SATISFIED


def test_the_end_of_a_workload_searches_no_cycles_for_those_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name is a tenant's, as are all that wait for it: it may come and go many times."""
    searched: list[WorkloadId] = []
    cycle = Dependencies._cycle

    def counted(self: Dependencies, workload: WorkloadId) -> list[WorkloadId] | None:
        searched.append(workload)
        return cycle(self, workload)

    monkeypatch.setattr(Dependencies, "_cycle", counted)
    world = strict()
    first = workload("first", gpus=99)
    world.submit(first, *(workload(f"then-{n}", created=1, start=after("first")) for n in range(20)))
    world.run()
    assert len(searched) == 20
    for _ in range(2):
        world.tell(WorkloadGone(first.id))
        world.run()
        world.submit(first)
        world.run()
    assert len(searched) == 20
    assert reason(world, "then-7").code is Code.WAITING_FOR_DEPENDENCY


def test_a_begin_time_wakes_the_engine_by_its_timer() -> None:
    world = strict()
    begin = T0 + timedelta(hours=1)
    world.submit(workload("a", start=StartConditions(begin_at=begin)), workload("b", created=1))
    assert admitted(world.run()) == ["b"]
    assert reason(world, "a").message == "WaitingForBeginTime, until 2030-01-01T01:00:00Z"
    assert world.engine.due_at == begin
    world.pass_time(3599)
    assert admitted(world.run()) == []
    world.pass_time(1)
    assert admitted(world.run()) == ["a"]


def test_conditions_count_before_the_first_start_alone() -> None:
    world = strict()
    one = workload("a")
    world.submit(one)
    world.run()
    world.settle()
    held = replace(one, hold=True, start=after("none"))
    world.tell(WorkloadObserved(held, seen(suspended=False, generation=3)))
    world.run()
    world.settle(generation=4)
    world.tell(WorkloadObserved(held, seen(generation=4)))
    world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    world.run()
    world.tell(WorkloadObserved(replace(held, hold=False), seen(generation=4)))
    assert admitted(world.run()) == ["a"]


def test_at_most_so_many_of_an_array_run_and_an_end_starts_the_next() -> None:
    world = strict()
    array = in_array(6, 2)
    world.submit(*array, workload("other", created=9))
    assert admitted(world.run()) == ["sweep-0", "sweep-1", "other"]
    assert reason(world, "sweep-2").message == (
        "WaitingForArray at Array/sweep: queuectl.dev/max-running lets 2 of its workloads queue "
        "or run at a time"
    )
    finish(world, array[1])
    assert admitted(world.decided)[3:] == ["sweep-2"]
    finish(world, array[0], array[2])
    assert admitted(world.decided)[4:] == ["sweep-3", "sweep-4"]


def test_the_workloads_of_an_array_start_one_by_one_as_there_is_quota() -> None:
    """It is no gang."""
    world = strict(3)
    world.submit(*in_array(6, 5))
    assert admitted(world.run()) == ["sweep-0", "sweep-1", "sweep-2"]
    assert reason(world, "sweep-3").code is Code.WAITING_FOR_QUOTA
    assert reason(world, "sweep-5").code is Code.WAITING_FOR_ARRAY


def test_a_held_workload_of_an_array_takes_no_turn() -> None:
    world = strict()
    first, *rest = in_array(4, 2)
    world.submit(replace(first, hold=True), *rest)
    assert admitted(world.run()) == ["sweep-1", "sweep-2"]


def test_a_workload_that_is_moved_to_another_array_leaves_its_turn_to_the_next_one() -> None:
    world = World(queue("cq", 8), LQ)
    first, second = in_array(2, 1)
    first = replace(first, pod_sets=workload("large", gpus=9).pod_sets)
    world.submit(first, second)
    assert admitted(world.run()) == []
    assert reason(world, "sweep-1").code is Code.WAITING_FOR_ARRAY
    moved = replace(first, start=StartConditions(max_running=1, array="eval"))
    world.tell(WorkloadObserved(moved, seen(generation=1)))
    assert "sweep-1" in admitted(world.run())


def test_arrays_of_other_namespaces_and_names_count_apart() -> None:
    world = World(queue("cq", 8), LQ, local_queue("lq", "cq", namespace="b"), namespaces=("ns", "b"))
    others = [
        replace(one, id=WorkloadId(f"b-{one.id}"), ref=one.ref._replace(namespace="b"))
        for one in in_array(2, 1)
    ]
    world.submit(*in_array(2, 1), *others, *in_array(2, 1, "eval"))
    assert len(admitted(world.run())) == 3


def test_a_raised_limit_lets_more_run_and_the_least_counts() -> None:
    world = strict()
    array = in_array(4, 1)
    world.submit(*array)
    world.run()
    raised = StartConditions(max_running=3, array="sweep")
    for one in array[1:]:
        world.tell(WorkloadObserved(replace(one, start=raised), seen(generation=1)))
    assert admitted(world.run()) == []  # the first one still says 1
    world.settle()
    world.tell(WorkloadObserved(replace(array[0], start=raised), seen(suspended=False, generation=2)))
    assert admitted(world.run()) == ["sweep-1", "sweep-2"]


@pytest.mark.parametrize("seed", range(30))
def test_in_random_worlds_no_array_runs_more_than_it_says_and_all_end(seed: int) -> None:
    random = Random(seed)
    world = World(queue("cq", random.randint(1, 6), strategy=random.choice(list(QueueingStrategy))), LQ)
    most = random.randint(1, 3)
    array = in_array(8, most)
    random.shuffle(array)
    chain = [
        workload(f"step-{n}", created=20 + n, start=after(f"step-{n - 1}") if n else None) for n in range(4)
    ]
    todo = array + chain
    left = {one.ref.name: one for one in todo}
    while left:
        if todo:
            world.submit(*(todo.pop() for _ in range(min(len(todo), random.randint(1, 4)))))
        world.run()
        read(world, None)
        world.run()
        running = [name for name in dict.fromkeys(admitted(world.decided)) if name in left]
        assert sum(name.startswith("sweep") for name in running) <= most
        steps = [name for name in running if name.startswith("step")]
        assert len(steps) <= 1
        assert running or todo
        for name in random.sample(running, random.randint(0, len(running))) or running[:1]:
            finish(world, left.pop(name))
    assert len(admitted(world.decided)) == 12


def test_of_workloads_that_name_many_others_a_bounded_number_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a tenant writes costs no more, however many workloads it makes."""
    looked = 0
    awaited = Dependencies._awaited

    def counted(known: Dependencies, workload: WorkloadId) -> Iterator[WorkloadId]:
        nonlocal looked
        looked += 1
        return awaited(known, workload)

    monkeypatch.setattr(Dependencies, "_awaited", counted)
    world = strict()
    names = [f"w-{n}" for n in range(400)]
    world.submit(
        *(workload(name, created=n, start=after(*names[n + 1 : n + 17])) for n, name in enumerate(names[:-1]))
    )
    before = looked
    world.submit(workload("last", created=500, start=after(names[0])))
    assert 0 < looked - before <= 101
