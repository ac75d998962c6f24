"""Pages of REST for a tenant that may read a tenth of 200 namespaces, while 20,000 Jobs wait and 20/s start.

Nothing is simulated: 20,000 suspended Jobs in the API server, the controller that decides on them, and REST,
which lets the cluster review tokens and access. The benchmark ends 20 running Jobs per second, so that as
many start.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from benchmarks.churn import Churn
from benchmarks.machine import cpu_seconds, memory, scratch
from benchmarks.objects import Object, separate_queues, training_job
from benchmarks.profiles import Samples
from benchmarks.progress import Advance, bar
from benchmarks.report import Detail, Figure, Goal, Report, percentile
from benchmarks.site import Site, says, site, until
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.processes import ChildProcess

NAMESPACES, WAITING, READABLE = 200, 20_000, 20
STARTS: Final = 20
"""Starts per second."""
SECONDS = 60
PAGE: Final = 500
_WARM: Final = 3
"""Seconds of pages before the measurement."""
_PAUSE: Final = 0.12
"""Seconds between two pages: a caller may send ten requests per second."""
_GOAL_SECONDS, _GOAL_BYTES = 0.25, 400e6
SAYS_URL: Final = re.compile(r"REST at (\S+)")
_AT_ONCE: Final = 24


@dataclass(slots=True)
class Found:
    pages: list[float] = field(default_factory=list)
    """Seconds of each page."""
    bare: list[float] = field(default_factory=list)
    """Seconds of requests that need nothing but the server."""
    bytes: int = 0
    """Size of the largest page."""
    items: set[int] = field(default_factory=set)
    """Numbers of workloads on the pages."""
    seen: float = 0.0
    """Seconds from the controller's start until the ledger had a reason for each pending Job."""
    started: float = 0.0
    """Starts per second in that time."""
    memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds per second."""


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


def profiled(scale: int = 1) -> dict[str, Samples]:
    """CPU profile of REST alone."""
    with tempfile.TemporaryDirectory(prefix="queuectl-bench-") as name:
        profile = Path(name) / "api.profile"
        asyncio.run(_run(scale, profile))
        return {"REST": Samples.read(profile)}


async def _run(scale: int, profile: Path | None = None) -> Report:
    spaces, seconds = max(10, NAMESPACES // scale), max(3, SECONDS // scale)
    # Enough that some are still pending at the end.
    waiting = max(2 * STARTS * (seconds + _WARM), WAITING // scale)
    readable = spaces * READABLE // NAMESPACES
    names = [f"team-{number:03}" for number in range(spaces)]
    found = Found()
    with scratch() as folder:
        async with site(folder, separate_queues(dict.fromkeys(names, 1))) as place:
            with bar("rest: Jobs made", waiting + spaces) as done:
                await make_jobs(place, _jobs(names, waiting + spaces), done)
            controller = await place.controller()
            try:
                began = time.perf_counter()
                await decided(place, controller, waiting, "rest")  # the Events that say so take much longer
                found.seen = time.perf_counter() - began
                async with rest_server(place, profile) as (server, url):
                    token = await reader(place, names[:readable])
                    await _measure(place, controller, server, url, token, seconds, found)
            finally:
                await controller.stop(20.0)
    return _report(found, waiting, spaces, readable)


def _jobs(namespaces: list[str], count: int) -> Iterator[tuple[str, Object]]:
    for number in range(count):
        yield namespaces[number % len(namespaces)], training_job(f"job-{number}")


async def make_jobs(place: Site, jobs: Iterator[tuple[str, Object]], done: Advance) -> None:
    """Create `jobs`, given with their namespaces, some of them at the same time."""
    numbered = enumerate(jobs)

    async def create() -> None:
        for number, (namespace, body) in numbered:
            await tenant.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body)
            done(number)

    plane = place.plane
    async with (
        Client(plane.url, plane.ssl_context(), plane.tokens["tenant"]) as tenant,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(_AT_ONCE):
            tasks.create_task(create())


async def decided(place: Site, controller: ChildProcess, waiting: int, benchmark: str) -> None:
    """Wait until the ledger has a reason for each of the Jobs that wait."""
    question = "SELECT count(*) FROM queuectl.workload_open WHERE reason IS NOT NULL AND phase = 'Pending'"

    async def all_decided() -> bool:
        if controller.returncode is not None:
            raise controller.death()
        done(count := await place.ask(question))
        return bool(count >= waiting)

    with bar(f"{benchmark}: reasons decided", waiting) as done:
        await until(all_decided, 900, 1.0)


@asynccontextmanager
async def rest_server(place: Site, profile: Path | None = None) -> AsyncIterator[tuple[ChildProcess, str]]:
    config = place.folder / "api.yaml"
    config.write_text("api: {listen: '127.0.0.1:0'}\n")
    flags = ("--config", config, "--kubeconfig", place.kubeconfig, "--context", "admin")
    command = ("queuectl",) if profile is None else ("benchmarks.under_profile", profile)
    server = await place.process("api", *command, "api", *flags)
    try:
        await says(server, "REST at")
        address = SAYS_URL.search(server.tail(100))
        assert address is not None
        yield server, address[1]
    finally:
        await server.stop(10.0)


async def reader(place: Site, namespaces: list[str], name: str = "reader") -> str:
    """Token of a service account that may read these namespaces."""
    home = f"/api/v1/namespaces/{namespaces[0]}/serviceaccounts"
    await place.api.request("POST", home, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespaces[0]}
    group = "rbac.authorization.k8s.io"
    for namespace in namespaces:
        path = f"/apis/{group}/v1/namespaces/{namespace}/rolebindings"
        role = {"apiGroup": group, "kind": "ClusterRole", "name": "queuectl-viewer"}
        await place.api.request(
            "POST", path, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        )
    answer = await place.api.request("POST", f"{home}/{name}/token", {"spec": {"audiences": ["queuectl"]}})
    token: str = answer["status"]["token"]
    return token


async def _measure(
    place: Site,
    controller: ChildProcess,
    server: ChildProcess,
    url: str,
    token: str,
    seconds: float,
    found: Found,
) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    pids = {"controller": controller.pid, "api": server.pid}
    async with (
        aiohttp.ClientSession(headers=headers, trust_env=False) as session,
        asyncio.TaskGroup() as tasks,
    ):
        churn = Churn(place.api, STARTS)
        churning = tasks.create_task(churn.run())
        await _pages(session, url, _WARM, Found())  # caches are warm, as for a regular caller
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        started, began = churn.started, time.perf_counter()
        with bar("rest: pages", seconds) as done:
            await _pages(session, url, seconds, found, done)
        took = time.perf_counter() - began
        found.started = (churn.started - started) / took
        found.cpu = {name: (cpu_seconds(pid) - before[name]) / took for name, pid in pids.items()}
        found.memory = {name: memory(pid) for name, pid in pids.items()}
        churning.cancel()


async def _pages(
    session: aiohttp.ClientSession, url: str, seconds: float, found: Found, done: Advance = lambda _: None
) -> None:
    """Request page after page; after the last start again with the first."""
    began, cursor = time.perf_counter(), ""
    while (passed := time.perf_counter() - began) < seconds:
        done(passed)
        query = f"?limit={PAGE}{f'&next={cursor}' if cursor else ''}"
        page, took = await _timed(session, f"{url}/api/v1/workloads{query}")
        found.pages.append(took)
        found.bytes = max(found.bytes, len(page))
        answer: dict[str, Any] = orjson.loads(page)
        found.items.add(len(answer["items"]))
        cursor = answer.get("next") or ""
        _, took = await _timed(session, f"{url}/healthz")
        found.bare.append(took)
        await asyncio.sleep(_PAUSE)


async def _timed(session: aiohttp.ClientSession, url: str) -> tuple[bytes, float]:
    began = time.perf_counter()
    async with session.get(url) as answer:
        content = await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET {url}: {answer.status} {content[:500].decode()}")
    return content, time.perf_counter() - began


def _report(found: Found, waiting: int, spaces: int, readable: int) -> Report:
    bound = "/healthz of the same server"
    figures = [
        Figure(
            name=f"a page of {PAGE}, p99" if part == 0.99 else f"a page of {PAGE}, p50",
            value=percentile(found.pages, part) * 1e3,
            unit="ms",
            ceiling=percentile(found.bare, part) * 1e3,
            bound=bound,
            goal=Goal("value", "most", _GOAL_SECONDS * 1e3) if part == 0.99 else None,
        )
        for part in (0.5, 0.99)
    ]
    for name, (_, most) in found.memory.items():
        goal = Goal("value", "most", _GOAL_BYTES / 1e6)
        figures.append(
            Figure(name=f"memory of {name}, at its height", value=most / 1e6, unit="MB", goal=goal)
        )
    rows: tuple[tuple[str | float, ...], ...] = (
        ("Jobs that wait", float(waiting)),
        ("namespaces, of which the tenant may read", f"{spaces}, {readable}"),
        ("starts a second meanwhile", found.started),
        ("pages", float(len(found.pages))),
        ("workloads on a page, at most", float(max(found.items))),
        ("KB of a page, at most", found.bytes / 1e3),
        ("s until the controller had a reason for each", found.seen),
        *((f"MB of {name} at the end", now / 1e6) for name, (now, _) in found.memory.items()),
        *((f"CPU of {name}, cores", cpu) for name, cpu in found.cpu.items()),
    )
    return Report("rest", figures, [Detail("the run", ("what", "found"), rows)])
