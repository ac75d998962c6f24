"""Which pods belong to the workload that their label names (docs/scheduling.md, M21)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Decision, Evict, PodOwnerToRead, Release, Retire, Shrink
from queuectl.core.model.events import PodGone, PodObserved, PodOwnerRead, PodsCounted
from queuectl.core.model.pods import Pod, PodOwner
from queuectl.core.model.policy import NodeRules, SchedulingConfiguration
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import Workload, WorkloadId, WorkloadOutcome
from tests.builders import GPU, admitted, observed
from tests.doubles import engine_state
from tests.unit.core.node_worlds import NodeWorld, gang, node

SETTINGS = SchedulingConfiguration(cooldown=0, nodes=NodeRules(settle_seconds=0))
JOB = PodOwner("batch/v1", "Job", "gang-workers-0", "uid-of-job")
NONE = PodOwner("", "", "", "")
GANG = WorkloadId("uid-gang")


def world() -> NodeWorld:
    return NodeWorld(*(node(f"n{number}", 2) for number in range(4)), settings=SETTINGS)


def runs(found: NodeWorld, name: str, *where: str) -> Workload:
    one = gang(name, len(where))
    assert admitted(found.asks(one)) == [name]
    found.settle()
    found.tell(observed(one, suspended=False, generation=2))
    return one


def pod(uid: str, where: str | None, owner: PodOwner | None, **fields: Any) -> Pod:
    named = {"namespace": "ns", "workload": GANG, **fields}
    return Pod(uid=uid, name=uid, node=where, requests=amounts({GPU: 1}), owner=owner, **named)


def evicted(decisions: list[Decision]) -> list[str]:
    return [d.ref.name for d in decisions if isinstance(d, Evict)]


def reads(found: NodeWorld) -> list[PodOwner]:
    asked = [check.owner for check in found.checks if isinstance(check, PodOwnerToRead)]
    found.checks.clear()
    return asked


def bound(found: NodeWorld) -> int:
    return engine_state.entry(found.engine, GANG).bound


@pytest.mark.parametrize("belongs", [True, False])
def test_a_pod_of_an_object_in_between_counts_once_that_is_read_and_the_workload_is_above_it(
    belongs: bool,
) -> None:
    found = world()
    runs(found, "gang", "n0", "n1")
    found.tell(PodObserved(pod("a", "n0", JOB)), PodObserved(pod("b", "n1", JOB)))
    assert bound(found) == 0
    assert evicted(found.run()) == []
    assert reads(found) == [JOB], "one read for all its pods"
    found.tell(
        PodOwnerRead(GANG, JOB.uid, belongs=belongs), PodObserved(pod("a", "n0", JOB, terminating=True))
    )
    assert bound(found) == 2 * belongs
    found.lose("n1")
    assert evicted(found.run()) == ["gang"] * belongs
    assert reads(found) == []


def test_pods_count_in_either_order_with_their_workload_and_its_namespace() -> None:
    found = world()
    found.tell(PodObserved(pod("a", "n0", None)), PodObserved(pod("x", "n1", None, namespace="evil")))
    runs(found, "gang", "n0")
    assert bound(found) == 1


def test_a_pod_without_a_controller_is_no_workloads_unless_its_kind_says_so() -> None:
    found = world()
    runs(found, "gang", "n0", "n1")
    found.tell(PodObserved(pod("a", "n0", NONE)))
    found.run()
    assert reads(found) == [NONE]
    assert bound(found) == 0
    found.tell(PodOwnerRead(GANG, "", belongs=True))
    assert bound(found) == 1


def test_a_finished_workload_keeps_its_quota_until_pods_that_its_controller_let_go_are_counted() -> None:
    found = world()
    one = runs(found, "gang", "n0", "n1")
    found.tell(PodObserved(pod("a", "n0", NONE)), PodOwnerRead(GANG, "", belongs=False))
    ended = {"suspended": False, "generation": 2, "quiet": True}
    found.tell(observed(one, reclaimable=(("main", 1),), suspended=False, generation=2))
    assert not [d for d in found.run() if isinstance(d, Shrink)]
    found.tell(observed(one, finished=WorkloadOutcome.SUCCEEDED, **ended))
    assert not [d for d in found.run() if isinstance(d, Retire)]
    found.tell(PodGone("a"))
    assert [type(d) for d in found.run()] == [Retire]


def test_what_is_read_of_owners_is_forgotten_with_the_last_pod() -> None:
    found = world()
    runs(found, "gang", "n0", "n1")
    found.tell(PodObserved(pod("a", "n0", JOB)))
    found.run()
    found.tell(PodOwnerRead(GANG, JOB.uid, belongs=True), PodGone("a"))
    found.tell(PodOwnerRead(GANG, JOB.uid, belongs=True))
    owners = found.engine.features.ownership.pod_owners
    assert (owners._labelled, owners._by_uid, owners._doubtful) == ({}, {}, {})
    assert not found.engine.due


# --- pods of no workload decide nothing about one

FORGED = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["ns", "evil"]),
        st.sampled_from(["n0", "n1", "n2", "n3", "gone", None]),
        st.sampled_from([None, NONE, JOB, replace(JOB, uid="other")]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


@given(FORGED, st.integers(0, 3), st.booleans(), st.booleans())
def test_forged_pods_change_no_decision_about_a_workload_that_they_do_not_belong_to(
    forged: list[tuple[Any, ...]], lost: int, hold: bool, answered: bool
) -> None:
    """Whatever label, namespace, node and owner they have. The devices that they take are not compared."""
    decided: list[list[tuple[str, str]]] = []
    for attacked in (False, True):
        found = world()
        one = runs(found, "gang", "n0", "n1")
        found.bind("gang", "n0", "n1")
        for uid, namespace, where, owner, terminating, gone in forged if attacked else ():
            made = pod(uid, where, owner, namespace=namespace, terminating=terminating)
            if owner is None and namespace == "ns":
                made = replace(made, owner=NONE)  # the controller of `gang` makes no such pod
            made = replace(made, requests=())
            found.tell(PodGone(uid) if gone else PodObserved(made))
            found.tell(*(PodOwnerRead(GANG, each.uid, belongs=False) for each in reads(found) if answered))
        made_of = [(type(d).__name__, d.reason.message) for d in found.run() if isinstance(d, Evict)]
        found.lose(f"n{lost}")
        made_of += [(type(d).__name__, d.reason.message) for d in found.run() if isinstance(d, Evict)]
        found.pass_time(200)
        made_of += [(type(d).__name__, d.reason.message) for d in found.run() if isinstance(d, Evict)]
        found.tell(observed(replace(one, hold=hold), suspended=False, generation=2))
        decisions = found.run()
        made_of += [(type(d).__name__, d.reason.message) for d in decisions if isinstance(d, Evict)]
        found.end_pods("gang", 2)
        found.settle(generation=3)
        decisions = found.run()
        found.tell(PodsCounted(GANG, 1, alive=False))
        decisions += found.run()
        made_of += [(type(d).__name__, d.detail) for d in decisions if isinstance(d, Release)]
        decided.append(made_of)
    assert decided[0] == decided[1]
