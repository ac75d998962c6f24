"""What kinds cost the controller: 12 kinds with 2,000 objects each, beside as many Jobs, and beside none.

All objects wait: the queue has no quota. They are in the ledger when the controller that is measured starts,
as at each restart. Then a few of each kind start, and the writes for them are counted. The kinds are defined
without a schema, which the controller does not read.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from benchmarks.machine import cpu_seconds, memory, scratch
from benchmarks.objects import separate_queues, training_job
from benchmarks.profiles import Samples
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report
from benchmarks.site import Site, says, site, until
from queuectl.app.kinds import built_in
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.podsets import PodSetGroup, Templates
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.install import Installer
from queuectl.sandbox.processes import ChildProcess

KINDS, OBJECTS, STARTED = 12, 2_000, 50
"""Kinds, and of each: objects, and those that start in the end."""
_NAMESPACE: Final = "team"
_AT_ONCE: Final = 24
_MOST: Final = 1.25
"""Goal: objects of 12 kinds cost at most a quarter more than as many Jobs."""
_URL: Final = re.compile(r"metrics and probes at (\S+)")

Object = dict[str, Any]


class Start(NamedTuple):
    """One start of a controller, until it is ready."""

    seconds: float
    cpu: float
    """CPU seconds of the controller."""
    bytes: int
    """Of its memory at the peak."""
    requests: int
    """Lists and reads that were answered meanwhile."""


class Found(NamedTuple):
    empty: Start
    full: Start
    kinds: int
    patches: float
    """For each object that starts."""


class _Sizes(NamedTuple):
    """Of each kind."""

    each: int
    started: int

    @classmethod
    def of(cls, scale: int) -> _Sizes:
        return cls(max(2, OBJECTS // scale), max(1, STARTED // scale))

    def times(self, kinds: int) -> _Sizes:
        return _Sizes(self.each * kinds, self.started * kinds)


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(_Sizes.of(scale)))


def profiled(scale: int = 1) -> dict[str, Samples]:
    """CPU profile of the controller that starts with objects of all kinds."""
    with tempfile.TemporaryDirectory(prefix="queuectl-bench-") as name:
        profile = Path(name) / "controller.profile"
        asyncio.run(_measured(_rows(), _Sizes.of(scale), profile))
        return {"controller": Samples.read(profile)}


async def _run(sizes: _Sizes) -> Report:
    rows = _rows()
    jobs = await _measured(rows[:1], sizes.times(len(rows)))
    kinds = await _measured(rows, sizes)
    return _report(jobs, kinds, sizes.each * len(rows))


def _rows() -> tuple[JobKind, ...]:
    """Job, and kinds with pod templates or the fields of Spark; one for each resource."""
    found = {
        row.resource: row
        for row in reversed(built_in().registry.rows)
        if isinstance(row.podsets, Templates) or row.kind == "SparkApplication"
    }
    return tuple(reversed(found.values()))[:KINDS]


async def _measured(rows: Sequence[JobKind], sizes: _Sizes, profile: Path | None = None) -> Found:
    with scratch() as folder:
        async with site(folder, separate_queues({_NAMESPACE: 0}), gated=False) as place:
            await Installer(place.api).apply(_definition(row) for row in rows if row.custom)
            empty = await _started(place)
            await _create(place, rows, sizes.each)
            await _record(place, sizes.each * len(rows))
            return await _restarted(place, rows, sizes.started * len(rows), empty, profile)


async def _create(place: Site, rows: Sequence[JobKind], each: int) -> None:
    """The kinds take turns, so that the oldest objects are of all kinds."""
    objects = ((row, number) for number in range(each) for row in rows)
    with bar(f"kinds: objects of {len(rows)}", each * len(rows)) as done:

        async def create() -> None:
            for row, number in objects:
                path = f"/apis/{row.api_version}/namespaces/{_NAMESPACE}/{row.plural}"
                await place.api.request("POST", path, _object(row, f"one-{number}"))
                done(number * len(rows))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(create())


async def _record(place: Site, count: int) -> None:
    """Let a controller write all of them into the ledger, with their reasons."""
    question = "SELECT count(*) FROM queuectl.workload_open WHERE reason IS NOT NULL"
    controller = await place.controller()
    with bar("kinds: reasons decided", count) as done:

        async def decided() -> bool:
            if controller.returncode is not None:
                raise controller.death()
            done(found := await place.ask(question))
            return bool(found >= count)

        try:
            await until(decided, 900, 1.0)
        finally:
            await controller.stop(20.0)


async def _restarted(
    place: Site, rows: Sequence[JobKind], starts: int, empty: Start, profile: Path | None
) -> Found:
    before, began = await place.requests(), time.perf_counter()
    controller = await place.controller(profile)
    try:
        full = await _ready(place, controller, began, before)
        return Found(empty, full, len(rows), await _patches(place, rows, starts))
    finally:
        await controller.stop(20.0)


async def _started(place: Site) -> Start:
    before, began = await place.requests(), time.perf_counter()
    controller = await place.controller()
    try:
        return await _ready(place, controller, began, before)
    finally:
        await controller.stop(20.0)


async def _ready(place: Site, controller: ChildProcess, began: float, before: Any) -> Start:
    await says(controller, "metrics and probes at")
    address = _URL.search(controller.tail(100))
    assert address is not None
    url = address[1].rstrip("/").removesuffix("/metrics")
    async with aiohttp.ClientSession(trust_env=False) as session:

        async def ready() -> bool:
            async with session.get(f"{url}/readyz") as answer:
                return answer.status == 200

        await until(ready, 300, 0.05)
    took = time.perf_counter() - began
    asked = await place.requests() - before
    reads = sum(count for (verb, _), count in asked.items() if verb in ("LIST", "GET"))
    return Start(took, cpu_seconds(controller.pid), memory(controller.pid)[1], reads)


async def _patches(place: Site, rows: Sequence[JobKind], starts: int) -> float:
    """Give the queue room for some objects, and count the patches of objects."""
    before = await place.requests()
    path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{_NAMESPACE}"
    (queue,) = (one for one in separate_queues({_NAMESPACE: starts}) if one["kind"] == "ClusterQueue")
    await place.api.request("PATCH", path, {"spec": queue["spec"]}, content_type=MERGE_PATCH)
    question = "SELECT count(*) FROM queuectl.effect WHERE acknowledged_at IS NOT NULL"

    async def acknowledged() -> bool:
        return bool(await place.ask(question) >= starts)

    await until(acknowledged)
    found = await place.requests() - before
    return sum(found["PATCH", row.plural] for row in rows) / starts


# --- objects ----------------------------------------------------------------------------------------------


def _definition(row: JobKind) -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": row.version, "served": True, "storage": True, "schema": schema}
    names = {"plural": row.plural, "kind": row.kind, "singular": row.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups below k8s.io need the annotation.
        "metadata": {"name": row.resource, "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {
            "group": row.group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


def _object(row: JobKind, name: str) -> Object:
    """A suspended object whose first podset is one pod of a Job of the other benchmarks."""
    job = training_job(name)
    if not row.custom:
        return job
    body = {**job, "apiVersion": row.api_version, "kind": row.kind, "spec": {}}
    if isinstance(row.podsets, Templates):
        for group in islice(row.podsets.groups, 1):
            _put(body, group, job["spec"]["template"])
        # RayJob is refused without it.
        body["spec"]["shutdownAfterJobFinishes"] = True
    else:
        gpu = {"name": "nvidia.com/gpu", "quantity": 1}
        body["spec"] = {
            "mode": "cluster",
            "driver": {"cores": 8, "memory": "64g", "gpu": gpu},
            "executor": {"instances": 0},
        }
    _set(body, row.suspend, True)
    return body


def _put(body: Object, group: PodSetGroup, template: Object) -> None:
    entry: Object = {}
    _set(entry, group.template, template)
    if group.each is None:
        _set(body, group.parent, entry)
    elif group.each.key:
        _set(body, group.parent, [{group.each.key: "workers", **entry}])
    else:
        _set(body, group.parent, {group.types[0]: entry})


def _set(holder: Object, path: Sequence[str], value: object) -> None:
    for key in path[:-1]:
        holder = holder.setdefault(key, {})
    holder[path[-1]] = value


# --- the report -------------------------------------------------------------------------------------------


def _report(jobs: Found, kinds: Found, count: int) -> Report:
    bound = f"{count} Jobs"
    goal = Goal("ratio", "most", _MOST)
    full, plain = kinds.full, jobs.full
    figures = [
        Figure(
            name=f"seconds to ready, {kinds.kinds} kinds",
            value=full.seconds,
            unit="s",
            ceiling=plain.seconds,
            bound=bound,
            goal=goal,
        ),
        Figure(name="CPU of the controller", value=full.cpu, unit="s", ceiling=plain.cpu, bound=bound),
        Figure(
            name="memory of the controller",
            value=full.bytes / 1e6,
            unit="MB",
            ceiling=plain.bytes / 1e6,
            bound=bound,
            goal=goal,
        ),
        Figure(
            name="patches of an object that starts",
            value=kinds.patches,
            unit="",
            ceiling=jobs.patches,
            bound="of a Job",
            goal=Goal("value", "most", 1),
        ),
    ]
    starts = {
        "Job alone, no objects": jobs.empty,
        f"{kinds.kinds} kinds, no objects": kinds.empty,
        bound: plain,
        f"{count} objects of {kinds.kinds} kinds": full,
    }
    table = tuple((name, one.seconds, one.cpu, one.bytes / 1e6, one.requests) for name, one in starts.items())
    columns = ("cluster", "s to ready", "CPU s", "peak memory MB", "lists and reads")
    return Report("kinds", figures, [Detail("starts of the controller", columns, table)])
