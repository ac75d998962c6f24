"""The sandbox's example for minutes, and again after a restart: `make test-demo`.

Each sight must happen twice before the restart and twice after it, in real time. At the end of each run all
workloads, Jobs and pods must be those of one round, and `queuectl verify` must find the ledger equal to its
history. Exit status 1: it was not so.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from queuectl.sandbox import example
from tests.acceptance.demo.play import Played
from tests.acceptance.demo.sights import Sight, missing
from tests.acceptance.e2e.site import Site
from tests.integration.ledger.places import reachable_folder

_TIMES: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.acceptance.demo", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of the first run (default: 10)")
    parser.add_argument("--after", type=float, default=4, help="minutes after the restart (default: 4)")
    parser.add_argument("--control-plane", choices=["small", "real"], default="small")
    parser.add_argument("--data", type=Path, help="an empty folder, which stays (default: a temporary one)")
    options = parser.parse_args(arguments)
    with nullcontext(options.data) if options.data else reachable_folder() as folder:
        played = Played(folder / "data", options.control_plane, 1.0)
        wrong = asyncio.run(_play(played, [options.minutes * 60, options.after * 60]))
    for one in wrong:
        print(f"WRONG {one}")
    return 1 if wrong else 0


async def _play(played: Played, parts: Sequence[float]) -> list[str]:
    wrong: list[str] = []
    for number, seconds in enumerate(parts, 1):
        before = played.watcher.seen.copy()
        async with played.running():
            await _watch(played, seconds)
            seen = played.watcher.seen - before
            _tell(f"run {number}, {seconds / 60:g} minutes on {played.control_plane}", seen)
            wrong += [f"run {number}: {sight}: {seen[sight]} times" for sight in missing(seen, _TIMES)]
            wrong += await _stuck(played)
            print((await played.verified()).strip())
    return wrong + played.watcher.broken


async def _watch(played: Played, seconds: float) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(2)
        await played.watch()


async def _stuck(played: Played) -> list[str]:
    """What is there of an earlier round, or twice."""
    wrong: list[str] = []
    present = [one for one in await played.workloads() if one["phase"] not in ("Finished", "Deleted")]
    times = Counter((one["namespace"], one["name"]) for one in present)
    wrong += [f"{'/'.join(name)} is there {count} times" for name, count in times.items() if count > 1]
    objects = await _objects(played)
    limits = {"jobs": len(example.jobs()), "pods": 40}
    wrong += [
        f"{objects[kind]} {kind}: a round has {most}" for kind, most in limits.items() if objects[kind] > most
    ]
    counts = ", ".join(f"{count} {kind}" for kind, count in objects.items())
    print(f"{played.after} decisions, {len(present)} workloads wait or run, {counts}")
    print(f"in use: {played.watcher.holding}")
    return wrong


async def _objects(played: Played) -> dict[str, int]:
    """How many objects of some kinds the API server has."""
    paths = {"jobs": "/apis/batch/v1/jobs", "pods": "/api/v1/pods", "events": "/api/v1/events"}
    async with Site(played.folder, played.control_plane).client() as api:
        return {kind: len((await api.request("GET", path))["items"]) for kind, path in paths.items()}


def _tell(title: str, seen: Counter[Sight]) -> None:
    print(title)
    for sight in Sight:
        print(f"{seen[sight]:5} {sight}")


if __name__ == "__main__":
    sys.exit(main())
