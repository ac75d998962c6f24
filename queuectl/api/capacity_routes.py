"""Capacity and demand: schemas, documents and endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field

from queuectl.answers.explanation import Visibility
from queuectl.answers.free import free_on_nodes
from queuectl.answers.state import CommittedState
from queuectl.api import requests
from queuectl.api.http import bad_request, not_found
from queuectl.api.queue_routes import Quotas
from queuectl.api.requests import CLUSTER_QUEUES, FLAVORS, WORKLOADS, Parameter, Question, always, endpoint
from queuectl.api.schemas import AMOUNT, Amounts, Committed, Document, Labels, Page, Warned
from queuectl.api.usage_routes import NodeHours, node_hours
from queuectl.api.view import Routes, committed, detail, may_get, now, page, shallow
from queuectl.core.features.nodes.inventory import NodeState
from queuectl.core.model import capacity
from queuectl.core.model.capacity import AwaitedLimit, FlavorCapacity
from queuectl.core.model.policy import CapacityMode, ResourceFlavor
from queuectl.ports.periods import Piece, days_of, hours_of
from queuectl.ports.reader import CapacitySum

NAMESPACES = "Namespaces that the caller may not read, and those after the first 50, are one item with null."


class Unmanaged(Document):
    namespace: str | None
    amount: int = Field(description=AMOUNT)


class FreeShape(Document):
    """So many ready nodes have so much free each."""

    free: int = Field(description=AMOUNT)
    nodes: int


class ResourceCapacity(Document):
    resource: str
    mode: CapacityMode
    nominal: int = Field(description=f"Quota of all ClusterQueues and Cohorts. {AMOUNT}")
    allocatable: Annotated[dict[NodeState, int], BeforeValidator(dict)] = Field(
        description=f"By state of the nodes. {AMOUNT}"
    )
    used: int = Field(description="By bound pods of workloads.")
    unmanaged: int = Field(description="By bound pods that belong to no workload.")
    unmanaged_by: tuple[Unmanaged, ...] = Field(description=f"The same by namespace. {NAMESPACES}")
    expected: int = Field(
        description="By pods of admitted workloads that are not bound yet; 0 where nodes limit no admission."
    )
    free: int = Field(description="On ready nodes whose taints the flavor tolerates, beside all of these.")
    available: int = Field(
        description="What new pods can have now: `free` less the headroom; 0 while the flavor is not used."
    )
    headroom: int = Field(description="What the flavor keeps free on its ready nodes.")
    shapes: tuple[FreeShape, ...] = Field(
        description="How it is spread, most first: at most 16 different amounts."
    )


class Capacity(Document):
    """The nodes of one flavor. A node that matches two flavors counts for both."""

    flavor: str | None = Field(description="null: nodes that match no ResourceFlavor.")
    nodes: Annotated[dict[NodeState, int], BeforeValidator(dict)] = Field(
        description="Their number by state."
    )
    resources: tuple[ResourceCapacity, ...] = Field(
        description="Those that quota is promised for, and the devices of the nodes."
    )
    warnings: tuple[Warned, ...]


class CapacityDetail(Capacity, Committed):
    pass


class CapacityStep(Document):
    """What the nodes of a flavor had in one hour or day: from their first observation on."""

    since: datetime
    until: datetime = Field(description="Of the last step: now, if that is earlier.")
    resources: tuple[NodeHours, ...] = Field(description="Empty: it is not known.")


class CapacityTrend(Committed):
    """What the nodes of one flavor had over a time."""

    flavor: str
    zone: str = Field(description="In which days begin.")
    steps: tuple[CapacityStep, ...] = Field(description="They follow each other.")


class Demand(Document):
    """Equal pods of pending workloads that wait for the same thing."""

    flavor: str = Field(description="The one that comes closest to admit them.")
    node_labels: Labels = Field(description="Of the flavor.")
    awaits: AwaitedLimit
    workloads: int
    pods: int = Field(description="Of all these workloads.")
    requests: Amounts = Field(description=f"Of one pod, as its containers request them. {AMOUNT}")
    node_selector: Labels = Field(description="Of the pods.")


class QueueDemand(Document):
    cluster_queue: str
    demand: tuple[Demand, ...] = Field(description="Most pods first, at most 100.")


class QueueDemandDetail(QueueDemand, Committed):
    pass


def _capacity(
    value: FlavorCapacity, flavor: ResourceFlavor | None, quotas: Quotas, caller: Visibility
) -> Capacity:
    """`flavor`: None for nodes without one. `quotas`: nominal and used, by resource."""
    headroom = dict(flavor.nodes.headroom) if flavor is not None else {}
    resources = [
        ResourceCapacity(
            **shallow(one)
            | {
                "nominal": quotas.get(one.resource, (0, 0))[0],
                "unmanaged": sum(amount for _, amount in one.unmanaged),
                "unmanaged_by": tuple(_unmanaged(one, caller)),
                "available": free_on_nodes(value, one),
                "headroom": headroom.get(one.resource, 0),
            }
        )
        for one in value.resources
    ]
    name = flavor.name if flavor is not None else None
    return Capacity.of(flavor=name, nodes=value.nodes, resources=tuple(resources), warnings=value.warnings)


def _trend(steps: Iterable[Piece], found: Iterable[tuple[Piece, CapacitySum]]) -> tuple[CapacityStep, ...]:
    """`found`: the steps in order, without those of which nothing is known; of the first, the known part."""
    shown: list[CapacityStep] = []
    known = groupby(found, key=itemgetter(0))
    piece, of_piece = next(known, (None, iter(())))
    for begins, ends in steps:
        if piece is None or piece.begins >= ends:
            shown.append(CapacityStep(since=begins, until=ends, resources=()))
            continue
        if begins < piece.begins:
            shown.append(CapacityStep(since=begins, until=piece.begins, resources=()))
        hours = tuple(NodeHours(**node_hours(one)) for _, one in of_piece)
        shown.append(CapacityStep(since=piece.begins, until=piece.ends, resources=hours))
        piece, of_piece = next(known, (None, iter(())))
    return tuple(shown)


def _unmanaged(value: capacity.FlavorResourceCapacity, caller: Visibility) -> Iterator[Unmanaged]:
    rest = 0
    for namespace, amount in value.unmanaged:
        if namespace != capacity.OTHERS and namespace in caller.namespaces:
            yield Unmanaged(namespace=namespace, amount=amount)
        else:
            rest += amount
    if rest:
        yield Unmanaged(namespace=None, amount=rest)


def _demand(name: str, state: CommittedState) -> QueueDemand:
    flavors = _flavors(state)
    return QueueDemand(
        cluster_queue=name,
        demand=tuple(
            Demand.of(
                **shallow(one),
                node_labels=flavors[one.flavor].node_labels if one.flavor in flavors else {},
            )
            for one in state.demands.get(name, ())
        ),
    )


LONGEST: Final = {"Hour": timedelta(days=31), "Day": timedelta(days=366)}
"""Of a trend, by step."""
_USUAL: Final = {"Hour": timedelta(hours=24), "Day": timedelta(days=30)}
STEP: Final = Parameter("step", Literal["Hour", "Day"], "Length of the steps.", default="Hour")
_PAGE = (requests.AS_OF, requests.LIMIT, requests.NEXT)
_ONE = (requests.AS_OF,)
_CAPACITY: Final = (
    "As of a few seconds ago, as the controller told it. With `asOf` it is of the last minute before then "
    "(A31). A time before the first that is stored is a 400."
)
_DEMAND: Final = (
    "As of a few seconds ago, as the controller told it. With `asOf` it is what the recorded reasons and "
    "requests of the workloads say that were pending then (A31)."
)


class CapacityRoutes(Routes):
    """They read the view only; with `asOf` the ledger."""

    @endpoint(
        "/api/v1/capacity",
        "Nodes by flavor: what there is, who uses it, what is free",
        Page[Capacity],
        _PAGE,
        notes=f"{_CAPACITY} Nodes without a flavor are listed for callers that may get all resourceflavors.",
    )
    async def capacities(self, question: Question) -> Committed:
        sight = await self._source.capacity_of(question, FLAVORS)
        state = sight.state
        flavors: dict[str, ResourceFlavor | None] = {flavor.name: flavor for flavor in state.flavors()}
        if state.capacity(capacity.NO_FLAVOR).nodes and await question.caller.may("get", FLAVORS):
            flavors[capacity.NO_FLAVOR] = None
        rows = {name: (name, flavor) for name, flavor in flavors.items()}
        shown, next = await self._source.by_name(question, FLAVORS, rows)
        capacities = {name: state.capacity(name) for name, _ in shown}
        visible = await self._visible(question, capacities.values())
        quotas = state.quotas_by_flavor()
        items = (_capacity(capacities[name], flavor, quotas.get(name, {}), visible) for name, flavor in shown)
        return await page(Capacity, items, next, sight)

    @endpoint("/api/v1/capacity/{name}", "The nodes of one flavor", CapacityDetail, _ONE, notes=_CAPACITY)
    async def capacity(self, question: Question) -> Committed:
        name = await may_get(question, FLAVORS)
        sight = await self._source.capacity_of(question)
        flavor = _flavors(sight.state).get(name)
        if flavor is None:
            raise not_found()
        of_flavor = sight.state.capacity(name)
        quotas = sight.state.quotas_by_flavor().get(name, {})
        document = _capacity(of_flavor, flavor, quotas, await self._visible(question, [of_flavor]))
        return detail(CapacityDetail, document, committed(sight))

    @endpoint(
        "/api/v1/capacity/{name}/trend",
        "What the nodes of one flavor had over a time, by hour or day",
        CapacityTrend,
        (STEP, requests.FROM, requests.UNTIL),
        heavy=always,
        notes="The hours of UTC, or days of the zone of usage, between `since` and `until`, also in part. "
        "Without `since`: 24 hours, or 30 days. At most "
        f"{LONGEST['Hour'].days} days by hour, {LONGEST['Day'].days} by day.",
    )
    async def trend(self, question: Question) -> Committed:
        name = await may_get(question, FLAVORS)
        sight = await self._source.sight_of(question)
        if name not in _flavors(sight.state):
            raise not_found()
        step = question.values.get("step", "Hour")
        until = question.values.get("until", now(sight))
        since = question.values.get("since", until - _USUAL[step])
        if since >= until:
            raise bad_request("parameter since: must be before until")
        if until - since > LONGEST[step]:
            raise bad_request(
                f"parameter since: {LONGEST[step].days} days before until at most with step {step}"
            )
        zone = ZoneInfo(await self._source.ask(self._source.readings.usage_zone()))
        steps = hours_of(since, until) if step == "Hour" else days_of(since, until, zone)
        found = await self._source.ask(self._source.readings.capacity_trend(flavor=name, steps=steps))
        shown = await asyncio.to_thread(_trend, steps, found)
        return CapacityTrend(flavor=name, zone=str(zone), steps=shown, **committed(sight))

    @endpoint(
        "/api/v1/demand",
        "Pods of pending workloads by ClusterQueue, flavor and shape",
        Page[QueueDemand],
        _PAGE,
        notes=_DEMAND,
    )
    async def demands(self, question: Question) -> Committed:
        sight = await self._source.demand_of(question, CLUSTER_QUEUES)
        state = sight.state
        queues = {queue.name: queue.name for queue in state.cluster_queues()}
        shown, next = await self._source.by_name(question, CLUSTER_QUEUES, queues)
        return await page(QueueDemand, (_demand(name, state) for name in shown), next, sight)

    @endpoint(
        "/api/v1/demand/{name}",
        "Pods of pending workloads of one ClusterQueue",
        QueueDemandDetail,
        _ONE,
        notes=_DEMAND,
    )
    async def demand(self, question: Question) -> Committed:
        name = await may_get(question, CLUSTER_QUEUES)
        sight = await self._source.demand_of(question)
        if name not in sight.state.queues:
            raise not_found()
        return detail(QueueDemandDetail, _demand(name, sight.state), committed(sight))

    async def _visible(self, question: Question, values: Iterable[FlavorCapacity]) -> Visibility:
        unmanaged = (pair for value in values for one in value.resources for pair in one.unmanaged)
        among = {namespace for namespace, _ in unmanaged if namespace != capacity.OTHERS}
        return Visibility(namespaces=await question.caller.namespaces("list", WORKLOADS, among))


def _flavors(state: CommittedState) -> dict[str, ResourceFlavor]:
    return {flavor.name: flavor for flavor in state.flavors()}
