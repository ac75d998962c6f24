"""What the API server shows of workloads and pods, observed apart from the controller and its ledger."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION
from queuectl.kube.session import Session
from queuectl.sandbox.players.api import Clock, Object
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.jobs import JOBS
from queuectl.sandbox.players.pods import PODS, ended
from queuectl.sandbox.players.training_operator import PYTORCHJOBS
from tests.acceptance.e2e.site import GPU
from tests.job_kinds import JOB_KINDS

_OVER = ("Complete", "Failed", "Succeeded")


class Edge(NamedTuple):
    """A workload was started or suspended."""

    at: float
    start: bool
    attempt: int | None
    """Of the admission on the object; None: it has none."""


class Excess(NamedTuple):
    """A pod was created while live pods had all GPUs."""

    at: float
    gpus: int
    pods: list[str]
    """Each live pod, with its phase and the last edges of its workload."""


class Witness:
    """Runs until cancelled. `gpus`: the most that live pods may have together."""

    def __init__(
        self, api: Session, clock: Clock, gpus: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.names: dict[str, str] = {}
        """Kind and key by UID, of all workloads ever seen."""
        self.over: set[str] = set()
        """UIDs of workloads that are finished or deleted."""
        self.edges: defaultdict[str, list[Edge]] = defaultdict(list)
        self.peak = 0
        self.excesses: list[Excess] = []
        self._gpus = gpus
        self._now = now
        self._pods: dict[str, Object] = {}
        """Live pods by UID."""
        self._stores = [Informer(api, path, clock) for path in (JOBS, PYTORCHJOBS, PODS)]
        jobs, training, pods = self._stores
        jobs.subscribe(lambda _, before, after: self.see_workload(before, after))
        training.subscribe(lambda _, before, after: self.see_workload(before, after))
        pods.subscribe(lambda _, before, after: self.see_pod(before, after))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for store in self._stores:
                tasks.create_task(store.run())

    async def ready(self) -> None:
        for store in self._stores:
            await store.synced.wait()

    # --- what it sees

    def see_workload(self, before: Object | None, after: Object | None) -> None:
        thing = after or before
        assert thing is not None
        metadata = thing["metadata"]
        uid = metadata["uid"]
        self.names[uid] = f"{thing['kind']} {metadata['namespace']}/{metadata['name']}"
        if after is None or _over(after):
            self.over.add(uid)
        if before is not None and before["metadata"]["uid"] != uid:  # deleted and created again
            self.over.add(before["metadata"]["uid"])
            before = None
        if after is not None and (before is None or _suspended(before)) is not _suspended(after):
            self.edges[uid].append(Edge(self._now(), not _suspended(after), attempt(after)))

    def see_pod(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._pods.pop(before["metadata"]["uid"], None)
        if after is None or ended(after):
            if after is not None:
                self._pods.pop(after["metadata"]["uid"], None)
            return
        new = after["metadata"]["uid"] not in self._pods
        self._pods[after["metadata"]["uid"]] = after
        gpus = sum(map(_gpus, self._pods.values()))
        self.peak = max(self.peak, gpus)
        if new and gpus > self._gpus:
            self.excesses.append(Excess(self._now(), gpus, [self._told(pod) for pod in self._pods.values()]))

    # --- what follows

    @property
    def live(self) -> int:
        """GPUs of live pods now."""
        return sum(map(_gpus, self._pods.values()))

    @property
    def starts(self) -> int:
        return sum(edge.start for edges in self.edges.values() for edge in edges)

    def double_starts(self) -> list[str]:
        """Workloads that one attempt has started twice, or that were started without any."""
        found = []
        for uid, edges in self.edges.items():
            by_attempt = Counter(edge.attempt for edge in edges if edge.start)
            if None in by_attempt or any(count > 1 for count in by_attempt.values()):
                found.append(f"{self.names[uid]}: {self._last(uid)}")
        return found

    def unfinished(self) -> list[str]:
        return [name for uid, name in self.names.items() if uid not in self.over]

    def _told(self, pod: Object) -> str:
        metadata = pod["metadata"]
        owner = next((one["uid"] for one in metadata.get("ownerReferences") or ()), "")
        dying = ", asked to end" if metadata.get("deletionTimestamp") else ""
        phase = pod["status"].get("phase")
        return f"{metadata['name']} ({_gpus(pod)} GPUs, {phase}{dying}); {self._last(owner)}"

    def _last(self, uid: str) -> str:
        now = self._now()
        return ", ".join(
            f"{'started' if edge.start else 'suspended'} by attempt {edge.attempt} {now - edge.at:.2f} s ago"
            for edge in self.edges[uid][-4:]
        )


def attempt(thing: Object) -> int | None:
    """The attempt in its admission annotation."""
    text = (thing["metadata"].get("annotations") or {}).get(ADMISSION_ANNOTATION)
    return None if text is None else int(json.loads(text)["attempt"])


def _suspended(thing: Object) -> bool:
    return JOB_KINDS[thing["kind"]].suspended(thing)


def _over(thing: Object) -> bool:
    listed = (thing.get("status") or {}).get("conditions") or ()
    return any(one["type"] in _OVER and one["status"] == "True" for one in listed)


def _gpus(pod: Object) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(((one.get("resources") or {}).get("limits") or {}).get(GPU, 0)) for one in containers)
