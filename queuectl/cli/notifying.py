"""`notifier`: sends messages about decisions. `notifications`: how each sink goes."""

from __future__ import annotations

from typing import Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.arguments import meant
from queuectl.cli.operating import call, serve
from queuectl.cli.options import NotGood, Options, command, with_options
from queuectl.cli.printing import field, shown, table_of


@command("notifier")
@with_options
def notifier(options: Options) -> None:
    """Send messages about decisions to the sinks in section `notifications` of the configuration.

    One process sends; further ones stand by. It reads the ledger, and needs no cluster.
    """
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import notifier as notifying

    serve(notifying.run_notifier(settings))


@command("notifications")
@click.option("--test", "name", metavar="NAME", help="Send a test message to this sink, from this process.")
@with_options
def notifications(options: Options, name: str | None) -> None:
    """Show up to which decision each sink was told, what it accepted, and why it fails.

    Reads the ledger directly, not REST. With --test exit code 1 if the sink does not accept the message.
    """
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import notifier as notifying

    if name is not None:
        _test(options, settings, name)
        return
    found = call(notifying.status(settings))
    if printing.as_document(found, options.output):
        return
    table_of(_FIELDS, found["items"], none="no sinks found: section notifications configures them")


def _test(options: Options, settings: Any, name: str) -> None:
    from queuectl.app import notifier as notifying
    from queuectl.notifications.delivery import SinkFailed

    try:
        call(notifying.test(settings, name))
    except notifying.NoSuchSink as problem:
        known = ", ".join(problem.known) or "none"
        raise NotGood(f"there is no sink {name!r}{meant(name, problem.known)}\nThere are: {known}") from None
    except SinkFailed as problem:
        raise NotGood(f"sink {name} does not accept the message: {problem}") from None
    if not printing.as_document({"name": name, "accepted": True}, options.output):
        click.echo(f"sink {name} accepted the message")


_FIELDS: Final = (
    field("SINK", "name"),
    field("KIND", lambda one: one["kind"] or "not configured"),
    field("TOLD UP TO>", "sequence"),
    field("BEHIND>", "behind"),
    field("SENT>", "sent"),
    field("LAST SENT", shown(printing.local, "sentAt")),
    field("FAILURES>", "failures"),
    field("NEXT TRY", shown(printing.local, "nextTry")),
    field("ERROR", "error"),
)
