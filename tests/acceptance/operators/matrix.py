"""The matrix of kinds and steps: the cells that are tried, and the table of their results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tests.acceptance.operators.cells import cell
from tests.acceptance.operators.kinds import BY_NAME, SUBJECTS
from tests.acceptance.operators.outage import OUTAGE, evict_in_an_outage
from tests.acceptance.operators.site import Site
from tests.acceptance.operators.steps import STEPS
from tests.acceptance.operators.subjects import Subject

AT_ONCE: Final = 12
"""Cells under way at one time. Each mostly waits for an operator; with more of them all are slower on two
cores, until one misses its deadline."""

OF_A_VERSION: Final = frozenset(
    {
        "created suspended",
        "child passes the gate",
        "charged as the pods really are",
        "started with flavor directives",
        "resumed while still suspending",
    }
)
"""Steps that are tried on each further version of an operator: they depend on how it merges our patches.

All others depend on what queuectl, Kubernetes and JobSet do, and are tried on the first version.
"""


class Place(NamedTuple):
    """One cell: the name of a row, and a step."""

    kind: str
    step: str


def without_meaning(subject: Subject, step: str) -> str | None:
    """Why a step can't be tried on a kind; None: it is tried."""
    return subject.without.get(step)


def places(site: str) -> list[Place]:
    """All cells of a site."""
    return [
        Place(subject.row.name, step)
        for step in (*STEPS, OUTAGE)
        for subject in SUBJECTS
        if subject.on(site) and without_meaning(subject, step) is None
        if subject.site == site or step in OF_A_VERSION
    ]


class Matrix:
    """The chosen cells of one site, all at one time; each test waits for the result of its own."""

    def __init__(self, site: Site, chosen: Iterable[Place]) -> None:
        self._site = site
        free, places = asyncio.Semaphore(AT_ONCE), list(chosen)
        self._results = {
            place: asyncio.ensure_future(self._run(place, free))  # noqa: TID251 (several tests wait for them)
            for place in places
            if place.step != OUTAGE
        }
        kinds = [place.kind for place in places if place.step == OUTAGE]
        self._outage = asyncio.ensure_future(self._run_outage(kinds))  # noqa: TID251 (several tests wait)

    async def result(self, place: Place) -> None:
        """Raises what went wrong."""
        if place.step != OUTAGE:
            await self._results[place]
        elif (error := (await self._outage).get(place.kind)) is not None:
            raise error

    async def end(self) -> None:
        tasks = [*self._results.values(), self._outage]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_outage(self, kinds: list[str]) -> dict[str, BaseException]:
        """After all other cells: these need their operators."""
        await asyncio.gather(*self._results.values(), return_exceptions=True)
        return await evict_in_an_outage(self._site, [BY_NAME[kind] for kind in kinds]) if kinds else {}

    async def _run(self, place: Place, free: asyncio.Semaphore) -> None:
        async with free, cell(self._site, BY_NAME[place.kind], place.step) as found:
            await STEPS[place.step](found)


def table(outcomes: Mapping[tuple[str, str], str]) -> list[str]:
    """The results as lines; `outcomes`: pytest's word by kind and step."""
    steps = [*STEPS, OUTAGE]
    width = max(len(subject.row.name) for subject in SUBJECTS)
    lines = [f"{number:>2} {step}" for number, step in enumerate(steps, 1)]
    lines.append(f"{'':{width}} " + " ".join(f"{number:>4}" for number in range(1, len(steps) + 1)))
    reasons: dict[str, list[str]] = {}
    for subject in SUBJECTS:
        words = []
        for number, step in enumerate(steps, 1):
            why = without_meaning(subject, step)
            if why is not None:
                reasons.setdefault(f"{number} {why}", []).append(subject.row.name)
            words.append("n/a" if why is not None else _word(subject, outcomes.get((subject.row.name, step))))
        lines.append(f"{subject.row.name:{width}} " + " ".join(f"{word:>4}" for word in words))
    return [*lines, *(f"n/a: {why}: {', '.join(kinds)}" for why, kinds in sorted(reasons.items()))]


def _word(subject: Subject, outcome: str | None) -> str:
    if outcome == "passed":
        return "real" if subject.real else "toy"
    return {None: "-", "failed": "FAIL"}.get(outcome, "-")
