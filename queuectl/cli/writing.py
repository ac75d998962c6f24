"""Writes to Kubernetes objects with the caller's rights: the session, questions, what refusals mean."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from queuectl.cli import contexts
from queuectl.cli.arguments import meant
from queuectl.cli.operating import call
from queuectl.cli.options import Failure, NotGood, Options
from queuectl.cli.printing import printable

if TYPE_CHECKING:
    from queuectl.changes.edit import EditTarget
    from queuectl.kube.session import Session

YES: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
Aimed = TypeVar("Aimed", bound="EditTarget")
Found = TypeVar("Found")


def target(make: Callable[[], Found]) -> Found:
    """The result of `make`. Raises Failure for a BadTarget."""
    from queuectl.changes.edit import BadTarget

    try:
        return make()
    except BadTarget as problem:
        raise Failure(str(problem)) from None


def confirm(loss: str, *, yes: bool) -> None:
    """Ask before a change that ends what runs; `loss`: what it ends.

    Raises NotGood if the answer is no, and Failure if no terminal is there to ask in.
    """
    if yes:
        return
    said = answer(loss)
    if said is None:
        raise Failure(f"{loss}\nNothing is written; --yes confirms it")
    if said.lower() not in ("y", "yes"):
        raise NotGood("nothing is written")


def answer(loss: str) -> str | None:
    """The answer of the user; None if no terminal is there to ask in."""
    if not sys.stdin.isatty():
        return None
    click.echo(printable(f"{loss}. Continue? [y/N] "), nl=False, err=True)
    return sys.stdin.readline().strip()


def run_each(
    options: Options,
    targets: Sequence[Aimed],
    work: Callable[[Session, Aimed], Awaitable[None]],
    refused: Sequence[Failure],
    *,
    dry_run: bool,
    selected: bool,
) -> None:
    """Run `work` for each target. Where it fails for some of several, the others are changed all the same.
    Where they were `selected`, one that is over is no failure.

    `refused`: why further ones cannot be changed. Raises what `explained` raises, and NotGood at the end if
    some of several failed.
    """
    from queuectl.changes.consequences import AlreadyOver

    kubeconfig = contexts.announced(options)

    async def session() -> None:
        from queuectl.kube.connections import session_to

        failed, number = len(refused), len(targets) + len(refused)
        for problem in refused:
            problem.show()
        async with session_to(kubeconfig, options.context, dry_run=dry_run) as opened:
            for target in targets:
                try:
                    async with explained(opened, target):
                        try:
                            await work(opened, target)
                        except AlreadyOver as over:
                            if not selected:
                                raise
                            click.echo(printable(str(over)), err=True)
                except Failure as problem:
                    if number == 1:
                        raise
                    failed += 1
                    problem.show()
        if dry_run:
            click.echo("dry run: nothing is written", err=True)
        if failed:
            raise NotGood(f"{failed} of {number} workloads are not changed")

    call(session())


def run(options: Options, of: EditTarget, work: Callable[[Session], Awaitable[None]]) -> None:
    """Run `work` with a session to the cluster of the kubeconfig; `of`: the object that errors are about."""
    kubeconfig = contexts.announced(options)

    async def session() -> None:
        from queuectl.kube.connections import session_to

        async with session_to(kubeconfig, options.context) as opened, explained(opened, of):
            await work(opened)

    call(session())


@contextlib.asynccontextmanager
async def explained(session: Session, of: EditTarget) -> AsyncIterator[None]:
    """Refusals with messages that say what to do next."""
    from queuectl.changes import consequences
    from queuectl.changes import edit as changing
    from queuectl.kube.errors import Conflict, Forbidden, NotFound, Unauthorized

    try:
        yield
    except changing.NotQueued as problem:
        raise Failure(str(problem)) from None
    except (changing.NotStopped, consequences.ChangeBlocked) as problem:
        raise NotGood(str(problem)) from None
    except NotFound:
        near = meant(of.name, await changing.names(session, of.collection))
        elsewhere = "" if near or not of.namespace else " (-n names another namespace)"
        raise NotGood(f"not found: {of}{near}{elsewhere}") from None
    except changing.NoSuchObject as problem:
        near = meant(problem.name, problem.known)
        raise NotGood(consequences.missing(of, problem, near)) from None
    except Forbidden as problem:
        if policy := consequences.denied(of, problem):
            raise NotGood(printable(policy)) from None
        raise Failure(lines(consequences.forbidden(of, problem))) from None
    except Unauthorized as problem:
        raise Failure(
            f"the API server refuses the credentials: {problem}\nCheck --kubeconfig and --context"
        ) from None
    except Conflict:
        raise NotGood(consequences.replaced(of)) from None


def lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
