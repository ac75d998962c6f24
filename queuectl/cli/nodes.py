"""`info`: what the nodes of each flavor have, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from queuectl.cli import completion, node_list, printing, rest
from queuectl.cli.arguments import meant
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import Column, Lines, amount, printable
from queuectl.cli.reading import AS_OF, When
from queuectl.cli.rest import Document

_READY: Final = "Ready"

_CAPACITY: Final = (
    *(Column("FLAVOR"), Column("NODES"), Column("RESOURCE"), Column("MODE", drop=1)),
    *(Column("QUOTA", right=True), Column("THERE", right=True), Column("USED", right=True)),
    *(Column("UNMANAGED", right=True), Column("EXPECTED", right=True, drop=2), Column("FREE", right=True)),
    Column("FREE SHAPES"),
)
_UNMANAGED: Final = (
    Column("FLAVOR"),
    Column("RESOURCE"),
    Column("NAMESPACE"),
    Column("UNMANAGED", right=True),
)
_DEMAND: Final = (
    *(Column("CLUSTERQUEUE"), Column("FLAVOR"), Column("AWAITS"), Column("WORKLOADS", right=True)),
    *(Column("PODS", right=True), Column("EACH"), Column("NODE SELECTOR")),
)
_OTHERS: Final = "others"


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
        _show(_DEMAND, list(_demands(items)), "nothing waits for quota or room", options)
    elif unmanaged:
        _show(_UNMANAGED, list(_users(items)), "no pods outside of workloads use these nodes", options)
    else:
        _show(_CAPACITY, list(_capacities(items)), "no flavors found", options)
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


def _show(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], nothing: str, options: Options
) -> None:
    if rows:
        printing.table(columns, rows, wide=options.wide)
    else:
        click.echo(nothing, err=True)


def _of_flavor(item: Document, flavor: str) -> Document:
    return {**item, "demand": [one for one in item["demand"] if one["flavor"] == flavor]}


def _capacities(items: Sequence[Document]) -> Iterator[Sequence[object]]:
    for item in items:
        nodes = _nodes(item["nodes"])
        if not item["resources"]:
            yield (item["flavor"], nodes, *[None] * (len(_CAPACITY) - 2))
        for one in item["resources"]:
            resource = one["resource"]
            yield (
                *(item["flavor"], nodes, resource, one["mode"]),
                amount(resource, one["nominal"]),
                amount(resource, one["allocatable"].get(_READY, 0)),
                *(amount(resource, one[key]) for key in ("used", "unmanaged", "expected", "available")),
                Lines(tuple(f"{amount(resource, s['free'])} x {s['nodes']}" for s in one["shapes"])),
            )


def _nodes(counts: dict[str, int]) -> str:
    """`2 Ready, 1 Cordoned`."""
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "0"


def _users(items: Sequence[Document]) -> Iterator[Sequence[object]]:
    for item in items:
        for one in item["resources"]:
            for user in one["unmanagedBy"]:
                used = amount(one["resource"], user["amount"])
                yield item["flavor"], one["resource"], user["namespace"] or _OTHERS, used


def _demands(items: Sequence[Document]) -> Iterator[Sequence[object]]:
    for item in items:
        for one in item["demand"]:
            each = ", ".join(f"{amount(name, value)} {name}" for name, value in one["requests"].items())
            selector = ", ".join(f"{key}={value}" for key, value in one["nodeSelector"].items())
            yield (
                *(item["clusterQueue"], one["flavor"], one["awaits"], one["workloads"], one["pods"]),
                *(each, selector),
            )


def _warn(items: Sequence[Document]) -> None:
    warnings = [(item["flavor"], one["message"]) for item in items for one in item["warnings"]]
    if warnings:
        click.echo()
    for flavor, message in warnings:
        about = f"{flavor}: " if flavor is not None and flavor not in message else ""
        click.echo(f"warning: {printable(about + message)}")
