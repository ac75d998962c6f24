"""`queuectl sandbox --reset` deletes the sandbox's data, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuectl.sandbox.endpoints import Endpoints, SandboxError
from queuectl.sandbox.postgres_folder import PostgresFailed, locked
from queuectl.sandbox.run import reset


def used(folder: Path) -> None:
    """As a run leaves it."""
    for name in ("postgres/data/PG_VERSION", "postgres/lock", "kubernetes/objects.sqlite3", "log/api.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "kubeconfig").touch()
    Endpoints("https://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", "postgresql://").write(
        folder
    )


def test_data_go_and_logs_and_ports_stay(tmp_path: Path) -> None:
    used(tmp_path)
    reset(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endpoints.json", "log"]
    reset(tmp_path)


def test_data_of_postgres_that_are_elsewhere_go_too(tmp_path: Path) -> None:
    (tmp_path / "data" / "postgres").mkdir(parents=True)
    (tmp_path / "elsewhere" / "data").mkdir(parents=True)
    (tmp_path / "data" / "postgres" / "elsewhere").write_text(f"{tmp_path / 'elsewhere'}\n")
    reset(tmp_path / "data")
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]
    assert not list((tmp_path / "data").iterdir())


def test_a_folder_that_no_sandbox_made_is_named_and_nothing_is_deleted(tmp_path: Path) -> None:
    used(tmp_path)
    (tmp_path / "control-plane").mkdir()
    (tmp_path / "control-plane" / "thesis.tex").touch()
    with pytest.raises(SandboxError, match=r"control-plane, and that was not made by a sandbox"):
        reset(tmp_path)
    assert (tmp_path / "kubernetes" / "objects.sqlite3").exists()


def test_data_that_a_server_uses_stay(tmp_path: Path) -> None:
    used(tmp_path)
    with locked(tmp_path / "postgres" / "lock"), pytest.raises(PostgresFailed, match="is in use"):
        reset(tmp_path)
    assert (tmp_path / "postgres" / "data" / "PG_VERSION").exists()
