"""Whose usage it is (B1), as the API server stores it: users, groups, CronJobs, what is made for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from queuectl.kinds.reserved_keys import GROUPS_ANNOTATION, SUBMITTER_ANNOTATION, USER_ANNOTATION
from queuectl.kinds.workloads import observe
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.gate.conftest import client_of, named
from tests.acceptance.gate.site import JOB, NAMESPACE, OLDEST, QUEUE, Json, Site
from tests.acceptance.gate.test_ways import tried
from tests.job_kinds import JOB_KINDS
from tests.rights import grant

pytestmark = pytest.mark.asyncio(loop_scope="session")
CRONJOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
OF_CRONJOBS: Final = "queuectl-attribution-of-cronjobs"
on_mutating = pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True)
on_both = pytest.mark.parametrize("site", ["mutating", f"as-{OLDEST}"], ids=named, indirect=True)


def annotated(body: Json, **values: str) -> Json:
    keys = {"user": USER_ANNOTATION, "groups": GROUPS_ANNOTATION}
    body["metadata"]["annotations"] = {keys[name]: value for name, value in values.items()}
    return body


def whose(obj: Json) -> tuple[str | None, str | None, str | None]:
    """Submitter, groups and user that an object names."""
    found = obj["metadata"].get("annotations") or {}
    return found.get(SUBMITTER_ANNOTATION), found.get(GROUPS_ANNOTATION), found.get(USER_ANNOTATION)


def cronjob(name: str, *, queue: str | None = "main", **values: str) -> Json:
    template = annotated({"metadata": {"labels": {QUEUE: queue} if queue else {}}}, **values)
    template["spec"] = JOB.body("x")["spec"]
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def child(of: Json, name: str) -> Json:
    """What the controller of a CronJob makes of its template."""
    metadata = of["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": metadata["name"], "uid": metadata["uid"]}
    template = of["spec"]["jobTemplate"]
    made: Json = {**template["metadata"], "name": name, "ownerReferences": [{**owner, "controller": True}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "spec": template["spec"]}


@on_mutating
async def test_an_object_that_gets_its_queue_later_is_of_the_user_that_gives_it(site: Site) -> None:
    """Without a known user, no UsageLimit or Budget for each user would count it."""
    await site.tenant.request("POST", JOB.path(), JOB.body("queued-later", queue=None))
    label: Json = {"metadata": {"labels": {QUEUE: "main"}}}
    found = await site.merge(site.tenant, JOB, "queued-later", label)
    assert JOB.suspended(found)
    assert whose(found)[0] == "tenant"
    found = await site.merge(site.admin, JOB, "queued-later", {"metadata": {"labels": {QUEUE: "other"}}})
    assert whose(found)[0] == "tenant"


async def as_user(site: Site, folder: Path, user: str, groups: list[str], body: Json) -> Json:
    """Create an object as kubectl with --as does."""
    path = folder / "object.json"
    path.write_text(json.dumps(body))
    named = [f"--as-group={group}" for group in groups]
    code, output = await site.kubectl("create", "-f", str(path), "-o", "json", f"--as={user}", *named)
    assert code == 0, output
    return dict(json.loads(output))


@on_mutating
async def test_an_object_has_its_creator_and_the_groups_of_that(site: Site, tmp_path: Path) -> None:
    jobs: Json = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}
    await grant(site.admin, "alice", "jobs-of-alice", jobs, namespace=NAMESPACE)
    groups = ["system:authenticated", "ml", "a,b", "vision"]
    made = await as_user(site, tmp_path, "alice", groups, JOB.body("by-alice", suspend=False))
    assert whose(made) == ("alice", "ml,vision", None)
    alone = await as_user(site, tmp_path, "alice", [], JOB.body("by-alice-alone"))
    assert whose(alone) == ("alice", None, None)
    own = annotated(JOB.body("by-alice-too"), user="alice", groups="admins")
    assert whose(await as_user(site, tmp_path, "alice", groups, own)) == ("alice", "ml,vision", "alice")
    # Updates by its controller, or by queuectl, change nothing of that.
    started = await site.start(JOB, "by-alice")
    assert whose(started) == ("alice", "ml,vision", None)


@on_both
async def test_a_tenant_names_no_other_user_and_no_other_groups(site: Site) -> None:
    for values in ({"user": "bob"}, {"groups": "vision"}, {"user": "tenant", "groups": "vision"}):
        name = "-".join(("forges", *values, *values.values()))
        body = annotated(JOB.body(name), **values)
        assert JOB.policy in await tried(site.tenant.request("POST", JOB.path(), body))
    await site.tenant.request("POST", JOB.path(), annotated(JOB.body("own-user"), user="tenant"))
    for change in ("bob", None):
        patch: Json = {"metadata": {"annotations": {USER_ANNOTATION: change}}}
        assert JOB.policy in await tried(site.merge(site.tenant, JOB, "own-user", patch))
    # What was there before the label counts as new.
    await site.tenant.request("POST", JOB.path(), annotated(JOB.body("earlier", queue=None), user="bob"))
    label: Json = {"metadata": {"labels": {QUEUE: "main"}}}
    assert JOB.policy in await tried(site.merge(site.tenant, JOB, "earlier", label))


@on_both
async def test_who_may_attribute_names_the_user_and_the_groups(site: Site) -> None:
    account = "system:serviceaccount:default:portal"
    await site.admin.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "portal"}}
    )
    jobs: Json = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}
    await grant(site.admin, account, "jobs-of-portal", jobs, namespace=NAMESPACE)
    async with await client_of(site, "portal") as portal:
        body = annotated(JOB.body("by-portal"), user="bob", groups="vision")
        assert JOB.policy in await tried(portal.request("POST", JOB.path(), body))
        right: Json = {"apiGroups": ["queuectl.dev"], "resources": ["workloads"], "verbs": ["attribute"]}
        await grant(site.admin, account, "attribute-in-one", right, namespace=NAMESPACE)
        assert JOB.policy in await tried(
            portal.request("POST", JOB.path(), body)
        )  # of a namespace it is none
        await grant(site.admin, account, "attribute", right)
        made = await portal.request("POST", JOB.path(), body)
    assert whose(made)[1:] == ("vision", "bob")
    assert whose(made)[0] == (account if site.mutating else None)


@on_both
async def test_jobs_of_a_cronjob_are_of_the_user_that_wrote_its_template(site: Site, tmp_path: Path) -> None:
    cronjobs: Json = {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["*"]}
    for user in ("tenant", "carol"):
        await grant(site.admin, user, f"templates-of-{user}", cronjobs, namespace=NAMESPACE)
    for values in ({"user": "bob"}, {"groups": "vision"}):
        for queue in ("main", None):
            body = cronjob("forged", queue=queue, **values)
            assert OF_CRONJOBS in await tried(site.tenant.request("POST", CRONJOBS, body))
    own = {} if site.mutating else {"user": "carol", "groups": "ml"}
    made = await as_user(site, tmp_path, "carol", ["ml", "system:authenticated"], cronjob("nightly", **own))
    assert whose(made["spec"]["jobTemplate"])[1:] == ("ml", "carol")

    async def edit(path: str, change: Json) -> Json:
        return await site.tenant.request("PATCH", f"{CRONJOBS}/{path}", change, content_type=MERGE_PATCH)

    # It stays when others change the template, who may name nobody else.
    edited = await edit("nightly", {"spec": {"jobTemplate": {"spec": {"backoffLimit": 1}}}})
    assert whose(edited["spec"]["jobTemplate"])[1:] == ("ml", "carol")
    forged: Json = {"spec": {"jobTemplate": {"metadata": {"annotations": {USER_ANNOTATION: "bob"}}}}}
    assert OF_CRONJOBS in await tried(edit("nightly", forged))
    if site.mutating:
        gone: Json = {"spec": {"jobTemplate": {"metadata": {"annotations": None}}}}
        assert whose((await edit("nightly", gone))["spec"]["jobTemplate"])[1:] == ("ml", "carol")
        plain = await site.tenant.request("POST", CRONJOBS, cronjob("unlabelled", queue=None))
        assert whose(plain["spec"]["jobTemplate"]) == (None, None, None)
        label: Json = {"spec": {"jobTemplate": {"metadata": {"labels": {QUEUE: "main"}}}}}
        assert whose((await edit("unlabelled", label))["spec"]["jobTemplate"])[2] == "tenant"

    # A tenant makes no Job of it in her name; the controller of CronJobs does.
    assert JOB.policy in await tried(site.tenant.request("POST", JOB.path(), child(edited, "nightly-forged")))
    account = "system:serviceaccount:default:cronjob-controller"
    where = "/api/v1/namespaces/default/serviceaccounts"
    await site.admin.request("POST", where, {"metadata": {"name": "cronjob-controller"}})
    status: Json = {"apiGroups": ["batch"], "resources": ["cronjobs/status"], "verbs": ["update"]}
    jobs: Json = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}
    await grant(site.admin, account, "cronjob-controller", status, jobs)
    async with await client_of(site, "cronjob-controller") as controller:
        job = await controller.request("POST", JOB.path(), child(edited, "nightly-1"))
    assert whose(job) == (account if site.mutating else None, "ml", "carol")
    seen = observe(JOB_KINDS["Job"], job)
    assert seen is not None
    assert seen.workload.controller == "CronJob/nightly"
