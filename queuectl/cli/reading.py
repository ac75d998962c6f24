"""`get`, `explain` and `history`: reading from REST."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import click

from queuectl.cli import arrays, completion, contexts, decisions, following, node_list, printing, rest
from queuectl.cli.arguments import Duration, Since, Word, kind_and_name, meant
from queuectl.cli.arrays import folded
from queuectl.cli.completion import NAMESPACE
from queuectl.cli.options import SELECTIONS, Failure, Options, command, with_options
from queuectl.cli.resources import RESOURCES, ListedResource, NamedResource, ResourceName, split
from queuectl.cli.rest import Document, NoAnswer, NotThere, Server
from queuectl.cli.selecting import Show
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Phase

When = datetime | timedelta | None
_with_selections = partial(with_options, formats=SELECTIONS)
AS_OF = click.option(
    "--as-of",
    type=Since(),
    metavar="TIME",
    help="The state at an earlier time: 90m, 12h, 3d ago, or a time (UTC).",
)
_POD_SECONDS: Final = 5.0
"""For the read of a pod that is no workload: its group may be one."""
HISTORY: Final = 20
"""Newest decisions that explain shows."""
WORKLOAD = kind_and_name("workload", completion.workloads)


@command("get")
@click.argument(
    "named",
    type=ResourceName(),
    metavar="RESOURCE",
)
@click.argument("name", required=False, shell_complete=completion.objects)
@click.option(
    "-n",
    "--namespace",
    help="Only there; for a NAME: its own.",
    shell_complete=completion.namespaces,
)
@click.option("-A", "--all-namespaces", is_flag=True, help="All that you may read, as without -n.")
@click.option("--queue", help="Only workloads of LocalQueues of this name.")
@click.option(
    "--cluster-queue",
    "clusterqueue",
    help="Only items of this ClusterQueue.",
    shell_complete=completion.cluster_queues,
)
@click.option(
    "--phase",
    type=Word("phase", Phase),
    metavar="PHASE",
    help="Pending, Admitted, Evicting, Finished or Deleted.  [default: the first three]",
)
@click.option(
    "--reason", type=Word("reason code", Code), metavar="CODE", help="Reason code, such as WaitingForQuota."
)
@click.option("--kind", help="Only workloads of this kind, such as Job.")
@click.option("--submitter", metavar="USER", help="Only workloads that this user submitted.")
@click.option("--mine", is_flag=True, help="Only workloads that you submitted.")
@click.option("-l", "--selector", "labelSelector", metavar="SELECTOR", help="Label selector, such as team=a.")
@click.option(
    "--since",
    type=Duration(),
    metavar="TIME",
    help="Workloads created in the last 90s, 15m, 2h, 7d (finished ones: ended); decisions since then.",
)
@click.option("--after", metavar="SEQUENCE", help="Decisions after this one.")
@click.option("--sort", metavar="FIELD", help="By a field of -o json, such as priority; -FIELD: descending.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this number of items.  [default: all]")
@click.option("-w", "--watch", is_flag=True, help="Continue and show changes.")
@AS_OF
@_with_selections
def get(
    options: Options,
    named: NamedResource,
    name: str | None,
    *,
    watch: bool,
    all_namespaces: bool,
    mine: bool,
    since: timedelta | None,
    as_of: When,
    **given: Any,
) -> None:
    """List queues, workloads, nodes or decisions, or show one.

    RESOURCE is clusterqueues, cohorts, resourceflavors, localqueues, workloads or decisions; or a kind of
    workloads, such as jobs. A workload is named KIND/NAME, such as job/train. Nodes are read from the API
    server, with your rights. An array is one row for each phase, but with -l queuectl.dev/array=NAME.

    -o name, jsonpath= and custom-columns= are as in kubectl, over the documents of -o json.
    """
    if node_list.shown(options, named.unknown, name, (watch, mine, since, as_of, *given.values())):
        return
    named = named.resolved(options)
    resource, name = named.resource, _only(named.name, name)
    if named.kind is not None and name is not None:
        name = f"{named.kind.lower()}/{name}"
    elif named.kind is not None:
        given["kind"] = given["kind"] or named.kind
    limit, sort = given.pop("limit"), given.pop("sort")
    for one, other, together in (
        ("-A", "-n", all_namespaces and given["namespace"] is not None),
        ("--mine", "--submitter", mine and given["submitter"] is not None),
        ("--since", "--after", since is not None and given["after"] is not None),
        ("--as-of", "--watch", as_of is not None and watch),
    ):
        if together:
            raise click.UsageError(f"{one} does not go with {other}")
    filters = _filters(resource, name, {**given, "mine": "yes" if mine else None, "since": since})
    if name is not None and not resource.single:
        raise click.UsageError(f"{resource.name} have no NAME")
    if name is not None and (limit is not None or sort is not None or watch):
        raise click.UsageError("--limit, --sort and --watch are for lists")
    show = _show(options, resource)
    server = rest.connect(options, namespace=filters.get("namespace"))
    server.look_back(as_of)
    if name is not None:
        _one(options, server, resource, name, filters.get("namespace"), show)
        return
    asked = ListRequest(resource, _sent(options, server, resource, filters, since), limit, sort, show)
    if watch:
        list_changes(server, asked, options)
    else:
        list_once(server, asked, options)


def _sent(
    options: Options,
    server: Server,
    resource: ListedResource,
    filters: dict[str, str],
    since: timedelta | None,
) -> dict[str, str]:
    """The filters as REST has them: --mine and --since are resolved."""
    sent = {key: value for key, value in filters.items() if key not in ("mine", "since")}
    if "mine" in filters:
        sent["submitter"] = own_name(options)
    if since is not None and resource.name == "decisions":
        sent["after"] = str(following.start(server, sent, since))
    elif since is not None:
        sent["sinceSeconds"] = str(int(since.total_seconds()))
    return sent


def _only(inside: str | None, beside: str | None) -> str | None:
    """The name: in one argument with its resource, or in the next one."""
    if inside is not None and beside is not None:
        raise click.UsageError(f"{inside!r} and {beside!r}: one name is enough")
    return beside if inside is None else inside


def _filters(resource: ListedResource, name: str | None, given: dict[str, Any]) -> dict[str, str]:
    found = {key: str(value) for key, value in given.items() if value is not None}
    if not resource.namespaced:
        # As in kubectl: a namespace is ignored for cluster-scoped resources.
        found.pop("namespace", None)
    for key in found:
        if key not in resource.filters or (name is not None and key != "namespace"):
            flag = {"clusterqueue": "--cluster-queue", "labelSelector": "-l"}.get(key, f"--{key}")
            raise click.UsageError(f"{flag} does not go with {resource.name}{' and a name' if name else ''}")
    return found


def _show(options: Options, resource: ListedResource) -> Show | None:
    """What prints documents in a format that selects parts of them; None for the other formats."""
    from queuectl.cli import selecting

    def name(item: Document) -> str:
        return f"{item['kind'].lower() if 'kind' in item else resource.name[:-1]}/{item['name']}"

    if options.output == selecting.NAME and not resource.single:
        raise click.UsageError(f"{resource.name} have no name")
    try:
        return selecting.shower(options.output, name)
    except selecting.BadTemplate as problem:
        raise Failure(f"-o {options.output}: {problem}") from None


def own_name(options: Options) -> str:
    """The user's name in the cluster. Raises Failure."""
    from queuectl.cli.operating import call
    from queuectl.kube.connections import own_name

    found = call(own_name(contexts.place(options).kubeconfig, options.context))
    if found is None:
        raise Failure("--mine: this cluster does not say which user you are: use --submitter USER")
    return found


def _one(
    options: Options,
    server: Server,
    resource: ListedResource,
    name: str,
    given: str | None,
    show: Show | None,
) -> None:
    namespace = contexts.namespace(options, given) if resource.namespaced else ""
    try:
        found = server.get(resource.path(name, namespace))
    except NotThere as problem:
        raise _better(options, problem, server, resource, name, namespace) from None
    if show is not None:
        show(found, False)
    elif not printing.as_document(found, options.output):
        resource.show([found], server.now, wide=options.wide)


@command("explain")
@WORKLOAD
@NAMESPACE
@click.option(
    "--story",
    is_flag=True,
    help="Its last decisions and the writes to its object instead, oldest first, in UTC.",
)
@AS_OF
@with_options
def explain(options: Options, workload: str, namespace: str | None, story: bool, as_of: When) -> None:
    """Explain why a workload is pending: the limit that binds, holders, workloads ahead, what would help."""
    from queuectl.cli.explain import changes, show, show_story, surroundings

    server, path, found = workload_of(options, workload, namespace, as_of)
    if story:
        found = server.get((*path, "story"), quiet=True)
    if options.output != "table":
        if not story:
            tried = changes(server, found)
            found = {**found, "counterfactuals": None if tried is None else list(tried)}
        printing.document(found, options.output)
        return
    if story:
        show_story(found)
        return
    history = None if found.get("stale") else _history(server, path, newest=HISTORY)
    show(found, history, surroundings(server, found), server.now)


@command("history")
@WORKLOAD
@NAMESPACE
@AS_OF
@with_options
def history(options: Options, workload: str, namespace: str | None, as_of: When) -> None:
    """Show all decisions on a workload: time, verdict, flavors, reason, and what caused them."""
    server, path, _ = workload_of(options, workload, namespace, as_of)
    found = server.all((*path, "history"), {})
    if not printing.as_document(found, options.output):
        printing.table_of(decisions.FIELDS, found["items"])


def workload_of(
    options: Options,
    workload: str,
    given: str | None,
    as_of: When = None,
    timeout: float = rest.TIMEOUT_SECONDS,
) -> tuple[Server, tuple[str, ...], Document]:
    """The server, the path of a workload, and its document. Raises Failure that says what to try instead."""
    namespace = contexts.namespace(options, given)
    server = rest.connect(options, namespace=namespace, timeout=timeout)
    server.look_back(as_of)
    resource = RESOURCES["workloads"]
    path = resource.path(workload, namespace)
    try:
        return server, path, server.get(path)
    except NotThere as problem:
        group = _group_of(options, workload, namespace)
        if group is not None:
            with contextlib.suppress(NotThere):
                path = resource.path(f"podgroup/{group}", namespace)
                found = server.get(path)
                click.echo(f"{workload} is a pod of podgroup/{group}", err=True)
                return server, path, found
        raise _better(options, problem, server, resource, workload, namespace) from None


def _group_of(options: Options, workload: str, namespace: str | None) -> str | None:
    """The group of a pod, by its label; None: it has none, it is no pod, or it cannot be read."""
    from queuectl.cli.operating import call
    from queuectl.kinds.reserved_keys import GROUP_LABEL
    from queuectl.kinds.single_pod import POD

    kind, name = split(workload)
    if kind.lower() not in (POD.kind.lower(), POD.plural, *POD.names) or not namespace:
        return None
    place = contexts.checked(contexts.place(options), options)

    async def read() -> str | None:
        import asyncio

        from queuectl.kube.connections import session_to
        from queuectl.kube.errors import ApiError, BadKubeconfig
        from queuectl.kube.session import api_path

        try:
            async with (
                asyncio.timeout(_POD_SECONDS),
                session_to(place.kubeconfig, options.context) as session,
            ):
                pod = await session.get(api_path("", "v1", "pods", namespace, name))
        except (ApiError, BadKubeconfig, TimeoutError):
            return None
        labels: dict[str, str] = pod["metadata"].get("labels") or {}
        return labels.get(GROUP_LABEL)

    return call(read())


def _history(server: Server, path: tuple[str, ...], *, newest: int) -> Document | None:
    """None if the ledger cannot be read."""
    try:
        found = server.all((*path, "history"), {})
    except Failure:
        return None
    return {**found, "items": found["items"][-newest:]}


def _better(
    options: Options, problem: NotThere, server: Server, resource: ListedResource, name: str, namespace: str
) -> Failure:
    """The error for an object that does not exist, with what to try instead."""
    if resource.name == "workloads":
        kind, alone = split(name)
        kinds = options.kinds()
        row = kinds.find(kind)
        if row is None:
            known = [found.name.lower() for found in kinds]
            hint = arrays.hint(kind, alone) or meant(kind, known)
            return Failure(f"kind {kind!r} is none of {', '.join(known)}{hint}")
        name = f"{row.name.lower()}/{alone}"
    where = f" in namespace {namespace}" if namespace else ""
    try:
        items = server.get((resource.name,), {"limit": str(rest.PAGE)}, quiet=True)["items"]
    except Failure:
        items = []
    here = [_named(item) for item in items if not namespace or item["namespace"] == namespace]
    elsewhere = sorted({item["namespace"] for item in items if namespace and _named(item) == name})
    told = f"not found: {resource.name.removesuffix('s')} {name}{where}"
    if near := meant(name, here):
        return NotThere(told + near)
    if elsewhere:
        return NotThere(f"{told}; there is one in {', '.join(elsewhere)}: -n names the namespace")
    return NotThere(f"{told}, or you may not read it\n`queuectl get {resource.name}` lists those that exist")


def _named(item: Document) -> str:
    return f"{item['kind'].lower()}/{item['name']}" if "kind" in item else str(item["name"])


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


def list_once(server: Server, asked: ListRequest, options: Options) -> None:
    found = _read(server, asked)
    if asked.show is not None:
        asked.show(found, True)
    elif options.output != "table":
        printing.document(found, options.output)
    elif found["items"]:
        together = asked.resource.name == "workloads" and "labelSelector" not in asked.filters
        items = folded(found["items"]) if together else found["items"]
        asked.resource.show(items, server.now, wide=options.wide)
    else:
        click.echo(f"no {asked.resource.name} found{_misspelt(server, asked)}", err=True)


def list_changes(server: Server, asked: ListRequest, options: Options) -> None:
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
