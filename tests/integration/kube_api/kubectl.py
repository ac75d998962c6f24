"""kubectl against an API server, small or real."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from queuectl.sandbox.control_plane import find_assets
from tests.integration.kube_api.client import DEADLINE, Client


class Ran(NamedTuple):
    code: int
    out: str
    error: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl in the namespace of a client, with a home of its own."""

    binary: str
    api: Client
    home: Path

    @classmethod
    def of(cls, api: Client, home: Path) -> Kubectl:
        """Skips the test if there is none."""
        assets = find_assets()
        binary = str(assets / "kubectl") if assets else shutil.which("kubectl")
        if binary is None:
            pytest.skip("no kubectl: neither KUBEBUILDER_ASSETS is set nor is one on the PATH")
        return cls(binary, api, home)

    async def run(self, *arguments: str, stdin: object = None) -> Ran:
        """Run it as admin, in the test's namespace; `stdin` is sent as JSON."""
        process = await asyncio.create_subprocess_exec(
            self.binary,
            f"--kubeconfig={self.api.server.kubeconfig}",
            f"--namespace={self.api.namespace}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "EDITOR": "true"},
        )
        async with asyncio.timeout(DEADLINE):
            out, error = await process.communicate(json.dumps(stdin).encode() if stdin else b"")
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), error.decode())

    async def __call__(self, *arguments: str, fails: bool = False, stdin: object = None) -> str:
        """Its stdout, or with `fails` its stderr."""
        ran = await self.run(*arguments, stdin=stdin)
        assert (ran.code != 0) is fails, ran.error
        return ran.error if fails else ran.out
