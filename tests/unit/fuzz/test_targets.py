"""A few malformed inputs of each target. Many more: `python -m tests.fuzz`."""

from __future__ import annotations

from random import Random

import pytest

from queuectl.importers.slurm_script import MOST_CHARACTERS, batch_script
from queuectl.importers.slurm_values import BadValue
from tests.fuzz.command import played
from tests.fuzz.targets import TARGETS, Target

CASES = 40


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_malformed_input_is_read_or_refused_with_a_reason(target: Target) -> None:
    assert [found for case in range(CASES) if (found := played(target, 0, case, slower=6.0))] == []


def test_a_line_of_options_that_takes_quadratic_time_is_refused() -> None:
    line = "#SBATCH --comment=" + "x" * MOST_CHARACTERS
    with pytest.raises(BadValue, match=f"job.sh: line 2: a line of options has at most {MOST_CHARACTERS} "):
        batch_script(f"#!/bin/sh\n{line}\n", "job.sh")


def test_the_same_seed_and_case_give_the_same_input() -> None:
    for target in TARGETS[:5]:
        assert target.make(Random("a 1 2")) == target.make(Random("a 1 2"))
