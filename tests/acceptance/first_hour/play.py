"""Types the scenes, and says of each command whether it worked."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from queuectl.sandbox.endpoints import Endpoints
from queuectl.sandbox.postgres import DATABASE, USER
from tests.acceptance.first_hour.cluster import cluster
from tests.acceptance.first_hour.database import Database, database
from tests.acceptance.first_hour.home import Home, home, machine, tools
from tests.acceptance.first_hour.lines import Line
from tests.acceptance.first_hour.scenes import README, REPLACED, SCENES, How, Scene, how
from tests.acceptance.first_hour.shell import Running, Shell, Stuck, running, shell

PASSWORD: Final = "secret-of-the-ledger"
LINE_SECONDS: Final = 600.0
"""For one command; the longest installs all packages."""
TRY_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Typed:
    """One command, and how it went."""

    line: Line
    seconds: float
    problem: str = ""
    left_out: str = ""
    """Why it is not typed here."""

    def __str__(self) -> str:
        first, _, more = self.line.text.partition("\n")
        how = "FAILED" if self.problem else "-" if self.left_out else "ok"
        text = f"{how:6}  {self.line.place:19}  {first}{' …' if more else ''}"
        return "\n".join(filter(None, (text, self.problem, self.left_out)))


Tell = Callable[[Typed], None]


async def play(
    folder: Path, kind: str, tell: Tell, scenes: Iterable[Scene] = SCENES, *, pipx: bool = True
) -> list[Typed]:
    """All scenes on control planes of one kind; each document is of a newcomer with an empty home."""
    found: list[Typed] = []
    bin_folder = await asyncio.to_thread(tools, folder / "tools", pipx=pipx)
    chosen = list(scenes)
    for number, document in enumerate(dict.fromkeys(scene.document for scene in chosen)):
        async with database(folder / f"database-{number}") as own:
            place = await asyncio.to_thread(home, folder / f"home-{number}", bin_folder, own.sockets)
            for scene in (one for one in chosen if one.document == document):
                async with _stage(folder, kind, place, own, scene) as stage:
                    found += await _typed(stage, scene, kind, tell)
    return found


class Stage:
    """A shell in a checkout, and what runs beside it."""

    def __init__(self, place: Home, keyboard: Shell, environment: Mapping[str, str], own: Database) -> None:
        self._place = place
        self._shell = keyboard
        self._environment = environment
        url = f"postgresql://{USER}:{PASSWORD}@{own.host}/{DATABASE}"
        self._known = {"url": url, "host": own.host, "password": PASSWORD}
        self._beside: dict[str, Running] = {}

    async def type(self, line: Line) -> str:
        """What is wrong; empty: nothing."""
        told = how(line)
        try:
            if told.before:
                code, said = await self._shell.type(self._filled(told.before), seconds=LINE_SECONDS)
                if code:
                    return f"before it: {told.before}: exit code {code}\n{said}"
            command = self._filled(_as_typed(line, told))
            return await (self._start(command, told) if told.until else self._end(command, line, told))
        except (AssertionError, Stuck) as problem:
            return str(problem)

    async def _start(self, command: str, told: How) -> str:
        """A program that does not end by itself; the last one of its name is stopped before."""
        name = " ".join(command.split()[:2])
        await self._stop(name)
        log = self._place.folder / f"{name.replace(' ', '-')}.log"
        one = await running(command, self._place.checkout, log, {**self._environment, **told.environment})
        self._beside[name] = one
        await one.says(told.until, LINE_SECONDS)
        if not told.goes_on:
            await self._stop(name)
        return ""

    async def _stop(self, name: str) -> None:
        if name in self._beside:
            await self._beside.pop(name).stop()

    async def end(self) -> None:
        for name in list(self._beside):
            await self._stop(name)

    async def _end(self, command: str, line: Line, told: How) -> str:
        exports = "".join(f"{name}={shlex.quote(value)} " for name, value in told.environment.items())
        answers = self._filled(told.answers)
        end = time.monotonic() + (TRY_SECONDS if told.tries else 0)
        if told.terminal:
            command = f"script --quiet --return --command {shlex.quote(command)} /dev/null"
        while True:
            code, said = await self._shell.type(exports + command, answers=answers, seconds=LINE_SECONDS)
            problem = f"exit code {code}\n{said}" if code != told.exits else _unlike(line.prints, said)
            if not problem or time.monotonic() > end:
                return problem
            await asyncio.sleep(_PAUSE_SECONDS)

    def _filled(self, text: str) -> str:
        """With what is known of the site."""
        rest = Endpoints.read(self._place.sandbox)
        for name, value in {**self._known, "rest": rest.rest if rest else ""}.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def _as_typed(line: Line, told: How) -> str:
    text = line.text
    for written, meant in REPLACED.items():
        text = text.replace(written, meant)
    return text + told.add


def _unlike(expected: str, said: str) -> str:
    """What is wrong with an output that is to have a line like this, apart from its numbers and spaces."""

    def shape(text: str) -> str:
        return re.sub(r"\d+", "N", " ".join(text.split()))

    found = not expected or shape(expected) in map(shape, said.splitlines())
    return "" if found else f"it does not print: {expected}\n{said}"


@asynccontextmanager
async def _stage(folder: Path, kind: str, place: Home, own: Database, scene: Scene) -> AsyncIterator[Stage]:
    environment = dict(place.environment)
    async with AsyncExitStack() as stack:
        if scene.cluster:
            await own.cleared()
            inside = folder / f"{kind}-{scene.name}-{len(list(folder.iterdir()))}".replace(" ", "-")
            await stack.enter_async_context(cluster(inside, place.kubeconfig, kind, own, machine()))
        else:
            environment |= {
                "QUEUECTL_DATA": str(place.sandbox),
                "KUBECONFIG": str(place.sandbox / "kubeconfig"),
            }
        if scene.document == README:
            await own.with_owner(PASSWORD)
        keyboard = await stack.enter_async_context(shell(place.folder, place.checkout, environment))
        stage = Stage(place, keyboard, environment, own)
        stack.push_async_callback(stage.end)
        yield stage


async def _typed(stage: Stage, scene: Scene, kind: str, tell: Tell) -> list[Typed]:
    found = []
    for line in scene.lines():
        left_out = how(line).not_on_small if kind == "small" else ""
        begun = time.monotonic()
        problem = "" if left_out else await stage.type(line)
        found.append(Typed(line, round(time.monotonic() - begun, 1), problem, left_out))
        tell(found[-1])
    return found
