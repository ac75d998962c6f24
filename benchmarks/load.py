"""`python -m benchmarks.load PLAN.json`: creates Jobs as a tenant, finishes each as soon as it is started.

It replaces users, scheduler, kubelet and Job controller, in a separate process, and writes its measurements
to the file named in its plan. It sends one create and one status patch per Job, and one watch.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.following import follow, path_of
from benchmarks.site import training_job
from queuectl.sandbox.client import Client
from queuectl.sandbox.players.api import MERGE_PATCH, Object

_AT_ONCE = 24
"""Concurrent creates, and concurrent finishes."""
_PATIENCE = 120.0
"""Seconds without a finished Job after which it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    url: str
    ca_file: str
    tenant: str
    """Token for the creation of Jobs."""
    admin: str
    """Token for the watch and for writes of a cluster's own controllers."""
    namespaces: list[str]
    prefix: str
    """Prefix of the names of Jobs."""
    jobs: int
    most: int
    """The most unfinished Jobs at the same time."""
    result: str
    """File of the result; until then it contains the number of finished Jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    seconds: float
    """From before the first create until the last Job was finished."""
    cpu: float
    """CPU seconds of this process in that time."""
    waits: list[float]
    """Seconds from a Job's creation until it was observed as started."""


class Load:
    def __init__(self, plan: Plan, tenant: Client, admin: Client) -> None:
        self._plan = plan
        self._tenant = tenant
        self._admin = admin
        self._room = asyncio.Semaphore(plan.most)
        self._started: asyncio.Queue[Object] = asyncio.Queue()
        self._made: dict[str, float] = {}
        """Creation time by name, of Jobs not started yet."""
        self._numbers = iter(range(plan.jobs))
        self._finished = 0
        self._all_finished = asyncio.Event()
        self._listed = asyncio.Event()
        self.waits: list[float] = []

    async def run(self) -> Result:
        async with asyncio.TaskGroup() as tasks:
            watching = follow(self._admin, self._look, self._listed.set)
            aside = [tasks.create_task(work) for work in (watching, self._tell())]
            await self._listed.wait()
            began, cpu = time.perf_counter(), time.process_time()
            aside += [tasks.create_task(self._finish()) for _ in range(_AT_ONCE)]
            for _ in range(_AT_ONCE):
                tasks.create_task(self._create())
            await self._all_finished.wait()
            ended = time.perf_counter(), time.process_time()
            for task in aside:
                task.cancel()
        return Result(seconds=ended[0] - began, cpu=ended[1] - cpu, waits=self.waits)

    async def _create(self) -> None:
        namespaces, prefix = self._plan.namespaces, self._plan.prefix
        for number in self._numbers:
            await self._room.acquire()
            name = f"{prefix}-{number}"
            path = f"/apis/batch/v1/namespaces/{namespaces[number % len(namespaces)]}/jobs"
            self._made[name] = time.perf_counter()
            await self._tenant.request("POST", path, training_job(name))

    def _look(self, job: Object) -> None:
        name = job["metadata"]["name"]
        if not job["spec"].get("suspend") and (made := self._made.pop(name, None)) is not None:
            self.waits.append(time.perf_counter() - made)
            self._started.put_nowait(job)

    async def _finish(self) -> None:
        while True:
            job = await self._started.get()
            ended = over(job["metadata"]["creationTimestamp"])
            await self._admin.request("PATCH", f"{path_of(job)}/status", ended, content_type=MERGE_PATCH)
            self._finished += 1
            self._room.release()
            if self._finished == self._plan.jobs:
                self._all_finished.set()

    async def _tell(self) -> None:
        """Record the progress; give up without any."""
        last, since = 0, time.perf_counter()
        while True:
            await asyncio.sleep(0.5)
            _write(self._plan.result, self._finished)
            if self._finished > last:
                last, since = self._finished, time.perf_counter()
            elif time.perf_counter() - since > _PATIENCE:
                waiting = len(self._made)
                raise TimeoutError(f"{last} of {self._plan.jobs} Jobs are finished, {waiting} never let go")


def _write(path: str, value: object) -> None:
    Path(path).write_text(json.dumps(value))


def over(at: str) -> dict[str, Any]:
    """The status that the Job controller writes at the end, in one patch."""
    names = ("SuccessCriteriaMet", "Complete")
    conditions = [{"type": name, "status": "True", "lastTransitionTime": at} for name in names]
    counts = {"succeeded": 1, "active": 0, "ready": 0, "terminating": 0}
    return {"status": {"startTime": at, "completionTime": at, "conditions": conditions, **counts}}


async def main(plan: Plan) -> None:
    trust = ssl.create_default_context(cafile=plan.ca_file)
    async with Client(plan.url, trust, plan.tenant) as tenant, Client(plan.url, trust, plan.admin) as admin:
        result = await Load(plan, tenant, admin).run()
    _write(plan.result, asdict(result))


if __name__ == "__main__":
    asyncio.run(main(Plan(**json.loads(Path(sys.argv[1]).read_text()))))
