"""What a controller makes for its own object passes the gate; what a tenant says that it owns does not."""

from __future__ import annotations

from typing import Final

import pytest

from queuectl.kinds.reserved_keys import GROUPS_ANNOTATION, IDLE_EXEMPT, USER_ANNOTATION
from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.site import BYPASS, KINDS, NAMESPACE, SUBMITTER, Json, Kind, Site, nested
from tests.acceptance.gate.test_ways import tried
from tests.job_kinds import JOB_KINDS
from tests.rights import all_rights

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", KINDS, ids=str),
]
RAY: Final = "ray.io/v1"
OWNERS = tuple({(row.group, row.kind): row for row in JOB_KINDS}.values())


def owned(kind: Kind, name: str, api_version: str, owner: str, *, controller: bool = True) -> Json:
    """A running object with an owner. Ray's operator copies annotations from its own objects."""
    body = kind.body(name, suspend=False)
    reference = {"apiVersion": api_version, "kind": owner, "name": "owner", "uid": "0-0-0-0"}
    body["metadata"]["ownerReferences"] = [reference | ({"controller": True} if controller else {})]
    body["metadata"]["annotations"] = {SUBMITTER: "ada"} if api_version == RAY else {}
    return body


@pytest.mark.parametrize("owner", OWNERS, ids=lambda row: row.kind)
async def test_a_child_that_the_controller_of_its_owner_makes_stays_as_it_is(
    site: Site, operator: Client, kind: Kind, owner: object
) -> None:
    row = next(one for one in OWNERS if one is owner)
    name = f"made-{row.plural}"
    made = await operator.request("POST", kind.path(), owned(kind, name, row.api_version, row.kind))
    assert not kind.suspended(made)
    assert made["metadata"].get("annotations") == ({SUBMITTER: "ada"} if row.group == "ray.io" else None)


@pytest.mark.parametrize("verb", ["create", "update"])
@pytest.mark.parametrize(
    ("api_version", "owner"),
    [
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
        ("workload.codeflare.dev/v1beta2", "AppWrapper"),
    ],
)
@pytest.mark.parametrize("key", [IDLE_EXEMPT, USER_ANNOTATION, SUBMITTER, GROUPS_ANNOTATION])
async def test_what_a_tenant_writes_in_a_template_of_its_owner_is_checked_as_the_tenants(
    site: Site, operator: Client, kind: Kind, api_version: str, owner: str, key: str, verb: str
) -> None:
    """A JobSet without a queue may have templates of Jobs with a queue: no policy sees who wrote them."""
    name = f"templated-{verb}-{owner}-{key.rpartition('/')[2]}".lower()
    body = owned(kind, name, api_version, owner)
    forged: Json = {"metadata": {"annotations": {key: "ceo"}}}
    if verb == "create":
        body["metadata"] |= forged["metadata"]
        sent = operator.request("POST", kind.path(), body)
    else:
        await operator.request("POST", kind.path(), body)
        sent = site.merge(operator, kind, name, forged)
    refusal = await tried(sent)
    assert kind.policy in refusal
    assert key.partition("-")[0] in refusal


async def test_the_controller_of_its_owner_suspends_a_child_and_lets_it_run_again(
    site: Site, operator: Client, kind: Kind
) -> None:
    body = owned(kind, "with-its-owner", "jobset.x-k8s.io/v1alpha2", "JobSet")
    await operator.request("POST", kind.path(), body)
    for wanted in (True, False):
        found = await site.merge(operator, kind, "with-its-owner", nested(kind.suspend, wanted))
        assert kind.suspended(found) is wanted
    assert BYPASS not in found["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    ("api_version", "owner", "controller"),
    [
        ("jobset.x-k8s.io/v1alpha2", "JobSet", True),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", False),
        ("batch/v1", "CronJob", True),
        ("argoproj.io/v1alpha1", "Workflow", True),
    ],
)
async def test_an_owner_that_a_tenant_names_lets_nothing_run(
    site: Site, operator: Client, kind: Kind, api_version: str, owner: str, controller: bool
) -> None:
    body = owned(kind, "forged", api_version, owner, controller=controller)
    assert not await _runs(site, site.tenant, kind, body)


@pytest.mark.parametrize(
    ("api_version", "owner", "controller"),
    [("batch/v1", "CronJob", True), ("jobset.x-k8s.io/v1alpha2", "JobSet", False)],
)
async def test_what_has_no_owner_that_queues_queues_itself_whatever_makes_it(
    site: Site, operator: Client, kind: Kind, api_version: str, owner: str, controller: bool
) -> None:
    body = owned(kind, "topmost", api_version, owner, controller=controller)
    assert not await _runs(site, operator, kind, body)


async def test_all_rights_in_one_namespace_are_not_those_of_a_controller(site: Site, kind: Kind) -> None:
    body = owned(kind, "by-the-owner-of-a-namespace", "jobset.x-k8s.io/v1alpha2", "JobSet")
    async with all_rights(site.admin, "tenant", NAMESPACE):
        assert not await _runs(site, site.tenant, kind, body)


async def test_a_tenant_changes_nothing_of_a_child_that_was_charged(
    site: Site, operator: Client, kind: Kind
) -> None:
    body = owned(kind, "grown", "jobset.x-k8s.io/v1alpha2", "JobSet")
    await operator.request("POST", kind.path(), body)
    with pytest.raises(ApiError, match="can't grow while it runs"):
        await site.merge(site.tenant, kind, "grown", nested(kind.pods, 9))
    with pytest.raises(ApiError, match="can't be taken away"):
        await site.merge(
            site.tenant, kind, "grown", {"metadata": {"labels": {"queuectl.dev/queue-name": None}}}
        )


async def _runs(site: Site, client: Client, kind: Kind, body: Json) -> bool:
    """Is it created running? With the mutating policy it is created suspended, without it refused."""
    del body["metadata"]["annotations"]
    try:
        made = await client.request("POST", kind.path(), body, query={"dryRun": "All"})
    except ApiError as error:
        if site.mutating or error.status != 403 or kind.policy not in str(error):
            raise
        return False
    return not kind.suspended(made)
