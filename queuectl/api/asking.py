"""A question, and where its answer comes from: the view, and the ledger's history where that has none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from queuectl.api import query, schemas
from queuectl.api.identity import Caller
from queuectl.api.problems import unavailable
from queuectl.api.query import Cursor, Cursors, Parameter
from queuectl.api.view import Sight, View
from queuectl.ports import LedgerUnavailable, Readings, SchemaMismatch

LEDGER_SECONDS: Final = 5.0
"""How long one look into the ledger's history may take."""

Item = TypeVar("Item", bound=schemas.Document)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Question:
    caller: Caller
    path: Mapping[str, str]
    values: Mapping[str, Any]
    """Query parameters, parsed."""
    scope: str
    """What a cursor is bound to."""
    again: Callable[[], Awaitable[Caller]]
    """The caller anew: his token may have been revoked while he waited. Raises Refusal."""
    waiting: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)
    """While he waits for news. Raises Refusal."""
    gone: Callable[[], bool] = field(default=lambda: False)
    """He waits no more."""

    @property
    def limit(self) -> int:
        return int(self.values.get("limit", query.DEFAULT_LIMIT))


def _light(values: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the table of paths."""

    path: str
    summary: str
    answer: Callable[[Question], Awaitable[schemas.Committed]]
    model: type[schemas.Committed]
    parameters: tuple[Parameter, ...] = ()
    heavy: Callable[[Mapping[str, Any]], bool] = _light
    """With these parameters it reads the ledger's history."""
    notes: str = ""
    """What else there is to know."""


class Source:
    """What all routes share."""

    def __init__(self, view: View, readings: Readings, cursors: Cursors) -> None:
        self.view = view
        self.readings = readings
        self._cursors = cursors

    def sight(self) -> Sight:
        """Raises a 503 where nothing was ever read."""
        sight = self.view.sight()
        if sight is None:
            raise unavailable(self.view.problem or "not read yet")
        return sight

    def after(self, question: Question) -> Cursor | None:
        """Where the page before ended."""
        text = question.values.get("next")
        return None if text is None else self._cursors.read(text, question.scope)

    def next(self, question: Question, position: Cursor) -> str:
        return self._cursors.write(position, question.scope)

    def cut(
        self, question: Question, rows: Sequence[Found], end: Callable[[Found], Cursor]
    ) -> tuple[Sequence[Found], str | None]:
        page = rows[: question.limit]
        more = len(rows) > len(page)
        return page, self.next(question, end(page[-1])) if more else None

    async def ask(self, reading: Awaitable[Found]) -> Found:
        """Raises a 503."""
        try:
            async with asyncio.timeout(LEDGER_SECONDS):
                return await reading
        except TimeoutError:
            raise unavailable(f"no answer within {LEDGER_SECONDS:g} s") from None
        except (LedgerUnavailable, SchemaMismatch) as error:
            raise unavailable(str(error)) from None


def committed(sight: Sight) -> dict[str, Any]:
    return {
        "sequence": sight.state.sequence,
        "age_seconds": round(sight.age_seconds, 3),
        "stale": sight.stale,
        "observed": sight.observed,
    }


def page(model: type[Item], items: Iterable[Item], next: str | None, sight: Sight) -> schemas.Page[Item]:
    return schemas.Page[model](items=tuple(items), next=next, **committed(sight))  # type: ignore[valid-type]
