"""What consistent reads say about a child and its owners, on a real API server; nothing collects garbage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.decisions import ChildToCheck
from queuectl.core.features.ownership import MAX_OWNERS
from queuectl.core.model.events import Event, OwnerRead, WorkloadGone, WorkloadObserved
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.kinds.jobs import QUEUE_LABEL
from tests.integration.kube.sites import NAMESPACE, Site, job, jobs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["real"], indirect=True, ids="site={}".format),
]
Json = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def make(site: Site, name: str, owner: Json | None = None, *, labelled: bool = True) -> Json:
    """A Job that runs, controlled by another one."""
    body = job(name, suspend=False)
    if not labelled:
        del body["metadata"]["labels"]
    if owner is not None:
        body["metadata"]["ownerReferences"] = [reference(owner)]
    return await site.create(jobs(), body)


def reference(owner: Json, **changed: str) -> Json:
    about = {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"apiVersion": "batch/v1", "kind": "Job", "controller": True, **about, **changed}


def ref(obj: Json) -> ObjectRef:
    return ObjectRef(NAMESPACE, "Job", obj["metadata"]["name"], obj["metadata"]["uid"])


async def check(site: Site, child: Json, *family: Json) -> list[Event]:
    refs = tuple(ref(one) for one in family or (child,))
    return await site.cluster.check(ChildToCheck(WorkloadId(ref(child).uid), ref(child), refs))


def holder(child: Json, owner: Json) -> OwnerRead:
    return OwnerRead(WorkloadId(ref(child).uid), WorkloadId(ref(owner).uid))


async def test_the_family_is_read_and_then_the_owner(site: Site) -> None:
    owner = await make(site, "owner")
    first, second = await make(site, "elder", owner), await make(site, "second", owner)
    seen_first, seen_second, read = await check(site, second, first, second)
    assert isinstance(seen_first, WorkloadObserved)
    assert isinstance(seen_second, WorkloadObserved)
    assert {seen_first.workload.owner, seen_second.workload.owner} == {ref(owner)}
    assert read == holder(second, owner)


async def test_objects_without_a_label_between_child_and_owner_are_followed(site: Site) -> None:
    top = await make(site, "top")
    between = await make(site, "between", top, labelled=False)
    child = await make(site, "below", between)
    assert (await check(site, child))[-1] == holder(child, top)


async def test_an_owner_without_a_label_is_named_and_nothing_is_to_be_stopped(site: Site) -> None:
    child = await make(site, "of-plain", await make(site, "plain", labelled=False))
    read = (await check(site, child))[-1]
    assert read == OwnerRead(WorkloadId(ref(child).uid), None, "has no queue label", stop=False)


@pytest.mark.parametrize(
    "forged", [{"uid": "00000000-0000-0000-0000-000000000000"}, {"name": "another"}], ids=["UID", "name"]
)
async def test_an_owner_that_is_not_there_is_said_so(site: Site, forged: dict[str, str]) -> None:
    name = f"forged-{next(iter(forged))}"
    body = job(name, suspend=False)
    body["metadata"]["ownerReferences"] = [reference(await make(site, f"real-{name}"), **forged)]
    child = await site.create(jobs(), body)
    assert (await check(site, child))[-1] == OwnerRead(WorkloadId(ref(child).uid), None, "is not there")


async def test_more_owners_than_are_followed_hold_nothing(site: Site) -> None:
    above = await make(site, "chain-0")
    for number in range(MAX_OWNERS):
        above = await make(site, f"chain-{number + 1}", above, labelled=False)
    child = await make(site, "chain-end", above)
    (*_, read) = await check(site, child)
    assert isinstance(read, OwnerRead)
    assert (read.holder, read.stop) == (None, True)
    assert "10 or more" in (read.problem or "")


async def test_what_is_gone_is_said_to_be_gone(site: Site) -> None:
    owner = await make(site, "left")
    child, sibling = await make(site, "going", owner), await make(site, "leaves", owner)
    for one in (child, sibling):
        await site.session.delete(jobs(one["metadata"]["name"]), {"propagationPolicy": "Background"})
    events = await check(site, child, child, sibling)
    assert {one.workload for one in events if isinstance(one, WorkloadGone)} == {
        ref(child).uid,
        ref(sibling).uid,
    }
    assert not any(isinstance(one, OwnerRead) for one in events)


async def test_a_child_that_has_lost_its_owner_queues_itself(site: Site) -> None:
    child = await make(site, "orphaned", await make(site, "loses"))
    orphaned = await site.session.patch(jobs("orphaned"), {"metadata": {"ownerReferences": None}})
    seen, read = await check(site, orphaned)
    assert isinstance(seen, WorkloadObserved)
    assert seen.workload.owner is None
    assert read == OwnerRead(WorkloadId(ref(child).uid), None)
    assert QUEUE_LABEL in orphaned["metadata"]["labels"]
