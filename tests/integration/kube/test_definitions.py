"""Kinds that are not installed, served in another version, or that may not be read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuectl.core.model.events import Event, Listed, WorkloadGone, WorkloadObserved
from queuectl.core.model.workload import WorkloadId
from queuectl.kube.reflector import Timings
from queuectl.kube.reflectors import Reflectors, reflectors
from queuectl.kube.session import Session
from queuectl.kube.sources import sources
from tests.doubles.faults import Action, Fault
from tests.integration.kube.scripted import QUICK
from tests.integration.kube.sites import CRDS, PYTORCH_CRD, SITES, Site, in_process, pytorch_job, pytorch_jobs
from tests.job_kinds import JOB_KINDS

DEFINITION = f"{CRDS}/pytorchjobs.kubeflow.org"
SHIPPED = replace(QUICK, absent=Timings().absent)
"""Quick, but for the time between two requests for what is not there."""


class Seen:
    def __init__(self, all_of_them: Reflectors, requests: Counter[tuple[str, str]]) -> None:
        self.events: list[Event] = []
        self.reflectors = all_of_them
        self.requests = requests
        """Number by verb and resource."""

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def all_listed(self) -> None:
        await self.until(lambda: {event.source for event in self.of(Listed)} == self.reflectors.sources)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def lists(self, source: str) -> list[frozenset[WorkloadId] | None]:
        return [event.workloads for event in self.of(Listed) if event.source == source]

    def problem(self, kind: str) -> str | None:
        return self.reflectors.kinds()[kind].problem


@asynccontextmanager
async def watching(session: Session, timings: Timings = SHIPPED) -> AsyncIterator[Seen]:
    requests: Counter[tuple[str, str]] = Counter()
    session.answered = lambda verb, resource, *_: requests.update([(verb, resource)])
    told: list[Event] = []
    all_of_them = reflectors(session, told.extend, sources(JOB_KINDS), timings=timings)
    seen = Seen(all_of_them, requests)
    seen.events = told
    async with asyncio.TaskGroup() as group:
        task = group.create_task(all_of_them.run())
        yield seen
        task.cancel()


@pytest.mark.parametrize("server", sorted(SITES))
async def test_a_kind_is_read_while_its_definition_is_there_and_asked_for_at_no_other_time(
    server: str, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), SITES[server](tmp_path) as site, watching(site.session) as seen:
        await seen.all_listed()
        assert seen.lists("PyTorchJob") == [frozenset()]
        assert not seen.requests["list", "pytorchjobs"]
        await site.create(CRDS, PYTORCH_CRD)
        # A server shows the definition before it serves the kind.
        await seen.until(lambda: seen.reflectors.kinds()["PyTorchJob"] == (True, ("v1",), None))
        await seen.until(lambda: seen.lists("PyTorchJob")[1:][-1:] == [frozenset()])
        assert seen.reflectors.kinds()["TFJob"] == (False, (), None)
        assert not seen.requests["list", "tfjobs"]
        created = await site.create(pytorch_jobs(), pytorch_job("torch"))
        uid = created["metadata"]["uid"]
        await seen.until(lambda: uid in [event.workload.id for event in seen.of(WorkloadObserved)])
        await site.session.delete(DEFINITION)
        await seen.until(lambda: uid in [event.workload for event in seen.of(WorkloadGone)])
        await seen.until(lambda: seen.reflectors.kinds()["PyTorchJob"].installed is False)
        await seen.until(lambda: seen.lists("PyTorchJob")[-1] == frozenset())
        absent = len(seen.lists("PyTorchJob"))
        await site.create(CRDS, PYTORCH_CRD)
        await seen.until(lambda: seen.lists("PyTorchJob")[absent:][-1:] == [frozenset()])
        again = await site.create(pytorch_jobs(), pytorch_job("torch"))
        uid = again["metadata"]["uid"]
        await seen.until(lambda: uid in [event.workload.id for event in seen.of(WorkloadObserved)])


@pytest.mark.parametrize("server", ["in_process", "small"])
async def test_a_kind_served_in_another_version_only_is_shown_and_not_read(
    server: str, tmp_path: Path
) -> None:
    other = deepcopy(PYTORCH_CRD)
    wanted = other["spec"]["versions"][0]
    other["spec"]["versions"] = [{**wanted, "name": "v2", "storage": False}, {**wanted, "served": False}]
    async with asyncio.timeout(60), SITES[server](tmp_path) as site:
        await site.create(CRDS, other)
        async with watching(site.session) as seen:
            await seen.all_listed()
            assert seen.lists("PyTorchJob") == [None]
            await seen.until(lambda: seen.problem("PyTorchJob") == "its definition serves v2, not v1")
            other["spec"]["versions"][1]["served"] = True
            await site.session.patch(DEFINITION, {"spec": other["spec"]})
            await seen.until(lambda: seen.lists("PyTorchJob")[-1] == frozenset())
            assert set(seen.reflectors.kinds()["PyTorchJob"].served) == {"v1", "v2"}
            assert seen.problem("PyTorchJob") is None


@pytest.mark.parametrize("code", [403, 500])
async def test_a_kind_that_cannot_be_read_costs_no_other_kind(code: int, tmp_path: Path) -> None:
    async with asyncio.timeout(60), in_process(tmp_path) as site:
        await site.create(CRDS, PYTORCH_CRD)
        refused = _refused(site, "pytorchjobs", code)
        async with watching(site.session, QUICK) as seen:
            await seen.all_listed()
            assert seen.lists("PyTorchJob") == [None]
            assert f"{code} injected fault" in str(seen.problem("PyTorchJob"))
            assert seen.problem("Job") is None
            refused.count = 0
            await seen.until(lambda: seen.lists("PyTorchJob")[-1] == frozenset())
            assert seen.problem("PyTorchJob") is None


async def test_policy_that_cannot_be_read_is_waited_for(tmp_path: Path) -> None:
    async with asyncio.timeout(60), in_process(tmp_path) as site:
        refused = _refused(site, "clusterqueues", 403)
        async with watching(site.session, QUICK) as seen:
            await seen.until(lambda: seen.requests["list", "clusterqueues"] > 3)
            assert "ClusterQueue" not in {event.source for event in seen.of(Listed)}
            refused.count = 0
            await seen.all_listed()


async def test_without_the_right_to_list_definitions_each_kind_is_asked_for(tmp_path: Path) -> None:
    async with asyncio.timeout(60), in_process(tmp_path) as site:
        _refused(site, "customresourcedefinitions", 403)
        async with watching(site.session, QUICK) as seen:
            await seen.all_listed()
            assert seen.reflectors.kinds()["PyTorchJob"].installed is None
            await site.create(CRDS, PYTORCH_CRD)
            await seen.until(lambda: seen.lists("PyTorchJob")[-1] == frozenset())


def _refused(site: Site, resource: str, code: int) -> Fault:
    assert site.faults is not None
    fault = Fault(Action.REFUSE, "list", resource, code=code, count=None)
    site.faults.add(fault)
    return fault
