"""What is charged equals what the pods request that the real operators make."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.operators.cells import COVERED, cell
from tests.acceptance.operators.charges import charged, requested
from tests.acceptance.operators.conftest import PROGRAMS
from tests.acceptance.operators.shapes import SHAPES, Shape
from tests.acceptance.operators.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
AT_ONCE = 12


@pytest.mark.parametrize("site", PROGRAMS, ids=lambda name: f"site={name}", indirect=True, scope="session")
async def test_charges_equal_the_requests_of_real_pods(site: Site, figures: list[str]) -> None:
    shapes = [shape for shape in SHAPES if shape.subject.on(site.name)]
    free = asyncio.Semaphore(AT_ONCE)

    async def compare(shape: Shape) -> str | None:
        async with free, cell(site, shape.subject, f"charge {SHAPES.index(shape)}") as place:
            body = shape.subject.of(shape.parts, "w", **shape.settings)
            work = await place.create(body)
            await work.until(f"{shape.pods} pods: {shape.name}", lambda: len(work.running()) == shape.pods)
            real, ours = requested(work.running(), COVERED), charged(work)
            return None if ours == real else f"{shape.subject}, {shape.name}: {ours} instead of {real}"

    wrong = await asyncio.gather(*map(compare, shapes))
    assert not list(filter(None, wrong))
    figures.append(f"charges: {len(shapes)} shapes on site {site.name} equal the requests of their pods")
