"""How many examples property tests try: few by default, more with HYPOTHESIS_PROFILE=ci, most with =long."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, database=None)
# The default: the same few examples each time.
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
# As ci, and without shrinking: for callers that only need to know whether a test fails.
settings.register_profile("first", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.register_profile("long", max_examples=5000, deadline=None)

SEQUENCES = {"quick": 0.03, "first": 0.3, "ci": 0.3, "long": 11.0}
"""Factor of the numbers that tests give. With 0.3 `make mutants` detects all planted bugs."""


def load() -> None:
    settings.load_profile(_chosen())


def examples(number: int) -> int:
    """Return how many examples the profile tries for that number: at least one."""
    return max(1, round(number * SEQUENCES[_chosen()]))


def sequences(number: int) -> settings:
    """Return settings with as many examples as `examples` says."""
    return settings(max_examples=examples(number))


def spread(number: int) -> range:
    """Return as many of the numbers below that one as `examples` says, far apart; all in larger profiles."""
    return range(0, max(number, examples(number)), max(1, number // examples(number)))


def _chosen() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", "quick")
