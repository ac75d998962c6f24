"""`submit` and `cancel`: workloads created and deleted, with the caller's rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from queuectl.cli import completion, contexts, printing, rest, writing
from queuectl.cli.choosing import Choice, chosen, confirm_all, targets
from queuectl.cli.following import Reader, newest
from queuectl.cli.importing import texts
from queuectl.cli.options import Failure, NotGood, Options, command, with_options
from queuectl.cli.rest import Document
from queuectl.cli.waiting import follow

if TYPE_CHECKING:
    from queuectl.changes.edit import WorkloadTarget
    from queuectl.changes.submit import Submission
    from queuectl.kinds.json_fields import Json
    from queuectl.kube.session import Session


@command("submit")
@click.argument("file")
@click.option("-q", "--queue", help="LocalQueue in its namespace.  [default: that of the queue label]")
@click.option(
    "-p", "--priority-class", "priority", help="WorkloadPriorityClass.  [default: that of its label, if any]"
)
@completion.NAMESPACE
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Show its decisions until it ends; exit code 1 if it fails or is deleted.",
)
@with_options
def submit(
    options: Options,
    file: str,
    queue: str | None,
    priority: str | None,
    namespace: str | None,
    follow: bool,
) -> None:
    """Create the workloads of FILE, suspended, in a queue. FILE is YAML or JSON; - is stdin.

    The same as `kubectl create` with the label queuectl.dev/queue-name; all of FILE is checked before the
    first object is created.
    """
    found = submissions_of(file, queue, priority, namespace, options)
    if not follow:
        _create(options, found)
        return
    if len(found) > 1:
        raise Failure(f"{file} has {len(found)} workloads: --follow is for one")
    server = rest.connect(options, namespace=found[0].target.namespace)
    where = {"namespace": str(found[0].target.namespace)}
    reader = Reader(server, where, newest(server, where))
    (made,) = _create(options, found)
    _follow(reader, made, options)


def submissions_of(
    file: str, queue: str | None, priority: str | None, given: str | None, options: Options
) -> list[Submission]:
    from queuectl.changes import submit as submitting
    from queuectl.files import BadFile

    default = contexts.namespace(options, given)
    try:
        return [
            one
            for name, text in texts(file)
            for one in submitting.submissions(
                text,
                name,
                kinds=options.kinds(),
                queue=queue,
                priority=priority,
                given=given,
                default=default,
            )
        ]
    except (BadFile, submitting.BadManifest) as problem:
        raise Failure(str(problem)) from None


def _create(options: Options, found: list[Submission]) -> list[Document]:
    """Create them in order, and print each one that is created."""
    from queuectl.changes import edit as changing
    from queuectl.changes import submit as submitting

    made: list[Document] = []

    async def work(session: Session) -> None:
        for queue in {(one.target.namespace, one.queue): one for one in found}.values():
            await changing.check_exists(session, "LocalQueue", queue.target.namespace, queue.queue)
        for one in found:
            try:
                name, uid = await submitting.create(session, one)
            except submitting.NameTaken:
                raise NotGood(
                    f"{one.target} exists already: choose another name, or metadata.generateName"
                ) from None
            made.append(_document(one, name, uid))
            _say_created(made[-1], options)

    writing.run(options, found[0].target, work)
    return made


def _document(one: Submission, name: str, uid: str) -> Document:
    kind, namespace = one.target.kind, one.target.namespace
    return {"kind": kind, "namespace": namespace, "name": name, "uid": uid, "queue": one.queue}


def _say_created(made: Document, options: Options) -> None:
    if options.output != "table":
        printing.line(made, options.output)
        return
    kind, namespace, name = made["kind"], made["namespace"], made["name"]
    click.echo(printing.printable(f"{kind} {namespace}/{name}: created in LocalQueue {made['queue']}"))
    explain = f"`queuectl explain {kind.lower()}/{name} -n {namespace}` says why it waits."
    click.echo(printing.printable(explain), err=True)


def _follow(reader: Reader, made: Document, options: Options) -> None:
    outcome = follow(reader, made["uid"], options.output)
    if outcome != "Succeeded":
        raise NotGood(f"{made['kind']} {made['namespace']}/{made['name']}: {outcome}")


@command("cancel")
@chosen
@completion.NAMESPACE
@writing.YES
@with_options
def cancel(options: Options, choice: Choice, namespace: str | None, yes: bool) -> None:
    """Delete workloads that are pending or run, and their pods. It asks before it ends what runs."""
    from queuectl.changes import consequences
    from queuectl.changes import edit as changing

    aims = targets(options, choice, namespace)
    sure = confirm_all(aims, choice, done="deleted", yes=yes)

    async def work(session: Session, target: WorkloadTarget) -> None:
        def allowed(now: Json) -> None:
            if lost := consequences.lost_by_cancel(target, now):
                writing.confirm(lost, yes=sure)

        before = await changing.delete(session, target, allowed)
        ran = changing.runs(before, target.row)
        if options.output != "table":
            named = {"kind": target.kind, "namespace": target.namespace, "name": target.name}
            document = {"object": named, "deleted": not choice.dry_run, "ran": ran}
            (printing.line if len(aims) > 1 else printing.document)(document, options.output)
            return
        click.echo(printing.printable(f"{target}: deleted"))
        if len(aims) == 1:
            click.echo(consequences.cancel_means(ran=ran))

    writing.run_each(options, aims, work, dry_run=choice.dry_run)
