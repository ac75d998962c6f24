"""Shell completion of kinds, names and namespaces. Names come from REST, with a short timeout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from queuectl.cli import rest
from queuectl.cli.arguments import Complete
from queuectl.cli.options import Failure, Options, command, with_options
from queuectl.cli.rest import Document

_SECONDS: Final = 1.0
_MOST: Final = 1000
_SHELLS: Final = ("bash", "zsh", "fish")
NO_FILES: Final = ":4"
"""kubectl's directive: complete nothing else."""


@command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@with_options
def completion(options: Options, shell: str) -> None:
    """Print the completion script of a shell: `source <(queuectl completion bash)` in its start file."""
    from queuectl.cli.commands import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "queuectl", "_QUEUECTL_COMPLETE").source())


def kubectl() -> None:
    """The program `kubectl_complete-queue`: kubectl runs it with the words after `kubectl queue`.

    It prints one line for each completion of the last word, with a tab before its help, then a directive.
    """
    from queuectl.cli.commands import main

    words = sys.argv[1:] or [""]
    shell = get_completion_class("bash")
    assert shell is not None
    for item in shell(main, {}, "kubectl queue", "").get_completions(words[:-1], words[-1]):
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(NO_FILES)


def workloads(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """KIND/NAME of the workloads in the given namespace."""
    return _fitting(
        (f"{item['kind'].lower()}/{item['name']}" for item in _items(context, "workloads", _where(context))),
        incomplete,
    )


def queues(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """KIND/NAME of the queues that can be stopped."""
    found = [f"clusterqueue/{item['name']}" for item in _items(context, "clusterqueues", {})]
    found += [f"localqueue/{item['name']}" for item in _items(context, "localqueues", _where(context))]
    return _fitting(iter(found), incomplete)


def local_queues(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the LocalQueues in the given namespace."""
    return _fitting((item["name"] for item in _items(context, "localqueues", _where(context))), incomplete)


def objects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the objects that `get` lists."""
    from queuectl.cli.resources import NamedResource

    named = context.params.get("named")
    if not isinstance(named, NamedResource) or named.name is not None or not named.resource.single:
        return []
    try:
        named = named.resolved(_options(context))
    except (Failure, click.UsageError):
        return []
    resource = named.resource
    if named.kind is not None:
        found = _items(context, resource.name, {"kind": named.kind})
        return _fitting((item["name"] for item in found), incomplete)
    if resource.name == "workloads":
        return workloads(context, parameter, incomplete)
    return _fitting((item["name"] for item in _items(context, resource.name, {})), incomplete)


def _parts(resource: str, part: str = "name") -> Complete:
    """Completes with a part of each object of a resource."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _fitting((item[part] for item in _items(context, resource, {})), incomplete)

    return complete


namespaces: Final = _parts("localqueues", "namespace")
"""Namespaces with a LocalQueue."""
cluster_queues: Final = _parts("clusterqueues")
cohorts: Final = _parts("cohorts")
flavors: Final = _parts("resourceflavors")


NAMESPACE: Final = click.option(
    "-n",
    "--namespace",
    help="Its namespace.  [default: the kubeconfig's]",
    shell_complete=namespaces,
)


def _where(context: click.Context) -> dict[str, str]:
    """In the given namespace, if one is given."""
    return {"namespace": context.params["namespace"]} if context.params.get("namespace") else {}


def _fitting(found: Iterator[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(found)) if name.startswith(incomplete)]


def _items(context: click.Context, resource: str, parameters: dict[str, str]) -> list[Document]:
    """Empty without an answer in time: a shell must not hang, nor print an error into the command line."""
    try:
        # A context of its own: what it opens is closed at its end.
        with click.Context(click.Command("completion")):
            server = rest.connect(_options(context), timeout=_SECONDS, patience=_SECONDS)
            return list(server.get((resource,), {**parameters, "limit": str(_MOST)}, quiet=True)["items"])
    except (Failure, click.UsageError, KeyError, TypeError):
        return []


def _options(context: click.Context) -> Options:
    """Options from the command line so far, and from the environment."""
    given: dict[str, Any] = {}
    for known in (context.find_root().params, context.params):
        given |= {name: value for name, value in known.items() if value is not None}
    for name, variable in (("server", "QUEUECTL_SERVER"), ("server_ca", "QUEUECTL_SERVER_CA")):
        given.setdefault(name, os.environ.get(variable))
    names = ("config", "server", "server_ca", "token_file", "data", "kubeconfig", "context")
    found: dict[str, Any] = {name: given.get(name) for name in names}
    return Options(**found)
