"""`info`: what the nodes of each flavor have, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from queuectl.cli import completion, node_list, printing, rest
from queuectl.cli.arguments import meant
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import NOTHING, Lines, amount, field, printable, quantity, table_of
from queuectl.cli.reading import AS_OF, When
from queuectl.cli.rest import Document

_READY: Final = "Ready"
_OTHERS: Final = "others"


def _ready(one: Document) -> str:
    return amount(one["resource"], one["allocatable"].get(_READY, 0)) if one["resource"] else NOTHING


def _shapes(one: Document) -> Lines | None:
    if one["resource"] is None:
        return None
    return Lines(tuple(f"{amount(one['resource'], s['free'])} x {s['nodes']}" for s in one["shapes"]))


def _each(one: Document) -> str:
    return ", ".join(f"{amount(name, value)} {name}" for name, value in one["requests"].items())


def _selector(one: Document) -> str:
    return ", ".join(f"{key}={value}" for key, value in one["nodeSelector"].items())


_CAPACITY: Final = (
    field("FLAVOR", "flavor"),
    field("NODES", "nodes"),
    field("RESOURCE", "resource"),
    field("MODE", "mode", drop=1),
    field("QUOTA>", quantity("nominal")),
    field("THERE>", _ready),
    field("USED>", quantity("used")),
    field("UNMANAGED>", quantity("unmanaged")),
    field("EXPECTED>", quantity("expected"), drop=2),
    field("FREE>", quantity("available")),
    field("FREE SHAPES", _shapes),
)
_UNMANAGED: Final = (
    field("FLAVOR", "flavor"),
    field("RESOURCE", "resource"),
    field("NAMESPACE", lambda one: one["namespace"] or _OTHERS),
    field("UNMANAGED>", quantity("amount")),
)
_DEMAND: Final = (
    field("CLUSTERQUEUE", "clusterQueue"),
    field("FLAVOR", "flavor"),
    field("AWAITS", "awaits"),
    field("WORKLOADS>", "workloads"),
    field("PODS>", "pods"),
    field("EACH", _each),
    field("NODE SELECTOR", _selector),
)


@command("info")
@click.argument("flavor", required=False, metavar="[FLAVOR|node/NAME]", shell_complete=completion.flavors)
@click.option("--unmanaged", is_flag=True, help="Show use by pods that belong to no workload, by namespace.")
@click.option("--demand", is_flag=True, help="Show pods of pending workloads that wait for quota or room.")
@AS_OF
@with_options
def info(options: Options, flavor: str | None, unmanaged: bool, demand: bool, as_of: When) -> None:
    """Show the nodes of each flavor: how many, what their pods use, and what is free.

    THERE is what is allocatable on ready nodes whose taints the flavor tolerates. EXPECTED are pods of
    admitted workloads that are not bound yet. FREE is what new pods can have now, FREE SHAPES how it lies,
    with the flavor's headroom: 8 x 3 are 3 nodes with 8 free.

    node/NAME: one node, and the workloads on it; `queuectl get nodes` lists all. These are read from the API
    server, with your rights.
    """
    if unmanaged and demand:
        raise click.UsageError("--unmanaged and --demand are not used together")
    if node_list.shown(options, flavor, None, (unmanaged, demand, as_of)):
        return
    server = rest.connect(options)
    server.look_back(as_of)
    if demand:
        found = server.all(("demand",), {})
        if flavor is not None:
            found["items"] = [_of_flavor(item, flavor) for item in found["items"]]
        items = found["items"]
    elif flavor is not None:
        found = _capacity_of(server, flavor)
        items = [found]
    else:
        found = server.all(("capacity",), {})
        items = found["items"]
    if options.output != "table":
        printing.document(found, options.output)
    elif demand:
        rows = [{**one, "clusterQueue": item["clusterQueue"]} for item in items for one in item["demand"]]
        table_of(_DEMAND, rows, wide=options.wide, none="nothing waits for quota or room")
    elif unmanaged:
        none = "no pods outside of workloads use these nodes"
        table_of(_UNMANAGED, _users(items), wide=options.wide, none=none)
    else:
        table_of(_CAPACITY, _capacities(items), wide=options.wide, none="no flavors found")
        _warn(items)


def _capacity_of(server: rest.Server, flavor: str) -> Document:
    try:
        return server.get(("capacity", flavor))
    except rest.NotThere:
        known = [item["flavor"] for item in server.all(("capacity",), {})["items"]]
        raise rest.NotThere(
            f"no ResourceFlavor {flavor} that you may read{meant(flavor, known)}\n"
            f"For a node: `queuectl info node/{flavor}`"
        ) from None


def _of_flavor(item: Document, flavor: str) -> Document:
    return {**item, "demand": [one for one in item["demand"] if one["flavor"] == flavor]}


def _capacities(items: Sequence[Document]) -> Iterator[Document]:
    """A row for each resource of a flavor; one without resources has one row."""
    for item in items:
        for one in item["resources"] or ({"resource": None},):
            yield {**one, "flavor": item["flavor"], "nodes": _nodes(item["nodes"])}


def _nodes(counts: dict[str, int]) -> str:
    """`2 Ready, 1 Cordoned`."""
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "0"


def _users(items: Sequence[Document]) -> Iterator[Document]:
    for item in items:
        for one in item["resources"]:
            for user in one["unmanagedBy"]:
                yield {**user, "flavor": item["flavor"], "resource": one["resource"]}


def _warn(items: Sequence[Document]) -> None:
    warnings = [(item["flavor"], one["message"]) for item in items for one in item["warnings"]]
    if warnings:
        click.echo()
    for flavor, message in warnings:
        about = f"{flavor}: " if flavor is not None and flavor not in message else ""
        click.echo(f"warning: {printable(about + message)}")
