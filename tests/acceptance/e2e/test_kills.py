"""Repeated kill -9 of the controller under load: nothing is lost, started twice or leaked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import asyncpg

from queuectl.sandbox.control_plane import CONTROLLER_USER
from queuectl.sandbox.processes import ChildProcess
from tests.acceptance.e2e import audit
from tests.acceptance.e2e.audit import Entry
from tests.acceptance.e2e.site import eventually, job, pod_template
from tests.acceptance.e2e.stand import Stand, ended, killed, stand
from tests.integration.ledger.places import reachable_folder

POLL = 0.004
"""Seconds between two reads of the ledger: an effect is open there for some milliseconds."""
LIFE = 60.0
"""Seconds in which a controller must lead and commit something."""
IN_FLIGHT = 0.08
"""Seconds in which the patches that follow a commit are sent and answered."""
LONGEST = 1.2
"""The most seconds between a controller's first commit and its kill."""


@dataclass(frozen=True)
class Kill:
    at: datetime
    epoch: int
    decisions: int
    """Decisions of the controller that was killed."""
    due: int
    """Effects that it had committed but not acknowledged."""
    unknown: int
    """Those of them that had been applied."""
    started: float
    """Seconds from its start to its first commit."""


async def test_every_job_is_started_once_no_matter_when_the_controller_is_killed(
    control_plane: str, figures: list[str]
) -> None:
    kills, jobs, gpus, every = {"small": (4, 30, 6, 1), "real": (4, 40, 8, 5)}[control_plane]
    random = Random(20)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(1200):
        with reachable_folder() as folder:
            async with stand(folder, control_plane, gpus=gpus) as site:
                begun = loop.time()
                made = await site.submit(
                    job(f"job-{n:03}", template=pod_template(1, _seconds(random, n % every == 0)))
                    for n in range(jobs)
                )
                done = [await _kill(site, random, loop) for _ in range(kills)]
                last = await site.controller()
                await site.all_retired(240)
                await ended(last)
                seconds = loop.time() - begun
                await _nothing_lost(site, [item["metadata"]["uid"] for item in made], done)
                figures.append(_told(site, control_plane, done, jobs, seconds))


def _seconds(random: Random, long: bool) -> float:
    """How long a Job runs: longer than the next controller takes to start, or not."""
    return random.uniform(3.0, 6.0) if long else random.uniform(0.2, 2.5)


async def _kill(site: Stand, random: Random, loop: asyncio.AbstractEventLoop) -> Kill:
    """Start a controller, let it commit something, kill it: at once, during an effect, or some time later."""
    books = await asyncpg.connect(site.postgres.url)
    try:
        before = await books.fetchval("SELECT max(epoch) FROM queuectl.leadership")
        born = loop.time()
        child = await site.controller()
        epoch = await _has_committed(books, child, before or 0)
        started = loop.time() - born
        match random.randrange(5):
            case 0 | 1:
                await _acts(site, books)
            case 2:
                await asyncio.sleep(random.uniform(0.0, IN_FLIGHT))
            case 3:
                await asyncio.sleep(random.uniform(0.0, LONGEST))
            case _:
                pass
        await killed(child)
        at = datetime.now(UTC)  # noqa: TID251 - compared with the times of the audit log
        decisions = await books.fetchval("SELECT count(*) FROM queuectl.decision WHERE epoch = $1", epoch)
        due = await books.fetchval("SELECT count(*) FROM queuectl.effect WHERE open")
        assert await books.fetchval("SELECT epoch FROM queuectl.leadership") == epoch
        return Kill(at, epoch, decisions, due, await _unknown(site, books), started)
    finally:
        await books.close()


async def _has_committed(books: asyncpg.Connection, child: ChildProcess, before: int) -> int:
    """The epoch of the new controller, once it has stored a batch and some start was ever acknowledged."""

    async def look() -> int | None:
        assert child.returncode is None, child.tail()
        found: int | None = await books.fetchval(
            """SELECT max(batch.epoch) FROM queuectl.batch JOIN queuectl.leadership USING (cluster_id, epoch)
               WHERE epoch > $1 AND EXISTS (SELECT FROM queuectl.effect WHERE acknowledged_at IS NOT NULL)""",
            before,
        )
        return found

    epoch: int = await eventually("the new controller has committed something", look, LIFE, POLL)
    return epoch


async def _acts(site: Stand, books: asyncpg.Connection) -> None:
    """Wait at most a second until an effect is applied in the cluster but not acknowledged in the ledger."""

    async def look() -> bool:
        return await _unknown(site, books) > 0

    with contextlib.suppress(AssertionError):
        await eventually("an effect is applied and not acknowledged", look, 1.0, POLL)


async def _unknown(site: Stand, books: asyncpg.Connection) -> int:
    """How many Jobs were started while their start is still due in the ledger."""
    due = await books.fetch("SELECT workload FROM queuectl.effect WHERE open")
    started = audit.starts(site.audit.entries())
    return sum(row["workload"] in started for row in due)


async def _nothing_lost(site: Stand, uids: list[str], kills: list[Kill]) -> None:
    once = dict.fromkeys(uids, 1)
    assert await site.unfinished() == []
    entries = site.audit.entries()
    await _started_once(site, entries, uids)
    completed = audit.completions(entries)
    assert {uid: len(times) for uid, times in completed.items()} == once
    owners = Counter(pod["metadata"]["ownerReferences"][0]["uid"] for pod in await site.items("pods"))
    assert owners == Counter(once)
    # Every kill was between the first start and the last completion, of a controller that had acted.
    first = min(entry.at for entry in audit.writes_to_jobs(entries))
    assert first < kills[0].at
    assert kills[-1].at < max(times[0] for times in completed.values())
    assert len({kill.epoch for kill in kills}) == len(kills)
    # The ledger agrees with itself and with the cluster.
    verified = await site.queuectl("verify")
    assert verified.code == 0, verified.out + verified.err
    assert await site.holds() == []
    assert await site.ask("SELECT max(number) FROM queuectl.attempt") == 1
    assert await site.ask("SELECT count(*) FROM queuectl.attempt") == len(uids)
    assert await site.ask("SELECT count(*) FROM queuectl.effect WHERE open") == 0


async def _started_once(site: Stand, entries: list[Entry], uids: list[str]) -> None:
    """By one patch of ours. A patch cut off by a kill may have been carried out or not, so the generation
    counts: it is 1 for a Job as made, and every start raises it."""
    starts = audit.starts(entries)
    assert starts.keys() == set(uids)
    for uid, patches in starts.items():
        answered = [patch.answer["metadata"]["generation"] for patch in patches if patch.code == 200]
        assert answered in ([2], []), (uid, patches)
    generations = {job["metadata"]["uid"]: job["metadata"]["generation"] for job in await site.items("jobs")}
    assert generations == dict.fromkeys(uids, 2)
    others = {entry.verb for entry in entries if entry.resource == "jobs" and entry.user != CONTROLLER_USER}
    assert others <= {"create", "get", "list", "watch"}


def _told(site: Stand, plane: str, kills: list[Kill], jobs: int, seconds: float) -> str:
    entries = site.audit.entries()
    patches = Counter(str(entry.code) for entry in audit.writes_to_jobs(entries))
    cut = sum(all(entry.code != 200 for entry in sent) for sent in audit.starts(entries).values())
    over = sum(times[0] < kills[-1].at for times in audit.completions(entries).values())
    gaps = sorted(kill.started for kill in kills)
    return (
        f"kills on {plane}: {len(kills)} under {jobs} Jobs in {seconds:.0f} s, "
        f"{sum(kill.due > 0 for kill in kills)} of them with effects to do, "
        f"{sum(kill.unknown > 0 for kill in kills)} with effects done and not acknowledged; "
        f"{over} Jobs were over by the last kill; one start and one completion each, "
        f"{cut} of the starts by a patch that was never answered; "
        f"answers to start patches {dict(patches)}; start to first commit "
        f"{gaps[len(gaps) // 2]:.1f} s (median), {gaps[-1]:.1f} s (longest)"
    )
