"""Workloads whose kind, version or object went away while no controller watched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, Event, Listed, PodsCounted
from queuectl.core.model.policy import Namespace
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    LedgerSnapshot,
    ObjectRef,
    Phase,
    PodSetAssignment,
    WorkloadId,
)
from queuectl.kube import definitions
from queuectl.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from queuectl.kube.reflector import Timings
from queuectl.kube.reflectors import reflectors
from queuectl.kube.sources import sources
from tests.builders import GPU, T0, flavor, local_queue, observed, pending_row, policy, queue, workload
from tests.doubles import engine_state
from tests.job_kinds import JOB_KINDS

TIMES = Timings(watch=2, relist=600, absent=0.1, backoff=0.004, backoff_limit=0.02)
CRDS = "customresourcedefinitions"
RAY, OLD = "rayclusters.ray.io", WorkloadId("uid-old")
Answer = Callable[[], ApiError]


def unavailable() -> ApiError:
    return Unavailable("no answer")


def failing() -> ApiError:
    return Unavailable("503", status=503)


def forbidden() -> ApiError:
    return Forbidden("403", status=403)


def absent() -> ApiError:
    return NotFound("404", status=404)


@dataclass
class Server:
    """An API server with one custom kind. Answers as `kube.session.Session` does."""

    pages_of_definitions: Sequence[Sequence[str]] = ((RAY,),)
    versions: Sequence[str] = ("v1",)
    uids: Sequence[str] = (OLD,)
    fails: dict[str, Answer] = field(default_factory=dict)
    """By the start of a path."""
    hangs: tuple[str, ...] = ()
    """Starts of paths of which requests are answered by an error late, as after a deadline."""
    asked: list[str] = field(default_factory=list)
    heard_at = float("-inf")

    async def pages(self, path: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
        await self._ask(path)
        metadata = {"resourceVersion": "1"}
        if CRDS in path:
            for page in self.pages_of_definitions:
                items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in page]
                yield {"metadata": metadata, "items": items}
                await asyncio.sleep(0.02)
        else:
            ours = self.uids if "rayclusters" in path else ()
            yield {"metadata": metadata, "items": [ray_cluster(uid) for uid in ours]}

    async def get(self, path: str) -> dict[str, Any]:
        await self._ask(path)
        if path.count("/") == 2:
            return {"versions": [{"version": version} for version in self.versions]}
        return {"resources": [{"name": "rayclusters"}]}

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[list[Any]]]:
        await self._ask(path)

        async def events() -> AsyncIterator[list[Any]]:
            await asyncio.sleep(1)
            for _ in ():
                yield []

        yield events()

    async def _ask(self, path: str) -> None:
        self.asked.append(path)
        hidden = next((start for start in self.hangs if start in path), None)
        if hidden is not None:
            await asyncio.sleep(0.03)
            raise Unavailable("no answer in time")
        await asyncio.sleep(0)
        failed = next((answer for start, answer in self.fails.items() if start in path), None)
        error = failed() if failed is not None else None
        if error is None or error.status:
            self.heard_at = asyncio.get_running_loop().time()
        if error is not None:
            raise error


def ray_cluster(uid: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "ray",
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {"queuectl.dev/queue-name": "lq"},
        },
        "spec": {"suspend": False, "headGroupSpec": {"template": {"spec": {"containers": [{}]}}}},
    }


class Leader:
    """A new leader: its ledger has a RayCluster that holds the whole quota, and a Job waits for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        watched = [one for one in sources(JOB_KINDS) if one.name in ("Job", "RayCluster")]
        self.watched = watched
        self.engine = Engine(frozenset({"policies", *(one.name for one in watched)}))
        ref = ObjectRef("ns", "RayCluster", "ray", OLD)
        pods = PodSetAssignment(name="head", count=1, requests=((GPU, 8),), flavors=((GPU, "default"),))
        attempt = Attempt(
            workload=OLD,
            number=1,
            state=AttemptState.ADMITTED,
            assignment=Assignment(cluster_queue="cq", pod_sets=(pods,)),
            admitted_at=T0,
            sequence=1,
        )
        held = replace(
            pending_row(workload("old")), ref=ref, phase=Phase.ADMITTED, attempts=1, attempt=attempt
        )
        snapshot = LedgerSnapshot(sequence=1, now=T0, workloads=(held,), configs=(), effects=())
        self.engine.restore(snapshot)
        policies = [policy(one) for one in (flavor("default"), queue("cq", 8), local_queue("lq", "cq"))]
        self.engine.handle([*policies, ContextObserved(Namespace("ns")), Listed("policies")])
        self.engine.handle([observed(workload("job", gpus=1))])

    def take(self, events: Sequence[Event]) -> None:
        self.events += events
        self.engine.handle(events)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.005)

    def lists(self) -> list[frozenset[WorkloadId] | None]:
        lists = (event for event in self.events if isinstance(event, Listed))
        return [event.workloads for event in lists if event.source == "RayCluster"]

    def settle(self, *, pods: bool) -> tuple[bool, bool]:
        """Decide until all is decided. Returns whether the RayCluster holds quota, and the Job."""
        sequence = 2
        self.engine.handle([observed(workload("job", gpus=1))])
        for _ in range(20):
            plan = self.engine.decide(T0)
            self.engine.commit(plan, sequence)
            sequence += len(plan.recorded)
            self.engine.handle([PodsCounted(one.workload, one.attempt, alive=pods) for one in plan.probes])
        holders = engine_state.state(self.engine).holders.get("cq", {})
        return OLD in holders, "uid-job" in holders


@contextlib.asynccontextmanager
async def new_leader(server: Server) -> AsyncIterator[Leader]:
    leader = Leader()
    group = reflectors(server, leader.take, leader.watched, random=Random(1), timings=TIMES)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(group.run())
        await leader.until(lambda: leader.engine.synced)
        yield leader
        task.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "SETTLING", (0.0, 0.005))


NEW = WorkloadId("uid-new")
GONE = {
    "definition deleted": (Server(pages_of_definitions=((),)), frozenset()),
    "definition deleted, of another kind of the group still there": (
        Server(pages_of_definitions=(("rayjobs.ray.io",),)),
        frozenset(),
    ),
    "definition deleted, and discovery fails": (
        Server(pages_of_definitions=(("rayjobs.ray.io",),), fails={"/apis/ray.io": failing}),
        frozenset(),
    ),
    "object deleted, with its namespace for example": (Server(uids=()), frozenset()),
    "definition made again, with new objects": (Server(uids=(NEW,)), frozenset({NEW})),
}
DOUBT = {
    "another version is served": Server(versions=("v2",)),
    "no version is served": Server(versions=()),
    "its group is not served": Server(fails={"/apis/ray.io": absent}),
    "discovery fails": Server(fails={"/apis/ray.io": failing}),
    "discovery does not answer": Server(hangs=("/apis/ray.io",)),
    "the kind is not served though discovery says so": Server(fails={"rayclusters": absent}),
    "its list fails": Server(fails={"rayclusters": failing}),
    "its list does not answer": Server(hangs=("rayclusters",)),
    "its list is forbidden": Server(fails={"rayclusters": forbidden}),
    "definitions are forbidden, and the kind is not served": Server(
        fails={CRDS: forbidden, "rayclusters": absent}
    ),
    "definitions fail, and the kind is not served": Server(fails={CRDS: failing, "rayclusters": absent}),
    "definitions do not answer": Server(hangs=(CRDS,)),
    "definitions are not served": Server(fails={CRDS: absent}),
}


@pytest.mark.parametrize("pods", [False, True], ids=["no pods", "pods"])
@pytest.mark.parametrize("case", GONE)
async def test_what_is_positively_gone_gives_its_quota_back_once_its_pods_are_gone(
    case: str, pods: bool
) -> None:
    server, listed = GONE[case]
    async with new_leader(replace(server, asked=[])) as leader:
        await leader.until(lambda: leader.lists()[-1] == listed)
        assert leader.settle(pods=pods) == (pods, not pods)


@pytest.mark.parametrize("case", DOUBT)
async def test_what_is_not_known_keeps_its_quota_and_the_others_go_on(case: str) -> None:
    async with new_leader(replace(DOUBT[case], asked=[])) as leader:
        assert leader.lists() == [None]
        assert leader.settle(pods=False) == (True, False)
        assert leader.engine.synced


async def test_a_definition_on_the_last_page_of_the_list_is_not_absent() -> None:
    """Discovery is asked for the first of the group while later pages are read."""
    pages = (("rayjobs.ray.io",), ("a.example.com",), (RAY,))
    async with new_leader(Server(pages_of_definitions=pages)) as leader:
        await leader.until(lambda: leader.lists()[-1] == frozenset({OLD}))
        assert frozenset() not in leader.lists()


async def test_discovery_that_fails_goes_on_being_asked_until_it_answers() -> None:
    server = Server(fails={"/apis/ray.io": failing})
    async with new_leader(server) as leader:
        assert leader.lists() == [None]
        tries = server.asked.count("/apis/ray.io")
        await leader.until(lambda: server.asked.count("/apis/ray.io") >= tries + 4)
        server.fails.clear()
        await leader.until(lambda: leader.lists() == [None, frozenset({OLD})])
