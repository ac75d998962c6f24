from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from queuectl.core.model.policy import Preemption, PreemptionPolicy
from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.scenarios.arrivals import Arrival, Template, arrivals, exponential, lognormal, uniform
from queuectl.simulation.history import History, Life
from queuectl.simulation.player import Play
from tests.builders import GPU, T0, World, local_queue, pod_set, priority, queue, workload
from tests.doubles.invariants import checked_commits


def world(gpus: int = 2) -> World:
    made = World(queue("cq", gpus), local_queue("lq", "cq"))
    made.run()
    return made


def coming(name: str, at: float = 0, run: float | None = 60, gpus: int = 1, **fields: Any) -> Arrival:
    return Arrival(
        at=round(at * 1000),
        workload=workload(name, gpus=gpus, created=at, **fields),
        run=None if run is None else round(run * 1000),
    )


def played(
    made: World,
    work: Iterable[Arrival],
    until: float | None = None,
    *,
    eviction_seconds: float = 0.0,
    check_every: int = 1,
) -> History:
    with checked_commits(check_every):
        return Play(made.engine, T0, eviction_seconds=eviction_seconds).play(work, until=until)


def lives(history: History) -> dict[str, Life]:
    return {life.id.removeprefix("uid-"): life for life in history.lives}


def starts(history: History) -> dict[str, list[float]]:
    return {name: [run.admitted / 1000 for run in life.runs] for name, life in lives(history).items()}


def test_work_is_pending_until_running_work_has_ended() -> None:
    found = played(world(), [coming("a", run=60, gpus=2), coming("b", at=10, run=30)])
    assert starts(found) == {"a": [0], "b": [60]}
    assert lives(found)["b"].finished == 90_000
    assert found.end == 90_000


def test_the_simulation_ends_at_until_with_running_and_pending_work() -> None:
    found = played(world(), [coming("a", run=None, gpus=2), coming("b", at=10), coming("c", at=50)], until=40)
    assert found.end == 40_000
    assert starts(found) == {"a": [0], "b": []}
    assert lives(found)["b"].reason is Code.WAITING_FOR_QUOTA


def test_work_that_can_never_run_does_not_delay_the_end() -> None:
    found = played(world(), [coming("huge", gpus=3), coming("a", at=5)])
    assert found.end == 65_000
    assert lives(found)["huge"].never
    assert not lives(found)["a"].never


def test_work_without_a_queue_has_that_reason() -> None:
    (life,) = played(world(), [coming("a", queue="nowhere")]).lives
    assert (life.cluster_queue, life.reason, life.runs) == (None, Code.QUEUE_NOT_FOUND, [])


def test_arrivals_and_ends_at_one_time_are_decided_together() -> None:
    found = played(world(1), [coming("a", run=60), coming("b", at=60), coming("c", at=30)])
    assert starts(found) == {"a": [0], "b": [120], "c": [60]}


def test_usage_never_exceeds_the_quota_and_all_work_ends() -> None:
    made = World(queue("cq", 8), queue("other", 4), local_queue("lq", "cq"), local_queue("lo", "other"))
    made.run()
    templates = [
        Template(
            shape=workload(f"{name}-{gpus}", name, pods=[pod_set(gpus, {GPU: 1})]),
            spacing=exponential(40 * gpus),
            run=lognormal(100, 1) if gpus < 4 else uniform(50, 150),
            count=40,
        )
        for name in ("lq", "lo")
        for gpus in (1, 2, 4)
    ]
    work = [one for template in templates for one in arrivals(template, T0, until=None)]
    found = played(made, work, check_every=7)
    assert len(found.lives) == 240
    assert all(life.finished is not None for life in found.lives)
    assert most_at_a_time(found, "cq") == 8
    assert most_at_a_time(found, "other") == 4


def most_at_a_time(history: History, *queues: str) -> int:
    """GPUs in use, calculated from the history only."""
    changes = []
    for run in (run for life in history.lives for run in life.runs if run.cluster_queue in queues):
        (gpus,) = run.usage.values()
        changes.append((run.admitted, gpus))
        changes.append((history.end if run.released is None else run.released, -gpus))
    held = most = 0
    for _, gpus in sorted(changes):
        held += gpus
        most = max(most, held)
    return most


@pytest.mark.parametrize("until", [None, 10])
def test_progress_never_decreases_and_reaches_its_end(until: float | None) -> None:
    told: list[float] = []
    work = [coming(str(number), at=number, run=3) for number in range(20)]
    Play(world().engine, T0).play(work, until=until, progress=told.append)
    assert told == sorted(told)
    assert 0 <= told[0] < 0.1
    assert 0.9 <= told[-1] <= 1


def sharing(*names: str, gpus: int = 4, **fields: Any) -> World:
    """Queues of one cohort that reclaim their nominal quota."""
    takes = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
    )
    made = World(
        *(replace(queue(name, gpus, cohort="all"), preemption=takes, **fields) for name in names),
        *(local_queue(name, name) for name in names),
    )
    made.run()
    return made


def test_a_victim_holds_its_quota_until_its_pods_are_gone_and_starts_from_the_beginning() -> None:
    found = played(
        sharing("owner", "guest"),
        [
            coming("long", run=100, gpus=8, queue="guest"),
            coming("mine", at=40, run=30, gpus=2, queue="owner"),
        ],
        eviction_seconds=15,
    )
    long, mine = lives(found)["long"], lives(found)["mine"]
    first, second = long.runs
    assert (first.admitted, first.stopped, first.released) == (0, 40_000, 55_000)
    assert (first.code, first.cause) == (Code.PREEMPTED, PreemptionCause.IN_COHORT_RECLAMATION)
    assert first.preemptor == mine.id
    assert [run.admitted for run in mine.runs] == [55_000]
    # All of its 100 s again: its work so far is lost.
    assert (second.admitted, second.released, second.finished) == (85_000, 185_000, True)


def test_work_that_would_end_during_its_eviction_is_lost() -> None:
    found = played(
        sharing("owner", "guest"),
        [coming("long", run=50, gpus=8, queue="guest"), coming("mine", at=40, run=30, gpus=4, queue="owner")],
        eviction_seconds=15,
    )
    assert starts(found) == {"long": [0, 85], "mine": [55]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("eviction", [0.0, 45.0])
def test_with_borrowing_and_preemption_all_work_ends_and_no_tree_exceeds_its_quota(
    seed: int, eviction: float
) -> None:
    names = ("a", "b", "c")
    templates = [
        Template(
            shape=workload(f"{name}-{gpus}-{value}", name, gpus=gpus, priority_class=f"p{value}"),
            spacing=exponential(60 * gpus),
            run=lognormal(120, 1),
            count=12,
            seed=seed,
        )
        for name in names
        for gpus in (1, 3, 5)
        for value in (0, 7)
    ]
    made = sharing(*names)
    made.tell(priority("p0", 0), priority("p7", 7))
    work = [one for template in templates for one in arrivals(template, T0, until=None)]
    found = played(made, work, eviction_seconds=eviction, check_every=7)
    assert all(life.finished is not None for life in found.lives)
    assert sum(run.code is Code.PREEMPTED for life in found.lives for run in life.runs) > 5
    assert most_at_a_time(found, *names) == 12
