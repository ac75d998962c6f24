"""The files of a release, made from a checkout. The archives are the same whenever they are made."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from queuectl import __version__
from release.chart import REPOSITORY, files

SITE: Final = "https://github.com/queuectl/queuectl"
_LAUNCHER: Final = REPOSITORY / "release" / "kubectl-queue"
_COPY: Final = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)
_BUILD_SECONDS: Final = 300
_SKIPPED: Final = ("__pycache__",)

Entry = tuple[str, bytes, bool]
"""Path in an archive, content, and whether it is a program."""


def build(dist: Path) -> Path:
    """Write all files of the release into `dist`; returns the wheel. Raises CalledProcessError."""
    dist.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(dist)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=_BUILD_SECONDS)
    (dist / f"queuectl-image-{__version__}.tar.gz").write_bytes(archive(image_context()))
    chart = [(f"queuectl/{name}", text.encode(), False) for name, text in files().items()]
    (dist / f"queuectl-chart-{__version__}.tgz").write_bytes(archive(chart))
    plugin = archive(plugin_files())
    (dist / plugin_name()).write_bytes(plugin)
    manifest = yaml.safe_dump(krew_manifest(plugin), sort_keys=False, width=100)
    (dist / "queue.yaml").write_text(manifest)
    made = sorted(path for path in dist.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (dist / "SHA256SUMS").write_text("".join(sums))
    (wheel,) = dist.glob(f"queuectl-{__version__}-*.whl")
    return wheel


def archive(entries: Iterable[Entry]) -> bytes:
    """A tar.gz of them, without times and owners."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content, program in sorted(entries):
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o755 if program else 0o644
            tar.addfile(about, io.BytesIO(content))
    return packed.getvalue()


def image_context() -> Iterator[Entry]:
    """What `docker build - < FILE` needs: the Dockerfile and what it copies."""
    text = (REPOSITORY / "Dockerfile").read_text()
    for name in dict.fromkeys(["Dockerfile", *" ".join(_COPY.findall(text)).split()]):
        yield from _tree(REPOSITORY / name)


def _tree(path: Path) -> Iterator[Entry]:
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in found:
        if file.is_file() and not any(part in _SKIPPED for part in file.parts):
            yield str(file.relative_to(REPOSITORY)), file.read_bytes(), bool(file.stat().st_mode & 0o100)


def plugin_name() -> str:
    return f"kubectl-queue-{__version__}.tar.gz"


def plugin_files() -> Iterator[Entry]:
    """The kubectl plugin as krew installs it."""
    yield "kubectl-queue", _LAUNCHER.read_text().replace("@VERSION@", __version__).encode(), True
    yield "LICENSE", (REPOSITORY / "LICENSE").read_bytes(), False


def krew_manifest(plugin: bytes) -> dict[str, Any]:
    """The manifest of the plugin for krew-index; `plugin` is its archive."""
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]},
        "uri": f"{SITE}/releases/download/v{__version__}/{plugin_name()}",
        "sha256": hashlib.sha256(plugin).hexdigest(),
        "files": [{"from": name, "to": "."} for name, *_ in plugin_files()],
        "bin": "kubectl-queue",
    }
    description = (
        "Shows the queues of queuectl and the workloads in them, why a workload waits, and what would help;\n"
        "holds, releases, stops and resumes. Needs Python 3.11 or newer with queuectl, pipx or uvx."
    )
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "queue"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": SITE,
            "shortDescription": "Queues and pending GPU workloads of queuectl",
            "description": description,
            "platforms": [platform],
        },
    }
