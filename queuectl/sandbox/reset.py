"""Empty data: deletes what earlier runs of the sandbox left in its folder, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from queuectl.sandbox.endpoints import SandboxError
from queuectl.sandbox.postgres_folder import delete_folder

_MARKS: Final = {
    "postgres": ("lock", "elsewhere"),
    "kubernetes": ("objects.sqlite3", "tokens.json", "certificates"),
    "control-plane": ("tokens.json", "certificates", "etcd"),
}
"""The folders with data, and what at least one of is in each that the sandbox made."""


def reset(folder: Path) -> None:
    """Delete the ledger and the clusters, small and real. `folder` is locked and no sandbox runs on it.

    Logs stay, and so do the ports of the last run. Raises SandboxError, before anything is deleted, if one of
    the folders is not the sandbox's, and PostgresFailed if a Postgres runs on it.
    """
    found = [folder / name for name in _MARKS if (folder / name).exists()]
    for path in found:
        if any(path.iterdir()) and not any((path / mark).exists() for mark in _MARKS[path.name]):
            raise SandboxError(
                f"--reset deletes {path}, and that was not made by a sandbox: remove it yourself"
            )
    for path in found:
        if path.name == "postgres":
            delete_folder(path)
        else:
            shutil.rmtree(path)
    (folder / "kubeconfig").unlink(missing_ok=True)
