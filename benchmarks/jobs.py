"""Jobs per second, end to end on a real API server, and the cost of each; beside a bare watcher's.

Both start the same suspended Jobs, of the same tenant, under the same policies, as the same user and with
the same HTTP client; there is no controller manager. A separate process creates the Jobs, and marks each
complete as soon as it is started. Runs of the two alternate, so that noise affects both.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from benchmarks import load
from benchmarks.machine import Busy, busy, cpu_seconds, scratch
from benchmarks.profiles import Samples
from benchmarks.progress import Advance, bar
from benchmarks.report import Detail, Figure, Goal, Report, median, percentile
from benchmarks.site import Costs, Site, says, site, until
from benchmarks.watcher import READY
from queuectl.sandbox.processes import Child, ChildDied

PAIRS, JOBS, WARM, MOST = 3, 400, 60, 200
"""Runs of each; Jobs measured in a run; Jobs before that; Jobs that exist at the same time."""
_NAMESPACES = 10
_OURS, _BARE = "queuectl", "bare watcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Size of the load, and quota for it."""

    name: str
    gpus: int
    """Quota of each queue; a Job requests one GPU."""
    pairs: int

    @property
    def namespaces(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(_NAMESPACES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One load, started by `starter`; costs are CPU seconds."""

    starter: str
    jobs: int
    result: load.Result
    costs: Costs
    releaser: float
    busy: Busy
    commits: int
    """Transactions of the ledger."""
    settled: float
    """Seconds after the last Job until all were over in the ledger."""

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


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


async def _run(scale: int) -> Report:
    count, warm, most = max(20, JOBS // scale), WARM // scale, max(20, MOST // scale)
    pairs = PAIRS if scale < 10 else 1
    room = Load(name="room", gpus=most, pairs=pairs)
    tight = Load(name="tight", gpus=max(1, most // _NAMESPACES // 3), pairs=1 if scale < 100 else 0)
    found: dict[str, list[Run]] = {}
    with scratch() as folder:
        quotas = {name: each.gpus for each in (room, tight) for name in each.namespaces}
        async with site(folder, quotas) as place:
            with bar("jobs", 2 * (room.pairs + tight.pairs) * (count + warm)) as done:
                over = 0
                for each in (room, tight):
                    for pair in range(each.pairs):
                        for starter in (_OURS, _BARE):
                            label, sizes = f"{each.name}-{pair}", (warm, count, most)
                            once = Once(place, starter, each, label, lambda now: done(over + now))  # noqa: B023
                            found.setdefault(each.name, []).append(await once.run(*sizes))
                            over += count + warm
    return _report(found["room"], found.get("tight", []), most)


class Once:
    """One run on a fresh set of Jobs."""

    def __init__(
        self,
        place: Site,
        starter: str,
        what: Load,
        label: str,
        progress: Advance,
        profile: Path | None = None,
    ) -> None:
        self._site = place
        self._starter = starter
        self._what = what
        self._label = label
        self._progress = progress
        self._profile = profile

    async def run(self, warm: int, count: int, most: int) -> Run:
        ours = self._starter == _OURS
        releaser = await (
            self._site.controller(self._profile)
            if ours
            else self._site.process("watcher", "benchmarks.watcher", self._site.kubeconfig)
        )
        try:
            await says(releaser, "leading with epoch" if ours else READY)
            if warm:
                await self._load(releaser, "warm", warm, most, 0)
                await self._settled()
            commits = await self._commits()
            before, cpu, all_cpu = await self._site.costs(), cpu_seconds(releaser.pid), busy()
            result = await self._load(releaser, "jobs", count, most, warm)
            settled = await self._settled()
            found = Run(
                starter=self._starter,
                jobs=count,
                result=result,
                costs=(await self._site.costs()).since(before),
                releaser=cpu_seconds(releaser.pid) - cpu,
                busy=busy().since(all_cpu),
                commits=await self._commits() - commits,
                settled=settled,
            )
        finally:
            await releaser.stop(10.0)
        await self._clean()
        return found

    async def _load(self, releaser: Child, stage: str, jobs: int, most: int, over: int) -> load.Result:
        """Run the load in its own process until it ends."""
        plane, folder = self._site.plane, self._site.folder
        plan = load.Plan(
            url=plane.url,
            ca_file=str(plane.ca_file),
            tenant=plane.tokens["tenant"],
            admin=plane.tokens["admin"],
            namespaces=self._what.namespaces,
            prefix=f"{stage}-{self._label}-{self._starter.partition(' ')[0]}",
            jobs=jobs,
            most=most,
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
                    finished = json.loads((folder / "result.json").read_text())
                    self._progress(over + (finished if isinstance(finished, int) else jobs))
                except json.JSONDecodeError:
                    pass
                await asyncio.sleep(0.2)
            if child.returncode != 0:
                raise ChildDied(f"{child.death()}\nbeside {self._starter}:\n{releaser.tail()}")
        finally:
            await child.stop(0)
        return load.Result(**json.loads((folder / "result.json").read_text()))

    async def _commits(self) -> int:
        return int(await self._site.ask("SELECT coalesce(sum(batches), 0) FROM queuectl.leadership"))

    async def _settled(self) -> float:
        """Wait until all work for these Jobs is done. Returns the seconds that took."""
        began = time.perf_counter()
        if self._starter == _OURS:
            await until(self._site.none_open)
        return time.perf_counter() - began

    async def _clean(self) -> None:
        """Clear the store, so that the next run starts with as little as this one."""
        at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        for namespace in self._what.namespaces:
            for path in (
                f"/apis/batch/v1/namespaces/{namespace}/jobs",
                f"/api/v1/namespaces/{namespace}/events",
            ):
                await self._site.api.request("DELETE", path, at_once)


def profiled(scale: int = 1) -> Samples:
    """The controller's CPU profile, under the load with quota for all."""
    return asyncio.run(_profiled(max(20, JOBS // scale), max(20, MOST // scale)))


async def _profiled(count: int, most: int) -> Samples:
    room = Load(name="room", gpus=most, pairs=1)
    with scratch() as folder:
        profile = folder / "controller.profile"
        async with site(folder, dict.fromkeys(room.namespaces, most)) as place:
            with bar("jobs", count) as done:
                await Once(place, _OURS, room, "profile", done, profile).run(0, count, most)
        return Samples.read(profile)


def _report(room: list[Run], tight: list[Run], most: int) -> Report:
    ours, bare = _of(room, _OURS), _of(room, _BARE)
    bound = "bare watcher that patches suspend"
    figures = [
        Figure(
            name="Jobs made, let go and finished",
            value=median([one.rate for one in ours]),
            unit="Jobs/s",
            ceiling=median([one.rate for one in bare]),
            bound=bound,
            goal=Goal("ratio", "least", 0.7),
        ),
        Figure(
            name="CPU of all of it, load included",
            value=median([one.each(one.all_cpu) for one in ours]),
            unit="ms a Job",
            ceiling=median([one.each(one.all_cpu) for one in bare]),
            bound=bound,
        ),
        Figure(
            name="CPU of the controller",
            value=median([one.each(one.releaser) for one in ours]),
            unit="ms a Job",
            ceiling=median([one.each(one.releaser) for one in bare]),
            bound="the watcher's own",
            goal=Goal("value", "most", 5.0),
        ),
        Figure(
            name="CPU of the API server",
            value=median([one.each(one.costs.api_server) for one in ours]),
            unit="ms a Job",
            ceiling=median([one.each(one.costs.api_server) for one in bare]),
            bound=bound,
            goal=Goal("ratio", "most", 1.6),
        ),
        Figure(
            name="CPU of Postgres",
            value=median([one.each(one.costs.postgres) for one in ours]),
            unit="ms a Job",
        ),
        Figure(
            name="API requests",
            value=mean(one.costs.requests.total() / one.jobs for one in ours),
            unit="a Job",
            ceiling=mean(one.costs.requests.total() / one.jobs for one in bare),
            bound=bound,
        ),
    ]
    details = [_runs("room for all", room)]
    if tight:
        rate = Figure(
            name="the same, where two of three have to wait",
            value=median([one.rate for one in _of(tight, _OURS)]),
            unit="Jobs/s",
            ceiling=median([one.rate for one in _of(tight, _BARE)]),
            bound=bound,
        )
        figures.insert(1, rate)
        details.append(_runs(_waiting(most), tight))
    return Report("jobs", figures, [*details, _verbs(room)])


def _waiting(most: int) -> str:
    return f"room for a third of the {most} Jobs that are there at one time"


def _of(runs: list[Run], starter: str) -> list[Run]:
    return [one for one in runs if one.starter == starter]


def _runs(title: str, runs: list[Run]) -> Detail:
    columns = (
        *("run", "Jobs/s", "let go p50 s", "p99 s", "settled after s", "commits/s"),
        *("API server ms", "etcd ms", "Postgres ms", "releaser ms", "load ms"),
        *("load, share of a core", "others, share of the machine"),
    )
    rows: list[tuple[str | float, ...]] = []
    for one in runs:
        costs, seconds = one.costs, one.result.seconds
        each = [one.each(cpu) for cpu in (costs.api_server, costs.etcd, costs.postgres, one.releaser)]
        waits = one.result.waits
        rows.append(
            (
                *(one.starter, one.rate, percentile(waits, 0.5), percentile(waits, 0.99), one.settled),
                one.commits / seconds,
                *(*each, one.each(one.result.cpu), one.result.cpu / seconds),
                (one.others + one.busy.stolen) / (one.busy.used + one.busy.stolen),
            )
        )
    return Detail(f"{title}; ms are of CPU, a Job", columns, tuple(rows))


def _verbs(runs: list[Run]) -> Detail:
    """Requests per Job by verb and resource, of both; those below one in a thousand Jobs are omitted."""
    totals: dict[str, Counter[tuple[str, str]]] = {_OURS: Counter(), _BARE: Counter()}
    jobs = Counter[str]()
    for one in runs:
        totals[one.starter] += one.costs.requests
        jobs[one.starter] += one.jobs
    keys = sorted(set(totals[_OURS]) | set(totals[_BARE]))
    rows: list[tuple[str | float, ...]] = [
        (verb, resource, *(totals[starter][verb, resource] / jobs[starter] for starter in (_OURS, _BARE)))
        for verb, resource in keys
        if sum(totals[starter][verb, resource] for starter in totals) * 1000 >= jobs.total()
    ]
    return Detail(
        "API requests a Job, as the API server counts them", ("verb", "resource", _OURS, _BARE), tuple(rows)
    )
