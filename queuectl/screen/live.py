"""The live screen: polls, draws, reads keys, and restores the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from rich.console import Console, Group
from rich.live import Live

from queuectl.screen.facts import Document, Target
from queuectl.screen.frame import Picture, frame, reach
from queuectl.screen.navigation import ScreenView, press
from queuectl.screen.poller import Ask, Away, Poll, look, only_queue
from queuectl.screen.terminal import Keyboard

TICK_SECONDS: Final = 1.0
"""Interval at which ages are redrawn."""
LOW: Final = 30
"""Lines of a terminal below which a ClusterQueue has one row."""
_SETTLE_SECONDS: Final = 0.03
"""Least time between frames: key repeat and window resizing do not redraw for every event."""


class ScreenTexts(NamedTuple):
    place: str = ""
    """Where the data of the server are."""
    notes: Sequence[str] = ()
    """Lines for the help page."""
    leave: str = "quit"
    """For the key that leaves the screen."""


_NO_TEXTS: Final = ScreenTexts()


class Screen:
    """`await Screen(...).run()` until the user leaves or it is cancelled."""

    def __init__(
        self,
        ask: Ask,
        *,
        server: str,
        clock: Callable[[], datetime],
        interval: float = 1.0,
        view: ScreenView | None = None,
        texts: ScreenTexts = _NO_TEXTS,
    ) -> None:
        """`clock`: this machine's, in the zone of the screen. `interval`: seconds between two polls."""
        self._ask = ask
        self._server = server
        self._clock = clock
        self._interval = interval
        self._texts = texts
        self._view = view or ScreenView()
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._seen: Poll | None = None
        self._seen_at = time.monotonic()
        self._problem = ""
        self._explained: Document | None = None
        self._unexplained = ""
        self._changed = asyncio.Event()
        self._look_now = asyncio.Event()
        self._left = asyncio.Event()

    async def run(self) -> None:
        """Returns also if the terminal was closed."""
        with self._on_terminal():
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(self._poll()), tasks.create_task(self._draw())]
                await self._left.wait()
                for task in working:
                    task.cancel()

    # --- the terminal -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _on_terminal(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self._live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False)
        with contextlib.ExitStack() as stack:
            keyboard: Keyboard | None = None
            if sys.stdin.isatty():
                keyboard = stack.enter_context(Keyboard(sys.stdin.fileno(), self._press))
            stack.callback(self._stop_drawing)
            self._live.start()
            for number, handle in (
                (signal.SIGWINCH, self._changed.set),
                (signal.SIGTSTP, lambda: self._suspend(keyboard)),
            ):
                loop.add_signal_handler(number, handle)
                stack.callback(loop.remove_signal_handler, number)
            yield

    def _stop_drawing(self) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed
            self._live.stop()

    def _suspend(self, keyboard: Keyboard | None) -> None:
        """Ctrl-Z: restores the shell's terminal; `fg` brings the screen back."""
        self._live.stop()
        if keyboard is not None:
            keyboard.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        if keyboard is not None:
            keyboard.take()
        self._live.start()
        self._changed.set()

    def _press(self, key: str) -> None:
        before = self._view
        self._view = press(before, key, *reach(self._picture(), before))
        if self._view.leaving:
            self._left.set()
        if self._view.opened != before.opened:
            self._explained, self._unexplained = None, ""
        if _asks(self._view) != _asks(before):
            self._look_now.set()
        self._changed.set()

    # --- tasks ------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            if not self._view.paused:
                await self._look()
            if self._view.opened is not None:
                await self._explain(self._view.opened)
            self._changed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._look_now.wait()
            self._look_now.clear()

    async def _look(self) -> None:
        # After an error it may be another ledger with the same sequence.
        last = None if self._problem else self._seen
        try:
            queue = only_queue(self._view.filter, self._seen.facts if self._seen else None)
            self._seen = await look(self._ask, queue, last)
        except Away as error:
            self._problem = str(error)
        else:
            self._problem = ""
            self._seen_at = time.monotonic()

    async def _explain(self, opened: Target) -> None:
        found, problem = None, ""
        try:
            found = (await self._ask(("workloads", *opened), {})).document
        except Away as error:
            problem = str(error)
        if self._view.opened == opened:
            self._explained, self._unexplained = found, problem

    async def _draw(self) -> None:
        while True:
            self._changed.clear()
            size = self._console.size
            lines = frame(self._picture(), self._view, size.width, size.height)
            # A terminal that accepts no output (Ctrl-S) must not block this event loop.
            try:
                await asyncio.to_thread(self._live.update, Group(*lines), refresh=True)
            except OSError:
                self._left.set()
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._changed.wait()
                    await asyncio.sleep(_SETTLE_SECONDS)

    def _picture(self) -> Picture:
        silent = time.monotonic() - self._seen_at
        now = self._clock()
        if self._seen is not None:
            now = (self._seen.date + timedelta(seconds=silent)).astimezone(now.tzinfo)
        return Picture(
            server=self._server,
            facts=self._seen.facts if self._seen else None,
            now=now,
            silent_seconds=silent,
            problem=self._problem,
            explained=self._explained,
            unexplained=self._unexplained,
            place=self._texts.place,
            notes=self._texts.notes,
            leave=self._texts.leave,
            plain=self._console.options.ascii_only,
            brief=self._console.size.height < LOW,
        )


def _asks(view: ScreenView) -> tuple[object, ...]:
    """The part of the view that determines the requests."""
    return view.filter, view.paused, view.opened
