"""Each kind, step by step, on its real operator. The table of the results is at the end of the report."""

from __future__ import annotations

import pytest

from tests.acceptance.operators.matrix import Matrix, Place

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.usefixtures("told")
async def test_a_step_of_a_kind(matrix: Matrix, place: Place) -> None:
    await matrix.result(place)
