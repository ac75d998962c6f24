"""Writes to Kubernetes objects with the caller's rights: the session, questions, what refusals mean."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from queuectl.cli import completion, contexts
from queuectl.cli.arguments import meant
from queuectl.cli.operating import call
from queuectl.cli.options import Failure, NotGood, Options
from queuectl.cli.printing import printable

if TYPE_CHECKING:
    from queuectl.app.changing import NoSuchObject, Target
    from queuectl.kube.errors import ApiError
    from queuectl.kube.session import Session

NAMESPACE: Final = click.option(
    "-n",
    "--namespace",
    help="Its namespace.  [default: the kubeconfig's]",
    shell_complete=completion.namespaces,
)
YES: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
Aimed = TypeVar("Aimed", bound="Target")
_DENIED: Final = "denied request"
"""In the message of a refusal by an admission policy; one for a missing right does not have it."""
_VERB: Final = re.compile(r"cannot (\w+) ")


def target(make: Callable[[], Aimed]) -> Aimed:
    """The result of `make`. Raises Failure for a BadTarget."""
    from queuectl.app.changing import BadTarget

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


def run(options: Options, of: Target, work: Callable[[Session], Awaitable[None]]) -> None:
    """Run `work` with a session to the cluster of the kubeconfig; `of`: the object that errors are about."""
    kubeconfig = contexts.announced(options)

    async def session() -> None:
        from queuectl.app.connecting import session_to

        async with session_to(kubeconfig, options.context) as opened, explained(opened, of):
            await work(opened)

    call(session())


@contextlib.asynccontextmanager
async def explained(session: Session, of: Target) -> AsyncIterator[None]:
    """Refusals with messages that say what to do next."""
    from queuectl.app import changing
    from queuectl.kube.errors import Conflict, Forbidden, NotFound, Unauthorized

    try:
        yield
    except changing.NotQueued as problem:
        raise Failure(str(problem)) from None
    except changing.NotStopped as problem:
        raise NotGood(str(problem)) from None
    except NotFound:
        near = meant(of.name, await changing.names(session, of.collection))
        elsewhere = "" if near or not of.namespace else " (-n names another namespace)"
        raise NotGood(f"not found: {of}{near}{elsewhere}") from None
    except changing.NoSuchObject as problem:
        raise _missing(of, problem) from None
    except Forbidden as problem:
        if _DENIED in str(problem):
            raise NotGood(f"an admission policy refuses the change of {of}: {printable(problem)}") from None
        raise Failure(_forbidden(of, problem)) from None
    except Unauthorized as problem:
        raise Failure(
            f"the API server refuses the credentials: {problem}\nCheck --kubeconfig and --context"
        ) from None
    except Conflict:
        raise NotGood(
            f"{of} was replaced by another object of that name: nothing is written; try again"
        ) from None


def _missing(of: Target, problem: NoSuchObject) -> NotGood:
    where = f"namespace {of.namespace}" if problem.kind == "LocalQueue" else "the cluster"
    near = meant(problem.name, problem.known)
    there = ", ".join(sorted(problem.known)) or "none"
    return NotGood(
        f"{where} has no {problem.kind} {problem.name}{near}\nThere are: {there}. Nothing is written"
    )


def _forbidden(of: Target, problem: ApiError) -> str:
    found = _VERB.search(str(problem))
    verb = found[1] if found else "get"
    where = f"in namespace {of.namespace}" if of.namespace else "in the cluster"
    if of.resource.endswith(".queuectl.dev"):
        grants = "ClusterRole queuectl-admin has it; a cluster admin binds it"
    else:
        grants = "ClusterRole edit has it; an admin of the namespace binds it"
    return f"you may not {verb} {of.resource} {where} ({grants})\n{printable(problem)}"
