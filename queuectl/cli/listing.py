"""Lists, once or as they change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.arguments import meant
from queuectl.cli.options import Failure, Options
from queuectl.cli.resources import ListedResource
from queuectl.cli.rest import Document, NoAnswer, Server
from queuectl.cli.selecting import Show

WATCH_SECONDS: Final = 2.0
_NAMED: Final = (
    ("queue", "localqueues", "name", "no localqueue"),
    ("clusterqueue", "clusterqueues", "name", "no clusterqueue"),
    ("namespace", "localqueues", "namespace", "no localqueue in namespace"),
)
"""Filters by name: the resource and the field with the names, and what to say where there is none."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What to list, and how."""

    resource: ListedResource
    filters: dict[str, str]
    limit: int | None
    sort: str | None
    """A field of the documents, with dots between its parts; descending with a `-` before it."""
    show: Show | None = None
    """What prints parts of the documents; None: they are printed whole, or as a table."""


def once(server: Server, asked: ListRequest, options: Options) -> None:
    found = _read(server, asked)
    if asked.show is not None:
        asked.show(found, True)
    elif options.output != "table":
        printing.document(found, options.output)
    elif found["items"]:
        asked.resource.show(found["items"], server.now, wide=options.wide)
    else:
        click.echo(f"no {asked.resource.name} found{_misspelt(server, asked)}", err=True)


def watch(server: Server, asked: ListRequest, options: Options) -> None:
    """All items, then new, changed and deleted ones, until interrupted.

    As one table after another; as JSON or YAML, item by item. Waits for a server that does not answer.
    """
    shown: dict[Any, Document] = {}
    started = False
    try:
        while True:
            try:
                items = _read(server, asked)["items"]
            except NoAnswer as problem:
                if not started:
                    raise
                click.echo(f"{problem.message.partition(chr(10))[0]}: retrying", err=True)
                time.sleep(WATCH_SECONDS)
                continue
            started = True
            now = {asked.resource.key(item): item for item in items}
            _changes(server, asked, options, [item for key, item in now.items() if shown.get(key) != item])
            for key in shown.keys() - now.keys():
                name = "/".join(key) if isinstance(key, tuple) else shown[key].get("name", key)
                click.echo(f"{printing.printable(name)} is finished or deleted", err=True)
            shown = now
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _changes(server: Server, asked: ListRequest, options: Options, items: list[Document]) -> None:
    if asked.show is not None:
        asked.show({"items": items}, True)
    elif options.output != "table":
        for item in items:
            printing.line(item, options.output)
    elif items:
        asked.resource.show(items, server.now, wide=options.wide)


def _read(server: Server, asked: ListRequest) -> Document:
    """The first `limit` after sorting; without a sort field, no more items are fetched than shown."""
    resource = asked.resource
    unsorted = asked.sort is None and resource.order is None
    found = server.all((resource.name,), asked.filters, limit=asked.limit if unsorted else None)
    items = found["items"]
    if asked.sort is not None:
        items = _sorted(items, asked.sort)
    elif resource.order is not None:
        items = sorted(items, key=resource.order)
    return {**found, "items": items[: asked.limit]}


def _sorted(items: list[Document], field: str) -> list[Document]:
    """Items without the field come last in both directions. Raises Failure if no item has it."""
    path = field.removeprefix("-").split(".")
    has: list[tuple[Any, Document]] = []
    lacks = []
    for item in items:
        value: Any = item
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, str | int | float):
            has.append((value, item))
        else:
            lacks.append(item)
    if items and path[0] not in items[0]:
        raise Failure(f"--sort {field}: no such field{meant(path[0], items[0])}; -o json shows them all")
    has.sort(key=lambda one: (isinstance(one[0], str), one[0]), reverse=field.startswith("-"))
    return [item for _, item in has] + lacks


def _misspelt(server: Server, asked: ListRequest) -> str:
    """A hint on a queue or a namespace in a filter, if there is none of that name."""
    for key, resource, field, problem in _NAMED:
        wanted = asked.filters.get(key)
        if wanted is None:
            continue
        known = {item[field] for item in server.get((resource,), {"limit": "1000"}, quiet=True)["items"]}
        if wanted not in known:
            return f": there is {problem} {wanted}{meant(wanted, known)}"
    return ""
