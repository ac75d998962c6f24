"""Replicas of LeaderWorkerSets whose workers are created after the start of their leader, as pod groups."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.reasons import Code
from queuectl.kinds.group_owners import GROUP_OWNERS
from queuectl.kinds.leader_worker_set import later_workers, set_of
from queuectl.kinds.pod_group import POD_GROUP, Unit, units
from queuectl.kinds.pod_group_members import member
from queuectl.kube.pod_groups import PodGroups
from tests.unit.kinds.test_pod_group import pod, started

Json = dict[str, Any]
_LWS = GROUP_OWNERS["LeaderWorkerSet"]
_KEY = "leaderworkerset.sigs.k8s.io/"
WORKER_SPEC: Json = {
    "containers": [
        {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2000m", "nvidia.com/gpu": 8}}}
    ],
    "nodeSelector": {"zone": "a"},
}
AS_CREATED: Json = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "resources": {
                "limits": {"cpu": "2", "nvidia.com/gpu": "8"},
                "requests": {"cpu": "2", "nvidia.com/gpu": "8"},
            },
            "env": [{"name": "LWS_LEADER_ADDRESS", "value": "server-0.server"}],
        }
    ],
    "nodeSelector": {"zone": "a", "rack": "7"},
    "priority": 0,
    "tolerations": [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ],
    "schedulingGates": [{"name": "queuectl.dev/admission"}],
}
"""What the API server and the controller of LeaderWorkerSets make of it."""


def leader() -> Json:
    obj = pod("server-0", group="server-0", labels={f"{_KEY}name": "server"})
    obj["metadata"]["annotations"] |= {f"{_KEY}size": "3", f"{_KEY}exclusive-topology": "rack"}
    return obj


def worker(number: int, **spec: Any) -> Json:
    obj = leader()
    name = f"server-0-{number}"
    obj["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    obj["metadata"]["annotations"][f"{_KEY}leader-name"] = "server-0"
    obj["spec"] = copy.deepcopy(AS_CREATED) | spec
    return obj


def lws(*, size: object = 3, version: int = 8, queue: str = "main", **spec: Any) -> Json:
    template = {"metadata": {"labels": {"queuectl.dev/queue-name": queue}}, "spec": WORKER_SPEC}
    return {
        "metadata": {"name": "server", "namespace": "team-a", "resourceVersion": str(version)},
        "spec": {
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template},
            **spec,
        },
    }


def of_set(pods: list[Json], obj: Json) -> list[Unit]:
    return units(map(member, pods), owner=later_workers(obj))


def told(groups: PodGroups) -> WorkloadObserved:
    (event,) = groups.take(16)
    assert isinstance(event, WorkloadObserved)
    return event


def test_a_leader_waits_for_the_quota_of_all_pods_of_its_replica() -> None:
    groups = PodGroups(POD_GROUP)
    groups.observe(leader())
    problem = told(groups).workload.problem
    assert problem is not None
    assert problem.code is Code.PENDING_EVALUATION
    groups.observe_owner(_LWS, lws())
    event = told(groups)
    assert event.workload.problem is None
    assert sorted((one.count, dict(one.requests)) for one in event.workload.pod_sets) == [
        (1, {"cpu": 1000}),
        (2, {"cpu": 2000, "nvidia.com/gpu": 8}),
    ]
    groups.observe_owner(_LWS, lws(version=9))  # its status has changed
    assert groups.take(16) == []
    groups.observe_owner(_LWS, lws(size=5, version=10))
    edited = told(groups)
    assert (sum(one.count for one in edited.workload.pod_sets), edited.observation.generation) == (5, 10)
    groups.forget_owner(_LWS, ("team-a", "server"), "11")
    assert told(groups).workload.problem is not None


def test_nothing_is_told_of_groups_before_all_pods_are_listed() -> None:
    groups = PodGroups(POD_GROUP)
    groups.observe(leader())
    groups.observe_owner(_LWS, lws())
    assert groups.take_listed(16) == []
    assert told(groups).workload.problem is None
    groups.observe_owner(_LWS, lws(size=2, version=9))
    assert len(groups.take_listed(16)) == 1


def test_a_worker_takes_a_place_that_was_charged_and_no_other_pod_does() -> None:
    waiting = [leader()]
    (unit,) = of_set(waiting, lws())
    (first,) = started(waiting, unit=unit)
    larger = copy.deepcopy(AS_CREATED["containers"])
    larger[0]["resources"]["requests"]["nvidia.com/gpu"] = "9"
    pods = [first, worker(1), worker(2, containers=larger), worker(3), worker(4)]
    running, others = of_set(pods, lws())
    assert [one.name for one in running.held] == ["server-0-1", "server-0-3"]
    assert sorted(running.counts.values()) == [1, 2]
    assert others.beside
    # Its start is complete without those that are not there, and whatever becomes of the LeaderWorkerSet.
    (alone,) = units([member(first)])
    assert (alone.held, alone.counts) == ((), running.counts)


def test_the_workers_that_a_replica_misses_are_named_after_their_leader() -> None:
    waiting = [leader()]
    (unit,) = of_set(waiting, lws())
    (first,) = started(waiting, unit=unit)
    first["metadata"]["labels"][f"{_KEY}worker-index"] = "0"
    (running,) = of_set([first], lws())
    assert running.missing == "server-0-1, server-0-2"
    second = worker(2)
    second["metadata"]["labels"][f"{_KEY}worker-index"] = "2"
    (running,) = of_set([first, second], lws())
    assert running.missing == "server-0-1"


def test_a_start_takes_nothing_off_a_worker_that_its_controller_or_the_api_server_has_added() -> None:
    """Node selector of its rack, tolerations: the API server allows additions alone."""
    waiting = [leader()]
    (unit,) = of_set(waiting, lws())
    (first,) = started(waiting, unit=unit)
    pods = [first, worker(1), worker(2)]
    (running,) = of_set(pods, lws())
    for one in started(pods, unit=running)[1:]:
        assert one["spec"]["nodeSelector"] == {**AS_CREATED["nodeSelector"], "pool": "spot"}
        keys = [toleration["key"] for toleration in one["spec"]["tolerations"]]
        assert keys == ["node.kubernetes.io/not-ready", "nvidia.com/gpu", "spot"]


@pytest.mark.parametrize(
    "obj",
    [
        lws(startupPolicy="LeaderCreated"),
        lws(size=1),
        lws(size=1001),
        lws(size="3"),
    ],
)
def test_a_replica_of_which_no_worker_comes_later_waits_for_its_pods(obj: Json) -> None:
    assert later_workers(obj) is None


def test_a_leader_of_another_size_does_not_join_the_workers_of_the_last_one() -> None:
    """It would be started with the places of theirs."""
    waiting = [leader()]
    (unit,) = of_set(waiting, lws())
    (first,) = started(waiting, unit=unit)
    first["metadata"]["annotations"][f"{_KEY}leader-name"] = "server-0"  # what is left is a worker
    again = leader()
    again["metadata"] |= {"uid": "uid-again", "creationTimestamp": "2026-11-27T08:00:00Z"}
    again["metadata"]["annotations"]["queuectl.dev/pod-group-total-count"] = "4"
    running, waits = of_set([first, again], lws(size=4))
    assert (running.held, waits.beside) == ((), True)
    assert sum(waits.counts.values()) == 4


def test_a_worker_of_another_queue_is_named() -> None:
    groups = PodGroups(POD_GROUP)
    groups.observe(leader())
    groups.observe_owner(_LWS, lws(queue="other"))
    problem = told(groups).workload.problem
    assert problem is not None
    assert problem.code is Code.MISCONFIGURED
    assert "pod server-0-1: metadata.labels[queuectl.dev/queue-name]: 'other' differs" in str(problem.detail)


@pytest.mark.parametrize("broken", [{"leaderWorkerTemplate": 3}, {"leaderWorkerTemplate": {"size": 3}}, {}])
def test_a_malformed_set_raises_nothing(broken: Json) -> None:
    groups = PodGroups(POD_GROUP)
    groups.observe(leader())
    groups.observe_owner(_LWS, lws(**broken) | ({} if broken else {"spec": 1}))
    assert len(groups.take(16)) == 1


def test_what_the_cluster_adds_to_a_leader_is_added_to_its_workers() -> None:
    """Overhead of its runtime class, and the default priority class."""
    spec = {"runtimeClassName": "kata", "overhead": {"cpu": "250m"}, "priorityClassName": "default"}
    first = leader()
    first["spec"] |= spec
    obj = lws()
    template = obj["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template["spec"] = {**WORKER_SPEC, "runtimeClassName": "kata"}
    (unit,) = of_set([first], obj)
    assert unit.to_come[0].shape == member(worker(1, **spec)).shape
    assert unit.to_come[0].shape != member(worker(1)).shape


def test_a_group_that_its_user_gave_two_sets_is_the_same_for_all_readers() -> None:
    other = leader()
    other["metadata"] |= {"name": "b", "uid": "uid-b", "labels": {**other["metadata"]["labels"]}}
    other["metadata"]["labels"][f"{_KEY}name"] = "another"
    pods = [leader(), other]
    assert set_of(pods) == set_of(reversed(pods)) == "another"
    assert set_of([pod("a")]) is None
