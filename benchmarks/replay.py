"""CPU and memory of `queuectl replay` for a simulated week, beside simulating the same days once."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Final

from benchmarks.machine import memory
from benchmarks.months import QUOTA, START, Month, at_once, team
from benchmarks.progress import bar
from benchmarks.report import Figure, Report
from queuectl.answers.replay import ReplayedPast, replayed

MIB: Final = 1 << 20
SIZE: Final = 18
"""Times the load and quota of a month of `eta`: some 20,000 workloads in a week."""
DAYS: Final = 8
"""All but the first are replayed."""


def run(scale: int = 1) -> Report:
    size, days = max(1, SIZE // scale), max(2, DAYS // scale)
    month = Month("stationary", days=days, size=size)
    started = time.process_time()
    month.run()
    simulated = time.process_time() - started
    _, alone = memory(os.getpid())
    since, until = START + timedelta(days=1), START + timedelta(days=days)
    past = ReplayedPast(
        since=since,
        until=until,
        snapshot=at_once(month.ledger.at(since)),
        lives=at_once(month.ledger.past_lives(since=since)),
    )
    done = 0
    started = time.process_time()
    with bar("replay", 100) as advance:

        def progress(part: float) -> None:
            nonlocal done
            advance(int(100 * part) - done)
            done = int(100 * part)

        found = replayed(past, [team("b", QUOTA * size // 2)], progress)
    cpu = Figure(
        name=f"a replay of {found['workloads']:,} workloads: {days - 1} days, played twice",
        value=time.process_time() - started,
        unit="s of CPU",
        ceiling=simulated,
        bound=f"{days} days simulated once, with a ledger in memory",
    )
    _, most = memory(os.getpid())
    peak = Figure(
        name="peak memory, with the ledger",
        value=most / MIB,
        unit="MiB",
        ceiling=alone / MIB,
        bound="before the replay",
    )
    return Report("replay", [cpu, peak])
