"""A controller that is killed after any of the writes of a pod group's start or stop, and its successor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from queuectl.controller.loop import Controller
from queuectl.core.engine import Engine
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import Phase, WorkloadOutcome
from queuectl.kinds.builtin import OPTIONAL
from queuectl.kinds.jobs import KindRegistry
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import ApiError
from queuectl.kube.pod_groups import LedgerGroups
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import JSON_PATCH, Session, api_path
from queuectl.kube.sources import sources
from queuectl.kube.transport import Response, Transport
from queuectl.metrics.registry import Metrics
from tests.doubles.invariants import checked_commits
from tests.doubles.ledger import MemoryLedger, MemoryStore
from tests.integration.kube.sites import NAMESPACE, SITES, Site
from tests.job_kinds import JOB_KINDS
from tests.walks import _furnish

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = KindRegistry((*JOB_KINDS, *OPTIONAL))
EIGHT = 8
PODS = api_path("", "v1", "pods", NAMESPACE)
QUEUE = api_path("queuectl.dev", "v1beta1", "localqueues", NAMESPACE, "main")
GROUP = "queuectl.dev/pod-group-name"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with SITES["in_process"](tmp_path_factory.mktemp("restarts")) as found:
        await _furnish(found)
        yield found


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline(site: Site) -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield
        for one in await _pods(site):
            await site.session.delete(f"{PODS}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})
        await _stop_queue(site, "None")


class Mortal:
    """Carries requests until so many writes of pods were made; later ones are never sent, nor answered."""

    def __init__(self, inner: Transport, writes: int | None) -> None:
        self._inner = inner
        self._left = writes
        self.dead = asyncio.Event()
        if writes == 0:
            self.dead.set()

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Response:
        if method not in ("PATCH", "DELETE") or "/pods/" not in target or self._left is None:
            return await self._inner.request(method, target, headers, body, stream=stream)
        if self._left == 0:
            await asyncio.Event().wait()
        self._left -= 1
        last = self._left == 0
        response = await self._inner.request(method, target, headers, body, stream=stream)
        if last:
            self.dead.set()
            await asyncio.Event().wait()
        return response

    async def close(self) -> None:
        return None


@asynccontextmanager
async def leading(site: Site, store: MemoryStore, writes: int | None = None) -> AsyncIterator[Mortal]:
    """A controller that is killed at the end."""
    transport = Mortal(site.session._transport, writes)
    session = Session(transport, site.session._identity)
    began = asyncio.get_running_loop().time()
    first = store.now or datetime(2026, 11, 21, 10, tzinfo=UTC)

    def clock() -> datetime:
        return first + timedelta(seconds=asyncio.get_running_loop().time() - began)

    groups = LedgerGroups()
    watched = sources(KINDS, ledger=groups)
    engine = Engine(frozenset(source.name for source in watched), SchedulingConfiguration())
    controller = Controller(
        ledger=MemoryLedger(clock, store),
        cluster=KubeCluster(session, KINDS),
        engine=engine,
        observer=Metrics(),
        holder=f"controller-{store.epoch}",
        restored=lambda snapshot, _: groups.restore(snapshot),
    )
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(controller.run()),
            tasks.create_task(reflectors(session, controller.emit, watched).run()),
        ]
        try:
            yield transport
        finally:
            for task in running:
                task.cancel()


async def _pods(site: Site) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await site.session.get(PODS))["items"]
    return items


async def _create(
    site: Site, numbers: range, size: int = EIGHT, group: str | None = "train", roles: int = 1
) -> None:
    """Pods of as many shapes, in turns."""
    labels = {"queuectl.dev/queue-name": "main", "queuectl.dev/gated": "true"}
    for number in numbers:
        limits = {"nvidia.com/gpu": "1"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"train-{number}",
                "namespace": NAMESPACE,
                "labels": labels | ({GROUP: group} if group else {}),
                "annotations": {"queuectl.dev/pod-group-total-count": str(size)},
            },
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
                "schedulingGates": [{"name": "queuectl.dev/admission"}],
                "tolerations": [{"key": f"role-{number % roles}", "operator": "Exists"}],
            },
        }
        await site.create(PODS, body)


async def _bind(site: Site) -> None:
    """All started pods run on a node."""
    for one in await _pods(site):
        name = one["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        if "nodeName" not in one["spec"] and not one["spec"].get("schedulingGates"):
            await site.session.create(f"{PODS}/{name}/binding", binding)
            await _phase(site, name, "Running")


async def _phase(site: Site, name: str, phase: str) -> None:
    body = [{"op": "add", "path": "/status/phase", "value": phase}]
    await site.session.patch(f"{PODS}/{name}/status", body, content_type=JSON_PATCH)


async def _stop_queue(site: Site, policy: str) -> None:
    await site.session.patch(QUEUE, {"spec": {"stopPolicy": policy}})


async def _until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.01)


def _started(pods: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in pods if not one["spec"].get("schedulingGates")]


async def _all_start(site: Site, count: int = EIGHT) -> None:
    async def started() -> bool:
        return len(_started(await _pods(site))) == count

    await _until(started)


def _held(store: MemoryStore) -> int:
    """Return the number of pods for which quota is held."""
    return sum(one.attempt.assignment.pods for one in store.workloads.values() if one.attempt)


def _admissions(store: MemoryStore) -> list[str]:
    return [str(row.ref.kind) for row in store.decisions if row.verdict == "Admitted" and row.ref]


@pytest.mark.acceptance
@pytest.mark.parametrize("writes", range(EIGHT + 1))
async def test_a_controller_that_is_killed_between_the_writes_of_a_start_starts_all_pods_once(
    site: Site, writes: int
) -> None:
    store = MemoryStore()
    await _create(site, range(EIGHT), roles=2)
    with checked_commits():
        if writes:
            async with leading(site, store, writes) as process:
                await process.dead.wait()
            assert len(_started(await _pods(site))) == writes
        async with leading(site, store):
            await _all_start(site)

            async def settled() -> bool:
                return not store.effects

            await _until(settled)
    assert len({one["metadata"]["labels"]["queuectl.dev/workload"] for one in await _pods(site)}) == 1
    assert _admissions(store) == ["PodGroup"]
    (stored,) = store.workloads.values()
    assert stored.attempt is not None
    assert not stored.attempt.debt
    assert stored.attempt.assignment.pods == EIGHT


@pytest.mark.acceptance
@pytest.mark.parametrize("writes", range(1, 2 * EIGHT + 1))
async def test_a_controller_that_is_killed_between_the_writes_of_a_stop_deletes_all_pods(
    site: Site, writes: int
) -> None:
    """Its first writes are the conditions, then come the deletions."""
    store = MemoryStore()
    await _create(site, range(EIGHT), roles=2)
    with checked_commits():
        async with leading(site, store):
            await _all_start(site)
            await _bind(site)
        async with leading(site, store, writes) as process:
            await _stop_queue(site, "HoldAndDrain")
            await process.dead.wait()
        async with leading(site, store):

            async def deleted() -> bool:
                return all(one["metadata"].get("deletionTimestamp") for one in await _pods(site))

            await _until(deleted)
            (stored,) = store.workloads.values()
            assert stored.phase is Phase.EVICTING
            assert stored.attempt is not None  # its quota waits for its last pod
            for one in await _pods(site):
                assert stored.id in store.workloads
                await site.session.delete(f"{PODS}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})

            async def over() -> bool:
                return not store.workloads

            await _until(over)
    assert not store.holds


async def test_a_controller_that_is_killed_forgets_no_success_that_the_ledger_has(site: Site) -> None:
    store = MemoryStore()
    await _create(site, range(EIGHT))

    async def six() -> bool:
        return _held(store) == EIGHT - 2

    async with leading(site, store):
        await _all_start(site)
        await _bind(site)
        for number in range(2):
            await _phase(site, f"train-{number}", "Succeeded")
        await _until(six)
    for number in range(2):
        await site.session.delete(f"{PODS}/train-{number}", {"gracePeriodSeconds": 0})
    # A pod with their shape has no quota: they need none any more.
    await _create(site, range(EIGHT, EIGHT + 1))
    async with leading(site, store):
        await _create(site, range(EIGHT + 1, EIGHT + 2), group=None)  # by itself, in the quota of the two

        async def probed() -> bool:
            return f"train-{EIGHT + 1}" in _started(await _pods(site))

        await _until(probed)
        assert _held(store) == EIGHT - 1
        assert len(_started(await _pods(site))) == EIGHT - 1


async def test_a_group_whose_pods_succeeded_before_and_after_a_restart_has_succeeded(site: Site) -> None:
    """Pods that have succeeded are deleted by their owner, in this case while no controller runs, and another
    one succeeds meanwhile."""
    store = MemoryStore()
    await _create(site, range(EIGHT), roles=2)

    async def six() -> bool:
        return _held(store) == EIGHT - 2

    async def over() -> bool:
        return not store.workloads

    async with leading(site, store):
        await _all_start(site)
        await _bind(site)
        for number in range(2):
            await _phase(site, f"train-{number}", "Succeeded")
        await _until(six)
    await site.session.delete(f"{PODS}/train-0", {"gracePeriodSeconds": 0})
    await _phase(site, "train-2", "Succeeded")
    async with leading(site, store):
        await _create(site, range(EIGHT, EIGHT + 1), group=None)

        async def led() -> bool:
            return f"train-{EIGHT}" in _started(await _pods(site))

        await _until(led)
        for number in range(3, EIGHT + 1):
            await _phase(site, f"train-{number}", "Succeeded")
        await _until(over)
    ledger = MemoryLedger(lambda: datetime(2026, 11, 21, 11, tzinfo=UTC), store)
    ((_, outcome),) = await ledger.outcomes([NamedWorkload(NAMESPACE, "PodGroup", "train")])
    assert outcome is WorkloadOutcome.SUCCEEDED


async def test_a_pod_that_succeeded_and_is_gone_has_succeeded_if_a_controller_ran(site: Site) -> None:
    store = MemoryStore()
    await _create(site, range(2), group=None)

    async def left(count: int) -> None:
        async def over() -> bool:
            return len(store.workloads) == count

        await _until(over)

    async def succeed(name: str) -> None:
        await _phase(site, name, "Succeeded")
        await site.session.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    async with leading(site, store):
        await _all_start(site, 2)
        await _bind(site)
        await succeed("train-0")
        await left(1)
    await succeed("train-1")
    async with leading(site, store):
        await left(0)
    assert not store.holds
    ledger = MemoryLedger(lambda: datetime(2026, 11, 21, 11, tzinfo=UTC), store)
    named = [NamedWorkload(NAMESPACE, "Pod", f"train-{number}") for number in range(2)]
    outcomes = {one.name: outcome for one, outcome in await ledger.outcomes(named)}
    assert outcomes == {"train-0": WorkloadOutcome.SUCCEEDED, "train-1": WorkloadOutcome.DELETED}


async def test_a_group_that_waits_keeps_its_workload_over_a_restart(site: Site) -> None:
    """Its pods were created within a second, and the first that was seen is not the first by name."""
    store = MemoryStore()
    await _stop_queue(site, "Hold")

    async def queued() -> bool:
        return bool(store.workloads)

    async with leading(site, store):
        await _create(site, range(EIGHT - 1, EIGHT), size=2)
        await _until(queued)
        await _create(site, range(1), size=2)
    (known,) = store.workloads
    async with leading(site, store):
        await _stop_queue(site, "None")
        await _all_start(site, 2)
    assert set(store.workloads) == {known}


async def test_a_replacement_is_started_by_the_controller_without_another_admission(site: Site) -> None:
    store = MemoryStore()
    await _create(site, range(EIGHT))
    with checked_commits():
        async with leading(site, store):
            await _all_start(site)
            await _bind(site)
            await site.session.delete(f"{PODS}/train-3", {"gracePeriodSeconds": 0})
            await _create(site, range(EIGHT, EIGHT + 1))
            await _all_start(site)
    assert f"train-{EIGHT}" in _started(await _pods(site))
    assert _admissions(store) == ["PodGroup"]


async def test_pods_that_a_user_lets_past_the_gate_are_charged(site: Site) -> None:
    store = MemoryStore()
    await _stop_queue(site, "Hold")
    await _create(site, range(2), size=2)
    ungate = [{"op": "remove", "path": "/spec/schedulingGates"}]
    async with leading(site, store):
        await site.session.patch(f"{PODS}/train-0", ungate, content_type=JSON_PATCH)

        async def charged() -> bool:
            return any(one.attempt and one.attempt.debt for one in store.workloads.values())

        await _until(charged)
        found = next(one for one in store.workloads.values() if one.attempt)
        assert found.attempt is not None
        assert found.attempt.assignment.pods == 1


async def test_a_group_of_which_a_write_fails_is_started_by_further_tries(site: Site) -> None:
    store = MemoryStore()
    await _create(site, range(EIGHT))
    async with leading(site, store) as process:
        inner, failed = process._inner, [0]

        class Flaky:
            async def request(self, method: str, target: str, *args: Any, **how: Any) -> Response:
                if method == "PATCH" and "/pods/" in target and failed[0] < EIGHT:
                    failed[0] += 1
                    if failed[0] % 2:
                        raise ApiError("reset", status=0)
                return await inner.request(method, target, *args, **how)

        process._inner = Flaky()  # type: ignore[assignment]
        await _all_start(site)
    assert _admissions(store) == ["PodGroup"]
