"""The API server of the sandbox, small or real: choice, installation of manifests, supervision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from queuectl.core.model.events import PolicyInvalid
from queuectl.kinds.policy import POLICY_KINDS, policy_event
from queuectl.kube import session
from queuectl.kube.errors import NotFound
from queuectl.kube.session import Session
from queuectl.sandbox import example, tenancy
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.endpoints import SandboxError
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.kubernetes.identities import TENANTS
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.kubernetes.wire import Json, StatusCause
from queuectl.sandbox.players.api import Client
from queuectl.shipped import shipped

Plane = SmallApi | ControlPlane
Wanted = Literal["small", "real"]

_POLL_SECONDS: Final = 0.05
_CHECK_SECONDS: Final = 0.5


def choose_plane(folder: Path, wanted: Wanted, *, port: int, version: str | None = None) -> Plane:
    """Not started yet. `version`: the older release that a real one answers as, such as 1.33.

    Raises SandboxError if a real one is requested without its binaries, or the small one with a version.
    """
    if wanted == "small":
        if version is not None:
            raise SandboxError("--kubernetes-version goes with --control-plane real: the small API has none")
        return SmallApi(folder / "kubernetes", port=port, check=problems_of_policy)
    assets = find_assets()
    if assets is None:
        raise SandboxError(
            "--control-plane real needs KUBEBUILDER_ASSETS: the folder with etcd, kube-apiserver, "
            "kube-controller-manager and kubectl"
        )
    return ControlPlane(folder / "control-plane", assets, emulated=version, port=port)


def client_of(plane: Plane, identity: str) -> Client:
    """A client, not entered yet. `identity`: admin, tenant or controller."""
    return Client(plane.url, plane.ssl_context(), plane.tokens[identity])


def client_as(plane: Plane, user: str) -> Client:
    """A client of the admin that impersonates a user of the group TENANTS, not entered yet."""
    return Client(plane.url, plane.ssl_context(), plane.tokens["admin"], user=user, group=TENANTS)


async def install(api: Session, plane: Plane, *, empty: bool, nodes: tuple[int, int] = (0, 0)) -> None:
    """Install definitions, roles and the gate, as shipped; PyTorchJob if it is not installed.

    With the example's nodes and policy unless `empty`: then with `nodes`, so many with so many GPUs each.
    Returns once the gate is in force.
    Raises InstallError or SandboxError.
    """
    installer = Installer(api)
    manifests = shipped("manifests")
    await installer.apply(read_kustomization(manifests))
    mutating = await installer.serves("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")
    if mutating:
        await installer.apply(read_kustomization(manifests / "mutating"))
    if not await installer.serves("kubeflow.org/v1", "PyTorchJob"):
        await installer.apply([example.pytorchjob_crd()])
    if not empty:
        await installer.apply(example.nodes())
        await installer.apply(read_kustomization(manifests / "examples"))
        await installer.apply(example.accounting())
    else:
        count, gpus = nodes
        named = (f"gpu-{number}" for number in range(1, count + 1))
        await installer.apply([example.fake_node(name, "a100", gpus=gpus) for name in named])
    await installer.apply(tenancy.rights(None if empty else ["default", *example.NAMESPACES]))
    async with client_of(plane, "tenant") as tenant:
        await tenancy.wait_for_gate(tenant, mutating=mutating)


async def cluster_id(api: Session) -> str:
    """UID of namespace kube-system. Waits until the server has created it."""
    while True:
        try:
            return await session.cluster_id(api)
        except NotFound:
            await asyncio.sleep(_POLL_SECONDS)


async def watch_plane(plane: Plane) -> None:
    """Raises ControlPlaneError when a part of a real one has ended; the small one is in this process."""
    while isinstance(plane, ControlPlane):
        plane.check()
        await asyncio.sleep(_CHECK_SECONDS)


def problems_of_policy(thing: Json) -> Iterator[StatusCause]:
    """Problems of a policy object, for the small API: a real one evaluates the rules of the CRDs instead.

    None for other kinds.
    """
    kind = thing.get("kind")
    if kind not in POLICY_KINDS or not str(thing.get("apiVersion", "")).startswith("queuectl.dev/"):
        return
    event = policy_event(thing)
    if isinstance(event, PolicyInvalid):
        field, _, problem = event.detail.partition(": ")
        yield StatusCause(field, f"Invalid value: {problem or event.detail}")
