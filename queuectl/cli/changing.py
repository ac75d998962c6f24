"""`hold`, `release`, `stop`, `move` and others: one patch each, with the caller's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import click

from queuectl.cli import completion, contexts, printing, rest, writing
from queuectl.cli.arguments import kind_and_name
from queuectl.cli.choosing import ChosenWorkloads, chosen, confirm_all, targets
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.progress import waiting
from queuectl.cli.resources import split

if TYPE_CHECKING:
    from queuectl.changes.edit import EditedField, WorkloadTarget
    from queuectl.kube.session import Session
    from queuectl.ports.changes import Verb

_POLL_SECONDS: Final = 0.5
_HELD: Final = ("OnHold", "UserHold")
_MOST: Final = 200
"""Characters of a reason."""


def _one_line(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and (len(value) > _MOST or not value.strip() or not value.isprintable()):
        raise click.BadParameter(f"one line of 1 to {_MOST} printable characters is expected")
    return value and value.strip()


REASON: Final = click.option(
    "--reason",
    metavar="TEXT",
    callback=_one_line,
    help="Kept on the object with your name, as annotation queuectl.dev/reason.",
)
_WAIT = click.option("--wait", is_flag=True, help="Wait until it has taken effect.")
_TIMEOUT = click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    help="Time limit of --wait.",
)


@command("hold")
@chosen
@writing.YES
@REASON
@_WAIT
@_TIMEOUT
@with_options
def hold(
    options: Options,
    choice: ChosenWorkloads,
    yes: bool,
    reason: str | None,
    wait: bool,
    timeout: float,
) -> None:
    """Keep workloads out of their queue. What runs is evicted: `hold` asks first.

    `release` lets them queue again.
    """
    _change(options, choice, "hold", yes=yes, reason=reason, wait=timeout if wait else None)


@command("release")
@chosen
@REASON
@_WAIT
@_TIMEOUT
@with_options
def release(
    options: Options, choice: ChosenWorkloads, reason: str | None, wait: bool, timeout: float
) -> None:
    """Let workloads that are on hold queue again."""
    _change(options, choice, "release", reason=reason, wait=timeout if wait else None)


@command("force-release")
@kind_and_name("workload", completion.workloads)
@completion.NAMESPACE
@writing.YES
@click.option(
    "--reason", required=True, metavar="TEXT", callback=_one_line, help="Kept in the ledger with your name."
)
@_WAIT
@_TIMEOUT
@with_options
def force_release(
    options: Options, workload: str, namespace: str | None, yes: bool, reason: str, wait: bool, timeout: float
) -> None:
    """Release the quota of an evicted workload although pods of it still exist.

    For pods that cannot end, such as on a node that is out of reach. It asks first: what these pods use is
    given to other workloads. Needs the right to force-release workloads.queuectl.dev, as ClusterRole
    queuectl-admin has it, and to patch the object.
    """
    from queuectl.changes import edit as changing

    target = targeted(options, workload, namespace)
    server = rest.connect(options, namespace=target.namespace) if wait else None
    writing.confirm(f"pods of {target} may still run: others get the quota that they use", yes=yes)

    async def work(session: Session) -> None:
        change, attempt = await changing.force_release(session, target, reason)
        say(change, options, "Its quota is released; `queuectl history` shows the user and the reason.")
        if server is not None:
            path = ("workloads", str(target.namespace), target.kind.lower(), target.name)
            async with waiting(timeout, f"the quota of {target} is released") as tell:
                await _until(lambda: asyncio.to_thread(_not_released, server, path, attempt), tell)

    writing.run(options, target, work)


@command("stop")
@kind_and_name("queue", completion.queues)
@completion.NAMESPACE
@click.option("--drain", is_flag=True, help="Evict its admitted workloads too.")
@REASON
@_WAIT
@_TIMEOUT
@with_options
def stop(
    options: Options,
    queue: str,
    namespace: str | None,
    drain: bool,
    reason: str | None,
    wait: bool,
    timeout: float,
) -> None:
    """Stop a queue (clusterqueue/NAME or localqueue/NAME): it admits no more; running workloads continue."""
    policy = "HoldAndDrain" if drain else "Hold"
    _change_stop(options, queue, namespace, policy, reason, wait=timeout if wait else None)


@command("resume")
@kind_and_name("queue", completion.queues)
@completion.NAMESPACE
@REASON
@_WAIT
@_TIMEOUT
@with_options
def resume(
    options: Options, queue: str, namespace: str | None, reason: str | None, wait: bool, timeout: float
) -> None:
    """Let a stopped queue (clusterqueue/NAME or localqueue/NAME) admit again."""
    _change_stop(options, queue, namespace, "None", reason, wait=timeout if wait else None)


# --- workloads ----------------------------------------------------------------------------------------


def _change(
    options: Options,
    choice: ChosenWorkloads,
    verb: Verb,
    *,
    to: str | None = None,
    reason: str | None,
    yes: bool = True,
    wait: float | None = None,
) -> None:
    """`to`: as in `change_workload`. `yes`: a hold may end what runs. `wait`: for the effect, in seconds."""
    from queuectl.changes import edit as changing
    from queuectl.changes.verbs import change_workload

    aims, refused = targets(options, choice)
    if wait is not None and (len(aims) != 1 or choice.dry_run):
        raise click.UsageError("--wait is for one workload, and for a change that is written")
    held = verb == "hold"
    server = _server(options, str(aims[0].namespace), held=held) if wait is not None else None
    sure = confirm_all(aims, choice, done="put on hold", yes=yes) if held else True

    async def work(session: Session, target: WorkloadTarget) -> None:
        change, means = await change_workload(
            session, target, verb, lambda lost: writing.confirm(lost, yes=sure), to=to, reason=reason
        )
        say(change, options, means, several=len(aims) > 1, dry_run=choice.dry_run)
        if wait is None or changing.over(change.object, target.row):
            return
        async with waiting(wait, f"{target} {'is on hold' if held else 'queues again'}") as tell:
            if server is not None:
                path = ("workloads", str(target.namespace), target.kind.lower(), target.name)
                await _until(lambda: asyncio.to_thread(_not_seen, server, path, held=held), tell)
            else:
                await changing.wait(
                    session, target, lambda obj: changing.still_running(obj, target.row), tell
                )

    writing.run_each(options, aims, work, refused, dry_run=choice.dry_run, selected=choice.selects)


def _not_seen(server: rest.Server, path: tuple[str, ...], *, held: bool) -> str | None:
    """What the ledger does not show yet of a hold, or of its end."""
    try:
        found = server.get(path, quiet=True)
    except rest.NotThere:
        return "the controller has not seen it yet"
    except rest.NoAnswer as problem:
        return problem.message.partition("\n")[0]
    code = (found["reason"] or {}).get("code")
    if held:
        on_hold = found["phase"] == "Pending" and code == "OnHold"
        return None if on_hold or found["phase"] in ("Finished", "Deleted") else f"it is {found['phase']}"
    return f"it is {found['phase']}, {code}" if code in _HELD else None


def _not_released(server: rest.Server, path: tuple[str, ...], attempt: int) -> str | None:
    """What the ledger does not show yet of a release by force."""
    try:
        found = server.get(path, quiet=True)
    except rest.NotThere:
        return None  # its object was deleted, and is over now
    except rest.NoAnswer as problem:
        return problem.message.partition("\n")[0]
    return f"it is {found['phase']}" if found["attempt"] == attempt else None


def _server(options: Options, namespace: str, *, held: bool) -> rest.Server | None:
    """The REST server that shows the effect of a patch; None: the object itself shows it."""
    if held and options.server is None and contexts.place(options).rest is None:
        return None
    return rest.connect(options, namespace=namespace)


# --- queues -------------------------------------------------------------------------------------------


def _change_stop(
    options: Options,
    queue: str,
    given: str | None,
    policy: str,
    reason: str | None,
    *,
    wait: float | None,
) -> None:
    from queuectl.changes import consequences
    from queuectl.changes import edit as changing

    kind, slash, name = queue.partition("/")
    if not slash or not name:
        raise click.UsageError(f"{queue!r} is not KIND/NAME, such as clusterqueue/NAME or localqueue/NAME")
    namespace = contexts.namespace(options, given)
    target = writing.target(lambda: changing.queue(kind, namespace, name))

    async def work(session: Session) -> None:
        change = await changing.set_stop_policy(session, target, policy, reason)
        say(change, options, consequences.stop_means(change))
        if wait is None:
            return
        async with waiting(wait, f"{target} {'admits again' if policy == 'None' else 'is stopped'}") as tell:
            await changing.wait(
                session,
                target,
                changing.not_resumed if policy == "None" else lambda obj: changing.not_stopped(obj, policy),
                tell,
            )

    writing.run(options, target, work)


# --- both ---------------------------------------------------------------------------------------------


def say(
    change: EditedField, options: Options, meaning: str, *, several: bool = False, dry_run: bool = False
) -> None:
    """Print a change; `several`: one of several, in a line each."""
    if options.output == "table":
        field = change.field.rpartition(".")[2] if "[" not in change.field else change.field
        click.echo(
            printing.printable(
                f"{change.target}: {field} {change.before or 'unset'} -> {change.after or 'unset'}"
                if change.before != change.after
                else f"{change.target}: {field} is {change.after or 'unset'}"
            )
        )
        if several:
            return
        click.echo(meaning)
        if change.reason:
            click.echo(printing.printable(f"Reason kept: {change.reason}"))
        return
    target = change.target
    document: dict[str, Any] = {
        "object": {"kind": target.kind, "namespace": target.namespace, "name": target.name},
        "field": change.field,
        "before": change.before,
        "after": change.after,
        "written": change.written and not dry_run,
        "reason": change.reason,
    }
    (printing.line if several else printing.document)(document, options.output)


async def _until(look: Callable[[], Awaitable[str | None]], told: Callable[[str], None]) -> None:
    while (lacks := await look()) is not None:
        told(lacks)
        await asyncio.sleep(_POLL_SECONDS)


@command("move")
@chosen
@click.option(
    "--to",
    "queue",
    required=True,
    metavar="LOCALQUEUE",
    help="The LocalQueue of their namespace in which they are to wait.",
    shell_complete=completion.local_queues,
)
@REASON
@with_options
def move(options: Options, choice: ChosenWorkloads, queue: str, reason: str | None) -> None:
    """Move workloads that wait to another LocalQueue of their namespace.

    Priority and creation time stay, and these order them there. One that runs stays where it is charged:
    `hold` it first.
    """
    _change(options, choice, "move", to=queue, reason=reason)


@command("priority")
@chosen
@click.option("--class", "name", metavar="NAME", help="The WorkloadPriorityClass that they are to have.")
@click.option("--unset", is_flag=True, help="Remove the class: that of the pods counts, if they have one.")
@REASON
@with_options
def priority(
    options: Options, choice: ChosenWorkloads, name: str | None, unset: bool, reason: str | None
) -> None:
    """Change the priority class of workloads that wait or run.

    One that waits is ordered by the new priority and its creation time, which stays. One that runs is not
    stopped; from then on the new priority decides which workloads may preempt it.
    """
    if (name is None) == (not unset):
        raise click.UsageError("give either --class NAME or --unset")
    _change(options, choice, "priority", to=name, reason=reason)


def targeted(options: Options, workload: str, given: str | None) -> WorkloadTarget:
    from queuectl.changes import edit as changing

    namespace = contexts.namespace(options, given)
    kind, name = split(workload)
    return writing.target(lambda: changing.workload(options.kinds(), kind, namespace, name))
