"""The user that wrote the spec of a policy object is recorded on it, and no other name can be written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.gate.site import AUTHOR, Json, Site, look
from tests.rights import grant

pytestmark = pytest.mark.asyncio(loop_scope="session")

API = "/apis/queuectl.dev/v1beta1"
TARGET = {"kind": "ClusterQueue", "name": "all"}
BUDGET: Json = {
    "target": TARGET,
    "subject": {"kind": "EachUser"},
    "resource": "nvidia.com/gpu",
    "period": {"kind": "Month"},
    "mode": "Metered",
}
OBJECTS: dict[str, tuple[str, Json, Json]] = {
    "ClusterQueue": ("clusterqueues", {"spec": {"cohortName": "a"}}, {"spec": {"cohortName": "b"}}),
    "Cohort": ("cohorts", {"spec": {"parentName": "a"}}, {"spec": {"parentName": "b"}}),
    "ResourceFlavor": (
        "resourceflavors",
        {"spec": {"nodeLabels": {"a": "b"}}},
        {"spec": {"nodeLabels": {"a": "c"}}},
    ),
    "WorkloadPriorityClass": ("workloadpriorityclasses", {"value": 1}, {"value": 2}),
    "UsageLimit": (
        "usagelimits",
        {"spec": {"target": TARGET, "subject": {"kind": "EachUser"}, "running": 1}},
        {"spec": {"target": TARGET, "subject": {"kind": "EachUser"}, "running": 2}},
    ),
    "IdlePolicy": (
        "idlepolicies",
        {"spec": {"target": TARGET}},
        {"spec": {"target": TARGET, "holdAfterSeconds": 7200}},
    ),
    "Budget": (
        "budgets",
        {"spec": BUDGET | {"hours": 1}},
        {"spec": BUDGET | {"hours": 2}},
    ),
    "LocalQueue": (
        "namespaces/team-a/localqueues",
        {"spec": {"clusterQueue": "all"}},
        {"spec": {"stopPolicy": "Hold"}},
    ),
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def written(site: Site) -> Site:
    """The tenant may write policy, and has no other right of an admin: other tests refuse it those."""
    resources = [path.rpartition("/")[2] for path, _, _ in OBJECTS.values()]
    verbs = ["create", "get", "patch", "update"]
    rule = {"apiGroups": ["queuectl.dev"], "resources": resources, "verbs": verbs}
    await grant(site.admin, "tenant", "policy-writer", rule)
    return site


@pytest.mark.parametrize("kind", OBJECTS)
async def test_the_user_that_writes_a_spec_is_recorded(written: Site, kind: str) -> None:
    plural, body, edit = OBJECTS[kind]
    path = f"{API}/{plural}"
    made = await written.tenant.request("POST", path, _object(kind, "authored") | body)
    assert _author(made) == ("tenant" if written.mutating else None)
    merge = partial(written.admin.request, "PATCH", f"{path}/authored", content_type=MERGE_PATCH)
    labelled = await merge({"metadata": {"labels": {"a": "b"}}})
    assert _author(labelled) == ("tenant" if written.mutating else None)
    assert _author(await merge(edit)) == ("admin" if written.mutating else None)
    await written.admin.request("DELETE", f"{path}/authored")


async def test_another_name_is_replaced_or_refused(written: Site) -> None:
    path = f"{API}/cohorts"
    forged = {"metadata": {"annotations": {AUTHOR: "another"}}}
    body = _object("Cohort", "forged") | {"spec": {}}
    named = body | {"metadata": body["metadata"] | forged["metadata"]}
    await _replaced(written, written.tenant.request("POST", path, named))
    if written.mutating:
        await written.admin.request("DELETE", f"{path}/forged")
    await written.admin.request("POST", path, body)
    merge = partial(written.tenant.request, "PATCH", f"{path}/forged", content_type=MERGE_PATCH)
    await _replaced(written, merge(forged | {"spec": {"parentName": "x"}}))
    if written.mutating:
        for patch in (forged, {"metadata": {"annotations": {AUTHOR: None}}}):
            assert _author(await merge(patch)) == "tenant"
    await written.admin.request("DELETE", f"{path}/forged")


async def test_hours_are_granted_by_those_who_may_grant_alone(written: Site) -> None:
    given = {"hours": "2.5", "at": "2030-01-01T00:00:00Z", "reason": "a deadline"}
    path, spec = f"{API}/budgets", BUDGET | {"hours": 1}
    body = _object("Budget", "granted")
    with pytest.raises(ApiError, match="users that may grant budgets"):
        await written.tenant.request("POST", path, body | {"spec": spec | {"grants": [given]}})
    await written.tenant.request("POST", path, body | {"spec": spec})
    edit = partial(written.tenant.request, "PATCH", f"{path}/granted", content_type=MERGE_PATCH)
    with pytest.raises(ApiError, match="users that may grant budgets"):
        await edit({"spec": {"grants": [given]}})
    by_admin = partial(written.admin.request, "PATCH", f"{path}/granted", content_type=MERGE_PATCH)
    made = await by_admin({"spec": {"grants": [given]}})
    assert look(made, ("spec", "grants")) == [given]
    assert look(await edit({"spec": {"hours": 3}}), ("spec", "grants")) == [given]
    with pytest.raises(ApiError, match="users that may grant budgets"):
        await edit({"spec": {"grants": []}})
    rule = {"apiGroups": ["queuectl.dev"], "resources": ["budgets"], "verbs": ["grant"]}
    await grant(written.admin, "tenant", "granter", rule)
    second = given | {"hours": 1}
    both = {"spec": {"grants": [given, second]}}
    async with asyncio.timeout(30):
        while True:  # until the API server knows of the role
            with contextlib.suppress(ApiError):
                assert look(await edit(both), ("spec", "grants")) == [given, second]
                break
    await written.admin.request("DELETE", f"{path}/granted")


async def _replaced(site: Site, write: Awaitable[Json]) -> None:
    if site.mutating:
        assert _author(await write) == "tenant"
    else:
        with pytest.raises(ApiError, match="queuectl-authors"):
            await write


def _object(kind: str, name: str) -> Json:
    return {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": {"name": name}}


def _author(obj: Json) -> Any:
    return look(obj, ("metadata", "annotations", AUTHOR))
