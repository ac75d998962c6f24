"""The command line of `python -m tests.fuzz`."""

from __future__ import annotations

import argparse
import gc
import logging
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final, NamedTuple

from tests.fuzz.targets import TARGETS, Target

ROW: Final = "{:20}{:>9}{:>12}"
"""Of a table of instruments."""
_SHOWN: Final = 3


class Violation(NamedTuple):
    target: str
    case: int
    text: str


def main() -> int:
    """Returns the exit status: 1 if there is any violation."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU, for each place, default 60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", help="only the one with this name")
    parser.add_argument("--case", type=int, help="only this one, and print its input")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    targets = [one for one in TARGETS if given.target in (None, one.name)]
    if not targets:
        parser.error(f"targets: {', '.join(one.name for one in TARGETS)}")
    if given.case is not None:
        for target in targets:
            print(repr(target.make(_random(target, given.seed, given.case))))
            print(played(target, given.seed, given.case))
        return 0
    print(ROW.format("instrument", "cases", "violations"))
    return 1 if fuzzed(targets, given.seconds, given.seed) else 0


def fuzzed(targets: Sequence[Target], seconds: float, seed: int, *, slower: float = 1.0) -> int:
    """Print a row for each target; each place gets `seconds` of CPU. Returns the number of violations."""
    total, shares = 0, Counter(target.place for target in targets)
    for target in targets:
        target.make(Random(0))  # reads the examples
        begun, violations = time.process_time(), list[Violation]()
        for case in count():
            if time.process_time() - begun > seconds / shares[target.place]:
                break
            if found := played(target, seed, case, slower=slower):
                violations.append(found)
        print(ROW.format(target.name, case, len(violations)), flush=True)
        for one in violations[:_SHOWN]:
            print(f"  case {one.case}: {one.text}")
            print(f"  again: python -m tests.fuzz --seed {seed} --target {one.target!r} --case {one.case}")
        total += len(violations)
    return total


def played(target: Target, seed: int, case: int, *, slower: float = 1.0) -> Violation | None:
    """Give one input to a target: the same seed and case give the same input.

    `slower`: by how much more than the target's bound it may take, on a machine with other work.
    """
    most = target.most * slower
    for _ in range(5):  # other work on the machine adds to a measurement
        given = target.make(_random(target, seed, case))
        gc.disable()
        begun = time.process_time()
        try:
            problem = target.read(given)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            seconds = time.process_time() - begun
            gc.enable()
        if problem is not None:
            return Violation(target.name, case, problem[:300])
        if seconds <= most:
            return None
    return Violation(target.name, case, f"{seconds * 1000:.0f} ms, at most {most * 1000:.0f}")


def _random(target: Target, seed: int, case: int) -> Random:
    return Random(f"{target.name} {seed} {case}")
