"""Changes that are tried on a copy of the state: schemas, documents and endpoints (docs/answers.md)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, TypeVar

from pydantic import Field

from queuectl.answers import trial_snapshot as basis
from queuectl.answers.explanation import Visibility, WorkloadName, name_of
from queuectl.answers.exposure import as_seen, threats
from queuectl.answers.quote import ahead, borrowed, started
from queuectl.answers.state import CommittedState
from queuectl.answers.unknown_references import unknown_references
from queuectl.api import requests, schemas
from queuectl.api.http import Refusal, bad_request, not_found, unavailable
from queuectl.api.limits import Turns
from queuectl.api.requests import CLUSTER_QUEUES, WORKLOADS, Caller, Question, always, endpoint
from queuectl.api.schemas import AMOUNT, Admission, Committed, Condition, Document, Reason
from queuectl.api.view import AnswerSource, Routes, committed, now, shallow, while_asked
from queuectl.api.what_if_rows import WhatIfRows
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.model import what_if
from queuectl.core.model.events import PolicyGone, PolicyInvalid, PolicyObserved
from queuectl.core.model.policy import LocalQueue, WorkloadPriorityClass
from queuectl.core.model.reasons import PreemptionCause, named_in
from queuectl.core.model.resources import format_amount
from queuectl.core.model.what_if import ChangeKind, PolicyChange, Start
from queuectl.core.model.workload import ConfigKey, PodSet, Workload
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.json_fields import BadField, clean
from queuectl.kinds.pod_sizes import Fit, Smaller, asked
from queuectl.kinds.policy import POLICY_KINDS, policy_event, similar_field, unknown_fields, with_defaults
from queuectl.kinds.sample import as_created
from queuectl.ports.budgets import BudgetReadings
from queuectl.ports.reader import NotAtRest, WhatIfs

MAX_MANIFEST: Final = 256 * 1024
"""Bytes of one object."""
MAX_POLICY: Final = 1024 * 1024
MAX_OBJECTS: Final = 2_000
"""Of one plan, with those to be deleted."""
MAX_YAML: Final = 64 * 1024
"""Less: it takes longer to parse than JSON."""

MOST_WARNINGS: Final = 100
"""Unknown fields that one plan names."""
MOST_FIELDS: Final = 100
"""Changed fields of one object that a plan names."""
MAX_VALUE: Final = 1024
"""Characters of a value of one."""
MAX_FIELD: Final = 253
"""Characters of the path of one."""
MOST_AFFECTED: Final = 1000
"""Workloads that one plan names."""
TRY_SECONDS: Final = 20.0
"""How long one question may take, with those before it."""

Answer = TypeVar("Answer")


class PlannedChange(StrEnum):
    CREATED = "Created"
    CHANGED = "Changed"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced(WorkloadName):
    """A workload that would be evicted. Its names are as those of a WorkloadName."""

    cause: PreemptionCause | None
    """The rule (P2 to P9)."""


class Outcome(Document):
    """What would be decided about a workload."""

    starts: Start
    displaces: tuple[Displaced, ...] = Field(description="In the order of eviction.")
    admission: Admission | None = Field(
        description="The quota that it would hold; null if it does not start now."
    )


class Counterfactual(Outcome):
    """A change with which the workload starts: the smallest one of its kind."""

    kind: ChangeKind
    message: str = Field(description="The change in words.")
    pod_set: str | None
    resource: str | None
    flavor: str | None
    node: str | None = Field(description="The object that gets more quota, such as ClusterQueue/team-a.")
    target: str | None = Field(description="The other LocalQueue or WorkloadPriorityClass.")
    before: int | None = Field(description=f"Number of pods, nominal quota, priority. {AMOUNT}")
    after: int | None
    fit: Fit | None = Field(
        description="How to make this change of a workload that waits; it keeps its place. Null: it is no "
        "other size, its kind has no field for it, or the workload does not exist yet."
    )


class Counterfactuals(Committed):
    """What would let a workload start now. Each change was tried by the planner on a copy of the state."""

    tried_at: int = Field(description="Sequence of that state, which may be some seconds older.")
    now: Outcome = Field(description="Without any change.")
    items: tuple[Counterfactual, ...]
    incomplete: tuple[ChangeKind, ...] = Field(
        description="Kinds of which not all changes were tried, because they would cost too much."
    )


class Affected(Document):
    """A workload about which the other policy decides something else."""

    namespace: str
    kind: str
    name: str
    change: PolicyChange
    reason: Reason | None = Field(description="Of one that is not admitted: why it is evicted, or waits.")
    admission: Admission | None = Field(description="Of an admitted one.")


class Inactive(Document):
    """A ClusterQueue that would not admit workloads any more."""

    cluster_queue: str
    condition: Condition


class PlanWarning(Document):
    object: str
    """Such as `ClusterQueue/team-a`."""
    field: str
    message: str


class PlannedField(Document):
    """A field that another policy changes."""

    field: str
    """Such as `spec.resourceGroups[0].flavors[a100].resources[nvidia.com/gpu].nominalQuota`."""
    before: str | None = Field(description="A text, or JSON; null: it is not set.")
    after: str | None


class PlannedObject(Document):
    """An object that another policy creates, changes or deletes."""

    object: str
    change: PlannedChange
    fields: tuple[PlannedField, ...] = Field(description="Of a changed one; at most 100.")


class PlannedPolicy(Committed):
    """What another policy decides as soon as it is in force. Nothing is written."""

    tried_at: int = Field(description="Sequence of the state that it was tried on.")
    admitted: int
    evicted: int
    stranded: int = Field(description="Pending workloads that waiting does not help any more.")
    other_reason: int = Field(description="Those that wait as before, for another reason.")
    items: tuple[Affected, ...] = Field(
        description="The first 1,000 by name. A workload may be evicted, and then admitted or stranded."
    )
    inactive: tuple[Inactive, ...]
    objects: tuple[PlannedObject, ...] = Field(description="Without those that stay as they are.")
    warnings: tuple[PlanWarning, ...] = Field(
        description="Fields that do not exist, which an API server drops, and names that no object has, "
        "neither in the policy in force nor in this one."
    )


class QuoteThreat(Document):
    """Pending workloads of a ClusterQueue that might preempt it as soon as it runs."""

    cluster_queue: str | None = Field(description="Null for all together that the caller may not read.")
    cause: PreemptionCause
    pending: int


class Quote(Counterfactuals):
    """What would be decided about a new workload. Nothing is written."""

    reason: Reason | None = Field(description="Why it would not start now.")
    cluster_queue: str | None = Field(description="Where it would be queued; null: nowhere.")
    priority: int | None
    ahead: int | None = Field(description="Pending workloads of that ClusterQueue that come before it.")
    borrows: dict[str, dict[str, int]] = Field(
        description=f"By flavor and resource, what its ClusterQueue would use beyond its own quota. {AMOUNT}"
    )
    threats: tuple[QuoteThreat, ...] = Field(description="Which queues might take it back, if it starts.")


Fits = Callable[[what_if.Change], Fit | None]
"""How to make a change of size of an existing workload."""


def _tries(tried: what_if.Counterfactuals, caller: Visibility, fit: Fits = lambda _: None) -> dict[str, Any]:
    """The fields of Counterfactuals."""
    return {
        "tried_at": tried.sequence,
        "now": _outcome(tried.now, caller),
        "items": tuple(_counterfactual(one, caller, fit(one.change)) for one in tried.found),
        "incomplete": tried.incomplete,
    }


def _displaced_namespaces(tried: what_if.Counterfactuals) -> set[str]:
    outcomes = (tried.now, *(one.outcome for one in tried.found))
    return {displaced.ref.namespace for outcome in outcomes for displaced in outcome.displaced}


def _outcome(tried: what_if.Tried, caller: Visibility) -> Outcome:
    displaced = (Displaced(**shallow(name_of(one.ref)), cause=one.cause) for one in tried.displaced)
    return Outcome.of(
        starts=tried.start,
        displaces=tuple(map(caller.workload, displaced)),
        admission=tried.assignment,
    )


def _counterfactual(one: what_if.Counterfactual, caller: Visibility, fit: Fit | None) -> Counterfactual:
    change = shallow(one.change)
    target = change.pop("name")
    return Counterfactual(
        **dict(_outcome(one.outcome, caller)),
        **change,
        target=target,
        message=message(one.change, one.outcome),
        fit=fit,
    )


def _fit(kind: JobKind, pod_sets: Sequence[PodSet], change: what_if.Change) -> Fit | None:
    if change.kind not in (ChangeKind.FEWER_PODS, ChangeKind.SMALLER_PODS):
        return None
    smaller = Smaller(change.pod_set or "", change.resource, change.before or 0, change.after or 0)
    return asked(kind, pod_sets, smaller)


def _planned(
    plan: what_if.PlannedPolicy,
    objects: tuple[PlannedObject, ...],
    warnings: tuple[PlanWarning, ...],
    committed: dict[str, Any],
) -> PlannedPolicy:
    """For a caller that may read all workloads."""
    numbers = Counter(one.change for one in plan.affected)
    return PlannedPolicy(
        tried_at=plan.sequence,
        admitted=numbers[PolicyChange.ADMITTED],
        evicted=numbers[PolicyChange.EVICTED],
        stranded=numbers[PolicyChange.STRANDED],
        other_reason=numbers[PolicyChange.OTHER_REASON],
        items=tuple(
            Affected.of(
                **shallow(name_of(one.ref)),
                change=one.change,
                reason=one.reason,
                admission=one.assignment,
            )
            for one in plan.affected[:MOST_AFFECTED]
        ),
        inactive=tuple(Inactive.of(cluster_queue=name, condition=one) for name, one in plan.inactive),
        objects=objects,
        warnings=warnings,
        **committed,
    )


def message(change: what_if.Change, outcome: what_if.Tried) -> str:
    """One sentence: the change, and what it costs others."""
    if outcome.start is not Start.AFTER_PREEMPTION:
        return f"{_changed(change)} it starts now"
    number = len(outcome.displaced)
    match number:
        case 0:  # it claims what preempted workloads still hold (A9)
            when = "the pods of workloads that are being preempted have ended"
        case 1:
            when = "1 workload is preempted"
        case _:
            when = f"{number} workloads are preempted"
    return f"{_changed(change)} it starts as soon as {when}"


def _changed(change: what_if.Change) -> str:
    before, after = change.before or 0, change.after or 0
    match change.kind:
        case ChangeKind.FEWER_PODS:
            return f"With {after} of {before} pods in podset {change.pod_set}"
        case ChangeKind.SMALLER_PODS:
            amounts = f"{_amount(change, after)}, not {_amount(change, before)} {change.resource}"
            return f"With {amounts} for each pod of podset {change.pod_set}"
        case ChangeKind.OTHER_FLAVOR:
            return f"If its pods ask for flavor {change.flavor},"
        case ChangeKind.OTHER_QUEUE:
            return f"In LocalQueue {change.name}"
        case ChangeKind.OTHER_PRIORITY:
            return f"With WorkloadPriorityClass {change.name} ({after}, not {before})"
        case ChangeKind.MORE_QUOTA:
            amounts = f"{_amount(change, after)}, not {_amount(change, before)} {change.resource}"
            return f"If nominalQuota of {change.node} were {amounts} of flavor {change.flavor},"


def _amount(change: what_if.Change, amount: int) -> str:
    return format_amount(change.resource or "", amount)


class WhatIfRoutes(Routes):
    def __init__(
        self,
        source: AnswerSource,
        workloads: WorkloadRoutes,
        what_ifs: WhatIfs,
        budgets: BudgetReadings | None,
    ) -> None:
        """Without `budgets` each Budget counts as unused."""
        self._rows = WhatIfRows(source, budgets)
        self._source = source
        self._workloads = workloads
        self._what_ifs = what_ifs
        self._turns = Turns()

    @endpoint(
        "/api/v1/workloads/{namespace}/{kind}/{name}/counterfactuals",
        "The smallest changes with which one pending workload starts now",
        Counterfactuals,
        heavy=always,
    )
    async def counterfactuals(self, question: Question) -> schemas.Committed:
        workload = await self._workloads.find(question)
        sight = self._source.sight()
        state = sight.state
        if workload.id not in state.workloads:
            raise not_found()
        namespace, queue = workload.ref.namespace, workload.cluster_queue
        of = await asyncio.to_thread(basis.of_namespace, state, now(sight), namespace, queue)
        of = await self._rows.added_to(of, sight)
        tried = await self._tried(question, lambda: self._what_ifs.counterfactuals(of, workload.id))
        visible = await _visible(question, _displaced_namespaces(tried))
        kind = self._source.kinds.find(workload.ref.kind)

        def fit(change: what_if.Change) -> Fit | None:
            return None if kind is None else _fit(kind, workload.pod_sets, change)

        return Counterfactuals(**_tries(tried, visible, fit), **committed(sight))

    @endpoint(
        "/api/v1/quote",
        "Whether a new workload would start now, where, and which workloads it would displace",
        Quote,
        heavy=always,
        notes="The body is the object as it would be created, with namespace and queue label.",
        body=MAX_MANIFEST,
        yaml=MAX_YAML,
    )
    async def quote(self, question: Question) -> schemas.Committed:
        workload = await self._asked(question)
        sight = self._source.sight()
        state, present = sight.state, now(sight)
        await _check_use(question.caller, workload, state)
        workload = replace(_created_by(question.caller, workload), created_at=present)
        of = await asyncio.to_thread(basis.of_namespace, state, present, workload.ref.namespace)
        of = await self._rows.added_to(of, sight)
        of = replace(of, outcomes=await self._rows.outcomes(workload, state.sequence))
        tried = await self._tried(question, lambda: self._what_ifs.quote(of, workload))
        reason = tried.now.reason
        stored, later = started(state, workload, tried.now, present)
        threatening = await threats(stored, later, present) if stored is not None else []
        visible = await _visible(
            question,
            {*_displaced_namespaces(tried), *named_in(reason)},
            {one.cluster_queue for one in threatening if one.cluster_queue is not None},
        )
        return Quote.of(
            **_tries(tried, visible),
            reason=reason and visible.reason(reason),
            cluster_queue=tried.now.cluster_queue,
            priority=tried.now.priority,
            ahead=await ahead(state, tried.now.cluster_queue, tried.now.priority),
            borrows=borrowed(stored, later),
            threats=as_seen(threatening, visible),
            **committed(sight),
        )

    @endpoint(
        "/api/v1/plan",
        "Which workloads another policy would admit, evict and strand at once",
        PlannedPolicy,
        heavy=always,
        notes="The body is `{objects: [...], deleted: [...]}`: policy objects as they would be, and "
        "others by kind, name and namespace. YAML has the objects only, as documents. For callers "
        "that may list all workloads.",
        body=MAX_POLICY,
        yaml=MAX_YAML,
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
        content = await requests.policy_objects(question)
        changes = await asyncio.to_thread(policy_changes, content)
        warnings = await asyncio.to_thread(_unknown_fields, content)
        sight = self._source.sight()
        of = await self._rows.added_to(basis.everything(sight.state, now(sight)), sight, changes)
        plan = await self._tried(question, lambda: self._what_ifs.plan(of, changes))
        objects = await asyncio.to_thread(_planned_objects, changes, sight.state.specs)
        unknown = unknown_references(changes, sight.state.policies)
        warnings += tuple(
            PlanWarning(object=clean(str(one.key), MAX_FIELD), field=one.field, message=one.message)
            for one in islice(unknown, MOST_FIELDS)
        )
        return _planned(plan, objects, warnings, committed(sight))

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
        content = await requests.one_object(question)
        row = self._source.kinds.of(content.get("apiVersion"), content.get("kind"))
        if row is None:
            raise bad_request(f"apiVersion and kind must be one of {self._source.kinds.known()}")
        try:
            workload = await asyncio.to_thread(as_created, row, content)
        except BadField as problem:
            raise bad_request(str(problem)) from None
        if not requests.is_name(workload.ref.namespace):
            raise bad_request("metadata.namespace is not a name")
        if not await question.caller.may("get", WORKLOADS, workload.ref.namespace):
            raise not_found()
        return workload


def _created_by(caller: Caller, workload: Workload) -> Workload:
    """As the gate would have it: for the user that it names, else for its creator (B1)."""
    if workload.submitter is not None:
        return replace(workload, creator=caller.user)
    return replace(workload, submitter=caller.user, groups=caller.groups)


async def _check_use(caller: Caller, workload: Workload, state: CommittedState) -> None:
    """Raises a 403 for what is restricted, and the gate would not let the caller name (G5)."""
    for plural, key in (
        ("localqueues", ConfigKey("LocalQueue", workload.ref.namespace, workload.queue)),
        ("workloadpriorityclasses", ConfigKey("WorkloadPriorityClass", "", workload.priority_class or "")),
    ):
        named = state.policies.get(key)
        restricted = isinstance(named, LocalQueue | WorkloadPriorityClass) and named.restricted
        if restricted and not await caller.may("use", plural, key.namespace, key.name):
            problem = f"{key} is restricted: the object would be refused, you do not have the verb use on it"
            raise Refusal(HTTPStatus.FORBIDDEN, problem)


async def _visible(question: Question, namespaces: set[str], queues: Collection[str] = ()) -> Visibility:
    return Visibility(
        cluster_queues=await question.caller.names(CLUSTER_QUEUES, queues),
        namespaces=await question.caller.namespaces("get", WORKLOADS, namespaces),
    )


def policy_changes(content: Mapping[str, Any]) -> list[PolicyObserved | PolicyGone]:
    """Raises a 400 that names the object and the field."""
    changes: list[PolicyObserved | PolicyGone] = []
    for field in content:
        if field not in ("objects", "deleted"):
            raise bad_request(f"{field!r} is not known: give objects and deleted")
    for field in ("objects", "deleted"):
        objects = content.get(field, [])
        if not isinstance(objects, list):
            raise bad_request(f"{field} must be a list")
        if len(objects) + len(changes) > MAX_OBJECTS:
            raise bad_request(f"{field}: one plan tries at most {MAX_OBJECTS} objects")
        for number, one in enumerate(objects):
            key = _key(f"{field}[{number}]", one)
            if field == "deleted":
                changes.append(PolicyGone(key))
                continue
            event = policy_event(one)
            if isinstance(event, PolicyInvalid):
                raise bad_request(f"{key}: {event.detail}")
            changes.append(event)
    if not changes:
        raise bad_request("there is nothing to try: give objects or deleted")
    return changes


def _planned_objects(
    changes: Iterable[PolicyObserved | PolicyGone], specs: Mapping[ConfigKey, str]
) -> tuple[PlannedObject, ...]:
    """Compare objects with those of the ledger; `specs`: as the ledger has them."""
    found: list[PlannedObject] = []
    for one in changes:
        before, name = specs.get(one.key), clean(str(one.key), MAX_FIELD)
        if isinstance(one, PolicyGone):
            if before is not None:
                found.append(PlannedObject(object=name, change=PlannedChange.DELETED, fields=()))
        elif before is None:
            found.append(PlannedObject(object=name, change=PlannedChange.CREATED, fields=()))
        elif fields := _changed_fields(*(with_defaults(one.key, spec) for spec in (before, one.spec))):
            found.append(PlannedObject(object=name, change=PlannedChange.CHANGED, fields=fields))
    return tuple(found)


def _changed_fields(before: Any, after: Any) -> tuple[PlannedField, ...]:
    old, new = dict(_leaves("", before)), dict(_leaves("", after))
    changed = (path for path in {**old, **new} if old.get(path) != new.get(path))
    return tuple(
        PlannedField(field=path, before=old.get(path), after=new.get(path))
        for path in islice(changed, MOST_FIELDS)
    )


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the values that are no objects, by path. Items of a list go by name, if they have one."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, inner)
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{inner.get('name', number)}]", inner)
    else:
        yield clean(path, MAX_FIELD), clean(value if isinstance(value, str) else json.dumps(value), MAX_VALUE)


def _unknown_fields(content: Mapping[str, Any]) -> tuple[PlanWarning, ...]:
    """The unknown fields of objects that `policy_changes` has read."""
    found: list[PlanWarning] = []
    for number, one in enumerate(content.get("objects", [])):
        name = str(_key(f"objects[{number}]", one))
        for path in islice(unknown_fields(one), MOST_WARNINGS - len(found)):
            near = similar_field(one["kind"], path)
            message = f"no such field: it has no effect{f', did you mean {near}?' if near else ''}"
            found.append(PlanWarning(object=name, field=clean(path, MAX_FIELD), message=message))
    return tuple(found)


def _key(place: str, one: Any) -> ConfigKey:
    """Raises a 400."""
    metadata = one.get("metadata") if isinstance(one, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise bad_request(f"{place} must be an object with metadata.name")
    kind, namespace = one.get("kind"), metadata.get("namespace") or ""
    if not isinstance(kind, str) or kind not in POLICY_KINDS or not isinstance(namespace, str):
        raise bad_request(f"{place}.kind must be one of {', '.join(POLICY_KINDS)}")
    return ConfigKey(kind, namespace, metadata["name"])
