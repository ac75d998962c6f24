"""Victims under fair sharing (docs/scheduling.md, P7 to P9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.entries import Entry
from queuectl.core.limits import Limits, Snapshot
from queuectl.core.model.policy import (
    STRATEGIES,
    ClusterQueue,
    Cohort,
    MinRunTime,
    Preemption,
    PreemptionPolicy,
    PreemptionStrategy,
    SchedulingConfiguration,
)
from queuectl.core.model.workload import Assignment, Attempt, AttemptState, ObjectRef, Phase, WorkloadId
from queuectl.core.preemption.fair import fair_victims
from queuectl.core.preemption.search import PreemptionSearch
from queuectl.core.quota.tree import QuotaTree
from tests.unit.core.sharing import (
    NAMES,
    QUEUES,
    REQUEST,
    cells_of,
    cohort,
    forests,
    queue,
    tree_of,
    usages,
)
from tests.unit.core.slow_search import Slow

T0 = datetime(2030, 1, 1, tzinfo=UTC)
GPU = "x/gpu"


ANY = Preemption(
    within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
)


class Arena:
    """A quota tree with workloads that hold quota, and one preemptor."""

    def __init__(self, *nodes: Cohort | ClusterQueue) -> None:
        self.tree = tree_of(*nodes)
        self.holders: dict[str, dict[WorkloadId, Entry]] = {}
        self.names: list[str] = []

    def hold(
        self, name: str, queue: str, amounts: Mapping[str, int], *, priority: int = 0, at: int = 0
    ) -> None:
        """Add a workload that holds quota. `at`: seconds after T0."""
        entry = self._entry(name, priority)
        entry.cells = cells_of(self.tree, amounts)
        entry.phase = Phase.ADMITTED
        entry.attempt = Attempt(
            workload=entry.id,
            number=1,
            state=AttemptState.ADMITTED,
            assignment=Assignment(cluster_queue=queue, pod_sets=()),
            admitted_at=T0 + timedelta(seconds=at),
        )
        self.holders.setdefault(queue, {})[entry.id] = entry
        self.tree.add(self.tree.queue(queue), entry.cells)

    def contest(
        self,
        queue: str,
        amounts: Mapping[str, int],
        *,
        priority: int = 0,
        preemption: Preemption = ANY,
        strategies: tuple[PreemptionStrategy, ...] = STRATEGIES,
        contested: Sequence[str] | None = None,
        theirs: Preemption = ANY,
    ) -> PreemptionSearch:
        names = {node.name for node in self.tree.nodes() if node.kind == "ClusterQueue"}
        rules = {name: preemption if name == queue else theirs for name in names}
        snapshot = Snapshot(
            tree=self.tree,
            limits=Limits(self.tree),
            entries={},
            queues={name: ClusterQueue(name=name, preemption=rules[name]) for name in sorted(names)},
            holders=self.holders,
            configuration=SchedulingConfiguration(fair_sharing=True, strategies=strategies),
            now=T0 + timedelta(hours=1),
        )
        cells = cells_of(self.tree, amounts)
        asked = [cell for cell, _ in cells_of(self.tree, dict.fromkeys(contested or amounts, 1))]
        return PreemptionSearch(
            snapshot, self.tree.queue(queue), self._entry("asking", priority), cells, asked
        )

    def victims(self, queue: str, amounts: Mapping[str, int], **fields: object) -> list[tuple[str, str]]:
        """Return names and causes of the victims. The tree must be unchanged afterwards."""
        contest = self.contest(queue, amounts, **fields)  # type: ignore[arg-type]
        before = usages(self.tree)
        found = fair_victims(contest, contest.configuration.strategies)
        assert usages(self.tree) == before
        return [(target.entry.id, target.cause.value) for target in found]

    @staticmethod
    def _entry(name: str, priority: int) -> Entry:
        entry = Entry(WorkloadId(name), ObjectRef("ns", "Job", name, name))
        entry.priority = priority
        entry.order = (-priority, 0, 0, name)
        return entry


OWN, RECLAIM, FAIR = "InClusterQueue", "InCohortReclamation", "InCohortFairSharing"


def three(**weights: int) -> Arena:
    """Return `a`, `b` and `c` with 3 GPUs each under one cohort."""
    return Arena(*(queue(name, "all", {GPU: 3}, weight=weights.get(name, 1000)) for name in "abc"))


def fill(arena: Arena, queue: str, count: int, each: int = 1, **fields: int) -> None:
    for number in range(1, count + 1):
        arena.hold(f"{queue}{number}", queue, {GPU: each}, **fields)


def test_lent_quota_is_reclaimed_from_the_largest_borrower_at_each_step() -> None:
    arena = three()
    fill(arena, "a", 5)
    fill(arena, "b", 4)
    assert arena.victims("c", {GPU: 3}) == [("a1", RECLAIM), ("a2", RECLAIM), ("b1", RECLAIM)]


def test_a_queue_within_its_own_quota_has_no_victims() -> None:
    arena = three()
    for name in "abc":
        fill(arena, name, 3)
    assert arena.victims("c", {GPU: 1}) == []


def test_a_borrower_preempts_a_larger_borrower_that_keeps_at_least_as_large_a_share() -> None:
    arena = three()
    fill(arena, "a", 3)
    fill(arena, "b", 6)
    assert arena.victims("a", {GPU: 1}) == [("b1", FAIR)]
    assert arena.victims("a", {GPU: 2}) == []


def test_the_second_strategy_preempts_a_large_workload_that_leaves_a_smaller_share() -> None:
    arena = three()
    fill(arena, "a", 3)
    arena.hold("large", "b", {GPU: 6})
    assert (
        arena.victims("a", {GPU: 1}, strategies=(PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)) == []
    )
    assert arena.victims("a", {GPU: 1}) == [("large", FAIR)]
    assert arena.victims("a", {GPU: 1}, strategies=(PreemptionStrategy.LESS_THAN_INITIAL_SHARE,)) == [
        ("large", FAIR)
    ]
    assert arena.victims("a", {GPU: 3}) == []


def test_an_equal_share_does_not_pass_the_second_strategy() -> None:
    arena = three()
    fill(arena, "a", 3)
    arena.hold("large", "b", {GPU: 6})
    initial = (PreemptionStrategy.LESS_THAN_INITIAL_SHARE,)
    assert arena.victims("a", {GPU: 3}, strategies=initial) == []
    assert arena.victims("a", {GPU: 2}, strategies=initial) == [("large", FAIR)]


def test_an_equal_final_share_passes_the_first_strategy() -> None:
    arena = three()
    fill(arena, "a", 3)
    fill(arena, "b", 5)
    fill(arena, "c", 1)
    final = (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
    assert arena.victims("a", {GPU: 1}, strategies=final) == [("b1", FAIR)]
    assert arena.victims("a", {GPU: 2}, strategies=final) == []


def test_with_equal_shares_a_resource_that_is_not_dominant_is_preempted() -> None:
    arena = Arena(cohort("all", None, {"x/gpu": 4, "x/cpu": 4}), *(queue(name, "all") for name in "abc"))
    arena.hold("gpus", "b", {"x/gpu": 2}, at=1)
    arena.hold("cpus", "b", {"x/cpu": 1})
    arena.hold("mine", "a", {"x/gpu": 2})
    arena.hold("others", "c", {"x/cpu": 3}, priority=9)
    lower = Preemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    found = arena.victims("a", {"x/cpu": 1}, priority=1, preemption=lower)
    assert found == [("cpus", FAIR)]


def test_if_no_share_changes_only_a_later_workload_is_preempted() -> None:
    owner = queue("c", "all", {"x/cpu": 3})
    arena = Arena(cohort("all", None, {"x/gpu": 4, "x/cpu": 1}), queue("a", "all"), queue("b", "all"), owner)
    arena.hold("gpus", "b", {"x/gpu": 2}, at=1, priority=9)
    arena.hold("cpus", "b", {"x/cpu": 1}, priority=1)
    arena.hold("mine", "a", {"x/gpu": 2})
    arena.hold("its", "c", {"x/cpu": 3})
    anybody = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    assert arena.victims("a", {"x/cpu": 1}, priority=1, preemption=anybody) == []
    assert arena.victims("a", {"x/cpu": 1}, priority=2, preemption=anybody) == [("cpus", FAIR)]


def test_the_second_strategy_preempts_at_most_one_workload_per_queue() -> None:
    arena = Arena(cohort("all", None, {"x/gpu": 100, "x/cpu": 100}), *(queue(name, "all") for name in "abc"))
    arena.hold("b1", "b", {"x/gpu": 40}, priority=-1)
    arena.hold("b2", "b", {"x/gpu": 20, "x/cpu": 40}, priority=-1)
    arena.hold("c1", "c", {"x/cpu": 60}, priority=9)
    arena.hold("a1", "a", {"x/gpu": 40}, priority=-1)
    lower = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
    )
    # At first its share, 50, is above what either victim would leave to b. Without a1 it is 10: b1 passes.
    # Only b2 would help, but a second victim in b is not allowed.
    assert arena.victims("a", {"x/gpu": 10, "x/cpu": 10}, preemption=lower) == []


def test_the_own_queue_has_candidates_without_borrowing() -> None:
    arena = Arena(
        cohort("root"),
        cohort("left", "root"),
        queue("a", "left", {GPU: 5}),
        queue("b", "root"),
    )
    fill(arena, "a", 2, priority=-1)
    fill(arena, "b", 3, priority=9)
    lower = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
    )
    assert arena.victims("a", {GPU: 2}, preemption=lower) == [("a1", OWN), ("a2", OWN)]


def test_a_small_candidate_that_fits_beside_the_preemptor_is_not_preempted() -> None:
    arena = three()
    arena.hold("small", "b", {GPU: 1})
    arena.hold("large", "b", {GPU: 8}, at=-1)
    assert arena.victims("c", {GPU: 3}) == [("large", RECLAIM)]


def test_a_queue_with_a_larger_weight_may_preempt_more() -> None:
    arena = three(a=2000)
    fill(arena, "a", 3)
    fill(arena, "b", 6)
    assert arena.victims("a", {GPU: 2}) == [("b1", FAIR), ("b2", FAIR)]


@pytest.mark.parametrize(("theirs", "expected"), [(1000, []), (0, [("b1", FAIR), ("b2", FAIR)])])
def test_a_borrower_with_weight_zero_preempts_only_borrowers_with_weight_zero(
    theirs: int, expected: list[tuple[str, str]]
) -> None:
    arena = Arena(
        cohort("all", None, {GPU: 3}), queue("a", "all", {GPU: 1}, weight=0), queue("b", "all", weight=theirs)
    )
    fill(arena, "b", 4)
    assert arena.victims("a", {GPU: 2}) == expected


def test_a_queue_within_nominal_quota_reclaims_regardless_of_its_share() -> None:
    arena = Arena(
        queue("a", "all", {"new/gpu": 3, "old/gpu": 0}), queue("b", "all", {"new/gpu": 0, "old/gpu": 6})
    )
    arena.hold("mine", "a", {"old/gpu": 4})
    arena.hold("theirs", "b", {"new/gpu": 1})
    assert arena.victims("a", {"new/gpu": 3}) == [("theirs", RECLAIM)]


def test_lower_priorities_of_the_own_queue_are_preempted_first_regardless_of_shares() -> None:
    arena = three()
    fill(arena, "a", 3, priority=-1)
    fill(arena, "b", 3)
    fill(arena, "c", 3)
    assert arena.victims("a", {GPU: 2}) == [("a1", OWN), ("a2", OWN)]


def test_a_queue_without_a_cohort_preempts_for_higher_priority() -> None:
    arena = Arena(queue("a", None, {GPU: 2}))
    fill(arena, "a", 2)
    assert arena.victims("a", {GPU: 1}, priority=1) == [("a1", OWN)]
    assert arena.victims("a", {GPU: 1}) == []
    assert arena.victims("a", {GPU: 3}, priority=1) == []


def test_a_borrower_in_a_cohort_that_does_not_borrow_is_no_candidate_from_outside() -> None:
    arena = Arena(
        cohort("root"),
        cohort("right", "root", {GPU: 1}),
        queue("a", "root", {GPU: 5}, weight=10000),
        queue("b", "right", weight=100),
    )
    fill(arena, "a", 3, priority=-1)
    fill(arena, "b", 1, priority=-1)
    assert arena.victims("a", {GPU: 5}) == [("a1", OWN), ("a2", OWN), ("a3", OWN)]


def test_between_cohorts_the_shares_of_the_cohorts_decide() -> None:
    arena = Arena(
        cohort("root", None, {GPU: 10}),
        cohort("left", "root"),
        cohort("right", "root"),
        *(queue(name, "left") for name in ("l1", "l2")),
        queue("r", "right"),
    )
    for number in range(4):
        arena.hold(f"l1-{number}", "l1", {GPU: 1})
        arena.hold(f"r-{number}", "r", {GPU: 1})
    arena.hold("l2-0", "l2", {GPU: 2})
    # The left cohort uses 6 of 10: with one more it exceeds the right one, but l2 uses less than l1.
    assert arena.victims("l2", {GPU: 1}) == [("l1-0", FAIR)]
    # The right cohort may preempt one workload of the left one, in its queue with the largest share.
    assert arena.victims("r", {GPU: 1}) == [("l1-0", FAIR)]


def test_at_equal_shares_a_cohort_precedes_a_queue_and_the_latest_admission_comes_first() -> None:
    arena = Arena(
        cohort("all", None, {GPU: 6}),
        cohort("inner", "all"),
        queue("x", "inner"),
        queue("y", "all"),
        queue("z", "all"),
        queue("own", "all", {GPU: 1}),
    )
    arena.hold("in-x", "x", {GPU: 2})
    arena.hold("in-y", "y", {GPU: 2}, at=1)
    arena.hold("in-z", "z", {GPU: 2}, at=2)
    arena.hold("debt", "own", {GPU: 1}, priority=9)
    assert arena.victims("own", {GPU: 1}) == [("in-x", FAIR)]
    del arena.holders["x"]
    assert arena.victims("own", {GPU: 1}) == [("in-z", FAIR)]


def test_policy_and_protection_restrict_the_candidates() -> None:
    arena = three()
    fill(arena, "a", 6, at=3599)
    fill(arena, "b", 3)
    never = Preemption(reclaim_within_cohort=PreemptionPolicy.NEVER)
    lower = Preemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    safe = Preemption(min_run_time=MinRunTime(in_cohort_reclamation=2))
    assert arena.victims("c", {GPU: 1}, preemption=never) == []
    assert arena.victims("c", {GPU: 1}, preemption=lower) == []
    assert arena.victims("c", {GPU: 1}, preemption=lower, priority=1) == [("a1", RECLAIM)]
    assert arena.victims("c", {GPU: 1}, theirs=safe) == []


def test_an_error_during_the_search_leaves_the_tree_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = three()
    fill(arena, "a", 6)
    fill(arena, "b", 3)
    contest = arena.contest("c", {GPU: 3})
    before = usages(arena.tree)
    calls = iter([False, False])
    monkeypatch.setattr(PreemptionSearch, "fits", lambda *_, **__: next(calls))
    with pytest.raises((StopIteration, RuntimeError)):
        fair_victims(contest, STRATEGIES)
    assert usages(arena.tree) == before


HOLDERS = st.lists(st.tuples(st.sampled_from(QUEUES), REQUEST, st.integers(-1, 1)), max_size=14)
POLICIES = st.builds(
    Preemption,
    within_cluster_queue=st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY]),
    reclaim_within_cohort=st.sampled_from(
        [PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY, PreemptionPolicy.ANY]
    ),
)


@given(
    forests(),
    HOLDERS,
    st.sampled_from(QUEUES),
    REQUEST,
    POLICIES,
    st.sampled_from([STRATEGIES, STRATEGIES[:1], STRATEGIES[1:]]),
)
def test_the_victims_equal_those_of_the_slow_reference(
    tree: QuotaTree,
    holders: list[tuple[str, dict[str, int], int]],
    name: str,
    amounts: dict[str, int],
    preemption: Preemption,
    strategies: tuple[PreemptionStrategy, ...],
) -> None:
    arena = Arena()
    arena.tree = tree
    for number, (at, held, priority) in enumerate(holders):
        arena.hold(f"w{number}", at, held, priority=priority, at=number % 3)
    contest = partial(
        arena.contest, name, amounts, preemption=preemption, strategies=strategies, contested=NAMES
    )
    if not contest().fits():
        before = usages(tree)
        expected = Slow(contest()).search(strategies)
        assert usages(tree) == before
        found = arena.victims(name, amounts, preemption=preemption, strategies=strategies, contested=NAMES)
        assert found == expected
