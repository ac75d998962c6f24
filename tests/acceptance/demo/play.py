"""A sandbox with its example, headless, and what the ledger has of it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.acceptance.demo.sights import Watcher

_RUN: Final = """
import asyncio, sys
from pathlib import Path
from queuectl.app.sandbox import run_sandbox
from queuectl.sandbox.run import SandboxOptions
folder, plane, pace = sys.argv[1:]
options = SandboxOptions(data=Path(folder), control_plane=plane, headless=True, pace=float(pace))
sys.exit(asyncio.run(run_sandbox(options)))
"""
_UP_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 60.0


@dataclass
class Played:
    """One data folder over several runs of the sandbox."""

    folder: Path
    control_plane: str
    pace: float
    watcher: Watcher = field(default_factory=Watcher)
    after: int = 0
    """Sequence of the last decision that was watched."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """The sandbox, until the end of the block; then it is stopped, if it still runs."""
        killed = self._endpoints_since()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _RUN, str(self.folder), self.control_plane, str(self.pace)),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_UP_SECONDS):
                while self._endpoints_since() in (None, killed):
                    if process.returncode is not None:
                        raise AssertionError(f"the sandbox ended with {process.returncode}")
                    await asyncio.sleep(0.1)
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()

    def _endpoints_since(self) -> int | None:
        """When the endpoints were written; one that was killed leaves them."""
        try:
            return (self.folder / "endpoints.json").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    @property
    def rest(self) -> str:
        url: str = json.loads((self.folder / "endpoints.json").read_text())["rest"]
        return url

    async def watch(self) -> None:
        """Read all decisions since the last call."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            more: str | None = ""
            while more is not None:
                path = f"{self.rest}/api/v1/decisions?limit=500&after={self.after}"
                async with session.get(path) as answer:
                    page = await answer.json()
                self.watcher.watch(page["items"])
                if page["items"]:
                    self.after = page["items"][-1]["sequence"]
                more = page["next"]

    async def workloads(self) -> list[dict[str, Any]]:
        """All workloads that REST lists, finished ones too."""
        return await self.listed("workloads?limit=500")

    async def listed(self, what: str) -> list[dict[str, Any]]:
        """The items of an answer of REST."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
            session.get(f"{self.rest}/api/v1/{what}") as answer,
        ):
            assert answer.status == 200, await answer.text()
            items: list[dict[str, Any]] = (await answer.json())["items"]
            return items

    async def verified(self) -> str:
        """What `queuectl verify` prints. Fails with it, if the ledger and its history differ."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "queuectl", "verify", "--data", str(self.folder)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()
