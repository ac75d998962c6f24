"""Who asks. Callers are not told apart yet, which is why REST listens on loopback only."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Caller:
    """`namespaces`: those whose workloads he may read; None: all."""

    name: str
    namespaces: frozenset[str] | None = None

    def may_read(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


LOCAL = Caller("local")


async def local(request: web.Request) -> Caller:
    """Everyone who can reach the loopback address may read everything."""
    return LOCAL
