"""One sandbox per kind of control plane, for all tests of this folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from queuectl.kube.errors import ApiError
from queuectl.sandbox.control_plane import find_assets
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Client
from tests import definitions
from tests.acceptance.e2e.site import (
    GPU,
    OLDER,
    Json,
    Site,
    cluster_queue,
    eventually,
    flavor,
    local_queue,
    pod,
    pytorchjob,
)
from tests.acceptance.e2e.world import World
from tests.definitions import PYTORCH

NO_ASSETS = "KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped"
SETTINGS = {
    "controller": {"statusSeconds": 1},  # what waits for a status waits less
    "scheduling": {
        "admissionFairSharing": {"usageHalfLifeSeconds": 3600},  # for queues that ask for it
        "nodes": {"settleSeconds": 2, "lossSeconds": 2},
        "resources": {"deviceClassMappings": [{"name": GPU, "deviceClassNames": ["gpu.example.com"]}]},
    },
}


GATE = {"name": "queuectl.dev/admission"}
"""The scheduling gate of a pod that waits."""
TODAY = "small" if find_assets() is None else "real"
"""The control plane of all tests. `tests/integration/kube_api` compares the small API with a real one."""


@pytest.fixture(params=[TODAY])
def control_plane(request: pytest.FixtureRequest) -> str:
    """For tests that start their own: small, real, or as-1.33 for a real one that behaves as that release."""
    if request.param != "small" and find_assets() is None:
        pytest.skip(NO_ASSETS)
    kind: str = request.param
    return kind


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of a site runs on today's Kubernetes, or on the small API where there is no real one.

    On older releases run those marked `every_version`: what depends on the webhook, which stands in for the
    mutating policy there, on what a server lets be changed of a Job that ran, and on what kubectl prints.
    Those marked `mutating_policies` or `real_api_server` run on today's Kubernetes only, those marked
    `queued_pods` where the configuration names pods.
    """
    if "site" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker
        real = any(map(marked, ("mutating_policies", "real_api_server")))
        sites = ["real" if real else "pods" if marked("queued_pods") else TODAY]
        if marked("every_version"):
            sites.append(f"as-{OLDER}")
        names = [f"site={name.removeprefix('as-')}" for name in sites]
        metafunc.parametrize("site", sites, indirect=True, scope="session", ids=names)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A sandbox with three nodes, flavors a100 and spot, and nothing else; `pods`: where pods queue too."""
    name: str = request.param
    queued_pods, name = name == "pods", TODAY if name == "pods" else name
    if name != "small" and find_assets() is None:
        pytest.skip(NO_ASSETS)
    folder = Path(tempfile.mkdtemp(prefix="queuectl-e2e-"))
    folder.chmod(0o711)
    older = name.removeprefix("as-") if name.startswith("as-") else None
    config = folder / "queuectl.yaml"
    config.write_text(yaml.safe_dump(SETTINGS | ({"kinds": ["Pod"]} if queued_pods else {})))
    flags = ("--empty", "--config", str(config))
    found = Site(folder / name, "small" if name == "small" else "real", version=older, flags=flags)
    try:
        await found.start()
        async with found.client() as api:
            await _furnish(api)
            await _define(api, definitions.read(PYTORCH.stem))
            if queued_pods:
                await _gate_pods(found, api, config)
        yield found
    finally:
        await found.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _define(api: Client, definition: Json) -> None:
    """Replace the sandbox's small PyTorchJob definition with the real one."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + definition["metadata"]["name"]
    present = await api.request("GET", path)
    definition["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]
    await api.request("PUT", path, definition)
    probe = pytorchjob("probe")
    probe["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": "many"}}

    async def in_force() -> bool:
        try:
            await api.request(
                "POST", "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", probe, query={"dryRun": "All"}
            )
        except ApiError as error:
            return error.status == 422
        return False

    await eventually("the real definition of PyTorchJob is in force", in_force)


async def _gate_pods(site: Site, api: Client, config: Path) -> None:
    """Install the gate that `queuectl manifests` writes for a configuration that names pods.

    Kueue's names of pods count too. The controller, which does not read them, has no such setting: it would
    want the gate before it starts.
    """
    compatible = config.with_name("gate.yaml")
    settings = {"kinds": ["Pod"], "compatibility": {"kueueLabels": True}}
    compatible.write_text(yaml.safe_dump(settings))
    made = await site.queuectl("manifests", "--config", str(compatible), "--component", "mutating")
    assert made.code == 0, made.err
    await Installer(api).apply(yaml.load_all(made.out, yaml.CSafeLoader))

    async def gated() -> bool:
        body = pod("probe", gpus=1)
        try:
            held = await api.request("POST", "/api/v1/namespaces/default/pods", body, query={"dryRun": "All"})
        except ApiError:
            return False  # the account of the namespace, or one of the policies, is not there yet
        return GATE in (held["spec"].get("schedulingGates") or [])

    await eventually("the gate on pods is in force", gated)


async def _furnish(api: Client) -> None:
    for number in (1, 2, 3):
        kind = "a100" if number < 3 else "spot"
        await api.request("POST", "/api/v1/nodes", fake_node(f"node-{number}", kind, gpus=64))
    label = "example.com/accelerator"
    for name in ("a100", "spot"):
        await api.request("POST", "/apis/queuectl.dev/v1beta1/resourceflavors", flavor(name, {label: name}))


@pytest.fixture
def kubectl(site: Site) -> Site:
    """The site, for tests that run kubectl."""
    if find_assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: there is no kubectl to type")
    return site


@pytest_asyncio.fixture(loop_scope="session")
async def world(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A namespace with LocalQueue `main` on a ClusterQueue of the same name as the namespace, for 8 GPUs."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"
    async with site.client() as api:
        await api.request(
            "POST",
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
        found = World(site, api, name)
        await found.policy(cluster_queue(name, 8))
        await found.policy(local_queue(name, "main", name))
        yield found
        options = {"propagationPolicy": "Background", "kind": "DeleteOptions"}
        for kind in ("Job", "PyTorchJob"):
            for item in (await api.request("GET", found.path(kind)))["items"]:
                with contextlib.suppress(ApiError):  # it may be deleted already
                    await api.request("DELETE", found.path(kind, item["metadata"]["name"]), options)
