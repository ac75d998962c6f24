"""What is restricted is named by users with the right `use` alone, however they write it (G5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

import pytest
import pytest_asyncio

from queuectl.kube.session import JSON_PATCH
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.conftest import client_of
from tests.acceptance.gate.site import (
    APPLY_PATCH,
    IN_FORCE_SECONDS,
    JOB_RESOURCES,
    KINDS,
    NAMESPACE,
    QUEUE,
    Json,
    Kind,
    Site,
    pointer,
)
from tests.acceptance.gate.test_ways import name_of, tried
from tests.integration.sandbox.polling import eventually
from tests.rights import all_rights, grant

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
    pytest.mark.parametrize("kind", KINDS, ids=str),
]
CLASS: Final = "queuectl.dev/priority-class"
OURS: Final = "/apis/queuectl.dev/v1beta1"
CLASSES: Final = f"{OURS}/workloadpriorityclasses"
QUEUES: Final = f"{OURS}/namespaces/{NAMESPACE}/localqueues"
CRONJOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
RESTRICTED: Final = {CLASS: "urgent", QUEUE: "vip"}
"""By label, the name that only some users may write."""
FREE: Final = {CLASS: "high", QUEUE: "main"}
REFUSALS: Final = {
    CLASS: "WorkloadPriorityClass urgent is restricted: tenant may not use it. The RBAC verb use on "
    "workloadpriorityclasses.queuectl.dev allows it",
    QUEUE: "LocalQueue vip is restricted: tenant may not use it. The RBAC verb use on "
    "localqueues.queuectl.dev allows it",
}
of_both = pytest.mark.parametrize("label", RESTRICTED, ids=["class", "queue"])


def restricted(kind: str, name: str, **fields: object) -> Json:
    metadata = {"name": name, "labels": {"queuectl.dev/restricted": "true"}}
    return {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": metadata, **fields}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def restricting(site: Site) -> AsyncIterator[Site]:
    """With a class and a queue that are restricted, and a tenant with all rights on CronJobs."""
    urgent = restricted("WorkloadPriorityClass", "urgent", value=5000)
    vip = restricted("LocalQueue", "vip", spec={"clusterQueue": "research"})
    await site.admin.request("POST", CLASSES, urgent)
    await site.admin.request("POST", QUEUES, vip)
    rule: Json = {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["*"]}
    await grant(site.admin, "tenant", "cronjobs-of-tenant", rule, namespace=NAMESPACE)
    for label, name in RESTRICTED.items():
        await eventually(partial(_refused, site, label, name), REFUSALS[label], IN_FORCE_SECONDS)
    yield site
    await site.admin.request("DELETE", f"{CLASSES}/urgent")
    await site.admin.request("DELETE", f"{QUEUES}/vip")


async def _refused(site: Site, label: str, name: str) -> bool:
    made = [
        site.tenant.request(
            "POST", kind.path(), labelled(kind.body("probe"), {label: name}), query={"dryRun": "All"}
        )
        for kind in KINDS
    ]
    return all([REFUSALS[label] in await tried(one) for one in made])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def holder(restricting: Site) -> AsyncIterator[Client]:
    """A user with the rights of the tenant, and `use` on what is restricted, by name."""
    site, user = restricting, "system:serviceaccount:default:holder"
    await site.admin.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "holder"}}
    )
    jobs = [
        {"apiGroups": [group], "resources": resources, "verbs": ["*"]}
        for group, resources in JOB_RESOURCES.items()
    ]
    await grant(site.admin, user, "jobs-of-holder", *jobs, namespace=NAMESPACE)
    of_class = {"resources": ["workloadpriorityclasses"], "resourceNames": ["urgent"]}
    of_queue = {"resources": ["localqueues"], "resourceNames": ["vip"]}
    common: Json = {"apiGroups": ["queuectl.dev"], "verbs": ["use"]}
    # A rule with names is checked by no question without one: the last rule says when the role counts.
    seen: Json = {"apiGroups": ["queuectl.dev"], "resources": ["cohorts"], "verbs": ["get"]}
    await grant(site.admin, user, "use-class", seen, {**common, **of_class})
    await grant(site.admin, user, "use-queue", seen, {**common, **of_queue}, namespace=NAMESPACE)
    async with await client_of(site, "holder") as found:
        yield found


def labelled(body: Json, labels: dict[str, str]) -> Json:
    body["metadata"].setdefault("labels", {}).update(labels)
    return body


def cron_job(name: str, labels: dict[str, str], kind: Kind) -> Json:
    job = kind.body(name)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": "@daily",
            "jobTemplate": {"metadata": {"labels": labels}, "spec": job["spec"]},
        },
    }


Way = Callable[[Site, Kind, str, str], Awaitable[object]]
"""Site, kind, name of the object, the label."""


async def _put(site: Site, kind: Kind, name: str, label: str) -> object:
    obj = labelled(await site.get(kind, name), {label: RESTRICTED[label]})
    return await site.tenant.request("PUT", kind.path(name), obj)


async def _by_json_patch(site: Site, kind: Kind, name: str, label: str) -> object:
    path = pointer(("metadata", "labels", label))
    change: Json = {"op": "add", "path": path, "value": RESTRICTED[label]}
    return await site.tenant.request("PATCH", kind.path(name), [change], content_type=JSON_PATCH)


async def _applied(site: Site, kind: Kind, name: str, label: str) -> object:
    body = {
        "apiVersion": f"{kind.group}/v1",
        "kind": kind.name,
        "metadata": {"labels": {label: RESTRICTED[label]}},
    }
    query = {"fieldManager": "tenant", "force": "true"}
    return await site.tenant.request("PATCH", kind.path(name), body, content_type=APPLY_PATCH, query=query)


def _merged(part: str) -> Way:
    def way(site: Site, kind: Kind, name: str, label: str) -> Awaitable[object]:
        patch: Json = {"metadata": {"labels": {label: RESTRICTED[label]}}}
        return site.merge(site.tenant, kind, name, patch, part)

    return way


def _created(queue: str | None, more: Callable[[str], Json]) -> Way:
    def way(site: Site, kind: Kind, name: str, label: str) -> Awaitable[object]:
        body = kind.body(f"{name}-new", queue=queue)
        body = labelled(body, {label: RESTRICTED[label]})
        body["metadata"] |= more(label)
        return site.tenant.request("POST", kind.path(), body)

    return way


def _child(api_version: str, owner: str) -> Json:
    reference = {"apiVersion": api_version, "kind": owner, "name": "owner", "uid": "0-0-0-0"}
    return {"ownerReferences": [reference | {"controller": True}]}


async def _queued_later(site: Site, kind: Kind, name: str, label: str) -> object:
    """The class is there before the object queues; a queue is named by Kueue's label."""
    body = labelled(kind.body(f"{name}-later", queue=None), {CLASS: RESTRICTED[CLASS]})
    await site.tenant.request("POST", kind.path(), body)
    labels = {QUEUE: FREE[QUEUE] if label == CLASS else RESTRICTED[QUEUE], CLASS: "low"}
    if label == CLASS:
        del labels[CLASS]
    return await site.merge(site.tenant, kind, f"{name}-later", {"metadata": {"labels": labels}})


async def _by_kueues_label(site: Site, kind: Kind, name: str, label: str) -> object:
    kueues = label.replace("queuectl.dev", "kueue.x-k8s.io")
    return await site.merge(site.tenant, kind, name, {"metadata": {"labels": {kueues: RESTRICTED[label]}}})


async def _cron(site: Site, kind: Kind, name: str, label: str) -> object:
    labels = {QUEUE: FREE[QUEUE], label: RESTRICTED[label]}
    return await site.tenant.request("POST", CRONJOBS, cron_job(name, labels, KINDS[0]))


async def _cron_later(site: Site, kind: Kind, name: str, label: str) -> object:
    later = f"{name}-{kind.plural}"
    await site.tenant.request("POST", CRONJOBS, cron_job(later, {QUEUE: FREE[QUEUE]}, KINDS[0]))
    change: Json = {
        "op": "add",
        "path": pointer(("spec", "jobTemplate", "metadata", "labels", label)),
        "value": RESTRICTED[label],
    }
    path = f"{CRONJOBS}/{later}"
    return await site.tenant.request("PATCH", path, [change], content_type=JSON_PATCH)


async def _copied(site: Site, kind: Kind, name: str, label: str) -> object:
    """The name comes from an annotation, which says nothing."""
    await site.merge(site.tenant, kind, name, {"metadata": {"annotations": {"note": RESTRICTED[label]}}})
    change: Json = {
        "op": "copy",
        "from": pointer(("metadata", "annotations", "note")),
        "path": pointer(("metadata", "labels", label)),
    }
    return await site.tenant.request("PATCH", kind.path(name), [change], content_type=JSON_PATCH)


async def _renamed_twice(site: Site, kind: Kind, name: str, label: str) -> object:
    """By a name that nothing has."""
    await site.merge(site.tenant, kind, name, {"metadata": {"labels": {label: "nothing-has-it"}}})
    return await _merged("")(site, kind, name, label)


async def _named_before_and_exchanged(site: Site, kind: Kind, name: str, label: str) -> object:
    """Kueue's label has the name and ours another, then they change places."""
    kueues = label.replace("queuectl.dev", "kueue.x-k8s.io")
    await tried(site.merge(site.tenant, kind, name, {"metadata": {"labels": {kueues: RESTRICTED[label]}}}))
    labels = {label: RESTRICTED[label], kueues: FREE[label]}
    return await site.merge(site.tenant, kind, name, {"metadata": {"labels": labels}})


async def _as_a_child(site: Site, kind: Kind, name: str, label: str) -> object:
    """An owner that queues and the name, in one request."""
    metadata = _child("jobset.x-k8s.io/v1alpha2", "JobSet") | {"labels": {label: RESTRICTED[label]}}
    return await site.merge(site.tenant, kind, name, {"metadata": metadata})


async def _as_a_child_later(site: Site, kind: Kind, name: str, label: str) -> object:
    """The owner first."""
    owner = _child("jobset.x-k8s.io/v1alpha2", "JobSet")
    await site.merge(site.tenant, kind, name, {"metadata": owner})
    return await _merged("")(site, kind, name, label)


async def _applied_to_the_status(site: Site, kind: Kind, name: str, label: str) -> object:
    body = {
        "apiVersion": f"{kind.group}/v1",
        "kind": kind.name,
        "metadata": {"labels": {label: RESTRICTED[label]}},
    }
    query = {"fieldManager": "tenant", "force": "true"}
    path = f"{kind.path(name)}/status"
    return await site.tenant.request("PATCH", path, body, content_type=APPLY_PATCH, query=query)


def _owned(**reference: object) -> Callable[[str], Json]:
    (owner,) = _child("jobset.x-k8s.io/v1alpha2", "JobSet")["ownerReferences"]
    return lambda _: {"ownerReferences": [owner | reference]}


WAYS: Final[dict[str, Way]] = {
    "creation": _created("main", lambda _: {}),
    "creation with a name of the server": _created("main", lambda _: {"generateName": "x-"}),
    "merge patch": _merged(""),
    "json patch": _by_json_patch,
    "server side apply": _applied,
    "put": _put,
    "patch of the status": _merged("status"),
    "a queue label later": _queued_later,
    "a label of kueue": _by_kueues_label,
    "a job that names a cronjob as owner": _created("main", lambda _: _child("batch/v1", "CronJob")),
    "a job that names a jobset as owner": _created(
        "main", lambda _: _child("jobset.x-k8s.io/v1alpha2", "JobSet")
    ),
    "a jobset owns it and does not control it": _created("main", _owned(controller=False)),
    "an owner of that name in another group": _created("main", _owned(apiVersion="example.com/v1")),
    "an owner of the other version": _created("main", _owned(apiVersion="jobset.x-k8s.io/v1")),
    "a copy of an annotation": _copied,
    "renamed twice": _renamed_twice,
    "exchanged with a label of kueue": _named_before_and_exchanged,
    "an owner and the name": _as_a_child,
    "an owner and then the name": _as_a_child_later,
    "apply to the status": _applied_to_the_status,
    "a cronjob": _cron,
    "a template of a cronjob later": _cron_later,
}


@of_both
@pytest.mark.parametrize("way", WAYS)
async def test_a_tenant_without_the_right_names_nothing_restricted(
    restricting: Site, kind: Kind, way: str, label: str
) -> None:
    name = name_of("c" if label == CLASS else "q", way)
    await restricting.create(kind, name)
    refusal = await tried(WAYS[way](restricting, kind, name, label))
    # The API server takes no label from the status of a custom resource.
    ignored = kind.name != "Job" and way in ("patch of the status", "apply to the status")
    assert REFUSALS[label] in refusal or ignored
    labels = (await restricting.get(kind, name))["metadata"]["labels"]
    assert RESTRICTED[label] not in labels.values()


async def test_who_has_the_right_by_name_creates_and_changes_what_waits(
    restricting: Site, holder: Client, kind: Kind
) -> None:
    body = labelled(kind.body("uses-restricted"), RESTRICTED)
    await eventually(partial(_accepted, holder, kind, body), "the rights of the holder", IN_FORCE_SECONDS)
    await holder.request("POST", kind.path(), body)
    await restricting.create(kind, "raised")
    await restricting.merge(holder, kind, "raised", {"metadata": {"labels": RESTRICTED}})
    # Others go on writing it: what is named does not change.
    for name in ("uses-restricted", "raised"):
        noted = {"metadata": {"annotations": {"a": "b"}, "labels": {"team": "x"}}}
        changed = await restricting.merge(restricting.tenant, kind, name, noted)
        assert RESTRICTED.items() <= changed["metadata"]["labels"].items()
    # And down again, but not up.
    await restricting.merge(restricting.tenant, kind, "raised", {"metadata": {"labels": FREE}})
    refusal = await tried(
        restricting.merge(restricting.tenant, kind, "raised", {"metadata": {"labels": RESTRICTED}})
    )
    assert any(text in refusal for text in REFUSALS.values())


async def _accepted(holder: Client, kind: Kind, body: Json) -> bool:
    return not await tried(holder.request("POST", kind.path(), body, query={"dryRun": "All"}))


async def test_all_rights_in_a_namespace_are_a_right_on_its_queues_and_on_no_class(
    restricting: Site, kind: Kind
) -> None:
    async with all_rights(restricting.admin, "tenant", NAMESPACE):
        urgent = labelled(kind.body("by-owner"), {CLASS: "urgent"})
        assert REFUSALS[CLASS] in await tried(restricting.tenant.request("POST", kind.path(), urgent))
        vip = labelled(kind.body("by-owner"), {QUEUE: "vip"})
        await restricting.tenant.request("POST", kind.path(), vip)


async def test_what_a_controller_makes_of_its_own_object_is_not_checked_again(
    restricting: Site, operator: Client, kind: Kind
) -> None:
    status: Json = {"apiGroups": ["batch"], "resources": ["cronjobs/status"], "verbs": ["update"]}
    user = "system:serviceaccount:default:operator"
    binding = await grant(restricting.admin, user, f"cron-{kind.plural}", status)
    try:
        for api_version, owner in (("batch/v1", "CronJob"), ("jobset.x-k8s.io/v1alpha2", "JobSet")):
            body = labelled(kind.body(f"made-by-{owner.lower()}"), RESTRICTED)
            body["metadata"] |= _child(api_version, owner)
            await operator.request("POST", kind.path(), body)
        alone = labelled(kind.body("made-by-none"), RESTRICTED)
        assert "is restricted: system:serviceaccount:default:operator" in await tried(
            operator.request("POST", kind.path(), alone)
        )
    finally:
        await restricting.admin.request("DELETE", binding)
        await restricting.admin.request(
            "DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/cron-{kind.plural}"
        )


ORPHANS: Final[dict[str, Json]] = {
    "none": {"ownerReferences": None},
    "other-kind": _child("argoproj.io/v1alpha1", "Workflow"),
    "cronjob": _child("batch/v1", "CronJob"),
    "no-controller": _owned(controller=False)(""),
}
"""What its ownerReferences become."""


@of_both
@pytest.mark.parametrize("change", ORPHANS)
async def test_a_child_keeps_no_restricted_name_without_its_owner(
    restricting: Site, operator: Client, kind: Kind, label: str, change: str
) -> None:
    """A tenant writes the templates of an owner without a label: its controller makes what they name."""
    site, name = restricting, f"orphan-{label[-5:]}-{change.replace(' ', '-')}"
    body = labelled(kind.body(name, queue="main"), {label: RESTRICTED[label]})
    body["metadata"] |= _child("jobset.x-k8s.io/v1alpha2", "JobSet")
    await operator.request("POST", kind.path(), body)
    other = ORPHANS[change]
    assert REFUSALS[label] in await tried(site.merge(site.tenant, kind, name, {"metadata": other}))
    # The garbage collector has no such right either: `--cascade=orphan` waits until another name is given.
    assert "is restricted" in await tried(site.merge(operator, kind, name, {"metadata": other}))
    renamed = {**other, "labels": {label: FREE[label]}}
    await site.merge(site.tenant, kind, name, {"metadata": renamed})


async def test_what_is_not_restricted_is_open_to_all(restricting: Site, kind: Kind) -> None:
    await restricting.tenant.request("POST", kind.path(), labelled(kind.body("uses-unrestricted"), FREE))
    await restricting.merge(
        restricting.tenant, kind, "uses-unrestricted", {"metadata": {"labels": {CLASS: "low"}}}
    )
    # A class that does not exist is refused by queuectl, not by the gate.
    await restricting.merge(
        restricting.tenant, kind, "uses-unrestricted", {"metadata": {"labels": {CLASS: "none"}}}
    )
