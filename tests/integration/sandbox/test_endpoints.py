"""Ports, files and the lock on a sandbox's folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from queuectl.sandbox.endpoints import Endpoints, SandboxError, choose_ports, locked, port_of

FOUND = Endpoints("https://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3/metrics", "postgresql://x")


def test_endpoints_are_read_back_as_written_and_only_by_their_owner(tmp_path: Path) -> None:
    FOUND.write(tmp_path)
    assert Endpoints.read(tmp_path) == FOUND
    file = tmp_path / "endpoints.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(file.read_text())) == {"kubernetes", "rest", "metrics", "postgres"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kubernetes": 1}', '{"other": "x"}'])
def test_a_file_with_other_content_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "endpoints.json").write_text(text)
    assert Endpoints.read(tmp_path) is None


def test_the_port_of_the_last_run_is_used_again_unless_it_is_taken() -> None:
    (free,) = choose_ports([(0, 0)])
    assert choose_ports([(0, free)]) == [free]
    with socket.create_server(("127.0.0.1", free)):
        (other,) = choose_ports([(0, free)])
        assert other not in (0, free)


def test_a_requested_port_in_use_is_an_error_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SandboxError, match=f"port {port} of 127.0.0.1 is in use"):
            choose_ports([(port, 0)])


@pytest.mark.parametrize(
    ("url", "port"), [("http://127.0.0.1:8080/metrics", 8080), ("http://x", 0), (None, 0), ("http://x:y", 0)]
)
def test_the_port_of_a_url(url: str | None, port: int) -> None:
    assert port_of(url) == port


def test_a_second_sandbox_on_a_folder_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    second = (
        "import sys; from pathlib import Path\n"
        "from queuectl.sandbox.endpoints import locked\n"
        "with locked(Path(sys.argv[1])): pass\n"
    )
    command = [sys.executable, "-c", second, str(tmp_path / "data")]
    with locked(tmp_path / "data"):
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert f"runs on {tmp_path / 'data'} already (process {os.getpid()})" in refused.stderr
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_the_error_names_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match=r"can't be used: .*--data"), locked(tmp_path / "file" / "data"):
        pass
