"""`python -m benchmarks.load PLAN.json`: makes Jobs as a tenant, finishes each as soon as it was let go.

It stands for users, scheduler, kubelet and Job controller, in a process of its own, and writes what it saw to
the file named in its plan. One create and one status patch a Job, and one watch.
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

import aiohttp
import orjson

from benchmarks.site import training_job

JOBS = "/apis/batch/v1/jobs"
_AT_ONCE = 24
"""Creates, and finishes, under way at one time."""
_PATIENCE = 120.0
"""Seconds without any Job finishing after which it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    url: str
    ca_file: str
    tenant: str
    """Token that Jobs are made with."""
    admin: str
    """Token for the watch and for what a cluster's own controllers write."""
    namespaces: list[str]
    prefix: str
    """Of the names of Jobs."""
    jobs: int
    most: int
    """Jobs that are there and not finished at one time."""
    result: str
    """Where the result goes; the number of Jobs finished stands there until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    seconds: float
    """From before the first create until the last Job was finished."""
    cpu: float
    """CPU seconds of this process meanwhile."""
    waits: list[float]
    """Seconds from a Job's creation until it was seen let go."""


class Load:
    def __init__(self, plan: Plan, session: aiohttp.ClientSession) -> None:
        self._plan = plan
        self._session = session
        self._room = asyncio.Semaphore(plan.most)
        self._started: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Path and creation time of Jobs to finish."""
        self._made: dict[str, float] = {}
        """When, by name; of those not let go yet."""
        self._numbers = iter(range(plan.jobs))
        self._finished = 0
        self._all_finished = asyncio.Event()
        self.waits: list[float] = []

    async def run(self) -> Result:
        version = (await self._ask("GET", f"{JOBS}?limit=1"))["metadata"]["resourceVersion"]
        began, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as tasks:
            aside = [tasks.create_task(self._watch(version)), tasks.create_task(self._tell())]
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
            await self._ask("POST", path, training_job(name), token=self._plan.tenant)

    async def _watch(self, version: str) -> None:
        """An API server ends the watches of those who read too slowly: go on where it ended."""
        while True:
            version = await self._watch_once(version)

    async def _watch_once(self, version: str) -> str:
        """Until the server ends it. Returns the version up to which all was seen."""
        query = (
            f"?watch=true&resourceVersion={version}&labelSelector=queuectl.dev/queue-name&timeoutSeconds=3600"
        )
        headers = {"Authorization": f"Bearer {self._plan.admin}"}
        rest = last = b""
        async with self._session.get(f"{self._plan.url}{JOBS}{query}", headers=headers) as answer:
            answer.raise_for_status()
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if b'"type":"ERROR"' in line:
                        raise RuntimeError(f"watch: {line[:500].decode()}")
                    # Most of what comes does not matter: it is not worth decoding.
                    last = line
                    if b'"suspend":false' in line and b'"completionTime"' not in line:
                        self._look(orjson.loads(line)["object"])
        return orjson.loads(last)["object"]["metadata"]["resourceVersion"] if last else version

    def _look(self, job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        if (made := self._made.pop(metadata["name"], None)) is not None:
            self.waits.append(time.perf_counter() - made)
            path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}/status"
            self._started.put_nowait((path, metadata["creationTimestamp"]))

    async def _finish(self) -> None:
        while True:
            path, at = await self._started.get()
            await self._ask("PATCH", path, over(at))
            self._finished += 1
            self._room.release()
            if self._finished == self._plan.jobs:
                self._all_finished.set()

    async def _tell(self) -> None:
        """How far it is; gives up when nothing moves."""
        last, since = 0, time.perf_counter()
        while True:
            await asyncio.sleep(0.5)
            _write(self._plan.result, self._finished)
            if self._finished > last:
                last, since = self._finished, time.perf_counter()
            elif time.perf_counter() - since > _PATIENCE:
                waiting = len(self._made)
                raise TimeoutError(f"{last} of {self._plan.jobs} Jobs are finished, {waiting} never let go")

    async def _ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token or self._plan.admin}"}
        headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else orjson.dumps(body)
        url = f"{self._plan.url}{path}"
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            content = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {content[:500].decode()}")
            return orjson.loads(content) if method == "GET" else None


def _write(path: str, value: object) -> None:
    Path(path).write_text(json.dumps(value))


def over(at: str) -> dict[str, Any]:
    """What the Job controller writes at the end, all at once."""
    names = ("SuccessCriteriaMet", "Complete")
    conditions = [{"type": name, "status": "True", "lastTransitionTime": at} for name in names]
    counts = {"succeeded": 1, "active": 0, "ready": 0, "terminating": 0}
    return {"status": {"startTime": at, "completionTime": at, "conditions": conditions, **counts}}


async def main(plan: Plan) -> None:
    trust = ssl.create_default_context(cafile=plan.ca_file)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
        result = await Load(plan, session).run()
    _write(plan.result, asdict(result))


if __name__ == "__main__":
    asyncio.run(main(Plan(**json.loads(Path(sys.argv[1]).read_text()))))
