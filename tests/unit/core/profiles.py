"""How many examples property tests try: few by default, all with HYPOTHESIS_PROFILE=ci, more with =long."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, database=None)
# The default: the same few examples each time.
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
# As ci, and without shrinking: for callers that only need to know whether a test fails.
settings.register_profile("first", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.register_profile("long", max_examples=5000, deadline=None)

SEQUENCES = {"quick": 0.05, "first": 0.3, "ci": 1.0, "long": 11.0}
"""Factor of random sequences relative to CI (about 2,000 there)."""


def load() -> None:
    settings.load_profile(_chosen())


def examples(number: int) -> int:
    """Return how many of that many examples in CI the profile tries: fewer by default, at least one."""
    return max(1, round(number * SEQUENCES[_chosen()]))


def sequences(number: int) -> settings:
    """Return settings for that many examples in CI, and proportionally more in larger profiles."""
    return settings(max_examples=examples(number))


def spread(number: int) -> range:
    """Return the numbers below that one in CI, and as many of them as `examples`, far apart, by default."""
    return range(0, max(number, examples(number)), max(1, number // examples(number)))


def _chosen() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", "quick")
