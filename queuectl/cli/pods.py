"""`logs` and `exec`: the pods of a workload, by kubectl."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Final, NoReturn

import click

from queuectl.cli import completion, contexts
from queuectl.cli.arguments import kind_and_name, meant
from queuectl.cli.job_flags import PROGRAM, CommandWithProgram
from queuectl.cli.operating import call
from queuectl.cli.options import Failure, NotGood, Options, command, with_options
from queuectl.cli.printing import local, printable
from queuectl.cli.reading import workload_of
from queuectl.cli.resources import phase
from queuectl.cli.rest import Document

_MOST_FOLLOWED: Final = 50
"""Pods whose logs are followed at once: each is a connection to the API server."""
_CONTAINER: Final = click.option("-c", "--container", metavar="NAME", help="Container of the pods.")


@command("logs")
@kind_and_name("workload", completion.workloads)
@completion.NAMESPACE
@_CONTAINER
@click.option("-f", "--follow", is_flag=True, help="Continue until the pods end.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines of each pod.")
@click.option("--pod", metavar="NAME", help="Only this pod.  [default: all of them]")
@with_options
def logs(
    options: Options,
    workload: str,
    namespace: str | None,
    container: str | None,
    follow: bool,
    tail: int | None,
    pod: str | None,
) -> None:
    """Print the output of the pods of a workload: `kubectl logs` of all that have its label.

    Lines of several pods begin with the name of their pod. It needs kubectl, and your right to read logs.
    """
    found, pods = _pods_of(options, workload, namespace)
    words = ["logs", "-n", found["namespace"]]
    if pod is not None or len(pods) == 1:
        words.append(_chosen(pods, pod))
    else:
        words += ["--selector", _selector(found), "--prefix", "--max-log-requests", str(_MOST_FOLLOWED)]
    words += [f"--tail={-1 if tail is None else tail}"]
    words += ["--container", container] if container is not None else ["--all-containers"]
    _kubectl(options, [*words, "--follow"] if follow else words)


@command("exec", cls=CommandWithProgram)
@kind_and_name("workload", completion.workloads)
@completion.NAMESPACE
@_CONTAINER
@click.option("--pod", metavar="NAME", help="In this pod.  [default: the first one that runs]")
@with_options
def exec_(
    options: Options, workload: str, namespace: str | None, container: str | None, pod: str | None
) -> None:
    """Run a command in a pod of a workload: `kubectl exec`.  [default: sh]

    queuectl exec job/train -- nvidia-smi
    """
    found, pods = _pods_of(options, workload, namespace)
    running = [one for one in pods if _phase(one) == "Running"]
    if not running:
        raise NotGood(printable(f"{_title(found)}: {_why(found, f'none of its {len(pods)} pods runs')}"))
    chosen = _chosen(pods if pod is not None else running, pod)
    if chosen not in map(_name, running):
        phase = next(_phase(one) for one in pods if _name(one) == chosen)
        raise NotGood(printable(f"{_title(found)}: its pod {chosen} does not run: it is {phase}"))
    words = ["exec", "-n", found["namespace"], "--stdin", chosen]
    words += ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    words += ["--container", container] if container is not None else []
    program = click.get_current_context().meta.get(PROGRAM) or ("sh",)
    _kubectl(options, [*words, "--", *program])


def _pods_of(options: Options, workload: str, given: str | None) -> tuple[Document, list[Document]]:
    """The workload, and its pods by name. Raises NotGood if it has none."""
    namespace = contexts.namespace(options, given)
    _, _, found = workload_of(options, workload, namespace)
    kubeconfig = contexts.place(options).kubeconfig

    async def read() -> list[Document]:
        from queuectl.kube.connections import session_to
        from queuectl.kube.errors import Forbidden
        from queuectl.kube.session import api_path

        path = api_path("", "v1", "pods", found["namespace"])
        async with session_to(kubeconfig, options.context) as session:
            try:
                query = {"labelSelector": _selector(found)}
                return [obj async for page in session.pages(path, query=query) for obj in page["items"]]
            except Forbidden as problem:
                raise Failure(printable(problem)) from None

    pods = sorted(call(read()), key=_name)
    if not pods:
        raise NotGood(printable(f"{_title(found)}: {_why(found, 'it has no pods')}"))
    return found, pods


def _why(found: Document, pods: str) -> str:
    """Why no pod of it runs, and what to type. `pods`: what is known of its pods."""
    reason = f": {found['reason']['message']}" if found["reason"] else ""
    if found["phase"] != "Pending":
        return f"{pods}: it is {phase(found)}{reason}"
    after = f"again after attempt {found['attempts']}" if found["attempts"] else ""
    since = after or f"since {local(found['createdAt'])}"
    typed = f"queuectl explain {found['kind'].lower()}/{found['name']} -n {found['namespace']}"
    return f"it waits {since}{reason}; `{typed}` shows what would help"


def _title(found: Document) -> str:
    return f"{found['kind']} {found['namespace']}/{found['name']}"


def _name(pod: Document) -> str:
    return str(pod["metadata"]["name"])


def _phase(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase") or "Unknown")


def _selector(found: Document) -> str:
    from queuectl.kinds.reserved_keys import WORKLOAD_LABEL

    return f"{WORKLOAD_LABEL}={found['uid']}"


def _chosen(pods: list[Document], given: str | None) -> str:
    """Raises NotGood if there is no such pod."""
    names = [_name(pod) for pod in pods]
    if given is not None and given not in names:
        raise NotGood(f"{given} is none of its pods{meant(given, names)}: {', '.join(names[:5])}")
    return given or names[0]


def _kubectl(options: Options, words: list[str]) -> NoReturn:
    """Become kubectl, with the same cluster. Raises Failure if it is not installed."""
    program = shutil.which("kubectl")
    if program is None:
        raise Failure("kubectl is not on PATH: install it, or read the pods that carry the workload's label")
    kubeconfig: Any = contexts.place(options).kubeconfig
    where = ["--kubeconfig", str(kubeconfig)] if kubeconfig is not None else []
    where += ["--context", options.context] if options.context is not None else []
    sys.stdout.flush()
    os.execv(program, [program, *where, *words])
