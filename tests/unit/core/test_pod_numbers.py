"""Numbers of pods that are edited while a workload runs: what runs is what is charged (L15, L22)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Admit, Decision, Evict, Shrink
from queuectl.core.model.events import EffectSettled, PodsCounted, Result
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import PodCount, WorkloadId
from tests.builders import GPU, World, admitted, local_queue, observed, pod_set, queue, workload

ID = WorkloadId("uid-a")


class Running:
    """Workload `a`, started with these numbers of pods in a queue that has quota for no more."""

    def __init__(self, *counts: int) -> None:
        self.pod_sets = tuple(
            replace(pod_set(count, {GPU: 1}), name=f"p{n}") for n, count in enumerate(counts)
        )
        self.world = World(queue("cq", sum(counts)), local_queue("lq", "cq"))
        self.one = workload("a", pods=list(self.pod_sets))
        self.generation = 1
        self.probed: list[int] = []
        self.held = list(counts)
        self.world.tell(observed(self.one))
        assert admitted(self.run()) == ["a"]
        (effect,) = self.world.engine.take_effects()
        self.attempt = effect.attempt
        self.generation += 1
        self.world.tell(EffectSettled(effect.key, Result.DONE, self.generation))
        self.see()

    def run(self) -> list[Decision]:
        made = self.world.run()
        self.probed += [probe.at_most for probe in self.world.probes if probe.at_most is not None]
        self.world.probes.clear()
        for decision in made:
            if isinstance(decision, Shrink):
                self.held = [one.count for one in decision.assignment.pod_sets]
        return made

    def see(self, **state: object) -> list[Decision]:
        self.world.tell(observed(self.one, **{"suspended": False, "generation": self.generation} | state))
        return self.run()

    def resize(self, *counts: int, **state: object) -> list[Decision]:
        pods = tuple(replace(one, count=count) for one, count in zip(self.pod_sets, counts, strict=True))
        self.one = replace(self.one, pod_sets=pods)
        self.generation += 1
        return self.see(**state)

    def count(self, at_most: int) -> list[Decision]:
        """At most so many of its pods are alive, by a consistent read."""
        self.world.tell(PodsCounted(ID, 1, alive=False, at_most=at_most))
        return self.run()


def test_fewer_pods_return_their_quota_once_no_more_are_alive() -> None:
    life = Running(4)
    life.world.submit(workload("next", gpus=2, created=1))
    life.run()
    assert (life.resize(2), life.probed, life.held) == ([], [2], [4])
    assert admitted(life.count(2)) == ["next"]
    assert life.held == [2]


def test_pods_are_counted_again_where_the_number_is_reduced_meanwhile() -> None:
    life = Running(4)
    life.resize(3)
    life.resize(1)
    assert (life.count(3), life.probed, life.held) == ([], [3, 1], [4])
    life.count(1)
    assert life.held == [1]


def test_a_number_that_grows_again_before_its_pods_are_counted_stays_charged() -> None:
    life = Running(4)
    life.resize(2)
    assert life.resize(4) == []
    assert (life.count(2), life.held) == ([], [4])


@pytest.mark.parametrize("again", [3, 4])
def test_a_count_that_met_an_edited_object_says_nothing(again: int) -> None:
    life = Running(4)
    life.resize(2)
    life.resize(again)
    life.world.tell(PodsCounted(ID, 1, alive=True, at_most=2))
    assert (life.run(), life.held) == ([], [4])
    assert life.probed == [2, 3][: 5 - again], "the pods beyond the number of now are counted"
    life.count(again)
    assert life.held == [again]


def test_pods_are_counted_again_after_a_count_that_says_nothing() -> None:
    life = Running(4)
    life.resize(2)
    life.world.tell(PodsCounted(ID, 1, alive=True, at_most=2))
    assert (life.run(), life.held, life.probed) == ([], [4], [2, 2])


def test_indexes_that_are_taken_away_return_their_quota_only_after_a_count() -> None:
    """A Job with completions equal to parallelism: after the edit its status counts fewer ended pods."""
    life = Running(8)
    life.see(reclaimable=(("p0", 5),), admission=life.attempt)
    assert life.held == [3]
    assert (life.resize(6, reclaimable=(("p0", 4),), admission=life.attempt), life.probed) == ([], [2])
    life.count(2)
    assert life.held == [2]


def test_a_number_that_a_start_with_fewer_pods_wrote_is_no_edit() -> None:
    world = World(queue("cq", 2), local_queue("lq", "cq"))
    partly = workload("a", pods=[pod_set(4, {GPU: 1}, min_count=1)])
    world.tell(observed(partly))
    (admit,) = world.run()
    assert isinstance(admit, Admit)
    world.settle()
    reduced = {"suspended": False, "admission": admit.attempt, "reduced": (PodCount("main", ("n",), 4),)}
    for ready in (False, True):
        world.tell(observed(partly, generation=2, ready=ready, **reduced))
        assert (world.run(), world.probes) == ([], [])
    edited = workload("a", pods=[pod_set(1, {GPU: 1})])
    world.tell(observed(edited, generation=3, suspended=False, admission=admit.attempt))
    assert (world.run(), [probe.at_most for probe in world.probes]) == ([], [1])


@pytest.mark.parametrize("counts", [(5, 1), (4, 2)])
def test_more_pods_than_were_admitted_end_the_attempt(counts: tuple[int, int]) -> None:
    """They pass no gate that is in force; where there is none, they run past the quota."""
    (evict,) = Running(4, 1).resize(*counts)
    assert isinstance(evict, Evict)
    assert evict.reason.code is Code.BYPASS
    assert "it holds quota for" in evict.reason.message


def test_more_pods_than_it_holds_quota_for_after_a_reduction_end_the_attempt() -> None:
    life = Running(4)
    life.resize(2)
    life.count(2)
    (evict,) = life.resize(3)
    assert isinstance(evict, Evict)
    assert "podset p0 has 3 pods, it holds quota for 2" in evict.reason.message


def test_a_number_that_is_reduced_again_before_the_eviction_is_decided_does_not_end_the_attempt() -> None:
    life = Running(4)
    life.one = replace(life.one, pod_sets=(replace(life.pod_sets[0], count=5),))
    life.world.tell(observed(life.one, suspended=False, generation=3))
    assert life.resize(4) == []


def test_pods_that_end_do_not_hide_an_edit() -> None:
    life = Running(4)
    life.see(reclaimable=(("p0", 1),))
    assert life.held == [3]
    life.resize(2, reclaimable=(("p0", 1),))
    assert life.probed == [1]
    life.count(1)
    assert life.held == [1]


def test_a_pod_that_is_made_again_after_others_ended_is_no_growth() -> None:
    """A status may count a pod that is being deleted, and fewer pods as ended than before."""
    life = Running(4)
    life.see(reclaimable=(("p0", 1),))
    assert life.see() == []


STEP = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 8), st.booleans())


@given(st.lists(STEP, max_size=12))
def test_what_is_alive_is_charged_at_every_moment(steps: list[tuple[int, int, int, bool]]) -> None:
    """A user reduces numbers, an operator deletes pods later, and the driver counts them when asked."""
    life, alive, wanted = Running(4, 4), 8, [4, 4]
    for first, second, ended, counted in steps:
        wanted = [min(wanted[0], first), min(wanted[1], second)]
        life.resize(*wanted)
        alive = max(sum(wanted), alive - ended)
        while counted and life.probed and alive <= life.probed[0]:
            life.count(life.probed.pop(0))
        assert alive <= sum(life.held)
        assert all(held >= count for held, count in zip(life.held, wanted, strict=True))
    alive = sum(wanted)
    while life.probed:
        life.count(life.probed.pop(0))
    assert life.held == wanted
