"""Ways past the gate, tried on each further kind with the definition that its project publishes.

Each is refused, or changes nothing of the spec, the labels and the annotations of the object.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from queuectl.kinds.jobs import JobKind
from queuectl.kube.errors import ApiError
from tests.acceptance.gate.kinds import Objects
from tests.acceptance.gate.site import (
    ADMISSION,
    APPLY_PATCH,
    QUEUE,
    STRATEGIC_PATCH,
    Json,
    Site,
    by_hand,
    nested,
    pointer,
)
from tests.job_kinds import JOB_KINDS

KINDS: Final = tuple(row for row in JOB_KINDS if row.name not in ("Job", "PyTorchJob"))

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
    pytest.mark.parametrize("row", KINDS, ids=lambda row: row.name),
]

Way = Callable[[Objects, str], Awaitable[object]]
REFUSED: Final = (403, 415, 422)
"""By the gate; for a strategic patch, which custom resources do not take; for what the definition forbids."""


@pytest.fixture
def objects(defined: Site, row: JobKind) -> Objects:
    return Objects(defined, row)


async def _put(objects: Objects, name: str) -> None:
    body = await objects.read(name)
    body["spec"] = objects.body(name, suspend=False)["spec"]
    await objects.site.tenant.request("PUT", objects.path(name), body)


async def _merge(objects: Objects, name: str) -> None:
    await objects.merge("tenant", name, nested(objects.row.suspend, False))


async def _null(objects: Objects, name: str) -> None:
    await objects.merge("tenant", name, nested(objects.row.suspend, None))


async def _json_replace(objects: Objects, name: str) -> None:
    await _json(objects, name, {"op": "replace", "path": pointer(objects.row.suspend), "value": False})


async def _json_remove(objects: Objects, name: str) -> None:
    await _json(objects, name, {"op": "remove", "path": pointer(objects.row.suspend)})


async def _json(objects: Objects, name: str, operation: Json) -> None:
    await objects.patch("tenant", name, [operation])


async def _strategic(objects: Objects, name: str) -> None:
    body = nested(objects.row.suspend, False)
    await objects.site.tenant.request("PATCH", objects.path(name), body, content_type=STRATEGIC_PATCH)


async def _apply(objects: Objects, name: str) -> None:
    body = objects.body(name, suspend=False)
    body.pop("status", None)
    query = {"fieldManager": "tenant", "force": "true"}
    path = objects.path(name)
    await objects.site.tenant.request("PATCH", path, body, query=query, content_type=APPLY_PATCH)


async def _status(objects: Objects, name: str) -> None:
    await objects.merge("tenant", name, nested(objects.row.suspend, False), "status")


async def _label(objects: Objects, name: str) -> None:
    await objects.merge("tenant", name, {"metadata": {"labels": {QUEUE: None}}})


async def _forged(objects: Objects, name: str) -> None:
    await objects.merge("tenant", name, {"metadata": {"annotations": {ADMISSION: '{"attempt":9}'}}})


WAITING: Final[dict[str, Way]] = {
    "PUT": _put,
    "merge patch": _merge,
    "null": _null,
    "JSON replace": _json_replace,
    "JSON remove": _json_remove,
    "strategic patch": _strategic,
    "server-side apply": _apply,
    "status": _status,
    "label removal": _label,
    "forged annotation": _forged,
}
NOT_BY_THE_GATE: Final = ("strategic patch", "status")


@pytest.mark.parametrize("way", WAITING)
async def test_no_request_of_a_tenant_changes_a_pending_object(objects: Objects, way: str) -> None:
    name = f"waits-{re.sub('[^a-z]+', '-', way.lower())}"
    made = await objects.create(name)
    assert objects.row.suspended(made)
    refusal = await _tried(WAITING[way](objects, name))
    assert _facts(await objects.read(name)) == _facts(made)
    assert (objects.policy in refusal) is (way not in NOT_BY_THE_GATE)


async def test_an_object_created_running_is_suspended(objects: Objects) -> None:
    assert objects.row.suspended(await objects.create("made-running", suspend=False))


async def test_an_object_does_not_grow_while_it_runs(objects: Objects) -> None:
    made = await objects.create("grows")
    running = await objects.merge("admin", "grows", by_hand(objects.row.suspend))
    assert not objects.row.suspended(running)
    operation: Json = {"op": "add", "path": pointer(objects.count), "value": 9}
    if objects.count[1] not in made["spec"]:
        operation = {"op": "add", "path": pointer(objects.count[:2]), "value": {objects.count[2]: 9}}
    refusal = await _tried(_json(objects, "grows", operation))
    assert _facts(await objects.read("grows")) == _facts(running)
    assert objects.policy in refusal


def _facts(obj: Json) -> Json:
    """All that a tenant could have changed."""
    metadata = obj["metadata"]
    return {"spec": obj["spec"], "labels": metadata["labels"], "annotations": metadata.get("annotations")}


async def _tried(attempt: Awaitable[object]) -> str:
    """The server's message if it refused; empty if it accepted."""
    try:
        await attempt
    except ApiError as error:
        if error.status not in REFUSED:
            raise
        return str(error)
    return ""
