"""Twelve ways in which a tenant may try to run more than a UsageLimit allows, on a whole site (X1 to X5)."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Client
from tests.acceptance.e2e.site import GPU, Json, job, local_queue, pod_template, pytorchjob
from tests.acceptance.e2e.test_tenant import tenant
from tests.acceptance.e2e.world import World

__all__ = ["tenant"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real_api_server]

REFUSED: Final = (403, 422)


class Way(NamedTuple):
    """A request, and the name of the workload that it makes; none: it changes what is there."""

    what: str
    method: str
    path: str
    body: Json
    waits: tuple[str, str] | None = None
    """Kind and name of what is to wait for the limit if the request is accepted."""


def each_user(world: World) -> Json:
    """One workload and two GPUs of each user in the ClusterQueue."""
    spec = {
        "target": {"kind": "ClusterQueue", "name": world.namespace},
        "subject": {"kind": "EachUser"},
        "running": 1,
        "resources": {GPU: "2"},
    }
    metadata = {"name": world.namespace}
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "UsageLimit",
        "metadata": metadata,
        "spec": spec,
    }


async def a_cron_job(world: World) -> Json:
    """As an ownerReference. It exists, since the garbage collector deletes what an absent owner left."""
    spec = {
        "schedule": "0 0 1 1 *",
        "suspend": True,
        "jobTemplate": {"spec": {"template": pod_template(1, 300)}},
    }
    made = await world.api.request(
        "POST",
        f"/apis/batch/v1/namespaces/{world.namespace}/cronjobs",
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec},
    )
    uid = made["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": uid, "controller": True}


def ways(world: World, cron: Json) -> list[Way]:
    limit = f"/apis/queuectl.dev/v1beta1/usagelimits/{world.namespace}"

    def another(what: str, name: str, queue: str = "main", **spec: object) -> Way:
        made = job(name, queue=queue, template=pod_template(1, 300), **spec)
        return Way(what, "POST", world.path("Job"), made, ("Job", name))

    def named(what: str, name: str, **metadata: Json | list[Json]) -> Way:
        way = another(what, name)
        for key, value in metadata.items():
            known = way.body["metadata"].get(key)
            way.body["metadata"][key] = {**(known or {}), **value} if isinstance(value, dict) else value
        return way

    trains = pytorchjob("trains", workers=0, template=pod_template(1, 300))
    del trains["spec"]["pytorchReplicaSpecs"]["Worker"]
    return [
        another("a second workload", "second"),
        another("one that is created running", "started", suspend=False),
        another("in another LocalQueue", "elsewhere", queue="other"),
        Way("of another kind", "POST", world.path("PyTorchJob"), trains, ("PyTorchJob", "trains")),
        named("for another user", "lent", annotations={"queuectl.dev/user": "bob"}),
        named("by another user", "forged", annotations={"queuectl.dev/reserved-submitter": "bob"}),
        named("as of a CronJob", "scheduled", ownerReferences=[cron]),
        named("of a higher class", "urgent", labels={"queuectl.dev/priority-class": world.namespace}),
        Way("unsuspended", "PATCH", world.path("Job", "second"), {"spec": {"suspend": False}}),
        Way("more GPUs", "PATCH", world.path("Job", "runs"), {"spec": {"template": pod_template(2, 300)}}),
        Way("another limit", "PATCH", limit, {"spec": {"running": 9}}),
        Way("no limit", "DELETE", limit, {}),
    ]


async def test_a_tenant_runs_no_more_than_a_limit_of_each_user_allows(
    world: World, tenant: Client, figures: list[str]
) -> None:
    await world.policy(local_queue(world.namespace, "other", world.namespace))
    high = {"apiVersion": "queuectl.dev/v1beta1", "kind": "WorkloadPriorityClass", "value": 9}
    await world.policy({**high, "metadata": {"name": world.namespace}})
    await world.policy(each_user(world))
    await tenant.request("POST", world.path("Job"), job("runs", template=pod_template(1, 300)))
    await world.started("runs")
    tried = ways(world, await a_cron_job(world))
    assert len(tried) == 12
    waiting = []
    for way in tried:
        content_type = MERGE_PATCH if way.method == "PATCH" else "application/json"
        try:
            await tenant.request(way.method, way.path, way.body or None, content_type=content_type)
        except ApiError as error:
            if error.status not in REFUSED:
                raise
            figures.append(f"UsageLimit, a tenant tries {way.what}: refused with {error.status}")
            continue
        assert way.waits is not None, f"{way.what} was accepted"
        kind, name = way.waits
        reason = await world.reason_is(name, "WaitingForUsageLimit", kind)
        assert reason["node"] == f"UsageLimit/{world.namespace}"
        assert "user tenant at ClusterQueue/" in reason["detail"]
        waiting.append(way.waits)
        figures.append(f"UsageLimit, a tenant tries {way.what}: waits, {reason['detail']}")
    # The limit is of each user: what another submits later is admitted.
    await world.submit(job("witness", template=pod_template(1, 1)))
    await world.phase("witness", "Finished")
    for kind, name in waiting:
        assert (await world.workload(name, kind))["phase"] == "Pending", name
    assert (await world.used(world.namespace))["a100", GPU] == 1
    assert (await world.site.queuectl("verify")).code == 0
