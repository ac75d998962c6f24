"""The command line."""

from __future__ import annotations

import argparse
import time

from tests.world.schedule import schedule
from tests.world.world import play_schedule


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.world")
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--story", action="store_true")
    given = parser.parse_args()
    begun, virtual, violations = time.monotonic(), 0.0, 0
    for seed in range(given.seed, given.seed + given.schedules):
        outcome = play_schedule(schedule(seed))
        virtual += outcome.seconds
        if given.story:
            print("\n".join(outcome.story))
        if outcome.violations:
            violations += 1
            print(f"seed {seed}:")
            for text in outcome.violations[:8]:
                print(f"  {text}")
    seconds = time.monotonic() - begun
    print(
        f"{60 * given.schedules / seconds:.0f} schedules a minute, "
        f"{virtual / 3600 / seconds:.2f} virtual hours a second"
    )
    print(f"{given.schedules} schedules, violations: {violations}")
    return 1 if violations else 0
