"""The gate for a kind of the configuration: what `queuectl manifests --config` writes, in force."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner

from queuectl.cli.commands import main
from queuectl.core.model.events import Result
from queuectl.core.model.workload import Verb
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.manifests import policy_name
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH, Session
from tests.acceptance.gate.kinds import grant_kinds
from tests.acceptance.gate.site import (
    IN_FORCE_SECONDS,
    MANIFESTS,
    NAMESPACE,
    QUEUE,
    SUBMITTER,
    Json,
    Kind,
    Site,
    put,
    served,
)
from tests.acceptance.gate.test_ways import RUNNING, WAITING, name_of, tried
from tests.integration.kube.sites import effect
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.training import CRD, KIND, ROW, training

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = KindRegistry((*JOB_KINDS, KIND))
NOT_BY_THE_GATE = ("strategic patch", "status", "label removal by status", "forged annotation by status")
"""A custom resource accepts no strategic patches, and its status subresource changes only the status."""


class Training(Kind):
    """Objects with two drivers, and workers in a list."""

    def body(self, name: str, *, suspend: bool | None = True, queue: str | None = "main") -> Json:
        obj = training(name, workers=2)
        obj["metadata"] = {"name": name, "namespace": NAMESPACE}
        obj["spec"]["driver"]["replicas"] = 2
        if queue is not None:
            obj["metadata"]["labels"] = {QUEUE: queue}
        put(obj, self.suspend, suspend)
        return obj


DRIVER = ("spec", "driver")
TRAINING = Training(
    KIND.name, KIND.group, KIND.plural, KIND.suspend, (*DRIVER, "replicas"), (*DRIVER, "template", "spec")
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    assets: Path, pytorch_crd: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("configured")
    (folder / "queuectl.yaml").write_text(yaml.safe_dump({"kinds": [ROW]}))
    shutil.copytree(MANIFESTS, folder / "manifests")
    command = ["manifests", "--config", str(folder / "queuectl.yaml"), str(folder / "manifests")]
    written = CliRunner().invoke(main, command)
    assert written.exit_code == 0, written.output
    async with served(
        folder / "plane",
        assets,
        pytorch_crd,
        emulated=None,
        mutating=True,
        manifests=folder / "manifests",
    ) as found:
        await found.admin.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
        await grant_kinds(found, KIND.group)
        await eventually(partial(_in_force, found), "the gate on the configured kind", IN_FORCE_SECONDS)
        yield found


async def _in_force(site: Site) -> bool:
    try:
        made = await site.create(TRAINING, "probe", suspend=False)
    except ApiError:
        return False
    await site.admin.request("DELETE", TRAINING.path("probe"))
    return SUBMITTER in (made["metadata"].get("annotations") or {})


@pytest.mark.parametrize("way", WAITING)
async def test_no_request_of_a_tenant_changes_a_pending_object(site: Site, way: str) -> None:
    name = name_of("waits", way)
    before = TRAINING.facts(await site.create(TRAINING, name))
    refusal = await tried(WAITING[way](site, TRAINING, name))
    assert TRAINING.facts(await site.get(TRAINING, name)) == before
    assert before["suspended"]
    assert policy_name(KIND) in refusal or way in NOT_BY_THE_GATE


@pytest.mark.parametrize("way", RUNNING)
async def test_a_running_object_keeps_what_it_was_charged_for(site: Site, way: str) -> None:
    name = name_of("runs", way)
    before = TRAINING.facts(await site.running(TRAINING, name))
    attempt, words = RUNNING[way]
    refusal = await tried(attempt(site, TRAINING, name))
    assert TRAINING.facts(await site.get(TRAINING, name)) == before
    assert policy_name(KIND) in refusal
    assert words in refusal


async def test_an_object_created_running_is_suspended(site: Site) -> None:
    assert TRAINING.suspended(await site.create(TRAINING, "created-running", suspend=False))


async def test_an_entry_of_a_list_does_not_grow_while_it_runs(site: Site) -> None:
    await site.running(TRAINING, "grows")
    for change in (
        {"op": "replace", "path": "/spec/workers/0/replicas", "value": 9},
        {"op": "add", "path": "/spec/workers/-", "value": {**_worker(), "name": "more"}},
    ):
        patch = site.tenant.request("PATCH", TRAINING.path("grows"), [change], content_type=JSON_PATCH)
        assert "it can't grow while it runs" in await tried(patch)


async def test_a_rule_of_the_row_refuses_objects_with_its_field_and_message(site: Site) -> None:
    body = TRAINING.body("elastic")
    body["spec"]["mode"] = "elastic"
    refusal = await tried(site.tenant.request("POST", TRAINING.path(), body))
    assert "spec.mode: only gang training queues, set it to gang" in refusal


async def test_the_controller_starts_and_stops_an_object_and_writes_nothing_else(site: Site) -> None:
    session = await Session.from_kubeconfig(str(site.plane.folder / "kubeconfig"), "controller")
    try:
        cluster = KubeCluster(session, KINDS)
        made = await site.create(TRAINING, "ours")
        settled, _ = await cluster.start(effect(made, KIND.name, kinds=KINDS))
        assert settled.result is Result.DONE
        started = await site.get(TRAINING, "ours")
        pod_specs = [started["spec"]["driver"], *started["spec"]["workers"]]
        assert [one["template"]["spec"]["nodeSelector"] for one in pod_specs] == [{"pool": "spot"}] * 2
        settled, _ = await cluster.stop(effect(started, KIND.name, verb=Verb.STOP, kinds=KINDS))
        assert settled.result is Result.DONE
        assert TRAINING.suspended(await site.get(TRAINING, "ours"))
        image = {"op": "add", "path": "/spec/driver/template/spec/containers/0/image", "value": "evil:1"}
        write = site.controller.request("PATCH", TRAINING.path("ours"), [image], content_type=JSON_PATCH)
        assert policy_name(KIND) in await tried(write)
    finally:
        await session.close()


def _worker() -> Json:
    worker: Json = training(workers=1)["spec"]["workers"][0]
    return worker
