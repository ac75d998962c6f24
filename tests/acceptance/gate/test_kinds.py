"""The gate on each further kind, with the definitions that their projects publish.

The requests are those of queuectl itself (kinds/patches) and what a tenant may try instead.
"""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from queuectl.core.model.workload import Verb
from queuectl.kinds import patches
from queuectl.kinds.jobs import JobKind
from queuectl.kube.errors import ApiError
from tests.acceptance.gate.kinds import ROWS, Objects
from tests.acceptance.gate.site import SUBMITTER, Json, Site, nested, pointer
from tests.integration.kube.sites import effect
from tests.unit.kinds.kind_objects import seen_suspended

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # What a mutating policy does is seen on this site only; what is refused is the same on all.
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
    pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name),
]


@pytest.fixture
def objects(defined: Site, row: JobKind) -> Objects:
    return Objects(defined, row)


async def test_an_object_is_created_suspended_with_the_name_of_its_submitter(objects: Objects) -> None:
    made = await objects.create("created", suspend=False)
    assert objects.row.suspended(made)
    assert made["metadata"]["annotations"] == {SUBMITTER: "tenant"}


async def test_no_tenant_starts_an_object(objects: Objects) -> None:
    await objects.create("waits")
    refusal = await _refused(objects.merge("tenant", "waits", nested(objects.row.suspend, False)))
    assert objects.policy in refusal
    assert f"leave {'.'.join(objects.row.suspend)} true" in refusal


async def test_the_controller_starts_and_stops_an_object_with_its_own_patches(objects: Objects) -> None:
    started = await _started(objects, "runs")
    assert not objects.row.suspended(started)
    stop = patches.first_stop(objects.row, effect(started, objects.row.name, verb=Verb.STOP))
    assert stop is not None
    assert objects.row.suspended(await objects.patch("controller", "runs", stop.body))


async def test_the_controller_takes_back_that_an_object_is_suspended(objects: Objects) -> None:
    await objects.create("asked")
    status = seen_suspended(objects.row)
    for condition in status.get("conditions", ()):
        condition["lastTransitionTime"] = "2030-01-01T00:00:00Z"
    stopped = await objects.merge("admin", "asked", {"status": status}, "status")
    stop = effect(stopped, objects.row.name, verb=Verb.STOP)
    record = patches.next_stop(objects.row, stop, stopped)
    assert record is not None
    stopped = await objects.patch("controller", "asked", record.body)
    ask = patches.next_stop(objects.row, stop, stopped)
    if not objects.row.seen.asked:
        assert ask is None
        return
    assert ask is not None
    answer = await objects.patch("controller", "asked", ask.body, ask.subresource)
    assert not objects.row.says_suspended(answer)


async def test_a_running_object_keeps_what_it_was_charged_for(objects: Objects) -> None:
    await _started(objects, "charged")
    template = objects.template
    for change, words in (
        ({"op": "replace", "path": pointer(objects.count), "value": 9}, "can't grow while it runs"),
        (
            {"op": "add", "path": pointer((*template, "spec", "priorityClassName")), "value": "high"},
            "its pods can't be changed while it runs",
        ),
        ({"op": "replace", "path": pointer(objects.row.suspend), "value": True}, "it runs, and"),
    ):
        refusal = await _refused(objects.patch("tenant", "charged", [change]))
        assert objects.policy in refusal
        assert words in refusal
    if any(template[: len(path)] == path for path in objects.row.fixed):
        return
    shrunk = {"op": "replace", "path": pointer(objects.count), "value": 1}
    await objects.patch("tenant", "charged", [shrunk])


async def test_the_controller_writes_nothing_else_of_an_object(objects: Objects) -> None:
    await objects.create("own")
    template = objects.template
    for path, value in (
        ((*template, "spec", "containers", "0", "image"), "evil:1"),
        ((*template, "spec", "priorityClassName"), "high"),
        ((*template, "metadata"), {"annotations": {"a": "b"}}),
        (objects.count, 9),
    ):
        change = {"op": "add", "path": pointer(path), "value": value}
        assert objects.policy in await _refused(objects.patch("controller", "own", [change])), path


async def test_replicas_do_not_grow_through_a_scale_subresource(objects: Objects) -> None:
    await objects.create("scaled")
    grown: Json = {"spec": {"replicas": 9}}
    refusal = await _refused(objects.merge("tenant", "scaled", grown, "scale"), 403, 404)
    assert ("queuectl-scale" in refusal) is objects.row.scale


async def _started(objects: Objects, name: str) -> Json:
    made = await objects.create(name)
    start = patches.start(objects.row, effect(made, objects.row.name))
    return await objects.patch("controller", name, start)


async def _refused(attempt: Awaitable[object], *codes: int) -> str:
    with pytest.raises(ApiError) as refusal:
        await attempt
    assert refusal.value.status in (codes or (403,))
    return str(refusal.value)
