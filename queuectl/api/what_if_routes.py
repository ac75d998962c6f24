"""The endpoints that try changes on a copy of the state. From a Question to a document."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, TypeVar

from queuectl.answers import trial_snapshot as basis
from queuectl.answers.exposure import threats
from queuectl.answers.quote import ahead, borrowed, started
from queuectl.api import bodies, documents, query, schemas, what_if_schemas
from queuectl.api import what_if_documents as what_if
from queuectl.api.answer_routes import always, now
from queuectl.api.identity import CLUSTER_QUEUES, WORKLOADS
from queuectl.api.limits import Turns
from queuectl.api.problems import Refusal, bad_request, not_found, unavailable
from queuectl.api.requests import Endpoint, Question, Source, committed, while_asked
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.events import PolicyGone, PolicyInvalid, PolicyObserved
from queuectl.core.model import ConfigKey, Workload
from queuectl.core.redaction import named_in, redacted
from queuectl.kinds.json_fields import BadField
from queuectl.kinds.policy import POLICY_KINDS, policy_event
from queuectl.kinds.sample import as_created
from queuectl.ports.reader import NotAtRest, WhatIfs

MAX_MANIFEST: Final = 256 * 1024
"""Bytes of one object."""
MAX_POLICY: Final = 1024 * 1024
MAX_OBJECTS: Final = 2_000
"""Of one plan, with those to be deleted."""
MAX_YAML: Final = 64 * 1024
"""Less: it takes longer to parse than JSON."""

TRY_SECONDS: Final = 20.0
"""How long one question may take, with those before it."""

Answer = TypeVar("Answer")


class WhatIfRoutes:
    def __init__(self, source: Source, workloads: WorkloadRoutes, what_ifs: WhatIfs) -> None:
        self._source = source
        self._workloads = workloads
        self._what_ifs = what_ifs
        self._turns = Turns()

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "/api/v1/workloads/{namespace}/{kind}/{name}/counterfactuals",
                "The smallest changes with which one pending workload starts now",
                self.counterfactuals,
                what_if_schemas.Counterfactuals,
                heavy=always,
            ),
            Endpoint(
                "/api/v1/quote",
                "Whether a new workload would start now, where, and which workloads it would displace",
                self.quote,
                what_if_schemas.Quote,
                heavy=always,
                notes="The body is the object as it would be created, with namespace and queue label.",
                body=MAX_MANIFEST,
                yaml=MAX_YAML,
            ),
            Endpoint(
                "/api/v1/plan",
                "Which workloads another policy would admit, evict and strand at once",
                self.plan,
                what_if_schemas.PlannedPolicy,
                heavy=always,
                notes="The body is `{objects: [...], deleted: [...]}`: policy objects as they would be, and "
                "others by kind, name and namespace. YAML has the objects only, as documents. For callers "
                "that may list all workloads.",
                body=MAX_POLICY,
                yaml=MAX_YAML,
            ),
        )

    async def counterfactuals(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.found(question)
        sight = self._source.sight()
        state = sight.state
        if workload.id not in state.workloads:
            raise not_found()
        of = basis.of_namespace(state, now(sight), workload.ref.namespace, workload.cluster_queue)
        found = await self._tried(question, lambda: self._what_ifs.counterfactuals(of, workload.id))
        readable = await question.caller.namespaces("get", WORKLOADS, what_if.displaced_namespaces(found))
        kind = self._source.kinds.find(workload.ref.kind)
        return what_if.counterfactuals(found, workload, kind, readable, committed(sight))

    async def quote(self, question: Question) -> schemas.Committed:
        workload = await self._asked(question)
        sight = self._source.sight()
        state, present = sight.state, now(sight)
        workload = replace(workload, created_at=present)
        of = basis.of_namespace(state, present, workload.ref.namespace)
        found = await self._tried(question, lambda: self._what_ifs.quote(of, workload))
        reason = found.now.reason
        stored, later = started(state, workload, found.now, present)
        menaces = await threats(stored, later, present) if stored is not None else []
        queues = await question.caller.names(CLUSTER_QUEUES, {one.cluster_queue for one in menaces})
        named = {*what_if.displaced_namespaces(found), *named_in(reason)}
        readable = await question.caller.namespaces("get", WORKLOADS, named)
        return what_if_schemas.Quote(
            **what_if.fields(found, readable),
            reason=None if reason is None else documents.reason(redacted(reason, readable)),
            cluster_queue=found.now.cluster_queue,
            priority=found.now.priority,
            ahead=await ahead(state, found.now.cluster_queue, found.now.priority),
            borrows=borrowed(stored, later),
            threats=what_if.threats(menaces, queues),
            **committed(sight),
        )

    async def plan(self, question: Question) -> schemas.Committed:
        if not await question.caller.may("list", WORKLOADS) or not await question.caller.may(
            "list", CLUSTER_QUEUES
        ):
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                "a plan names workloads of all namespaces: it needs the right to list all workloads and all "
                "clusterqueues",
            )
        # In a thread: a thousand objects take a tenth of a second.
        changes = await asyncio.to_thread(policy_changes, await bodies.policy_objects(question))
        sight = self._source.sight()
        of = basis.everything(sight.state, now(sight))
        found = await self._tried(question, lambda: self._what_ifs.plan(of, changes))
        return what_if.planned(found, committed(sight))

    async def _tried(self, question: Question, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Raises a 503 for a state that cannot be tried, and after TRY_SECONDS."""
        try:
            async with asyncio.timeout(TRY_SECONDS), self._turns.turn(question.caller.tenant):
                return await while_asked(question, ask())
        except TimeoutError:
            problem = f"no answer within {TRY_SECONDS:g} s"
        except NotAtRest as error:
            problem = f"the state cannot be tried: {error}"
        except ValueError as error:
            raise unavailable(f"the state cannot be tried: {error}") from None
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, retry_after=2)

    async def _asked(self, question: Question) -> Workload:
        """The workload in the body. Raises a 400 that names the field, or a 404."""
        content = await bodies.one_object(question)
        row = self._source.kinds.of(content.get("apiVersion"), content.get("kind"))
        if row is None:
            raise bad_request(f"apiVersion and kind must be one of {self._source.kinds.known()}")
        try:
            workload = await asyncio.to_thread(as_created, row, content)
        except BadField as problem:
            raise bad_request(str(problem)) from None
        if not query.is_name(workload.ref.namespace):
            raise bad_request("metadata.namespace is not a name")
        if not await question.caller.may("get", WORKLOADS, workload.ref.namespace):
            raise not_found()
        return workload


def policy_changes(content: Mapping[str, Any]) -> list[PolicyObserved | PolicyGone]:
    """Raises a 400 that names the object and the field."""
    found: list[PolicyObserved | PolicyGone] = []
    for field in content:
        if field not in ("objects", "deleted"):
            raise bad_request(f"{field!r} is not known: give objects and deleted")
    for field in ("objects", "deleted"):
        objects = content.get(field, [])
        if not isinstance(objects, list):
            raise bad_request(f"{field} must be a list")
        if len(objects) + len(found) > MAX_OBJECTS:
            raise bad_request(f"{field}: one plan tries at most {MAX_OBJECTS} objects")
        for number, one in enumerate(objects):
            key = _key(f"{field}[{number}]", one)
            if field == "deleted":
                found.append(PolicyGone(key))
                continue
            event = policy_event(one)
            if isinstance(event, PolicyInvalid):
                raise bad_request(f"{key}: {event.detail}")
            found.append(event)
    if not found:
        raise bad_request("there is nothing to try: give objects or deleted")
    return found


def _key(place: str, one: Any) -> ConfigKey:
    """Raises a 400."""
    metadata = one.get("metadata") if isinstance(one, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise bad_request(f"{place} must be an object with metadata.name")
    kind, namespace = one.get("kind"), metadata.get("namespace") or ""
    if kind not in POLICY_KINDS or not isinstance(namespace, str):
        raise bad_request(f"{place}.kind must be one of {', '.join(POLICY_KINDS)}")
    return ConfigKey(kind, namespace, metadata["name"])
