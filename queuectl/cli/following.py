"""`events`: decisions as they are committed."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import click

from queuectl.cli import completion, decisions, printing, rest
from queuectl.cli.options import Options, with_options
from queuectl.cli.rest import Document, NoAnswer, Server

LAST: Final = 20
"""Decisions shown without --since."""
POLL_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 2.0
"""Between two questions to a server that does not answer."""
_DURATION: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Since(click.ParamType[int | timedelta]):
    """A sequence number, or how long ago."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | timedelta:
        if isinstance(value, int | timedelta):
            return value
        text = str(value)
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return int(text)
        if found := _DURATION.fullmatch(text):
            return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
        self.fail(f"{text!r} is neither a sequence number nor a time such as 90s, 15m, 2h, 7d", param, ctx)


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on as they are committed, until interrupted.")
@click.option(
    "--since",
    type=Since(),
    metavar="SEQUENCE|TIME",
    help=f"After it, or so long ago (15m).  [default: the last {LAST}]",
)
@click.option("--queue", help="Of workloads of LocalQueues of this name.")
@click.option("-n", "--namespace", help="Of this namespace only.", shell_complete=completion.namespaces)
@with_options
def events(
    options: Options, follow: bool, since: int | timedelta | None, queue: str | None, namespace: str | None
) -> None:
    """Show decisions as they are committed: what, on whom, why. With -o json a line each."""
    server = rest.connect(options, namespace=namespace)
    filters = {key: value for key, value in (("queue", queue), ("namespace", namespace)) if value is not None}
    try:
        after = _start(server, since)
        for decision in _decisions(server, filters, after, follow=follow):
            if options.output == "table":
                click.echo(decisions.line(decision))
            else:
                printing.line(decision, options.output)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # Whoever read has read enough. What is still buffered goes nowhere, and without a complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _decisions(server: Server, filters: dict[str, str], after: int, *, follow: bool) -> Iterator[Document]:
    """Those after `after`; with `follow` without end, across restarts of the server."""
    away = False
    while True:
        try:
            page = _page(server, filters, after)
        except NoAnswer as problem:
            if not follow:
                raise
            if not away:
                click.echo(f"{problem.message.partition(chr(10))[0]}: asking again", err=True)
            away = True
            time.sleep(AWAY_SECONDS)
            continue
        if away:
            click.echo("the server answers again", err=True)
            away = False
        if page["sequence"] < after:
            click.echo(f"the ledger ends at {page['sequence']}, before {after}: it was made anew", err=True)
            after = int(page["sequence"])
            continue
        yield from page["items"]
        # Without more pages everything up to the state's own sequence has been looked through.
        last = page["items"][-1]["sequence"] if page["items"] else after
        after = int(last if page["next"] else max(last, page["sequence"]))
        if page["next"] is None:
            if not follow:
                return
            time.sleep(POLL_SECONDS)


def _page(server: Server, filters: dict[str, str], after: int, limit: int = rest.PAGE) -> Document:
    return server.get(("decisions",), {**filters, "after": str(after), "limit": str(limit)}, quiet=True)


def _start(server: Server, since: int | timedelta | None) -> int:
    """The sequence to begin after."""
    if isinstance(since, int):
        return since
    newest = int(_page(server, {}, 0, 1)["sequence"])
    if since is None:
        return max(0, newest - LAST)
    if server.now is None:
        return 0
    from_time = server.now - since
    low, high = 0, newest
    # Their times rise with their sequence: halve until one step is left.
    while low < high:
        middle = (low + high) // 2
        found = _page(server, {}, middle, 1)["items"]
        if found and datetime.fromisoformat(found[0]["time"]) < from_time:
            low = int(found[0]["sequence"])
        else:
            high = middle
    return low
