"""Starts with fewer pods than requested: what queuectl's own account may write, and what its users may."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

import pytest

from queuectl.core.model.workload import Verb
from queuectl.kinds import patches
from queuectl.kinds.workloads import observe
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH
from tests.acceptance.gate.conftest import named
from tests.acceptance.gate.site import (
    ADMISSION,
    JOB,
    OLDEST,
    PYTORCH_JOB,
    Json,
    Kind,
    Site,
    by_hand,
    look,
    pointer,
    put,
)
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating", f"as-{OLDEST}"], ids=named, indirect=True),
    pytest.mark.parametrize("kind", [JOB, PYTORCH_JOB], ids=str),
]
_MARK = pointer(("metadata", "annotations", ADMISSION))


async def created(site: Site, kind: Kind, name: str) -> Json:
    """An object of 8 pods (of workers) that may start with 2."""
    body = kind.body(name)
    put(body, kind.pods, 8)
    if kind is JOB:
        put(body, ("metadata", "annotations"), {"queuectl.dev/min-parallelism": "2"})
    else:
        put(body, ("metadata", "annotations"), {"team": "x"})
        put(body, ("spec", "elasticPolicy"), {"minReplicas": 2, "maxReplicas": 8})
    return await site.tenant.request("POST", kind.path(), body)


async def write(site: Site, kind: Kind, name: str, patch: list[Json], user: str = "controller") -> Json:
    client = getattr(site, user)
    found: Json = await client.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)
    return found


def start(kind: Kind, obj: Json, pods: int, *, attempt: int = 1) -> list[Json]:
    return patches.start(JOB_KINDS[kind.name], effect(obj, kind.name, attempt=attempt, pods=pods))


def stop(kind: Kind, obj: Json, pods: int, *, attempt: int = 1) -> list[Json]:
    found = effect(obj, kind.name, attempt=attempt, pods=pods, verb=Verb.STOP)
    stop = patches.first_stop(JOB_KINDS[kind.name], found)
    assert stop is not None
    return stop.body


def sets(kind: Kind, count: object) -> Json:
    return {"op": "add", "path": pointer(kind.pods), "value": count}


def compact(value: object) -> str:
    """As queuectl writes annotations."""
    return json.dumps(value, separators=(",", ":"))


def changed(patch: list[Json], path: str, value: object) -> list[Json]:
    """The patch with another value for one field."""
    assert any(step["path"] == path and step["op"] == "add" for step in patch)
    return [{**one, "value": value} if (one["op"], one["path"]) == ("add", path) else one for one in patch]


async def refused(attempt: Awaitable[object], policy: str) -> str:
    with pytest.raises(ApiError) as refusal:
        await attempt
    assert refusal.value.status == 403
    assert policy in str(refusal.value)
    return str(refusal.value)


async def test_the_controller_starts_with_fewer_pods_and_restores_the_number(site: Site, kind: Kind) -> None:
    obj = await created(site, kind, "partly")
    for attempt, pods in ((1, 4), (2, 8), (3, 2)):
        running = await write(site, kind, "partly", start(kind, obj, pods, attempt=attempt))
        assert look(running, kind.pods) == pods
        obj = await write(site, kind, "partly", stop(kind, running, pods, attempt=attempt))
        assert look(obj, kind.pods) == 8


async def test_a_user_can_not_raise_the_number_while_it_runs_but_reduce_it(site: Site, kind: Kind) -> None:
    obj = await created(site, kind, "grows")
    await write(site, kind, "grows", start(kind, obj, 4))
    why = await refused(write(site, kind, "grows", [sets(kind, 5)], "tenant"), kind.policy)
    assert "can't grow while it runs" in why
    await write(site, kind, "grows", [sets(kind, 3)], "tenant")


async def test_a_number_that_was_reduced_grows_again_while_quota_is_held_for_it(
    site: Site, kind: Kind
) -> None:
    obj = await created(site, kind, "again")
    await write(site, kind, "again", start(kind, obj, 4))
    await write(site, kind, "again", [sets(kind, 1)], "tenant")
    await write(site, kind, "again", [sets(kind, 4)], "tenant")
    obj = await write(site, kind, "again", [sets(kind, 2)], "tenant")
    seen = observe(JOB_KINDS[kind.name], obj)
    assert seen is not None
    returned = patches.reduce_admission(seen, obj)
    await refused(write(site, kind, "again", returned, "tenant"), kind.policy)
    obj = await write(site, kind, "again", returned)
    for count in (3, 4, 8):
        why = await refused(write(site, kind, "again", [sets(kind, count)], "tenant"), kind.policy)
        assert "beyond the pods that it holds quota for" in why
    await write(site, kind, "again", [sets(kind, 1)], "tenant")
    obj = await write(site, kind, "again", [sets(kind, 2)], "tenant")
    stopped = await write(site, kind, "again", stop(kind, obj, 2))
    assert look(stopped, kind.pods) == 2, "the user has edited the number since: it is the user's"


async def test_an_admission_that_was_stopped_lets_nothing_grow(site: Site, kind: Kind) -> None:
    obj = await created(site, kind, "past")
    running = await write(site, kind, "past", start(kind, obj, 4))
    await write(site, kind, "past", stop(kind, running, 4))
    await write(site, kind, "past", [sets(kind, 2)], "tenant")
    await site.merge(site.admin, kind, "past", by_hand(kind.suspend))
    await refused(write(site, kind, "past", [sets(kind, 4)], "tenant"), kind.policy)


async def test_the_controller_changes_the_number_of_pods_in_no_other_way(site: Site, kind: Kind) -> None:
    obj = await created(site, kind, "confined")
    place, begins = pointer(kind.pods), start(kind, obj, 4)
    (mark,) = (step["value"] for step in begins if step["path"] == _MARK)
    forged: Any = json.loads(mark)
    forged["podSets"][-1]["before"]["counts"] = {place: 99}
    bare: Any = json.loads(mark)
    del bare["podSets"][-1]["before"]["counts"]
    for patch in (
        [sets(kind, 9)],
        [sets(kind, 7)],
        changed(begins, place, 9),
        changed(begins, place, 0),
        changed(begins, _MARK, compact(forged)),
        changed(begins, _MARK, compact(bare)),
        [{"op": "add", "path": _MARK, "value": compact(forged)}],
    ):
        await refused(write(site, kind, "confined", patch), kind.policy)
    running = await write(site, kind, "confined", begins)
    for count in (9, 3):
        await refused(write(site, kind, "confined", [sets(kind, count)]), kind.policy)
    await refused(write(site, kind, "confined", changed(stop(kind, running, 4), place, 9)), kind.policy)
