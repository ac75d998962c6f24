"""The table of the resources of `get`: names, filters, columns, order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from queuectl.cli import arrays, decisions
from queuectl.cli.arguments import meant
from queuectl.cli.identity import ACCOUNT
from queuectl.cli.printing import (
    NOTHING,
    Lines,
    Sentence,
    TableField,
    UsageBars,
    ago,
    amount,
    device_times,
    field,
    local,
    shown,
    table_of,
)
from queuectl.cli.rest import Document
from queuectl.screen.explanation import phase as phase
from queuectl.screen.text import age

if TYPE_CHECKING:
    from queuectl.cli.options import Options

_LAST: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    name: str
    """As in the paths of REST."""
    names: tuple[str, ...]
    """Other names, in lower case."""
    fields: tuple[TableField, ...]
    """The cells of an item; its age is by the server's clock, which it has as field `now`."""
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

    def show(self, items: Iterable[Document], now: datetime | None, *, wide: bool) -> None:
        """Print a table. `now`: the server's clock."""
        table_of(self.fields, ({**item, "now": now} for item in items), wide=wide)

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
    """With the codes of its warnings, such as `Ready, QuotaBeyondNodes`."""
    found = item["condition"]
    if not item["active"]:
        return f"{found['reason']}: {found['message']}"
    warnings = dict.fromkeys(one["code"] for one in item.get("warnings", ()))
    return ", ".join((str(found["reason"]), *warnings))


def _free(item: Document) -> Lines:
    """What it can have now, a line for each line of `_quota`."""
    return Lines(tuple(amount(cell["resource"], cell["free"]) for cell in item["flavors"]))


def _idle(item: Document) -> str:
    """The verdict about its GPUs, and how many of them do nothing, such as `Idle 4/4`."""
    use = item.get("use")
    return NOTHING if use is None else f"{use['verdict']} {use['idleDevices']}/{use['devices']}"


def _labels(item: Document) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(item["nodeLabels"].items()))


def _taints(item: Document) -> str:
    return ", ".join(f"{one['key']}={one['value']}:{one['effect']}" for one in item["nodeTaints"])


def _quota_of_flavor(item: Document) -> UsageBars:
    return _quota({"flavors": [{**cell, "flavor": item["name"]} for cell in item["resources"]]})


def _pods(item: Document) -> object:
    """All its pods; of an open attempt, how many of them are ready."""
    ready = item.get("podsReady")  # absent: of an older server
    return f"{ready}/{item['pods']}" if ready is not None else item.get("pods")


def _flavors(item: Document) -> str:
    pods = item["admission"]["podSets"] if item["admission"] else ()
    return ", ".join(sorted({flavor for one in pods for flavor in one["flavors"].values()}))


def _user(item: Document) -> str | None:
    """The submitter; a service account without the prefix that all of them have."""
    return item["submitter"] and str(item["submitter"]).removeprefix(ACCOUNT)


def _gpus(item: Document) -> int | None:
    """GPUs and MIG devices of all its pods, such as `amd.com/gpu` and `nvidia.com/mig-1g.5gb`."""
    requests: dict[str, int] | None = item.get("requests")  # absent: of an older server
    if requests is None:
        return None
    return sum(count for name, count in requests.items() if "/gpu" in name or "/mig-" in name)


def _run_time(item: Document) -> str | None:
    """How long its open attempt has run; of one that is over, how long all its attempts did."""
    if (end := item.get("end")) is not None:
        return age(end["heldSeconds"])
    return ago(item["admittedAt"], item["now"]) if item["admittedAt"] else None


def _device_time(item: Document) -> Lines:
    """What all attempts of one that is over held of GPUs and other devices."""
    return Lines(tuple(device_times((item.get("end") or {}).get("resourceSeconds"))))


def _why(item: Document) -> Sentence | None:
    """Of one that failed, what its object says: often a word, then a sentence."""
    if failure := (item.get("end") or {}).get("failure"):
        return Sentence(failure, brief=failure.partition(":")[0])
    reason = item["reason"]
    return reason and Sentence(reason["message"], brief=reason["code"])


def _ended(item: Document) -> str:
    return local(item["end"]["endedAt"]) if item.get("end") else NOTHING


def _in_line(item: Document) -> tuple[str, bool, int]:
    """By ClusterQueue: admitted ones, then pending ones by position, then those without a position."""
    return (item["clusterQueue"] or "", item["phase"] == "Pending", item["position"] or _LAST)


_NAME: Final = field("NAME", "name")
_STOP: Final = field("STOP", "stopPolicy", wide=True)
_ACTIVE: Final = field("ACTIVE", "active", drop=5)
_PENDING: Final = field("PENDING>", "pending", drop=2)
_ADMITTED: Final = field("ADMITTED>", "admitted", drop=3)
_CONDITION: Final = field("CONDITION", _condition)

RESOURCES: Final[Mapping[str, ListedResource]] = {
    row.name: row
    for row in (
        ListedResource(
            name="clusterqueues",
            names=("clusterqueue", "cq"),
            fields=(
                _NAME,
                field("COHORT", "cohort", drop=4),
                field("STRATEGY", "queueingStrategy", wide=True),
                _STOP,
                _ACTIVE,
                _PENDING,
                _ADMITTED,
                field("USED/NOMINAL", _quota),
                field("FREE", _free),
                _CONDITION,
            ),
            key=lambda item: item["name"],
            order=lambda item: item["name"],
        ),
        ListedResource(
            name="cohorts",
            names=("cohort", "co"),
            fields=(
                _NAME,
                field("PARENT", "parent", drop=4),
                _ACTIVE,
                field("QUEUES>", "clusterQueues", drop=1),
                _PENDING,
                _ADMITTED,
                field("USED/NOMINAL", _quota),
                _CONDITION,
            ),
            key=lambda item: item["name"],
            order=lambda item: item["name"],
        ),
        ListedResource(
            name="resourceflavors",
            names=("resourceflavor", "flavors", "flavor", "rf"),
            fields=(
                _NAME,
                field("NODE LABELS", _labels),
                field("TAINTS", _taints, wide=True),
                field("USED/NOMINAL", _quota_of_flavor),
            ),
            key=lambda item: item["name"],
            order=lambda item: item["name"],
        ),
        ListedResource(
            name="localqueues",
            names=("localqueue", "queues", "queue", "lq"),
            fields=(
                field("NAMESPACE", "namespace"),
                _NAME,
                field("CLUSTERQUEUE", "clusterQueue"),
                _STOP,
                _ACTIVE,
                _PENDING,
                _ADMITTED,
                _CONDITION,
            ),
            key=lambda item: (item["namespace"], item["name"]),
            order=lambda item: (item["namespace"], item["name"]),
            filters=frozenset(("namespace", "clusterqueue")),
        ),
        ListedResource(
            name="workloads",
            names=("workload", "wl"),
            fields=(
                field("NAMESPACE", "namespace", drop=3),
                field("WORKLOAD", lambda item: Lines((f"{item['kind'].lower()}/{item['name']}",))),
                field("USER", _user, drop=1),
                field("QUEUE", "queue", drop=7),
                field("CLUSTERQUEUE", "clusterQueue", drop=4),
                field("PHASE", phase),
                field("GPUS>", _gpus, drop=1),
                field("PODS>", _pods, drop=1),
                field("POSITION>", "position", drop=5),
                field("PRIORITY>", "priority", drop=6),
                field("TIME>", _run_time, drop=1),
                field("AGE>", lambda item: ago(item["createdAt"], item["now"]), drop=4),
                field("ATTEMPTS>", "attempts", wide=True),
                field("ADMITTED", shown(local, "admittedAt"), wide=True),
                field("ENDED", _ended, wide=True),
                field("HELD", _device_time, wide=True),
                field("FLAVORS", _flavors, wide=True),
                field("IDLE", _idle, wide=True),
                field("REASON", _why, drop=2),
            ),
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
            fields=decisions.LISTED,
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
        word, slash, name = self.unknown.partition("/")
        if (row := options.kinds().find(word)) is None:
            known = ", ".join((*RESOURCES, "nodes"))
            raise click.UsageError(
                f"{word!r} is none of {known}{arrays.hint(word, name) or meant(word, _BY_NAME)}"
            )
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
        return [CompletionItem(name) for name in (*RESOURCES, "nodes") if name.startswith(incomplete)]
