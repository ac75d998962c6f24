"""How many examples property tests try: few by default, HYPOTHESIS_PROFILE=ci in CI, or =long."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, database=None)
settings.register_profile(
    "quick",
    max_examples=30,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.generate],
)
# The default: the same few examples each time, and what fails is made smaller.
settings.register_profile("short", settings.get_profile("ci"), max_examples=30)
# As ci, and what fails is not made smaller: for those who ask only whether something does.
settings.register_profile("first", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.register_profile("long", max_examples=5000, deadline=None)

SEQUENCES = {"ci": 1.0, "short": 0.3, "first": 0.3, "quick": 0.3, "long": 11.0}
"""Of random lives of whole worlds, in shares of what CI plays (some 2,000)."""


def load() -> None:
    settings.load_profile(_chosen())


def sequences(number: int) -> settings:
    """That many in CI, and as many times more as the profile says."""
    return settings(max_examples=round(number * SEQUENCES[_chosen()]))


def _chosen() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", "short")
