"""Asks a REST server again and again, and never gives up: what it said last stays, with its age."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from queuectl.screen.facts import Answers, Document, Facts, NotUnderstood, facts, meant

PAGE: Final = 500
"""Workloads of each kind: what is beyond costs nothing."""
QUEUES: Final = 1000
DECISIONS: Final = 100


class Away(Exception):
    """The server does not answer, or refuses. The message is for people, of one line."""


class Refused(Away):
    """The server answers, but not this, or not to this caller."""


@dataclass(frozen=True, slots=True)
class Answer:
    document: Document
    date: datetime
    """When it was given, on the server's clock; aware."""


Ask = Callable[[tuple[str, ...], Mapping[str, str]], Awaitable[Answer]]
"""What is at a path below /api/v1, with parameters. Raises Away."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the server."""

    answers: Answers
    facts: Facts
    date: datetime
    queue: str | None


async def look(ask: Ask, queue: str | None, last: Seen | None) -> Seen:
    """Everything, or, where nothing was decided since `last`, only its age. Raises Away.

    `queue`: workloads of this ClusterQueue alone.
    """
    asked = {"limit": str(QUEUES)}
    queues = await ask(("clusterqueues",), asked)
    if last is not None and last.queue == queue and _same(last.answers.queues, queues.document):
        known = last.answers
        answers = Answers(
            queues=queues.document,
            admitted=known.admitted,
            evicting=known.evicting,
            pending=known.pending,
            decisions=known.decisions,
        )
    else:
        answers = await _lists(ask, queues.document, queue)
    try:
        return Seen(answers, facts(answers), queues.date, queue)
    except NotUnderstood as error:
        raise Away(f"this is not what queuectl's REST server says ({error})") from None


def _same(before: Document, now: Document) -> bool:
    """No decision in between: then workloads are as they were too."""
    return before.get("sequence") == now.get("sequence")


async def _lists(ask: Ask, queues: Document, queue: str | None) -> Answers:
    only = {"clusterqueue": queue} if queue else {}
    limit = {"limit": str(PAGE)}

    async def phase(name: str) -> Document:
        return (await ask(("workloads",), {"phase": name, **only, **limit})).document

    admitted, evicting, pending = await asyncio.gather(phase("Admitted"), phase("Evicting"), phase("Pending"))
    return Answers(
        queues=queues,
        admitted=admitted,
        evicting=evicting,
        pending=pending,
        decisions=await _decisions(ask),
    )


async def _decisions(ask: Ask) -> Document | None:
    """The newest ones; None where this server has no list of them, or not for this caller."""
    try:
        return (await ask(("decisions",), {"limit": str(DECISIONS)})).document
    except Refused:
        return None


def plain(seen: Seen, filter: str = "") -> dict[str, Any]:
    """For programs: the documents as they came, of the queues that the filter lets through."""
    answers, names = seen.answers, meant(filter, seen.facts.queues)

    def of_queues(*pages: Document) -> list[Document]:
        items = [item for page in pages for item in page["items"]]
        return [item for item in items if not filter or item.get("clusterQueue") in names]

    found: dict[str, Any] = {
        "sequence": seen.facts.sequence,
        "ageSeconds": seen.facts.age_seconds,
        "stale": seen.facts.stale,
        "clusterQueues": [item for item in answers.queues["items"] if item["name"] in names],
        "running": of_queues(answers.evicting, answers.admitted),
        "waiting": of_queues(answers.pending),
    }
    if answers.decisions is not None:
        found["decisions"] = list(answers.decisions["items"])
    found["more"] = {
        "clusterQueues": seen.facts.more_queues,
        "running": seen.facts.more_running,
        "waiting": seen.facts.more_waiting,
    }
    return found


def only_queue(filter: str, found: Facts | None) -> str | None:
    """The queue that the filter means, where it means a single one: then its page is asked for, not all's."""
    names = meant(filter, found.queues) if filter and found is not None else ()
    return next(iter(names)) if len(names) == 1 else None
