"""The endpoints of capacity and demand, without HTTP: from a Question to a document."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from queuectl.answers.state import State
from queuectl.api import capacity_documents as documents
from queuectl.api import capacity_schemas as schemas
from queuectl.api import query
from queuectl.api.identity import CLUSTER_QUEUES, FLAVORS, WORKLOADS
from queuectl.api.problems import not_found
from queuectl.api.requests import Endpoint, Question, Source, committed, may_get, page
from queuectl.api.schemas import Committed, Page
from queuectl.core.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.policy import ResourceFlavor
from queuectl.core.redaction import Readable

_PAGE = (query.AS_OF, query.LIMIT, query.NEXT)
_ONE = (query.AS_OF,)
_CAPACITY: Final = (
    "As of a few seconds ago, as the controller told it. With `asOf` it is of the last minute before then "
    "(A31). A time before the first that is stored is a 400."
)
_DEMAND: Final = (
    "As of a few seconds ago, as the controller told it. With `asOf` it is what the recorded reasons and "
    "requests of the workloads say that were pending then (A31)."
)


class CapacityRoutes:
    """They read the view only; with `asOf` the ledger."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/capacity",
                "Nodes by flavor: what there is, who uses it, what is free",
                self.capacities,
                Page[schemas.Capacity],
                _PAGE,
                notes=f"{_CAPACITY} Nodes without a flavor are listed for callers that may get all "
                "resourceflavors.",
            ),
            Endpoint(
                "/api/v1/capacity/{name}",
                "The nodes of one flavor",
                self.capacity,
                schemas.CapacityDetail,
                _ONE,
                notes=_CAPACITY,
            ),
            Endpoint(
                "/api/v1/demand",
                "Pods of pending workloads by ClusterQueue, flavor and shape",
                self.demands,
                Page[schemas.QueueDemand],
                _PAGE,
                notes=_DEMAND,
            ),
            Endpoint(
                "/api/v1/demand/{name}",
                "Pods of pending workloads of one ClusterQueue",
                self.demand,
                schemas.QueueDemandDetail,
                _ONE,
                notes=_DEMAND,
            ),
        )

    async def capacities(self, question: Question) -> Committed:
        sight = await self._source.capacity_of(question, FLAVORS)
        state = sight.state
        flavors: dict[str, ResourceFlavor | None] = {flavor.name: flavor for flavor in state.flavors()}
        if state.capacity(NO_FLAVOR).nodes and await question.caller.may("get", FLAVORS):
            flavors[NO_FLAVOR] = None
        rows = {name: (name, flavor) for name, flavor in flavors.items()}
        shown, next = await self._source.by_name(question, FLAVORS, rows)
        found = {name: state.capacity(name) for name, _ in shown}
        readable = await self._readable(question, found.values())
        quotas = state.quotas_by_flavor()
        items = (
            documents.capacity_of(found[name], flavor, quotas.get(name, {}), readable)
            for name, flavor in shown
        )
        return await page(schemas.Capacity, items, next, sight)

    async def capacity(self, question: Question) -> Committed:
        name = await may_get(question, FLAVORS)
        sight = await self._source.capacity_of(question)
        flavor = _flavors(sight.state).get(name)
        if flavor is None:
            raise not_found()
        found = sight.state.capacity(name)
        readable = await self._readable(question, [found])
        quotas = sight.state.quotas_by_flavor().get(name, {})
        return documents.capacity_detail(found, flavor, quotas, readable, committed(sight))

    async def demands(self, question: Question) -> Committed:
        sight = await self._source.demand_of(question, CLUSTER_QUEUES)
        state = sight.state
        queues = {queue.name: queue.name for queue in state.cluster_queues()}
        shown, next = await self._source.by_name(question, CLUSTER_QUEUES, queues)
        flavors = _flavors(state)
        items = (documents.demand_of(name, state.demands.get(name, ()), flavors) for name in shown)
        return await page(schemas.QueueDemand, items, next, sight)

    async def demand(self, question: Question) -> Committed:
        name = await may_get(question, CLUSTER_QUEUES)
        sight = await self._source.demand_of(question)
        if name not in sight.state.queues:
            raise not_found()
        found = sight.state.demands.get(name, ())
        return documents.demand_detail(name, found, _flavors(sight.state), committed(sight))

    async def _readable(self, question: Question, found: Collection[FlavorCapacity]) -> Readable:
        among = documents.namespaces_of(found)
        return await question.caller.namespaces("list", WORKLOADS, among)


def _flavors(state: State) -> dict[str, ResourceFlavor]:
    return {flavor.name: flavor for flavor in state.flavors()}
