"""A whole installation as users have it: `queuectl sandbox` in its own process, with clients of its APIs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from queuectl.sandbox.control_plane import find_assets
from queuectl.sandbox.players.api import Client

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
OLDER = "1.33"
"""The oldest release that the binaries of 1.36 can emulate: without mutating policies, so with the webhook.
Up to 1.35 nothing that queuectl uses differs from it."""
PATIENCE = 90.0
"""Seconds after which a condition that is still false has failed."""


async def eventually(
    what: str, look: Callable[[], Awaitable[object]], patience: float = PATIENCE, pause: float = 0.05
) -> Any:
    """Call `look` until its result is true; returns the result. Fails with `what`.

    `pause`: seconds after the first call. It grows, because each call is work for a server, or a process.
    """
    try:
        async with asyncio.timeout(patience):
            while not (found := await look()):
                await asyncio.sleep(pause)
                pause = max(pause, min(1.3 * pause, 0.5))
            return found
    except TimeoutError:
        raise AssertionError(f"not within {patience:g} s: {what}") from None


@dataclass
class Run:
    """What a command printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Site:
    """A running sandbox."""

    data: Path
    control_plane: str
    version: str | None = None
    """The older release that a real control plane emulates."""
    flags: tuple[str, ...] = ("--empty",)
    environment: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Wait until every part of it answers."""
        (self.data / "endpoints.json").unlink(missing_ok=True)
        log = (self.data.parent / f"{self.data.name}.out").open("ab")
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "queuectl", "sandbox", "--headless", "--data", str(self.data)),
            *("--control-plane", self.control_plane, *self._version(), *self.flags),
            stdout=log,
            stderr=log,
            env={**os.environ, **self.environment},
        )
        log.close()
        await eventually("the sandbox is up", self._up, 180.0)

    def _version(self) -> tuple[str, ...]:
        return ("--kubernetes-version", self.version) if self.version else ()

    async def _up(self) -> bool:
        assert self.process is not None
        if self.process.returncode is not None:
            text = (self.data.parent / f"{self.data.name}.out").read_text()
            raise AssertionError(f"the sandbox ended with {self.process.returncode}:\n{text[-4000:]}")
        return (self.data / "endpoints.json").exists()

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and wait; returns its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()

    # --- addresses

    @property
    def endpoints(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.data / "endpoints.json").read_text())
        return found

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    def client(self, identity: str = "admin") -> Client:
        """A client of the Kubernetes API, as admin, tenant or controller."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == identity)
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
        trust = ssl.create_default_context()
        if "certificate-authority" in cluster:
            trust.load_verify_locations(cafile=str(self.data / cluster["certificate-authority"]))
        else:
            trust.load_verify_locations(
                cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
            )
        return Client(cluster["server"], trust, user["token"])

    # --- commands

    async def run(self, *argv: str, stdin: str | None = None) -> Run:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "QUEUECTL_DATA": str(self.data)},
        )
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        assert process.returncode is not None
        return Run(process.returncode, out.decode(), err.decode())

    async def queuectl(self, *arguments: str) -> Run:
        return await self.run(sys.executable, "-m", "queuectl", *arguments)

    async def kubectl(self, *arguments: str, stdin: str | None = None, identity: str = "admin") -> Run:
        assets = find_assets()
        assert assets is not None
        return await self.run(str(assets / "kubectl"), "--context", identity, *arguments, stdin=stdin)

    async def rest(self, path: str) -> Json:
        """The answer, with its status. Asks again, as clients should, if it asked too often."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self.endpoints['rest']}/api/v1{path}") as answer:
                    if answer.status != 429:
                        found: Json = await answer.json(content_type=None)
                        return {"status": answer.status, **found}
                await asyncio.sleep(0.1)


# --- objects ------------------------------------------------------------------------------------------


def flavor(name: str, labels: dict[str, str] | None = None) -> Json:
    return _policy("ResourceFlavor", name, {"nodeLabels": labels or {}})


def cluster_queue(queue: str, gpus: int, flavors: tuple[str, ...] = ("a100",), **spec: Any) -> Json:
    """Covers plenty of cpu too: pods of a real cluster request more than GPUs."""
    quotas = [
        {
            "name": f,
            "resources": [{"name": "cpu", "nominalQuota": "1000"}, {"name": GPU, "nominalQuota": gpus}],
        }
        for f in flavors
    ]
    groups = [{"coveredResources": ["cpu", GPU], "flavors": quotas}]
    return _policy("ClusterQueue", queue, {"namespaceSelector": {}, "resourceGroups": groups, **spec})


def local_queue(namespace: str, name: str, queue: str) -> Json:
    found = _policy("LocalQueue", name, {"clusterQueue": queue})
    found["metadata"]["namespace"] = namespace
    return found


def _policy(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod_template(gpus: object = 1, seconds: float = 1, **spec: Any) -> Json:
    container = {
        "name": "main",
        "image": "registry.example/none",
        "resources": {"requests": {"cpu": "1"}, "limits": {GPU: str(gpus)}},
    }
    return {
        "metadata": {"annotations": {"sandbox.queuectl.dev/run-seconds": str(seconds)}},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def pod(
    name: str,
    *,
    gpus: int,
    seconds: float = 600,
    queue: str | None = "main",
    labels: Mapping[str, str] = {},
) -> Json:
    """A pod that queues by itself; `seconds`: how long it runs."""
    template = pod_template(gpus, seconds)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            **template["metadata"],
            "labels": {**({"queuectl.dev/queue-name": queue} if queue else {}), **labels},
        },
        "spec": template["spec"],
    }


def gpus_only(gpus: object, seconds: float = 1) -> Json:
    """A pod template that requests only GPUs."""
    template = pod_template(gpus, seconds)
    del template["spec"]["containers"][0]["resources"]["requests"]
    return template


def job(name: str, *, queue: str | None = "main", template: Json | None = None, **spec: Any) -> Json:
    labels = {"queuectl.dev/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": template or pod_template(), "backoffLimit": 0, **spec},
    }


def pytorchjob(name: str, *, queue: str = "main", workers: int = 3, template: Json | None = None) -> Json:
    def replica(count: int) -> Json:
        inner = json.loads(json.dumps(template or pod_template()))
        inner["spec"]["containers"][0]["name"] = "pytorch"
        return {"replicas": count, "restartPolicy": "Never", "template": inner}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {"queuectl.dev/queue-name": queue}},
        "spec": {"pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(workers)}},
    }
