"""One run of one kind of faults: traffic and faults, then healing, then judgement."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console

from tests.acceptance.chaos.faults import Controllers, Faults
from tests.acceptance.chaos.traffic import GPUS, Traffic
from tests.acceptance.chaos.witness import Witness
from tests.acceptance.e2e.plant import Plant
from tests.acceptance.e2e.site import eventually

_RECOVERS: Final = 90.0
"""Seconds after a fault in which the ledger must have a new decision."""
_STUCK: Final = 120.0
"""Seconds without the end of any workload after which the rest is stuck."""
_NO_DECISION: Final = f"no decision within {_RECOVERS:g} s"
_TROUBLE: Final = "Traceback (most recent call last)"


@dataclass
class Outcome:
    kind: str
    seed: int
    faults: list[tuple[str, float | None]] = field(default_factory=list)
    """Each fault, and the seconds until the next decision; None: there was none in time."""
    wrong: list[str] = field(default_factory=list)
    """Invariants that do not hold."""


class Chaos:
    """One run of one kind."""

    def __init__(
        self,
        site: Plant,
        witness: Witness,
        controllers: Controllers,
        faults: Faults,
        traffic: Traffic,
        console: Console,
    ) -> None:
        self._console = console
        self._site = site
        self._witness = witness
        self._controllers = controllers
        self._faults = faults
        self._traffic = traffic
        self._now = asyncio.get_running_loop().time
        self._begun = self._now()

    def _say(self, text: str) -> None:
        self._console.print(f"{self._now() - self._begun:6.0f} s  {text}", highlight=False)

    async def disturbed(self, outcome: Outcome, seconds: float) -> None:
        """Faults, one after another, while the traffic flows."""
        self._say(f"{outcome.kind}, seed {outcome.seed}")
        await self._controllers.keep()
        await self._controllers.leader()
        end = self._now() + seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._traffic.submit())
            tasks.create_task(self._traffic.disturb())
            while self._now() < end:
                name, since = await self._faults.one(outcome.kind)
                gap = await self._recovery(since)
                outcome.faults.append((name, gap))
                told = _NO_DECISION if gap is None else f"next decision after {gap:.1f} s"
                self._say(f"{name}: {told}; {self._progress()}")
                if gap is None:
                    outcome.wrong.append(f"{name}: {_NO_DECISION}")
            self._traffic.stop.set()
        await self._controllers.keep()

    def _progress(self) -> str:
        left, live = len(self._witness.unfinished()), self._witness.live
        return f"{left} of {len(self._witness.names)} not over, live pods have {live} of {GPUS} GPUs"

    async def _recovery(self, since: object) -> float | None:
        async def look() -> float | None:
            await self._controllers.keep()  # one that has lost its lease has ended
            gap = await self._site.ask(
                "SELECT extract(epoch FROM min(now) - $1::timestamptz) FROM queuectl.decision "
                "WHERE now > $1 AND verdict IN ('Queued', 'Admitted')",
                since,
            )
            return None if gap is None else float(gap)

        try:
            found: float = await eventually("the next decision", look, _RECOVERS, 0.2)
        except AssertionError:
            return None
        return found

    async def healed(self, outcome: Outcome) -> None:
        """All work must end; how long that takes depends on how much is left."""
        begun = self._now()
        self._say("healing")
        await self._traffic.heal()
        before, since = len(self._witness.over), begun
        while left := self._witness.unfinished():
            await asyncio.sleep(1)
            if len(self._witness.over) > before:
                before, since = len(self._witness.over), self._now()
            elif self._now() - since > _STUCK:
                outcome.wrong.append(f"{len(left)} workloads are not over, none ends: {', '.join(left[:5])}")
                return
            if int(self._now() - begun) % 15 == 0:
                self._say(self._progress())
        self._say(f"all {len(self._witness.names)} over {self._now() - begun:.0f} s after the faults")

    async def judged(self, outcome: Outcome) -> None:
        witness, wrong = self._witness, outcome.wrong
        wrong += [f"started twice: {one}" for one in witness.double_starts()]
        for excess in witness.excesses[:3]:
            wrong.append(f"live pods had {excess.gpus} of {GPUS} GPUs:\n    " + "\n    ".join(excess.pods))
        if not wrong:
            await self._nothing_left(wrong)
        verified = await self._site.run(
            *(sys.executable, "-m", "queuectl", "verify", "--database-url", self._site.postgres.url)
        )
        if verified.code:
            wrong.append(f"verify: {verified.out}{verified.err}")
        stopped = await self._site.ask(
            "SELECT count(*) FROM queuectl.decision WHERE verdict = 'Evicted' AND reason->>'code' = 'Bypass'"
        )
        if stopped:
            wrong.append(f"{stopped} evictions are blamed on another client")
        for name in self._controllers.running():
            log = self._site.log(name)
            wrong += [f"{name} logged: {_TROUBLE}{text[:4000]}" for text in log.split(_TROUBLE)[1:]]
        self._sum_up(outcome)

    async def _nothing_left(self, wrong: list[str]) -> None:
        """The ledger must follow the cluster within some seconds."""
        questions = {
            "workloads open": "SELECT count(*) FROM queuectl.workload WHERE open",
            "effects open": "SELECT count(*) FROM queuectl.effect WHERE open",
            "holds open": "SELECT count(*) FROM queuectl.hold_line WHERE open",
        }
        for name, question in questions.items():

            async def look(question: str = question) -> bool:
                return not await self._site.ask(question)

            try:
                await eventually(name, look, 60)
            except AssertionError:
                wrong.append(f"{name} in the ledger: {await self._site.ask(question)}")

    def _sum_up(self, outcome: Outcome) -> None:
        gaps = sorted(gap for _, gap in outcome.faults if gap is not None)
        recovery = f"{gaps[len(gaps) // 2]:.1f} s (median), {gaps[-1]:.1f} s (worst)" if gaps else "none"
        worst: dict[str, float] = {}
        for name, gap in outcome.faults:
            worst[name] = max(worst.get(name, 0.0), _RECOVERS if gap is None else round(gap, 1))
        witness = self._witness
        self._say(
            f"{outcome.kind}, seed {outcome.seed}: {len(outcome.faults)} faults, "
            f"{len(witness.names)} workloads, {witness.starts} starts, {len(witness.double_starts())} twice, "
            f"at most {witness.peak} of {GPUS} GPUs; recovery {recovery}; "
            f"exits of controllers {dict(self._controllers.exits)}"
        )
        self._say(f"worst recovery by fault: {worst}")
