"""Which workloads have to end before others (V1, V2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from queuectl.core.entries import Entry
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, NamedWorkload
from queuectl.core.model.workload import ObjectRef, WorkloadId, WorkloadOutcome

_MOST_IN_CYCLE: Final = 100
"""Workloads that are looked at for a cycle, whatever tenants write. A longer one is not told of."""
_MUST: Final = {
    AfterOutcome.OK: "it has to succeed first",
    AfterOutcome.ANY: "it has to end first",
    AfterOutcome.FAILED: "it has to fail first",
}


class Dependencies:
    """What waits for workloads by name.

    A name stands for the workload that is not over, else for the one that ended last, by the ledger.
    """

    def __init__(self, entries: Mapping[WorkloadId, Entry], changed: dict[WorkloadId, None]) -> None:
        """`changed`: gets the workloads for which another answer may hold than before."""
        self._entries = entries
        self._changed = changed
        self._names: dict[WorkloadId, NamedWorkload] = {}
        """Of all that are not over."""
        self._named: dict[NamedWorkload, set[WorkloadId]] = {}
        self._waiting: dict[WorkloadId, tuple[NamedWorkload, ...]] = {}
        self._dependents: dict[NamedWorkload, dict[WorkloadId, None]] = {}
        self._outcomes: dict[NamedWorkload, WorkloadOutcome | None] = {}
        """Of names with dependents; None: the ledger has no workload of this name that is over."""
        self._unread: dict[NamedWorkload, None] = {}
        self._in_cycle: set[WorkloadId] = set()

    # --- what happens

    def enter(self, entry: Entry) -> None:
        """The workload is known from now on."""
        name = _name(entry.ref)
        self._names[entry.id] = name
        self._named.setdefault(name, set()).add(entry.id)
        self._outcomes.pop(name, None)
        self._touch(name)

    def drop(self, workload: WorkloadId) -> None:
        """The workload is over."""
        self.leave(workload)
        name = self._names.pop(workload, None)
        if name is not None:
            self._named[name].discard(workload)
            if not self._named[name]:
                del self._named[name]
            self._touch(name)

    def ended(self, ref: ObjectRef, outcome: WorkloadOutcome) -> None:
        """A committed decision says how a workload ended. It is dropped next."""
        if (name := _name(ref)) in self._dependents:
            self._outcomes[name] = outcome

    def read(self, outcomes: Iterable[tuple[NamedWorkload, WorkloadOutcome | None]]) -> None:
        """The ledger was read."""
        for name, outcome in outcomes:
            self._unread.pop(name, None)
            if name in self._dependents:
                self._outcomes.setdefault(name, outcome)
                self._touch(name)

    def unread(self, most: int) -> list[NamedWorkload]:
        return list(islice(self._unread, most))

    def _touch(self, name: NamedWorkload) -> None:
        self._changed.update(self._dependents.get(name, {}))

    # --- what waits

    def leave(self, workload: WorkloadId) -> None:
        """It waits for no other workload."""
        self._set(workload, ())
        self._note_cycle(workload, found=False)

    def waits(self, entry: Entry, after: tuple[AfterWorkload, ...]) -> Reason | None:
        """Return what it waits for: first what can never come, then in the order of its user."""
        namespace = entry.ref.namespace
        names = tuple(NamedWorkload(namespace, one.kind, one.name) for one in after)
        closes = self._waiting.get(entry.id, ()) != names
        self._set(entry.id, names)
        cycle = self._cycle(entry.id) if closes or self._may_be_in_cycle(entry.id) else None
        self._note_cycle(entry.id, found=cycle is not None)
        if cycle is not None:
            path = [str(self._names[one]) for one in cycle]
            detail = f"each of these waits for the next one: {', '.join(path)}"
            return Reason(code=Code.DEPENDENCY_NEVER_SATISFIED, node=path[1], detail=detail)
        found = [reason for one in after if (reason := self._unmet(namespace, one)) is not None]
        never = (one for one in found if one.code is Code.DEPENDENCY_NEVER_SATISFIED)
        return next(never, found[0] if found else None)

    def _set(self, workload: WorkloadId, names: tuple[NamedWorkload, ...]) -> None:
        before = self._waiting.get(workload, ())
        if names == before:
            return
        for name in set(before) - set(names):
            known = self._dependents[name]
            del known[workload]
            if not known:
                del self._dependents[name]
                self._outcomes.pop(name, None)
                self._unread.pop(name, None)
        for name in names:
            self._dependents.setdefault(name, {})[workload] = None
        if names:
            self._waiting[workload] = names
        else:
            del self._waiting[workload]

    def _unmet(self, namespace: str, after: AfterWorkload) -> Reason | None:
        name = NamedWorkload(namespace, after.kind, after.name)
        must = _MUST[after.outcome]
        if name in self._named:
            return Reason(code=Code.WAITING_FOR_DEPENDENCY, node=str(name), detail=must)
        if name not in self._outcomes:
            self._unread[name] = None
            return Reason(code=Code.WAITING_FOR_DEPENDENCY, node=str(name), detail=must)
        outcome = self._outcomes[name]
        if outcome is None:
            detail = f"no workload of this name is known: {must}"
            return Reason(code=Code.WAITING_FOR_DEPENDENCY, node=str(name), detail=detail)
        succeeded = outcome is WorkloadOutcome.SUCCEEDED
        if after.outcome is AfterOutcome.ANY or succeeded is (after.outcome is AfterOutcome.OK):
            return None
        detail = f"its outcome is {outcome}, and {must.replace('it has', 'it had').removesuffix(' first')}"
        return Reason(code=Code.DEPENDENCY_NEVER_SATISFIED, node=str(name), detail=detail)

    # --- cycles

    def _cycle(self, workload: WorkloadId) -> list[WorkloadId] | None:
        """Return workloads that wait for each other, from `workload` to itself; None: it is in no cycle."""
        came_from: dict[WorkloadId, WorkloadId] = {}
        todo = deque([workload])
        while todo and len(came_from) <= _MOST_IN_CYCLE:
            one = todo.popleft()
            for other in self._awaited(one):
                if other == workload:
                    path = [workload, one]
                    while path[-1] != workload:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                if other not in came_from:
                    came_from[other] = one
                    todo.append(other)
        return None

    def _may_be_in_cycle(self, workload: WorkloadId) -> bool:
        """Return whether it was in one, or waits for one that is. The last workload of a cycle that begins to
        wait closes it, and finds it then."""
        return workload in self._in_cycle or any(one in self._in_cycle for one in self._awaited(workload))

    def _awaited(self, workload: WorkloadId) -> Iterator[WorkloadId]:
        """Yield the workloads that are waited for, as far as they have not started."""
        for name in self._waiting.get(workload, ()):
            yield from sorted(self._named.get(name, ()))

    def _note_cycle(self, workload: WorkloadId, *, found: bool) -> None:
        if found is (workload in self._in_cycle):
            return
        (self._in_cycle.add if found else self._in_cycle.remove)(workload)
        if (name := self._names.get(workload)) is not None:
            self._touch(name)


def _name(ref: ObjectRef) -> NamedWorkload:
    return NamedWorkload(ref.namespace, ref.kind, ref.name)
