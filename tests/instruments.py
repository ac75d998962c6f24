"""Malformed input, schedules of the simulated system and crashes at its writes, as one table.

`python -m tests.instruments [--seconds 660] [--schedules 10000] [--every 1]`
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterable

from tests.fuzz.command import ROW, fuzzed
from tests.fuzz.targets import TARGETS
from tests.world.command import crashed, played, tell_violations
from tests.world.on_postgres import played_on_postgres
from tests.world.world import Outcome


def main() -> int:
    """Returns the exit status: 1 if there is any violation."""
    parser = argparse.ArgumentParser("python -m tests.instruments", description=__doc__)
    parser.add_argument("--seconds", type=float, default=660.0, help="of malformed input, default 660")
    parser.add_argument("--schedules", type=int, default=10_000, help="default 10000")
    parser.add_argument("--seed", type=int, default=1, help="of the first, default 1")
    parser.add_argument("--every", type=int, default=1, help="crash at each write, or each EVERYth")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(ROW.format("instrument", "cases", "violations"), flush=True)
    violations = fuzzed(TARGETS, given.seconds, given.seed)
    seeds = range(given.seed, given.seed + given.schedules)
    violations += _row("schedules", played(seeds, os.cpu_count() or 1), tell=True)
    violations += _row("on Postgres too", played_on_postgres(seeds[::50]), tell=True, shrink=False)
    violations += _row("crash points", crashed(given.every))
    return 1 if violations else 0


def _row(name: str, outcomes: Iterable[Outcome], *, tell: bool = False, shrink: bool = True) -> int:
    cases = violations = 0
    for outcome in outcomes:
        cases += 1
        if outcome.violations:
            violations += 1
            if tell:
                tell_violations(outcome, shrink=shrink)
    print(ROW.format(name, cases, violations), flush=True)
    return violations


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts have another order in each process otherwise.
        program = [sys.executable, "-m", "tests.instruments", *sys.argv[1:]]
        os.execve(sys.executable, program, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
