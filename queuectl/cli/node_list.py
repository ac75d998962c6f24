"""`get nodes` and `info node/NAME`: the Nodes of the cluster, and the workloads whose pods are on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.arguments import meant
from queuectl.cli.options import NotGood, Options
from queuectl.cli.printing import NOTHING, Lines, amount, field, table_of
from queuectl.cli.rest import Document

NODES: Final = ("nodes", "node", "no")
"""Names of the resource."""
_HOST: Final = ("cpu", "memory")


def shown(options: Options, word: str | None, name: str | None, flags: Iterable[object]) -> bool:
    """Print the nodes that `nodes`, `node/NAME`, or `node` and `name` mean; return whether they mean any.

    `flags`: the values of those that do not go with nodes. Raises UsageError where one is given.
    """
    resource, _, own = (word or "").partition("/")
    if resource.lower() not in NODES:
        return False
    if any(flag is not None and flag is not False for flag in flags):
        raise click.UsageError("of the flags, only --output goes with nodes")
    if options.output not in ("table", "json", "yaml"):
        raise click.UsageError(f"-o {options.output}: nodes are printed as table, wide, json or yaml")
    _show(options, own or name)
    return True


def _show(options: Options, name: str | None) -> None:
    """Raises Failure, and NotGood if there is no such node."""
    found = rest.connect(options).all(("nodes",), {})["items"]
    if name is not None:
        names = [one["name"] for one in found]
        if name not in names:
            raise NotGood(f"not found: node {name}{meant(name, names)}")
        found = [one for one in found if one["name"] == name]
    if printing.as_document(found[0] if name is not None else {"items": found}, options.output):
        return
    if not found:
        click.echo("no nodes found: the controller knows none, or you may get no ResourceFlavor", err=True)
        return
    table_of(_NODES, found, wide=options.wide)
    if name is not None:
        click.echo()
        if found[0]["workloads"]:
            table_of(_ON_NODE, found[0]["workloads"], wide=options.wide)
        else:
            click.echo("no pods of workloads are on it", err=True)


def _devices(amounts: Mapping[str, int]) -> list[str]:
    """Extended resources, such as nvidia.com/gpu."""
    return [name for name in amounts if "/" in name]


def _gpus(document: Document) -> Lines:
    there = document["allocatable"]
    return Lines(tuple(f"{document['used'][name]}/{there[name]} {name}" for name in _devices(there)))


def _free(document: Document) -> Lines:
    return Lines(tuple(str(document["free"][name]) for name in _devices(document["allocatable"])))


def _of_host(document: Document) -> str:
    there = [name for name in _HOST if name in document["allocatable"]]
    return ", ".join(f"{amount(name, document['free'][name])} {name}" for name in there)


def _holds(document: Document) -> str:
    names = _devices(document["used"]) or _HOST
    return ", ".join(
        f"{amount(name, document['used'][name])} {name}" for name in names if name in document["used"]
    )


def _joined(name: str) -> Any:
    return lambda document: ", ".join(document[name]) or NOTHING


def _workload(document: Document) -> str:
    return f"{document['kind'].lower()}/{document['name']}" if document["name"] else "not shown to you"


_NODES: Final = (
    field("NODE", "name"),
    field("STATE", "state"),
    field("FLAVOR", _joined("flavors"), drop=2),
    field("USED", _gpus),
    field("FREE>", _free),
    field("WORKLOADS>", lambda one: len(one["workloads"]), drop=1),
    field("TAINTS", _joined("taints")),
    field("FREE OF HOST", _of_host, wide=True),
)
_ON_NODE: Final = (
    field("NAMESPACE", "namespace"),
    field("WORKLOAD", _workload),
    field("USER", "submitter", drop=1),
    field("CLUSTERQUEUE", "clusterQueue", drop=2),
    field("PODS>", "pods"),
    field("USED", _holds),
)
