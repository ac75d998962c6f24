"""`fit`: one patch of the number or size of the pods of a waiting workload, with the caller's rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from queuectl.cli import completion, printing, rest, writing
from queuectl.cli.arguments import kind_and_name
from queuectl.cli.changing import REASON, targeted
from queuectl.cli.options import NotGood, Options, command, with_options
from queuectl.kinds.json_fields import MAX_COUNT

if TYPE_CHECKING:
    from queuectl.changes.edit import WorkloadTarget
    from queuectl.changes.fit import FitChange
    from queuectl.core.model.workload import PodSet
    from queuectl.kinds.pod_sizes import Size
    from queuectl.kube.session import Session

_NUMBER: Final = click.IntRange(min=1, max=MAX_COUNT)


@command("fit")
@kind_and_name("workload", completion.workloads)
@click.option(
    "--gpus",
    type=_NUMBER,
    metavar="N",
    help="GPUs, or other devices, of all its pods together. One pod requests N; of several there are fewer "
    "or more, each as large as before.",
)
@click.option(
    "--pods",
    type=_NUMBER,
    metavar="N",
    help="Pods at a time, such as the parallelism of a Job. Beside --gpus they share the GPUs equally.",
)
@click.option(
    "--to-start",
    is_flag=True,
    help="The largest size with which it starts now, as `explain` shows it. REST tries it.",
)
@click.option("--podset", "pod_set", metavar="NAME", help="The podset to change, if it has several.")
@click.option(
    "--completions",
    is_flag=True,
    help="Change the completions of an Indexed Job to the number of its pods too.",
)
@click.option("--dry-run", is_flag=True, help="Have the API server check the patch, and write nothing.")
@completion.NAMESPACE
@REASON
@with_options
def fit(
    options: Options,
    workload: str,
    gpus: int | None,
    pods: int | None,
    to_start: bool,
    pod_set: str | None,
    completions: bool,
    dry_run: bool,
    namespace: str | None,
    reason: str | None,
) -> None:
    """Change how many pods a waiting workload has, or how many GPUs they request. It keeps its place.

    The fields of its object change, nothing else: what its program is told of their number stays. One that
    runs is refused: `hold` it first.
    """
    if (gpus is None and pods is None) != to_start:
        raise click.UsageError("give --gpus N, --pods N or both, or --to-start")
    from queuectl.changes import consequences
    from queuectl.changes import fit as fitting
    from queuectl.kinds.pod_sizes import CannotFit, sized

    target = targeted(options, workload, namespace)
    size = (
        _to_start(options, target, pod_set)
        if to_start
        else lambda pod_sets: sized(pod_sets, gpus, pods, pod_set)
    )

    async def work(session: Session) -> None:
        wanted = fitting.WantedFit(size, completions=completions, dry_run=dry_run, reason=reason)
        try:
            done = await fitting.fit(session, target, wanted, lambda now: consequences.can_fit(target, now))
        except CannotFit as problem:
            raise NotGood(consequences.not_fitted(target, problem)) from None
        except fitting.NotPermitted as problem:
            raise NotGood(writing.lines(consequences.not_permitted(target, problem))) from None
        _say(target, done, options, dry_run=dry_run)

    writing.run(options, target, work)


def _to_start(
    options: Options, target: WorkloadTarget, pod_set: str | None
) -> Callable[[Sequence[PodSet]], Size]:
    """The size that REST finds, of this podset if one is named."""
    from queuectl.kinds.pod_sizes import CannotFit, Smaller, largest

    server = rest.connect(options, namespace=target.namespace)
    path = ("workloads", target.namespace or "", target.kind.lower(), target.name, "counterfactuals")
    answer = server.get(path)
    anyway = answer["now"]["starts"] in ("Now", "AfterPreemption")
    tried = [
        Smaller(one["podSet"], one["resource"], one["before"], one["after"])
        for one in answer["items"]
        if one["kind"] in ("FewerPods", "SmallerPods") and pod_set in (None, one["podSet"])
    ]

    def size(pod_sets: Sequence[PodSet]) -> Size:
        if anyway:  # it waits: one that runs was refused before
            raise CannotFit("it starts as large as it is")
        return largest(pod_sets, tried)

    return size


def _say(target: WorkloadTarget, done: FitChange, options: Options, *, dry_run: bool) -> None:
    from queuectl.changes import consequences

    found = done.found
    if printing.as_document(_document(target, done, dry_run=dry_run), options.output):
        return
    before, after = consequences.size(found.before), consequences.size(found.after)
    lines = [f"{target}, podset {found.before.name}: {f'{before} -> {after}' if found.fields else before}"]
    lines += [
        f"{one.name} {'unset' if one.before is None else one.before} -> {one.after}" for one in found.fields
    ]
    if dry_run:
        lines.append("A dry run: the API server would accept it, and nothing is written.")
    else:
        lines.append(consequences.fit_means(found, written=done.written))
    if (left := consequences.still_completes(found)) is not None:
        lines.append(f"{left}; --completions changes both.")
    if done.reason:
        lines.append(f"Reason kept: {done.reason}")
    for line in lines:
        click.echo(printing.printable(line))


def _document(target: WorkloadTarget, done: FitChange, *, dry_run: bool) -> dict[str, Any]:
    found = done.found
    return {
        "object": {"kind": target.kind, "namespace": target.namespace, "name": target.name},
        "podSet": found.before.name,
        "before": _size(found.before),
        "after": _size(found.after),
        "fields": [{"field": one.name, "before": one.before, "after": one.after} for one in found.fields],
        "written": done.written and not dry_run,
        "dryRun": dry_run,
        "reason": done.reason,
    }


def _size(pods: PodSet) -> dict[str, Any]:
    return {"pods": pods.count, "requests": dict(pods.requests)}
