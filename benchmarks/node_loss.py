"""A node fails under a gang of eight while its queue is full: seconds until the gang runs elsewhere.

In `queuectl sandbox` on a real control plane. The Job controller ends and creates the pods; scheduler,
kubelets and node controller are those of the sandbox. Raises AssertionError if another workload is touched,
or if ledger and cluster differ afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import yaml

from benchmarks.machine import scratch
from benchmarks.objects import gang_job, separate_queues
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Report, median
from benchmarks.site import ENFORCED, until
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.endpoints import Endpoints
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.players.kubelet import FAILED
from queuectl.sandbox.processes import ChildProcess, spawn

ROUNDS: Final = 5
GANG, OTHERS, WAITING, GPUS = 8, 6, 20, 2
"""Pods of the gang; Jobs of one pod that run beside it, and that wait; GPUs of each pod and of each node."""
LOSS_SECONDS: Final = 5
_NAMESPACE: Final = "team"
_JOBS: Final = f"/apis/batch/v1/namespaces/{_NAMESPACE}/jobs"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_LOOK: Final = 0.05
"""Seconds between two looks at the pods."""
_TOUCHED: Final = """
    SELECT string_agg(name || ' ' || verdict, ', ') FROM queuectl.decision
    WHERE name <> 'gang' AND workload IS NOT NULL AND sequence > $1 AND verdict <> 'Pending'
"""


class Times(NamedTuple):
    """Seconds after the failure."""

    evicted: float
    admitted: float
    runs: float


@dataclass
class Sandbox:
    data: Path
    api: Client
    ledger: asyncpg.Connection

    async def ask(self, question: str, *values: object) -> Any:
        """One value of the ledger, by SQL."""
        return await self.ledger.fetchval(question, *values)

    async def pods(self, job: str | None = None) -> dict[str, str]:
        """The nodes of running pods that are not being deleted, by UID; of all Jobs, or of one."""
        query = {} if job is None else {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in (await self.api.request("GET", _PODS, query=query))["items"]
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }

    async def run_pods(self, count: int, job: str | None = None) -> None:
        async def look() -> bool:
            return len(await self.pods(job)) == count

        await until(look, pause=_LOOK)

    async def has_free(self, gpus: int) -> bool:
        """Return whether the controller has told of so many free GPUs on nodes that limit admissions."""
        return bool(await self.ask(ENFORCED) == gpus)

    async def add_node(self, number: int) -> None:
        node = fake_node(f"node-{number:02}", "a100", gpus=GPUS)
        await self.api.request("POST", "/api/v1/nodes", node)

    async def fail(self, node: str) -> None:
        change = {"metadata": {"annotations": {FAILED: "true"}}}
        await self.api.request("PATCH", f"/api/v1/nodes/{node}", change, content_type=MERGE_PATCH)


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(ROUNDS if scale < 10 else 1))


async def _run(rounds: int) -> Report:
    found: list[Times] = []
    with scratch() as folder, bar("node-loss: failures", rounds) as done:
        async with _sandbox(folder) as sandbox:
            await _fill(sandbox)
            for number in range(rounds):
                found.append(await _failure(sandbox, number))
                done(len(found))
            await _agree(sandbox)
    return _report(found)


@asynccontextmanager
async def _sandbox(folder: Path) -> AsyncIterator[Sandbox]:
    data, config = folder / "data", folder / "config.yaml"
    config.write_text(f"scheduling: {{nodes: {{lossSeconds: {LOSS_SECONDS}}}}}\n")
    flags = ("--headless", "--empty", "--control-plane", "real", "--data", data, "--config", config)
    argv = (sys.executable, "-m", "queuectl", "sandbox", *flags)
    child = await spawn(argv, name="sandbox", log=folder / "sandbox.log")
    try:
        ledger = await asyncpg.connect((await _started(data, child)).postgres)
        try:
            async with _admin(data) as api:
                yield Sandbox(data, api, ledger)
        finally:
            await ledger.close()
    finally:
        await child.stop(30.0)


async def _started(data: Path, child: ChildProcess) -> Endpoints:
    """Wait until every part of it answers."""
    async with asyncio.timeout(300):
        while (found := Endpoints.read(data)) is None:
            if child.returncode is not None:
                raise child.death()
            await asyncio.sleep(0.2)
    return found


def _admin(data: Path) -> Client:
    """A client with the rights of the context `admin` in the kubeconfig of the sandbox."""
    config = yaml.safe_load((data / "kubeconfig").read_text())
    context = next(one["context"] for one in config["contexts"] if one["name"] == "admin")
    cluster = next(one["cluster"] for one in config["clusters"] if one["name"] == context["cluster"])
    user = next(one["user"] for one in config["users"] if one["name"] == context["user"])
    authority = cluster.get("certificate-authority")
    if authority is not None:
        trust = ssl.create_default_context(cafile=str(data / authority))
    else:
        text = base64.b64decode(cluster["certificate-authority-data"]).decode()
        trust = ssl.create_default_context(cadata=text)
    return Client(cluster["server"], trust, user["token"])


# --- one failure after another


async def _fill(sandbox: Sandbox) -> None:
    """The gang and others run, and hold all quota; further Jobs wait for quota."""
    await Installer(sandbox.api).apply(separate_queues({_NAMESPACE: (GANG + OTHERS) * GPUS}))
    for number in range(GANG + OTHERS):
        await sandbox.add_node(number)
    await until(lambda: sandbox.has_free((GANG + OTHERS) * GPUS))
    running = {"gang": GANG, **{f"other-{number}": 1 for number in range(OTHERS)}}
    for name, pods in running.items():
        await sandbox.api.request("POST", _JOBS, gang_job(name, pods, GPUS))
        await sandbox.run_pods(pods, name)
    for number in range(WAITING):
        await sandbox.api.request("POST", _JOBS, gang_job(f"waits-{number}", 1, GPUS))
    waiting = "SELECT count(*) FROM queuectl.workload_open WHERE phase = 'Pending' AND reason IS NOT NULL"

    async def all_wait() -> bool:
        return bool(await sandbox.ask(waiting) == WAITING)

    await until(all_wait)


async def _failure(sandbox: Sandbox, number: int) -> Times:
    """Add a node, let one fail under the gang, and wait until the gang runs without it."""
    await sandbox.add_node(GANG + OTHERS + number)
    await until(lambda: sandbox.has_free(GPUS))
    before, gang = await sandbox.pods(), await sandbox.pods("gang")
    failed = min(gang.values())
    last = await sandbox.ask("SELECT max(sequence) FROM queuectl.decision")
    began = time.perf_counter()
    at = await sandbox.ask("SELECT extract(epoch FROM clock_timestamp())::float")
    await sandbox.fail(failed)

    async def runs_elsewhere() -> bool:
        found = await sandbox.pods("gang")
        return len(found) == GANG and found.keys().isdisjoint(gang)

    await until(runs_elsewhere, pause=_LOOK)
    runs = time.perf_counter() - began
    nodes = set((await sandbox.pods("gang")).values())
    assert failed not in nodes, f"the gang runs on {nodes}, {failed} has failed"
    touched = await sandbox.ask(_TOUCHED, last)
    assert touched is None, f"the failure of {failed} led to decisions about other workloads: {touched}"
    others = before.keys() - gang.keys()
    left = (await sandbox.pods()).keys()
    assert others <= left, f"{len(others - left)} pods of other Jobs are gone"
    evicted, admitted = [await _decided(sandbox, verdict, last) for verdict in ("Evicted", "Admitted")]
    return Times(evicted - at, admitted - at, runs)


async def _decided(sandbox: Sandbox, verdict: str, after: int) -> float:
    """The time of the first decision about the gang with this verdict, in seconds since 1970."""
    question = """
        SELECT extract(epoch FROM min(now))::float FROM queuectl.decision
        WHERE name = 'gang' AND verdict = $1 AND sequence > $2
    """
    return float(await sandbox.ask(question, verdict, after))


async def _agree(sandbox: Sandbox) -> None:
    """Ledger and history agree (`queuectl verify`), and so do ledger and cluster."""
    argv = (sys.executable, "-m", "queuectl", "verify", "--data", str(sandbox.data))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    out, _ = await process.communicate()
    assert process.returncode == 0, f"queuectl verify ended with {process.returncode}: {out.decode()}"
    rows = await sandbox.ledger.fetch("SELECT name, phase FROM queuectl.workload_open")
    admitted = {row["name"] for row in rows if row["phase"] == "Admitted"}
    jobs = (await sandbox.api.request("GET", _JOBS))["items"]
    started = {job["metadata"]["name"] for job in jobs if not job["spec"]["suspend"]}
    assert admitted == started, (
        f"the ledger has {sorted(admitted)} as admitted, {sorted(started)} are started"
    )


def _report(found: list[Times]) -> Report:
    columns = ("failure", "evicted", "admitted again", f"{GANG} pods run elsewhere")
    rows = tuple((str(number), *times) for number, times in enumerate(found, 1))

    def figure(name: str, values: list[float]) -> Figure:
        return Figure(name=name, value=median(values), unit="s")

    return Report(
        "node-loss",
        [
            figure(
                f"from the failure to the eviction of the gang; lossSeconds: {LOSS_SECONDS}",
                [times.evicted for times in found],
            ),
            figure("from there to its next admission", [times.admitted - times.evicted for times in found]),
            figure(
                f"from there until its {GANG} pods run elsewhere",
                [times.runs - times.admitted for times in found],
            ),
            figure("all of it", [times.runs for times in found]),
        ],
        [Detail("seconds after the failure of a node; no other workload was touched", columns, rows)],
    )
