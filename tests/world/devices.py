"""What GPUs do, as metrics say: the task beside a leading controller asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from queuectl.core.model.workload import AttemptState, WorkloadId
from queuectl.idle.prometheus import Sample
from queuectl.ports.idle import DeviceHolder
from queuectl.sandbox.kubernetes.store import ObjectStore
from tests.acceptance.e2e.site import GPU
from tests.world.database import Database
from tests.world.objects import gpus_of

_LEAST: Final = timedelta(seconds=900)
"""Of idleness, until a policy of a schedule stops a workload."""
_LATEST: Final = 60.0
"""Seconds after which a controller knows that GPUs work again: the last check still counts for 30."""
_ENGINE: Final = {"idle": 0.0, "hang": 1.0, "busy": 0.5}
_OTHERS: Final = {"idle": 0.0, "hang": 0.0, "busy": 0.5}


class DeviceMetrics:
    """As a Prometheus has them: all GPUs of a team do the same."""

    def __init__(
        self, objects: ObjectStore, time: Callable[[], float], clock: Callable[[], datetime]
    ) -> None:
        self._objects = objects
        self._time = time
        self._clock = clock
        self._does: dict[str, str] = {}
        self._idle_from: dict[str, datetime] = {}
        """By the ledger's clock, when the GPUs of a team were idle first."""
        self._works_from: dict[str, float] = {}

    def turn(self, team: str, does: str) -> None:
        """`does`: idle, hang, busy, or unknown."""
        self._does[team] = does
        if does in ("idle", "hang"):
            self._idle_from.setdefault(team, self._clock())
            self._works_from.pop(team, None)
        else:
            self._works_from.setdefault(team, self._time())

    def contradict(self, team: str, now: datetime) -> str | None:
        """Why no workload of a team may be stopped as idle."""
        begun, works = self._idle_from.get(team), self._works_from.get(team)
        if begun is None or now - begun < _LEAST:
            return f"were idle from {begun} on"
        if works is not None and self._time() - works > _LATEST:
            return f"are not idle since {self._time() - works:g} s"
        return None

    async def query(self, expression: str) -> list[Sample]:
        """queuectl.idle.check.Queries."""
        values = _ENGINE if "ENGINE" in expression else _OTHERS
        counts = "count_over_time" in expression
        return [
            Sample({"namespace": team, "pod": pod, "UUID": uuid}, 1_000.0 if counts else values[does])
            for team, pod, uuid in self._devices()
            if (does := self._does.get(team, "busy")) in values
        ]

    def _devices(self) -> Iterator[tuple[str, str, str]]:
        for (namespace, name), stored in self._objects.collection("pods").items():
            pod = stored.read()
            if pod["status"].get("phase") == "Running":
                for number in range(gpus_of(pod)):
                    yield namespace, name, f"{stored.uid}/{number}"


class DeviceRecords:
    """queuectl.ports.idle.UseRecords of one process."""

    def __init__(self, database: Database, client: str) -> None:
        self._database = database
        self._client = client

    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        async def read() -> list[DeviceHolder]:
            return list(self._holders())

        return await self._database.call(self._client, "holders", read)

    async def store_check(self, problem: str | None, resources: Sequence[str]) -> datetime:
        return await self._database.call(self._client, "store_check", self._database.memory.now)

    def _holders(self) -> Iterator[DeviceHolder]:
        store = self._database.memory.store
        for id, stored in sorted(store.workloads.items()):
            attempt = stored.attempt
            if attempt is None or attempt.state is not AttemptState.ADMITTED:
                continue
            lines, booked = store.holds[id, attempt.number], store.booked[id, attempt.number]
            held = sum(line.pods * line.amount for line in lines if line.resource == GPU)
            named = booked.priority_class if booked is not None else None
            queue = attempt.assignment.cluster_queue
            if held:
                yield DeviceHolder(stored.ref.namespace, WorkloadId(id), attempt.number, queue, held, named)
