"""The endpoints of policy objects, without HTTP: from a Question to a document."""

from __future__ import annotations

from queuectl.api import documents, query, schemas
from queuectl.api.identity import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, Allowed
from queuectl.api.problems import not_found
from queuectl.api.requests import Endpoint, Question, Source, committed, may_get, page
from queuectl.core.policy import LocalQueueName

PAGE = (query.AS_OF, query.LIMIT, query.NEXT)
_ONE = (query.AS_OF,)


class QueueRoutes:
    """They read the view only; with `asOf` the ledger."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/clusterqueues",
                "ClusterQueues by name",
                self.cluster_queues,
                schemas.Page[schemas.ClusterQueue],
                PAGE,
            ),
            Endpoint(
                "/api/v1/clusterqueues/{name}",
                "One ClusterQueue",
                self.cluster_queue,
                schemas.ClusterQueueDetail,
                _ONE,
            ),
            Endpoint(
                "/api/v1/localqueues",
                "LocalQueues by namespace and name",
                self.local_queues,
                schemas.Page[schemas.LocalQueue],
                (query.NAMESPACE, query.CLUSTER_QUEUE, *PAGE),
            ),
            Endpoint(
                "/api/v1/localqueues/{namespace}/{name}",
                "One LocalQueue",
                self.local_queue,
                schemas.LocalQueueDetail,
                _ONE,
            ),
            Endpoint("/api/v1/cohorts", "Cohorts by name", self.cohorts, schemas.Page[schemas.Cohort], PAGE),
            Endpoint("/api/v1/cohorts/{name}", "One Cohort", self.cohort, schemas.CohortDetail, _ONE),
            Endpoint(
                "/api/v1/resourceflavors",
                "ResourceFlavors by name",
                self.flavors,
                schemas.Page[schemas.ResourceFlavor],
                PAGE,
            ),
            Endpoint(
                "/api/v1/resourceflavors/{name}",
                "One ResourceFlavor",
                self.flavor,
                schemas.ResourceFlavorDetail,
                _ONE,
            ),
        )

    async def cluster_queues(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question, CLUSTER_QUEUES)
        queues = {queue.name: queue for queue in sight.state.cluster_queues()}
        rows, next = await self._source.by_name(question, CLUSTER_QUEUES, queues)
        items = (documents.cluster_queue(row, sight.state) for row in rows)
        return await page(schemas.ClusterQueue, items, next, sight)

    async def cluster_queue(self, question: Question) -> schemas.Committed:
        name = await may_get(question, CLUSTER_QUEUES)
        sight = await self._source.sight_of(question)
        queue = sight.state.queues.get(name)
        if queue is None:
            raise not_found()
        found = documents.cluster_queue(queue, sight.state)
        return schemas.detail(schemas.ClusterQueueDetail, found, committed(sight))

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
        return await page(schemas.LocalQueue, map(documents.local_queue, shown), next, sight)

    async def local_queue(self, question: Question) -> schemas.Committed:
        name = LocalQueueName(question.path["namespace"], question.path["name"])
        if not (query.is_name(name.namespace) and query.is_name(name.name)):
            raise not_found()
        if not await question.caller.may("get", LOCAL_QUEUES, name.namespace, name.name):
            raise not_found()
        sight = await self._source.sight_of(question)
        queue = sight.state.local_queue(name)
        if queue is None:
            raise not_found()
        return schemas.detail(schemas.LocalQueueDetail, documents.local_queue(queue), committed(sight))

    async def cohorts(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question, COHORTS)
        under = sight.state.under_cohorts()
        cohorts = {name: (name, cohort) for name, cohort in sight.state.cohorts().items()}
        rows, next = await self._source.by_name(question, COHORTS, cohorts)
        items = (documents.cohort(name, cohort, under[name], sight.state) for name, cohort in rows)
        return await page(schemas.Cohort, items, next, sight)

    async def cohort(self, question: Question) -> schemas.Committed:
        name = await may_get(question, COHORTS)
        sight = await self._source.sight_of(question)
        cohorts = sight.state.cohorts()
        if name not in cohorts:
            raise not_found()
        under = sight.state.under_cohorts()[name]
        found = documents.cohort(name, cohorts[name], under, sight.state)
        return schemas.detail(schemas.CohortDetail, found, committed(sight))

    async def flavors(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question, FLAVORS)
        quotas = sight.state.quotas_by_flavor()
        flavors = {flavor.name: flavor for flavor in sight.state.flavors()}
        rows, next = await self._source.by_name(question, FLAVORS, flavors)
        items = (documents.flavor(flavor, quotas.get(flavor.name, {})) for flavor in rows)
        return await page(schemas.ResourceFlavor, items, next, sight)

    async def flavor(self, question: Question) -> schemas.Committed:
        name = await may_get(question, FLAVORS)
        sight = await self._source.sight_of(question)
        found = next((flavor for flavor in sight.state.flavors() if flavor.name == name), None)
        if found is None:
            raise not_found()
        quotas = sight.state.quotas_by_flavor().get(name, {})
        document = documents.flavor(found, quotas)
        return schemas.detail(schemas.ResourceFlavorDetail, document, committed(sight))
