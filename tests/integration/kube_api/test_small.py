"""Features of the small API alone: an external clock, use without sockets, data in one folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from queuectl.sandbox.api_server import problems_of_policy
from queuectl.sandbox.kubernetes.handler import RequestHandler
from queuectl.sandbox.kubernetes.identities import Identities
from queuectl.sandbox.kubernetes.store import ObjectStore
from queuectl.sandbox.kubernetes.wire import Request, ServerResponse
from queuectl.shipped import shipped
from tests.doubles.faults import expire_watches
from tests.integration.kube_api.client import MERGE, Json, configmap, job

START = datetime(2030, 1, 1, tzinfo=UTC)
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


class Driven:
    """A RequestHandler without a socket, with a clock that the test sets."""

    def __init__(self, folder: Path | None = None) -> None:
        self.now = START
        self.store = ObjectStore(folder, history=100)
        self.identities = Identities(folder)
        self.api = RequestHandler(
            self.store,
            self.identities,
            clock=lambda: self.now,
            check=problems_of_policy,
        )

    async def ask(
        self, method: str, path: str, body: Any = None, *, user: str = "admin", media: str = "", **query: Any
    ) -> ServerResponse:
        headers = {"authorization": f"Bearer {self.identities.tokens[user]}"}
        if media:
            headers["content-type"] = media
        content = b"" if body is None else orjson.dumps(body)
        async with asyncio.timeout(10):
            return await self.api.handle(
                Request(method, path, {name: str(value) for name, value in query.items()}, headers, content)
            )

    async def watch(self, path: str, **query: Any) -> AsyncIterator[tuple[str, Json]]:
        """The events of a watch that has started when this returns."""
        body = (await self.ask("GET", path, watch="true", **query)).body
        assert not isinstance(body, bytes)
        return _events(body)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, Json]]:
    async for chunk in chunks:
        for line in chunk.splitlines():
            event = orjson.loads(line)
            yield event["type"], event["object"]


async def test_time_comes_from_the_clock_it_is_given() -> None:
    driven = Driven()
    driven.now += timedelta(days=400)
    created = (await driven.ask("POST", CONFIGMAPS, configmap("a"))).json()
    assert created["metadata"]["creationTimestamp"] == "2031-02-05T00:00:00Z"


async def test_the_same_requests_give_the_same_objects() -> None:
    bodies = []
    for _ in range(2):
        driven = Driven()
        driven.store = ObjectStore(None, seed="one")
        driven.api = RequestHandler(driven.store, driven.identities, clock=lambda: START)
        bodies.append((await driven.ask("POST", JOBS, job("a"))).body)
    assert bodies[0] == bodies[1]


async def test_a_watch_can_be_ended_or_expired() -> None:
    driven = Driven()
    streams = [await driven.watch(CONFIGMAPS) for _ in range(2)]
    await driven.ask("POST", CONFIGMAPS, configmap("a"))
    for stream in streams:
        assert (await anext(stream))[1]["metadata"]["name"] == "a"
    driven.store.close_watches("configmaps")
    for stream in streams:
        assert await anext(stream, None) is None
    expiring = await driven.watch(CONFIGMAPS)
    await anext(expiring)
    expire_watches(driven.store, "configmaps")
    kind, status = await anext(expiring)
    assert (kind, status["code"]) == ("ERROR", 410)
    old = await driven.watch(CONFIGMAPS, resourceVersion=driven.store.revision - 1)
    assert (await anext(old))[1]["code"] == 410


async def test_history_is_bounded_and_an_older_version_is_reported_as_expired() -> None:
    driven = Driven()
    start = driven.store.revision
    for number in range(101):
        await driven.ask("POST", CONFIGMAPS, configmap(f"a-{number}"))
    kind, status = await anext(await driven.watch(CONFIGMAPS, resourceVersion=start))
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert (await anext(await driven.watch(CONFIGMAPS, resourceVersion=start + 1)))[0] == "ADDED"
    page = (await driven.ask("GET", CONFIGMAPS, limit=1)).json()
    for number in range(101):
        await driven.ask("PATCH", f"{CONFIGMAPS}/a-1", {"data": {"n": str(number)}}, media=MERGE)
    answer = await driven.ask("GET", CONFIGMAPS, limit=1, **{"continue": page["metadata"]["continue"]})
    assert (answer.status, answer.json()["reason"]) == (410, "Expired")


async def test_objects_revisions_and_tokens_survive_a_restart(tmp_path: Path) -> None:
    first = Driven(tmp_path)
    created = (await first.ask("POST", CONFIGMAPS, configmap("a"))).json()
    await first.ask("POST", CONFIGMAPS, configmap("b"))
    await first.ask("DELETE", f"{CONFIGMAPS}/b")
    system = (await first.ask("GET", "/api/v1/namespaces/kube-system")).json()
    first.store.close()
    second = Driven(tmp_path)
    assert second.identities.tokens == first.identities.tokens
    assert second.store.revision == first.store.revision
    assert (await second.ask("GET", f"{CONFIGMAPS}/a")).json() == created
    assert (await second.ask("GET", f"{CONFIGMAPS}/b")).status == 404
    assert (await second.ask("GET", "/api/v1/namespaces/kube-system")).json() == system
    again = (await second.ask("POST", CONFIGMAPS, configmap("b"))).json()
    assert int(again["metadata"]["resourceVersion"]) == first.store.revision + 1


_WRITER = """
import asyncio, sys
from pathlib import Path
from tests.integration.kube_api.test_small import CONFIGMAPS, Driven
from tests.integration.kube_api.client import configmap

async def main():
    driven = Driven(Path(sys.argv[1]))
    for number in range(100000):
        await driven.ask("POST", CONFIGMAPS, configmap(f"a-{number}"))
        print(number, flush=True)

asyncio.run(main())
"""


async def test_every_answered_write_is_stored_after_a_sigkill(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    writer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _WRITER,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert writer.stdout is not None
    async with asyncio.timeout(30):
        answered = -1
        while answered < 200:
            answered = int(await writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = (await writer.stdout.read()).split()
        await writer.wait()
    answered = int(rest[-1]) if rest else answered
    found = (await Driven(tmp_path).ask("GET", CONFIGMAPS)).json()["items"]
    assert len(found) in (answered + 1, answered + 2)


async def test_a_tenant_may_manage_its_jobs_and_read_its_queues() -> None:
    driven = Driven()
    queues = "/apis/queuectl.dev/v1beta1"
    allowed = [
        ("POST", JOBS, job("a")),
        ("GET", "/apis/batch/v1/jobs", None),
        ("GET", "/api/v1/namespaces", None),
        ("DELETE", f"{JOBS}/a", None),
    ]
    for method, path, body in allowed:
        assert (await driven.ask(method, path, body, user="tenant")).status in (200, 201)
    await driven.ask("POST", JOBS, job("b"))
    refused = [
        ("GET", "/api/v1/nodes", None),
        ("PATCH", f"{JOBS}/b/status", {}),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}),
        ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None),
        ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/queuectl-jobs", None),
    ]
    for method, path, body in refused:
        answer = await driven.ask(method, path, body, user="tenant", media=MERGE)
        assert (answer.status, answer.json()["reason"]) == (403, "Forbidden"), path
        assert 'User "tenant" cannot' in answer.json()["message"]
    assert (await driven.ask("GET", f"{queues}/localqueues", user="tenant")).status == 404


async def test_an_invalid_queue_is_refused_with_its_field() -> None:
    driven = Driven()
    for path in sorted((shipped("manifests") / "crds").glob("queuectl.dev_*.yaml")):
        definition = yaml.load(path.read_text(), yaml.CSafeLoader)
        await driven.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    quota = {"name": "cpu", "nominalQuota": 1, "lendingLimit": 2}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "a100", "resources": [quota]}]}
    queue = {"metadata": {"name": "a"}, "spec": {"cohortName": "all", "resourceGroups": [group]}}
    queues = "/apis/queuectl.dev/v1beta1/clusterqueues"
    answer = (await driven.ask("POST", queues, queue)).json()
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert "resourceGroups" in answer["details"]["causes"][0]["field"]
    assert "lendingLimit" in answer["message"]
    quota["lendingLimit"] = 1
    assert (await driven.ask("POST", queues, queue)).status == 201


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"startTime": "2030-01-01T00:00:00Z"}, 422),
        ({"conditions": [{"type": "Suspended", "status": "True"}], "startTime": "2030-01-01T00:00:00Z"}, 200),
        ({"conditions": [{"type": "Suspended", "status": "True"}], "active": 1}, 422),
    ],
)
async def test_an_evicted_job_may_get_other_scheduling_fields_once_none_of_its_pods_runs(
    status: Json, code: int
) -> None:
    driven = Driven()
    await driven.ask("POST", JOBS, job("a"))
    await driven.ask("PATCH", f"{JOBS}/a/status", {"status": status}, media=MERGE)
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"gpu": "a100"}}}}}
    assert (await driven.ask("PATCH", f"{JOBS}/a", patch, media=MERGE)).status == code
