"""The example on the small API, in short time, and after a restart."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

from queuectl.core.model.reasons import Code
from queuectl.sandbox import example
from tests.acceptance.demo.play import Played
from tests.acceptance.demo.sights import missing
from tests.integration.ledger.places import reachable_folder
from tests.integration.sandbox.polling import eventually

PACE = 0.3
ACCOUNTED = (
    *(f"usage?by={names}" for names in ("user", "user,project", "cost-center", "class,flavor")),
    *("usagelimits", "budgets", "statements", "preemptions"),
)
"""What answers at once."""
LIMITS = {one.value for one in Code if "UsageLimit" in one or "Budget" in one}
SECONDS = 120
"""Deadline of each part: some rounds on a machine that does much else."""


async def all_sights(played: Played) -> None:
    """Wait until each happened since the last call."""
    before = played.watcher.seen.copy()
    try:
        async with asyncio.timeout(SECONDS):
            while missing(played.watcher.seen - before, 1):
                await asyncio.sleep(0.5)
                await played.watch()
    except TimeoutError:
        raise AssertionError(f"not seen: {missing(played.watcher.seen - before, 1)}") from None


async def test_all_sights_happen_again_after_a_kill_and_no_object_of_an_earlier_round_is_left() -> None:
    with reachable_folder() as folder:
        played = Played(folder / "data", "small", PACE)
        async with played.running() as process:
            await all_sights(played)
            rest = played.rest
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with played.running():
            assert played.rest == rest, "its ports stay the same"
            await all_sights(played)
            present = [one for one in await played.workloads() if one["phase"] not in ("Finished", "Deleted")]
            names = [(one["namespace"], one["name"]) for one in present]
            assert len(names) == len(set(names)) <= len(example.jobs())
            assert not played.watcher.broken
            await played.verified()
            for what in ACCOUNTED:  # between two rounds nothing of a limit is used
                await eventually(partial(played.listed, what), what, SECONDS)
            waits = {one["reason"]["code"] for one in await played.workloads() if one["reason"]}
            assert not waits & LIMITS
