"""Bad inputs on a whole running site: each is refused with its field, or left pending with a reason.

A test has the number of its input in its name:

| number | input                                          | test        | in                |
| ------ | ---------------------------------------------- | ----------- | ----------------- |
| 1      | a negative quota                               | `test_01_…` | test_bad_policy   |
| 3      | a fraction of a GPU as quota                   | `test_03_…` | test_bad_policy   |
| 5      | limits of sharing without a cohort             | `test_05_…` | test_bad_policy   |
| 6      | a flavor or resource twice                     | `test_06_…` | test_bad_policy   |
| 9      | a queue with a flavor that does not exist      | `test_09_…` | test_bad_policy   |
| 10     | a quota cut below what is in use               | `test_10_…` | test_bad_policy   |
| 20     | an exponent of a million                       | `test_20_…` | test_bad_requests |
| 21     | a negative number of GPUs                      | `test_21_…` | test_bad_requests |
| 22     | two billion pods                               | `test_22_…` | test_bad_requests |
| 24     | requests in every field that Kubernetes counts | `test_24_…` | test_bad_requests |
| 25     | a resource that no queue covers                | `test_25_…` | test_bad_requests |
| 26     | NUL, ANSI escapes and 256 KiB in annotations   | `test_26_…` | here              |
| 29     | no queue, another namespace's, too long a name | `test_29_…` | here              |
| 33     | deleted and created again under the same name  | `test_33_…` | here              |
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from queuectl.kube.errors import ApiError
from tests.acceptance.e2e.ledger import controls_in_ledger, decisions_of, mentions
from tests.acceptance.e2e.site import (
    GPU,
    Json,
    Site,
    eventually,
    gpus_only,
    job,
    local_queue,
    pod_template,
    pytorchjob,
)
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

# --- 26: hostile text ------------------------------------------------------------------------------------

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x00 \x9b31m \u202e"
LARGEST = 256 * 1024
"""The most bytes of annotations that an API server accepts on one object."""


async def _nothing_raw(world: World, *names: str) -> None:
    """Neither the ledger nor a terminal gets a control character from these workloads."""
    assert await controls_in_ledger(world.site) == []
    commands = (
        *(("explain", name) for name in names),
        ("explain", names[0], "-o", "yaml"),
        ("explain", names[0], "-o", "json"),
        ("get", "workloads"),
        ("get", "workloads", "-o", "yaml"),
    )
    # At the same time: each command takes most of its time to start.
    runs = [world.site.queuectl(*command, "-n", world.namespace) for command in commands]
    for shown in await asyncio.gather(*runs):
        assert shown.code == 0, shown.err
        _plain(shown.out + shown.err)
    events = await world.api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    for event in events["items"]:
        _plain(event.get("note", ""))
    _plain((world.site.data.parent / f"{world.site.data.name}.out").read_text())


def _plain(text: str) -> None:
    assert [c for c in set(text) if not (c.isprintable() or c == "\n")] == []


async def test_26_nul_escapes_and_240_kib_in_annotations_have_no_effect(world: World) -> None:
    body = job("loud", template=pod_template(1))
    body["metadata"]["annotations"] = {"example.com/escapes": ESCAPES, "example.com/book": 240 * 1024 * "x"}
    body["metadata"]["annotations"]["queuectl.dev/hold"] = "true\x00"
    made = await world.submit(body)
    assert "\x00" in made["metadata"]["annotations"]["example.com/escapes"]
    await world.phase("loud", "Finished")
    await _nothing_raw(world, "job/loud")


async def test_26_a_job_with_annotations_that_leave_no_space_for_ours_is_misconfigured_and_says_so(
    world: World,
) -> None:
    body = job("full", template=pod_template(1))
    made = await world.submit(job("measure", template=pod_template(1)))
    taken = sum(len(k) + len(v) for k, v in (made["metadata"].get("annotations") or {}).items())
    body["metadata"]["annotations"] = {"example.com/book": (LARGEST - taken - 16) * "x"}
    await world.submit(body)
    reason = await world.reason_is("full", "Misconfigured")
    assert "metadata.annotations" in reason["detail"]
    await world.annotate("full", "example.com/book", None)
    await world.phase("full", "Finished")


async def test_26_escapes_in_fields_that_only_a_job_controller_checks_are_reported_and_never_printed(
    world: World,
) -> None:
    places: dict[str, Json] = {
        "class": {"priorityClassName": ESCAPES},
        "runtime": {"runtimeClassName": ESCAPES},
        "selector": {"nodeSelector": {"a": ESCAPES}},
        "toleration": {"tolerations": [{"key": ESCAPES, "operator": "Exists"}]},
    }
    for name, spec in places.items():
        await world.submit(pytorchjob(name, template=pod_template(1, **spec)))
    named = pytorchjob("resource")
    for replica in named["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"requests": {ESCAPES: "1"}}
    await world.submit(named)
    for name in (*places, "resource"):
        reason = await world.reason_is(name, "Misconfigured", "PyTorchJob")
        assert "control characters" in reason["detail"]
    await _nothing_raw(world, *(f"pytorchjob/{name}" for name in (*places, "resource")))


# --- 29: which queue -------------------------------------------------------------------------------------


async def test_29_a_job_without_the_label_runs_at_once_and_is_not_managed(world: World) -> None:
    made = await world.submit(job("free", queue=None, template=pod_template(16)))
    assert not made["spec"].get("suspend")

    async def done() -> bool:
        conditions = (await world.get("free")).get("status", {}).get("conditions", [])
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    await eventually("it has run", done)
    after = await world.get("free")
    assert not [key for key in after["metadata"].get("annotations") or {} if "queuectl.dev" in key]
    assert (await world.workload("free"))["status"] == 404
    assert await mentions(world.site, made["metadata"]["uid"]) == []


async def test_29_a_queue_of_another_namespace_is_not_found_until_it_exists_in_this_one(world: World) -> None:
    theirs = f"only-{world.namespace}"
    await world.policy(local_queue("default", theirs, world.namespace))
    await world.submit(job("lost", queue=theirs, template=pod_template(1)))
    reason = await world.reason("lost")
    node = f"LocalQueue/{world.namespace}/{theirs}"
    assert (reason["code"], reason["node"]) == ("QueueNotFound", node)
    assert (await world.get("lost"))["spec"]["suspend"] is True
    await world.policy(local_queue(world.namespace, theirs, world.namespace))
    await world.phase("lost", "Finished")


async def test_29_a_queue_name_of_64_characters_is_refused_by_the_api_server(world: World) -> None:
    with pytest.raises(ApiError) as caught:
        await world.submit(job("long", queue=64 * "q"))
    assert caught.value.status == 422
    assert "metadata.labels" in str(caught.value)
    await world.submit(job("just", queue=63 * "q"))
    assert (await world.reason("just"))["code"] == "QueueNotFound"


# --- 33: the same name again -----------------------------------------------------------------------------


async def _replace(world: World, body: Json) -> Json:
    """Delete and create at once, before the controller can observe either."""
    path = world.path(body["kind"], body["metadata"]["name"])
    await world.api.request("DELETE", path, {"propagationPolicy": "Background", "kind": "DeleteOptions"})
    return await world.submit(body)


def _lingering(gpus: int) -> Json:
    """Pods that take a second to end."""
    template = gpus_only(gpus, seconds=60)
    template["metadata"]["annotations"]["sandbox.queuectl.dev/terminate-seconds"] = "1"
    return template


async def _verdicts(site: Site, uid: str) -> list[tuple[str, int | None]]:
    return [
        (row["verdict"], row["attempt"])
        for row in await decisions_of(site, uid)
        if row["verdict"] != "Pending"
    ]


async def _pods_of(world: World, uid: str) -> list[Json]:
    found = await world.api.request("GET", f"/api/v1/namespaces/{world.namespace}/pods")
    return [
        pod for pod in found["items"] if uid in [one["uid"] for one in pod["metadata"]["ownerReferences"]]
    ]


@pytest.mark.every_version
async def test_33_a_job_recreated_while_it_runs_has_two_uids_and_two_histories(world: World) -> None:
    for kind, body in (
        ("Job", job("again", template=_lingering(8))),
        ("PyTorchJob", pytorchjob("again", template=_lingering(2))),
    ):
        old = (await world.submit(body))["metadata"]["uid"]
        await world.phase("again", "Admitted", kind)
        await eventually(f"the first {kind} has pods", partial(_pods_of, world, old))
        new = (await _replace(world, body))["metadata"]["uid"]

        async def admitted(kind: str = kind, new: str = new) -> bool:
            found = await world.workload("again", kind)
            assert (await world.used(world.namespace)).get(("a100", GPU), 0) <= 8
            return found.get("uid") == new and found["phase"] == "Admitted"

        await eventually(f"the new {kind} is admitted", admitted)
        assert not await _pods_of(world, old), "the new one was started beside pods of the old one"
        assert await _verdicts(world.site, old) == [("Queued", None), ("Admitted", 1), ("Retired", 1)]
        assert await _verdicts(world.site, new) == [("Queued", None), ("Admitted", 1)]
        gone, came = await decisions_of(world.site, old), await decisions_of(world.site, new)
        assert gone[-1]["sequence"] < came[-1]["sequence"], "quota came back before it was given again"
        assert await world.used(world.namespace) == {("a100", GPU): 8}
        await world.api.request("DELETE", world.path(kind, "again"), {"propagationPolicy": "Background"})
        await world.nothing_used(world.namespace)


async def test_33_a_job_recreated_while_it_is_pending_is_pending_as_a_new_workload(world: World) -> None:
    await world.submit(job("holder", template=gpus_only(8, seconds=60)))
    await world.phase("holder", "Admitted")
    body = job("again", template=gpus_only(8))
    old = (await world.submit(body))["metadata"]["uid"]
    await world.reason_is("again", "WaitingForQuota")
    new = (await _replace(world, body))["metadata"]["uid"]

    async def waits() -> bool:
        found = await world.workload("again")
        return found.get("uid") == new and (found["reason"] or {}).get("code") == "WaitingForQuota"

    await eventually("the new one waits", waits)
    assert await _verdicts(world.site, old) == [("Queued", None), ("Retired", None)]
    await world.api.request("DELETE", world.path("Job", "holder"), {"propagationPolicy": "Background"})
    done = await world.phase("again", "Finished")
    assert done["uid"] == new
    assert await _verdicts(world.site, new) == [("Queued", None), ("Admitted", 1), ("Retired", 1)]
