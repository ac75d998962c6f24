"""Controller and REST as child processes, with their configuration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from queuectl.kubernetes_yaml import dump
from queuectl.sandbox.endpoints import Endpoints, SandboxError, port_of, write_private
from queuectl.sandbox.processes import ChildProcess, spawn, until_ready

_READY_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 5.0


class Programs:
    """The programs of queuectl in the sandbox on `folder`. `controller`: False, it is run apart.
    `settings`: sections of the configuration."""

    def __init__(
        self,
        folder: Path,
        endpoints: Endpoints,
        *,
        controller: bool,
        settings: Mapping[str, Any],
    ) -> None:
        self._folder = folder
        self._endpoints = endpoints
        self._controller = controller
        self._settings = dict(settings)
        self.config = folder / "queuectl.yaml"

    @contextlib.asynccontextmanager
    async def running(self, cluster: str) -> AsyncIterator[list[ChildProcess]]:
        """Start them for the cluster of this id; they are stopped together."""
        listen = f"127.0.0.1:{port_of(self._endpoints.metrics)}"
        config = {
            **self._settings,
            "controller": {**self._settings.get("controller", {}), "listen": listen},
            "api": {
                "listen": f"127.0.0.1:{port_of(self._endpoints.rest)}",
                "cluster": cluster,
                "identity": "local",
                "changes": "local",
            },
        }
        write_private(self.config, dump(config))
        children: list[ChildProcess] = []
        try:
            if self._controller:
                children.append(await self._spawn("controller", context="controller"))
            children.append(await self._spawn("api", context="admin"))
            yield children
        finally:
            await asyncio.gather(*(child.stop(_STOP_SECONDS) for child in children))

    async def _spawn(self, command: str, *, context: str) -> ChildProcess:
        flags = ["--config", str(self.config), "--kubeconfig", str(self._folder / "kubeconfig")]
        return await spawn(
            [sys.executable, "-m", "queuectl", command, *flags, "--context", context],
            name=f"queuectl {command}",
            log=self._folder / "log" / f"{command}.log",
            env={**os.environ, "QUEUECTL_DATABASE_URL": self._endpoints.postgres},
        )

    async def ready(self) -> None:
        """Wait until all are ready: controller and REST with a committed state, REST alone with any answer.

        Raises SandboxError.
        """
        rest = self._endpoints.rest
        urls = [f"{rest}/healthz"]
        if self._controller:
            urls = [f"{self._endpoints.metrics.removesuffix('/metrics')}/readyz", f"{rest}/readyz"]
        waiting = ""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                for waiting in urls:
                    await until_ready(waiting, check=lambda: None)
        except TimeoutError:
            raise SandboxError(
                f"{waiting} did not answer in {_READY_SECONDS:g} s: see {self._folder / 'log'}"
            ) from None


async def watch_over(child: ChildProcess) -> None:
    """Raises ChildDied once it has ended."""
    await child.wait()
    raise child.death()
