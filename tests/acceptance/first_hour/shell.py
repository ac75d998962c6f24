"""A user at a shell: commands are typed into one bash; what goes on running has a terminal of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.acceptance.e2e.site import eventually

_STOP_SECONDS: Final = 90.0
_LINE_BYTES: Final = 64 << 20


class Stuck(Exception):
    """A line has not ended in time, or the shell itself has ended. With what was printed."""


class Shell:
    """Use `shell()`."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._answers = folder / "answers"
        self._stuck = False

    async def type(self, command: str, *, answers: str = "", seconds: float) -> tuple[int, str]:
        """Exit code and output of a command. `answers`: what is typed at its prompts. Raises Stuck."""
        if self._stuck:
            raise Stuck("not typed: a command before it has not ended")
        end = secrets.token_hex(8)
        self._answers.write_text(answers)
        stdin = shlex.quote(str(self._answers))
        text = f"{{ {command}\n}} <{stdin} 2>&1\nprintf '\\n{end} %s\\n' $?\n"
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        said: list[str] = []
        try:
            async with asyncio.timeout(seconds):
                return await self._until(end, said)
        except TimeoutError:
            self._stuck = True
            raise Stuck(f"has not ended after {seconds:g} s:\n{''.join(said)}") from None

    async def _until(self, end: str, said: list[str]) -> tuple[int, str]:
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode(errors="replace"):
            if line.startswith(end):
                return int(line.split()[1]), "".join(said).strip()
            said.append(line)
        raise Stuck(f"the shell has ended:\n{''.join(said)}")


@asynccontextmanager
async def shell(home: Path, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Shell]:
    """A bash in `folder`, which ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "--noprofile", "--norc"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        limit=_LINE_BYTES,
        start_new_session=True,
    )
    try:
        found = Shell(process, home)
        # The first command of a pipe counts as well.
        await found.type("set -o pipefail", seconds=30)
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await _end(process)


class Running:
    """A program in a terminal of its own. Use `running()`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    async def says(self, pattern: str, seconds: float) -> None:
        """Raises AssertionError, with the output, if it ends before or does not print it in time."""

        async def look() -> bool:
            if re.search(pattern, self.printed):
                return True
            if self._process.returncode is not None:
                raise AssertionError(f"has ended with exit code {self._process.returncode}:\n{self.printed}")
            return False

        try:
            await eventually(f"it prints {pattern}", look, seconds, pause=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.printed[-4000:]}") from None

    async def stop(self) -> None:
        """As by Ctrl-C."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"\x03")
            await self._process.stdin.drain()
        await _end(self._process)


async def running(command: str, folder: Path, log: Path, environment: Mapping[str, str]) -> Running:
    """A command in `folder`, at a terminal."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("script", "--quiet", "--return", "--flush", "--command", command, "/dev/null"),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**environment, "COLUMNS": "120", "LINES": "40"},
            cwd=folder,
            start_new_session=True,
        )
    return Running(process, log)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for its end; kill its group after a deadline."""
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
