"""How many workloads of an array queue or run at a time (V4)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import MAX_RUNNING, StartConditions
from queuectl.core.model.workload import WorkloadId

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
