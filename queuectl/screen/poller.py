"""Polls a REST server. While it does not answer, the last answer stays, with its age."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from queuectl.screen.facts import Answers, Document, NotUnderstood, ScreenFacts, facts, meant

PAGE: Final = 500
"""Workloads of each kind that are requested."""
QUEUES: Final = 1000
DECISIONS: Final = 100


class Away(Exception):
    """The server does not answer, or refuses. The message is one line for users."""


class RequestRefused(Away):
    """The server answers, but refuses this request."""


@dataclass(frozen=True, slots=True)
class Answer:
    document: Document
    date: datetime
    """Time of the answer, on the server's clock; aware."""


Ask = Callable[[tuple[str, ...], Mapping[str, str]], Awaitable[Answer]]
"""GET a path below /api/v1, with parameters. Raises Away."""


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll of the server."""

    answers: Answers
    facts: ScreenFacts
    date: datetime
    queue: str | None


async def look(ask: Ask, queue: str | None, last: Poll | None) -> Poll:
    """Everything; if there was no decision since `last`, its age and what is free on nodes. Raises Away.

    `queue`: workloads of this ClusterQueue only.
    """
    asked = {"limit": str(QUEUES)}
    queues = await ask(("clusterqueues",), asked)
    capacity = await _unless_refused(ask, "capacity", QUEUES)
    if last is not None and last.queue == queue and _same(last.answers.queues, queues.document):
        known = last.answers
        answers = Answers(
            queues=queues.document,
            admitted=known.admitted,
            evicting=known.evicting,
            pending=known.pending,
            decisions=known.decisions,
            capacity=capacity,
        )
    else:
        answers = replace(await _lists(ask, queues.document, queue), capacity=capacity)
    try:
        return Poll(answers, facts(answers), queues.date, queue)
    except NotUnderstood as error:
        raise Away(f"this is not an answer of queuectl's REST server ({error})") from None


def _same(before: Document, now: Document) -> bool:
    """Was there no decision in between? Then workloads are unchanged too."""
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
        decisions=await _unless_refused(ask, "decisions", DECISIONS),
    )


async def _unless_refused(ask: Ask, name: str, most: int) -> Document | None:
    """The first items of a list; None if this server does not have it, or refuses it to this caller."""
    try:
        return (await ask((name,), {"limit": str(most)})).document
    except RequestRefused:
        return None


def plain(seen: Poll, filter: str = "") -> dict[str, Any]:
    """For programs: the documents as received, of the queues that match the filter."""
    answers, names = seen.answers, meant(filter, seen.facts.queues)

    def of_queues(*pages: Document) -> list[Document]:
        items = [item for page in pages for item in page["items"]]
        return [item for item in items if not filter or item.get("clusterQueue") in names]

    found: dict[str, Any] = {
        "sequence": seen.facts.sequence,
        "ageSeconds": seen.facts.age_seconds,
        "controller": answers.queues.get("controller"),
        "stale": seen.facts.stale,
        "clusterQueues": [item for item in answers.queues["items"] if item["name"] in names],
        "running": of_queues(answers.evicting, answers.admitted),
        "waiting": of_queues(answers.pending),
    }
    if answers.decisions is not None:
        found["decisions"] = list(answers.decisions["items"])
    if answers.capacity is not None:
        found["capacity"] = list(answers.capacity["items"])
    found["more"] = {
        "clusterQueues": seen.facts.more_queues,
        "running": seen.facts.more_running,
        "waiting": seen.facts.more_waiting,
    }
    return found


def only_queue(filter: str, found: ScreenFacts | None) -> str | None:
    """The single queue that matches the filter, if it is one: then only its workloads are requested."""
    names = meant(filter, found.queues) if filter and found is not None else ()
    return next(iter(names)) if len(names) == 1 else None
