"""Pods of a StatefulSet that has the number of their group: as one workload, and when it is scaled."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuectl.changes.submit import submissions
from queuectl.core.model.events import Event, WorkloadObserved
from queuectl.core.model.reasons import Code
from queuectl.kinds.group_owners import GROUP_OWNERS, Replicas, owner_of
from queuectl.kinds.pod_group import POD_GROUP, Unit, recorded_most, units
from queuectl.kinds.pod_group_members import member
from queuectl.kinds.sample import as_created
from queuectl.kinds.single_pod import POD
from queuectl.kube.pod_groups import PodGroups
from tests.unit.api.canned import workload
from tests.unit.kinds.test_pod_group import KINDS, SIZE, pod, started

Json = dict[str, Any]
_STATEFUL_SET = GROUP_OWNERS["StatefulSet"]


def replica(ordinal: int, *, cpu: str = "1", uid: str = "") -> Json:
    name = f"server-{ordinal}"
    obj = pod(name, group="server", cpu=cpu, labels={"apps.kubernetes.io/pod-index": str(ordinal)})
    obj["metadata"]["uid"] = uid or f"uid-{name}"
    del obj["metadata"]["annotations"][SIZE]
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "server", "uid": "s", "controller": True}
    ]
    return obj


def stateful_set(replicas: object, version: int = 8) -> Json:
    metadata = {"name": "server", "namespace": "team-a", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def of(replicas: int, pods: Sequence[Json], known: Sequence[str] = ()) -> list[Unit]:
    return units(map(member, pods), known=known, owner=Replicas(replicas))


def names(unit: Unit) -> list[str]:
    return [one.name for one in (*unit.started, *unit.held)]


def running(replicas: int, pods: Sequence[Json] | None = None) -> list[Json]:
    """All of them run, started by one start."""
    there = list(pods) if pods is not None else [replica(number) for number in range(replicas)]
    return started(there, unit=of(replicas, there)[0])


class Watched:
    """The groups of a controller."""

    def __init__(self) -> None:
        self.groups = PodGroups(POD_GROUP)
        self.version = 20

    def scaled(self, replicas: object) -> list[Event]:
        self.version += 1
        self.groups.observe_owner(_STATEFUL_SET, stateful_set(replicas, self.version))
        return self.groups.take(16)

    def there(self, *pods: Json) -> list[Event]:
        for one in pods:
            self.groups.observe(one)
        return self.groups.take(16)

    def gone(self, one: Json) -> list[Event]:
        self.version += 1
        self.groups.forget(one["metadata"]["uid"], str(self.version))
        return self.groups.take(16)


def total(event: Event) -> int:
    """How many pods it may have."""
    assert isinstance(event, WorkloadObserved)
    ended = sum(count for _, count in event.observation.reclaimable)
    return sum(one.count for one in event.workload.pod_sets) - ended


def test_its_first_pod_waits_for_the_quota_of_all_replicas() -> None:
    """In order, its controller creates the next pod when the last one is ready."""
    watched = Watched()
    (event,) = watched.there(replica(0))
    assert isinstance(event, WorkloadObserved)
    problem = event.workload.problem
    assert problem is not None
    assert problem.code is Code.PENDING_EVALUATION
    assert problem.detail == "StatefulSet server, which has the number of the pods of the group, was not read"
    (event,) = watched.scaled(4)
    assert total(event) == 4
    assert isinstance(event, WorkloadObserved)
    assert event.workload.problem is None
    assert watched.scaled(4) == []  # its status has changed
    (event,) = watched.scaled(2)
    assert total(event) == 2
    (event,) = watched.scaled(1001)
    assert isinstance(event, WorkloadObserved)
    assert "1001 is more than 1000" in str(event.workload.problem)


def test_the_pods_that_come_later_take_the_places_that_were_charged() -> None:
    first = running(3, [replica(0)])
    (unit,) = of(3, first)
    assert sum(unit.counts.values()) == 3
    assert unit.missing == "server-1, server-2"
    (unit,) = of(3, [*first, replica(1)])
    assert [one.name for one in unit.held] == ["server-1"]


def test_the_pods_of_a_scale_up_are_workloads_of_their_own() -> None:
    pods = [*running(2), replica(2), replica(3)]
    base, *others = of(4, pods)
    assert names(base) == ["server-0", "server-1"]
    assert [(one.id, names(one), one.beside, one.size) for one in others] == [
        ("uid-server-2", ["server-2"], False, 1),
        ("uid-server-3", ["server-3"], False, 1),
    ]
    for one in others:
        one.check()


def test_a_change_of_one_pod_says_nothing_about_workloads_of_others() -> None:
    watched = Watched()
    watched.scaled(4)
    pods = [*running(2), replica(2), replica(3)]
    assert len(watched.there(*pods)) == 3
    pods[3]["metadata"] |= {"resourceVersion": "30", "annotations": {"queuectl.dev/hold": "true"}}
    (event,) = watched.there(pods[3])
    assert isinstance(event, WorkloadObserved)
    assert event.workload.id == "uid-server-3"
    assert watched.groups.present() == {"uid-server-0", "uid-server-2", "uid-server-3"}


def test_places_that_were_given_up_are_not_taken_again() -> None:
    """Scaled down and up again, in whichever order the watches tell it."""
    for first in ("pod", "set"):
        watched = Watched()
        watched.scaled(3)
        pods = running(3)
        watched.there(*pods)
        (event,) = (
            watched.gone(pods[2]) if first == "pod" else [*watched.scaled(2), *watched.gone(pods[2])][-1:]
        )
        assert total(event) == (3 if first == "pod" else 2)
        if first == "pod":
            (event,) = watched.scaled(2)
            assert total(event) == 2
        again = replica(2, uid="again")
        found = [*watched.scaled(3), *watched.there(again)]
        last = {one.workload.id: total(one) for one in found if isinstance(one, WorkloadObserved)}
        assert last == {"again": 1}  # and nothing new of the others


def test_the_ledger_has_the_places_that_a_group_may_still_fill() -> None:
    group = workload("server", arrival=1, kind="PodGroup", gpus=2)
    assert group.attempt is not None
    (pods,) = group.attempt.assignment.pod_sets
    assignment = replace(group.attempt.assignment, pod_sets=(replace(pods, ended=("one",)),))
    group = replace(group, attempt=replace(group.attempt, assignment=assignment))
    waits = workload("waits", arrival=2, kind="PodGroup")
    assert recorded_most([group, waits, workload("job", arrival=3, gpus=1)]) == {group.id: {"main": 3}}


def test_a_place_is_kept_for_a_pod_that_comes_again() -> None:
    watched = Watched()
    watched.scaled(3)
    pods = running(3)
    watched.there(*pods)
    (event,) = watched.gone(pods[1])
    assert total(event) == 3
    (event,) = watched.there(replica(1, uid="again"))
    assert isinstance(event, WorkloadObserved)
    assert event.observation.unstarted
    assert total(event) == 3


def test_a_pod_with_a_workload_of_its_own_does_not_take_a_place_of_the_others() -> None:
    pods = [*running(2), replica(2)]
    lost = [pods[0], pods[2]]
    base, other = of(3, lost, known=["uid-server-0", "uid-server-2"])
    assert (names(base), names(other)) == (["server-0"], ["server-2"])
    base, other = of(3, [*lost, replica(1, uid="again")], known=["uid-server-0", "uid-server-2"])
    assert [one.uid for one in base.held] == ["again"]
    (base, *_) = of(3, [*lost, replica(1, uid="again")], known=["uid-server-0"])
    assert [one.uid for one in base.held] == ["again"]  # by its ordinal


def test_a_start_that_was_interrupted_goes_on_with_the_pod_that_gave_it_its_id() -> None:
    pods = [replica(number) for number in range(3)]
    unit = of(3, pods)[0]
    reordered = Unit(unit.id, (), (unit.held[2], unit.held[0], unit.held[1]), replicas=3)
    started(pods, unit=reordered, count=1)
    (unit,) = of(3, pods, known=["uid-server-0"])
    assert (unit.id, len(unit.started), len(unit.held)) == ("uid-server-0", 1, 2)


def test_a_rollout_to_pods_of_another_shape_gives_each_the_quota_of_the_one_before() -> None:
    watched = Watched()
    watched.scaled(2)
    pods = running(2)
    watched.there(*pods)
    watched.gone(pods[1])
    new = replica(1, cpu="2", uid="new")
    base, other = watched.there(new)
    assert (total(base), total(other)) == (1, 1)
    assert isinstance(other, WorkloadObserved)
    assert other.workload.problem is None
    # The last one, which has the lowest ordinal, as well.
    running_now = started([new], unit=of(2, [pods[0], new])[1])
    watched.there(*running_now)
    watched.gone(pods[0])
    *_, last = watched.there(replica(0, cpu="2", uid="last"))
    assert isinstance(last, WorkloadObserved)
    assert (last.workload.id, total(last), last.workload.problem) == ("last", 1, None)


def test_after_a_stop_all_are_one_workload_again() -> None:
    pods = running(3)
    for one in pods:
        one["metadata"]["deletionTimestamp"] = "2026-11-27T08:00:00Z"
    single = running(1, [replica(3)])
    waits = [replica(number, uid=f"again-{number}") for number in range(2)]
    *_, unit = of(4, [*pods, *single, *waits])
    assert (names(unit), len(unit.to_come), unit.size) == (["server-0", "server-1"], 1, 3)
    *_, unit = of(3, [*pods, *waits])
    assert unit.size == 3


def test_more_pods_than_replicas_wait_until_they_are_deleted() -> None:
    pods = [replica(number) for number in range(3)]
    unit, excess = of(2, pods)
    assert (names(unit), names(excess), excess.beside) == (["server-0", "server-1"], ["server-2"], True)
    (excess,) = of(0, pods)
    assert excess.beside


def test_ordinals_and_not_names_say_the_order() -> None:
    pods = [replica(number) for number in (10, 2, 0)]
    (unit,) = of(12, pods)
    assert names(unit) == ["server-0", "server-2", "server-10"]
    assert (unit.size, unit.id) == (12, "uid-server-0")


@pytest.mark.parametrize("replicas", [-1, "3", None, True])
def test_a_malformed_number_of_replicas_says_nothing(replicas: object) -> None:
    watched = Watched()
    (event,) = watched.there(replica(0))
    assert watched.scaled(replicas) == []
    assert isinstance(event, WorkloadObserved)
    assert event.workload.problem is not None


def test_the_annotation_of_a_pod_and_its_leaderworkerset_come_first() -> None:
    one = replica(0)
    assert owner_of([one]) == ("StatefulSet", "server")
    noted = copy.deepcopy(one)
    noted["metadata"]["annotations"][SIZE] = "2"
    assert owner_of([noted]) is None
    noted["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/name"] = "set"
    assert owner_of([noted]) == ("LeaderWorkerSet", "set")
    assert owner_of([pod("a")]) is None


@pytest.mark.parametrize(("annotations", "count"), [({}, 3), ({SIZE: "4"}, 4)])
def test_a_quote_is_for_all_its_pods(annotations: dict[str, str], count: int) -> None:
    template = replica(0)
    template["metadata"] = {"labels": template["metadata"]["labels"], "annotations": annotations}
    spec = {"replicas": 3, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "server"}, "spec": spec}
    (one,) = submissions(
        json.dumps(body).encode(), "f", kinds=KINDS, queue=None, priority=None, given=None, default="team-a"
    )
    assert one.owner == "StatefulSet server, of 3 pods"
    assert sum(pods.count for pods in as_created(POD, one.object).pod_sets) == count
