"""The table of the resources of `get`: names, filters, columns, order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from queuectl.cli import decisions
from queuectl.cli.arguments import meant
from queuectl.cli.printing import Column, Lines, UsageBars, ago, amount, local
from queuectl.cli.rest import Document

if TYPE_CHECKING:
    from queuectl.cli.options import Options

Row = Callable[[Document, datetime | None], Sequence[object]]
"""Cells of an item; ages are by the server's clock."""
_LAST: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    name: str
    """As in the paths of REST."""
    names: tuple[str, ...]
    """Other names, in lower case."""
    columns: tuple[Column, ...]
    row: Row
    key: Callable[[Document], Any]
    """The key of an item."""
    order: Callable[[Document], Any] | None = None
    """None: the order of the answer."""
    filters: frozenset[str] = frozenset()
    single: bool = True
    """Can one item be read by its name?"""

    @property
    def namespaced(self) -> bool:
        return "namespace" in self.filters

    def path(self, name: str, namespace: str) -> tuple[str, ...]:
        """The path of one item."""
        if self.name == "workloads":
            return (self.name, namespace, *split(name))
        return (self.name, namespace, name) if self.namespaced else (self.name, name)


def split(workload: str) -> tuple[str, str]:
    """Kind and name of KIND/NAME; a bare name is a Job's."""
    kind, slash, name = workload.partition("/")
    return (kind, name) if slash else ("job", workload)


def _quota(item: Document) -> UsageBars:
    return UsageBars(tuple(map(_share, item["flavors"])))


def _share(cell: Document) -> tuple[str, int, int]:
    used, nominal = (amount(cell["resource"], cell[key]) for key in ("used", "nominal"))
    text = f"{used}/{nominal} {cell['resource']} of {cell['flavor']}"
    if (counts := cell.get("effective", cell["nominal"])) < cell["nominal"]:
        text += f" ({amount(cell['resource'], counts)} count)"
    return text, cell["used"], cell["nominal"]


def _condition(item: Document) -> str:
    found = item["condition"]
    return str(found["reason"]) if item["active"] else f"{found['reason']}: {found['message']}"


def _cluster_queue(item: Document, now: datetime | None) -> Sequence[object]:
    return (
        *(item["name"], item["cohort"], item["queueingStrategy"], item["stopPolicy"], item["active"]),
        *(item["pending"], item["admitted"], _quota(item), _free(item), _condition(item)),
    )


def _free(item: Document) -> Lines:
    """What it can have now, a line for each line of `_quota`."""
    return Lines(tuple(amount(cell["resource"], cell["free"]) for cell in item["flavors"]))


def _cohort(item: Document, now: datetime | None) -> Sequence[object]:
    return (
        *(item["name"], item["parent"], item["active"], item["clusterQueues"]),
        *(item["pending"], item["admitted"], _quota(item), _condition(item)),
    )


def _flavor(item: Document, now: datetime | None) -> Sequence[object]:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(item["nodeLabels"].items()))
    taints = ", ".join(f"{one['key']}={one['value']}:{one['effect']}" for one in item["nodeTaints"])
    cells = ({**cell, "flavor": item["name"]} for cell in item["resources"])
    return (item["name"], labels, taints, UsageBars(tuple(map(_share, cells))))


def _local_queue(item: Document, now: datetime | None) -> Sequence[object]:
    return (
        *(item["namespace"], item["name"], item["clusterQueue"], item["stopPolicy"], item["active"]),
        *(item["pending"], item["admitted"], _condition(item)),
    )


def _workload(item: Document, now: datetime | None) -> Sequence[object]:
    pods = item["admission"]["podSets"] if item["admission"] else ()
    return (
        *(item["namespace"], f"{item['kind'].lower()}/{item['name']}", item["queue"], item["clusterQueue"]),
        *(item["phase"], _ready(item), item["position"], item["priority"], ago(item["createdAt"], now)),
        *(item["submitter"], item["attempts"], item["admittedAt"] and local(item["admittedAt"])),
        *(", ".join(sorted({flavor for one in pods for flavor in one["flavors"].values()})),),
        item["reason"]["message"] if item["reason"] else None,
    )


def _ready(item: Document) -> str | None:
    """Pods that are ready of those that it is to have."""
    ready = item.get("podsReady")  # absent: of an older server
    return f"{ready}/{item['pods']}" if ready is not None else None


def _in_line(item: Document) -> tuple[str, bool, int]:
    """By ClusterQueue: admitted ones, then pending ones by position, then those without a position."""
    return (item["clusterQueue"] or "", item["phase"] == "Pending", item["position"] or _LAST)


_PENDING: Final = Column("PENDING", right=True, drop=2)
_ADMITTED: Final = Column("ADMITTED", right=True, drop=3)
_STOP: Final = Column("STOP", wide=True)

RESOURCES: Final[Mapping[str, ListedResource]] = {
    row.name: row
    for row in (
        ListedResource(
            name="clusterqueues",
            names=("clusterqueue", "cq"),
            columns=(
                *(
                    Column("NAME"),
                    Column("COHORT", drop=4),
                    Column("STRATEGY", wide=True),
                    _STOP,
                    Column("ACTIVE", drop=5),
                ),
                *(_PENDING, _ADMITTED, Column("USED/NOMINAL"), Column("FREE"), Column("CONDITION")),
            ),
            row=_cluster_queue,
            key=lambda item: item["name"],
            order=lambda item: item["name"],
        ),
        ListedResource(
            name="cohorts",
            names=("cohort", "co"),
            columns=(
                *(
                    Column("NAME"),
                    Column("PARENT", drop=4),
                    Column("ACTIVE", drop=5),
                    Column("QUEUES", right=True, drop=1),
                ),
                *(_PENDING, _ADMITTED, Column("USED/NOMINAL"), Column("CONDITION")),
            ),
            row=_cohort,
            key=lambda item: item["name"],
            order=lambda item: item["name"],
        ),
        ListedResource(
            name="resourceflavors",
            names=("resourceflavor", "flavors", "flavor", "rf"),
            columns=(
                *(Column("NAME"), Column("NODE LABELS"), Column("TAINTS", wide=True)),
                Column("USED/NOMINAL"),
            ),
            row=_flavor,
            key=lambda item: item["name"],
            order=lambda item: item["name"],
        ),
        ListedResource(
            name="localqueues",
            names=("localqueue", "queues", "queue", "lq"),
            columns=(
                *(
                    Column("NAMESPACE"),
                    Column("NAME"),
                    Column("CLUSTERQUEUE"),
                    _STOP,
                    Column("ACTIVE", drop=5),
                ),
                *(_PENDING, _ADMITTED, Column("CONDITION")),
            ),
            row=_local_queue,
            key=lambda item: (item["namespace"], item["name"]),
            order=lambda item: (item["namespace"], item["name"]),
            filters=frozenset(("namespace", "clusterqueue")),
        ),
        ListedResource(
            name="workloads",
            names=("workload", "wl"),
            columns=(
                *(Column("NAMESPACE", drop=2), Column("WORKLOAD")),
                *(Column("QUEUE", drop=6), Column("CLUSTERQUEUE", drop=3)),
                *(
                    Column("PHASE"),
                    Column("READY", right=True, drop=4),
                    Column("POSITION", right=True, drop=4),
                ),
                Column("PRIORITY", right=True, drop=5),
                *(Column("AGE", right=True, drop=1), Column("SUBMITTER", wide=True)),
                *(Column("ATTEMPTS", right=True, wide=True), Column("ADMITTED", wide=True)),
                *(Column("FLAVORS", wide=True), Column("REASON")),
            ),
            row=_workload,
            key=lambda item: item["uid"],
            order=_in_line,
            filters=frozenset(
                (
                    *("namespace", "queue", "clusterqueue", "phase", "reason", "kind"),
                    *("submitter", "mine", "labelSelector", "since"),
                )
            ),
        ),
        ListedResource(
            name="decisions",
            names=("decision",),
            columns=decisions.LISTED,
            row=lambda item, now: decisions.listed(item),
            key=lambda item: item["sequence"],
            filters=frozenset(("namespace", "after", "since")),
            single=False,
        ),
    )
}
_BY_NAME: Final = {name: row for row in RESOURCES.values() for name in (row.name, *row.names)}


class NamedResource(NamedTuple):
    """A resource, and the name of an item if the argument has one."""

    resource: ListedResource
    name: str | None
    kind: str | None = None
    """Of workloads: only those of this kind."""
    unknown: str | None = None
    """A word that is not a resource: a kind of workloads, if there is a row for it."""

    def resolved(self, options: Options) -> NamedResource:
        """Raises UsageError for a word that is neither a resource nor a kind."""
        if self.unknown is None:
            return self
        word, slash, _ = self.unknown.partition("/")
        if (row := options.kinds().find(word)) is None:
            raise click.UsageError(f"{word!r} is none of {', '.join(RESOURCES)}{meant(word, _BY_NAME)}")
        return (
            NamedResource(self.resource, self.unknown)
            if slash
            else NamedResource(self.resource, None, row.name)
        )


class ResourceName(click.ParamType[NamedResource]):
    """A resource by any of its names: RESOURCE, RESOURCE/NAME, or KIND or KIND/NAME of workloads."""

    name = "resource"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamedResource:
        if isinstance(value, NamedResource):
            return value
        word, slash, name = str(value).partition("/")
        found = _BY_NAME.get(word.lower())
        if found is None:  # a kind: those of the configuration are not known here
            return NamedResource(RESOURCES["workloads"], None, None, str(value))
        return NamedResource(found, name if slash else None)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in RESOURCES if name.startswith(incomplete)]
