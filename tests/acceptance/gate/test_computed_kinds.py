"""The gate on kinds that have no pod templates of their own: nothing of their spec changes while they run."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from queuectl.core.model.workload import Effect, Verb
from queuectl.kinds import patches
from queuectl.kinds.train_job import MANAGER
from queuectl.kube.errors import ApiError
from tests.acceptance.gate.kinds import COMPUTED, Objects
from tests.acceptance.gate.site import SUBMITTER, Json, Site, nested
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import its_job_set

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
]
EACH = pytest.mark.parametrize("kind", COMPUTED)
CHANGES: dict[str, Json] = {
    "TrainJob": {"spec": {"runtimePatches": []}},
    "SparkApplication": {"spec": {"executor": {"instances": 9}}},
    "AppWrapper": {"spec": {"components": []}},
}
"""What a tenant may try while one runs."""
SEEN: dict[str, Json] = {
    "SparkApplication": {"applicationState": {"state": "SUSPENDED", "errorMessage": "none"}},
    "AppWrapper": {"phase": "Suspended"},
}
"""Status of one that its operator has seen suspended."""
POD_SET: Json = {"metadata": {"labels": {"queuectl.dev/workload": "x"}}, "spec": {"nodeSelector": {"a": "b"}}}


@pytest.fixture
def objects(defined: Site, kind: str) -> Objects:
    return Objects(defined, JOB_KINDS[kind])


@EACH
async def test_an_object_is_created_suspended_and_no_tenant_starts_it(objects: Objects) -> None:
    made = await objects.create("created", suspend=False)
    assert objects.row.suspended(made)
    assert made["metadata"]["annotations"] == {SUBMITTER: "tenant"}
    refusal = await _refused(objects.merge("tenant", "created", nested(objects.row.suspend, False)))
    assert "leave spec.suspend true" in refusal


@EACH
async def test_the_controller_starts_and_stops_an_object_again_and_again(objects: Objects) -> None:
    found = await objects.create("runs")
    for _ in range(2):
        start = patches.start(objects.row, _effect(objects, found))
        found = await objects.patch("controller", "runs", start)
        assert not objects.row.suspended(found)
        refusal = await _refused(objects.merge("tenant", "runs", CHANGES[objects.row.name]))
        assert objects.policy in refusal
        stop = patches.first_stop(objects.row, _effect(objects, found, Verb.STOP))
        assert stop is not None
        found = await objects.patch("controller", "runs", stop.body)
        assert objects.row.suspended(found)


@pytest.mark.parametrize("kind", SEEN)
async def test_the_controller_asks_an_operator_to_say_suspended_once_more(
    objects: Objects,
) -> None:
    await objects.create("asked")
    told = await objects.merge("admin", "asked", {"status": SEEN[objects.row.name]}, "status")
    assert objects.row.says_suspended(told)
    stop = _effect(objects, told, Verb.STOP)
    record = patches.next_stop(objects.row, stop, told)
    assert record is not None
    told = await objects.patch("controller", "asked", record.body)
    ask = patches.next_stop(objects.row, stop, told)
    assert ask is not None
    answer = await objects.patch("controller", "asked", ask.body, ask.subresource)
    assert not objects.row.says_suspended(answer)


@pytest.mark.parametrize("kind", SEEN)
async def test_the_controller_writes_nothing_else_into_a_status(objects: Objects) -> None:
    await objects.create("told")
    told = await objects.merge("admin", "told", {"status": SEEN[objects.row.name]}, "status")
    sign = objects.row.seen.sign.of
    for path in (("status", "other"), (*sign[:-1], "errorMessage")):
        change = nested(path, "x")
        assert objects.policy in await _refused(objects.merge("controller", "told", change, "status"))
    assert objects.policy in await _refused(
        objects.merge("controller", "told", nested(tuple(sign), "Failed"), "status")
    )
    assert told["status"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("SparkApplication", {"executor": {"instances": 9}}),
        ("SparkApplication", {"driver": {"image": "evil:1"}}),
        ("SparkApplication", {"driver": {"labels": {"other": "x"}}}),
        ("SparkApplication", {"sparkConf": {"spark.executor.instances": "9"}}),
        ("AppWrapper", {"managedBy": "example.com/other"}),
        ("AppWrapper", {"components": []}),
        ("TrainJob", {"runtimePatches": [{"manager": "example.com/other"}]}),
        ("TrainJob", {"trainer": {"numNodes": 9}}),
    ],
)
async def test_the_controller_changes_nothing_else_of_a_spec(objects: Objects, change: Json) -> None:
    name = f"own-{abs(hash(str(change))) % 10**6}"
    await objects.create(name)
    assert objects.policy in await _refused(objects.merge("controller", name, {"spec": change}), 403, 422)


@pytest.mark.parametrize("kind", ["AppWrapper"])
async def test_the_controller_changes_no_component_but_what_is_added_to_its_pods(
    objects: Objects,
) -> None:
    await objects.create("components")
    for path, value in (
        ("/spec/components/0/template/spec/parallelism", 9),
        ("/spec/components/0/podSets", [{"path": "template.spec.template"}]),
        ("/spec/components/-", {"template": {"apiVersion": "v1", "kind": "Pod"}}),
    ):
        change: list[Json] = [{"op": "add", "path": path, "value": value}]
        assert objects.policy in await _refused(objects.patch("controller", "components", change)), path


@pytest.mark.parametrize("kind", ["TrainJob"])
@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        ({"template": {"spec": {"template": POD_SET}}}, True),
        ({"template": {"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}}}, False),
        (
            {"template": {"spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}},
            False,
        ),
        ({"template": {"spec": {"template": {"metadata": {"labels": {"other": "x"}}}}}}, False),
        ({"template": {"metadata": {"labels": {"other": "x"}}}}, False),
    ],
)
async def test_the_entry_of_the_controller_holds_scheduling_fields_alone(
    objects: Objects, entry: Json, allowed: bool
) -> None:
    name = f"entry-{abs(hash(str(entry))) % 10**6}"
    await objects.create(name)
    jobs = {"template": {"spec": {"replicatedJobs": [{"name": "node", **entry}]}}}
    change: Json = {"spec": {"runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": jobs}]}}
    if allowed:
        assert await objects.merge("controller", name, change)
    else:
        assert objects.policy in await _refused(objects.merge("controller", name, change))


@pytest.mark.parametrize("kind", ["SparkApplication"])
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"mode": "client"}, "spec.mode: only cluster can be queued"),
        ({"dynamicAllocation": {"enabled": True}}, "spec.dynamicAllocation.enabled: leave it out"),
        ({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}}, "spark.dynamicAllocation.enabled"),
        ({"nodeSelector": {"a": "b"}}, "spec.nodeSelector: write it into spec.driver.nodeSelector"),
        ({"sparkConf": {"spark.kubernetes.namespace": "kube-system"}}, "spark.kubernetes.namespace"),
    ],
)
async def test_an_application_that_cannot_be_queued_is_refused_with_the_field(
    objects: Objects, spec: Json, words: str
) -> None:
    body = objects.body("refused")
    body["spec"] |= spec
    refusal = await _refused(objects.site.tenant.request("POST", objects.path(), body))
    assert objects.policy in refusal
    assert words in refusal


def _effect(objects: Objects, found: Json, verb: Verb = Verb.START) -> Effect:
    child: dict[str, Any] | None = None
    if objects.row.name == "TrainJob":
        child = its_job_set()
        child["metadata"]["ownerReferences"][0]["uid"] = found["metadata"]["uid"]
    return effect(found, objects.row.name, verb=verb, child=child)


async def _refused(attempt: Awaitable[object], *codes: int) -> str:
    with pytest.raises(ApiError) as refusal:
        await attempt
    assert refusal.value.status in (codes or (403,))
    return str(refusal.value)
