"""`move`, `priority`: one patch of a workload's label each, with the caller's rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from queuectl.cli import completion, contexts, writing
from queuectl.cli.arguments import kind_and_name
from queuectl.cli.changing import REASON, say
from queuectl.cli.options import Options, with_options
from queuectl.cli.resources import split

if TYPE_CHECKING:
    from queuectl.changes.edit import WorkloadTarget
    from queuectl.kinds.json_fields import Json
    from queuectl.kube.session import Session


@click.command("move")
@kind_and_name("workload", completion.workloads)
@click.option(
    "--to",
    "queue",
    required=True,
    metavar="LOCALQUEUE",
    help="The LocalQueue of its namespace in which it is to wait.",
    shell_complete=completion.local_queues,
)
@writing.NAMESPACE
@REASON
@with_options
def move(options: Options, workload: str, queue: str, namespace: str | None, reason: str | None) -> None:
    """Move a workload that waits to another LocalQueue of its namespace.

    Its priority and creation time stay, and these order it there. One that runs stays where it is charged:
    `hold` it first.
    """
    from queuectl.changes import consequences
    from queuectl.changes import move as moving

    target = targeted(options, workload, namespace)

    def allowed(now: Json) -> None:
        consequences.waits(target, now)

    async def work(session: Session) -> None:
        change = await moving.move(session, target, queue, allowed, reason)
        say(change, options, consequences.move_means(change))

    writing.run(options, target, work)


@click.command("priority")
@kind_and_name("workload", completion.workloads)
@click.option("--class", "name", metavar="NAME", help="The WorkloadPriorityClass that it is to have.")
@click.option("--unset", is_flag=True, help="Remove its class: that of its pods counts, if they have one.")
@writing.NAMESPACE
@REASON
@with_options
def priority(
    options: Options,
    workload: str,
    name: str | None,
    unset: bool,
    namespace: str | None,
    reason: str | None,
) -> None:
    """Change the priority class of a workload that waits or runs.

    One that waits is ordered by the new priority and its creation time, which stays. One that runs is not
    stopped; from then on the new priority decides which workloads may preempt it.
    """
    if (name is None) == (not unset):
        raise click.UsageError("give either --class NAME or --unset")
    from queuectl.changes import consequences
    from queuectl.changes import move as moving

    target = targeted(options, workload, namespace)

    def allowed(now: Json) -> None:
        consequences.not_over(target, now, "another priority")

    async def work(session: Session) -> None:
        change = await moving.set_priority(session, target, name, allowed, reason)
        say(change, options, consequences.priority_means(change, target))

    writing.run(options, target, work)


def targeted(options: Options, workload: str, given: str | None) -> WorkloadTarget:
    from queuectl.changes import edit as changing

    namespace = contexts.namespace(options, given)
    kind, name = split(workload)
    return writing.target(lambda: changing.workload(options.kinds(), kind, namespace, name))
