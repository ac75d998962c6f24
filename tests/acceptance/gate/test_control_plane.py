"""The launcher of the real control plane: what survives a restart, what ends with its parent, errors."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from queuectl.sandbox.control_plane import ControlPlane, ControlPlaneError, find_assets
from queuectl.sandbox.players.api import Client
from tests.integration.sandbox.polling import eventually

_PARENT = """
import asyncio, sys
from pathlib import Path
from queuectl.sandbox.control_plane import ControlPlane
async def main():
    async with ControlPlane(Path(sys.argv[1]), Path(sys.argv[2]), fsync=False) as plane:
        print(plane.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_data_tokens_and_certificate_survive_a_restart(tmp_path: Path, assets: Path) -> None:
    folder = tmp_path / "with a space"
    path = "/api/v1/namespaces/kept"
    async with ControlPlane(folder, assets, controllers=False) as plane:
        first = (plane.tokens, plane.ca_file.read_bytes())
        async with Client(plane.url, plane.ssl_context(), plane.tokens["admin"]) as admin:
            made = await admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})
    async with ControlPlane(folder, assets, controllers=False) as plane:
        assert (plane.tokens, plane.ca_file.read_bytes()) == first
        async with Client(plane.url, plane.ssl_context(), plane.tokens["admin"]) as admin:
            found = await admin.request("GET", path)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


async def test_nothing_is_left_running_when_the_parent_is_killed(tmp_path: Path, assets: Path) -> None:
    folder = tmp_path / "plane"
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PARENT, str(folder), str(assets), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = await parent.stdout.readline()
        assert url.startswith(b"https://")
        await eventually(lambda: len(_running_on(folder)) == 3, "its three processes")
    finally:
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
    await eventually(lambda: not _running_on(folder), "the end of the control plane's processes")


async def test_a_process_that_fails_is_named_with_its_last_output(tmp_path: Path, assets: Path) -> None:
    with pytest.raises(ControlPlaneError, match=r"(?s)kube-apiserver ended \(exit code 1\).*emulat"):
        async with ControlPlane(tmp_path / "plane", assets, emulated="1.1"):
            pass
    assert not _running_on(tmp_path)


def test_missing_binaries_are_named(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    with pytest.raises(ControlPlaneError, match="has no kube-apiserver, kube-controller-manager, kubectl"):
        find_assets({"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert find_assets({}) is None


def _running_on(folder: Path) -> list[int]:
    """Processes of a control plane on `folder` that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        program = os.path.basename(command.split(b"\0")[0])
        if str(folder).encode() in command and program.startswith((b"etcd", b"kube-")) and state != "Z":
            found.append(int(entry.name))
    return found
