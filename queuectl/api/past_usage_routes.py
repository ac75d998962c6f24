"""Past usage of Cohorts, ClusterQueues, LocalQueues and users: documents and endpoints (U1 to U7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import Field

from queuectl.answers.past_usage import PastUsageItem, PastUsageTree
from queuectl.api import schemas
from queuectl.api.http import bad_request, not_found
from queuectl.api.requests import CLUSTER_QUEUES, COHORTS, WORKLOADS, Allowed, Question, always, endpoint
from queuectl.api.schemas import Committed
from queuectl.api.usage_routes import MOST_ITEMS
from queuectl.api.view import Routes, committed, may_get, now
from queuectl.ports.reader import MOST_USAGE, TooMuchHistory


class PastUsageReport(Committed):
    """Past usage at or below a node, in the order in which what waits there comes, all else being equal."""

    name: str
    half_life_seconds: int | None = Field(
        description="Null: past usage counts nowhere, as scheduling.admissionFairSharing is not configured."
    )
    items: tuple[PastUsageItem, ...] = Field(
        description=f"Depth first: each before those below it. Those that the caller may read; of more than "
        f"{MOST_ITEMS} without users."
    )


_SUMMARY: Final = "Past usage at or below one {}, by which members, LocalQueues and users are ordered"
_NOTES: Final = (
    "From the sums of hours, all of which count as of their middle: with a half-life of a day it "
    f"differs from what the controller counts by at most 1.5 %. At most {MOST_USAGE} bookings."
)


class PastUsageRoutes(Routes):
    @endpoint(
        "/api/v1/cohorts/{name}/pastusage",
        _SUMMARY.format("Cohort"),
        PastUsageReport,
        heavy=always,
        notes=_NOTES,
    )
    async def _of_cohort(self, question: Question) -> schemas.Committed:
        return await self._past_usage(question, COHORTS)

    @endpoint(
        "/api/v1/clusterqueues/{name}/pastusage",
        _SUMMARY.format("ClusterQueue"),
        PastUsageReport,
        heavy=always,
        notes=_NOTES,
    )
    async def _of_queue(self, question: Question) -> schemas.Committed:
        return await self._past_usage(question, CLUSTER_QUEUES)

    async def _past_usage(self, question: Question, kinds: str) -> schemas.Committed:
        name = await may_get(question, kinds)
        sight = await self._source.sight_of(question)
        state = sight.state
        queues = [one.name for one in state.below(f"Cohort/{name}")] if kinds == COHORTS else [name]
        if not queues or queues[0] not in state.queues:
            raise not_found()
        sharing = state.configuration.usage_sharing
        if sharing is None or not sharing.half_life:
            return PastUsageReport(name=name, half_life_seconds=None, items=(), **committed(sight))
        try:
            found = await self._source.ask(
                self._source.readings.decayed_usage(until=now(sight), half_life=sharing.half_life)
            )
        except TooMuchHistory:
            raise bad_request(f"there are more than {MOST_USAGE} different bookings") from None
        tree = state.tree_of(queues[0])
        node = tree.cohort(name) if kinds == COHORTS else tree.queue(name)
        by_past_usage = tree.root(node).sharing.by_past_usage

        def rows() -> list[PastUsageItem]:
            return [*PastUsageTree(found.rows, sharing, state).rows(node, by_past_usage=by_past_usage)]

        members = await asyncio.to_thread(rows)
        caller = question.caller
        readable = {
            "Cohort": await caller.names(COHORTS, {one.name for one in members if one.kind == "Cohort"}),
            "ClusterQueue": await caller.names(
                CLUSTER_QUEUES, {one.name for one in members if one.kind == "ClusterQueue"}
            ),
        }
        namespaces = {one.namespace for one in members if one.namespace is not None}
        listed = await caller.namespaces("list", WORKLOADS, namespaces)
        return PastUsageReport(
            name=name,
            half_life_seconds=sharing.half_life,
            items=await asyncio.to_thread(_items, members, readable, listed),
            **committed(sight),
        )


def _items(
    members: Iterable[PastUsageItem], readable: Mapping[str, Allowed], listed: Allowed
) -> tuple[PastUsageItem, ...]:
    shown = [
        one
        for one in members
        if (one.namespace in listed if one.namespace is not None else one.name in readable[one.kind])
    ]
    if len(shown) > MOST_ITEMS:
        shown = [one for one in shown if one.kind != "User"]
    return tuple(shown)
