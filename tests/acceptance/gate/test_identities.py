"""What the controller may write, and which users may bypass the gate."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Eviction, Verb
from queuectl.kinds import patches
from queuectl.kinds.reserved_keys import IDLE_EXEMPT
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.site import (
    ADMISSION,
    BYPASS,
    KINDS,
    NAMESPACE,
    PYTORCH_JOB,
    QUEUE,
    Json,
    Kind,
    Site,
    look,
    nested,
    pointer,
    put,
    start_patch,
)
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS
from tests.rights import all_rights

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", KINDS, ids=str),
]


async def test_the_controller_starts_stops_and_starts_again(site: Site, kind: Kind) -> None:
    await site.create(kind, "cycle")
    started = await site.start(kind, "cycle")
    assert not kind.suspended(started)
    assert look(started, (*kind.template, "nodeSelector")) == {"pool": "a100"}
    stop = nested(kind.suspend, True) | {"metadata": {"uid": started["metadata"]["uid"]}}
    stopped = await site.merge(site.controller, kind, "cycle", stop)
    assert kind.suspended(stopped)
    again = start_patch(kind, stopped, {"pool": "spot"})
    restarted = await site.controller.request("PATCH", kind.path("cycle"), again, content_type=JSON_PATCH)
    assert look(restarted, (*kind.template, "nodeSelector")) == {"pool": "spot"}


async def test_a_start_is_refused_after_an_edit_and_accepted_after_an_annotation(
    site: Site, kind: Kind
) -> None:
    seen = await site.create(kind, "raced")
    note: Json = {"metadata": {"annotations": {"team": "x"}}}
    annotated = await site.merge(site.tenant, kind, "raced", note)
    await site.merge(site.tenant, kind, "raced", nested(kind.pods, 1))
    refusal = await _refused(_start(site, kind, annotated, seen["metadata"]["generation"]))
    assert "422" in refusal
    assert kind.policy not in refusal
    edited = await site.get(kind, "raced")
    await site.merge(site.tenant, kind, "raced", {"metadata": {"annotations": {"team": "y"}}})
    await _start(site, kind, edited, edited["metadata"]["generation"])


async def _start(site: Site, kind: Kind, obj: Json, generation: int) -> Json:
    patch = start_patch(kind, obj)
    patch[1]["value"] = generation
    return await site.controller.request(
        "PATCH", kind.path(obj["metadata"]["name"]), patch, content_type=JSON_PATCH
    )


EVICTION = Eviction(
    Reason(code=Code.MAXIMUM_EXECUTION_TIME_EXCEEDED), datetime(2030, 1, 1, tzinfo=UTC), fails=True
)
IMAGE = "another image"
NO_OTHER_FIELD = (
    "writes no field of the spec but suspend, numbers of pods that it reduces and restores, "
    "activeDeadlineSeconds 1 of what runs, and of pod templates nodeSelector, tolerations and its own labels"
)
BEYOND_DUTY = {
    IMAGE: NO_OTHER_FIELD,
    "service account": NO_OTHER_FIELD,
    "pod labels": NO_OTHER_FIELD,
    "size": "",
    "labels": "writes no metadata but annotations queuectl.dev/reserved-*",
    "queue": "writes no metadata but annotations queuectl.dev/reserved-*",
    "finalizers": "writes no metadata but annotations queuectl.dev/reserved-*",
    "owners": "writes no metadata but annotations queuectl.dev/reserved-*",
    "other annotations": "writes no metadata but annotations queuectl.dev/reserved-*",
    "rest of the spec": NO_OTHER_FIELD,
    "deadline of what waits": NO_OTHER_FIELD,
}


def _deadline(kind: Kind) -> tuple[str, ...]:
    return JOB_KINDS[kind.name].deadline


def _beyond_duty(kind: Kind, what: str) -> Json:
    template = kind.template[:-1]
    changes: dict[str, Json] = {
        IMAGE: nested((*kind.template, "containers"), [{"name": "c", "image": "miner:1"}]),
        "service account": nested((*kind.template, "serviceAccountName"), "admin"),
        "pod labels": nested((*template, "metadata"), {"labels": {"a": "b"}}),
        "size": nested(kind.pods, 7),
        "labels": {"metadata": {"labels": {"a": "b"}}},
        "queue": {"metadata": {"labels": {QUEUE: "other"}}},
        "finalizers": {"metadata": {"finalizers": ["queuectl.dev/stay"]}},
        "owners": {
            "metadata": {
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
            }
        },
        "other annotations": {"metadata": {"annotations": {"team": "z"}}},
        "rest of the spec": {"spec": {"ttlSecondsAfterFinished": 1}},
        "deadline of what waits": nested(_deadline(kind), 1),
    }
    if kind is PYTORCH_JOB:
        changes["rest of the spec"] = {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}}
    return changes[what]


@pytest.mark.parametrize("what", BEYOND_DUTY)
async def test_a_stolen_token_of_the_controller_changes_nothing_else(
    site: Site, kind: Kind, what: str
) -> None:
    name = "stolen-" + what.replace(" ", "-")
    before = kind.facts(await site.create(kind, name))
    refusal = await _refused(site.merge(site.controller, kind, name, _beyond_duty(kind, what)))
    assert kind.facts(await site.get(kind, name)) == before
    # A Job's template is immutable anyway, except resources while it is suspended.
    assert "field is immutable" in refusal or (kind.policy in refusal and BEYOND_DUTY[what] in refusal)


async def test_the_controller_ends_what_runs_by_its_deadline_and_sets_no_other(
    site: Site, kind: Kind
) -> None:
    await site.create(kind, "ended")
    await site.merge(site.tenant, kind, "ended", nested(_deadline(kind), 600))
    started = await site.start(kind, "ended")
    for seconds in (2, 900, None):
        refusal = await _refused(site.merge(site.controller, kind, "ended", nested(_deadline(kind), seconds)))
        assert NO_OTHER_FIELD in refusal
    stop = replace(effect(started, kind.name, verb=Verb.STOP), eviction=EVICTION)
    write = patches.next_stop(JOB_KINDS[kind.name], stop, started)
    assert write is not None
    ended = await site.controller.request("PATCH", kind.path("ended"), write.body, content_type=JSON_PATCH)
    assert look(ended, _deadline(kind)) == 1
    assert not kind.suspended(ended)


async def test_a_stolen_token_of_the_controller_creates_nothing(site: Site, kind: Kind) -> None:
    """Its roles grant no deletion: tests/acceptance/manifests/test_applied.py."""
    refusal = await _refused(site.controller.request("POST", kind.path(), kind.body("made")))
    assert "creates none" in refusal


async def test_a_stolen_token_of_the_controller_changes_no_unlabelled_object(site: Site, kind: Kind) -> None:
    await site.create(kind, "not-ours", queue=None)
    refusal = await _refused(site.merge(site.controller, kind, "not-ours", nested(kind.suspend, False)))
    assert "touches no object without a queue label" in refusal


async def test_the_controller_may_remove_the_start_time_from_a_status_and_nothing_else(
    site: Site, kind: Kind
) -> None:
    await site.create(kind, "status")
    at = "2030-01-01T00:00:00Z"
    await site.merge(site.admin, kind, "status", {"status": {"startTime": at}}, "status")
    more: Json = {"status": {"failed": 1} if kind.name == "Job" else {"completionTime": at}}
    refusal = await _refused(site.merge(site.controller, kind, "status", more, "status"))
    assert "takes startTime out of a status" in refusal
    patch: list[Json] = [{"op": "remove", "path": "/status/startTime"}]
    await site.controller.request("PATCH", kind.path("status", "status"), patch, content_type=JSON_PATCH)
    assert look(await site.get(kind, "status"), ("status", "startTime")) is None


async def test_the_controller_may_make_the_condition_suspended_unknown_and_change_no_other(
    site: Site, kind: Kind
) -> None:
    await site.create(kind, "asked")
    at = "2030-01-01T00:00:00Z"
    said = {"type": "Suspended", "status": "True", "reason": "Said", "lastTransitionTime": at}
    other = {"type": "Other", "status": "True", "reason": "Said", "lastTransitionTime": at}
    asked = {**said, "status": "Unknown", "reason": "Asked"}

    async def write(client: Client, *conditions: Json) -> None:
        await site.merge(client, kind, "asked", {"status": {"conditions": conditions}}, "status")

    await write(site.admin, other, said)
    for forbidden in (
        (other,),
        (asked, asked),
        (asked, {**other, "status": "False"}),
        (other, {**said, "status": "False"}),
        (other, asked, {**other, "type": "Another"}),
    ):
        assert "makes Suspended Unknown" in await _refused(write(site.controller, *forbidden))
    await write(site.controller, other, asked)
    assert look(await site.get(kind, "asked"), ("status", "conditions", 1, "status")) == "Unknown"


async def test_a_tenant_cannot_write_the_bypass_annotation(site: Site, kind: Kind) -> None:
    await site.create(kind, "no-bypass")
    patch: Json = {"metadata": {"annotations": {BYPASS: "admin"}}}
    refusal = await _refused(site.merge(site.tenant, kind, "no-bypass", patch))
    assert "annotations queuectl.dev/reserved-*" in refusal


RELEASE = "queuectl.dev/reserved-release"


async def test_a_user_with_the_right_releases_quota_by_force_in_its_own_name_only(
    site: Site, kind: Kind
) -> None:
    made = await site.create(kind, "released")
    uid = made["metadata"]["uid"]
    own = f"{uid}/1 by admin: its node is gone"
    forged = (f"{uid}/1 by bob: no", f"other/1 by admin: {uid}", f"{uid}/1", f"{uid}/1 by bob by admin: x")
    for text in forged:
        refusal = await _refused(site.merge(site.admin, kind, "released", _marked(text)))
        assert kind.policy in refusal, text
    written = await site.merge(site.admin, kind, "released", _marked(own))
    assert look(written, ("metadata", "annotations", RELEASE)) == own
    for other in (own.replace("gone", "fine"), None):
        refusal = await _refused(site.merge(site.tenant, kind, "released", _marked(other)))
        assert "written by users that may force-release" in refusal
    labelled = await site.merge(site.tenant, kind, "released", {"metadata": {"labels": {"a": "b"}}})
    assert look(labelled, ("metadata", "annotations", RELEASE)) == own
    body = kind.body("made-released")
    body["metadata"]["annotations"] = {RELEASE: own}
    refusal = await _refused(site.tenant.request("POST", kind.path(), body))
    assert "annotations queuectl.dev/reserved-*" in refusal


def _marked(text: str | None) -> Json:
    return {"metadata": {"annotations": {RELEASE: text}}}


async def test_who_may_exempt_writes_why_and_others_only_take_it_away(site: Site, kind: Kind) -> None:
    await site.create(kind, "exempt-of-idle")
    key = ("metadata", "annotations", IDLE_EXEMPT)

    def patch(text: str | None) -> Json:
        return nested(key, text)

    refusal = await _refused(site.merge(site.tenant, kind, "exempt-of-idle", patch("it serves")))
    assert "written by users that may exempt" in refusal
    written = await site.merge(site.admin, kind, "exempt-of-idle", patch("it serves"))
    assert look(written, key) == "it serves"
    labelled = await site.merge(site.tenant, kind, "exempt-of-idle", {"metadata": {"labels": {"a": "b"}}})
    assert look(labelled, key) == "it serves"
    refusal = await _refused(site.merge(site.tenant, kind, "exempt-of-idle", patch("for ever")))
    assert "written by users that may exempt" in refusal
    for text in (
        "until tomorow",
        "unitl 2030-01-01T00:00:00Z: x",
        "Until 2030-01-01",
        "until 2030-13-01T00:00:00Z",
    ):
        refusal = await _refused(site.merge(site.admin, kind, "exempt-of-idle", patch(text)))
        assert (
            f"{IDLE_EXEMPT} {text} gives no time at which it ends: write until 2026-12-01T00:00:00Z"
            in refusal
        )
    for text in ("until 2030-01-01T00:00:00.5+01:00: it serves", "until 2030-01-01T00:00:00Z", "for 8 weeks"):
        assert look(await site.merge(site.admin, kind, "exempt-of-idle", patch(text)), key) == text
    await site.merge(site.tenant, kind, "exempt-of-idle", patch(None))


async def test_the_right_to_all_verbs_in_one_namespace_is_no_right_to_bypass(site: Site, kind: Kind) -> None:
    name = f"owned-{kind.plural}"
    await site.create(kind, name)
    async with all_rights(site.admin, "tenant", NAMESPACE):
        refusal = await _refused(site.merge(site.tenant, kind, name, nested(kind.suspend, False)))
    assert kind.policy in refusal


async def test_a_start_keeps_what_the_tenant_wrote(site: Site, kind: Kind) -> None:
    body = kind.body("steered")
    put(body, (*kind.template, "nodeSelector"), {"zone": "a"})
    body["metadata"]["annotations"] = {"team": "x"}
    made = await site.tenant.request("POST", kind.path(), body)
    patch = start_patch(kind, made, {"zone": "a", "pool": "a100"})
    started = await site.controller.request("PATCH", kind.path("steered"), patch, content_type=JSON_PATCH)
    assert started["metadata"]["annotations"]["team"] == "x"
    assert started["metadata"]["annotations"][ADMISSION] == '{"attempt":1}'
    assert pointer(kind.suspend) == patch[-1]["path"]


async def _refused(attempt: Awaitable[object]) -> str:
    with pytest.raises(ApiError) as caught:
        await attempt
    assert caught.value.status in (403, 422)
    return str(caught.value)
