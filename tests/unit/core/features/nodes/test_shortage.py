"""Quota while nodes have less than is promised, and the warnings about it (docs/scheduling.md, M11, M15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Evict
from queuectl.core.features.nodes.capacity import told_capacities
from queuectl.core.model.events import ContextObserved, PolicyGone
from queuectl.core.model.policy import (
    CapacityMode,
    CapacityShortage,
    ClusterQueue,
    Cohort,
    FlavorNodes,
    FlavorQuotas,
    NodeRules,
    Policy,
    Preemption,
    PreemptionPolicy,
    ResourceGroup,
    ResourceQuota,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import Code, Limit
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ConfigKey
from queuectl.core.quota.shortage import promised, share_out
from queuectl.core.quota.tree import QuotaTree
from queuectl.core.reports import ClusterQueueReport, ReportBuilder
from tests.builders import GPU, T0, admitted, flavor, group, local_queue, policy, queue
from tests.doubles import engine_state
from tests.unit.core.node_worlds import NodeWorld, gang, node, reasons

CELL = FlavorResource("default", GPU)
PRO_RATA = CapacityShortage.PRO_RATA
ALL = Cohort(name="all", shortage=PRO_RATA)
ANY = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
NODES = (node("n1", 8), node("n2", 8))


def queues(preemption: Preemption = ANY) -> list[Policy]:
    """Two ClusterQueues of one cohort with a nominal quota of 8 each, and 16 devices for both."""
    return [
        flavor("default"),
        *(queue(name, 8, cohort="all", preemption=preemption) for name in "ab"),
        *(local_queue(name, name) for name in "ab"),
    ]


def world(
    *more: Policy, nodes: Sequence[Any] = NODES, settings: SchedulingConfiguration | None = None
) -> NodeWorld:
    return NodeWorld(*nodes, policies=[*queues(), *more], settings=settings)


def fill(made: NodeWorld) -> None:
    """Queue a runs eight pods on n2, each of a workload of its own."""
    for number in range(8):
        assert admitted(made.asks(gang(f"a{number}", 1, queue="a", created=number))) == [f"a{number}"]
        made.bind(f"a{number}", "n2")
    made.settle()


def report(made: NodeWorld, name: str) -> ClusterQueueReport:
    return ReportBuilder(engine_state.state(made.engine)).cluster_queue(name)


def counts(made: NodeWorld) -> dict[str, int]:
    """What counts of the nominal quota of each ClusterQueue."""
    tree = engine_state.tree(made.engine)
    return {name: tree.queue(name).nominal[tree.cell(CELL)] for name in sorted(tree.queue_names())}


def test_quota_counts_in_full_while_nodes_have_what_is_promised() -> None:
    made = world(ALL)
    assert counts(made) == {"a": 8, "b": 8}
    assert (report(made, "a").reduced, report(made, "a").warnings) == ((), ())


def test_quota_counts_pro_rata_while_a_node_is_missing_and_in_full_when_it_returns() -> None:
    made = world(ALL)
    made.lose("n1")
    assert counts(made) == {"a": 4, "b": 4}
    assert report(made, "a").reduced == ((CELL, 4),)
    made.nodes(node("n1", 8))
    assert counts(made) == {"a": 8, "b": 8}


@pytest.mark.parametrize(
    "unusable",
    [{"ready": False}, {"cordoned": True}, {"conditions": [("Broken", "True")]}, {"gpus": 0}],
    ids=["not ready", "cordoned", "unhealthy", "without devices"],
)
def test_nodes_that_are_no_capacity_do_not_count(unusable: dict[str, Any]) -> None:
    rules = NodeRules(unusable_conditions=(("Broken", "True"),))
    made = world(ALL, settings=SchedulingConfiguration(nodes=rules))
    made.nodes(node("n1", **unusable))
    assert counts(made) == {"a": 4, "b": 4}


def test_a_node_that_was_lost_counts_again_only_when_it_has_settled() -> None:
    made = world(ALL)
    made.nodes(node("n1", ready=False))
    made.pass_time(60)
    old = T0 - timedelta(days=1)
    made.nodes(replace(node("n1"), ready_since=made.now, created_at=old))
    assert counts(made) == {"a": 4, "b": 4}
    made.pass_time(29)
    assert counts(made) == {"a": 4, "b": 4}
    made.pass_time(1)
    assert counts(made) == {"a": 8, "b": 8}


def test_headroom_is_no_capacity_that_quota_counts_by() -> None:
    made = world(ALL)
    made.tell(policy(replace(flavor("default"), nodes=FlavorNodes(headroom=((GPU, 4),)))))
    assert counts(made) == {"a": 6, "b": 6}


@pytest.mark.parametrize("mode", [CapacityMode.STATIC, CapacityMode.OBSERVE, CapacityMode.ELASTIC])
def test_nodes_that_limit_nothing_reduce_no_quota(mode: CapacityMode) -> None:
    made = world(ALL)
    made.lose("n1")
    made.tell(policy(replace(flavor("default"), nodes=FlavorNodes(mode=mode))))
    assert counts(made) == {"a": 8, "b": 8}


def test_an_empty_list_of_nodes_reduces_no_quota() -> None:
    made = world(ALL)
    made.lose("n1")
    made.lose("n2")
    assert counts(made) == {"a": 8, "b": 8}


def test_the_quota_of_other_trees_is_promised_too_and_counts_by_the_rule_of_its_own_root() -> None:
    made = world(ALL, queue("alone", 16), nodes=[*NODES])
    assert counts(made) == {"a": 4, "alone": 16, "b": 4}


def test_a_cohort_without_the_rule_and_a_rule_below_the_root_reduce_nothing() -> None:
    made = world(Cohort(name="all"))
    made.lose("n1")
    assert counts(made) == {"a": 8, "b": 8}
    made.tell(policy(replace(ALL, parent="top")))
    assert counts(made) == {"a": 8, "b": 8}
    made.tell(policy(ALL))
    assert counts(made) == {"a": 4, "b": 4}


def test_quota_counts_in_full_again_when_the_rule_or_its_cohort_is_gone() -> None:
    for event in (policy(Cohort(name="all")), PolicyGone(ConfigKey("Cohort", "", "all"))):
        made = world(ALL)
        made.lose("n1")
        assert counts(made) == {"a": 4, "b": 4}
        made.tell(event)
        assert counts(made) == {"a": 8, "b": 8}


def test_queues_below_a_cohort_that_moves_to_another_tree_count_by_the_rule_of_that() -> None:
    made = world(ALL, Cohort(name="mid", parent="all"), queue("c", 16, cohort="mid"))
    assert counts(made) == {"a": 4, "b": 4, "c": 8}
    made.tell(policy(Cohort(name="mid", parent="other")), PolicyGone(ConfigKey("Cohort", "", "all")))
    assert counts(made) == {"a": 8, "b": 8, "c": 16}


def test_a_shortage_evicts_nothing_by_itself() -> None:
    made = world(ALL)
    fill(made)
    made.lose("n1")
    assert [one for one in made.run() if isinstance(one, Evict)] == []
    assert counts(made) == {"a": 4, "b": 4}


def test_what_is_in_use_above_the_reduced_quota_is_reclaimed_by_the_policy_of_the_other_queue() -> None:
    made = world(ALL)
    fill(made)
    made.lose("n1")
    made.run()
    evicted = [one.ref.name for one in made.asks(gang("b", 4, queue="b")) if isinstance(one, Evict)]
    assert len(evicted) == 4
    assert counts(made) == {"a": 4, "b": 4}
    made = world(ALL)
    fill(made)
    made.lose("n1")
    made.run()
    assert [one for one in made.asks(gang("b", 5, queue="b")) if isinstance(one, Evict)] == []


def test_without_such_a_policy_nothing_is_reclaimed() -> None:
    made = NodeWorld(*NODES, policies=[*queues(Preemption()), ALL])
    fill(made)
    made.lose("n1")
    decisions = made.asks(gang("b", 4, queue="b"))
    assert [one for one in decisions if isinstance(one, Evict)] == []
    assert reasons(decisions)["b"].code is Code.WAITING_FOR_QUOTA
    assert reasons(decisions)["b"].limit is Limit.CAPACITY_SHORTAGE


def test_by_priority_the_quota_stays_and_room_decides() -> None:
    made = world(Cohort(name="all"))
    fill(made)
    made.lose("n1")
    decisions = made.asks(gang("b", 4, queue="b"))
    assert [one for one in decisions if isinstance(one, Evict)] == []
    assert reasons(decisions)["b"].code is Code.CAPACITY_MISSING


def test_what_never_fits_now_says_what_reduced_the_quota_and_is_admitted_when_nodes_return() -> None:
    made = world(ALL)
    made.lose("n1")
    waits = reasons(made.asks(gang("wide", 12, queue="a")))["wide"]
    assert waits.message == (
        "ExceedsMaxQuota: requests 12 nvidia.com/gpu in flavor default, at most 8 now, short by 4 "
        "(bound by capacityShortage of Cohort/all)"
    )
    made.nodes(node("n1", 8))
    assert admitted(made.run()) == ["wide"]


def test_queues_whose_quota_or_warnings_change_are_reported() -> None:
    made = world(ALL)
    made.engine.take_reports()
    made.lose("n1")
    _, found, _ = made.engine.take_reports()
    assert {one.name: one.reduced for one in found} == {"a": ((CELL, 4),), "b": ((CELL, 4),)}
    told = "16 nvidia.com/gpu of default are promised, usable nodes have 8"
    assert [[w.message for w in one.warnings] for one in found] == [[told], [told]]
    assert made.engine.take_reports()[1] == []


# --- warnings


def warned(*policies: Policy, nodes: Sequence[Any] = NODES) -> list[str]:
    made = NodeWorld(*nodes, policies=policies)
    return [one.message for one in made.engine.cluster_report().warnings]


A100 = flavor("a100", {"gpu": "a100"})


def limited(mode: CapacityMode | None = None, **modes: CapacityMode) -> Policy:
    return replace(A100, nodes=FlavorNodes(mode=mode, modes=tuple(modes.items())))


def quota(**amounts: int) -> Policy:
    names = {"gpus": GPU}
    return queue("cq", groups=[group({"a100": {names.get(k, k): v for k, v in amounts.items()}})])


LABELLED = [node("n", 8, {"gpu": "a100"})]


@pytest.mark.parametrize(
    ("policies", "nodes", "told"),
    [
        ((A100, quota(gpus=8)), LABELLED, []),
        (
            (A100, quota(gpus=9)),
            LABELLED,
            ["9 nvidia.com/gpu of a100 are promised, usable nodes have 8"],
        ),
        ((A100, quota(cpu=65_000)), LABELLED, ["65 cpu of a100 are promised, usable nodes have 64"]),
        ((limited(CapacityMode.STATIC), quota(gpus=9)), LABELLED, []),
        ((limited(CapacityMode.ELASTIC), quota(gpus=9)), LABELLED, []),
        ((A100, quota(licenses=9)), LABELLED, []),
        (
            (limited(licenses=CapacityMode.ENFORCE), quota(licenses=9)),
            LABELLED,
            ["9 licenses of a100 are promised, usable nodes have 0"],
        ),
        ((A100, quota(gpus=9)), NODES, ["2 nodes have the labels of no ResourceFlavor"]),
        (
            (limited(CapacityMode.ENFORCE), quota(gpus=9)),
            NODES[:1],
            [
                "no node has the labels of ResourceFlavor a100",
                "1 node has the labels of no ResourceFlavor",
            ],
        ),
        ((limited(CapacityMode.ENFORCE), quota(gpus=9)), (), []),
    ],
    ids=[
        "enough nodes",
        "more quota than devices",
        "more quota than cores, which are observed",
        "static",
        "elastic",
        "a resource that nodes do not have",
        "a resource that nodes must have",
        "a flavor by default without nodes",
        "a flavor that needs nodes without any",
        "no node known",
    ],
)
def test_warnings_name_flavor_resource_and_numbers(
    policies: tuple[Policy, ...], nodes: Sequence[Any], told: list[str]
) -> None:
    assert warned(*policies, nodes=nodes) == told


def test_a_queue_is_warned_about_what_it_has_quota_for_and_not_about_the_rest() -> None:
    made = NodeWorld(*LABELLED, policies=[A100, flavor("any"), quota(cpu=1000), queue("other", 1)])
    made.tell(policy(queue("wide", groups=[group({"a100": {GPU: 9}})])))
    assert [one.code.value for one in made.engine.cluster_report().warnings] == ["QuotaBeyondNodes"]
    assert report(made, "cq").warnings == ()
    assert len(report(made, "wide").warnings) == 1


ONE_LOST = [*LABELLED, node("m", 8, {"gpu": "a100"}, ready=False)]


@pytest.mark.parametrize("nodes", [(), LABELLED, ONE_LOST, NODES])
@pytest.mark.parametrize("mode", [None, *CapacityMode])
def test_readers_compare_quota_with_the_same_capacity(
    mode: CapacityMode | None, nodes: Sequence[Any]
) -> None:
    rules = FlavorNodes(mode=mode, headroom=((GPU, 3),))
    policies = [replace(A100, nodes=rules), flavor("any"), quota(gpus=9, cpu=1, licenses=1)]
    made = NodeWorld(*nodes, policies=policies)
    state, told = engine_state.state(made.engine), made.engine.features.nodes.take_capacities()
    assert told is not None
    found, total = told_capacities(told, state.directory.flavors), promised(state.tree)
    assert {
        cell: one for cell, one in found.items() if cell in total
    } == made.engine.features.nodes.room.capacities(total)


# --- properties


@st.composite
def trees(draw: st.DrawFn) -> list[Cohort | ClusterQueue]:
    """Cohorts, some of them roots with the rule, and queues below and beside them."""
    cells = st.fixed_dictionaries({name: st.integers(0, 20) for name in ("x", "y")})

    def quotas(lends: bool) -> tuple[ResourceGroup, ...]:
        amounts = draw(cells)
        flavors = tuple(
            FlavorQuotas(
                name=name,
                resources=(
                    (
                        GPU,
                        ResourceQuota(
                            nominal=amount,
                            borrowing_limit=draw(st.none() | st.integers(0, 9)) if lends else None,
                            lending_limit=draw(st.none() | st.integers(0, amount)) if lends else None,
                        ),
                    ),
                ),
            )
            for name, amount in amounts.items()
        )
        return (ResourceGroup(covered=(GPU,), flavors=flavors),)

    found: list[Cohort | ClusterQueue] = [
        Cohort(
            name="top",
            resource_groups=quotas(False),
            shortage=draw(st.sampled_from([PRO_RATA, CapacityShortage.BY_PRIORITY])),
        ),
        Cohort(name="mid", parent="top", resource_groups=quotas(True)),
        Cohort(name="root", resource_groups=quotas(False), shortage=PRO_RATA),
    ]
    for number in range(draw(st.integers(1, 6))):
        cohort = draw(st.sampled_from(["top", "mid", "root", None]))
        found.append(
            ClusterQueue(name=f"q{number}", cohort=cohort, resource_groups=quotas(cohort is not None))
        )
    return found


CAPACITY = st.dictionaries(
    st.sampled_from([FlavorResource("x", GPU), FlavorResource("y", GPU)]), st.integers(0, 99)
)


def built(policies: Sequence[Cohort | ClusterQueue]) -> QuotaTree:
    tree = QuotaTree()
    for one in policies:
        if isinstance(one, Cohort):
            tree.set_cohort(one)
        else:
            tree.set_queue(one)
    return tree


def amounts(tree: QuotaTree) -> dict[tuple[str, FlavorResource], tuple[int, ...]]:
    return {
        (str(one), name): (
            one.promised[cell],
            one.nominal[cell],
            one.subtree[cell],
            one.private[cell],
            one.usage[cell],
        )
        for one in tree.nodes()
        for name, cell in tree.cells.items()
    }


@given(trees(), CAPACITY, st.data())
def test_reduced_quotas_never_exceed_the_capacity_and_are_restored_exactly(
    policies: list[Cohort | ClusterQueue], capacity: dict[FlavorResource, int], data: st.DataObject
) -> None:
    tree = built(policies)
    for one in policies:
        if isinstance(one, ClusterQueue):
            used = data.draw(st.integers(0, 30))
            tree.add(tree.queue(one.name), tree.numbered({FlavorResource("x", GPU): used}))
    before = amounts(tree)
    share_out(tree, capacity)
    total = {name: sum(one.promised[cell] for one in tree.nodes()) for name, cell in tree.cells.items()}
    for name, cell in tree.cells.items():
        there = capacity.get(name)
        short = there is not None and there < total[name]
        reducing = [one for one in tree.nodes() if tree.root(one).shortage is PRO_RATA]
        for at in tree.nodes():
            reduced = short and at in reducing
            counts = at.promised[cell] * (there or 0) // total[name] if reduced else at.promised[cell]
            assert at.nominal[cell] == counts
            assert at.usage[cell] >= 0
        if there is not None:
            assert sum(one.nominal[cell] for one in reducing) <= there
    shuffled = built(data.draw(st.permutations(policies)))
    share_out(shuffled, {})
    share_out(shuffled, capacity)
    assert {key: found[:4] for key, found in amounts(shuffled).items()} == {
        key: found[:4] for key, found in amounts(tree).items()
    }
    share_out(tree, {})
    assert amounts(tree) == before
    assert not tree.reduced


@given(st.permutations(range(4)))
def test_the_same_nodes_in_another_order_make_the_same_quotas(order: list[int]) -> None:
    made = world(ALL, queue("alone", 5), nodes=())
    events = [node("n1", 3), node("n2", 8, cordoned=True), node("n3", 5), node("n4", 8, ready=False)]
    made.tell(*(ContextObserved(events[number]) for number in order))
    assert counts(made) == {"a": 3, "alone": 5, "b": 3}
