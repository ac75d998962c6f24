"""Arguments and options that several commands take: objects by KIND/NAME or KIND NAME, words in any case."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from queuectl.cli.options import parse_ago

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def kind_and_name(argument: str, complete: Complete) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The argument KIND/NAME, which may be two words as in kubectl; the command gets one text."""
    return click.argument(
        argument,
        nargs=-1,
        required=True,
        metavar="KIND/NAME",
        callback=_joined,
        shell_complete=complete,
    )


def _joined(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> str:
    if len(words) > 2 or (len(words) == 2 and any("/" in word for word in words)):
        raise click.UsageError(f"{' '.join(words)!r}: one object is expected, as KIND/NAME or KIND NAME")
    return "/".join(words)


class Word(click.ParamType[str]):
    """One of several words, in any case."""

    def __init__(self, name: str, words: Iterable[str]) -> None:
        self.name = name
        self._words = tuple(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        for word in self._words:
            if word.lower() == text.lower():
                return word
        near = meant(text, self._words) or f": one of {', '.join(self._words)}"
        self.fail(f"{text[:80]!r} is not a {self.name}{near}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words if word.lower().startswith(incomplete.lower())]


class Duration(click.ParamType[timedelta]):
    """Such as 90s, 15m, 2h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = parse_ago(str(value))
        if not found:
            self.fail(f"{value!r} is not a time such as 90s, 15m, 2h or 7d", param, ctx)
        return found


class BeginTime(click.ParamType[datetime]):
    """A time with its zone, or how long from now by the clock of this machine; the value is in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from queuectl.kinds.json_fields import BadField, timestamp

        if isinstance(value, datetime):
            return value
        slurm = _NOW_PLUS.fullmatch(str(value))
        text = f"{slurm[1]}{(slurm[2] or 's')[0]}" if slurm else str(value)
        if (length := parse_ago(text)) is not None:
            return datetime.now(UTC) + length  # noqa: TID251 (submit need not reach a server with a clock)
        try:
            return timestamp(str(value), "--begin")
        except BadField:
            self.fail(
                f"{value!r} is neither a time (2026-12-01T06:00:00Z) nor how long from now (90s, 15m, 2h, 7d "
                "or, as Slurm writes it, now+2hours)",
                param,
                ctx,
            )


_NOW_PLUS: Final = re.compile(r"now\+(\d+)(seconds?|minutes?|hours?|days?)?")
"""Of sbatch: seconds without a unit."""


class Since(click.ParamType[Any]):
    """How long ago, such as 3d, or a time."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime | timedelta):
            return value
        if (ago := parse_ago(str(value))) is not None:
            return ago
        try:
            time = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither how long ago (90m, 12h, 3d) nor a time (2030-01-31T08:00Z)")
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def meant(text: str, known: Iterable[object]) -> str:
    """A hint on a mistyped one of `known`; empty if none is similar."""
    words = {str(one).lower(): str(one) for one in known}
    near = get_close_matches(text.lower(), words, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(words[one] for one in near)}?" if near else ""
