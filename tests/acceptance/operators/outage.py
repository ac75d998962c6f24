"""An eviction while all operators of a site are down, of all kinds at one time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from typing import Final

from queuectl.core.model.workload import Phase
from tests.acceptance.operators.cells import Cell, Work, cell
from tests.acceptance.operators.charges import charged
from tests.acceptance.operators.site import Site
from tests.acceptance.operators.subjects import Subject

OUTAGE: Final = "evicted while the operator is down"


async def evict_in_an_outage(site: Site, subjects: Iterable[Subject]) -> dict[str, BaseException]:
    """The errors, by kind."""
    failed: dict[str, BaseException] = {}

    async def all_of(steps: dict[str, Awaitable[object]]) -> dict[str, object]:
        found = await asyncio.gather(*steps.values(), return_exceptions=True)
        results = dict(zip(steps, found, strict=True))
        failed.update({kind: error for kind, error in results.items() if isinstance(error, BaseException)})
        return {kind: result for kind, result in results.items() if kind not in failed}

    async with AsyncExitStack() as stack:
        cells = [await stack.enter_async_context(cell(site, subject, OUTAGE)) for subject in subjects]
        begun = await all_of({one.subject.row.name: _begin(one) for one in cells})
        works = {kind: work for kind, work in begun.items() if isinstance(work, Work)}
        async with site.operators_stopped():
            await all_of({kind: _evicted(work) for kind, work in works.items()})
        await all_of({kind: _released(work) for kind, work in works.items() if kind not in failed})
    return failed


async def _begin(place: Cell) -> Work:
    work = await place.submit()
    await work.runs()
    return work


async def _evicted(work: Work) -> None:
    """Its pods stay, and so does its hold. Where its webhook is away too, it cannot even be suspended."""
    held = charged(work)
    await work.cell.drain()
    await work.until("it is being evicted", lambda: work.phase is Phase.EVICTING)
    if not work.cell.subject.webhooks:
        await work.until("it is suspended", lambda: work.suspended)
        await work.looked_at()
    assert (work.phase, charged(work)) == (Phase.EVICTING, held)
    assert len(work.running()) == work.cell.subject.pods


async def _released(work: Work) -> None:
    await work.pending()
    assert work.suspended
    assert not work.pods()
