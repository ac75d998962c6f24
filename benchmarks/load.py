"""`python -m benchmarks.load PLAN.json`: creates Jobs as a tenant, and ends each once it has run.

It replaces users, scheduler, kubelet and Job controller, in a separate process, and writes its measurements
to the file named in its plan. It sends one create and one status patch per Job, and one watch. It never
writes the condition Suspended: an evicted Job gives its quota back some seconds later than on a cluster.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.following import follow, path_of
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Client, Object

_AT_ONCE = 48
"""Concurrent writes."""
_PATIENCE = 120.0
"""Seconds without an ended Job after which it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Jobs that differ only in their names, created one after another."""

    name: str
    """Prefix of the names of its Jobs, unique in its namespace."""
    namespace: str
    body: Object
    """A Job without a name."""
    jobs: int
    every: float = 0.0
    """Seconds between two creates, at least."""
    runs: float = 0.0
    """Seconds that a Job runs."""
    group: str = ""
    """Of streams whose waits are reported together."""
    tree: str = ""
    """Of streams that share quota."""
    gpus: int = 1
    """GPUs of a Job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    url: str
    ca_file: str
    tenant: str
    """Token for the creation of Jobs."""
    admin: str
    """Token for the watch and for writes of a cluster's own controllers."""
    streams: list[Stream]
    most: int
    """The most unfinished Jobs at the same time."""
    result: str
    """File of the result; until then it contains the number of ended Jobs."""

    @property
    def jobs(self) -> int:
        return sum(stream.jobs for stream in self.streams)

    @classmethod
    def read(cls, path: Path) -> Plan:
        content = json.loads(path.read_text())
        return cls(**{**content, "streams": [Stream(**one) for one in content["streams"]]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    seconds: float
    """From before the first create until the last Job was ended."""
    cpu: float
    """CPU seconds of this process in that time."""
    waits: dict[str, list[float]]
    """By group, seconds from a Job's creation until it was first observed as started."""
    evictions: int
    peak: dict[str, int]
    """By tree, the most GPUs of running Jobs at a time, in the order of the watch."""
    busy: float
    """GPU seconds that Jobs ran."""


@dataclass(slots=True)
class _Job:
    stream: Stream
    created: float
    run: int = 0
    """Number of its run, from 1; an eviction ends a run."""
    since: float | None = None
    """Start of its run; None: it does not run."""
    over: bool = False


@dataclass(slots=True)
class _Usage:
    """GPUs of running Jobs by tree."""

    now: Counter[str] = field(default_factory=Counter)
    peak: Counter[str] = field(default_factory=Counter)
    busy: float = 0.0

    def begin(self, job: _Job) -> None:
        tree = job.stream.tree
        self.now[tree] += job.stream.gpus
        self.peak[tree] = max(self.peak[tree], self.now[tree])

    def end(self, job: _Job, seconds: float) -> None:
        self.now[job.stream.tree] -= job.stream.gpus
        self.busy += seconds * job.stream.gpus


class Load:
    def __init__(self, plan: Plan, tenant: Client, admin: Client) -> None:
        self._plan = plan
        self._tenant = tenant
        self._admin = admin
        self._room = asyncio.Semaphore(plan.most)
        self._writes = asyncio.Semaphore(_AT_ONCE)
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._ended = 0
        self._all_ended = asyncio.Event()
        self._listed = asyncio.Event()
        self._waits: dict[str, list[float]] = {stream.group: [] for stream in plan.streams}
        self._evictions = 0
        self._usage = _Usage()
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> Result:
        async with self._tasks as tasks:
            watching = follow(self._admin, self._look, self._listed.set)
            aside = [tasks.create_task(work) for work in (watching, self._tell())]
            await self._listed.wait()
            began, cpu = time.perf_counter(), time.process_time()
            for stream in self._plan.streams:
                tasks.create_task(self._create(stream))
            await self._all_ended.wait()
            ended = time.perf_counter(), time.process_time()
            for task in aside:
                task.cancel()
        return Result(
            seconds=ended[0] - began,
            cpu=ended[1] - cpu,
            waits=self._waits,
            evictions=self._evictions,
            peak=dict(self._usage.peak),
            busy=self._usage.busy,
        )

    async def _create(self, stream: Stream) -> None:
        path = f"/apis/batch/v1/namespaces/{stream.namespace}/jobs"
        for number in range(stream.jobs):
            await self._room.acquire()
            async with self._writes:
                began, name = time.perf_counter(), f"{stream.name}-{number}"
                self._jobs[stream.namespace, name] = _Job(stream, began)
                await self._tenant.request("POST", path, _named(stream.body, name))
            if stream.every:
                await asyncio.sleep(max(0.0, began + stream.every - time.perf_counter()))

    def _look(self, found: Object) -> None:
        metadata = found["metadata"]
        job = self._jobs.get((metadata["namespace"], metadata["name"]))
        if job is None or job.over:
            return
        now, status = time.perf_counter(), found.get("status") or {}
        runs = not found["spec"].get("suspend")
        if status.get("completionTime"):
            self._over(job, now)
            return
        if runs and job.since is None:
            self._started(job, now)
            self._tasks.create_task(self._end(found, job, job.run))
        elif not runs and job.since is not None:
            self._evictions += 1
            self._stopped(job, now)

    def _over(self, job: _Job, now: float) -> None:
        job.over = True
        self._stopped(job, now)
        self._ended += 1
        self._room.release()
        if self._ended == self._plan.jobs:
            self._all_ended.set()

    def _started(self, job: _Job, now: float) -> None:
        if not job.run:
            self._waits[job.stream.group].append(now - job.created)
        job.run += 1
        job.since = now
        self._usage.begin(job)

    def _stopped(self, job: _Job, now: float) -> None:
        if job.since is not None:
            self._usage.end(job, now - job.since)
            job.since = None

    async def _end(self, found: Object, job: _Job, run: int) -> None:
        """End the Job after its run time, unless it was evicted."""
        if job.stream.runs:
            await asyncio.sleep(job.stream.runs)
        if job.since is not None and job.run == run:
            await self._write(found, over(found["metadata"]["creationTimestamp"]))

    async def _write(self, found: Object, status: Object) -> None:
        async with self._writes:
            await tell(self._admin, found, status)

    async def _tell(self) -> None:
        """Record the progress; give up without any."""
        last, since = 0, time.perf_counter()
        while True:
            await asyncio.sleep(0.5)
            _write(self._plan.result, self._ended)
            if self._ended > last:
                last, since = self._ended, time.perf_counter()
            elif time.perf_counter() - since > _PATIENCE:
                running = sum(job.since is not None for job in self._jobs.values())
                raise TimeoutError(f"{last} of {self._plan.jobs} Jobs are ended, {running} run")


async def tell(admin: Client, job: Object, status: Object) -> None:
    """Write the status of a Job, as its controller does."""
    try:
        await admin.request("PATCH", f"{path_of(job)}/status", status, content_type=MERGE_PATCH)
    except ApiError as error:
        # It has changed since: a write that is still due follows from the change.
        if error.status not in (409, 422):
            raise


def _named(body: Object, name: str) -> Object:
    return {**body, "metadata": {**body["metadata"], "name": name}}


def _write(path: str, value: object) -> None:
    Path(path).write_text(json.dumps(value))


def over(at: str) -> dict[str, Any]:
    """The status that the Job controller writes at the end, in one patch."""
    conditions = _conditions({"SuccessCriteriaMet": "True", "Complete": "True"}, at)
    counts = {"succeeded": 1, "active": 0, "ready": 0, "terminating": 0}
    return {"status": {"startTime": at, "completionTime": at, "conditions": conditions, **counts}}


def suspended(at: str, value: str) -> dict[str, Any]:
    """The status that the Job controller writes when it sees a Job suspended ("True") or not."""
    counts = {"active": 0, "ready": 0, "terminating": 0} if value == "True" else {}
    return {"status": {"conditions": _conditions({"Suspended": value}, at), **counts}}


def _conditions(found: Mapping[str, str], at: str) -> list[Object]:
    return [{"type": name, "status": value, "lastTransitionTime": at} for name, value in found.items()]


async def main(plan: Plan) -> None:
    trust = ssl.create_default_context(cafile=plan.ca_file)
    async with Client(plan.url, trust, plan.tenant) as tenant, Client(plan.url, trust, plan.admin) as admin:
        result = await Load(plan, tenant, admin).run()
    _write(plan.result, asdict(result))


if __name__ == "__main__":
    asyncio.run(main(Plan.read(Path(sys.argv[1]))))
