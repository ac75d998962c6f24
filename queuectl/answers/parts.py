"""Long work of one request in parts: after each part it is the turn of other requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

Item = TypeVar("Item")

SCANNED: Final = 200
"""Workloads in a part, where each is looked at: some milliseconds for those with the most podsets."""


async def in_parts(items: Iterable[Item], size: int = SCANNED) -> AsyncIterator[Item]:
    """All items. Filter them outside: a part counts those that are passed over too."""
    for number, one in enumerate(items, start=1):
        if number % size == 0:
            await asyncio.sleep(0)
        yield one
