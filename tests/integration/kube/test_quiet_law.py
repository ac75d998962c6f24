"""Laws of stopping: a Job, its controller, and requests that are late, in any order.

The Job controller is the real one in all that matters here: it works from a copy that may be old, it makes
all pods of one turn before it writes the status, and that write is refused if the Job has changed since the
copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.events import Result
from queuectl.core.model.workload import Verb
from queuectl.kube.errors import Conflict
from queuectl.kube.session import api_path
from queuectl.ports.cluster import ClusterUnavailable
from tests.integration.kube.holding import Holding, holding
from tests.integration.kube.sites import AT, NAMESPACE, Site, effect, in_process, job, jobs
from tests.unit.core import profiles

PODS = api_path("", "v1", "pods", NAMESPACE)
ACTIONS = (
    "start",
    "stop",
    "stop unanswered",
    "late stop arrives",
    "see",
    "copy",
    "turn",
    "pod",
    "report",
    "count",
)
NAMES = count()


class Story:
    """One Job: queuectl's side, its controller's, and what is true."""

    def __init__(self, site: Site, wire: Holding, obj: dict[str, Any]) -> None:
        self.site, self.wire = site, wire
        self.name = obj["metadata"]["name"]
        self.seen = self.copy = obj
        """The Job as queuectl and as its controller last read it."""
        self.attempt = 0
        self.state = "released"
        """Of the last attempt: runs, stopping, stopped, released."""
        self.turn: dict[str, Any] | None = None
        """The copy that a turn of the controller under way works from."""
        self.to_make = 0
        self.pods: list[str] = []

    async def read(self) -> dict[str, Any]:
        return await self.site.session.get(jobs(self.name))

    async def act(self, action: str) -> None:
        await getattr(self, f"_{action.replace(' ', '_')}")()

    # --- queuectl

    async def _see(self) -> None:
        self.seen = await self.read()

    async def _start(self) -> None:
        if self.state != "released":
            return
        settled, _ = await self.site.cluster.start(effect(self.seen, attempt=self.attempt + 1))
        if settled.result is Result.DONE:
            self.attempt, self.state = self.attempt + 1, "runs"
        else:
            self.seen = await self.read()

    async def _stop(self) -> None:
        if self.state in ("runs", "stopping"):
            done = await self.site.cluster.stop(effect(self.seen, attempt=self.attempt, verb=Verb.STOP))
            assert done[0].result is Result.DONE
            self.state = "stopped"
            assert (await self.read())["spec"]["suspend"] is True

    async def _stop_unanswered(self) -> None:
        if self.state not in ("runs", "stopping"):
            return
        self.wire.hold = True
        try:
            await self.site.cluster.stop(effect(self.seen, attempt=self.attempt, verb=Verb.STOP))
        except ClusterUnavailable:
            self.state = "stopping"
        else:
            self.state = "stopped"  # nothing was left to write
        self.wire.hold = False

    async def _late_stop_arrives(self) -> None:
        if not self.wire.held:
            return
        before = (await self.read())["spec"]["suspend"]
        await self.wire.held.pop()()
        if self.state == "runs":
            assert (await self.read())["spec"]["suspend"] == before, "a late stop hit a later attempt"

    async def _count(self) -> None:
        if self.state == "stopped" and not await self.site.cluster.anything_alive(
            effect(self.seen).workload.ref
        ):
            assert not self.pods, "quota returned while pods were alive"
            self.state = "released"

    # --- the Job controller

    async def _copy(self) -> None:
        self.copy = await self.read()

    async def _turn(self) -> None:
        if self.turn is None:
            self.turn = self.copy
            if not self.turn["spec"]["suspend"]:
                self.to_make = max(0, self.turn["spec"]["parallelism"] - len(self.pods))

    async def _pod(self) -> None:
        if self.to_make:
            self.to_make -= 1
            assert self.state != "released", "a pod was made after its quota had returned"
            label = {"batch.kubernetes.io/controller-uid": self.copy["metadata"]["uid"]}
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "controller": True}
            owner["uid"] = self.copy["metadata"]["uid"]
            metadata = {
                "generateName": "p-",
                "namespace": NAMESPACE,
                "labels": label,
                "ownerReferences": [owner],
            }
            spec = {"containers": [{"name": "c", "image": "i"}]}
            made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            self.pods.append((await self.site.create(PODS, made))["metadata"]["name"])

    async def _report(self) -> None:
        """The end of a turn: all its pods are made, or deleted, and the status is written."""
        if self.turn is None:
            return
        while self.to_make:
            await self._pod()
        read, self.turn = self.turn, None
        suspended = read["spec"]["suspend"]
        while suspended and self.pods:
            body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            await self.site.session.delete(f"{PODS}/{self.pods.pop()}", body)
        said = (read.get("status") or {}).get("conditions") or []
        conditions = said
        if suspended if not said else said[0]["status"] != str(suspended):
            time = AT.isoformat().replace("+00:00", "Z")
            conditions = [{"type": "Suspended", "status": str(suspended), "lastTransitionTime": time}]
        status = {"conditions": conditions or None, "active": len(self.pods) or None}
        if status != {"conditions": said or None, "active": (read.get("status") or {}).get("active")}:
            metadata = {"resourceVersion": read["metadata"]["resourceVersion"]}
            try:
                path = jobs(self.name) + "/status"
                self.copy = await self.site.session.patch(path, {"metadata": metadata, "status": status})
            except Conflict:
                pass

    async def rest(self) -> None:
        """All goes well from now on."""
        while self.wire.held:
            await self._late_stop_arrives()
        await self._see()
        await self._stop()
        for _ in range(2):
            for action in (self._report, self._copy, self._turn, self._report, self._count):
                await action()


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[Site, Holding]]:
    async with in_process(folder) as site:
        with holding(site.session) as wire:
            yield site, wire


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Plays a list of actions on a Job of its own."""
    with asyncio.Runner() as runner:
        served = _served(tmp_path_factory.mktemp("quiet"))
        site, wire = runner.run(served.__aenter__())

        async def story(actions: list[str], then: Callable[[Story], None]) -> None:
            wire.held.clear()
            name = f"job-{next(NAMES)}"
            told = Story(site, wire, await site.create(jobs(), job(name, parallelism=2, completions=2)))
            for action in actions:
                await told.act(action)
            await told.rest()
            then(told)

        yield lambda actions, then: runner.run(story(actions, then))
        runner.run(served.__aexit__(None, None, None))


def _is_released(story: Story) -> None:
    assert story.state == "released", "its quota never returns"
    assert not story.pods


@profiles.sequences(300)
@given(actions=st.lists(st.sampled_from(ACTIONS), min_size=25, max_size=40))
def test_quota_returns_once_no_pod_is_alive_nor_will_be_made_and_no_stop_hits_a_later_attempt(
    play: Any, actions: list[str]
) -> None:
    play(["see", "start", *actions], _is_released)


def test_a_stop_right_after_a_start_waits_for_the_pods_that_its_controller_is_making(play: Any) -> None:
    begun = ["copy", "turn", "report", "see", "start", "copy", "turn"]
    play([*begun, "stop", "count", "count", "pod", "count", "report", "count"], _is_released)


def test_a_stop_right_after_a_start_that_its_controller_never_saw_returns_quota(play: Any) -> None:
    begun = ["copy", "turn", "report", "see", "start", "stop", "count"]
    play([*begun, "copy", "turn", "report", "count"], _is_released)


def test_a_stop_right_after_the_start_of_a_job_that_its_controller_had_never_seen(play: Any) -> None:
    play(["see", "start", "copy", "turn", "stop", "count", "pod", "report", "count"], _is_released)


def test_a_late_stop_does_not_hit_the_next_attempt(play: Any) -> None:
    first = ["see", "start", "see", "stop unanswered", "stop", "copy", "turn", "report", "count"]
    play([*first, "see", "start", "late stop arrives"], _is_released)
