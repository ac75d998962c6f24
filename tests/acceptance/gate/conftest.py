"""Real API servers with the gate: 1.36 and 1.37 with the mutating policy, and an emulated older one without.

What is refused is the same policies on each: files whose tests no release and no mutating policy could
change name the site `mutating`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import find_assets
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.kinds import install
from tests.acceptance.gate.site import OLDEST, Json, Site, served
from tests.conftest import NEXT, next_assets
from tests.definitions import PYTORCH
from tests.job_kinds import JOB_KINDS
from tests.rights import grant

NO_ASSETS = "KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped"


@pytest.fixture(scope="session")
def assets() -> Path:
    found = find_assets()
    if found is None:
        pytest.skip(NO_ASSETS)
    return found


@pytest.fixture(scope="session")
def pytorch_crd() -> Path:
    return PYTORCH


def named(site: str) -> str:
    """The id of a site: tests with the same one run in one worker process, on one control plane."""
    return f"site={site.removeprefix('as-')}"


@pytest_asyncio.fixture(
    scope="session",
    loop_scope="session",
    params=["mutating", f"as-{OLDEST}", NEXT],
    ids=named,
)
async def site(
    request: pytest.FixtureRequest,
    assets: Path,
    pytorch_crd: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Site]:
    """manifests/ in force, and on `mutating`, which is 1.36, and on 1.37 also manifests/mutating."""
    if request.param == NEXT:
        assets = next_assets()
    emulated = OLDEST if request.param == f"as-{OLDEST}" else None
    folder = tmp_path_factory.mktemp("plane")
    mutating = request.param in ("mutating", NEXT)
    async with served(folder, assets, pytorch_crd, emulated=emulated, mutating=mutating) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def operator(site: Site) -> AsyncIterator[Client]:
    """With the rights that operators have: on all objects in all namespaces, and on their status."""
    account = "/api/v1/namespaces/default/serviceaccounts"
    await site.admin.request("POST", account, {"metadata": {"name": "operator"}})
    groups = sorted({row.group for row in JOB_KINDS})
    parts = sorted({f"{row.plural}{part}" for row in JOB_KINDS for part in ("", "/status")})
    rule = {"apiGroups": groups, "resources": parts, "verbs": ["*"]}
    await grant(site.admin, "system:serviceaccount:default:operator", "operator", rule)
    async with await client_of(site, "operator") as found:
        yield found


async def client_of(site: Site, account: str) -> Client:
    """A client of a service account of namespace default."""
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await site.admin.request("POST", path, body))["status"]["token"]
    return Client(site.plane.url, site.plane.ssl_context(), token)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def defined(site: Site) -> Site:
    """With the definitions of all kinds."""
    await install(site)
    return site
