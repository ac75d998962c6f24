"""How many workloads each value of a filter would leave: schemas and the endpoint."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from pydantic import Field

from queuectl.answers.workload_filters import FilterCounts, counts
from queuectl.api import requests, schemas
from queuectl.api.requests import WORKLOADS, Question, endpoint
from queuectl.api.schemas import Committed, Document
from queuectl.api.view import Routes, committed
from queuectl.api.workload_routes import of_caller

MOST_VALUES: Final = 200
"""Of one filter."""


class ValueCount(Document):
    value: str
    workloads: int = Field(description="That pass all other filters.")


class CountedFilter(Document):
    """The values of one filter of the list of workloads."""

    filter: str = Field(description="The parameter of `/api/v1/workloads`.")
    values: tuple[ValueCount, ...] = Field(
        description=f"The most frequent first, at most {MOST_VALUES}; also that which is asked for."
    )
    more: int = Field(description="Values that are left out.")


class WorkloadCounts(Committed):
    """How many workloads that are not over pass the filters, and each value of a filter."""

    workloads: int = Field(description="That pass all filters.")
    items: tuple[CountedFilter, ...] = Field(description="Without filters of which no value is known.")


class CountRoutes(Routes):
    @endpoint(
        "/api/v1/workloadcounts",
        "How many workloads that are not over pass filters, by value of each filter",
        WorkloadCounts,
        (
            *(requests.NAMESPACE, requests.QUEUE, requests.CLUSTER_QUEUE, requests.PHASE),
            *(requests.REASON, requests.SUBMITTER, requests.LABELS, requests.NAME),
            *(requests.kind_parameter, requests.AS_OF),
        ),
        notes="Of workloads that the caller may list.",
    )
    async def counts(self, question: Question) -> schemas.Committed:
        question = of_caller(question)
        sight = await self._source.sight_of(question, WORKLOADS)
        allowed = await question.caller.namespaces("list", WORKLOADS, sight.state.arrivals)
        values = {name: value for name, value in question.values.items() if name != "asOf"}
        found = await asyncio.to_thread(lambda: counts(values, sight.state.in_order(allowed, None)))
        filters = (_filter(name, found, values.get(name)) for name in found.values)
        items = tuple(one for one in filters if one.values)
        return WorkloadCounts(workloads=found.passing, items=items, **committed(sight))


def _filter(name: str, found: FilterCounts, asked: str | None) -> CountedFilter:
    known: Counter[str] = found.values[name]
    shown = dict(sorted(known.items(), key=lambda item: (-item[1], item[0]))[:MOST_VALUES])
    more = len(known) - len(shown)
    if asked is not None:
        shown.setdefault(asked, known[asked])
    values = tuple(ValueCount(value=value, workloads=count) for value, count in shown.items())
    return CountedFilter(filter=name, values=values, more=more)
