"""Malformed input, schedules of the simulated system and crashes at its writes, as one table.

`python -m tests.instruments [--seconds 120] [--schedules 10000] [--every 1]`
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tests.fuzz.command import ROW, fuzzed
from tests.fuzz.targets import TARGETS
from tests.world.aimed import AIMED
from tests.world.command import crashed, played, tell_coverage, tell_violations
from tests.world.crash_points import awaits
from tests.world.on_postgres import played_on_postgres
from tests.world.world import Outcome

HEAD: Final = ROW.format("instrument", "cases", "violations")
ON_POSTGRES: Final = 50
"""Of the schedules, every so many-th is played on Postgres too."""


def main() -> int:
    """Returns the exit status: 1 if there is any violation."""
    parser = argparse.ArgumentParser("python -m tests.instruments", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of CPU for each place of tests.fuzz")
    parser.add_argument("--schedules", type=int, default=10_000, help="default 10000")
    parser.add_argument("--seed", type=int, default=1, help="of the first, default 1")
    parser.add_argument("--every", type=int, default=1, help="crash at each write, or each EVERYth")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(HEAD, flush=True)
    violations = fuzzed(TARGETS, given.seconds, given.seed)
    seeds = range(given.seed, given.seed + given.schedules)
    violations += row("schedules", played(seeds, os.cpu_count() or 1), coverage=True)
    violations += row("on Postgres too", played_on_postgres(seeds[::ON_POSTGRES]), shrink=False)
    violations += row("crash points", crashed(given.every, AIMED, set(awaits())), tell=False)
    return 1 if violations else 0


def row(
    name: str,
    outcomes: Iterable[Outcome],
    *,
    tell: bool = True,
    shrink: bool = True,
    coverage: bool = False,
) -> int:
    """Print a row, after what is told of violations; returns their number."""
    cases = violations = 0
    met: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        cases += 1
        met.update(outcome.met)
        if outcome.violations:
            violations += 1
            if tell:
                tell_violations(outcome, shrink=shrink)
    print(ROW.format(name, cases, violations), flush=True)
    if coverage:
        tell_coverage(met, cases)
    return violations


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts have another order in each process otherwise.
        program = [sys.executable, "-m", "tests.instruments", *sys.argv[1:]]
        os.execve(sys.executable, program, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
