"""`get` and `explain`: what REST knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.options import Failure, Options, with_options
from queuectl.cli.rest import Document, Server

_RESOURCES: Final = {
    name: resource
    for resource, names in {
        "clusterqueues": ("clusterqueues", "clusterqueue", "cq"),
        "localqueues": ("localqueues", "localqueue", "queues", "queue", "lq"),
        "workloads": ("workloads", "workload", "wl"),
    }.items()
    for name in names
}
_FILTERS: Final = {
    "clusterqueues": (),
    "localqueues": ("namespace", "clusterqueue"),
    "workloads": ("namespace", "queue", "clusterqueue", "phase", "reason", "kind"),
}
DEFAULT_NAMESPACE: Final = "default"
HISTORY: Final = 20
"""Newest decisions that explain shows."""


class _Resource(click.ParamType[str]):
    name = "resource"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _RESOURCES.get(str(value).lower())
        if found is None:
            self.fail(f"{value!r} is none of {', '.join(_FILTERS)}", param, ctx)
        return found


@click.command("get")
@click.argument("resource", type=_Resource(), metavar="clusterqueues|localqueues|workloads")
@click.argument("name", required=False)
@click.option("-n", "--namespace", help="Only there; for a NAME: where it is [default: default].")
@click.option("--queue", help="Workloads of LocalQueues of this name.")
@click.option("--cluster-queue", "clusterqueue", help="Only what belongs to this ClusterQueue.")
@click.option("--phase", help="Pending, Admitted, Evicting, Finished or Deleted. Else all that are not over.")
@click.option("--reason", help="Reason code, such as WaitingForQuota.")
@click.option("--kind", help="Job, PyTorchJob.")
@with_options
def get(options: Options, resource: str, name: str | None, **filters: str | None) -> None:
    """List queues or workloads, or show one. A workload is named KIND/NAME, such as job/train."""
    given = {key: value for key, value in filters.items() if value is not None}
    for key in given:
        if key not in _FILTERS[resource] or (name and key != "namespace"):
            flag = "--cluster-queue" if key == "clusterqueue" else f"--{key}"
            raise click.UsageError(f"{flag} does not go with {resource}{' and a name' if name else ''}")
    server = rest.connect(options)
    if name is None:
        found = server.all((resource,), given)
        items = found["items"]
    else:
        found = server.get((resource, *_path(resource, name, given.get("namespace"))))
        items = [found]
    if options.output != "table":
        printing.document(found, options.output)
    elif items:
        headers, row = _COLUMNS[resource]
        printing.table(headers, [row(item) for item in sorted(items, key=_ORDERS[resource])])
    else:
        click.echo(f"no {resource} found", err=True)


@click.command("explain")
@click.argument("workload", metavar="KIND/NAME")
@click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where it is.")
@with_options
def explain(options: Options, workload: str, namespace: str) -> None:
    """Say why a workload waits, which limit binds, who holds it, and what would help."""
    from queuectl.cli.explain import show

    server = rest.connect(options)
    path = ("workloads", *_path("workloads", workload, namespace))
    found = server.get(path)
    if options.output != "table":
        printing.document(found, options.output)
        return
    show(found, _history(server, path, found))


def _history(server: Server, path: tuple[str, ...], workload: Document) -> Document | None:
    if workload.get("stale"):
        return None
    try:
        found = server.all((*path, "history"), {})
    except Failure:
        return None
    return {**found, "items": found["items"][-HISTORY:]}


def _path(resource: str, name: str, namespace: str | None) -> tuple[str, ...]:
    namespace = namespace or DEFAULT_NAMESPACE
    if resource == "clusterqueues":
        return (name,)
    if resource == "localqueues":
        return (namespace, name)
    kind, slash, rest_of_name = name.partition("/")
    return (namespace, kind, rest_of_name) if slash else (namespace, "job", name)


def _cluster_queue(item: Document) -> Sequence[object]:
    quota = ", ".join(map(_quota, item["flavors"]))
    return (
        item["name"],
        item["cohort"],
        item["active"],
        item["pending"],
        item["admitted"],
        quota,
        _why(item),
    )


def _quota(cell: Document) -> str:
    used, nominal = (printing.amount(cell["resource"], cell[key]) for key in ("used", "nominal"))
    return f"{cell['flavor']}/{cell['resource']} {used}/{nominal}"


def _local_queue(item: Document) -> Sequence[object]:
    return (
        item["namespace"],
        item["name"],
        item["clusterQueue"],
        item["active"],
        item["pending"],
        item["admitted"],
        _why(item),
    )


def _why(item: Document) -> str:
    found = item["condition"]
    return found["reason"] if item["active"] else f"{found['reason']}: {found['message']}"


def _workload(item: Document) -> Sequence[object]:
    return (
        item["namespace"],
        f"{item['kind'].lower()}/{item['name']}",
        item["queue"],
        item["clusterQueue"],
        item["phase"],
        item["position"],
        item["priority"],
        item["reason"]["message"] if item["reason"] else None,
    )


def _in_line(item: Document) -> tuple[str, bool, int]:
    """By queue: those that run, then those in line, then those in none. The rest stays as it came."""
    return (item["clusterQueue"] or "", item["phase"] == "Pending", item["position"] or (1 << 62))


_COLUMNS: Final[dict[str, tuple[tuple[str, ...], Callable[[Document], Sequence[object]]]]] = {
    "clusterqueues": (
        ("NAME", "COHORT", "ACTIVE", "PENDING", "ADMITTED", "USED/NOMINAL", "CONDITION"),
        _cluster_queue,
    ),
    "localqueues": (
        ("NAMESPACE", "NAME", "CLUSTERQUEUE", "ACTIVE", "PENDING", "ADMITTED", "CONDITION"),
        _local_queue,
    ),
    "workloads": (
        ("NAMESPACE", "WORKLOAD", "QUEUE", "CLUSTERQUEUE", "PHASE", "POSITION", "PRIORITY", "REASON"),
        _workload,
    ),
}
_ORDERS: Final[dict[str, Callable[[Document], Any]]] = {
    "clusterqueues": lambda item: item["name"],
    "localqueues": lambda item: (item["namespace"], item["name"]),
    "workloads": _in_line,
}
