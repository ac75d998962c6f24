"""Nodes: schemas, documents and endpoints."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from pydantic import Field

from queuectl.answers.nodes import NodeUse, flavors_of, node_use
from queuectl.answers.state import CommittedState
from queuectl.api import requests
from queuectl.api.http import not_found
from queuectl.api.requests import FLAVORS, WORKLOADS, Allowed, Question, endpoint
from queuectl.api.schemas import AMOUNT, Amounts, Committed, Document, Page
from queuectl.api.view import Routes, committed, detail, now, page
from queuectl.core.features.nodes.inventory import NodeState
from queuectl.core.model.policy import Node
from queuectl.core.model.workload import ObjectRef

_NOTES: Final = (
    "As of a few seconds ago, as the controller told it. Listed are the nodes of the flavors that the caller "
    "may get, and all others for callers that may get all resourceflavors."
)


class WorkloadOnNode(Document):
    """Pods of one workload. The names are null for all together that are over, or not shown to the caller."""

    namespace: str | None
    kind: str | None
    name: str | None
    cluster_queue: str | None
    submitter: str | None
    pods: int
    used: Amounts = Field(description=AMOUNT)


class ListedNode(Document):
    name: str
    state: NodeState
    flavors: tuple[str, ...] = Field(description="Those whose node labels it has, that the caller may get.")
    taints: tuple[str, ...]
    allocatable: Amounts = Field(description=AMOUNT)
    used: Amounts = Field(description=f"By the requests of its pods. {AMOUNT}")
    free: Amounts = Field(description=f"0 if it is not ready. {AMOUNT}")
    workloads: tuple[WorkloadOnNode, ...]
    unmanaged: Amounts = Field(description=f"Used by pods of no workload. {AMOUNT}")


class ListedNodeDetail(ListedNode, Committed):
    pass


class NodeRoutes(Routes):
    """They read the view only."""

    @endpoint(
        "/api/v1/nodes",
        "Nodes: state, taints, what is used and free, workloads",
        Page[ListedNode],
        (requests.LIMIT, requests.NEXT),
        notes=_NOTES,
    )
    async def nodes(self, question: Question) -> Committed:
        after = await self._source.after(question)
        sight = self._source.sight()
        known = await self._known(question, sight.state)
        names = [name for name in sorted(known) if after is None or name > after[0]]
        shown, next = self._source.cut(question, names, lambda name: [name])
        found = [self._use(sight.state, known[name], now(sight)) for name in shown]
        visible = await _visible(question, found)
        return await page(ListedNode, (_document(one, visible) for one in found), next, sight)

    @endpoint("/api/v1/nodes/{name}", "One node", ListedNodeDetail, notes=_NOTES)
    async def node(self, question: Question) -> Committed:
        sight = self._source.sight()
        one = (await self._known(question, sight.state)).get(str(question.path["name"]))
        if one is None:
            raise not_found()
        found = self._use(sight.state, one, now(sight))
        return detail(ListedNodeDetail, _document(found, await _visible(question, [found])), committed(sight))

    async def _known(self, question: Question, state: CommittedState) -> dict[str, _Known]:
        """The nodes that the caller may see, by name."""
        allowed = await question.caller.names(FLAVORS, [one.name for one in state.flavors()])
        every = await question.caller.may("get", FLAVORS)
        return await asyncio.to_thread(lambda: dict(_seen(state, allowed, every=every)))

    def _use(self, state: CommittedState, one: _Known, now: datetime) -> NodeUse:
        return node_use(
            one.node,
            state.nodes[one.node.name],
            one.flavors,
            state.workloads,
            state.configuration.nodes,
            now,
        )


class _Known(NamedTuple):
    node: Node
    flavors: tuple[str, ...]


def _seen(state: CommittedState, allowed: Allowed, *, every: bool) -> Iterator[tuple[str, _Known]]:
    """`every`: also nodes of no flavor."""
    flavors = [one for one in state.flavors() if one.name in allowed]
    for name, facts in state.nodes.items():
        if facts.node is not None:
            found = flavors_of(facts.node, flavors)
            if found or every:
                yield name, _Known(facts.node, found)


async def _visible(question: Question, found: Iterable[NodeUse]) -> Allowed:
    """The namespaces on these nodes whose workloads the caller may read."""
    there = {
        one.workload.ref.namespace for node in found for one in node.workloads if one.workload is not None
    }
    return await question.caller.namespaces("get", WORKLOADS, there)


def _document(one: NodeUse, visible: Allowed) -> ListedNode:
    return ListedNode(
        name=one.node.name,
        state=one.state,
        flavors=one.flavors,
        taints=tuple(map(str, one.node.taints)),
        allocatable={name: amount for name, amount in one.node.allocatable if name in one.used},
        used=dict(one.used),
        free=dict(one.free),
        workloads=tuple(_workloads(one, visible)),
        unmanaged=dict(one.unmanaged),
    )


def _workloads(one: NodeUse, visible: Allowed) -> Iterator[WorkloadOnNode]:
    pods, others = 0, Counter[str]()
    shown: dict[ObjectRef, WorkloadOnNode] = {}
    for on in one.workloads:
        if on.workload is None or on.workload.ref.namespace not in visible:
            pods += on.pods
            others.update(on.used)
            continue
        shown[on.workload.ref] = WorkloadOnNode(
            namespace=on.workload.ref.namespace,
            kind=on.workload.ref.kind,
            name=on.workload.ref.name,
            cluster_queue=on.workload.cluster_queue,
            submitter=on.workload.submitter,
            pods=on.pods,
            used=dict(on.used),
        )
    yield from (shown[ref] for ref in sorted(shown))
    if pods:
        unnamed = dict.fromkeys(("namespace", "kind", "name", "cluster_queue", "submitter"))
        yield WorkloadOnNode(**unnamed, pods=pods, used=dict(others))
