"""The webhook for a real API server that emulates an older release without mutating policies."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from queuectl.kube.errors import NotFound
from queuectl.kube.session import Session
from queuectl.kubernetes_yaml import dump, load
from queuectl.sandbox import tenancy
from queuectl.sandbox.control_plane import ControlPlane
from queuectl.sandbox.endpoints import SandboxError, choose_ports, write_private
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.processes import ChildProcess, spawn, until_ready
from queuectl.shipped import shipped

_PATH: Final = "/mutate"
_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10
"""Longer than in a cluster: one machine does all the work here."""


@contextlib.asynccontextmanager
async def suspending(
    plane: ControlPlane, api: Session, folder: Path, manifests: Path | None = None
) -> AsyncIterator[list[ChildProcess]]:
    """Install and run it if the server needs it; else do nothing. Entered once the server calls it.

    `manifests`: the folder, or a copy of it with those of further kinds. Raises InstallError or SandboxError.
    """
    installer = Installer(api)
    if await installer.serves("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"):
        await _forget(api)  # left from a run in which this folder's server emulated an older release
        yield []
        return
    port, probes = choose_ports([(0, 0), (0, 0)])
    files = (manifests or shipped("manifests")) / "webhook"
    await _install(installer, files, port)
    child = await _run(plane, folder, files, port, probes)
    try:
        await _ready(child, f"http://127.0.0.1:{probes}/readyz")
        async with Client(plane.url, plane.ssl_context(), plane.tokens["tenant"]) as tenant:
            await tenancy.wait_for_gate(tenant, mutating=True)
        yield [child]
    finally:
        await child.stop(_STOP_SECONDS)


async def _forget(api: Session) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/queuectl-suspend"
    with contextlib.suppress(NotFound):
        await api.delete(path)


async def _install(installer: Installer, files: Path, port: int) -> None:
    """As shipped, but called at its port on this machine: there are no Services here."""
    objects = read_kustomization(files, also=frozenset({"Secret"}))
    for thing in objects:
        for webhook in thing.get("webhooks", ()) if thing["kind"] == "MutatingWebhookConfiguration" else ():
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{_PATH}"}
            webhook["timeoutSeconds"] = _TIMEOUT_SECONDS
    await installer.apply(objects)


async def _run(plane: ControlPlane, folder: Path, files: Path, port: int, probes: int) -> ChildProcess:
    ((shipped_config, _),) = load((files / "config.yaml").read_bytes())
    config = shipped_config["webhook"]
    config |= {"listen": f"127.0.0.1:{port}", "probes": f"127.0.0.1:{probes}"}
    config["tls"]["names"] = ["127.0.0.1"]
    write_private(folder / "webhook.yaml", dump(shipped_config))
    kubeconfig = folder / "webhook.kubeconfig"
    plane.write_kubeconfig_of("webhook", kubeconfig)
    flags = ["--config", str(folder / "webhook.yaml"), "--kubeconfig", str(kubeconfig)]
    return await spawn(
        [sys.executable, "-m", "queuectl", "webhook", *flags],
        name="queuectl webhook",
        log=folder / "log" / "webhook.log",
    )


async def _ready(child: ChildProcess, url: str) -> None:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await until_ready(url, check=child.check)
    except TimeoutError:
        raise SandboxError(f"the webhook is not ready within {_READY_SECONDS:g} s: see {child.log}") from None
