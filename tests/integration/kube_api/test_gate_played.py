"""The small API evaluates the gate: tests of tests/acceptance/gate for real API servers run on it too."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
import pytest_asyncio
import yaml

from queuectl.kube.errors import ApiError
from queuectl.sandbox.control_plane import ControlPlane
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players.api import Client
from tests import definitions
from tests.acceptance.gate import test_ways as ways
from tests.acceptance.gate.site import MANIFESTS, QUEUE, Kind, Site, nested
from tests.acceptance.gate.test_bypass import *  # noqa: F403
from tests.acceptance.gate.test_identities import *  # noqa: F403
from tests.acceptance.gate.test_owners import (
    test_a_child_that_the_controller_of_its_owner_makes_stays_as_it_is,
    test_an_owner_that_a_tenant_names_lets_nothing_run,
)
from tests.acceptance.gate.test_partial_admission import (
    test_a_user_can_not_raise_the_number_while_it_runs_but_reduce_it,
    test_the_controller_starts_with_fewer_pods_and_restores_the_number,
)
from tests.acceptance.gate.test_ways import *  # noqa: F403
from tests.acceptance.gate.test_ways import WAITING, tried
from tests.definitions import PYTORCH

# Not implemented: scale, and status writes by a tenant.
UNSERVED = ("label removal by status", "forged annotation by status")
del test_replicas_do_not_grow_through_the_scale_subresource  # noqa: F821
del test_no_request_of_a_tenant_changes_a_pending_object  # noqa: F821
# The rights of its users are fixed.
del test_the_right_to_all_verbs_in_one_namespace_is_no_right_to_bypass  # noqa: F821

POLICIES = "/apis/admissionregistration.k8s.io/v1"
_FIRST = ("Namespace", "CustomResourceDefinition")


def _objects(*folders: str) -> list[dict[str, Any]]:
    texts = [path.read_text() for folder in folders for path in sorted((MANIFESTS / folder).rglob("*.yaml"))]
    found = [obj for text in texts for obj in yaml.load_all(text, yaml.CSafeLoader)]
    found = [obj for obj in found if obj and obj["kind"] != "Kustomization"]
    return sorted(found, key=lambda obj: obj["kind"] not in _FIRST)


def _path(obj: dict[str, Any]) -> str:
    kind, namespace = obj["kind"].lower(), obj["metadata"].get("namespace")
    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("class") else "s")
    root = f"/apis/{obj['apiVersion']}" if "/" in obj["apiVersion"] else "/api/v1"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["validating", "mutating"])
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    mutating = request.param == "mutating"
    async with (
        SmallApi(tmp_path_factory.mktemp("small")) as api,
        AsyncExitStack() as stack,
    ):
        clients = {
            name: await stack.enter_async_context(Client(api.url, api.ssl_context(), token))
            for name, token in api.tokens.items()
        }
        found = Site(
            cast(ControlPlane, api), clients["admin"], clients["tenant"], clients["controller"], mutating
        )
        definition = definitions.read(PYTORCH.stem)
        for obj in [definition, *_objects("crds", "gate", *(["mutating"] if mutating else []), "examples")]:
            await found.admin.request("POST", _path(obj), obj)
        yield found


__all__ = [
    "test_a_child_that_the_controller_of_its_owner_makes_stays_as_it_is",
    "test_a_user_can_not_raise_the_number_while_it_runs_but_reduce_it",
    "test_an_owner_that_a_tenant_names_lets_nothing_run",
    "test_the_controller_starts_with_fewer_pods_and_restores_the_number",
]


@pytest.fixture
def operator(site: Site) -> Client:
    """Operators act as admin here."""
    return site.admin


async def test_without_its_binding_a_policy_is_not_in_force(site: Site, kind: Kind) -> None:
    path = f"{POLICIES}/validatingadmissionpolicybindings"
    binding = await site.admin.request("GET", f"{path}/{kind.policy}")
    await site.admin.request("DELETE", f"{path}/{kind.policy}")
    try:
        await site.tenant.request("POST", kind.path(), kind.body("ungated"))
        started = await site.merge(site.tenant, kind, "ungated", nested(kind.suspend, False))
        assert not kind.suspended(started)
    finally:
        binding["metadata"] = {"name": kind.policy}
        await site.admin.request("POST", path, binding)
    unlabelled = {"metadata": {"labels": {QUEUE: None}}}
    with pytest.raises(ApiError, match=f"ValidatingAdmissionPolicy '{kind.policy}'"):
        await site.merge(site.tenant, kind, "ungated", unlabelled)


async def test_a_default_queue_takes_what_has_no_label(site: Site, kind: Kind) -> None:
    for obj in _objects("default-queue"):
        if site.mutating or obj["kind"].startswith("Validating"):
            await site.admin.request("POST", _path(obj), obj)
    body = kind.body("unlabelled", suspend=False, queue=None)
    spec = {"clusterQueue": "research"}
    queues = (
        kind.path().replace(f"{kind.group}/v1", "queuectl.dev/v1beta1").replace(kind.plural, "localqueues")
    )
    meta = {"apiVersion": "queuectl.dev/v1beta1", "kind": "LocalQueue", "metadata": {"name": "default"}}
    await site.tenant.request("POST", kind.path(), body | {"metadata": {"name": "before"}})
    await site.admin.request("POST", queues, meta | {"spec": spec})
    try:
        if site.mutating:
            made = await site.tenant.request("POST", kind.path(), body)
            assert (kind.suspended(made), made["metadata"]["labels"]) == (True, {QUEUE: "default"})
        else:
            with pytest.raises(ApiError, match="all work of this namespace queues"):
                await site.tenant.request("POST", kind.path(), body)
    finally:
        await site.admin.request("DELETE", f"{queues}/default")
        for obj in _objects("default-queue"):
            with contextlib.suppress(ApiError):
                await site.admin.request("DELETE", f"{_path(obj)}/{obj['metadata']['name']}")


@pytest.mark.parametrize("way", WAITING)
async def test_no_request_of_a_tenant_changes_a_pending_object_on_the_small_api_too(
    site: Site, kind: Kind, way: str
) -> None:
    if way not in UNSERVED:
        await ways.test_no_request_of_a_tenant_changes_a_pending_object(site, kind, way)
        return
    name = f"unserved-{WAITING[way].__name__.strip('_').replace('_', '-')}"
    before = await site.create(kind, name)
    assert await tried(WAITING[way](site, kind, name))
    assert await site.get(kind, name) == before
