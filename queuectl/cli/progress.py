"""Progress of long operations: a line with what is still missing, or a bar."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import click

from queuectl.cli.options import NotGood
from queuectl.cli.printing import printable

_LEAST_PART: Final = 0.005
"""Smaller changes are not drawn."""


@contextlib.asynccontextmanager
async def waiting(
    seconds: float, what: str, *, note: str = ". The change itself is written"
) -> AsyncIterator[Callable[[str], None]]:
    """For a block that waits for `what` and reports what is still missing. Raises NotGood after `seconds`.

    `note`: end of that message.

    On stderr: one line that is overwritten in a terminal, a line per change in a pipe.
    """
    line = _Line(what)
    try:
        async with asyncio.timeout(seconds):
            yield line.tell
    except TimeoutError:
        line.end()
        raise NotGood(f"not within {seconds:g} s: {what}: {line.last or 'no answer'}{note}") from None
    line.end()
    click.echo(what, err=True)


class _Line:
    def __init__(self, what: str) -> None:
        self.last = ""
        self._what = what
        self._since = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._open = False

    def tell(self, missing: str) -> None:
        changed, self.last = missing != self.last, missing
        text = printable(f"waiting until {self._what}: {missing}")
        if self._terminal:
            click.echo(f"\r\x1b[2K{text} ({time.monotonic() - self._since:.0f} s)", err=True, nl=False)
            self._open = True
        elif changed:
            click.echo(text, err=True)

    def end(self) -> None:
        if self._open:
            click.echo("\r\x1b[2K", err=True, nl=False)
            self._open = False


@contextlib.contextmanager
def done_of(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on stderr while the block computes; it reports the part done, 0 to 1. Nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    shown = 0.0
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(what), total=1.0)

        def tell(part: float) -> None:
            nonlocal shown
            if part - shown >= _LEAST_PART:
                shown = part
                progress.update(task, completed=part)

        yield tell
