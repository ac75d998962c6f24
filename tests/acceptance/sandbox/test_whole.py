"""`queuectl sandbox` as users start it: one process at the start, none left at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from queuectl.sandbox.endpoints import Endpoints
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Client, Object
from tests.integration.ledger.places import reachable_folder
from tests.integration.sandbox.cluster import condition, job, pod_template
from tests.integration.sandbox.polling import eventually
from tests.integration.sandbox.process_tree import descendants, running

START_SECONDS = 90
STOP_SECONDS = 20


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as found:
        yield found / "my data"


@asynccontextmanager
async def sandbox(folder: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process, once all parts are ready; killed at the end if it still runs."""
    process = await begin(folder, *flags)
    try:
        await eventually(
            lambda: process.returncode is not None or Endpoints.read(folder), "endpoints.json", START_SECONDS
        )
        if process.returncode is not None:
            raise AssertionError((await output(process)).decode())
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await output(process)


async def begin(folder: Path, *flags: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUEUECTL_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "queuectl", "sandbox", "--headless", "--data", str(folder), *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )


async def output(process: asyncio.subprocess.Process) -> bytes:
    async with asyncio.timeout(STOP_SECONDS):
        return (await process.communicate())[0]


def admin(folder: Path) -> Client:
    """Server and credentials of the current context of the kubeconfig."""
    config = yaml.safe_load((folder / "kubeconfig").read_text())
    assert config["current-context"] == "admin"
    (cluster,) = config["clusters"]
    token = next(user["user"]["token"] for user in config["users"] if user["name"] == "admin")
    trust = ssl.create_default_context(
        cadata=b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    )
    return Client(cluster["cluster"]["server"], trust, token)


async def fetch(url: str) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
        return answer.status, await answer.text()


QUEUE: list[Object] = [
    fake_node("a100-1", "a100", gpus=8),
    {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {"nodeLabels": {"example.com/accelerator": "a100"}},
    },
    {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "team"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "nvidia.com/gpu"],
                    "flavors": [
                        {
                            "name": "a100",
                            "resources": [
                                {"name": "cpu", "nominalQuota": 8},
                                {"name": "nvidia.com/gpu", "nominalQuota": 2},
                            ],
                        }
                    ],
                }
            ],
        },
    },
    {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"clusterQueue": "team"},
    },
]


async def create_job(api: Client, name: str, template: Object) -> Object:
    body = job(name, template)
    body["metadata"]["labels"] = {"queuectl.dev/queue-name": "main"}
    return await api.request("POST", "/apis/batch/v1/namespaces/default/jobs", body)


async def until_job(api: Client, name: str, test: Callable[[Object], object], what: str) -> Object:
    last: Object = {}

    async def look() -> bool:
        nonlocal last
        last = await api.request("GET", f"/apis/batch/v1/namespaces/default/jobs/{name}")
        return bool(test(last))

    await eventually(look, f"job {name} {what}", 30)
    return last


async def test_a_labelled_job_runs_in_an_empty_sandbox_and_its_state_survives_a_restart(folder: Path) -> None:
    async with sandbox(folder, "--empty") as process:
        endpoints = Endpoints.read(folder)
        assert endpoints is not None
        assert (await fetch(f"{endpoints.rest}/readyz"))[0] == 200
        assert "queuectl_" in (await fetch(endpoints.metrics))[1]
        assert endpoints.postgres.startswith("postgresql://")
        async with admin(folder) as api:
            await Installer(api).apply(QUEUE)
            made = await create_job(api, "train", pod_template())
            assert made["spec"]["suspend"] is True
            done = await until_job(api, "train", lambda j: condition(j, "Complete") == "True", "complete")
            assert done["spec"]["template"]["spec"]["nodeSelector"] == {"example.com/accelerator": "a100"}
            await create_job(api, "long", pod_template(run=None))
            await until_job(api, "long", lambda j: j["status"].get("ready") == 1, "ready")
            await create_job(api, "large", pod_template(gpus=3))
        path = f"{endpoints.rest}/api/v1/workloads/default/Job/large"
        await eventually(lambda: says(path, "ExceedsMaxQuota"), "the reason of the large one", 30)
        process.send_signal(signal.SIGINT)
        text = (await output(process)).decode()
        assert process.returncode == 0, text
        assert "Admitted   default/Job/train - team: 1 nvidia.com/gpu of a100, 1 cpu of a100" in text
        assert "first admission" in text
        assert "\x1b" not in text
    kubeconfig = (folder / "kubeconfig").read_text()
    async with sandbox(folder, "--empty") as process:
        assert Endpoints.read(folder) == endpoints
        assert (folder / "kubeconfig").read_text() == kubeconfig
        async with admin(folder) as api:
            found = await api.request("GET", "/apis/batch/v1/namespaces/default/jobs/train")
            assert found["metadata"]["uid"] == done["metadata"]["uid"]
            await until_job(api, "long", lambda j: j["status"].get("ready") == 1, "still ready")
        attempts = json.loads((await fetch(f"{endpoints.rest}/api/v1/workloads/default/Job/long"))[1])[
            "attempts"
        ]
        assert attempts == 1
        second = await begin(folder, "--empty")
        refused = (await output(second)).decode()
        assert second.returncode == 1
        assert f"already (process {process.pid})" in refused
        children = descendants(process.pid)
        assert len(running(children)) > 3
        process.kill()
        await process.wait()
        await eventually(lambda: not running(children), "the end of all children", STOP_SECONDS)


async def says(url: str, word: str) -> bool:
    return word in (await fetch(url))[1]


async def test_without_controller_it_prints_how_to_run_one_and_ends_with_any_of_its_children(
    folder: Path,
) -> None:
    async with sandbox(folder, "--empty", "--no-controller") as process:
        endpoints = Endpoints.read(folder)
        assert endpoints is not None
        assert (await fetch(f"{endpoints.rest}/healthz"))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await fetch(endpoints.metrics)
        rest = next(
            pid
            for pid in descendants(process.pid)
            if b"\0queuectl\0api\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(rest, signal.SIGKILL)
        text = (await output(process)).decode()
        assert process.returncode == 1
        assert f"Error: queuectl api ended (signal 9), log {folder / 'log' / 'api.log'}" in text
        assert (
            f"controller --config '{folder / 'queuectl.yaml'}' --kubeconfig '{folder / 'kubeconfig'}'" in text
        )


async def test_reset_starts_from_empty_data_on_the_ports_of_the_last_run(folder: Path) -> None:
    async with sandbox(folder, "--empty") as process:
        endpoints = Endpoints.read(folder)
        async with admin(folder) as api:
            await Installer(api).apply(QUEUE)
        process.send_signal(signal.SIGINT)
        await output(process)
    async with sandbox(folder, "--empty", "--reset"):
        assert Endpoints.read(folder) == endpoints
        async with admin(folder) as api:
            found = await api.request("GET", "/apis/queuectl.dev/v1beta1/clusterqueues")
            assert found["items"] == []
        assert endpoints is not None
        decisions = json.loads((await fetch(f"{endpoints.rest}/api/v1/decisions"))[1])
        assert "team" not in {one["details"].get("name") for one in decisions["items"]}
