"""The process of a controller is killed at a write of the start and of the stop of a group of pods.

SIGKILL comes with the k-th pod that is patched, or deleted: this write is carried out and never answered, and
no later one arrives. Pods and ledger are judged while no controller runs, then the next one goes on.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from queuectl.kinds.reserved_keys import WORKLOAD_LABEL
from queuectl.sandbox.control_plane import ControlPlane, find_assets, write_kubeconfig
from queuectl.sandbox.processes import ChildProcess
from tests.acceptance.chaos.proxy import Fault, Proxy
from tests.acceptance.e2e import test_pod_groups, test_single_pods
from tests.acceptance.e2e.conftest import NO_ASSETS, _gate_pods
from tests.acceptance.e2e.plant import NAMESPACE, Plant, plant
from tests.acceptance.e2e.site import GPU, Json, eventually
from tests.acceptance.e2e.world import World
from tests.doubles.open_holds import open_holds
from tests.integration.ledger.places import reachable_folder

SIZE = 8
POD = re.compile(rf"/api/v1/namespaces/{NAMESPACE}/pods/([^/?]+)(\?.*)?")
"""A request for a pod, and for none of its subresources."""
KINDS = "kinds: [Pod]\n"
START, STOP = "PATCH", "DELETE"
PLAIN, ERRORS, POSTGRES = "", "each pod's first write is answered with 500", "Postgres is killed"
TRIED = (
    (1, PLAIN),
    (4, POSTGRES),
    (7, ERRORS),
)
"""The numbers of writes, and what happens beside. Those between are crash points of `tests/world`."""


@dataclass
class Life:
    """A controller until it writes the k-th pod by this method. `rule` is asked about its requests."""

    method: str
    k: int
    beside: str
    child: ChildProcess | None = None
    over: bool = False
    tries: Counter[str] = field(default_factory=Counter)
    written: set[str] = field(default_factory=set)
    """The pods whose write is carried out."""

    def rule(self, method: str, path: str) -> Fault | None:
        if self.over and self.beside != POSTGRES:
            return Fault("dropped")  # it was sent before the SIGKILL
        pod = POD.fullmatch(path)
        if method != self.method or pod is None:
            return None
        name = pod[1]
        self.tries[name] += 1
        fault = None
        if self.beside == ERRORS and self.tries[name] == 1:
            fault = Fault("lost" if int(name[-1]) % 2 else "refused")
        if self.over:
            fault = Fault("late", seconds=1)
        if fault is None or fault.kind != "refused":
            self.written.add(name)
        if len(self.written) == self.k and not self.over:
            self.over = True
            if self.beside != POSTGRES:
                self.kill()
        return fault

    def kill(self) -> None:
        assert self.child is not None
        self.child.send(signal.SIGKILL)


@dataclass
class Rig:
    """The requests of its controllers go through a proxy."""

    site: Plant
    world: World
    proxy: Proxy
    kubeconfig: Path

    @classmethod
    @asynccontextmanager
    async def made(cls, folder: Path) -> AsyncIterator[Rig]:
        async with plant(folder, "real", gpus=SIZE) as (site, world):
            plane = site.plane
            assert isinstance(plane, ControlPlane)
            config, kubeconfig = folder / "pods.yaml", folder / "through-the-proxy"
            config.write_text(KINDS)
            await _gate_pods(site, world.api, config)
            async with Proxy(plane.url, plane.ssl_context()) as proxy:
                token = {"controller": plane.tokens["controller"]}
                write_kubeconfig(kubeconfig, proxy.url, plane.ca_file, token, current="controller")
                yield cls(site, world, proxy, kubeconfig)

    @asynccontextmanager
    async def life(self, method: str = "", k: int = 0, beside: str = PLAIN) -> AsyncIterator[None]:
        """Run a controller; at the end it is killed with the k-th write, or without k at once."""
        life = Life(method, k, beside)
        self.proxy.rule = life.rule
        life.child = child = await self.site.controller(kubeconfig=self.kubeconfig, more=KINDS)
        yield

        async def over() -> bool:
            assert life.over or child.returncode is None, child.tail()
            return life.over

        async def all_written() -> bool:
            return len(life.written) == SIZE

        if k:
            await eventually(f"{method} of {k} pods", over)
        if beside == POSTGRES:
            async with self.site.postgres_away():
                await eventually("the other pods are written without Postgres", all_written)
                life.kill()
        life.kill()
        assert await child.wait() == -signal.SIGKILL, child.tail()

    # --- groups of pods

    async def create(self, group: str) -> set[str]:
        """Returns the UIDs of its pods, which take a moment to end."""
        uids = set()
        for number in range(SIZE):
            body = test_pod_groups._body(group, number, size=SIZE)
            body["metadata"]["annotations"]["sandbox.queuectl.dev/terminate-seconds"] = "0.5"
            uids.add((await test_single_pods._created(self.world, body))["metadata"]["uid"])
        return uids

    async def live(self, group: str, count: int) -> list[Json]:
        """Wait until so many of its pods are past their gate and not deleted; returns these."""

        async def look() -> tuple[list[Json]] | None:
            pods = await test_pod_groups._members(self.world, group)
            held = test_pod_groups._gated(pods)
            live = [
                one
                for one in pods
                if one["metadata"]["name"] not in held and "deletionTimestamp" not in one["metadata"]
            ]
            return (live,) if len(live) == count else None

        (live,) = await eventually(f"{count} pods of {group} are started", look)
        return list(live)

    async def all_run(self, group: str) -> set[str]:
        """Returns the UIDs of its pods."""
        running = await test_pod_groups._running(self.world, group, SIZE)
        return {one["metadata"]["uid"] for one in running}

    async def gone(self, group: str) -> None:
        async def look() -> bool:
            return not await test_pod_groups._members(self.world, group)

        await eventually(f"{group} has no pods", look)

    async def charged(self) -> dict[str, int]:
        """The pods that quota is held for, by workload."""
        found = Counter[str]()
        for workload, _, _, count, _, resource, _ in await open_holds(self.site.postgres.url):
            if resource == GPU:
                found[workload] += count
        return dict(found)

    async def admissions(self, workload: str) -> int:
        question = "SELECT count(*) FROM queuectl.decision WHERE workload = $1 AND verdict = 'Admitted'"
        return int(await self.site.ask(question, workload))

    async def verified(self) -> None:
        """Ledger and cluster."""
        place = ("--database-url", self.site.postgres.url, "--config", str(self.site.data / "pods.yaml"))
        cluster = ("--cluster", "--kubeconfig", str(self.site.kubeconfig), "--context", "admin")
        found = await self.site.run(sys.executable, "-m", "queuectl", "verify", *place, *cluster)
        assert found.code == 0, found.out + found.err


async def _killed(rig: Rig, former: str, group: str, k: int, beside: str) -> None:
    """In the start of `group`, which waits for the quota of `former`, and then in its stop."""
    written = SIZE if beside == POSTGRES else k
    uids = await rig.create(group)
    async with rig.life(START, k, beside):
        await rig.gone(former)
    started = await rig.live(group, written)
    (workload,) = {one["metadata"]["labels"][WORKLOAD_LABEL] for one in started}
    assert await rig.charged() == {workload: SIZE}
    async with rig.life(STOP, k, beside):
        assert await rig.all_run(group) == uids
        assert await rig.charged() == {workload: SIZE}
        await rig.world.annotate(f"{group}-0", "queuectl.dev/hold", "true", "Pod")
    left = await rig.live(group, SIZE - written)
    assert {one["status"]["phase"] for one in left} <= {"Running"}
    assert await rig.charged() == {workload: SIZE}
    assert await rig.admissions(workload) == 1


@pytest.mark.skipif(find_assets() is None, reason=NO_ASSETS)
async def test_a_controller_killed_at_a_write_of_a_group_loses_no_pod_and_none_runs_uncharged() -> None:
    with reachable_folder() as folder:
        async with asyncio.timeout(580), Rig.made(folder) as rig:
            former = "none"
            for number, (k, beside) in enumerate(TRIED):
                group = f"group-{number}"
                await _killed(rig, former, group, k, beside)
                former = group
            await rig.create("last")
            async with rig.life():
                await rig.all_run("last")

                async def settled() -> bool:
                    return not await rig.site.ask("SELECT count(*) FROM queuectl.effect WHERE open")

                await eventually("all effects are acknowledged", settled)
                assert await rig.site.ask("SELECT count(*) FROM queuectl.workload WHERE open") == 1
                assert list((await rig.charged()).values()) == [SIZE]
                await rig.verified()
            assert "Traceback" not in rig.site.log("controller")
