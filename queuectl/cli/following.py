"""`events`: decisions as they are committed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import click

from queuectl.cli import completion, decisions, printing, rest
from queuectl.cli.options import Options, command, parse_ago, with_options
from queuectl.cli.rest import Document, NoAnswer, Server

LAST: Final = 20
"""Decisions shown without --since."""
WAIT_SECONDS: Final = 10
"""How long the server may wait for a new decision."""
POLL_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 2.0
"""Between two requests to a server that does not answer."""


class SinceSequence(click.ParamType[int | timedelta]):
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
        if (ago := parse_ago(text)) is not None:
            return ago
        self.fail(f"{text!r} is neither a sequence number nor a time such as 90s, 15m, 2h, 7d", param, ctx)


@command("events")
@click.option("-f", "--follow", is_flag=True, help="Continue with new decisions, until interrupted.")
@click.option(
    "--since",
    type=SinceSequence(),
    metavar="SEQUENCE|TIME",
    help=f"After this sequence, or since this long ago (15m).  [default: the last {LAST}]",
)
@click.option("--queue", help="Only workloads of LocalQueues of this name.")
@click.option("-n", "--namespace", help="Only this namespace.", shell_complete=completion.namespaces)
@with_options
def events(
    options: Options, follow: bool, since: int | timedelta | None, queue: str | None, namespace: str | None
) -> None:
    """Show decisions as they are committed: workload, verdict, reason. With -o json a line each."""
    server = rest.connect(options, namespace=namespace)
    filters = {} if namespace is None else {"namespace": namespace}
    try:
        members = None if queue is None else Members(server, queue, filters)
        reader = Reader(server, filters, start(server, filters, since))
        for decision in reader.follow() if follow else reader.new():
            if members is not None and not members.has(decision):
                continue
            if options.output == "table":
                click.echo(decisions.line(decision))
            else:
                printing.line(decision, options.output)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader of the pipe has closed it. The rest of the buffer is dropped without an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Members:
    """The workloads of one LocalQueue: a decision names the queue of its workload only when it changes."""

    def __init__(self, server: Server, queue: str, filters: dict[str, str]) -> None:
        self._queue = queue
        self._uids: set[str] = set()
        for phase in ({}, {"phase": "Finished"}, {"phase": "Deleted"}):
            # Finished workloads come newest first: one page is enough.
            asked = {**filters, **phase, "queue": queue}
            found = server.all(("workloads",), asked, limit=rest.PAGE if phase else None)
            self._uids.update(item["uid"] for item in found["items"])

    def has(self, decision: Document) -> bool:
        queue = decision["details"].get("queue")
        if queue is not None and decision["uid"] is not None:
            (self._uids.add if queue == self._queue else self._uids.discard)(decision["uid"])
        return decision["uid"] in self._uids


class Reader:
    """Continues after the last sequence."""

    def __init__(self, server: Server, filters: dict[str, str], after: int) -> None:
        self.after = after
        """All decisions up to this sequence have been read."""
        self._epoch: int | None = None
        """Of the last answer: after a restore of the ledger, other decisions have sequences of that epoch."""
        self._server = server
        self._filters = filters

    def new(self, *, wait: bool = False) -> Iterator[Document]:
        """Newer decisions; with `wait` the server may wait for one."""
        asked = {**self._filters, "after": str(self.after)}
        if self._epoch is not None:
            asked["epoch"] = str(self._epoch)
        if wait:
            asked["wait"] = str(WAIT_SECONDS)
        last = self.after
        for page in self._server.pages(("decisions",), asked):
            last, self._epoch = int(page["sequence"]), page.get("epoch")
            for decision in page["items"]:
                sequence = int(decision["sequence"])
                if sequence <= self.after:
                    told = f"decisions {sequence} to {self.after} were lost, and others follow"
                    click.echo(f"the ledger was restored from a backup: {told}", err=True)
                yield decision
                self.after = sequence
        if last < self.after:
            click.echo(f"the ledger ends at {last}, before {self.after}: it was replaced", err=True)
        self.after = last

    def follow(self) -> Iterator[Document]:
        """Endless, across restarts of the server."""
        away = False
        while True:
            before, asked_at = self.after, time.monotonic()
            try:
                yield from self.new(wait=True)
            except NoAnswer as problem:
                if not away:
                    click.echo(f"{problem.message.partition(chr(10))[0]}: retrying", err=True)
                away = True
                time.sleep(AWAY_SECONDS)
                continue
            if away:
                click.echo("the server answers again", err=True)
                away = False
            if self.after == before and time.monotonic() - asked_at < POLL_SECONDS:
                time.sleep(POLL_SECONDS)  # it did not wait for a new decision


def start(server: Server, filters: dict[str, str], since: int | timedelta | None) -> int:
    """The sequence to begin after."""
    if isinstance(since, int):
        return since
    last = newest(server, filters)
    if since is None:
        return max(0, last - LAST)
    if server.now is None:
        return 0
    from_time = server.now - since
    low, high = 0, last
    # Times rise with the sequence: a binary search.
    while low < high:
        middle = (low + high) // 2
        found = _first(server, filters, middle)["items"]
        if found and datetime.fromisoformat(found[0]["time"]) < from_time:
            low = int(found[0]["sequence"])
        else:
            high = middle
    return low


def newest(server: Server, filters: dict[str, str]) -> int:
    """The last sequence of the ledger."""
    return int(_first(server, filters, 0)["sequence"])


def _first(server: Server, filters: dict[str, str], after: int) -> Document:
    return server.get(("decisions",), {**filters, "after": str(after), "limit": "1"}, quiet=True)
