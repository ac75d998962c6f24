"""`wait`: until a workload has started or is finished."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

import click

from queuectl.answers.outcomes import of_object
from queuectl.cli import completion, contexts, decisions, printing
from queuectl.cli.arguments import Duration, kind_and_name
from queuectl.cli.following import Reader
from queuectl.cli.operating import call
from queuectl.cli.options import Failure, NotGood, Options, command, with_options
from queuectl.cli.printing import printable
from queuectl.cli.progress import waiting
from queuectl.cli.reading import workload_of
from queuectl.cli.resources import phase
from queuectl.cli.rest import Document, NoAnswer, NotThere, Server

_POLL_SECONDS: Final = 0.5
_NEW_SECONDS: Final = 5.0
"""How long a workload that is not found may still appear."""
_OVER: Final = ("Finished", "Deleted")


@command("wait")
@kind_and_name("workload", completion.workloads)
@completion.NAMESPACE
@click.option(
    "--for",
    "condition",
    type=click.Choice(("started", "finished")),
    default="finished",
    show_default=True,
    help="started: it is admitted. finished: it has ended.",
)
@click.option("--timeout", type=Duration(), default="7d", show_default=True, help="Such as 90s, 15m, 2h.")
@with_options
def wait(options: Options, workload: str, namespace: str | None, condition: str, timeout: timedelta) -> None:
    """Wait until a workload has started or is finished.

    Exit code 0 if it has started, or has finished with success. 1 if it has failed, was deleted, ended
    without a start, reached its run time limit, or is Deactivated (too many starts failed), and after
    --timeout. 2 if it cannot be read.
    """
    server, path, found = call(_first(options, workload, contexts.namespace(options, namespace)))
    name = f"{found['kind']} {found['namespace']}/{found['name']}"

    async def until() -> Document:
        last = found
        verb = "has started" if condition == "started" else "is finished"
        async with waiting(timeout.total_seconds(), f"{name} {verb}", note="") as tell:
            while not _reached(last, condition):
                tell(_state(last))
                await asyncio.sleep(_POLL_SECONDS)
                last = await asyncio.to_thread(_again, server, path, last)
        return last

    _show(call(until()), name, condition, options)


async def _first(options: Options, workload: str, namespace: str) -> tuple[Server, tuple[str, ...], Document]:
    """As workload_of. A workload that was created a moment ago may not be in the ledger yet."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _NEW_SECONDS
    while True:
        try:
            return await asyncio.to_thread(workload_of, options, workload, namespace)
        except NotThere:
            if loop.time() > end:
                raise
        await asyncio.sleep(_POLL_SECONDS)


def _reached(found: Document, condition: str) -> bool:
    if found["phase"] in _OVER or _deactivated(found["reason"]) is not None:
        return True
    return condition == "started" and found["phase"] == "Admitted"


def _deactivated(reason: Document | None) -> str | None:
    """Why it does not start again unless a user releases it; None: it may start, or is over."""
    return str(reason["message"]) if reason is not None and reason["code"] == "Deactivated" else None


def _state(found: Document) -> str:
    """Such as `it is Pending, position 2 of 7: WaitingForQuota`."""
    text = f"it is {found['phase']}"
    if found["position"] is not None:
        text += f", position {found['position']} of {found['line']}"
    return f"{text}: {found['reason']['code']}" if found["reason"] else text


def _again(server: Server, path: tuple[str, ...], last: Document) -> Document:
    """The workload now; `last` while the server does not answer."""
    try:
        found = server.get(path, quiet=True)
    except NotThere:
        raise NotGood("it is not in the ledger any more") from None
    except NoAnswer:
        return last
    if found["uid"] != last["uid"]:
        raise NotGood("it was deleted, and another object has its name now")
    return found


def _show(last: Document, name: str, condition: str, options: Options) -> None:
    """Print what was reached. Raises NotGood if that is not what was waited for."""
    started = last["attempts"] > 0
    outcome = phase(last) if last["phase"] in _OVER else _deactivated(last["reason"])
    if options.output != "table":
        printing.document({**last, "outcome": outcome}, options.output)
    good = started if condition == "started" else outcome == "Succeeded"
    if not good:
        raise NotGood(f"{name}: {outcome}{'' if started else ', without a start'}")
    if options.output == "table":
        text = f"started, attempt {last['attempts']}" if condition == "started" else str(outcome)
        click.echo(printable(f"{name}: {text}"))


def follow(reader: Reader, uid: str, output: str) -> str:
    """Print the decisions on one workload until it is over or Deactivated. Returns how it ended."""
    try:
        for decision in reader.follow():
            if decision["uid"] != uid:
                continue
            if output == "table":
                click.echo(decisions.line(decision))
            else:
                printing.line(decision, output)
            if (why := _deactivated(decision["reason"])) is not None:
                return why
            if decision["verdict"] == "Retired":
                return of_object(str(decision["details"].get("outcome") or "Finished"))
    except KeyboardInterrupt:
        raise Failure("interrupted: the workload goes on; `queuectl cancel` ends it") from None
    raise AssertionError("the decisions never end")
