"""Endpoints of a sandbox: ports, the files that publish them, and the lock on its folder."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

FILE: Final = "endpoints.json"
_LAST: Final = "last-endpoints.json"

_PORTS: Final = range(20_000, 32_000)
_numbers: Final = itertools.count(os.getpid() * 97)


class SandboxError(Exception):
    """The sandbox can't start or continue; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Whole URLs: metrics with its path, postgres for libpq."""

    kubernetes: str
    rest: str
    metrics: str
    postgres: str

    def write(self, folder: Path) -> None:
        """Write the file that other programs wait for, atomically."""
        write_private(folder / FILE, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path, name: str = FILE) -> Self | None:
        """Endpoints of the sandbox on this folder; None if there is none or the file can't be read."""
        try:
            return cls(**json.loads((folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @classmethod
    def retire(cls, folder: Path) -> Self | None:
        """Remove the file. Returns the endpoints of the last sandbox on this folder."""
        with contextlib.suppress(FileNotFoundError):
            (folder / FILE).replace(folder / _LAST)
        return cls.read(folder, _LAST)


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically, readable only by its owner; its folder is made if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)


def port_of(url: str | None) -> int:
    """0 if there is none."""
    try:
        return urlsplit(url or "").port or 0
    except ValueError:
        return 0


def choose_ports(wanted: list[tuple[int, int]]) -> list[int]:
    """Distinct free ports, each from (the requested port, or 0; the port used before, or 0).

    Raises SandboxError if a requested port is in use.
    """
    held: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for asked, before in wanted:
            listener = (
                _listen(asked) if asked else (_listen(before) if before else None) or listen_on_free_port()
            )
            if listener is None:
                raise SandboxError(f"port {asked} of 127.0.0.1 is in use")
            held.append(stack.enter_context(listener))
        return [int(listener.getsockname()[1]) for listener in held]


def listen_on_free_port() -> socket.socket:
    """Listen on a free port of 127.0.0.1 that stays free while its server restarts.

    It is below the ports that the system gives to clients, and to servers that name none. Processes begin at
    different ports, and none uses a port twice in a row. Raises SandboxError.
    """
    for number in itertools.islice(_numbers, len(_PORTS)):
        if (listener := _listen(_PORTS[number % len(_PORTS)])) is not None:
            return listener
    raise SandboxError(f"all ports of 127.0.0.1 from {_PORTS[0]} to {_PORTS[-1]} are in use")


def _listen(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder for this sandbox until the end of the block or process. Raises SandboxError."""
    try:
        # Under root, Postgres runs as another account, which must enter the folder; its files are private.
        folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
        descriptor = os.open(folder / "sandbox.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SandboxError(f"{folder} can't be used: {error.strerror}. Choose another with --data") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise SandboxError(
                f"a sandbox runs on {folder} already (process {holder or 'unknown'}): "
                "stop it, or choose another folder with --data"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
