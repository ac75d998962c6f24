"""What a change of policy leaves alone, what it wakes, and what remains of deleted queues."""

from __future__ import annotations

from queuectl.core.model.events import PodsCounted, PolicyGone, WorkloadGone
from queuectl.core.model.policy import Cohort, Preemption, PreemptionPolicy, Taint
from queuectl.core.model.workload import ConfigKey, WorkloadId
from queuectl.core.preemption.claims import ClaimState
from tests.builders import (
    GPU,
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
from tests.doubles import engine_state

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
CACHE = "example.com/cache"


def preempting_world() -> World:
    """`mine` has preempted for a GPU of `a100` and claims the only unit of `ssd`, `theirs` waits for that."""
    gpus, units = group({"a100": {GPU: 1}}), group({"ssd": {CACHE: 1}})
    found = World(
        flavor("a100"),
        flavor("ssd"),
        queue("mine", groups=[gpus, units], cohort="tree", preemption=LOWER),
        queue("theirs", groups=[group({"ssd": {CACHE: 0}})], cohort="tree"),
        local_queue("mine", "mine"),
        local_queue("theirs", "theirs"),
    )
    found.tell(priority("low", -1))
    victim = workload("victim", "mine", priority_class="low")
    found.submit(victim)
    assert admitted(found.run()) == ["victim"]
    found.settle()
    found.tell(observed(victim, suspended=False, generation=2))
    found.submit(workload("preemptor", "mine", pods=[pod_set(1, {GPU: 1, CACHE: 1})], created=1))
    found.run()
    assert claim_state(found, "mine") is ClaimState.WAITING
    found.submit(workload("waits", "theirs", pods=[pod_set(1, {CACHE: 1})], created=2))
    assert admitted(found.run()) == []
    return found


def claim_state(world: World, queue: str) -> ClaimState | None:
    claim = engine_state.claim_of(world.engine, queue)
    return None if claim is None else claim.state


def test_a_claim_that_a_flavor_ends_wakes_what_waits_for_its_cells() -> None:
    w = preempting_world()
    w.tell(policy(flavor("a100", taints=[Taint("maintenance", "yes", "NoSchedule")])))
    assert admitted(w.run()) == ["waits"]


def test_an_edit_of_a_cohort_keeps_claims_of_other_trees() -> None:
    w = preempting_world()
    w.tell(policy(Cohort(name="other")), policy(queue("q", 1, cohort="other")))
    w.tell(policy(Cohort(name="other", weight=2000)))
    assert claim_state(w, "mine") is ClaimState.WAITING
    w.tell(PolicyGone(ConfigKey("Cohort", "", "other")))
    assert claim_state(w, "mine") is ClaimState.WAITING
    w.tell(policy(Cohort(name="tree", weight=2000)))
    assert claim_state(w, "mine") is ClaimState.FIRST
    assert not engine_state.claims(w.engine), "nothing is reserved any more"


def test_the_tree_that_a_cohort_leaves_is_requeued() -> None:
    lender = Cohort(name="lender", resource_groups=(group({"default": {GPU: 1}}),))
    w = World(
        lender,
        Cohort(name="borrower", parent="lender"),
        queue("borrows", 0, cohort="borrower"),
        queue("asks", 0, cohort="lender"),
        local_queue("borrows", "borrows"),
        local_queue("asks", "asks"),
    )
    w.submit(workload("first", "borrows"), workload("second", "asks", created=1))
    assert admitted(w.run()) == ["first"]
    w.tell(policy(Cohort(name="borrower", parent="elsewhere")))
    assert admitted(w.run()) == ["second"]


def test_a_cohort_that_closes_or_breaks_a_cycle_affects_all_queues_of_it() -> None:
    w = World(
        Cohort(name="a", parent="b"), Cohort(name="b"), queue("q", 1, cohort="a"), local_queue("lq", "q")
    )
    w.submit(workload("one"))
    w.tell(policy(Cohort(name="b", parent="a")))
    assert not engine_state.state(w.engine).directory.condition("q").active
    assert admitted(w.run()) == []
    w.tell(policy(Cohort(name="b", parent="c")))
    assert admitted(w.run()) == ["one"]


def test_nodes_cells_and_pending_queues_of_deleted_queues_are_freed() -> None:
    w = World(queue("q", 1), local_queue("lq", "q"))
    w.submit(workload("stays"), workload("waits", created=1))
    w.run()
    w.settle()
    state = engine_state.state(w.engine)
    before = sizes(w)
    for number in range(5):
        kind = f"kind{number}"
        fresh = queue(f"q{number}", groups=[group({kind: {GPU: 1}})], cohort=f"c{number}")
        w.tell(policy(flavor(kind)), policy(fresh), policy(local_queue("other", fresh.name)))
        runs = workload(f"runs{number}", "other")
        w.submit(runs, workload(f"waits{number}", "other", created=1))
        assert admitted(w.run()) == [f"runs{number}"]
        w.settle()
        w.tell(observed(runs, suspended=False, generation=2))
        for name in (f"q{number}", f"c{number}"):
            w.tell(PolicyGone(ConfigKey("ClusterQueue" if name[0] == "q" else "Cohort", "", name)))
        w.tell(
            PolicyGone(ConfigKey("LocalQueue", "ns", "other")),
            PolicyGone(ConfigKey("ResourceFlavor", "", kind)),
        )
        w.run()
        assert f"q{number}" in state.tree.queue_names(), "its workload still holds quota"
        w.tell(WorkloadGone(WorkloadId(f"uid-runs{number}")), WorkloadGone(WorkloadId(f"uid-waits{number}")))
        w.run()
        w.tell(PodsCounted(WorkloadId(f"uid-runs{number}"), 1, alive=False))
        w.run()
        assert sizes(w) == before, number
    assert len(state.tree.names) == before["cells"] + 1, "the number of a cell is used again"


def test_cells_that_an_edited_queue_no_longer_names_are_freed_when_nothing_holds_them() -> None:
    w = World(
        flavor("old"), flavor("new"), queue("q", groups=[group({"old": {GPU: 1}})]), local_queue("lq", "q")
    )
    runs = workload("runs")
    w.submit(runs)
    w.run()
    w.settle()
    w.tell(observed(runs, suspended=False, generation=2))
    w.tell(policy(queue("q", groups=[group({"new": {GPU: 1}})])))
    assert {cell.flavor for cell in engine_state.tree(w.engine).cells} == {"old", "new"}
    w.tell(WorkloadGone(WorkloadId("uid-runs")))
    w.run()
    w.tell(PodsCounted(WorkloadId("uid-runs"), 1, alive=False))
    w.run()
    assert {cell.flavor for cell in engine_state.tree(w.engine).cells} == {"new"}


def sizes(world: World) -> dict[str, int]:
    """Return how many of each kind the state has."""
    state = engine_state.state(world.engine)
    tree = state.tree
    return {
        "nodes": len(list(tree.nodes())),
        "cells": len(tree.cells),
        "pending queues": len(state.pending),
        "entries": len(state.entries),
        "members": len(state.members),
        "holders": len(state.holders),
        "due queues": len(state.due_queues),
    }
