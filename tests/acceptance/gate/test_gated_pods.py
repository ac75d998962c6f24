"""The gate of pods that queue by themselves, with the manifests of `kinds: [Pod]` and Kueue's labels."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner

from queuectl.cli.commands import main
from queuectl.core.model.events import Result, WorkloadObserved
from queuectl.core.model.workload import Effect, ObjectRef, Verb
from queuectl.kinds.builtin import OPTIONAL
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.pod_group import POD_GROUP
from queuectl.kinds.reserved_keys import USER_ANNOTATION
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import ApiError
from queuectl.kube.objects import read_units
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH, Session
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.webhook import suspending
from tests.acceptance.gate.conftest import client_of, named
from tests.acceptance.gate.site import (
    ADMISSION,
    APPLY_PATCH,
    BYPASS,
    IN_FORCE_SECONDS,
    MANIFESTS,
    NAMESPACE,
    OLDEST,
    QUEUE,
    REASON,
    STRATEGIC_PATCH,
    SUBMITTER,
    Json,
    Site,
    pointer,
    served,
)
from tests.acceptance.gate.test_use import REFUSALS, RESTRICTED, restricted
from tests.acceptance.gate.test_ways import name_of, tried
from tests.conftest import NEXT, next_assets
from tests.integration.kube.sites import effect
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.rights import grant

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = KindRegistry((*JOB_KINDS, *OPTIONAL))
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GATE = "queuectl.dev/admission"
GATED = "queuectl.dev/gated"
WORKLOAD = "queuectl.dev/workload"
SITES = ["1.36", f"as-{OLDEST}", NEXT]
MUTATING = pytest.mark.parametrize("site", [SITES[0], NEXT], indirect=True, ids=named, scope="module")
"""Of policies for which nothing stands in on older releases."""
OURS = ("queuectl-gated-pods", "queuectl-ungated-pods", "queuectl-pods")
JOBS: Json = {"apiGroups": ["batch", "kubeflow.org"], "resources": ["jobs", "pytorchjobs"], "verbs": ["*"]}
EVERYTHING_ON_PODS: Json = {
    "apiGroups": [""],
    "resources": ["pods", "pods/status", "pods/binding", "pods/resize", "pods/ephemeralcontainers"],
    "verbs": ["*"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SITES, ids=named)
async def site(
    request: pytest.FixtureRequest, assets: Path, pytorch_crd: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """With mutating policies, and on the emulated older release the webhook."""
    folder = tmp_path_factory.mktemp("pods")
    settings = {"kinds": ["Pod"], "compatibility": {"kueueLabels": True}}
    (folder / "queuectl.yaml").write_text(yaml.safe_dump(settings))
    shutil.copytree(MANIFESTS, folder / "manifests")
    command = ["manifests", "--config", str(folder / "queuectl.yaml"), str(folder / "manifests")]
    written = CliRunner().invoke(main, command)
    assert written.exit_code == 0, written.output
    old = request.param == f"as-{OLDEST}"
    async with (
        served(
            folder / "plane",
            next_assets() if request.param == NEXT else assets,
            pytorch_crd,
            emulated=OLDEST if old else None,
            mutating=not old,
            manifests=folder / "manifests",
        ) as found,
        AsyncExitStack() as stack,
    ):
        await grant(found.admin, "tenant", "jobs-of-tenant", JOBS, namespace="default")
        with (folder / "manifests" / "webhook" / "config.yaml").open("a") as config:
            config.write("kinds: [Pod]\n")
        await stack.enter_async_context(suspending(found.plane, found.admin, folder, folder / "manifests"))
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        await found.admin.request("POST", account, {"metadata": {"name": "default"}})
        await grant(found.admin, "tenant", "pods-of-tenant", EVERYTHING_ON_PODS, namespace=NAMESPACE)
        await eventually(partial(_in_force, found), "the gate on pods", IN_FORCE_SECONDS)
        yield found


async def _in_force(site: Site) -> bool:
    dry_run = {"dryRun": "All"}
    made = await site.tenant.request("POST", PODS, pod("probe", gated=False), query=dry_run)
    if not gated(made):
        return False
    forged = pod("probe", annotations={ADMISSION: "x"})
    unqueued = pod("probe", queue=None, gated=False)
    await site.admin.request("POST", PODS, unqueued)
    try:
        labelled = {"metadata": {"labels": {GATED: "true", QUEUE: "main"}}}
        refusals = [
            await tried(site.tenant.request("POST", PODS, forged, query=dry_run)),
            await tried(site.tenant.request("POST", PODS, pod("probe", node="n"), query=dry_run)),
            await tried(_patch(site.tenant, "probe", labelled)),
            await tried(_patch(site.controller, "probe", {"metadata": {"labels": {"a": "b"}}})),
        ]
    finally:
        await site.admin.request("DELETE", f"{PODS}/probe", {"gracePeriodSeconds": 0})
    wanted = ("queuectl-gated-pods", "queuectl-ungated-pods", "queuectl-gated-pods", "queuectl-self-pods")
    return all(policy in text for policy, text in zip(wanted, refusals, strict=True))


def pod(
    name: str,
    *,
    queue: str | None = "main",
    gated: bool = True,
    node: str | None = None,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] | None = None,
    owner: Json | None = None,
) -> Json:
    """`gated`: with the gate and its label, as a user writes them where no mutating policy does."""
    resources = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "c", "image": "train:1", "resources": resources}
    metadata: Json = {"name": name, "namespace": NAMESPACE, "labels": {"app": "x", **labels}}
    spec: Json = {"containers": [container], "restartPolicy": "Never"}
    if queue is not None:
        metadata["labels"][QUEUE] = queue
    if gated and node is None:
        metadata["labels"][GATED] = "true"
        spec["schedulingGates"] = [{"name": GATE}]
    if node is not None:
        spec["nodeName"] = node
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def created(site: Site, name: str, **how: Any) -> Json:
    return await site.tenant.request("POST", PODS, pod(name, gated=False, **how))


def gated(obj: Json) -> bool:
    return {"name": GATE} in (obj["spec"].get("schedulingGates") or [])


def facts(obj: Json) -> Json:
    """What a tenant must not change."""
    metadata, spec = obj["metadata"], obj["spec"]
    annotations = metadata.get("annotations") or {}
    return {
        "gated": gated(obj),
        "node": spec.get("nodeName"),
        "labels": {key: metadata["labels"].get(key) for key in (QUEUE, GATED, WORKLOAD)},
        "reserved": {key: value for key, value in annotations.items() if "/reserved-" in key},
        "bypass": annotations.get(REASON),
    }


async def _patch(client: Client, name: str, body: object, sort: str = MERGE_PATCH, part: str = "") -> Json:
    path = f"{PODS}/{name}{f'/{part}' if part else ''}"
    return await client.request("PATCH", path, body, content_type=sort)


async def _get(site: Site, name: str) -> Json:
    return await site.admin.request("GET", f"{PODS}/{name}")


async def _put(site: Site, name: str) -> Json:
    obj = await _get(site, name)
    obj["spec"].pop("schedulingGates", None)
    return await site.tenant.request("PUT", f"{PODS}/{name}", obj)


def _labels(**labels: str | None) -> Json:
    named = {"queue": QUEUE, "gated": GATED, "workload": WORKLOAD}
    return {"metadata": {"labels": {named[name]: value for name, value in labels.items()}}}


def _binding(name: str, **labels: str) -> Json:
    metadata = {"name": name, "labels": _labels(**labels)["metadata"]["labels"]}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }


def _bind(client: Client, name: str, **labels: str) -> Awaitable[Json]:
    return client.request("POST", f"{PODS}/{name}/binding", _binding(name, **labels))


Way = Callable[[Site, str], Awaitable[object]]
_UNGATED: Json = {"spec": {"schedulingGates": None}}
_APPLIED: Json = {"apiVersion": "v1", "kind": "Pod", "spec": {"schedulingGates": []}}
_DEBUG = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "shell:1"}]}}

WAITING: dict[str, Way] = {
    "PUT": _put,
    "JSON patch": lambda site, name: _patch(
        site.tenant, name, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH
    ),
    "merge patch": lambda site, name: _patch(site.tenant, name, _UNGATED),
    "strategic patch": lambda site, name: _patch(
        site.tenant,
        name,
        {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}},
        STRATEGIC_PATCH,
    ),
    "server-side apply": lambda site, name: site.tenant.request(
        "PATCH",
        f"{PODS}/{name}",
        _APPLIED,
        content_type=APPLY_PATCH,
        query={"fieldManager": "tenant", "force": "true"},
    ),
    "gate by status": lambda site, name: _patch(site.tenant, name, _UNGATED, part="status"),
    "queue label away": lambda site, name: _patch(site.tenant, name, _labels(queue=None)),
    "queue label away by status": lambda site, name: _patch(
        site.tenant, name, _labels(queue=None), part="status"
    ),
    "gated label away": lambda site, name: _patch(site.tenant, name, _labels(gated=None)),
    "gated label away by status": lambda site, name: _patch(
        site.tenant, name, _labels(gated=None), part="status"
    ),
    "workload label": lambda site, name: _patch(site.tenant, name, _labels(workload="other")),
    "workload label by status": lambda site, name: _patch(
        site.tenant, name, _labels(workload="other"), part="status"
    ),
    "forged annotation": lambda site, name: _patch(
        site.tenant, name, {"metadata": {"annotations": {ADMISSION: "{}"}}}
    ),
    "forged annotation by status": lambda site, name: _patch(
        site.tenant, name, {"metadata": {"annotations": {ADMISSION: "{}"}}}, part="status"
    ),
    "bypass without the right": lambda site, name: _patch(
        site.tenant, name, {**_UNGATED, "metadata": {"annotations": {REASON: "now"}}}
    ),
    "binding": lambda site, name: _bind(site.tenant, name),
    "binding with labels": lambda site, name: _bind(site.tenant, name, queue="other", gated="no"),
    "ephemeral container": lambda site, name: _patch(
        site.tenant, name, _DEBUG, STRATEGIC_PATCH, part="ephemeralcontainers"
    ),
}


async def _tried(attempt: Awaitable[object]) -> str:
    """As `tried`; a binding of a gated pod is a conflict."""
    try:
        return await tried(attempt)
    except ApiError as error:
        if error.status != 409:
            raise
        return str(error)


@pytest.mark.parametrize("way", WAITING)
async def test_no_request_of_a_tenant_lets_a_waiting_pod_go(site: Site, way: str) -> None:
    name = name_of("waits", way)
    before = facts(await created(site, name))
    assert before["gated"]
    refusal = await _tried(WAITING[way](site, name))
    assert facts(await _get(site, name)) == before
    effectless = ("gate by status", "binding", "ephemeral container", "server-side apply")
    assert any(policy in refusal for policy in OURS) or way in effectless


FORGED_OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "0b5c7b7e-0000-4000-8000-000000000000",
    "controller": True,
}
DAEMON = {**FORGED_OWNER, "apiVersion": "apps/v1", "kind": "DaemonSet"}

REFUSED: dict[str, Json] = {
    "bound to a node": pod("a", node="n"),
    "with the label of a workload": pod("b", gated=False, labels={WORKLOAD: "other"}),
    "of a DaemonSet": pod("c", gated=False, owner=DAEMON),
    "in an empty queue": pod("d", queue=""),
    "with an admission": pod("e", annotations={ADMISSION: "{}"}),
    "with a bypass": pod("f", annotations={REASON: "now"}),
    "gated without a queue": pod("g", queue=None),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_pod_that_could_not_be_held_back_is_not_created(site: Site, what: str) -> None:
    refusal = await tried(site.tenant.request("POST", PODS, copy.deepcopy(REFUSED[what])))
    assert any(policy in refusal for policy in OURS), refusal


async def test_a_labelled_pod_is_gated_at_its_creation_and_other_gates_stay(site: Site) -> None:
    body = pod("two-gates", gated=False, owner=FORGED_OWNER)
    body["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    made = await site.tenant.request("POST", PODS, body)
    assert {one["name"] for one in made["spec"]["schedulingGates"]} == {GATE, "example.com/other"}
    assert made["metadata"]["labels"][GATED] == "true"
    assert made["metadata"]["annotations"][SUBMITTER] == "tenant"


async def test_pods_without_a_queue_label_and_those_of_a_queued_owner_are_not_gated(site: Site) -> None:
    made = await site.tenant.request("POST", PODS, pod("unqueued", queue=None, gated=False))
    assert "schedulingGates" not in made["spec"]
    assert (made["metadata"].get("annotations") or {}).keys().isdisjoint({SUBMITTER})
    # The cluster admin has the rights of a Job controller: it may write the status of all Jobs.
    child = pod("child", gated=False, owner=FORGED_OWNER)
    made = await site.admin.request("POST", PODS, child, query={"dryRun": "All"})
    assert "schedulingGates" not in made["spec"]


async def test_the_mirror_of_a_static_pod_is_not_refused_and_only_a_kubelet_makes_one(site: Site) -> None:
    """The kubelet runs the pod whatever the API server says."""
    body = pod("static", node="n", annotations={"kubernetes.io/config.mirror": "hash"})
    kubelet = "system:node:n"
    await grant(site.admin, kubelet, "pods-of-kubelet", EVERYTHING_ON_PODS, namespace=NAMESPACE)
    plane, dry_run = site.plane, {"dryRun": "All"}
    async with Client(
        plane.url, plane.ssl_context(), plane.tokens["admin"], user=kubelet, group="system:nodes"
    ) as client:
        made = await client.request("POST", PODS, copy.deepcopy(body), query=dry_run)
    assert not gated(made)
    assert GATED not in made["metadata"]["labels"]
    refusal = await tried(site.tenant.request("POST", PODS, body, query=dry_run))
    assert "it has a node, and can't be held back" in refusal


async def test_a_waiting_pod_moves_to_another_queue_and_may_be_held(site: Site) -> None:
    await created(site, "moves")
    moved = await _patch(site.tenant, "moves", _labels(queue="other"))
    assert moved["metadata"]["labels"][QUEUE] == "other"
    held = await _patch(site.tenant, "moves", {"metadata": {"annotations": {"queuectl.dev/hold": "true"}}})
    assert gated(held)


async def test_only_who_may_bypass_lets_a_pod_go_and_is_recorded(site: Site) -> None:
    await created(site, "urgent")
    body = {**_UNGATED, "metadata": {"annotations": {REASON: "the demo is at noon"}}}
    assert "leave the scheduling gate" in await tried(_patch(site.admin, "urgent", _UNGATED))
    gone = await _patch(site.admin, "urgent", body)
    assert not gated(gone)
    assert gone["metadata"]["annotations"][BYPASS] == "admin"


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(site: Site) -> AsyncIterator[KubeCluster]:
    session = await Session.from_kubeconfig(str(site.plane.folder / "kubeconfig"), "controller")
    yield KubeCluster(session, KINDS)
    await session.close()


async def _start(cluster: KubeCluster, obj: Json) -> None:
    settled, _ = await cluster.start(effect(obj, "Pod", kinds=KINDS))
    assert settled.result is Result.DONE


_GROWN = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]}}


STARTED: dict[str, Way] = {
    "queue label": lambda site, name: _patch(site.tenant, name, _labels(queue="other")),
    "queue label by status": lambda site, name: _patch(
        site.tenant, name, _labels(queue="other"), part="status"
    ),
    "workload label away": lambda site, name: _patch(site.tenant, name, _labels(workload=None)),
    "workload label away by status": lambda site, name: _patch(
        site.tenant, name, _labels(workload=None), part="status"
    ),
    "gated label away": lambda site, name: _patch(site.tenant, name, _labels(gated=None)),
    "annotation away": lambda site, name: _patch(
        site.tenant, name, {"metadata": {"annotations": {ADMISSION: None}}}
    ),
    "binding with labels": lambda site, name: _bind(site.tenant, name, queue="other"),
    "growth by resize": lambda site, name: _patch(site.tenant, name, _GROWN, STRATEGIC_PATCH, part="resize"),
}


@pytest.mark.parametrize("way", STARTED)
async def test_a_started_pod_keeps_what_it_was_charged_for(
    site: Site, cluster: KubeCluster, way: str
) -> None:
    name = name_of("runs", way)
    await _start(cluster, await created(site, name))
    before = facts(await _get(site, name))
    refusal = await tried(STARTED[way](site, name))
    assert facts(await _get(site, name)) == before
    assert any(policy in refusal for policy in OURS)


async def test_the_controller_starts_a_pod_once_and_deletes_it_with_the_reason(
    site: Site, cluster: KubeCluster
) -> None:
    made = await created(site, "ours")
    await _start(cluster, made)
    started = await _get(site, "ours")
    assert "schedulingGates" not in started["spec"] or not gated(started)
    assert started["spec"]["nodeSelector"] == {"pool": "spot"}
    assert started["metadata"]["labels"][WORKLOAD] == started["metadata"]["uid"]
    await _start(cluster, made)  # as after a restart: it is found started
    assert (await _get(site, "ours"))["metadata"]["resourceVersion"] == started["metadata"]["resourceVersion"]
    await _bind(site.admin, "ours")
    stop = effect(await _get(site, "ours"), "Pod", verb=Verb.STOP, kinds=KINDS)
    for _ in range(2):  # the second changes nothing
        settled, _ = await cluster.stop(stop)
        assert settled.result is Result.DONE
    stopped = await _get(site, "ours")
    assert stopped["metadata"]["deletionTimestamp"]
    (condition,) = (one for one in stopped["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert condition["status"] == "True"
    assert await cluster.anything_alive(stop.workload.ref)
    await site.admin.request("DELETE", f"{PODS}/ours", {"gracePeriodSeconds": 0})
    assert not await cluster.anything_alive(stop.workload.ref)
    settled, _ = await cluster.stop(stop)
    assert settled.result is Result.GONE


async def test_an_edit_between_decision_and_start_refuses_the_start(site: Site, cluster: KubeCluster) -> None:
    made = await created(site, "edited")
    await _patch(site.tenant, "edited", {"spec": {"nodeSelector": {"pool": "other"}}})
    settled, seen = await cluster.start(effect(made, "Pod", kinds=KINDS))
    assert settled.result is Result.REFUSED
    assert seen is not None
    assert gated(await _get(site, "edited"))


async def test_a_pod_that_grows_while_it_waits_is_read_again_before_its_start(
    site: Site, cluster: KubeCluster
) -> None:
    made = await created(site, "grows")
    await _patch(site.tenant, "grows", _GROWN, STRATEGIC_PATCH, part="resize")
    settled, seen = await cluster.start(effect(made, "Pod", kinds=KINDS))
    assert settled.result is Result.REFUSED
    assert isinstance(seen, WorkloadObserved)
    assert dict(seen.workload.pod_sets[0].requests)["cpu"] == 64_000
    assert gated(await _get(site, "grows"))


async def test_the_controller_does_not_stop_a_pod_that_still_waits(site: Site, cluster: KubeCluster) -> None:
    made = await created(site, "stays")
    settled, _ = await cluster.stop(effect(made, "Pod", verb=Verb.STOP, kinds=KINDS))
    assert settled.result is Result.DONE
    assert gated(await _get(site, "stays"))


async def test_the_controllers_account_touches_nothing_else(site: Site, cluster: KubeCluster) -> None:
    await site.tenant.request("POST", PODS, pod("others", queue=None, gated=False))
    await created(site, "mine")
    image = {"spec": {"containers": [{"name": "c", "image": "evil:1"}]}}
    ready = [{"op": "add", "path": "/status/phase", "value": "Succeeded"}]
    attempts = {
        "queuectl-self-pods": (
            site.controller.request("DELETE", f"{PODS}/others"),
            _patch(site.controller, "others", image, STRATEGIC_PATCH),
            _patch(site.controller, "others", ready, JSON_PATCH, "status"),
        ),
        "queuectl-gated-pods": (
            _patch(site.controller, "mine", image, STRATEGIC_PATCH),
            _patch(site.controller, "mine", ready, JSON_PATCH, "status"),
            _patch(site.controller, "mine", _labels(queue="other")),
            _patch(site.controller, "mine", _labels(workload="other")),
            _patch(site.controller, "mine", [_added(("metadata", "annotations", "a"), "b")], JSON_PATCH),
        ),
    }
    for policy, requests in attempts.items():
        for request in requests:
            assert policy in await tried(request)


def _added(path: tuple[str, ...], value: object) -> Json:
    if path[1] == "annotations":
        return {"op": "add", "path": "/metadata/annotations", "value": {path[2]: value}}
    return {"op": "add", "path": pointer(path), "value": value}


async def test_a_pod_names_a_restricted_class_or_queue_only_by_a_user_that_may_use_it(site: Site) -> None:
    base = "/apis/queuectl.dev/v1beta1"
    urgent = restricted("WorkloadPriorityClass", "urgent", value=5000)
    vip = restricted("LocalQueue", "vip", spec={"clusterQueue": "research"})
    await site.admin.request("POST", f"{base}/workloadpriorityclasses", urgent)
    await site.admin.request("POST", f"{base}/namespaces/{NAMESPACE}/localqueues", vip)
    for label, name in RESTRICTED.items():

        async def refused(label: str = label, name: str = name) -> bool:
            body = pod("names-it", gated=False, labels={label: name}, queue=None)
            body["metadata"]["labels"].setdefault(QUEUE, "main")
            create = site.tenant.request("POST", PODS, body, query={"dryRun": "All"})
            return REFUSALS[label] in await tried(create)

        await eventually(refused, REFUSALS[label], IN_FORCE_SECONDS)
        kueues = {label.replace("queuectl.dev/", K): name}
        body = pod("names-it", gated=False, labels=OF_KUEUE | kueues, queue=None)
        assert REFUSALS[label] in await tried(site.tenant.request("POST", PODS, body))
        waits = f"waits-for-{name}"
        await created(site, waits)
        patch: Json = {"metadata": {"labels": {label: name}}}
        for part in ("", "status"):
            assert REFUSALS[label] in await tried(_patch(site.tenant, waits, patch, part=part))
        await _patch(site.admin, waits, patch)
        noted = await _patch(site.tenant, waits, {"metadata": {"labels": {"team": "x"}}})
        assert noted["metadata"]["labels"][label] == name


GROUP = "queuectl.dev/pod-group-name"
SIZE = "queuectl.dev/pod-group-total-count"


async def _member(site: Site, group: str, number: int, size: int) -> Json:
    labels, annotations = {GROUP: group}, {SIZE: str(size)}
    return await created(site, f"{group}-{number}", labels=labels, annotations=annotations)


async def _effect(cluster: KubeCluster, group: str, verb: Verb) -> Effect:
    ref = ObjectRef(NAMESPACE, "PodGroup", group, "")
    (_, obj), *_ = await read_units(cluster._session, POD_GROUP, ref)
    return effect(obj, "PodGroup", verb=verb, kinds=KINDS)


NO_MEMBERS: dict[str, Json] = {
    "without a size": {"labels": {GROUP: "g"}},
    "of no pods": {"labels": {GROUP: "g"}, "annotations": {SIZE: "0"}},
    "of too many pods": {"labels": {GROUP: "g"}, "annotations": {SIZE: "1001"}},
    "with a size that is no number": {"labels": {GROUP: "g"}, "annotations": {SIZE: "3 "}},
    "without a name": {"labels": {GROUP: ""}, "annotations": {SIZE: "3"}},
    "with a size alone": {"annotations": {SIZE: "3"}},
}


@pytest.mark.parametrize("what", NO_MEMBERS)
async def test_a_pod_of_a_group_that_could_not_be_counted_is_not_created(site: Site, what: str) -> None:
    refusal = await tried(created(site, name_of("no-member", what), **NO_MEMBERS[what]))
    assert "queuectl-gated-pods" in refusal
    assert "queuectl.dev/pod-group-" in refusal


IN_GROUP: dict[str, Json] = {
    "another group": {"metadata": {"labels": {GROUP: "other"}}},
    "no group": {"metadata": {"labels": {GROUP: None}}},
    "another size": {"metadata": {"annotations": {SIZE: "2"}}},
    "no size": {"metadata": {"annotations": {SIZE: None}}},
}


@pytest.mark.parametrize("part", ["", "status"])
@pytest.mark.parametrize("what", IN_GROUP)
async def test_a_pod_stays_in_its_group(site: Site, what: str, part: str) -> None:
    name = name_of("member", what + part)
    await created(site, name, labels={GROUP: name}, annotations={SIZE: "3"})
    refusal = await tried(_patch(site.tenant, name, IN_GROUP[what], part=part))
    assert "queuectl-gated-pods" in refusal
    made = (await _get(site, name))["metadata"]
    assert (made["labels"][GROUP], made["annotations"][SIZE]) == (name, "3")


async def test_a_pod_of_a_statefulset_may_lack_the_size_of_its_group_and_gets_none_later(site: Site) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}
    labels = {GROUP: "replicas"}
    await created(site, "replicas-0", labels=labels, owner=owner)
    sized = {"metadata": {"annotations": {SIZE: "1"}}}
    assert "queuectl-gated-pods" in await tried(_patch(site.tenant, "replicas-0", sized))
    for other in ({"controller": False}, {"kind": "ReplicaSet"}, {"apiVersion": "example.com/v1"}):
        refusal = await tried(created(site, "replicas-1", labels=labels, owner=owner | other))
        assert "queuectl-gated-pods" in refusal


async def test_a_binding_takes_no_pod_into_another_group(site: Site) -> None:
    await created(site, "bound-member", labels={GROUP: "bound"}, annotations={SIZE: "3"})
    body = _binding("bound-member")
    body["metadata"]["labels"][GROUP] = "other"
    refusal = await _tried(site.tenant.request("POST", f"{PODS}/bound-member/binding", body))
    assert "queuectl-group-bindings" in refusal
    assert (await _get(site, "bound-member"))["metadata"]["labels"][GROUP] == "bound"


async def test_a_pod_that_queues_by_itself_joins_no_group(site: Site) -> None:
    await created(site, "loner")
    body = {"metadata": {"labels": {GROUP: "g"}, "annotations": {SIZE: "1"}}}
    assert "queuectl-gated-pods" in await tried(_patch(site.tenant, "loner", body))


async def test_the_controller_starts_all_pods_of_a_group_and_deletes_them_with_the_reason(
    site: Site, cluster: KubeCluster
) -> None:
    for number in range(4):
        await _member(site, "gang", number, 3)
    start = await _effect(cluster, "gang", Verb.START)
    for _ in range(2):  # the second changes nothing
        settled, _ = await cluster.start(start)
        assert settled.result is Result.DONE
    pods = [await _get(site, f"gang-{number}") for number in range(4)]
    assert [gated(one) for one in pods] == [False, False, False, True]
    assert {one["metadata"]["labels"].get(WORKLOAD) for one in pods[:3]} == {start.workload.id}
    for number in range(3):
        await _bind(site.admin, f"gang-{number}")
    await site.admin.request("DELETE", f"{PODS}/gang-1", {"gracePeriodSeconds": 0})
    again = await _effect(cluster, "gang", Verb.START)
    assert again.observation.unstarted
    settled, _ = await cluster.start(again)
    assert settled.result is Result.DONE
    assert not gated(await _get(site, "gang-3"))
    stop = await _effect(cluster, "gang", Verb.STOP)
    for _ in range(2):
        settled, _ = await cluster.stop(stop)
        assert settled.result is Result.DONE
    for number in (0, 2):
        stopped = await _get(site, f"gang-{number}")
        assert stopped["metadata"]["deletionTimestamp"]
        (condition,) = (one for one in stopped["status"]["conditions"] if one["type"] == "DisruptionTarget")
        assert condition["status"] == "True"
        assert await cluster.anything_alive(stop.workload.ref)
        await site.admin.request("DELETE", f"{PODS}/gang-{number}", {"gracePeriodSeconds": 0})
    assert not await cluster.anything_alive(stop.workload.ref)


async def test_a_pod_of_a_group_that_grows_while_it_waits_is_not_started(
    site: Site, cluster: KubeCluster
) -> None:
    for number in range(2):
        await _member(site, "growing", number, 2)
    start = await _effect(cluster, "growing", Verb.START)
    await _patch(site.tenant, "growing-1", _GROWN, STRATEGIC_PATCH, part="resize")
    settled, seen = await cluster.start(start)
    assert settled.result is Result.REFUSED
    assert isinstance(seen, WorkloadObserved)
    assert 64_000 in {dict(one.requests)["cpu"] for one in seen.workload.pod_sets}
    assert gated(await _get(site, "growing-0"))


K = "kueue.x-k8s.io/"
INDEX = "queuectl.dev/pod-group-pod-index"
PRIORITY = "queuectl.dev/priority-class"
OF_KUEUE = {f"{K}queue-name": "main"}
LWS = "leaderworkerset.sigs.k8s.io/"
NAMED_BY_KUEUE: dict[str, tuple[Json, Json, Json]] = {
    "alone": (OF_KUEUE | {f"{K}priority-class": "low"}, {}, {QUEUE: "main", PRIORITY: "low"}),
    "in a group": (
        OF_KUEUE | {f"{K}pod-group-name": "g", f"{K}pod-group-pod-index": "1"},
        {f"{K}pod-group-total-count": "2"},
        {QUEUE: "main", GROUP: "g", INDEX: "1", SIZE: "2"},
    ),
    "in the group of an annotation": (
        OF_KUEUE | {f"{K}pod-group-name": "g"},
        {f"{K}pod-group-name": "first", f"{K}pod-group-total-count": "2"},
        {QUEUE: "main", GROUP: "first", SIZE: "2"},
    ),
    "beside keys of ours": (
        OF_KUEUE | {f"{K}priority-class": "low", f"{K}pod-group-name": "g", PRIORITY: "high", GROUP: "ours"},
        {f"{K}pod-group-total-count": "2", SIZE: "3"},
        {QUEUE: "main", PRIORITY: "high", GROUP: "ours", SIZE: "3"},
    ),
    "beside our queue": (
        OF_KUEUE | {f"{K}priority-class": "low", f"{K}pod-group-name": "g", QUEUE: "other"},
        {f"{K}pod-group-total-count": "2"},
        {QUEUE: "other"},
    ),
    "of a LeaderWorkerSet": (
        OF_KUEUE | {f"{LWS}name": "server"},
        {f"{LWS}size": "4", f"{LWS}leader-name": "server-1"},
        {QUEUE: "main", GROUP: "server-1", SIZE: "4"},
    ),
    "of a LeaderWorkerSet, in a group": (
        OF_KUEUE | {f"{LWS}name": "server", f"{K}pod-group-name": "g"},
        {f"{LWS}size": "4", f"{LWS}leader-name": "server-1", f"{K}pod-group-total-count": "2"},
        {QUEUE: "main", GROUP: "g", SIZE: "2"},
    ),
}


async def test_at_creation_kueues_names_become_those_of_queuectl(site: Site) -> None:
    for number, (what, (labels, notes, ours)) in enumerate(NAMED_BY_KUEUE.items()):
        body = pod(f"of-kueue-{number}", queue=None, gated=False, labels=labels, annotations=notes)
        made = await site.tenant.request("POST", PODS, body)
        metadata = made["metadata"]
        # Kueue's stay as they are.
        assert labels.items() <= metadata["labels"].items(), what
        assert notes.items() <= metadata["annotations"].items(), what
        found = metadata["labels"] | metadata["annotations"]
        assert {key: found[key] for key in (QUEUE, PRIORITY, GROUP, INDEX, SIZE) if key in found} == ours, (
            what
        )
        assert gated(made), what
        assert (found[GATED], found[SUBMITTER]) == ("true", "tenant"), what


async def test_later_kueues_names_on_a_pod_have_no_effect(site: Site) -> None:
    labels, notes, ours = NAMED_BY_KUEUE["in a group"]
    body = pod("of-kueue", queue=None, gated=False, labels=labels, annotations=notes)
    await site.tenant.request("POST", PODS, body)
    moved: Json = {
        "labels": {f"{K}queue-name": "other", f"{K}pod-group-name": "other"},
        "annotations": {f"{K}pod-group-total-count": "1"},
    }
    for part in ("", "status"):
        await _patch(site.tenant, "of-kueue", {"metadata": moved}, part=part)
        for field, key in (("labels", QUEUE), ("labels", GROUP), ("annotations", SIZE)):
            gone: Json = {"metadata": {field: {key: None}}}
            assert "queuectl-gated-pods" in await tried(_patch(site.tenant, "of-kueue", gone, part=part))
    now = await _get(site, "of-kueue")
    found = now["metadata"]["labels"] | now["metadata"]["annotations"]
    assert ours.items() <= found.items()
    assert gated(now)
    # Nor does it queue a pod that was created without a queue.
    await site.tenant.request("POST", PODS, pod("free", queue=None, gated=False))
    now = await _patch(site.tenant, "free", {"metadata": {"labels": OF_KUEUE}})
    assert now["metadata"]["labels"].keys().isdisjoint({QUEUE, GATED})


async def test_a_pod_that_kueues_label_queues_is_refused_as_with_ours(site: Site) -> None:
    """What stands in for our label opens no way round the gate."""
    forged: dict[str, Json] = {
        "a node": {"node": "n"},
        "a DaemonSet": {"owner": DAEMON},
        "the label of a workload": {"labels": {WORKLOAD: "other"}},
        "an empty queue": {"labels": {f"{K}queue-name": ""}},
        "an admission": {"annotations": {ADMISSION: "{}"}},
        "a bypass": {"annotations": {REASON: "now"}},
        "another user": {"annotations": {USER_ANNOTATION: "admin"}},
        "a group without a size": {"labels": {f"{K}pod-group-name": "g"}},
        "a group of no pods": {
            "labels": {f"{K}pod-group-name": "g"},
            "annotations": {f"{K}pod-group-total-count": "0"},
        },
    }
    for what, how in forged.items():
        labels = OF_KUEUE | how.get("labels", {})
        body = pod("forged", queue=None, gated=False, **(how | {"labels": labels}))
        refusal = await tried(site.tenant.request("POST", PODS, body))
        assert any(policy in refusal for policy in OURS), what
    notes = {f"{K}pod-group-name": "no label", f"{K}pod-group-total-count": "2"}
    body = pod("forged", queue=None, gated=False, labels=OF_KUEUE, annotations=notes)
    with pytest.raises(ApiError, match='Invalid value: "no label"'):  # an annotation may hold more
        await site.tenant.request("POST", PODS, body)


async def _command_of_page(name: str, start: str, site: Site, assets: Path) -> None:
    """Run the command of a page of docs that changes pods."""
    page = (Path(__file__).parents[3] / "docs" / name).read_text()
    (command,) = re.findall(rf"^ *```\n( *{start} .*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    environment = {
        "PATH": f"{assets}:{os.environ['PATH']}",
        "HOME": str(site.plane.folder),  # kubectl keeps a cache
        "KUBECONFIG": str(site.plane.folder / "kubeconfig"),
    }
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command.replace("NAMESPACE", NAMESPACE), env=environment
    )
    await process.wait()


async def test_the_command_of_the_page_takes_kueues_finalizer_off_its_pods(site: Site, assets: Path) -> None:
    body = pod("was-kueues", queue=None, gated=False, labels={f"{K}managed": "true"})
    body["metadata"]["finalizers"] = [f"{K}managed", "example.com/other"]
    await site.tenant.request("POST", PODS, body)
    await _command_of_page("from-kueue.md", "kubectl patch -n", site, assets)
    assert (await _get(site, "was-kueues"))["metadata"]["finalizers"] == ["example.com/other"]


async def test_kueues_names_on_what_does_not_queue_by_itself_do_nothing(site: Site) -> None:
    child = pod("child-of-kueue", queue=None, gated=False, labels=OF_KUEUE, owner=FORGED_OWNER)
    grouped = pod("group-alone", queue=None, gated=False, labels={f"{K}pod-group-name": "g"})
    # The cluster admin has the rights of a Job controller.
    for client, body in ((site.admin, child), (site.tenant, grouped)):
        made = await client.request("POST", PODS, body, query={"dryRun": "All"})
        assert not gated(made)
        assert made["metadata"]["labels"].keys().isdisjoint({QUEUE, GATED, GROUP})


@MUTATING
async def test_pods_of_a_deployment_are_of_the_user_that_wrote_its_template(site: Site) -> None:
    apps = f"/apis/apps/v1/namespaces/{NAMESPACE}"
    rule: Json = {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["*"]}
    await grant(site.admin, "tenant", "apps-of-tenant", rule, namespace=NAMESPACE)

    def templated(kind: str, name: str, annotations: Json, owner: Json | None = None) -> Json:
        template = {"metadata": {"labels": {"app": "x", QUEUE: "main"}, "annotations": annotations}}
        spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
        template["spec"] = pod("x", queue=None, gated=False)["spec"] | {"restartPolicy": "Always"}
        metadata = {"name": name, "ownerReferences": [owner] if owner else []}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}

    def owner_of(made: Json) -> Json:
        fields = {key: made[key] for key in ("apiVersion", "kind")}
        return fields | {key: made["metadata"][key] for key in ("name", "uid")} | {"controller": True}

    for kind in ("Deployment", "ReplicaSet"):
        forged = templated(kind, "forged", {USER_ANNOTATION: "bob"})
        refusal = await tried(site.tenant.request("POST", f"{apps}/{kind.lower()}s", forged))
        assert "queuectl-attribution-of-pods" in refusal
    made = await site.tenant.request("POST", f"{apps}/deployments", templated("Deployment", "web", {}))
    assert made["spec"]["template"]["metadata"]["annotations"] == {USER_ANNOTATION: "tenant"}
    # What the controllers of Kubernetes make of it passes, and is not theirs; what a tenant makes does not.
    account = "/api/v1/namespaces/default/serviceaccounts"
    await site.admin.request("POST", account, {"metadata": {"name": "apps-controller"}})
    status = ["deployments/status", "replicasets/status", "replicasets"]
    rights: list[Json] = [
        {"apiGroups": ["apps"], "resources": status, "verbs": ["create", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    ]
    await grant(site.admin, "system:serviceaccount:default:apps-controller", "apps-controller", *rights)
    async with await client_of(site, "apps-controller") as controller:
        replicas = templated("ReplicaSet", "web-1", {USER_ANNOTATION: "tenant"}, owner_of(made))
        found = await controller.request("POST", f"{apps}/replicasets", replicas)
        user, owner = {USER_ANNOTATION: "tenant"}, owner_of(found)
        one = pod("web-1-a", gated=False, owner=owner, annotations=user)
        stored = await controller.request("POST", PODS, one)
        assert stored["metadata"]["annotations"][USER_ANNOTATION] == "tenant"
        # The controller of Deployments writes their revision: that starts no rollout.
        revision: Json = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}}
        web = f"{apps}/deployments/web"
        now = await site.admin.request("PATCH", web, revision, content_type=MERGE_PATCH)
        assert now["spec"]["template"] == made["spec"]["template"]
    one = pod("web-1-b", gated=False, owner=owner, annotations={USER_ANNOTATION: "bob"})
    assert "queuectl-gated-pods" in await tried(site.tenant.request("POST", PODS, one))


@MUTATING
async def test_without_mutating_policies_the_refusal_says_what_to_write(site: Site) -> None:
    """The last test but one of the site, from which it takes them."""
    code, output = await site.kubectl("delete", "mutatingadmissionpolicybindings", "--all")
    assert code == 0, output
    words = 'set the label queuectl.dev/gated to "true" and add queuectl.dev/admission'

    async def refused() -> bool:
        plain = pod("plain", gated=False)
        of_kueue = pod("plain", queue=None, gated=False, labels=OF_KUEUE)
        tries = [
            site.tenant.request("POST", PODS, body, query={"dryRun": "All"}) for body in (plain, of_kueue)
        ]
        return all([words in await tried(one) for one in tries])

    await eventually(refused, words, IN_FORCE_SECONDS)
    body = pod("gated-by-its-user")
    body["spec"]["schedulingGates"].append({"name": "example.com/other"})
    made = await site.tenant.request("POST", PODS, body)
    assert {one["name"] for one in made["spec"]["schedulingGates"]} == {GATE, "example.com/other"}


async def test_gated_pods_stay_gated_after_an_uninstall_and_the_command_of_the_page_frees_them(
    site: Site, assets: Path
) -> None:
    """The last test of the site."""
    for name in ("left-1", "left-2"):
        await site.tenant.request("POST", PODS, pod(name))
    foreign = pod("left-not-ours", queue=None, gated=False)
    foreign["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    await site.tenant.request("POST", PODS, foreign)
    for kind in (
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
    ):
        code, output = await site.kubectl("delete", kind, "--all")
        assert code == 0, output
    assert all([gated(await _get(site, name)) for name in ("left-1", "left-2")])

    async def freed() -> bool:  # policies stay in force for a moment
        await _command_of_page("serving.md", "kubectl get pods -A", site, assets)
        return not any([gated(await _get(site, name)) for name in ("left-1", "left-2")])

    await eventually(freed, "no pod that queued has a gate", IN_FORCE_SECONDS)
    left = await _get(site, "left-not-ours")
    assert left["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
