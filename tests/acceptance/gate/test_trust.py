"""Each row of the table of who may write what the controller reads (docs/threats.md), by phase and verb.

A cell that begins with "users" must be open to a tenant; any other must be closed: the request is refused, or
what it was to change stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from queuectl.kinds import reserved_keys as written
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH
from tests.acceptance.gate.site import (
    APPLY_PATCH,
    KINDS,
    QUEUE,
    STRATEGIC_PATCH,
    Json,
    Kind,
    Site,
    look,
    nested,
    pointer,
    put,
)
from tests.acceptance.gate.test_ways import tried
from tests.acceptance.gate.trust import CHANGES, PHASES, FieldPath, users_may

pytestmark = pytest.mark.asyncio(loop_scope="session")

Verb = Callable[[Site, Kind, str, FieldPath, object], Awaitable[object]]


async def _put(site: Site, kind: Kind, name: str, path: FieldPath, value: object) -> None:
    body = await site.get(kind, name)
    put(body, path, value)
    await site.tenant.request("PUT", kind.path(name), body)


async def _merge(site: Site, kind: Kind, name: str, path: FieldPath, value: object) -> None:
    await site.merge(site.tenant, kind, name, nested(path, value))


async def _json(site: Site, kind: Kind, name: str, path: FieldPath, value: object) -> None:
    obj, depth = await site.get(kind, name), len(path) - 1
    while depth and look(obj, path[:depth]) is None:
        depth -= 1
    inner = value if depth == len(path) - 1 else nested(path[depth + 1 :], value)
    patch: list[Json] = [{"op": "add", "path": pointer(path[: depth + 1]), "value": inner}]
    await site.tenant.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)


async def _strategic(site: Site, kind: Kind, name: str, path: FieldPath, value: object) -> None:
    body = nested(path, value)
    await site.tenant.request("PATCH", kind.path(name), body, content_type=STRATEGIC_PATCH)


async def _apply(site: Site, kind: Kind, name: str, path: FieldPath, value: object) -> None:
    body: Json = {"apiVersion": f"{kind.group}/v1", "kind": kind.name, "metadata": {"name": name}}
    put(body, path, value)
    query = {"fieldManager": "tenant", "force": "true"}
    await site.tenant.request("PATCH", kind.path(name), body, query=query, content_type=APPLY_PATCH)


async def _status(site: Site, kind: Kind, name: str, path: FieldPath, value: object) -> None:
    patch = nested(path, value)
    await site.tenant.request("PATCH", kind.path(name, "status"), patch, content_type=MERGE_PATCH)


VERBS: Final[dict[str, Verb]] = {
    "PUT": _put,
    "merge patch": _merge,
    "JSON patch": _json,
    "strategic merge patch": _strategic,
    "server-side apply": _apply,
    "status": _status,
}


SERVED: Final = ("PUT", "merge patch", "JSON patch", "server-side apply")
"""Verbs that write any field of any object: a custom resource takes no strategic merge patch."""


async def _over(site: Site, kind: Kind, name: str) -> None:
    at = "2030-01-01T00:00:00Z"
    ended = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": at}
    status: Json = {"startTime": at, "completionTime": at}
    if kind.name == "Job":
        status["succeeded"] = 8
        types = ("SuccessCriteriaMet", "Complete")
        status["conditions"] = [{"type": one, "lastProbeTime": at, **ended} for one in types]
    else:
        status |= {"conditions": [{"type": "Succeeded", **ended}], "replicaStatuses": {}}
    await site.merge(site.admin, kind, name, {"status": status}, "status")


async def _made(site: Site, kind: Kind, name: str, phase: str) -> Json:
    """An object in a phase."""
    await site.create(kind, name, queue=None if phase in ("no queue label", "is added") else "main")
    if phase in ("runs", "over"):
        await site.start(kind, name)
    if phase == "over":
        await _over(site, kind, name)
    return await site.get(kind, name)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("row", CHANGES)
@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "is added"])
async def test_a_tenant_writes_what_the_table_says_and_nothing_else(
    site: Site, kind: Kind, row: str, phase: str
) -> None:
    change, name = CHANGES[row], _name(row, phase)
    path = change.path(kind)
    before = look(await _made(site, kind, name, phase), path)
    opened = users_may(row, phase)
    for verb, write in VERBS.items():
        refusal = await tried(write(site, kind, name, path, change.value))
        after = look(await site.get(kind, name), path)
        if verb in SERVED and opened:
            assert (refusal, after) == ("", change.value), verb
        elif not opened:
            assert after == before, (verb, refusal)
    await site.tenant.request("DELETE", kind.path(name))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("row", [row for row in CHANGES if row != "label `queuectl.dev/queue-name`"])
@pytest.mark.parametrize("together", [False, True], ids=["before the label", "with the label"])
async def test_what_the_label_finds_counts_as_written_with_it(
    site: Site, kind: Kind, row: str, together: bool
) -> None:
    change, name = CHANGES[row], _name(row, "joined" if together else "found")
    path = change.path(kind)
    await _made(site, kind, name, "is added")
    label: Json = {"metadata": {"labels": {QUEUE: "main"}}}
    patch = _joined(label, nested(path, change.value)) if together else label
    if not together:
        await site.merge(site.tenant, kind, name, nested(path, change.value))
    refusal = await tried(site.merge(site.tenant, kind, name, patch))
    labels = (await site.get(kind, name))["metadata"].get("labels") or {}
    opened = users_may(row, "is added")
    assert (QUEUE in labels) is opened, refusal
    assert opened or kind.policy in refusal


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_submitter_is_the_user_that_adds_the_label(site: Site, kind: Kind) -> None:
    await _made(site, kind, "own-name", "is added")
    patch: Json = {
        "metadata": {"labels": {QUEUE: "main"}, "annotations": {written.SUBMITTER_ANNOTATION: "tenant"}}
    }
    assert await tried(site.merge(site.tenant, kind, "own-name", patch)) == ""


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("row", [row for row in CHANGES if re.search("reserved|bypass|exempt", row)])
async def test_a_tenant_creates_nothing_with_what_others_write(site: Site, kind: Kind, row: str) -> None:
    body = kind.body(_name(row, "made"))
    put(body, CHANGES[row].path(kind), CHANGES[row].value)
    refusal = await tried(site.tenant.request("POST", kind.path(), body))
    if site.mutating and "submitter" in row:
        made = await site.get(kind, body["metadata"]["name"])
        assert made["metadata"]["annotations"] == {written.SUBMITTER_ANNOTATION: "tenant"}
    else:
        assert kind.policy in refusal


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_empty_queue_label_is_no_label_and_is_refused(site: Site, kind: Kind) -> None:
    refusal = await tried(site.create(kind, "empty", queue=""))
    assert "its queue label is empty" in refusal
    await site.create(kind, "emptied")
    for verb in ("PUT", "merge patch", "JSON patch", "server-side apply"):
        path = ("metadata", "labels", QUEUE)
        refusal = await tried(VERBS[verb](site, kind, "emptied", path, ""))
        assert "its queue label is empty" in refusal, verb
    await site.create(kind, "joins-empty", queue=None)
    empty: Json = {"metadata": {"labels": {QUEUE: ""}}}
    assert "its queue label is empty" in await tried(site.merge(site.tenant, kind, "joins-empty", empty))


def _joined(one: Json, other: Json) -> Json:
    found: dict[str, Any] = dict(one)
    for key, value in other.items():
        found[key] = _joined(found[key], value) if isinstance(found.get(key), dict) else value
    return found


def _name(row: str, what: str) -> str:
    return re.sub("[^a-z]+", "-", f"{what} {row.replace('queuectl.dev', '')}".lower()).strip("-")
