"""Toy operators of kinds whose real operator cannot run here, as one more operator of a site.

A toy acts through the API only, under a service account of its own: what it makes is judged by the gate. It
goes through the phases of the real operator, in its order, as far as queuectl can see them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from queuectl.kube.session import api_path
from queuectl.sandbox.control_plane import ControlPlane
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.pods import PODS, controller_uid
from tests.acceptance.operators.programs import Json, service_account
from tests.acceptance.operators.toy_spark import SparkDriver, SparkOperator
from tests.acceptance.operators.toy_wrapper import AppWrapperOperator, wrapper_of
from tests.integration.sandbox.cluster import WallClock
from tests.job_kinds import JOB_KINDS

_DEFINITIONS = Path(__file__).parents[1] / "gate" / "definitions"
_NAME = "toys"


class Toys:
    """The toys of a site, started and stopped as the process of an operator is."""

    def __init__(self, plane: ControlPlane, admin: Client) -> None:
        self._plane = plane
        self._admin = admin
        self._token = ""
        self._task: asyncio.Task[None] | None = None

    def definitions(self) -> list[Json]:
        """The CustomResourceDefinitions of their kinds."""
        return [yaml.safe_load(path.read_text()) for path in sorted(_DEFINITIONS.glob("*.yaml"))]

    async def install(self) -> None:
        """Their service account."""
        self._token = await service_account(self._admin, _NAME)

    async def start(self) -> None:
        self._task = asyncio.ensure_future(self._play())  # noqa: TID251 (it outlives the caller)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def check(self) -> None:
        """Raise the error with which they have ended by themselves."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _play(self) -> None:
        clock = WallClock()
        async with (
            Client(self._plane.url, self._plane.ssl_context(), self._token) as api,
            asyncio.TaskGroup() as tasks,
        ):
            pods = Informer(api, PODS, clock, {"owner": controller_uid, "wrapper": wrapper_of})
            applications, wrappers = [
                Informer(api, api_path(row.group, row.version, row.plural), clock)
                for row in (JOB_KINDS["SparkApplication"], JOB_KINDS["AppWrapper"])
            ]
            players = (
                SparkOperator(api, applications, pods, clock),
                SparkDriver(api, pods, pods, clock),
                AppWrapperOperator(api, wrappers, pods, clock),
            )
            for store in (pods, applications, wrappers):
                tasks.create_task(store.run())
            for store in (pods, applications, wrappers):
                await store.synced.wait()
            for player in players:
                tasks.create_task(player.queue.run())
