"""Objects are applied as `kubectl apply -k` applies them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from queuectl.kube.errors import ApiError
from queuectl.sandbox import example, tenancy
from queuectl.sandbox.api_server import install, problems_of_policy
from queuectl.sandbox.control_plane import find_assets
from queuectl.sandbox.install import RUNS_BESIDE, Installer, InstallError, read_kustomization
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players.api import Client, Object
from queuectl.shipped import shipped

RBAC = "/apis/rbac.authorization.k8s.io/v1"
FOLDERS = (".", "mutating", "examples")


@pytest.mark.acceptance
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_kustomization_is_read_as_kubectl_reads_it(folder: str) -> None:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: there is no kubectl to compare with")
    path = shipped("manifests") / folder
    out = subprocess.run([assets / "kubectl", "kustomize", path], capture_output=True, check=True, timeout=60)
    theirs = [thing for thing in yaml.safe_load_all(out.stdout) if thing["kind"] not in RUNS_BESIDE]
    ours = read_kustomization(path)
    # Generated objects of a Deployment have a hash in their name.
    theirs = [thing for thing in theirs if not re.search(r"-config-[a-z0-9]{10}$", identity(thing)[2])]
    assert sorted(map(identity, ours)) == sorted(map(identity, theirs))
    by_identity = {identity(thing): thing for thing in theirs}
    for thing in ours:
        assert thing == by_identity[identity(thing)]


def identity(thing: Object) -> tuple[str, str, str]:
    metadata = thing["metadata"]
    return thing["kind"], metadata.get("namespace", ""), metadata["name"]


def test_namespaces_and_definitions_come_first() -> None:
    kinds = [thing["kind"] for thing in read_kustomization(shipped("manifests"))]
    last_definition = len(kinds) - 1 - kinds[::-1].index("CustomResourceDefinition")
    assert set(kinds[: last_definition + 1]) == {"Namespace", "CustomResourceDefinition"}


def test_a_kustomization_that_transforms_its_objects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\nnamePrefix: x-\n")
    with pytest.raises(InstallError, match=r"kustomization.yaml: fields namePrefix are not known here"):
        read_kustomization(tmp_path)


async def test_all_shipped_manifests_apply_twice_and_the_gate_is_in_force(tmp_path: Path) -> None:
    async with (
        SmallApi(tmp_path, check=problems_of_policy) as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as admin,
        Client(server.url, server.ssl_context(), server.tokens["tenant"]) as tenant,
    ):
        for _ in range(2):
            installer = Installer(admin)
            await installer.apply([example.pytorchjob_crd()])
            for folder in FOLDERS:
                await installer.apply(read_kustomization(shipped("manifests") / folder))
            await installer.apply([*example.nodes(), *example.accounting()])
            await installer.apply(tenancy.rights(["default"]))
        await tenancy.wait_for_gate(tenant, mutating=True)
        for _, thing in example.jobs():
            kind = "jobs" if thing["kind"] == "Job" else "pytorchjobs"
            path = f"/apis/{thing['apiVersion']}/namespaces/{thing['metadata']['namespace']}/{kind}"
            made = await tenant.request("POST", path, thing)
            spec = made["spec"] if kind == "jobs" else made["spec"]["runPolicy"]
            assert spec["suspend"] is True


async def test_a_bad_policy_object_is_refused_with_its_name_and_field(tmp_path: Path) -> None:
    async with (
        SmallApi(tmp_path, check=problems_of_policy) as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as admin,
    ):
        await Installer(admin).apply(read_kustomization(shipped("manifests") / "crds"))
        queue = {
            "apiVersion": "queuectl.dev/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "default"},
            "spec": {},
        }
        with pytest.raises(InstallError, match=r"LocalQueue main can't be applied: .*clusterQueue"):
            await Installer(admin).apply([queue])
        with pytest.raises(ApiError, match="404"):
            await admin.request("GET", "/apis/queuectl.dev/v1beta1/namespaces/default/localqueues/main")


async def test_a_sandbox_without_the_example_has_the_nodes_that_are_asked_for(tmp_path: Path) -> None:
    """And a tenant with rights in all namespaces, also in those that an admin creates later."""
    async with (
        SmallApi(tmp_path, check=problems_of_policy) as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as admin,
    ):
        await install(admin, server, empty=True, nodes=(3, 8))
        nodes = (await admin.request("GET", "/api/v1/nodes"))["items"]
        gpus = {one["metadata"]["name"]: one["status"]["allocatable"]["nvidia.com/gpu"] for one in nodes}
        assert gpus == {"gpu-1": "8", "gpu-2": "8", "gpu-3": "8"}
        bindings = await admin.request("GET", f"{RBAC}/clusterrolebindings/sandbox-tenant-edit")
        assert bindings["subjects"][0]["name"] == "tenant"
