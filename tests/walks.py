"""Which modules and functions one decision enters: `python -m tests.walks` prints a line a walk.

A line is `NAME CORE_MODULES CORE_FUNCTIONS MODULES`. The first two count what calls of the engine enter in
`queuectl.core`. MODULES are those of all packages but the sandbox, which stands for the cluster; `-`: the
walk does not leave the core.
`--modules` prints the modules too. With `--write`, docs/architecture.md gets the table of these figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from aiohttp.test_utils import TestClient, TestServer

import queuectl
from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.controller.loop import Controller
from queuectl.core.decisions import Plan
from queuectl.core.engine import Engine
from queuectl.core.model.events import EffectSettled, PodsCounted, Result
from queuectl.core.model.policy import Preemption, PreemptionPolicy, SchedulingConfiguration
from queuectl.kinds.policy import parse_policy
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import api_path
from queuectl.kube.sources import sources
from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.metrics.registry import Metrics
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.builders import World, local_queue, observed, policy, queue, workload
from tests.integration.kube.sites import NAMESPACE, Site, job, jobs, small
from tests.integration.ledger.places import reachable_folder
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import two_teams

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
_ROOT: Final = str(Path(queuectl.__file__).parent) + "/"
_DEADLINE: Final = 60.0
_BEGIN, _END = "<!-- walks: made by `python -m tests.walks --write` -->", "<!-- end of walks -->"
_STANDS_FOR_THE_CLUSTER = "sandbox/"
T = TypeVar("T")


@dataclass
class Walk:
    """What was entered between the blocks of `watching`."""

    name: str
    title: str
    functions: set[tuple[str, str]] = field(default_factory=set)
    """Path of the module below the package, and qualified name."""
    beyond: Walk | None = None
    """The same from end to end, where the walk leaves the core."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        gc.collect()  # a generator that was left is closed now: while it watches, that is a call
        gc.disable()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()

    def of(self, call: Callable[[], T]) -> T:
        with self.watching():
            return call()

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_ROOT) and code.co_name != "<module>":
            module = code.co_filename.removeprefix(_ROOT).removesuffix(".py")
            if not module.startswith(_STANDS_FOR_THE_CLUSTER):
                self.functions.add((module, code.co_qualname))

    @property
    def modules(self) -> list[str]:
        return sorted({module for module, _ in self.functions})

    @property
    def core(self) -> list[str]:
        return [module for module in self.modules if module.startswith("core/")]

    @property
    def core_functions(self) -> int:
        return sum(module.startswith("core/") for module, _ in self.functions)

    @property
    def all_modules(self) -> list[str]:
        return sorted({*self.modules, *(self.beyond.modules if self.beyond else ())})

    def line(self) -> str:
        modules = len(self.all_modules) if self.beyond else "-"
        return f"{self.name} {len(self.core)} {self.core_functions} {modules}"


class Driven:
    """An engine whose calls are part of a walk."""

    def __init__(self, walk: Walk) -> None:
        anyone = Preemption(
            reclaim_within_cohort=PreemptionPolicy.ANY, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY
        )
        self.walk = walk
        self.world = World(
            queue("a", 4, cohort="team", preemption=anyone),
            queue("b", 4, cohort="team", preemption=anyone),
            local_queue("lqa", "a"),
            local_queue("lqb", "b"),
        )
        self.world.run()

    def handle(self, *events: Any) -> None:
        self.walk.of(lambda: self.world.engine.handle(events))

    def decide(self) -> Plan:
        """Decide once and commit."""
        world = self.world
        plan = self.walk.of(lambda: world.engine.decide(world.now))
        self.walk.of(lambda: world.engine.commit(plan, world.sequence + 1))
        world.sequence += len(plan.recorded)
        return plan

    def effects(self) -> list[EffectSettled]:
        effects = self.walk.of(self.world.engine.take_effects)
        return [EffectSettled(effect.key, Result.DONE, 3) for effect in effects]


def job_in_core() -> Walk:
    walk = Walk("job", "A plain Job in free quota, from the watch event to the start patch")
    driven = Driven(walk)
    driven.handle(observed(workload("first", "lqa", 2)))
    driven.decide()
    driven.effects()
    return walk


def preemption() -> Walk:
    """A workload of `b` takes quota back that `a` has borrowed."""
    walk = Walk("preemption", "A preemption, from the preemptor's event to its admission (core)")
    driven = Driven(walk)
    driven.world.submit(workload("borrows", "lqa", 6))
    driven.world.run()
    driven.world.settle()
    driven.handle(observed(workload("owner", "lqb", 4, created=5)))
    driven.decide()
    driven.handle(*driven.effects())
    probes = driven.decide().probes
    assert probes, "the pods of the victim are not counted"
    driven.handle(*(PodsCounted(probe.workload, probe.attempt, alive=False) for probe in probes))
    driven.decide()
    plan = driven.decide()
    assert [type(decision).__name__ for decision in plan.decisions] == ["Admit"], plan.decisions
    return walk


def cluster_queue() -> Walk:
    """The quota of a ClusterQueue is raised while five workloads wait in it."""
    walk = Walk("clusterqueue", "An edit of a ClusterQueue in which workloads wait (core)")
    driven = Driven(walk)
    for number in range(5):
        driven.world.submit(workload(f"waits-{number}", "lqb", 9, created=number))
    driven.world.run()
    driven.handle(policy(queue("b", 12, cohort="team")))
    assert driven.decide().decisions
    return walk


async def explain() -> Walk:
    """GET of one pending workload."""
    walk = Walk("explain", "An explanation, from the request to its answer (REST)")
    walk.beyond = walk
    readings = two_teams()
    view = View(readings, parse_policy)
    await view.refresh()
    app = application(
        view,
        readings,
        kinds=JOB_KINDS,
        cursor_key=b"k" * 32,
        identify=None,
        clock=asyncio.get_running_loop().time,
        what_ifs=TriedWhatIfs(),
        forecasts=readings,
        changes=None,
    )
    async with TestClient(TestServer(app)) as client:
        path = "/api/v1/workloads"
        items = (await (await client.get(f"{path}?phase=Pending")).json())["items"]
        name = "/".join(items[0][key] for key in ("namespace", "kind", "name"))
        with walk.watching():
            answer = await client.get(f"{path}/{name}")
        assert answer.status == 200
        assert (await answer.json())["reason"]
    return walk


async def job_from_end_to_end() -> Walk:
    """What a controller enters from the creation of a Job to the acknowledgement of its start."""
    walk = Walk("job", "A plain Job")
    with reachable_folder() as folder, tempfile.TemporaryDirectory() as small_folder:
        async with (
            EmbeddedPostgres(folder / "pg", settings={"fsync": "off"}) as postgres,
            small(Path(small_folder)) as site,
        ):
            await migrate(postgres.url)
            async with connection_pool(postgres.url) as pool, asyncio.timeout(_DEADLINE):
                await _furnish(site)
                await _lead(site, PostgresLedger(pool, "walk"), walk)
    return walk


async def _furnish(site: Site) -> None:
    group = {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}],
    }
    specs: tuple[tuple[str, str, str | None, dict[str, Any]], ...] = (
        ("ResourceFlavor", "resourceflavors", None, {}),
        ("ClusterQueue", "clusterqueues", None, {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("LocalQueue", "localqueues", NAMESPACE, {"clusterQueue": "main"}),
    )
    for kind, plural, namespace, spec in specs:
        metadata = {"name": "a100" if kind == "ResourceFlavor" else "main"}
        body = {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
        await site.create(api_path("queuectl.dev", "v1beta1", plural, namespace), body)


async def _lead(site: Site, ledger: PostgresLedger, walk: Walk) -> None:
    watched = sources(JOB_KINDS)
    engine = Engine(frozenset(source.name for source in watched), SchedulingConfiguration())
    controller = Controller(
        ledger=ledger, cluster=site.cluster, engine=engine, observer=Metrics(), holder="walk"
    )
    reflecting = reflectors(site.session, controller.emit, watched)
    async with asyncio.TaskGroup() as tasks:
        leading = tasks.create_task(controller.run())
        reading = tasks.create_task(reflecting.run())
        await _started(site, "warm", controller)
        with walk.watching():
            await _started(site, "walk", controller)
        controller.stop()
        await leading
        reading.cancel()


async def _started(site: Site, name: str, controller: Controller) -> None:
    """Create a Job, and wait until its start is acknowledged."""
    await site.create(jobs(), job(name))
    while (await site.session.get(jobs(name)))["spec"]["suspend"] or controller.unsettled()[0]:
        await asyncio.sleep(0.01)


async def all_walks() -> list[Walk]:
    first = job_in_core()
    first.beyond = await job_from_end_to_end()
    return [first, preemption(), cluster_queue(), await explain()]


def table(walks: list[Walk]) -> str:
    """The figures of the walks in Markdown."""
    lines = ["| walk | core modules | core functions | modules in all |", "|---|---|---|---|"]
    for walk in walks:
        whole = str(len(walk.all_modules)) if walk.beyond else ""
        lines.append(f"| {walk.title} | {len(walk.core)} | {walk.core_functions} | {whole} |")
    return "\n".join(lines)


def by_package(walk: Walk) -> str:
    """The modules of a walk, a line for each package."""
    rows: dict[str, list[str]] = {}
    for module in walk.all_modules:
        package, _, name = module.rpartition("/")
        rows.setdefault(package or "(top)", []).append(name)
    return "\n".join(f"  {package}: {', '.join(names)}" for package, names in rows.items())


def write(page: Path, text: str) -> None:
    """Replace what stands between the marks of the page. Raises ValueError if the page has none."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{page} has no lines {_BEGIN} and {_END}")
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=__doc__.partition("\n")[0])
    parser.add_argument("--modules", action="store_true", help="print the modules of each walk, by package")
    parser.add_argument("--write", action="store_true", help=f"write the table into docs/{PAGE.name}")
    options = parser.parse_args()
    walks = asyncio.run(all_walks())
    for walk in walks:
        print(walk.line())
        if options.modules:
            print(by_package(walk))
    if options.write:
        write(PAGE, table(walks))


if __name__ == "__main__":
    main()
