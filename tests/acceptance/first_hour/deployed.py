"""Runs the programs of manifests as processes, as there is no kubelet, and writes what a cluster would write.

Of each Deployment one process stands for all replicas. Its environment, configuration and rights are those
of the manifest; listen addresses are of this machine. The small API has no TokenReview and no service proxy:
there REST runs as in the sandbox, and is found as a sandbox is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.api_server import Plane, cluster_id
from queuectl.sandbox.control_plane import ControlPlane, write_kubeconfig
from queuectl.sandbox.endpoints import write_private
from queuectl.sandbox.players.api import Client, Object
from queuectl.sandbox.processes import ChildProcess, spawn
from tests.acceptance.e2e.exposing import SYSTEM, expose
from tests.acceptance.first_hour.database import Database

_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
_NAMES: Final = ("queuectl-controller", "queuectl-api")
_POSTGRES: Final = "queuectl-postgres"
_OF_SMALL: Final = {"queuectl-controller": "controller", "queuectl-api": "admin"}
"""Identities of the small API, which knows no rights of service accounts."""
_POLL_SECONDS: Final = 0.3
_STOP_SECONDS: Final = 20.0


@dataclass
class _Program:
    child: ChildProcess
    version: tuple[str, int]
    """UID and generation of its Deployment."""
    ready: bool = False


class Deployed:
    """`run` until cancelled. `database`: the server that the StatefulSet of manifests/postgres stands for."""

    def __init__(
        self,
        api: Client,
        plane: Plane,
        folder: Path,
        published: Path,
        address: str,
        database: Database,
        machine: Mapping[str, str],
    ) -> None:
        self._api = api
        self._plane = plane
        self._folder = folder
        self._published = published
        """Folder of the kubeconfig."""
        self._address = address
        self._database = database
        self._machine = machine
        """Environment of each process."""
        self._programs: dict[str, _Program] = {}

    async def run(self) -> None:
        try:
            while True:
                # What it needs may not be there yet, or not any more.
                with suppress(ApiError, KeyError):
                    await self._look()
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            for name in list(self._programs):
                await self._stop(name)

    async def _look(self) -> None:
        found = {item["metadata"]["name"]: item for item in (await self._get(_DEPLOYMENTS))["items"]}
        for name in _NAMES:
            thing = found.get(name)
            wanted = _version(thing) if thing is not None and thing["spec"]["replicas"] else None
            program = self._programs.get(name)
            if program is not None and (program.version != wanted or program.child.returncode is not None):
                await self._stop(name)
            if thing is None:
                continue
            if wanted is not None and name not in self._programs:
                self._programs[name] = _Program(await self._start(thing), wanted)
            await self._write_status(thing)

    async def _stop(self, name: str) -> None:
        await self._programs[name].child.stop(_STOP_SECONDS)
        del self._programs[name]

    async def _start(self, thing: Object) -> ChildProcess:
        """Raises KeyError or ApiError if what it needs is missing."""
        name, pod = thing["metadata"]["name"], thing["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        environment = {**self._machine, **await self._environment(container)}
        for first in pod.get("initContainers", ()):
            migrating = await self._spawn(f"{name}-{first['name']}", first["args"], environment)
            if await migrating.wait():
                return migrating  # as a pod whose first container fails: it is started again
        config = await self._config(name, pod)
        kubeconfig = await self._kubeconfig(name, pod["serviceAccountName"])
        arguments = [container["args"][0], "--config", str(config), "--kubeconfig", str(kubeconfig)]
        return await self._spawn(name, arguments, environment)

    async def _spawn(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> ChildProcess:
        log = self._folder / f"{name}.log"
        log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "queuectl", *arguments]
        return await spawn(argv, name=name, log=log, env=environment, cwd=Path(__file__).parents[3])

    async def _environment(self, container: Object) -> dict[str, str]:
        found = {}
        for entry in container.get("env", ()):
            asked = entry["valueFrom"]["secretKeyRef"]
            secret = await self._get(f"/api/v1/namespaces/{SYSTEM}/secrets/{asked['name']}")
            value = base64.b64decode(secret["data"][asked["key"]]).decode()
            if f"@{_POSTGRES}/" in value:
                await self._get(f"/apis/apps/v1/namespaces/{SYSTEM}/statefulsets/{_POSTGRES}")
                password = base64.b64decode(secret["data"]["password"]).decode()
                value = value.replace(f"@{_POSTGRES}/", f"@{await self._database.with_owner(password)}/")
            found[entry["name"]] = value
        return found

    async def _config(self, name: str, pod: Object) -> Path:
        (source,) = (volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume)
        text = (await self._get(f"/api/v1/namespaces/{SYSTEM}/configmaps/{source}"))["data"]["config.yaml"]
        content: dict[str, Any] = yaml.safe_load(re.sub(r'"0\.0\.0\.0:\d+"', f'"{self._address}:0"', text))
        if name == "queuectl-api" and not isinstance(self._plane, ControlPlane):
            content = {
                "api": {
                    "listen": "127.0.0.1:0",
                    "probes": "127.0.0.1:0",
                    "identity": "local",
                    "cluster": await cluster_id(self._api),
                }
            }
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    async def _kubeconfig(self, name: str, account: str) -> Path:
        if isinstance(self._plane, ControlPlane):
            path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token"
            token = (await self._api.request("POST", path, {"spec": {"expirationSeconds": 7200}}))["status"][
                "token"
            ]
        else:
            token = self._plane.tokens[_OF_SMALL[name]]
        kubeconfig = self._folder / f"{name}.kubeconfig"
        write_kubeconfig(kubeconfig, self._plane.url, self._plane.ca_file, {"pod": token}, current="pod")
        return kubeconfig

    # --- what a cluster would write

    async def _write_status(self, thing: Object) -> None:
        name = thing["metadata"]["name"]
        program = self._programs.get(name)
        if program is not None and not program.ready and await self._answers(program.child):
            program.ready = True
            if name == "queuectl-api":
                await self._publish(thing, program.child)
        asked = thing["spec"]["replicas"]
        ready = asked if program is not None and program.ready else 0
        names = ("readyReplicas", "availableReplicas")
        status = {
            "observedGeneration": thing["metadata"]["generation"],
            "replicas": asked,
            "updatedReplicas": asked,
            **dict.fromkeys(names, ready),
        }
        if any((thing.get("status") or {}).get(field, 0) != value for field, value in status.items()):
            body = {"status": status}
            await self._api.request("PATCH", f"{_DEPLOYMENTS}/{name}/status", body, content_type=MERGE_PATCH)

    async def _answers(self, child: ChildProcess) -> bool:
        probes = re.search(r"probes at (http://[^\s,]+)", child.log.read_text())
        if probes is None:
            return False
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{probes[1]}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _publish(self, thing: Object, child: ChildProcess) -> None:
        """Make REST reachable by the kubeconfig."""
        found = re.search(r"REST at (\S+)", child.log.read_text())
        assert found is not None
        url = found[1].rstrip(",")
        if isinstance(self._plane, ControlPlane):
            await expose(
                self._api, self._address, int(url.rpartition(":")[2]), thing["spec"]["template"]["spec"]
            )
        else:
            endpoints = {"kubernetes": self._plane.url, "rest": url}
            write_private(self._published / "endpoints.json", json.dumps(endpoints))

    async def _get(self, path: str) -> Object:
        return await self._api.request("GET", path)


def _version(thing: Object) -> tuple[str, int]:
    return thing["metadata"]["uid"], thing["metadata"]["generation"]
