"""An engine from rows of the ledger alone, without a cluster: it decides as a controller that starts on them.

What a controller reads from objects is made from what the ledger has: each workload is observed as its last
decision left it. What the ledger does not have is not known: pods that are ready or have ended since, what is
used of ResourceQuotas by others (docs/decisions/0039-answers-from-copies-of-the-engine.md). Nodes and their
pods are known as of now only, as readers were told of them last (docs/architecture.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Final

from queuectl.core.directory import GATE
from queuectl.core.engine import Engine
from queuectl.core.features.nodes.facts import pods_of_facts
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.devices import PodClaim
from queuectl.core.model.events import (
    ConfigurationObserved,
    ContextObserved,
    Event,
    Listed,
    OutcomesRead,
    PodObserved,
    PolicyObserved,
    TimeCame,
    WorkloadObserved,
)
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, Gate, SchedulingConfiguration
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import AfterOutcome, NamedWorkload, StartConditions
from queuectl.core.model.workload import (
    ConfigKey,
    Effect,
    EffectKey,
    LedgerSnapshot,
    Observation,
    Phase,
    PodSet,
    StoredWorkload,
    Verb,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.observed_events import CONFIGURATION
from queuectl.kinds.context import is_kept, kept_context
from queuectl.kinds.policy import parse_policy

RULES: Final = 16_384
"""How many are kept, those used last: policy rarely changes, and each engine needs that of a tree."""
SOURCE = "ledger"
"""Event source of all that the ledger has."""
_ALL: Final = 1 << 30
_BY_DEPENDENCY: Final = frozenset({Code.WAITING_FOR_DEPENDENCY, Code.DEPENDENCY_NEVER_SATISFIED})
SUSPENDED: Final = Observation(resource_version="1", generation=1, suspended=True, annotated=True)
"""An object that the controller has seen and not started."""


def engine_of(
    snapshot: LedgerSnapshot,
    configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION,
    known: Sequence[Event] | None = None,
) -> Engine:
    """Return an engine in the state of `snapshot`. `known`: its `rules`, if the caller has read them.

    Raises ValueError for a spec that cannot be read.
    """
    engine = Engine(frozenset({SOURCE}), configuration)
    engine.restore(snapshot)
    unacknowledged = frozenset(snapshot.effects)
    events: list[Event] = rules(snapshot) if known is None else list(known)
    events += nodes(snapshot.nodes)
    events += (observed(one, unacknowledged) for one in snapshot.workloads)
    engine.handle([*events, Listed(SOURCE)])
    if outcomes := tuple(_outcomes(engine, snapshot.workloads)):
        engine.handle([OutcomesRead(outcomes)])
    if snapshot.now is not None:
        engine.handle([TimeCame(snapshot.now)])
    return engine


def rules(snapshot: LedgerSnapshot) -> list[Event]:
    """Return the events of all policy, context and configuration in force. Raises ValueError."""
    return [rule(key, spec) for key, spec in snapshot.configs]


@lru_cache(RULES)
def rule(key: ConfigKey, spec: str) -> Event:
    """Return the event of policy, context or configuration in force. Raises ValueError.

    An event is a value: engines share those that they have in common.
    """
    if key.kind == GATE:
        installed = datetime.fromisoformat(json.loads(spec)["installedAt"])
        return ContextObserved(Gate(key.name, installed))
    if key == CONFIGURATION:
        return ConfigurationObserved(spec)
    if is_kept(key.kind):
        return kept_context(key, spec)
    return PolicyObserved(key, parse_policy(key, spec), spec)


def nodes(facts: Iterable[NodeFacts]) -> Iterator[Event]:
    """Yield the events of nodes and of the pods on them. What is avoided is restored from the snapshot."""
    for one in facts:
        if one.node is not None:
            yield ContextObserved(one.node)
        yield from map(PodObserved, pods_of_facts(one))


def by_workload(pods: Iterable[Pod]) -> dict[WorkloadId, list[str]]:
    """Return the UIDs of the pods of each workload."""
    found: dict[WorkloadId, list[str]] = {}
    for pod in pods:
        if pod.workload is not None:
            found.setdefault(pod.workload, []).append(pod.uid)
    return found


def observed(stored: StoredWorkload, unacknowledged: frozenset[EffectKey]) -> WorkloadObserved:
    """Return the observation of its object as the last decision about it left it."""
    attempt = stored.attempt
    runs = False
    if attempt is not None:
        verb = Verb.STOP if stored.phase is Phase.EVICTING else Verb.START
        done = EffectKey(stored.id, attempt.number, verb) not in unacknowledged
        runs = done is (verb is Verb.START)
    observation = replace(
        SUSPENDED,
        suspended=not runs,
        admission=attempt if runs else None,
        ready=True if runs and attempt is not None and stored.past.ready == attempt.number else None,
        reclaimable=tuple(_ended(stored)),
    )
    return WorkloadObserved(requested(stored), observation)


def written(seen: Observation, effect: Effect) -> Observation:
    """Return an object as it is observed after a write of the controller: it runs, or is suspended."""
    starts = effect.key.verb is Verb.START
    return replace(
        seen,
        generation=seen.generation + (seen.suspended is starts),
        suspended=not starts,
        quiet=None,
        admission=effect.attempt if starts else None,
        annotated=True,
    )


def requested(stored: StoredWorkload) -> Workload:
    """Return the request of its user as the ledger has it."""
    options, reason = stored.options, stored.reason
    held = reason is not None and reason.code in (Code.ON_HOLD, Code.USER_HOLD)
    held &= stored.phase is not Phase.ADMITTED
    return Workload(
        id=stored.id,
        ref=stored.ref,
        queue=stored.queue,
        created_at=stored.created_at,
        pod_sets=stored.pod_sets,
        priority_class=options.priority_class,
        submitter=stored.submitter,
        labels=stored.labels,
        hold=held,
        hold_reason=reason.detail if held and reason is not None else None,
        max_run_seconds=options.max_run_seconds,
        start=_start(options.start, reason),
        problem=options.problem or _unknown(stored),
    )


def _start(start: StartConditions | None, reason: Reason | None) -> StartConditions | None:
    """Return the conditions that still count: the open state does not say how others ended."""
    waits = reason is not None and reason.code in _BY_DEPENDENCY
    return start if start is None or waits else replace(start, after=())


def _outcomes(
    engine: Engine, workloads: Iterable[StoredWorkload]
) -> Iterator[tuple[NamedWorkload, WorkloadOutcome | None]]:
    """Yield how workloads that are over ended, of those that others wait for, as far as reasons tell.

    WaitingForDependency names the first one that is waited for: others of the same user that are over ended
    as they had to, else the reason would be DependencyNeverSatisfied, which names the one that did not.
    """
    unread = frozenset(engine.features.start_conditions.unread(_ALL))
    for one in workloads if unread else ():
        reason, start = one.reason, one.options.start
        if reason is None or start is None or reason.code not in _BY_DEPENDENCY:
            continue
        never = reason.code is Code.DEPENDENCY_NEVER_SATISFIED
        for after in start.after:
            name = NamedWorkload(one.ref.namespace, after.kind, after.name)
            if name in unread and (str(name) == reason.node) is never:
                succeeded = (after.outcome is AfterOutcome.FAILED) is never
                yield name, WorkloadOutcome.SUCCEEDED if succeeded else WorkloadOutcome.FAILED


def claiming(workload: Workload, others: Iterable[StoredWorkload]) -> Workload:
    """Return `workload`, read from a manifest, with the requests of its claims, as the ledger has them with
    the workload of its namespace that names the same object and arrived last.
    """
    wanted = {(claim.template, claim.name) for pods in workload.pod_sets for claim in pods.claims}
    if not wanted:
        return workload
    namespace = workload.ref.namespace
    near = sorted((one for one in others if one.ref.namespace == namespace), key=lambda one: one.arrival)
    claims = (claim for one in near for pods in one.pod_sets for claim in pods.claims)
    known = {(claim.template, claim.name): claim.requests for claim in claims if claim.requests is not None}

    def read(claim: PodClaim) -> PodClaim:
        asked = claim.requests
        return replace(claim, requests=known.get((claim.template, claim.name)) if asked is None else asked)

    pod_sets = (replace(pods, claims=tuple(map(read, pods.claims))) for pods in workload.pod_sets)
    return replace(workload, pod_sets=tuple(pod_sets))


def _unknown(stored: StoredWorkload) -> Reason | None:
    if stored.pod_sets or stored.attempt is not None:
        return None
    detail = "an older version queued it: its podsets are not in the ledger"
    return Reason(code=Code.MISCONFIGURED, detail=detail)


def _ended(stored: StoredWorkload) -> Iterator[tuple[str, int]]:
    """Yield podsets with the number of pods that have ended for good, as far as the hold shows it (L15)."""
    asked: dict[str, PodSet] = {pods.name: pods for pods in stored.pod_sets}
    for held in stored.attempt.assignment.pod_sets if stored.attempt is not None else ():
        pods = asked.get(held.name)
        if pods is not None and pods.min_count is None and held.count < pods.count:
            yield held.name, pods.count - held.count
