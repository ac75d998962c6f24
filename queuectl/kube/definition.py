"""The CustomResourceDefinition of one kind: is it installed, and which of its versions are served?"""

from __future__ import annotations

import asyncio


class Definition:
    """The CustomResourceDefinition of one kind."""

    def __init__(self, version: str, doubted: asyncio.Event) -> None:
        """`doubted` is set to have discovery asked again."""
        self.version = version
        """That is asked for."""
        self.versions: tuple[str, ...] | None = None
        """Served ones, none of a kind that is not installed; None: not known."""
        self.there: bool | None = None
        """Is it installed? None: not known."""
        self._doubted = doubted
        self._moved = asyncio.Event()

    @property
    def served(self) -> bool:
        return self.versions is not None and self.version in self.versions

    @property
    def problem(self) -> str | None:
        """Why an installed kind is not served in the version that is asked for."""
        if self.versions is None or self.served or not self.there:
            return None
        served = ", ".join(self.versions) or "no version"
        return f"its definition serves {served}, not {self.version}"

    def settle(self, there: bool | None, versions: tuple[str, ...] | None) -> None:
        if (there, versions) != (self.there, self.versions):
            self.there, self.versions = there, versions
            self._moved.set()

    async def changed(self, seconds: float | None = None) -> bool:
        """Wait for a change since the last call, at most so long. Returns whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return False
        self._moved.clear()
        return True

    def doubt(self) -> None:
        """The server does not know the kind, whatever was said before."""
        self._doubted.set()
