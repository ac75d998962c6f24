"""Attacks of a tenant with ClusterRole edit on the gate of a real API server: none starts or keeps a job.

It has all rights on Jobs and PyTorchJobs too, also on their status.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from queuectl.kube.session import JSON, JSON_PATCH, MERGE_PATCH
from queuectl.kube.transport import HttpTransport
from tests.acceptance.gate.kinds import Objects
from tests.acceptance.gate.site import (
    ADMISSION,
    APPLY_PATCH,
    JOB,
    KINDS,
    NAMESPACE,
    QUEUE,
    STRATEGIC_PATCH,
    SUBMITTER,
    Json,
    Kind,
    Site,
    by_hand,
    look,
    nested,
    pointer,
    put,
)
from tests.acceptance.gate.test_authors import BUDGET
from tests.acceptance.gate.test_pods import pod
from tests.acceptance.gate.test_ways import name_of, tried
from tests.job_kinds import JOB_KINDS
from tests.rights import all_rights, grant

pytestmark = pytest.mark.asyncio(loop_scope="session")

RELEASE: Final = "queuectl.dev/reserved-release"
KUEUES: Final = "kueue.x-k8s.io/queue-name"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
Attack = Callable[[Site, Kind, str], Awaitable[object]]


async def _patch(site: Site, kind: Kind, name: str, content: str, body: Any, **query: str) -> None:
    await site.tenant.request("PATCH", kind.path(name), body, query=query, content_type=content)


async def _applied(site: Site, kind: Kind, name: str, manager: str, **metadata: Any) -> None:
    body = {
        "apiVersion": f"{kind.group}/v1",
        "kind": kind.name,
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
    }
    await _patch(site, kind, name, APPLY_PATCH, body, fieldManager=manager, force="true")


# --- what waits, and what runs: nothing of it changes ----------------------------------------------------


async def _owner_of_the_field(site: Site, kind: Kind, name: str) -> None:
    """A PUT whose managedFields say that queuectl wrote the field."""
    body = await site.get(kind, name)
    put(body, kind.suspend, not kind.suspended(body))
    path: Json = {f"f:{kind.suspend[-1]}": {}}
    for key in reversed(kind.suspend[:-1]):
        path = {f"f:{key}": path}
    body["metadata"]["managedFields"] = [
        {
            "manager": "queuectl",
            "operation": "Update",
            "apiVersion": body["apiVersion"],
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": path,
        }
    ]
    await site.tenant.request("PUT", kind.path(name), body)


async def _owner_and_field(site: Site, kind: Kind, name: str) -> None:
    """An ownerReference to an object that queues, and the field, in one request."""
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "rich",
        "uid": "0-0-0-1",
        "controller": True,
    }
    suspended = kind.suspended(await site.get(kind, name))
    patch = nested(kind.suspend, not suspended) | {"metadata": {"ownerReferences": [owner]}}
    await site.merge(site.tenant, kind, name, patch)


async def _copied(site: Site, kind: Kind, name: str) -> None:
    """JSON patch: a reserved annotation that is copied from another key."""
    path = pointer(("metadata", "labels", QUEUE))
    patch: list[Json] = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "copy", "from": path, "path": pointer(("metadata", "annotations", RELEASE))},
    ]
    await _patch(site, kind, name, JSON_PATCH, patch)


async def _moved(site: Site, kind: Kind, name: str) -> None:
    """JSON patch: the queue label is moved to Kueue's."""
    patch: list[Json] = [
        {
            "op": "move",
            "from": pointer(("metadata", "labels", QUEUE)),
            "path": pointer(("metadata", "labels", KUEUES)),
        }
    ]
    await _patch(site, kind, name, JSON_PATCH, patch)


async def _no_metadata(site: Site, kind: Kind, name: str) -> None:
    """JSON patch: metadata that has nothing but the name."""
    patch: list[Json] = [
        {"op": "replace", "path": "/metadata", "value": {"name": name, "namespace": NAMESPACE}}
    ]
    await _patch(site, kind, name, JSON_PATCH, patch)


async def _directive(site: Site, kind: Kind, name: str) -> None:
    """Strategic merge patch: directives that replace all labels and annotations."""
    metadata = {
        "labels": {"$patch": "replace", "a": "b"},
        "annotations": {"$patch": "replace", ADMISSION: "{}"},
    }
    await _patch(site, kind, name, STRATEGIC_PATCH, {"metadata": metadata})


async def _two_managers(site: Site, kind: Kind, name: str) -> None:
    """Server-side apply: one manager takes the label over, then no longer applies it."""
    await _applied(site, kind, name, "mine", labels={QUEUE: "main"}, annotations={ADMISSION: "{}"})
    await _applied(site, kind, name, "mine")


async def _metadata_alone(site: Site, kind: Kind, name: str) -> None:
    """A PATCH of metadata alone, as the client of metadata sends it."""
    body = {"metadata": {"labels": {QUEUE: None}, "annotations": {ADMISSION: "{}"}}}
    path = kind.path(name)
    await site.tenant.request("PATCH", path, body, content_type=MERGE_PATCH, accept=METADATA)


async def _grown_and_shrunk(site: Site, kind: Kind, name: str) -> None:
    """JSON patch: numbers that are tested, raised and lowered, raised last."""
    path = pointer(kind.pods)
    values = (9, 1, 0, 64)
    patch: list[Json] = [{"op": "replace", "path": path, "value": value} for value in values]
    patch += [{"op": "replace", "path": pointer(kind.suspend), "value": False}]
    await _patch(site, kind, name, JSON_PATCH, patch)


ATTACKS: Final[dict[str, Attack]] = {
    "managedFields of queuectl": _owner_of_the_field,
    "an owner that queues": _owner_and_field,
    "a copied annotation": _copied,
    "a moved label": _moved,
    "no metadata": _no_metadata,
    "directives of a strategic patch": _directive,
    "a label that a manager no longer applies": _two_managers,
    "metadata alone": _metadata_alone,
    "numbers in one patch": _grown_and_shrunk,
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("runs", [False, True], ids=["waits", "runs"])
@pytest.mark.parametrize("name", ATTACKS)
async def test_no_request_changes_what_waits_or_runs(site: Site, kind: Kind, name: str, runs: bool) -> None:
    called = name_of("r" if runs else "w", name)
    await (site.running(kind, called) if runs else site.create(kind, called))
    before = kind.facts(await site.get(kind, called))
    await tried(ATTACKS[name](site, kind, called))
    assert kind.facts(await site.get(kind, called)) == before


# --- what is created, or is given its label --------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_annotation_and_the_label_by_two_managers_of_apply_are_refused_together(
    site: Site, kind: Kind
) -> None:
    name = "by-two-managers"
    await site.create(kind, name, queue=None)
    forged = {RELEASE: "uid/1 by admin: scrap", ADMISSION: "{}"}
    await _applied(site, kind, name, "first", annotations=forged)
    assert await tried(_applied(site, kind, name, "second", labels={QUEUE: "main"}))
    assert QUEUE not in ((await site.get(kind, name))["metadata"].get("labels") or {})


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_generated_name_runs_nothing(site: Site, kind: Kind) -> None:
    body = kind.body("x", suspend=False)
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "generated-"
    refusal = await tried(site.tenant.request("POST", kind.path(), body))
    listed = await site.admin.request("GET", kind.path())
    made = [one for one in listed["items"] if one["metadata"]["name"].startswith("generated-")]
    assert all(kind.suspended(one) for one in made)
    assert made, refusal


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_no_tenant_writes_what_says_that_an_object_is_older_than_the_gate(
    site: Site, kind: Kind
) -> None:
    """What ran before the gate is let run: its creationTimestamp says that it did."""
    body = kind.body("as-of-1999")
    stale = {"creationTimestamp": "1999-01-01T00:00:00Z", "uid": "0-0-0-0", "generation": 99}
    body["metadata"] |= stale
    await site.tenant.request("POST", kind.path(), body)
    for change in ({}, stale):
        await tried(site.merge(site.tenant, kind, "as-of-1999", {"metadata": change}))
        metadata = (await site.get(kind, "as-of-1999"))["metadata"]
        assert metadata["creationTimestamp"] > "2020"
        assert metadata["uid"] != "0-0-0-0"
        assert metadata["generation"] < 99


async def test_a_forced_replacement_by_kubectl_runs_nothing(site: Site, tmp_path: Path) -> None:
    running = await site.running(JOB, "replaced")
    for field in ("uid", "resourceVersion", "managedFields"):
        running["metadata"].pop(field)
    path = tmp_path / "job.json"
    running["spec"].pop("selector", None)
    running["spec"]["template"]["metadata"] = {}
    path.write_text(json.dumps(running))
    code, output = await site.kubectl("--as=tenant", "replace", "--force", "--timeout=20s", "-f", str(path))
    assert code != 0, output
    listed = await site.admin.request("GET", JOB.path())
    assert all(JOB.suspended(one) for one in listed["items"] if one["metadata"]["name"] == "replaced")


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_kueues_label_beside_ours_lets_nothing_run(site: Site, kind: Kind) -> None:
    body = kind.body("both", suspend=True)
    body["metadata"]["labels"][KUEUES] = "richer"
    await site.tenant.request("POST", kind.path(), body)
    patch: Json = {"metadata": {"labels": {QUEUE: None, KUEUES: "richer"}}} | nested(kind.suspend, False)
    assert kind.policy in await tried(site.merge(site.tenant, kind, "both", patch))
    found = await site.get(kind, "both")
    assert (kind.suspended(found), found["metadata"]["labels"][QUEUE]) == (True, "main")


async def test_a_collection_is_deleted_and_made_again_without_what_queuectl_wrote(site: Site) -> None:
    """A tenant may end its own jobs; the next one of that name begins anew."""
    running = await site.running(JOB, "deleted-and-made")
    path = f"{JOB.path()}?fieldSelector=metadata.name=deleted-and-made&propagationPolicy=Background"
    await site.tenant.request("DELETE", path)
    body = JOB.body("deleted-and-made")
    body["metadata"] |= {"annotations": running["metadata"]["annotations"], "uid": running["metadata"]["uid"]}
    refusal = await tried(site.tenant.request("POST", JOB.path(), body))
    assert JOB.policy in refusal
    made = await site.create(JOB, "deleted-and-made")
    assert made["metadata"]["uid"] != running["metadata"]["uid"]
    assert ADMISSION not in (made["metadata"].get("annotations") or {})


# --- what runs can be stopped ---------------------------------------------------------------------------

ENTRIES: Final = {
    "annotations": ("metadata", "annotations"),
    "labels": ("metadata", "labels"),
}


async def _stop(site: Site, kind: Kind, name: str) -> None:
    """Stop it as the controller does."""
    metadata = (await site.get(kind, name))["metadata"]
    key = ("metadata", "annotations", "queuectl.dev/reserved-stopped")
    patch: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "add", "path": pointer(key), "value": "{}"},
        {"op": "add", "path": pointer(kind.suspend), "value": True},
    ]
    await site.controller.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("count", [9_900, 12_000])
@pytest.mark.parametrize("what", ENTRIES)
async def test_no_number_of_entries_keeps_a_job_from_being_stopped(
    site: Site, kind: Kind, what: str, count: int
) -> None:
    """A policy may cost so much and no more: beyond that the API server refuses the request of queuectl."""
    name = f"many-{what}-{count}"
    await site.running(kind, name)
    many = {f"a{n}": "" for n in range(count)}
    refusal = await tried(site.merge(site.tenant, kind, name, nested(ENTRIES[what], many)))
    assert bool(refusal) == (count > 10_000), refusal
    assert not refusal or "at most 10000" in refusal
    await _stop(site, kind, name)
    assert kind.suspended(await site.get(kind, name))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_object_with_too_many_entries_is_not_queued(site: Site, kind: Kind) -> None:
    many = {f"a{n}": "" for n in range(10_100)}
    template = (*kind.template[:-1], "metadata", "labels")
    for number, path in enumerate((("metadata", "annotations"), ("metadata", "labels"), template)):
        body = kind.body(f"crowded-{number}")
        labels = body["metadata"]["labels"]
        put(body, path, many | (labels if path[-1] == "labels" and path != template else {}))
        assert "at most 10000" in await tried(site.tenant.request("POST", kind.path(), body))
        body["metadata"]["labels"] = {
            key: value for key, value in body["metadata"]["labels"].items() if key != QUEUE
        }
        await site.tenant.request("POST", kind.path(), body)
        label: Json = {"metadata": {"labels": {QUEUE: "main"}}}
        refusal = await tried(site.merge(site.tenant, kind, body["metadata"]["name"], label))
        assert "at most 10000" in refusal


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_most_entries_of_pod_templates_keep_no_job_from_its_start_and_its_stop(
    site: Site, kind: Kind
) -> None:
    body = kind.body("many-of-pods")
    put(body, (*kind.template[:-1], "metadata", "labels"), {f"a{n}": "" for n in range(4_900)})
    await site.tenant.request("POST", kind.path(), body)
    await site.start(kind, "many-of-pods")
    await _stop(site, kind, "many-of-pods")
    assert kind.suspended(await site.get(kind, "many-of-pods"))


# --- break-glass, pods, rights --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reason", ["\u200b", "\u2060\ufeff", "\u00a0", "\u202e", "...", "\u00ad"], ids=ascii)
async def test_a_reason_that_says_nothing_starts_nothing(site: Site, kind: Kind, reason: str) -> None:
    name = f"blank-{'-'.join(format(ord(one), 'x') for one in reason)}"
    await site.create(kind, name)
    refusal = await tried(site.merge(site.admin, kind, name, by_hand(kind.suspend, reason)))
    assert kind.suspended(await site.get(kind, name))
    assert "to a new reason" in refusal


async def test_the_binding_of_a_pod_to_a_node_changes_no_label_by_which_it_counts(site: Site) -> None:
    """Since 1.35 the API server copies labels of a Binding to its pod."""
    await site.admin.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "0-0-0-0", "controller": True}
    counted = {"queuectl.dev/workload": "uid-1", QUEUE: "main"}
    await site.admin.request("POST", PODS, pod("counted", counted, job))
    await site.admin.request("POST", PODS, pod("plain", {"app": "x"}))
    async with all_rights(site.admin, "tenant", NAMESPACE):
        for name in ("counted", "plain"):
            binding: Json = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "labels": {"queuectl.dev/workload": "victim", QUEUE: "richer"}},
                "target": {"kind": "Node", "name": "n1"},
            }
            await tried(site.tenant.request("POST", f"{PODS}/{name}/binding", binding))
    for name, before in (("counted", counted), ("plain", {})):
        labels = (await site.admin.request("GET", f"{PODS}/{name}"))["metadata"]["labels"]
        assert {key: value for key, value in labels.items() if "queuectl" in key} == before


# --- hours of budgets, and what enters a pod that runs ----------------------------------------------------

GRANT: Final[Json] = {"hours": 100, "at": "2026-11-02T00:00:00Z", "reason": "for myself"}
GIVEN: Final = GRANT | {"hours": 1, "reason": "a deadline"}
SECOND: Final = GIVEN | {"hours": 2}


def _json_patch(*operations: tuple[str, str, Any]) -> tuple[str, str, Any]:
    named = {"add": "value", "replace": "value", "move": "from", "copy": "from"}
    return "PATCH", JSON_PATCH, [{"op": op, "path": path, named[op]: of} for op, path, of in operations]


WAYS_TO_GRANT: Final[dict[str, tuple[str, str, Any]]] = {
    "one more": ("PATCH", MERGE_PATCH, {"spec": {"grants": [GIVEN, SECOND, GRANT]}}),
    "none any more": ("PATCH", MERGE_PATCH, {"spec": {"grants": None}}),
    "appended": _json_patch(("add", "/spec/grants/-", GRANT)),
    "twice": _json_patch(("copy", "/spec/grants/2", "/spec/grants/0")),
    "in another order": _json_patch(("move", "/spec/grants/1", "/spec/grants/0")),
    "another subject": _json_patch(("add", "/spec/grants/0/subject", "tenant")),
    "another period": _json_patch(("replace", "/spec/grants/0/at", "2027-01-01T00:00:00Z")),
    "another reason": _json_patch(("replace", "/spec/grants/0/reason", "x")),
    "applied": ("PATCH", APPLY_PATCH, {"spec": {"grants": [GRANT]}}),
    "replaced": ("PUT", JSON, {"spec": {"grants": [GRANT]}}),
}


async def test_hours_are_granted_in_no_way_with_the_right_to_write_budgets_alone(site: Site) -> None:
    rule = {
        "apiGroups": ["queuectl.dev"],
        "resources": ["budgets"],
        "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"],
    }
    binding = await grant(site.admin, "tenant", "writes-budgets", rule)
    budgets = "/apis/queuectl.dev/v1beta1/budgets"
    body: Json = {"apiVersion": "queuectl.dev/v1beta1", "kind": "Budget", "metadata": {"name": "attacked"}}
    body["spec"] = BUDGET | {"hours": 1, "grants": [GIVEN, SECOND]}
    made = await site.admin.request("POST", budgets, body)
    for name, (verb, content, patch) in WAYS_TO_GRANT.items():
        sent, query = patch, {}
        if verb == "PUT":
            sent = await site.admin.request("GET", f"{budgets}/attacked")
            sent |= {"spec": sent["spec"] | patch["spec"]}
        elif content == APPLY_PATCH:
            sent = body | {"spec": body["spec"] | patch["spec"]}
            query = {"fieldManager": "m", "force": "true"}
        write = site.tenant.request(verb, f"{budgets}/attacked", sent, query=query, content_type=content)
        said = await tried(write)
        assert "users that may grant budgets" in said, (name, said)
    assert (await site.admin.request("GET", f"{budgets}/attacked"))["spec"] == made["spec"]
    # It may be deleted, and not made again with more.
    await site.tenant.request("DELETE", f"{budgets}/attacked")
    for metadata in ({"name": "attacked"}, {"generateName": "attacked-"}):
        said = await tried(site.tenant.request("POST", budgets, body | {"metadata": metadata}))
        assert "users that may grant budgets" in said
    await site.admin.request("DELETE", binding)


async def test_what_is_added_to_a_pod_that_runs_requests_nothing_and_changes_no_label(site: Site) -> None:
    """An ephemeral container has no requests; its request carries the whole pod."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "0-0-0-0", "controller": True}
    labels = {"queuectl.dev/workload": "uid-1", QUEUE: "main"}
    path = f"{PODS}/entered/ephemeralcontainers"
    before = await site.admin.request("POST", PODS, pod("entered", labels, job))
    debug: Json = {"name": "debug", "image": "i"}
    hungry = debug | {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    async with all_rights(site.admin, "tenant", NAMESPACE):
        for container in (hungry, debug):
            body = {
                "metadata": {
                    "labels": {"queuectl.dev/workload": "victim", QUEUE: None},
                    "ownerReferences": None,
                },
                "spec": {"ephemeralContainers": [container], "nodeName": "n1", "schedulingGates": None},
            }
            said = await tried(site.tenant.request("PATCH", path, body, content_type=STRATEGIC_PATCH))
            after = await site.admin.request("GET", f"{PODS}/entered")
            assert after["metadata"]["labels"] == labels
            assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
            assert after["spec"]["containers"] == before["spec"]["containers"]
            assert "nodeName" not in after["spec"]
            assert container is debug or "resources" in said
    for one in after["spec"].get("ephemeralContainers", []):
        assert not one.get("resources")


RIGHTS: Final = (
    ("queuectl.dev", "workloads", "bypass"),
    ("queuectl.dev", "workloads", "force-release"),
    ("queuectl.dev", "workloads", "exempt"),
    ("queuectl.dev", "localqueues", "create"),
    ("queuectl.dev", "clusterqueues", "update"),
    ("queuectl.dev", "workloadpriorityclasses", "create"),
    ("queuectl.dev", "usagelimits", "delete"),
    ("queuectl.dev", "idlepolicies", "delete"),
    ("queuectl.dev", "budgets", "update"),
    ("scheduling.k8s.io", "priorityclasses", "create"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "delete"),
    ("", "pods/binding", "create"),
    ("", "pods/status", "update"),
    ("", "namespaces", "update"),
    ("", "nodes", "update"),
)


@pytest.mark.parametrize("right", RIGHTS, ids="-".join)
async def test_the_role_edit_includes_nothing_that_the_gate_relies_on(
    site: Site, right: tuple[str, str, str]
) -> None:
    group, resource, verb = right
    name, _, part = resource.partition("/")
    asked = {"group": group, "resource": name, "subresource": part, "verb": verb, "namespace": NAMESPACE}
    review: Json = {"spec": {"resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert not (await site.tenant.request("POST", path, review))["status"]["allowed"]
    edits = asked | {"group": "", "resource": "configmaps", "subresource": "", "verb": "create"}
    review = {"spec": {"resourceAttributes": edits}}
    assert (await site.tenant.request("POST", path, review))["status"]["allowed"], "the tenant has edit"


async def test_no_role_for_tenants_writes_the_status_of_a_job(site: Site) -> None:
    """The roles that Kubernetes and queuectl have for namespaces: view, edit, admin and what adds to them."""
    roles = await site.admin.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles")
    adds = "rbac.authorization.k8s.io/aggregate-to-"
    rules = [
        (role["metadata"]["name"], rule)
        for role in roles["items"]
        if role["metadata"]["name"] in ("view", "edit", "admin")
        or any(label.startswith(adds) for label in role["metadata"].get("labels") or {})
        for rule in role.get("rules") or []
    ]
    jobs = [rule for _, rule in rules if "jobs" in rule.get("resources", []) and "create" in rule["verbs"]]
    assert jobs, "the roles are those of an API server"
    for row in JOB_KINDS:
        for name, rule in rules:
            groups, resources = ({row.group, "*"}, {f"{row.plural}/status", "*/status", "*"})
            if groups & {*rule.get("apiGroups", [])} and resources & {*rule.get("resources", [])}:
                assert {"update", "patch", "*"}.isdisjoint(rule["verbs"]), (name, row.name)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_service_account_that_a_tenant_impersonates_starts_nothing(site: Site, kind: Kind) -> None:
    """Edit may impersonate the service accounts of its namespace, and of no other one."""
    await site.create(kind, "impersonated")
    for account in (
        f"system:serviceaccount:{NAMESPACE}:default",
        "system:serviceaccount:queuectl-system:queuectl",
    ):
        token = await site.tenant.authorization()
        headers = {"Impersonate-User": account, "Content-Type": MERGE_PATCH, "Authorization": str(token)}
        body = json.dumps(nested(kind.suspend, False) | {"metadata": {"annotations": {ADMISSION: "{}"}}})
        path = kind.path("impersonated")
        transport = HttpTransport(site.plane.url, tls=site.plane.ssl_context())
        try:
            answer = await transport.request("PATCH", path, headers, body.encode(), stream=False)
            assert answer.status in (403, 422)
        finally:
            await transport.close()
    found = await site.get(kind, "impersonated")
    assert kind.suspended(found)
    assert set(found["metadata"].get("annotations") or {}) <= {SUBMITTER}


LISTS: Final[dict[str, tuple[str, ...]]] = {
    "JobSet": ("spec", "replicatedJobs"),
    "RayCluster": ("spec", "workerGroupSpecs"),
    "RayJob": ("spec", "rayClusterSpec", "workerGroupSpecs"),
}


def _of_many(objects: Objects, count: int) -> Json:
    path = LISTS[objects.row.name]
    body = objects.body(f"many-{count}")
    key = "name" if objects.row.name == "JobSet" else "groupName"
    last = look(body, path)[-1]
    put(body, path, [{**last, key: f"w{number}"} for number in range(count)])
    return body


@pytest.mark.parametrize("name", LISTS)
async def test_no_number_of_pod_templates_keeps_an_object_from_its_start_and_its_stop(
    defined: Site, name: str
) -> None:
    """The most that may be queued is started, and stopped also after its tenant has annotated it."""
    objects = Objects(defined, JOB_KINDS[name])
    refusal = await tried(defined.tenant.request("POST", objects.path(), _of_many(objects, 201)))
    assert "at most 200" in refusal
    await defined.tenant.request("POST", objects.path(), _of_many(objects, 200))
    for mark, suspended in (("admission", False), ("stopped", True)):
        annotations = (await objects.read("many-200"))["metadata"].get("annotations")
        patch: list[Json] = [{"op": "add", "path": "/metadata/annotations", "value": {}}] * (not annotations)
        key = ("metadata", "annotations", f"queuectl.dev/reserved-{mark}")
        patch += [
            {"op": "add", "path": pointer(key), "value": "{}"},
            {"op": "add", "path": pointer(objects.row.suspend), "value": suspended},
        ]
        await objects.patch("controller", "many-200", patch)
        many = {f"a{n}": "" for n in range(9_000)}
        await objects.merge("tenant", "many-200", nested(ENTRIES["annotations"], many))
    assert look(await objects.read("many-200"), objects.row.suspend) is True
