"""The sources of metrics: engine, effects, lease and session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuectl.controller.effects import Lanes
from queuectl.core.decisions import Admit
from queuectl.core.model.events import PolicyGone
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ConfigKey
from queuectl.kube.errors import ApiError
from queuectl.kube.session import Session, rbac_names
from queuectl.kube.transport import HttpTransport
from tests.builders import T0, World, local_queue, queue, workload
from tests.integration.kube.scripted import Scripted

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


def test_the_engine_counts_pending_workloads_by_reason() -> None:
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.submit(workload("a"), workload("b"), workload("c"), workload("lost", queue="nowhere"))
    world.run()
    _, (report,), _ = world.engine.take_reports()
    assert dict(report.reasons) == {Code.WAITING_FOR_QUOTA: 2}
    assert report.pending == 2
    standing = world.engine.cluster_report()
    assert dict(standing.strays) == {Code.QUEUE_NOT_FOUND: 1}
    assert (standing.frozen, standing.gate_installed) == (0, False)


def test_workloads_of_a_deleted_queue_are_still_counted() -> None:
    world = World(queue("cq", 0), local_queue("lq", "cq"))
    world.submit(workload("a"))
    world.run()
    world.tell(PolicyGone(ConfigKey("ClusterQueue", "", "cq")))
    world.run()
    assert sum(count for _, count in world.engine.cluster_report().strays) == 1


def test_an_admission_has_the_creation_time_of_its_object() -> None:
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.submit(workload("a"))
    (admit,) = (d for d in world.run() if isinstance(d, Admit))
    assert admit.created_at == T0


@pytest.mark.parametrize(
    ("method", "target", "names"),
    [
        ("GET", "/api/v1/nodes?limit=500", ("list", "nodes")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces")),
        ("GET", "/api/v1/namespaces/kube-system", ("get", "namespaces")),
        ("GET", f"{JOBS}/train", ("get", "jobs")),
        ("PATCH", f"{JOBS}/train", ("patch", "jobs")),
        ("PATCH", f"{JOBS}/train/status", ("patch", "jobs/status")),
        ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", ("create", "events")),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/q/leases/l", ("update", "leases")),
        ("PATCH", "/apis/queuectl.dev/v1beta1/clusterqueues/q/status", ("patch", "clusterqueues/status")),
        ("GET", "/apis/batch/v1", ("list", "discovery")),
    ],
)
def test_a_request_has_the_verb_and_resource_of_an_rbac_role(
    method: str, target: str, names: tuple[str, str]
) -> None:
    assert rbac_names(method, target) == names


async def test_each_response_and_each_missing_response_is_counted() -> None:
    told: list[tuple[str, str, int]] = []

    def answered(verb: str, resource: str, code: int, seconds: float) -> None:
        assert seconds >= 0
        told.append((verb, resource, code))

    script = Scripted()
    async with asyncio.timeout(30), script.serve():
        session = Session(HttpTransport(script.url))
        session.answered = answered
        script.refuse(422, "no")
        with pytest.raises(ApiError):
            await session.patch(f"{JOBS}/train", {})
        await session.close()
    unreachable = Session(HttpTransport("http://127.0.0.1:1"))
    unreachable.answered = answered
    with pytest.raises(ApiError):
        await unreachable.get(JOBS)
    await unreachable.close()
    assert told == [("patch", "jobs", 422), ("list", "jobs", 0)]


async def test_effects_that_are_not_done_are_counted_with_their_age() -> None:
    world = World(queue("cq", 3), local_queue("lq", "cq"))
    world.submit(workload("a"), workload("b"))
    world.run()
    nowhere: Any = None  # not used
    lanes = Lanes(nowhere, lambda events: None, lambda *args, **more: None, workers=2, unreachable=frozenset)
    assert lanes.unsettled() == (0, 0.0)
    lanes.add_effects(world.engine.take_effects())
    async with asyncio.timeout(30):
        while lanes.unsettled()[1] <= 0:
            await asyncio.sleep(0.001)
    assert lanes.unsettled()[0] == 2
