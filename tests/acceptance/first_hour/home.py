"""A newcomer: an empty home with a clone of this checkout, on a machine that has the programs of README."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from queuectl.sandbox.control_plane import ASSETS_VARIABLE, find_assets
from tests.acceptance.e2e.site import pod_template
from tests.acceptance.first_hour.lines import ROOT, first_yaml

_OF_MACHINE: Final = ("PATH", "PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", ASSETS_VARIABLE)
"""Variables that a user does not set: where programs and packages are. Beginnings of their names."""
_KUEUE: Final = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: default}\n"


@dataclass(frozen=True)
class Home:
    folder: Path
    environment: Mapping[str, str]

    @property
    def checkout(self) -> Path:
        return self.folder / "queuectl"

    @property
    def sandbox(self) -> Path:
        """Folder of the data of `make run`: the default one is not in the home if the user is root."""
        return self.folder / "sandbox"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / ".kube" / "config"


def machine() -> dict[str, str]:
    """The environment of every program here, without the settings of a user."""
    kept = {name: value for name, value in os.environ.items() if name.upper().startswith(_OF_MACHINE)}
    return {**kept, "LANG": "C.UTF-8"}


def home(folder: Path, tools: Path, sockets: str) -> Home:
    """With a clone, and the files that documents name as examples. `sockets`: of the site's Postgres."""
    folder.mkdir()
    folder.chmod(0o711)  # Postgres may run as another user
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder / "queuectl"], check=True)
    (folder / "kueue.yaml").write_text(_KUEUE)
    job = yaml.safe_load(first_yaml("Install it on a cluster").replace("spec: …", ""))
    (folder / "queuectl" / "job.yaml").write_text(
        yaml.safe_dump({**job, "spec": {"template": pod_template()}})
    )
    inherited = machine()
    environment = {
        **inherited,
        "HOME": str(folder),
        "PATH": f"{folder / '.local' / 'bin'}:{tools}:{inherited['PATH']}",
        "KUBECONFIG": str(folder / ".kube" / "config"),
        "PIP_CACHE_DIR": inherited.get("PIP_CACHE_DIR", str(tools.parent / "pip-cache")),
        "PGHOST": sockets,
        "PGUSER": "postgres",
        "TERM": "xterm-256color",
    }
    return Home(folder, environment)


def tools(folder: Path, *, pipx: bool) -> Path:
    """A folder with kubectl, the clients of Postgres, helm, and pipx; without pipx with this queuectl."""
    folder.mkdir()
    assets = find_assets()
    found = {
        "kubectl": assets / "kubectl" if assets else _on_path("kubectl"),
        **{name: _on_path(name) for name in ("createuser", "createdb", "dropdb", "helm")},
    }
    if not pipx:
        scripts = Path(sys.executable).parent
        found |= {name: scripts / name for name in ("queuectl", "kubectl-queue")}
    for name, path in found.items():
        if path is not None:
            (folder / name).symlink_to(path)
    if pipx:
        place = folder.parent / "pipx"
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", "pipx"], check=True)
        (folder / "pipx").symlink_to(place / "bin" / "pipx")
    return folder


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None
