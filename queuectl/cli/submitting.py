"""`submit` and `cancel`: workloads created and deleted, with the caller's rights."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from queuectl.cli import completion, contexts, printing, rest, writing
from queuectl.cli.choosing import ChosenWorkloads, chosen, confirm_all, targets
from queuectl.cli.following import Reader, newest
from queuectl.cli.importing import texts
from queuectl.cli.job_flags import CommandWithProgram, JobFlags, job_flags, requested, start_annotations
from queuectl.cli.options import Failure, NotGood, Options, command, with_options
from queuectl.cli.rest import Document
from queuectl.cli.waiting import follow
from queuectl.kinds.labels import ARRAY_LABEL

if TYPE_CHECKING:
    from queuectl.changes.edit import WorkloadTarget
    from queuectl.changes.submit import Submission
    from queuectl.kube.session import Session


@command("submit", cls=CommandWithProgram)
@click.argument("file", required=False)
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
@job_flags
@with_options
def submit(
    options: Options,
    file: str | None,
    queue: str | None,
    priority: str | None,
    namespace: str | None,
    follow: bool,
    flags: JobFlags,
) -> None:
    """Create workloads in a queue, suspended: those of FILE, or a Job that the flags describe.

    FILE is YAML or JSON (- is stdin), or a batch script: its #SBATCH lines are defaults of the flags. After
    -- comes the command of the Job, or the arguments of the script:

    queuectl submit -q main --image pytorch:2 --gpus 8 --time 2h -- python train.py

    The same as `kubectl create` with the label queuectl.dev/queue-name; all is checked before the first
    object is created.
    """
    found = submissions_of(file, flags, queue, priority, namespace, options)
    if not follow:
        made = _create(options, found)
        if flags.interactive and options.output == "table":
            _say_how_to_enter(made[0], options)
        return
    if len(found) > 1:
        raise Failure(f"there are {len(found)} workloads: --follow is for one")
    server = rest.connect(options, namespace=found[0].target.namespace)
    where = {"namespace": str(found[0].target.namespace)}
    reader = Reader(server, where, newest(server, where))
    (created,) = _create(options, found)
    _follow(reader, created, options)


def submissions_of(
    file: str | None,
    flags: JobFlags,
    queue: str | None,
    priority: str | None,
    given: str | None,
    options: Options,
) -> list[Submission]:
    """Those of a file, of the files of a folder, or of flags. Raises Failure and UsageError."""
    from queuectl.changes.submit import BadManifest
    from queuectl.files import BadFile

    made = requested(file, flags)
    conditions = start_annotations(flags, options)
    if flags.interactive and options.kinds().of("v1", "Pod") is None:
        raise Failure(
            "--interactive: pods queue with `kinds: [Pod]` in the configuration: give it as --config"
        )
    try:
        sources = [made.source] if made is not None else list(texts(str(file)))
        found = _checked(sources, queue, priority or (made and made.priority), given, options)
        for one in found:
            one.annotate(conditions)
        return found
    except (BadFile, BadManifest) as problem:
        raise Failure(str(problem)) from None


def _checked(
    sources: Sequence[tuple[str, bytes]],
    queue: str | None,
    priority: str | None,
    given: str | None,
    options: Options,
) -> list[Submission]:
    """`sources`: names and contents of files. Raises Failure."""
    from queuectl.changes import submit as submitting
    from queuectl.files import BadFile

    default = contexts.namespace(options, given)
    try:
        return [
            one
            for name, text in sources
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

    if owners := [one.owner for one in found if one.owner]:
        raise Failure(
            f"{owners[0]}: its pods queue by the label on its template: create it with kubectl, and ask "
            "about a pod of it with `queuectl quote`"
        )
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
            if options.output != "table":
                printing.line(made[-1], options.output)

    try:
        writing.run(options, found[0].target, work)
    finally:
        if made and options.output == "table":
            _say_created(made)
    return made


def _document(one: Submission, name: str, uid: str) -> Document:
    kind, namespace = one.target.kind, one.target.namespace
    found = {"kind": kind, "namespace": namespace, "name": name, "uid": uid, "queue": one.queue}
    array = one.object["metadata"]["labels"].get(ARRAY_LABEL)
    return {**found, "array": array} if array else found


def _say_created(made: Sequence[Document]) -> None:
    """One line, and how to see more."""
    first = made[0]
    kind, namespace, name = first["kind"], first["namespace"], first["name"]
    if len(made) == 1:
        text = f"{kind} {namespace}/{name}: created in LocalQueue {first['queue']}"
        more = f"`queuectl explain {kind.lower()}/{name} -n {namespace}` says why it waits."
    else:
        queues = ", ".join(dict.fromkeys(one["queue"] for one in made))
        text = f"{len(made)} workloads, {kind} {namespace}/{name} to {made[-1]['name']}: created in {queues}"
        array = first.get("array")
        select = f" -l {ARRAY_LABEL}={array}" if array else ""
        more = f"`queuectl get workloads -n {namespace}{select}` lists them."
        if array:
            more += f" `queuectl cancel -n {namespace} array/{array}` deletes them."
    click.echo(printing.printable(text))
    click.echo(printing.printable(more), err=True)


def _say_how_to_enter(made: Document, options: Options) -> None:
    name, namespace = made["name"], made["namespace"]
    # That pods queue is in the configuration alone.
    config = f" --config {shlex.quote(str(options.config))}" if options.config is not None else ""
    text = (
        f"`queuectl wait pod/{name} -n {namespace} --for started`, then "
        f"`queuectl exec pod/{name} -n {namespace}` opens a shell in it. "
        f"`queuectl cancel pod/{name} -n {namespace}{config}` ends it."
    )
    click.echo(printing.printable(text), err=True)


def _follow(reader: Reader, made: Document, options: Options) -> None:
    outcome = follow(reader, made["uid"], options.output)
    if outcome != "Succeeded":
        raise NotGood(f"{made['kind']} {made['namespace']}/{made['name']}: {outcome}")


@command("cancel")
@chosen
@writing.YES
@with_options
def cancel(options: Options, choice: ChosenWorkloads, yes: bool) -> None:
    """Delete workloads that are pending or run, and their pods. It asks before it ends what runs."""
    from queuectl.changes import edit as changing
    from queuectl.changes.verbs import change_workload

    aims, refused = targets(options, choice)
    sure = confirm_all(aims, choice, done="deleted", yes=yes)

    async def work(session: Session, target: WorkloadTarget) -> None:
        change, means = await change_workload(
            session, target, "cancel", lambda lost: writing.confirm(lost, yes=sure)
        )
        if options.output != "table":
            named = {"kind": target.kind, "namespace": target.namespace, "name": target.name}
            ran = changing.runs(change.object, target.row)
            document = {"object": named, "deleted": not choice.dry_run, "ran": ran}
            (printing.line if len(aims) > 1 else printing.document)(document, options.output)
            return
        click.echo(printing.printable(f"{target}: deleted"))
        if len(aims) == 1:
            click.echo(means)

    writing.run_each(options, aims, work, refused, dry_run=choice.dry_run, selected=choice.selects)
