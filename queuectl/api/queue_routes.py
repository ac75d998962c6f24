"""The endpoints of policy objects, without HTTP: from a Question to a document."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from queuectl.answers.free import FreeQuota
from queuectl.answers.queue_states import QueueState, cohort_condition, nominal_quota
from queuectl.answers.state import CommittedState, LocalQueueState, Under
from queuectl.answers.statements import QueueAccount, all_now
from queuectl.api import requests, schemas
from queuectl.api.http import not_found
from queuectl.api.requests import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, Allowed, Question, endpoint
from queuectl.api.view import Routes, committed, detail, may_get, page
from queuectl.core.model import policy
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ConfigKey

PAGE = (requests.AS_OF, requests.LIMIT, requests.NEXT)
_ONE = (requests.AS_OF,)


def _cluster_queues(rows: Sequence[QueueState], state: CommittedState) -> list[schemas.ClusterQueue]:
    """Costs, for each tree and cell, as many steps as queues that borrow times queues that lend."""
    free, accounts = FreeQuota(state), all_now(rows, state)
    return [_cluster_queue(row, state, free, accounts[row.name]) for row in rows]


def _cluster_queue(
    value: QueueState,
    state: CommittedState,
    free: FreeQuota,
    accounts: Mapping[FlavorResource, QueueAccount],
) -> schemas.ClusterQueue:
    queue = value.queue or policy.ClusterQueue(name=value.name)
    return schemas.ClusterQueue.of(
        name=value.name,
        cohort=queue.cohort,
        active=value.condition.active,
        condition=value.condition,
        stop_policy=queue.stop_policy,
        queueing_strategy=queue.queueing_strategy,
        max_execution_time=queue.max_execution_time,
        pending=value.pending,
        admitted=len(value.holders),
        flavors=tuple(
            schemas.QueueQuota(**amounts, borrowed=accounts[cell].borrowed, lent=accounts[cell].lent)
            for cell, amounts in _quotas(value.nominal, value.used, free.of(value), state.effective(value))
        ),
        warnings=tuple(schemas.Warned(**one._asdict()) for one in state.warnings(value)),
    )


def _quotas(
    nominal: Mapping[FlavorResource, int],
    used: Mapping[FlavorResource, int],
    left: Mapping[FlavorResource, int],
    effective: Mapping[FlavorResource, int],
) -> Iterator[tuple[FlavorResource, dict[str, Any]]]:
    """Fields of schemas.Quota: those of `nominal`, then the cells that are used without nominal quota."""
    for cell in (*nominal, *sorted(cell for cell in used if cell not in nominal)):
        yield (
            cell,
            {
                "flavor": cell.flavor,
                "resource": cell.resource,
                "nominal": nominal.get(cell, 0),
                "effective": effective.get(cell, 0),
                "used": used.get(cell, 0),
                "free": left.get(cell, 0),
            },
        )


def _local_queue(value: LocalQueueState) -> schemas.LocalQueue:
    return schemas.LocalQueue.of(
        namespace=value.local.name.namespace,
        name=value.local.name.name,
        cluster_queue=value.local.cluster_queue,
        active=value.condition.active,
        condition=value.condition,
        stop_policy=value.local.stop_policy,
        max_execution_time=value.local.max_execution_time,
        pending=value.pending,
        admitted=value.admitted,
    )


def _cohorts(rows: Iterable[tuple[str, policy.Cohort | None]], state: CommittedState) -> list[schemas.Cohort]:
    """Beside the event loop: the work grows with the square of a tree's depth."""
    under = state.under_cohorts()
    return [_cohort(name, cohort, under[name], state) for name, cohort in rows]


def _cohort(name: str, value: policy.Cohort | None, under: Under, state: CommittedState) -> schemas.Cohort:
    nominal: Counter[FlavorResource] = Counter()
    used: Counter[FlavorResource] = Counter()
    effective: Counter[FlavorResource] = Counter()
    for node in under.cohorts:
        nominal.update(nominal_quota(node))
        effective.update(state.effective(node))
    for queue in under.queues:
        nominal.update(queue.nominal)
        effective.update(state.effective(queue))
        used.update(queue.used)
    condition = cohort_condition(name, state.policies, state.trees)
    unused = {cell: max(0, effective[cell] - used[cell]) for cell in nominal}
    return schemas.Cohort.of(
        name=name,
        parent=value.parent if value else None,
        explicit=value is not None,
        active=condition.active,
        condition=condition,
        cluster_queues=len(under.queues),
        pending=sum(queue.pending for queue in under.queues),
        admitted=sum(len(queue.holders) for queue in under.queues),
        flavors=tuple(
            schemas.Quota(**amounts)
            for _, amounts in _quotas(dict(sorted(nominal.items())), used, unused, effective)
        ),
    )


Quotas = Mapping[str, tuple[int, int]]
"""Nominal and used, by resource."""


def _flavor(value: policy.ResourceFlavor, quotas: Quotas) -> schemas.ResourceFlavor:
    return schemas.ResourceFlavor.of(
        name=value.name,
        node_labels=value.node_labels,
        node_taints=value.node_taints,
        tolerations=tuple(
            schemas.Toleration(
                key=one.key,
                operator=one.operator,
                value=one.value,
                effect=one.effect,
                toleration_seconds=one.seconds,
            )
            for one in value.tolerations
        ),
        resources=tuple(
            schemas.FlavorResource(resource=resource, nominal=nominal, used=used)
            for resource, (nominal, used) in sorted(quotas.items())
        ),
    )


class QueueRoutes(Routes):
    """They read the view only; with `asOf` the ledger."""

    @endpoint("/api/v1/clusterqueues", "ClusterQueues by name", schemas.Page[schemas.ClusterQueue], PAGE)
    async def cluster_queues(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question, CLUSTER_QUEUES)
        queues = {queue.name: queue for queue in sight.state.cluster_queues()}
        rows, next = await self._source.by_name(question, CLUSTER_QUEUES, queues)
        items = await asyncio.to_thread(_cluster_queues, rows, sight.state)
        return await page(schemas.ClusterQueue, items, next, sight)

    @endpoint("/api/v1/clusterqueues/{name}", "One ClusterQueue", schemas.ClusterQueueDetail, _ONE)
    async def cluster_queue(self, question: Question) -> schemas.Committed:
        name = await may_get(question, CLUSTER_QUEUES)
        sight = await self._source.sight_of(question)
        queue = sight.state.queues.get(name)
        if queue is None:
            raise not_found()
        (document,) = await asyncio.to_thread(_cluster_queues, [queue], sight.state)
        spec = sight.state.specs.get(ConfigKey("ClusterQueue", "", name))
        found = {"spec": None if spec is None else json.loads(spec)}
        return detail(schemas.ClusterQueueDetail, document, committed(sight) | found)

    @endpoint(
        "/api/v1/localqueues",
        "LocalQueues by namespace and name",
        schemas.Page[schemas.LocalQueue],
        (requests.NAMESPACE, requests.CLUSTER_QUEUE, *PAGE),
    )
    async def local_queues(self, question: Question) -> schemas.Committed:
        after = await self._source.after(question)
        namespace, parent = question.values.get("namespace"), question.values.get("clusterqueue")
        if namespace is not None and not await question.caller.may("list", LOCAL_QUEUES, namespace):
            raise not_found()
        sight = await self._source.sight_of(question, LOCAL_QUEUES if namespace is None else None)
        queues = sight.state.local_queues()
        if namespace is None:
            among = {queue.local.name.namespace for queue in queues}
            allowed = await question.caller.namespaces("list", LOCAL_QUEUES, among)
        else:
            allowed = Allowed(frozenset({namespace}))
        rows = [
            queue
            for queue in queues
            if queue.local.name.namespace in allowed
            if parent is None or queue.local.cluster_queue == parent
            if after is None or queue.local.name > tuple(after)
        ]
        shown, next = self._source.cut(question, rows, lambda queue: list(queue.local.name))
        return await page(schemas.LocalQueue, map(_local_queue, shown), next, sight)

    @endpoint("/api/v1/localqueues/{namespace}/{name}", "One LocalQueue", schemas.LocalQueueDetail, _ONE)
    async def local_queue(self, question: Question) -> schemas.Committed:
        name = LocalQueueName(question.path["namespace"], question.path["name"])
        if not (requests.is_name(name.namespace) and requests.is_name(name.name)):
            raise not_found()
        if not await question.caller.may("get", LOCAL_QUEUES, name.namespace, name.name):
            raise not_found()
        sight = await self._source.sight_of(question)
        queue = sight.state.local_queue(name)
        if queue is None:
            raise not_found()
        return detail(schemas.LocalQueueDetail, _local_queue(queue), committed(sight))

    @endpoint("/api/v1/cohorts", "Cohorts by name", schemas.Page[schemas.Cohort], PAGE)
    async def cohorts(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question, COHORTS)
        cohorts = {name: (name, cohort) for name, cohort in sight.state.cohorts().items()}
        rows, next = await self._source.by_name(question, COHORTS, cohorts)
        items = await asyncio.to_thread(_cohorts, rows, sight.state)
        return await page(schemas.Cohort, items, next, sight)

    @endpoint("/api/v1/cohorts/{name}", "One Cohort", schemas.CohortDetail, _ONE)
    async def cohort(self, question: Question) -> schemas.Committed:
        name = await may_get(question, COHORTS)
        sight = await self._source.sight_of(question)
        cohorts = sight.state.cohorts()
        if name not in cohorts:
            raise not_found()
        (document,) = await asyncio.to_thread(_cohorts, [(name, cohorts[name])], sight.state)
        return detail(schemas.CohortDetail, document, committed(sight))

    @endpoint(
        "/api/v1/resourceflavors", "ResourceFlavors by name", schemas.Page[schemas.ResourceFlavor], PAGE
    )
    async def flavors(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question, FLAVORS)
        quotas = sight.state.quotas_by_flavor()
        flavors = {flavor.name: flavor for flavor in sight.state.flavors()}
        rows, next = await self._source.by_name(question, FLAVORS, flavors)
        items = (_flavor(flavor, quotas.get(flavor.name, {})) for flavor in rows)
        return await page(schemas.ResourceFlavor, items, next, sight)

    @endpoint("/api/v1/resourceflavors/{name}", "One ResourceFlavor", schemas.ResourceFlavorDetail, _ONE)
    async def flavor(self, question: Question) -> schemas.Committed:
        name = await may_get(question, FLAVORS)
        sight = await self._source.sight_of(question)
        flavor = next((flavor for flavor in sight.state.flavors() if flavor.name == name), None)
        if flavor is None:
            raise not_found()
        quotas = sight.state.quotas_by_flavor().get(name, {})
        document = _flavor(flavor, quotas)
        return detail(schemas.ResourceFlavorDetail, document, committed(sight))
