"""Which workloads have to end before others (V1, V2), and which of an array may run at a time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import (
    MAX_RUNNING,
    AfterOutcome,
    AfterWorkload,
    NamedWorkload,
    StartConditions,
)
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


_Item = tuple[int, int, WorkloadId]
"""Sort key: priority, arrival, identity."""


class _ArrayName(NamedTuple):
    namespace: str
    name: str


class _Array:
    def __init__(self) -> None:
        self.holders: set[WorkloadId] = set()
        self.line: list[_Item] = []
        """Those that wait for nothing else, in order."""
        self.most: dict[WorkloadId, int] = {}
        """As each says."""
        self._said: Counter[int] = Counter()
        """How many say so: at most `MOST_RUNNING` numbers, however many workloads there are."""
        self.let: frozenset[WorkloadId] = frozenset()
        """Those of the line that may queue."""

    @property
    def least(self) -> int:
        return min(self._said, default=0)

    def say(self, workload: WorkloadId, most: int | None) -> None:
        """None: it says nothing any more."""
        if (before := self.most.pop(workload, None)) is not None:
            self._said[before] -= 1
            if not self._said[before]:
                del self._said[before]
        if most is not None:
            self.most[workload] = most
            self._said[most] += 1

    def first(self) -> frozenset[WorkloadId]:
        """Return those of the line that may queue: the least of what its workloads say counts."""
        left = max(0, self.least - len(self.holders))
        return frozenset(item[-1] for item in self.line[:left])


class RunningArrays:
    def __init__(self, changed: dict[WorkloadId, None]) -> None:
        """`changed`: gets the workloads for which another answer holds than before."""
        self._changed = changed
        self._arrays: dict[_ArrayName, _Array] = {}
        self._items: dict[WorkloadId, tuple[_ArrayName, _Item | None]] = {}
        """None: it holds quota."""

    def hold(self, entry: Entry, conditions: StartConditions | None) -> None:
        """The workload holds quota."""
        if conditions is None or conditions.array is None or conditions.max_running is None:
            self.leave(entry.id)
        else:
            self._put(entry, conditions.array, conditions.max_running, None)

    def waits(self, entry: Entry, conditions: StartConditions) -> Reason | None:
        """Return why it may not queue yet."""
        name, most = conditions.array, conditions.max_running
        if name is None or most is None:
            self.leave(entry.id)
            return None
        array = self._put(entry, name, most, (-entry.priority, entry.arrival, entry.id))
        self._changed.pop(entry.id, None)
        if entry.id in array.let:
            return None
        detail = f"{MAX_RUNNING} lets {array.least} of its workloads queue or run at a time"
        return Reason(code=Code.WAITING_FOR_ARRAY, node=f"Array/{name}", detail=detail)

    def _put(self, entry: Entry, name: str, most: int, item: _Item | None) -> _Array:
        key = _ArrayName(entry.ref.namespace, name)
        array, known = self._arrays.get(key), self._items.get(entry.id)
        if array is not None and known == (key, item) and array.most[entry.id] == most:
            return array
        if known is not None and known[0] != key:
            self.leave(entry.id)
        self._take_out(entry.id)
        array = self._arrays.setdefault(key, _Array())
        self._items[entry.id] = key, item
        array.say(entry.id, most)
        if item is None:
            array.holders.add(entry.id)
        else:
            insort(array.line, item)
        self._renew(array)
        return array

    def leave(self, workload: WorkloadId) -> None:
        """It neither waits for its array alone, nor holds quota."""
        if (key := self._take_out(workload)) is not None:
            array = self._arrays[key]
            if array.most:
                self._renew(array)
            else:
                del self._arrays[key]

    def _take_out(self, workload: WorkloadId) -> _ArrayName | None:
        key, item = self._items.pop(workload, (None, None))
        if key is None:
            return None
        array = self._arrays[key]
        array.holders.discard(workload)
        array.say(workload, None)
        if item is not None:
            del array.line[bisect_left(array.line, item)]
        return key

    def _renew(self, array: _Array) -> None:
        before, array.let = array.let, array.first()
        self._changed.update(dict.fromkeys(sorted(before ^ array.let)))
