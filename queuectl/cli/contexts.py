"""The cluster of a command: a context of a kubeconfig, chosen as kubectl does, or a sandbox on this machine.

REST and Kubernetes are always of the same cluster, unless --server names another REST server.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from queuectl.cli.arguments import meant
from queuectl.cli.options import Failure, Options, read_endpoints
from queuectl.cli.printing import printable

DEFAULT_NAMESPACE: Final = "default"
MAX_FILE: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One cluster."""

    kubeconfig: Path | None
    """None: the user's default, or that of the pod."""
    context: str | None
    """Name of the context; None if no kubeconfig has one."""
    server: str | None
    """URL of the API server, if a kubeconfig names one."""
    namespace: str
    sandbox: Path | None = None
    """Folder, if it is a sandbox on this machine."""
    rest: str | None = None
    """URL of the REST server of the sandbox."""

    def __str__(self) -> str:
        if self.sandbox is not None:
            return f"using the sandbox in {self.sandbox}"
        return f"context {printable(self.context)} ({printable(self.server)})"


def place(options: Options) -> Place:
    """The cluster that the options, the environment and the kubeconfigs name. It may have no server."""
    chosen = _sandbox(options)
    kubeconfig = chosen / "kubeconfig" if chosen is not None else options.kubeconfig
    name, context, server = _chosen(_documents(kubeconfig), options.context)
    namespace = str(context.get("namespace") or DEFAULT_NAMESPACE)
    found = Place(kubeconfig=kubeconfig, context=name, server=server, namespace=namespace)
    if options.server is not None:
        return found
    for folder in (chosen,) if chosen is not None else _beside(options):
        endpoints = read_endpoints(folder)
        if "rest" in endpoints and (chosen is not None or endpoints.get("kubernetes") == server):
            return replace(found, sandbox=folder, rest=endpoints["rest"])
    return found


def announced(options: Options) -> Path | None:
    """The kubeconfig of a command that writes; the context is shown. None: the user's default.

    Raises Failure if there is no such context.
    """
    found = checked(place(options), options)
    if found.server is not None:
        announce(str(found))
    return found.kubeconfig


def announce(text: str) -> None:
    """Print which cluster is meant, once in a command."""
    context = click.get_current_context(silent=True)
    told = context.meta.setdefault(__name__, set()) if context is not None else set()
    if text not in told:
        told.add(text)
        click.echo(text, err=True)


def checked(found: Place, options: Options) -> Place:
    """Raises Failure if the kubeconfig does not have the given context."""
    if options.context is not None and found.context is None:
        documents = _documents(found.kubeconfig)
        names = [entry.get("name") for document in documents for entry in _list(document.get("contexts"))]
        if names:
            raise Failure(f"--context {options.context}: no such context{meant(options.context, names)}")
    return found


def in_pod() -> bool:
    """Does this program run in a pod that may use its cluster?"""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def namespace(options: Options, given: str | None) -> str:
    """The given namespace, else that of the context."""
    return place(options).namespace if given is None else given


def _sandbox(options: Options) -> Path | None:
    """The sandbox that is meant if no kubeconfig is given: that of --data, of this folder, or the default."""
    if options.server is not None or options.kubeconfig is not None:
        return None
    if options.data is not None:
        return options.data if read_endpoints(options.data) else None
    if "KUBECONFIG" in os.environ:
        return None
    here = Path.cwd()
    return here if _runs_in(here) else options.folder if read_endpoints(options.folder) else None


def _runs_in(folder: Path) -> bool:
    """Does a sandbox run on this folder?

    A kubeconfig may name a program to run: one that merely lies in the working directory is not used.
    """
    if not read_endpoints(folder):
        return False
    try:
        descriptor = os.open(folder / "sandbox.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _beside(options: Options) -> list[Path]:
    """Folders of sandboxes whose cluster the kubeconfigs may name."""
    paths = [options.kubeconfig] if options.kubeconfig is not None else _of_user()
    return [*(path.parent for path in paths), options.folder]


def _documents(kubeconfig: Path | None) -> list[dict[str, Any]]:
    paths = [kubeconfig] if kubeconfig is not None else _of_user()
    return [content for path in paths if (content := _read(path))]


def _of_user() -> list[Path]:
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path.home() / ".kube" / "config"]


def _chosen(
    documents: list[dict[str, Any]], given: str | None
) -> tuple[str | None, dict[str, Any], str | None]:
    """Name and content of the context, and the URL of its API server."""
    name = given or next((found for one in documents if (found := one.get("current-context"))), None)
    context = _named(documents, "contexts", name).get("context")
    if not isinstance(context, dict):
        return None, {}, None
    cluster = _named(documents, "clusters", context.get("cluster")).get("cluster")
    server = cluster.get("server") if isinstance(cluster, dict) else None
    return str(name), context, server if isinstance(server, str) else None


def _named(documents: list[dict[str, Any]], kind: str, name: object) -> dict[str, Any]:
    entries = (entry for one in documents for entry in _list(one.get(kind)))
    return next((entry for entry in entries if entry.get("name") == name), {})


def _read(path: Path) -> dict[str, Any]:
    """Empty if it cannot be read: a command that needs the cluster reports the reason."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE:
            return {}
        text = path.read_bytes()
        from queuectl.kubernetes_yaml import load

        content = next((content for content, _ in load(text)), None)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
