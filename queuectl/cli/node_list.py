"""`get nodes` and `info node/NAME`: the Nodes of the cluster, and the workloads whose pods are on them.

Nodes and pods are read from the API server with the rights of the caller. Flavors, and the names of the
workloads, come from REST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from queuectl.cli import contexts, printing, rest
from queuectl.cli.arguments import meant
from queuectl.cli.options import Failure, NotGood, Options
from queuectl.cli.printing import NOTHING, Lines, amount, field, table_of
from queuectl.cli.rest import Document, Server

if TYPE_CHECKING:
    from queuectl.core.model.pods import Pod
    from queuectl.core.model.policy import Node

NODES: Final = ("nodes", "node", "no")
"""Names of the resource."""
_HOST: Final = ("cpu", "memory")


class _Cluster(NamedTuple):
    """What the API server has. By node: its pods that have not ended."""

    nodes: list[Node]
    pods: dict[str, list[Pod]]


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
    cluster = _read(options, name)
    server = rest.connect(options)
    flavors = server.all(("resourceflavors",), {})["items"]
    workloads = _workloads(server)
    found = [_document(one, cluster.pods.get(one.name, ()), flavors, workloads) for one in cluster.nodes]
    if options.output != "table":
        printing.document(found[0] if name is not None else {"items": found}, options.output)
        return
    if not found:
        click.echo("no nodes found", err=True)
        return
    table_of(_NODES, found, wide=options.wide)
    if name is not None:
        click.echo()
        if found[0]["workloads"]:
            table_of(_ON_NODE, found[0]["workloads"], wide=options.wide)
        else:
            click.echo("no pods of workloads are on it", err=True)


def _read(options: Options, name: str | None) -> _Cluster:
    """Raises Failure, and NotGood if there is no such node."""
    from queuectl.cli.operating import call

    kubeconfig = contexts.announced(options)

    async def read() -> _Cluster:
        from queuectl.core.model.policy import Node
        from queuectl.kinds.context import CONTEXT_KINDS
        from queuectl.kinds.pods import POD_QUERY, pod_event
        from queuectl.kube.connections import session_to
        from queuectl.kube.errors import Forbidden
        from queuectl.kube.session import api_path

        query = dict(POD_QUERY)
        if name is not None:
            query["fieldSelector"] += f",spec.nodeName={name}"
        cluster = _Cluster([], {})
        row = CONTEXT_KINDS["Node"]
        async with session_to(kubeconfig, options.context) as session:
            try:
                async for page in session.pages(api_path("", "v1", "nodes")):
                    found = map(row.observe, page["items"])
                    cluster.nodes.extend(one for one in found if isinstance(one, Node))
                async for page in session.pages(api_path("", "v1", "pods"), query=query):
                    for obj in page["items"]:
                        event = pod_event(obj)
                        if event is not None and event.pod.node is not None:
                            cluster.pods.setdefault(event.pod.node, []).append(event.pod)
            except Forbidden as problem:
                raise Failure(
                    f"{printing.printable(problem)}\nThis needs the right to list nodes and pods of all "
                    "namespaces, which ClusterRole view does not have for nodes; `queuectl info` shows the "
                    "nodes of each flavor without it"
                ) from None
        return cluster

    cluster = call(read())
    if name is not None:
        one = [node for node in cluster.nodes if node.name == name]
        if not one:
            raise NotGood(f"not found: node {name}{meant(name, [node.name for node in cluster.nodes])}")
        cluster = cluster._replace(nodes=one)
    cluster.nodes.sort(key=lambda node: node.name)
    return cluster


def _workloads(server: Server) -> Mapping[str, Document]:
    """Those that hold quota and that the caller may read, by uid."""
    found: dict[str, Document] = {}
    for phase in ("Admitted", "Evicting"):
        found |= {one["uid"]: one for one in server.all(("workloads",), {"phase": phase})["items"]}
    return found


def _document(
    node: Node, pods: Iterable[Pod], flavors: Iterable[Document], workloads: Mapping[str, Document]
) -> Document:
    """Amounts are in base units, as in REST."""
    used: Counter[str] = Counter()
    by_workload: dict[str | None, Counter[str]] = {}
    numbers: Counter[str | None] = Counter()
    for pod in pods:
        used.update({**dict(pod.requests), "pods": 1})
        by_workload.setdefault(pod.workload, Counter()).update(dict(pod.requests))
        numbers[pod.workload] += 1
    state, labels = _state(node), set(node.labels)
    return {
        "name": node.name,
        "state": state,
        "flavors": [one["name"] for one in flavors if labels.issuperset(one["nodeLabels"].items())],
        "taints": [str(one) for one in node.taints],
        "allocatable": dict(node.allocatable),
        "used": {resource: used[resource] for resource, _ in node.allocatable},
        "free": {
            resource: max(0, most - used[resource]) if state == "Ready" else 0
            for resource, most in node.allocatable
        },
        "workloads": [
            {**_named(workloads.get(uid)), "uid": uid, "pods": numbers[uid], "used": dict(taken)}
            for uid, taken in by_workload.items()
            if uid is not None
        ],
        "unmanaged": dict(by_workload.get(None, ())),
    }


def _state(node: Node) -> str:
    """By the Node alone; the rules of the configuration are in the states that `info` counts."""
    return "NotReady" if not node.ready else "Cordoned" if node.cordoned else "Ready"


def _named(workload: Document | None) -> Document:
    names = ("namespace", "kind", "name", "clusterQueue", "submitter")
    return {name: workload[name] if workload is not None else None for name in names}


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
