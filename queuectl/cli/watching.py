"""`top`: queues, running and pending workloads, and reasons, as they change."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

import click

from queuectl.cli import completion, printing, rest
from queuectl.cli.identity import CallerToken
from queuectl.cli.options import Failure, Options, command, with_options
from queuectl.cli.rest import NoAnswer, Server

if TYPE_CHECKING:
    from queuectl.screen.poller import Answer, Ask, Away, Poll

TIMEOUT_SECONDS: Final = 5.0
"""Timeout of one request: a screen must not seem to hang."""
_PIPE_WIDTH: Final = 240
"""Width of a frame in a pipe, enough for whole reasons."""

Found = TypeVar("Found")


@command("top")
@click.option(
    "--queue",
    default="",
    help="Only the ClusterQueue of this name, or all whose name contains it.",
    shell_complete=completion.cluster_queues,
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds between two polls.",
)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@with_options
def top(options: Options, queue: str, interval: float, once: bool) -> None:
    """Show queues, running and pending workloads with reasons, and the last decisions, as they change.

    In a terminal: arrows or jk select, tab goes to the next table, / filters queues, p pauses, ? shows help,
    q quits. In a pipe: a frame every interval; with -o json a line each.
    """
    server = rest.connect(options, timeout=TIMEOUT_SECONDS)
    from queuectl.screen.terminal import can_show

    if once or options.output != "table" or not can_show():
        _print_frames(server, options.output, queue, interval, once=once)
    else:
        _show(server, queue, interval)


def _print_frames(server: Server, output: str, queue: str, interval: float, *, once: bool) -> None:
    from queuectl.screen.poller import Away, look, only_queue

    ask = _Asking(server)

    async def one(last: Poll | None) -> Poll:
        seen = await look(ask, None, last)
        # Only now it is known whether the filter matches a single queue.
        only = only_queue(queue, seen.facts)
        return await look(ask, only, last) if only else seen

    seen: Poll | None = None
    while True:
        try:
            seen = asyncio.run(one(seen))
        except Away as error:
            failure = _failure(error)
            if once or seen is None:
                raise failure from None
            click.echo(f"Error: {failure.message}", err=True)
            seen = None
        else:
            _print(seen, server, output, queue, once=once)
        if once:
            return
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return


def _print(seen: Poll, server: Server, output: str, queue: str, *, once: bool) -> None:
    from queuectl.screen.poller import plain

    if output != "table":
        (printing.document if once else printing.line)(plain(seen, queue), output)
        return
    from rich.console import Console

    from queuectl.screen.frame import Picture, frame
    from queuectl.screen.navigation import ScreenView

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    picture = Picture(
        server=server.shown,
        facts=seen.facts,
        now=seen.date.astimezone(),
        plain=console.options.ascii_only,
    )
    width = console.width if console.is_terminal else _PIPE_WIDTH
    for text in frame(picture, ScreenView(filter=queue), width):
        text.rstrip()
        console.print(text)
    if not once:
        console.print()
    sys.stdout.flush()


def _show(server: Server, queue: str, interval: float) -> None:
    from queuectl.screen.live import Screen
    from queuectl.screen.navigation import ScreenView
    from queuectl.screen.poller import Away, look

    async def watch() -> None:
        ask = _Asking(server)
        try:
            # An error at the start is printed in full instead of starting the screen.
            await look(ask, None, None)
        except Away as error:
            raise _failure(error) from None
        screen = Screen(
            ask, server=server.shown, clock=_clock, interval=interval, view=ScreenView(filter=queue)
        )
        async with asyncio.TaskGroup() as tasks:
            showing = tasks.create_task(screen.run())
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, showing.cancel)

    asyncio.run(watch())


def client(url: str) -> Ask:
    """Of a REST server on this machine, for its screen."""
    return _Asking(Server(url, CallerToken(), timeout=TIMEOUT_SECONDS))


class _Asking:
    """The server, for coroutines."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, path: tuple[str, ...], parameters: Mapping[str, str]) -> Answer:
        from queuectl.screen.poller import Answer, Away, RequestRefused

        try:
            document = await _aside(lambda: self._server.get(path, parameters, quiet=True))
        except NoAnswer as error:
            raise Away(error.message.partition("\n")[0]) from error
        except Failure as error:
            raise RequestRefused(error.message.partition("\n")[0]) from error
        return Answer(document, self._server.now or _clock())


def _failure(error: Away) -> Failure:
    """With the full text of the server's refusal, if it is one."""
    cause = error.__cause__
    return cause if isinstance(cause, Failure) else Failure(str(error))


async def _aside(work: Callable[[], Found]) -> Found:
    """On a daemon thread: unlike asyncio's executor, it does not delay the exit of the program."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Found] = loop.create_future()

    def tell(result: Found | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except Exception as error:
            problem = error
        try:
            loop.call_soon_threadsafe(tell, result, problem)
        except RuntimeError:  # the program ends: the event loop is closed
            return

    threading.Thread(target=run, daemon=True).start()
    return await done


def _clock() -> datetime:
    """The clock of this machine, in its zone."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC).astimezone()
