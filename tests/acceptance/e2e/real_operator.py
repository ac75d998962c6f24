"""A real operator on the control plane of a site."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from queuectl.sandbox.install import Installer
from tests.acceptance.e2e.site import Json, Site
from tests.acceptance.operators.programs import NAMESPACE, Operator, Program, rights


@dataclass
class _Plane:
    folder: Path
    url: str
    ca_file: Path


@asynccontextmanager
async def running(
    program: Program, binaries: Path, site: Site, folder: Path, *others: Json
) -> AsyncIterator[None]:
    """Its kinds are served, `others` exist in its namespace, and it runs."""
    cluster = yaml.safe_load(site.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = folder / "ca.crt"
    if "certificate-authority" in cluster:
        authority = site.data / cluster["certificate-authority"]
    else:
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    async with site.client() as admin:
        operator = Operator(program, binaries, _Plane(folder, cluster["server"], authority), admin)
        namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await Installer(admin).apply([namespace, rights(), *operator.definitions(), *others])
        await operator.install()
        await operator.start()
        try:
            yield
        finally:
            await operator.stop()
