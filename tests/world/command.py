"""The command line of `python -m tests.world`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from statistics import median

from tests.world.aimed import AIMED, NEVER
from tests.world.crash_points import SCHEDULE, Await, CrashPoint, awaits, crash_points
from tests.world.on_postgres import played_on_postgres
from tests.world.planted import BUGS, PlantedBug, planted
from tests.world.schedule import CELLS, LEAST, PHASES, Schedule, schedule
from tests.world.shrink import shrunk
from tests.world.world import Outcome, play_schedule

_SHOWN = 6
_MANY = 100


def main() -> int:
    """Returns the exit status: 1 if there is any violation, or a planted bug that no schedule detects."""
    parser = argparse.ArgumentParser("python -m tests.world", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100, help="how many, default 100")
    parser.add_argument("--seed", type=int, default=1, help="of the first, default 1")
    parser.add_argument("--workers", type=int, default=1, help="processes, default 1")
    parser.add_argument("--story", action="store_true", help="print who did what when")
    parser.add_argument(
        "--planted", nargs="*", metavar="TEXT", help="plant each bug, or those with this text in their name"
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help=f"print which faults met which phases; done for {_MANY} schedules or more",
    )
    parser.add_argument(
        "--only", metavar="STEPS", help="of one schedule, only the steps with these numbers, such as 0,3"
    )
    parser.add_argument(
        "--crash-points",
        type=int,
        metavar="EVERY",
        help="crash at each write and await of one schedule, or each EVERYth, and at more awaits of others; "
        "`--schedules 0`: of no seeds",
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="repeat what each schedule asked of the ledger on a Postgres: both must end alike",
    )
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.schedules)
    if given.postgres:
        return _told(played_on_postgres(seeds), given.story, given.coverage, shrink=False)
    if given.crash_points is not None:
        return _crash(given.crash_points, seeds)
    if given.planted is not None:
        return _plant(
            [bug for bug in BUGS if all(text in bug.name for text in given.planted)], seeds, given.workers
        )
    if given.only is not None:
        kept = [int(number) for number in given.only.split(",") if number]
        return _told(map(play_schedule, [schedule(given.seed).only(kept)]), given.story, given.coverage)
    return _told(played(seeds, given.workers), given.story, given.coverage)


def _told(outcomes: Iterable[Outcome], story: bool, coverage: bool, *, shrink: bool = True) -> int:
    begun, virtual, schedules, violations = time.monotonic(), 0.0, 0, 0
    met: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        schedules += 1
        virtual += outcome.seconds
        met.update(outcome.met)
        if story:
            print(*outcome.story, sep="\n")
        if outcome.violations:
            violations += 1
            tell_violations(outcome, shrink=shrink and not story)
    if coverage or schedules >= _MANY:
        tell_coverage(met, schedules)
    seconds = time.monotonic() - begun
    print(
        f"{60 * schedules / seconds:.0f} schedules a minute, "
        f"{virtual / 3600 / seconds:.2f} virtual hours a second"
    )
    print(f"{schedules} schedules, violations: {violations}")
    return 1 if violations else 0


def tell_violations(outcome: Outcome, *, shrink: bool) -> None:
    """The violations, and the shortest part of the schedule that has them as a story."""
    print(f"seed {outcome.schedule.seed}:", *outcome.violations[:_SHOWN], sep="\n  ", flush=True)
    if shrink:
        shortest = shrunk(outcome)
        print(f"  the shortest part of it, {len(shortest.schedule.steps)} steps:")
        print(*shortest.story, sep="\n    ")
        kept = ",".join(map(str, shortest.schedule.kept))
        print(
            f"  again: python -m tests.world --seed {outcome.schedule.seed} --only {kept!r} --story",
            flush=True,
        )


def tell_coverage(met: Counter[tuple[str, str]], schedules: int) -> None:
    """In how many schedules each kind of fault met a workload in each phase of its life."""
    print(f"{'':20}", *(f"{phase:>9}" for phase in PHASES))
    for kind in dict.fromkeys(kind for kind, _ in CELLS):
        print(f"{kind:20}", *(f"{met[kind, phase]:9}" for phase in PHASES))
    few = [cell for cell in CELLS if met[cell] < LEAST * schedules / 10_000]
    for kind, phase in few:
        print(f"rare: {kind} with a workload that is {phase}, in {met[kind, phase]} schedules")
    print(f"{len(CELLS)} cells, {len(few)} of them in fewer than {LEAST} of 10,000 schedules")


def played(seeds: Iterable[int], workers: int) -> Iterator[Outcome]:
    if workers == 1:
        yield from map(_outcome, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_outcome, seeds, chunksize=10)


def _outcome(seed: int) -> Outcome:
    return play_schedule(schedule(seed))


def _crash(every: int, seeds: range) -> int:
    left = set(awaits())
    outcomes = list(crashed(every, (*AIMED, *map(schedule, seeds)), left))
    violations = sum(1 for outcome in outcomes if outcome.violations)
    for place in sorted(left):
        print(f"no task has waited at {place}: {NEVER.get(place.text, '?')}")
    print(f"{len(awaits())} awaits of the write path, crashed at: {len(awaits()) - len(left)}")
    print(f"{len(outcomes)} crashes, violations: {violations}")
    return 1 if violations or any(place.text not in NEVER for place in left) else 0


def crashed(every: int, others: Iterable[Schedule], left: set[Await]) -> Iterator[Outcome]:
    """The schedule of crash points once for each, or each `every`th, of its writes and awaits; and `others`
    for the awaits in `left` that they pass. What is passed is taken out of `left`. Violations are printed.
    """
    whole = play_schedule(SCHEDULE, watched=True)
    left -= set(whole.waited)
    yield from _crashed(SCHEDULE, crash_points(whole.writes, whole.waited, every))
    for one in others:
        whole = play_schedule(one, watched=True)
        if whole.violations:
            yield whole
        new = [place for place in whole.waited if place in left]
        left -= set(new)
        yield from _crashed(one, crash_points(0, new, every))


def _crashed(schedule: Schedule, points: Iterable[CrashPoint]) -> Iterator[Outcome]:
    for point in points:
        outcome = play_schedule(schedule, point)
        if outcome.violations:
            print(f"{point}:", *outcome.violations[:_SHOWN], sep="\n  ", flush=True)
        yield outcome


def _plant(bugs: list[PlantedBug], seeds: range, workers: int) -> int:
    """Print a table: how many schedules each bug takes until it is detected, and by what.

    Each seed is played with all bugs that are not detected yet.
    """
    left, rows = bugs, list[tuple[int, str, str]]()
    with ProcessPoolExecutor(workers) as pool:
        for number, seed in enumerate(seeds, start=1):
            found = pool.map(_violation, map(BUGS.index, left), repeat(seed))
            new = [(number, bug.name, text) for bug, text in zip(left, found, strict=True) if text]
            for row in new:
                print(*row, sep="  ", file=sys.stderr, flush=True)
            rows += new
            left = [bug for bug in left if bug.name not in {name for _, name, _ in rows}]
    print("schedules  planted bug: the first violation")
    for number, name, text in rows:
        print(f"{number:9d}  {name}: {text}")
    for bug in left:
        print(f"        -  {bug.name}: not detected in {len(seeds)} schedules")
    middle = f", median {median(number for number, *_ in rows):g} schedules" if rows else ""
    print(f"{len(bugs)} planted bugs, detected: {len(rows)}{middle}")
    return 1 if left else 0


def _violation(number: int, seed: int) -> str | None:
    """The first violation of a schedule that is played with a planted bug."""
    bug = BUGS[number]
    with planted(bug):
        played = schedule(seed, bug.needs) if bug.aimed is None else replace(AIMED[bug.aimed], seed=seed)
        violations = play_schedule(played).violations
    return violations[0][:160] if violations else None
