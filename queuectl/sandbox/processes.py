"""Child processes that never outlive this process: even its SIGKILL ends them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

from queuectl.sandbox.end_with_parent import PR_SET_PDEATHSIG

_END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
_TAIL_BYTES = 64 * 1024
_POLL_SECONDS = 0.05


class ChildDied(Exception):
    """A child process has ended unexpectedly. The message contains its last log lines."""


class ChildProcess:
    """One running program. Its output goes to its log file."""

    def __init__(self, name: str, log: Path, process: asyncio.subprocess.Process, log_start: int) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._log_start = log_start

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; no effect if it has ended."""
        if self._process.returncode is None:
            # Not `send_signal` of the process: that would take the exit code from who waits for it.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self, deadline: float = 5.0, *, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Signal it to end, and kill it after `deadline` seconds. Returns its exit code."""
        self.send(with_signal)
        try:
            async with asyncio.timeout(deadline):
                return await self.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines that this run printed, without those of an earlier run in the same file."""
        try:
            with self.log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, end - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def death(self) -> ChildDied:
        """The error to raise if it has ended by itself."""
        code = self.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        tail = self.tail()
        return ChildDied(f"{self.name} ended ({how}), log {self.log}" + (f":\n{tail}" if tail else ""))

    def check(self) -> None:
        """Raises ChildDied if it has ended."""
        if self.returncode is not None:
            raise self.death()


def end_with_make() -> None:
    """If make started this process, end with make: its user expects the two to end together."""
    parent = os.getppid()
    try:
        program = Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return
    if program in ("make", "gmake"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # make ended before the call above
            os.kill(os.getpid(), signal.SIGTERM)


async def spawn(
    argv: Sequence[str | Path],
    *,
    name: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: tuple[int, int] | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
) -> ChildProcess:
    """Start a program in a session of its own, so that Ctrl-C in the terminal reaches only this process.

    `env` replaces the whole environment (None: ours). `user`: its uid and gid, only as root; None: ours. The
    kernel sends it `death_signal` when this process ends. Call it from the event loop of the main thread: the
    kernel sends the signal at the end of the thread that forked. A program that can't be executed exits with
    127 and an error in its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    launcher = [sys.executable, "-I", "-S", str(_END_WITH_PARENT), str(os.getpid()), str(int(death_signal))]
    launcher += map(str, user or (-1, -1))
    with log.open("ab") as output:
        start = output.tell()  # from its first line on: the child moves this position
        process = await asyncio.create_subprocess_exec(
            *launcher,
            shutil.which(argv[0], path=None if env is None else env.get("PATH")) or str(argv[0]),
            *(str(argument) for argument in argv[1:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        return ChildProcess(name, log, process, start)


def age() -> float:
    """Seconds since the start of this process, including that of the interpreter."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


async def until_ready(
    url: str, *, check: Callable[[], None], ca_file: Path | None = None, token: str = ""
) -> None:
    """Return once a GET of `url` is answered with 200. `check` raises if it never will be; the caller sets
    the timeout."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=False) as session:
        while True:
            check()
            # A server writes its certificate when it starts: the file may be missing or incomplete.
            with suppress(aiohttp.ClientError, TimeoutError, FileNotFoundError, ssl.SSLError):
                trust = ssl.create_default_context(cafile=str(ca_file)) if ca_file else True
                async with session.get(url, ssl=trust) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(_POLL_SECONDS)
