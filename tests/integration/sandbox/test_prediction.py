"""What queuectl says of gangs that fit, or do not, is what the sandbox's scheduler finds (M1)."""

from __future__ import annotations

import pytest

from tests.integration.sandbox.prediction import play

GANGS = 400


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", [1, 2])
async def test_less_than_one_in_a_hundred_predictions_is_wrong(seed: int, figures: list[str]) -> None:
    found = await play(seed, GANGS, 60)
    figures.append(f"predictions with seed {seed}: {found}")
    assert min(found.fit, found.no_fit) >= GANGS // 10, "both happen"
    assert found.wrong_fit <= found.fit / 100
    assert found.wrong_no_fit <= found.no_fit / 100
