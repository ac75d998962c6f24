"""Faults of one kind each, as they happen to a controller with a standby."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import aiohttp

from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.api import Client
from tests.acceptance.chaos.proxy import Fault, Proxy
from tests.acceptance.e2e.plant import LEASE, Plant, frozen
from tests.acceptance.e2e.site import eventually

KINDS: Final = ("leader", "postgres", "api", "manager", "network")
_CONTROLLERS: Final = ("one", "two")
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"


class Controllers:
    """Two controllers with a lease; one that has ended is started again."""

    def __init__(self, site: Plant, admin: Client, kubeconfig: Path | None = None) -> None:
        self.exits: Counter[str] = Counter()
        self._site = site
        self._admin = admin
        self._kubeconfig = kubeconfig

    async def keep(self) -> None:
        """Start those that have ended."""
        for name in _CONTROLLERS:
            child = self._site.children.get(name)
            if child is not None and child.returncode is None:
                continue
            if child is not None:
                self.exits[str(child.returncode)] += 1
            await self._site.controller(name, lease=LEASE, kubeconfig=self._kubeconfig)

    def running(self) -> dict[str, int]:
        """Process ids by name."""
        children = {name: self._site.children[name] for name in _CONTROLLERS}
        return {name: child.pid for name, child in children.items() if child.returncode is None}

    async def leader(self) -> str:
        """Wait until one of them holds the lease."""
        namespace, name = LEASE.split("/")
        path = f"{_LEASES}/{namespace}/leases/{name}"

        async def look() -> str | None:
            lease = await self._admin.request("GET", path)
            holder = str(lease["spec"].get("holderIdentity") or "")
            _, _, process = holder.partition("/")  # HOST/PID/TOKEN
            return next((n for n, pid in self.running().items() if process.startswith(f"{pid}/")), None)

        found: str = await eventually("one of the controllers holds the lease", look)
        return found

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        child = self._site.children[name]
        child.send(number)
        async with asyncio.timeout(60):
            await child.wait()


class Faults:
    """`one` causes a fault and undoes it. Returns its name and the ledger's time from which it is over."""

    def __init__(self, site: Plant, controllers: Controllers, random: Random, proxy: Proxy | None) -> None:
        self._site = site
        self._controllers = controllers
        self._random = random
        self._proxy = proxy
        self._kinds: Mapping[str, Mapping[str, Callable[[], Awaitable[object]]]] = {
            "leader": {
                "leader frozen": self._freeze_leader,
                "leader killed": self._kill_leader,
                "both killed": self._kill_both,
                "standby killed": self._kill_standby,
                "leader asked to stop": self._stop_leader,
            },
            "postgres": {
                "backend killed": self._kill_backend,
                "Postgres killed": self._kill_postgres,
                "Postgres frozen": self._freeze_postgres,
                "connections ended": self._end_connections,
            },
            "api": {
                "API server killed": self._kill_api_server,
                "etcd killed": self._kill_etcd,
                "both killed": self._kill_both_servers,
                "history compacted": self._compact,
            },
            "manager": {
                "controller manager frozen": self._freeze_manager,
                "controller manager killed": self._kill_manager,
            },
            "network": {name: partial(self._disturb_network, name) for name in _NETWORK},
        }

    async def one(self, kind: str) -> tuple[str, object]:
        await self._controllers.keep()
        await asyncio.sleep(self._random.uniform(1, 5))
        name = self._random.choice(list(self._kinds[kind]))
        since = await self._kinds[kind][name]()
        return name, since or await self._now()

    async def _now(self) -> object:
        return await self._site.ask("SELECT clock_timestamp()")

    # --- the leader

    async def _freeze_leader(self) -> object:
        """Longer than its lease: it must find out that another one leads."""
        pid = self._controllers.running()[await self._controllers.leader()]
        since = await self._now()
        seconds = self._random.choice([18, 40])
        with frozen([pid]):
            # The other one may have been a leader that was frozen before, and is only now about to end.
            until = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < until:
                await self._controllers.keep()
                await asyncio.sleep(0.5)
        return since

    async def _kill_leader(self) -> object:
        leader, since = await self._controllers.leader(), await self._now()
        await self._controllers.kill(leader)
        await self._controllers.keep()
        return since

    async def _kill_both(self) -> object:
        since = await self._now()
        for name in self._controllers.running():
            await self._controllers.kill(name)
        await self._controllers.keep()
        return since

    async def _kill_standby(self) -> object:
        leader, since = await self._controllers.leader(), await self._now()
        for name in self._controllers.running():
            if name != leader:
                await self._controllers.kill(name)
        return since

    async def _stop_leader(self) -> object:
        leader, since = await self._controllers.leader(), await self._now()
        await self._controllers.kill(leader, signal.SIGTERM)
        return since

    # --- Postgres

    async def _kill_backend(self) -> None:
        """Postgres then ends all connections and recovers."""
        pids = await self._site.ask(
            "SELECT array_agg(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(pids), signal.SIGKILL)

    async def _kill_postgres(self) -> None:
        async with self._site.postgres_away():
            await asyncio.sleep(self._random.uniform(0, 4))

    async def _freeze_postgres(self) -> None:
        with self._site.postgres_frozen():
            await asyncio.sleep(20)

    async def _end_connections(self) -> None:
        for _ in range(40):
            await self._site.ask(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'queuectl' "
                "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            await asyncio.sleep(0.15)

    # --- the API server

    async def _kill_api_server(self) -> None:
        async with self._site.server_away("kube-apiserver"):
            await asyncio.sleep(self._random.uniform(0, 8))
        await self._api_server_answers()

    async def _kill_etcd(self) -> None:
        async with self._site.server_away("etcd"):
            await asyncio.sleep(self._random.uniform(0, 6))
        await self._api_server_answers()

    async def _kill_both_servers(self) -> None:
        async with self._site.server_away("kube-apiserver"), self._site.server_away("etcd"):
            await asyncio.sleep(self._random.uniform(0, 8))
        await self._api_server_answers()

    async def _freeze_manager(self) -> None:
        """It may be about to create pods of Jobs that are suspended meanwhile."""
        for _ in range(10):
            with self._site.server_frozen("kube-controller-manager"):
                await asyncio.sleep(self._random.uniform(0.2, 3))
            await asyncio.sleep(self._random.uniform(0, 0.5))

    async def _kill_manager(self) -> None:
        async with self._site.server_away("kube-controller-manager"):
            await asyncio.sleep(self._random.uniform(0, 8))

    async def _compact(self) -> None:
        """No version that a client knows can be watched from: the API server starts with an empty cache."""
        etcd = next(
            flag.partition("=")[2]
            for flag in self._site.command_line("etcd")
            if flag.startswith("--listen-client-urls=")
        )
        async with aiohttp.ClientSession(trust_env=False) as session:
            async with session.post(f"{etcd}/v3/kv/range", json={"key": "Lw=="}) as answer:
                revision = int((await answer.json())["header"]["revision"])
            body = {"revision": revision, "physical": True}
            async with session.post(f"{etcd}/v3/kv/compaction", json=body) as answer:
                await answer.read()
        await self._kill_api_server()

    async def _api_server_answers(self) -> None:
        async with self._site.client() as admin:

            async def look() -> bool:
                try:
                    await admin.get("/api/v1/namespaces/kube-system")
                except ApiError:
                    return False
                return True

            await eventually("the API server is ready", look, 120)

    # --- the network between the controllers and the API server

    async def _disturb_network(self, name: str) -> None:
        assert self._proxy is not None
        random, faults = self._random, _NETWORK[name]

        def rule(_: str, path: str) -> Fault | None:
            # A controller without its lease would end: that is the kind `leader`.
            if path.startswith(_LEASES) or random.random() > 0.6 or not faults:
                return None
            fault = random.choice(faults)
            watch = "watch=" in path
            if (fault.kind in _OF_WRITES and watch) or (fault.status == 410 and not watch):
                return None
            return fault._replace(seconds=random.uniform(0, 12))

        self._proxy.rule, self._proxy.watches_say_nothing = rule, not faults
        try:
            # Some silences last longer than the controller waits for a bookmark.
            long = not faults and random.random() < 0.3
            await asyncio.sleep(random.uniform(5, 12) + (80 if long else 0))
        finally:
            self._proxy.rule, self._proxy.watches_say_nothing = (lambda *_: None), False


_OF_WRITES: Final = ("lost", "cut")
"""A watch has no answer to lose."""
_NETWORK: Final[Mapping[str, list[Fault]]] = {
    "429": [Fault("refused", 429)],
    "500": [Fault("refused", 500)],
    "answers lost": [Fault("lost", 503)],
    "cut off": [Fault("cut")],
    "requests dropped": [Fault("dropped")],
    "late": [Fault("late")],
    "too old": [Fault("refused", 410)],
    "silent watches": [],
    "all of it": [
        Fault("refused", 429),
        Fault("refused", 500),
        Fault("lost", 503),
        Fault("cut"),
        Fault("dropped"),
        Fault("late"),
    ],
}
