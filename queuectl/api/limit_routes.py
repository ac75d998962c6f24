"""What subjects use of UsageLimits: schemas and the endpoint (docs/scheduling.md, X)."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import Field

from queuectl.answers.usage_limits import LimitUse, limit_use
from queuectl.api import requests, schemas
from queuectl.api.requests import ALL, WORKLOADS, Allowed, Question, always, endpoint
from queuectl.api.schemas import AMOUNT, Document, Page
from queuectl.api.view import Routes, page
from queuectl.api.workload_routes import of_caller
from queuectl.core.model.usage_limits import SubjectKind

USAGE_LIMITS: Final = "usagelimits"


class ListedLimit(Document):
    """What one subject uses of one number of a UsageLimit."""

    usage_limit: str
    target: str = Field(description="The object whose workloads count, as `ClusterQueue/gpu`.")
    subject_kind: SubjectKind
    subject: str = Field(description="The user, or the value of the account key. Empty: all together.")
    resource: str = Field(
        description="A resource; `workloads`: how many hold quota; `pending`: how many eligible ones wait."
    )
    flavor: str | None = Field(description="Null: in all flavors.")
    used: int = Field(description=f"With what is kept for preemptors whose victims end. {AMOUNT}")
    limit: int = Field(description=f"What `used` may be. {AMOUNT}")
    left: int = Field(description=f"Below 0: the limit was lowered. {AMOUNT}")
    binding: bool = Field(
        description="Of the limits on this resource that apply to some open workload, it has the least left."
    )
    waiting: int = Field(description="Pending workloads that wait for it.")


class LimitRoutes(Routes):
    @endpoint(
        "/api/v1/usagelimits",
        "What subjects use of UsageLimits, and which limit binds",
        Page[ListedLimit],
        (
            *(requests.SUBMITTER, requests.CLUSTER_QUEUE),
            *(requests.AS_OF, requests.LIMIT, requests.NEXT),
        ),
        heavy=always,
        notes="With `submitter`: those that apply to its open workloads; with `clusterqueue`: those "
        "at it and at the Cohorts above it. Of UsageLimits that the caller may get, and of subjects "
        "with workloads in namespaces where it may list them.",
    )
    async def limits(self, question: Question) -> schemas.Committed:
        question = of_caller(question)
        after = await self._source.after(question)
        sight = await self._source.sight_of(question, WORKLOADS)
        values = question.values
        found = await asyncio.to_thread(
            limit_use, sight.state, values.get("submitter"), values.get("clusterqueue")
        )
        namespaces = {name for one in found for name in one.namespaces}
        allowed = await question.caller.namespaces("list", WORKLOADS, namespaces)
        readable = await question.caller.names(USAGE_LIMITS, {one.limit.name for one in found})
        rows = [
            one
            for one in found
            if one.limit.name in readable or any(name in allowed for name in one.namespaces)
            if after is None or _place(one) > after
        ]
        shown, next = self._source.cut(question, rows, _place)
        documents = (_document(one, ALL if one.limit.name in readable else allowed) for one in shown)
        return await page(ListedLimit, documents, next, sight)


def _place(one: LimitUse) -> list[str]:
    return [one.limit.name, one.subject, one.dimension.resource, one.dimension.flavor or ""]


def _document(one: LimitUse, allowed: Allowed) -> ListedLimit:
    """`allowed`: the namespaces whose workloads the caller may count."""
    return ListedLimit(
        usage_limit=one.limit.name,
        target=str(one.limit.target),
        subject_kind=one.limit.subject.kind,
        subject=one.subject,
        resource=one.dimension.resource,
        flavor=one.dimension.flavor,
        used=one.used,
        limit=one.most,
        left=one.most - one.used,
        binding=one.binding,
        waiting=sum(count for namespace, count in one.waiting.items() if namespace in allowed),
    )
