"""One load, started by queuectl or by a bare watcher, and what that cost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks import load
from benchmarks.machine import Busy, busy, cpu_seconds
from benchmarks.profiles import Samples
from benchmarks.progress import Advance
from benchmarks.progress import console as aside
from benchmarks.server_profile import ServerProfile
from benchmarks.site import Costs, Site, says, until
from benchmarks.watcher import READY
from queuectl.sandbox.processes import ChildDied, ChildProcess


class Starter(StrEnum):
    """What starts the Jobs."""

    OURS = "queuectl"
    NODES = "queuectl, on nodes"
    GATED = "bare watcher, our policies"
    BARE = "bare watcher, no policy"

    @property
    def ours(self) -> bool:
        return self in (Starter.OURS, Starter.NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load, and the streams of a short one before it."""

    streams: Sequence[load.Stream]
    most: int
    """The most unfinished Jobs at the same time."""
    warm: Sequence[load.Stream] = ()

    @property
    def jobs(self) -> int:
        return sum(stream.jobs for stream in self.streams)

    @property
    def namespaces(self) -> list[str]:
        return sorted({stream.namespace for stream in self.streams})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Files for the CPU profiles of the API server, and of the controller."""

    server: Path
    controller: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One load, started by `starter`; costs are CPU seconds."""

    starter: Starter
    jobs: int
    result: load.Result
    costs: Costs
    releaser: float
    busy: Busy
    commits: int
    """Transactions of the ledger."""
    decisions: int
    settled: float
    """Seconds after the last Job until all were over in the ledger and no Event was left to write."""

    @property
    def rate(self) -> float:
        return self.jobs / self.result.seconds

    def each(self, cpu: float) -> float:
        """CPU milliseconds per Job."""
        return cpu / self.jobs * 1e3

    @property
    def all_cpu(self) -> float:
        """If CPU is the bottleneck, this determines the Jobs per second; on a shared machine it is more
        meaningful than they are."""
        costs = self.costs
        return costs.api_server + costs.etcd + costs.postgres + self.releaser + self.result.cpu

    @property
    def others(self) -> float:
        """CPU seconds of this machine that other processes used."""
        return self.busy.used - self.all_cpu


class Trial:
    """One run on a fresh set of Jobs."""

    def __init__(
        self,
        place: Site,
        starter: Starter,
        scenario: Scenario,
        progress: Advance = lambda _: None,
        profiles: Profiles | None = None,
    ) -> None:
        self._site = place
        self._starter = starter
        self._scenario = scenario
        self._progress = progress
        self._profiles = profiles

    async def run(self) -> Run:
        await self._site.gate(self._starter is not Starter.BARE)
        await self._site.nodes(self._starter is Starter.NODES)
        releaser = await self._releaser()
        scenario = self._scenario
        try:
            await says(releaser, "leading with epoch" if self._starter.ours else READY)
            if self._starter is Starter.NODES:
                await until(self._site.limited_by_nodes)
            if scenario.warm:
                await self._load(releaser, scenario.warm)
                await self._settled()
            ledger = await self._ledger()
            before, cpu, all_cpu = await self._site.costs(), cpu_seconds(releaser.pid), busy()
            async with AsyncExitStack() as stack:
                if self._profiles is not None:
                    profile = ServerProfile(self._site, self._profiles.server)
                    await stack.enter_async_context(profile)
                result = await self._load(releaser, scenario.streams)
            settled = await self._settled()
            commits, decisions = await self._ledger()
            found = Run(
                starter=self._starter,
                jobs=scenario.jobs,
                result=result,
                costs=(await self._site.costs()).since(before),
                releaser=cpu_seconds(releaser.pid) - cpu,
                busy=busy().since(all_cpu),
                commits=commits - ledger[0],
                decisions=decisions - ledger[1],
                settled=settled,
            )
        finally:
            await releaser.stop(10.0)
        await self._clean()
        return found

    async def _releaser(self) -> ChildProcess:
        if self._starter.ours:
            return await self._site.controller(None if self._profiles is None else self._profiles.controller)
        return await self._site.process("watcher", "benchmarks.watcher", self._site.kubeconfig)

    async def _load(self, releaser: ChildProcess, streams: Sequence[load.Stream]) -> load.Result:
        """Run the load in its own process until it ends."""
        plane, folder = self._site.plane, self._site.folder
        plan = load.Plan(
            url=plane.url,
            ca_file=str(plane.ca_file),
            tenant=plane.tokens["tenant"],
            admin=plane.tokens["admin"],
            streams=list(streams),
            most=self._scenario.most,
            result=str(folder / "result.json"),
        )
        (folder / "result.json").write_text("0")
        (folder / "plan.json").write_text(json.dumps(asdict(plan)))
        child = await self._site.process("load", "benchmarks.load", folder / "plan.json")
        try:
            while child.returncode is None:
                if releaser.returncode is not None:
                    raise releaser.death()
                # Another process writes the file: a partial one is not valid JSON, and is read again.
                try:
                    ended = json.loads((folder / "result.json").read_text())
                    self._progress(ended if isinstance(ended, int) else plan.jobs)
                except json.JSONDecodeError:
                    pass
                await asyncio.sleep(0.2)
            if child.returncode != 0:
                raise ChildDied(f"{child.death()}\nbeside {self._starter}:\n{releaser.tail()}")
        finally:
            await child.stop(0)
        return load.Result(**json.loads((folder / "result.json").read_text()))

    async def _ledger(self) -> tuple[int, int]:
        """Transactions and decisions so far."""
        commits = await self._site.ask("SELECT coalesce(sum(batches), 0) FROM queuectl.leadership")
        return int(commits), int(await self._site.ask("SELECT count(*) FROM queuectl.decision"))

    async def _settled(self) -> float:
        """Wait until all work for these Jobs is done. Returns the seconds that took."""
        began = time.perf_counter()
        if self._starter.ours:
            await until(self._site.none_open)
            await until(self._site.events_at_rest(), pause=1.0)
        return time.perf_counter() - began

    async def _clean(self) -> None:
        """Clear the store, so that the next run starts with as little as this one."""
        at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        for namespace in self._scenario.namespaces:
            for path in (
                f"/apis/batch/v1/namespaces/{namespace}/jobs",
                f"/api/v1/namespaces/{namespace}/events",
            ):
                await self._site.api.request("DELETE", path, at_once)


async def profiles(place: Site, scenario: Callable[[Starter], Scenario]) -> dict[str, Samples]:
    """CPU profiles of the API server with queuectl and with the bare watcher, and of the controller."""
    found = {}
    for starter in (Starter.OURS, Starter.BARE):
        files = Profiles(
            server=place.folder / "server.profile", controller=place.folder / "controller.profile"
        )
        aside.print(f"{starter} …", style="dim")
        await Trial(place, starter, scenario(starter), profiles=files).run()
        found[f"API server with {starter}"] = Samples.read(files.server)
        if starter is Starter.OURS:
            found["controller"] = Samples.read(files.controller)
    return found
