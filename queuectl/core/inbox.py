"""Events that the loop has not taken yet. Each has a whole object, so the latest of an object is enough.

While the ledger is unavailable, or another controller leads, the loop takes nothing. What is kept grows with
the number of objects, not with that of their changes: merging leaves out what makes no difference to the
engine.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain

from queuectl.core.model.events import (
    ConfigurationObserved,
    ContextGone,
    ContextObserved,
    DeviceUseFound,
    EffectSettled,
    Event,
    Listed,
    OutcomesRead,
    OwnerRead,
    PodGone,
    PodObserved,
    PodOwnerRead,
    PodsCounted,
    PolicyGone,
    PolicyInvalid,
    PolicyObserved,
    TimeCame,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Gate
from queuectl.core.model.workload import Observation, WorkloadId, precedes
from queuectl.core.observed_events import Rules

WorkloadEvent = (
    WorkloadObserved | WorkloadGone | EffectSettled | PodsCounted | OwnerRead | PodOwnerRead | DeviceUseFound
)


class Inbox:
    def __init__(self, *, first: bool = False) -> None:
        """`first`: the engine that takes it has seen nothing yet, and learns from the lists what is gone of
        what the ledger has. What is gone is kept until the next list, since it may tell an outcome."""
        self._first = first
        self._rules: dict[Hashable, Rules] = {}
        """Policy, context and configuration."""
        self._workloads: dict[WorkloadId, list[WorkloadEvent]] = {}
        self._pods: dict[str, PodObserved | PodGone] = {}
        """By UID."""
        self._kinds: dict[WorkloadId, str] = {}
        """Of workloads that were observed."""
        self._listed: dict[str, set[WorkloadId] | None] = {}
        """By source: the workloads of its last list, and those with events after it. Taken last."""

    def __bool__(self) -> bool:
        return bool(self._rules or self._workloads or self._pods or self._listed)

    def __len__(self) -> int:
        """Number of events that are kept."""
        return (
            len(self._rules)
            + len(self._pods)
            + len(self._listed)
            + sum(len(there) for there in self._workloads.values())
        )

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case WorkloadObserved():
                    self._observe(event)
                case WorkloadGone():
                    self._end(event)
                    self._known(event.workload, *self._listed)
                case EffectSettled(key):
                    self._workloads.setdefault(key.workload, []).append(event)
                case (
                    PodsCounted(workload)
                    | OwnerRead(workload)
                    | PodOwnerRead(workload)
                    | DeviceUseFound(workload)
                ):
                    self._add(workload, event)
                case PodObserved() | PodGone():
                    self._pod(event)
                case Listed():
                    self._list(event)
                case TimeCame() | OutcomesRead():
                    raise AssertionError("the loop itself tells it")
                case _:
                    self._rule(event)

    def forget_lists(self) -> None:
        """Keep what was observed, which the next lists complete."""
        self._listed.clear()

    def events(self) -> list[Event]:
        """Return what is kept. The events of one workload are in their order."""
        lists = (
            Listed(source, None if present is None else frozenset(present))
            for source, present in self._listed.items()
        )
        each = chain.from_iterable(self._workloads.values())
        return [*self._rules.values(), *self._pods.values(), *each, *lists]

    # --- workloads

    def _observe(self, event: WorkloadObserved) -> None:
        workload, seen = event.workload.id, event.observation
        kind = self._kinds[workload] = event.workload.ref.kind
        present = self._listed.get(kind)
        if present is not None and workload not in present:
            self._end(WorkloadGone(workload))  # the list before did not have it
            self._known(workload, kind)
        there = self._workloads.setdefault(workload, [])
        if there and isinstance(last := there[-1], WorkloadObserved) and seen.outdated_by(last.observation):
            return
        if there and isinstance(last := there[-1], WorkloadGone):
            if precedes(seen.resource_version, last.resource_version):
                return
            del there[_start(there, len(there) - 1, WorkloadObserved) : -1]
        # That it ran meanwhile matters: its pods have to be counted again.
        while there and isinstance(last := there[-1], WorkloadObserved):
            if _runs(last.observation) and not _runs(seen):
                break
            there.pop()
        there.append(event)

    def _add(self, workload: WorkloadId, event: WorkloadEvent) -> None:
        there = self._workloads.setdefault(workload, [])
        if isinstance(event, DeviceUseFound):  # the last one alone counts
            there[:] = [one for one in there if not isinstance(one, DeviceUseFound)]
        there.append(event)

    def _end(self, event: WorkloadGone) -> None:
        there = self._workloads.setdefault(event.workload, [])
        if there and isinstance(there[-1], WorkloadGone):
            there.pop()
        # The outcome may be known from the last observation before.
        first = _start(there, len(there), WorkloadObserved)
        if first and isinstance(there[first - 1], WorkloadGone):
            del there[first - 1]
        there.append(event)

    def _known(self, workload: WorkloadId, *sources: str) -> None:
        """An event of a workload came after these lists, which say nothing about it any more."""
        for source in sources:
            if (present := self._listed[source]) is not None:
                present.add(workload)

    def _list(self, event: Listed) -> None:
        """Nothing of that kind exists, but for what is listed."""
        if event.workloads is None:
            self._listed.setdefault(event.source, None)
            return
        gone = [id for id, kind in self._kinds.items() if kind == event.source and id not in event.workloads]
        for workload in gone:
            if self._first and isinstance(self._workloads[workload][-1], WorkloadGone):
                del self._workloads[workload], self._kinds[workload]
            else:
                self._end(WorkloadGone(workload))
        self._listed[event.source] = set(event.workloads)

    # --- pods, policy and context

    def _pod(self, event: PodObserved | PodGone) -> None:
        if isinstance(event, PodObserved):
            self._pods[event.pod.uid] = event
        elif self._first:
            self._pods.pop(event.uid, None)
        else:
            self._pods[event.uid] = event

    def _rule(self, event: Rules) -> None:
        match event:
            case PolicyObserved(key) | PolicyGone(key):
                self._rules.pop((PolicyInvalid, key), None)
                self._rules[key] = event
            case PolicyInvalid(key):  # the valid one before stays in force
                self._rules[PolicyInvalid, key] = event
            case ContextObserved(value):
                self._rules.pop((ContextGone, type(value), value.name), None)
                self._rules[type(value), value.name] = event
            case ContextGone(kind, name) if kind is Gate:  # that there was one is remembered
                self._rules[ContextGone, kind, name] = event
            case ContextGone(kind, name) if self._first:
                self._rules.pop((kind, name), None)
            case ContextGone(kind, name):
                self._rules[kind, name] = event
            case _:
                self._rules[ConfigurationObserved] = event


def _start(there: list[WorkloadEvent], end: int, kind: type[WorkloadEvent]) -> int:
    """Return where the events of `kind` begin that are together before `end`."""
    while end and isinstance(there[end - 1], kind):
        end -= 1
    return end


def _runs(seen: Observation) -> bool:
    return not seen.suspended and seen.finished is None
