"""Pending workloads that are alike: trials need the first ones of each line, and others once those start.

In an engine, workloads of a queue with the same shape and priority are one group, whose head stands for
all. So the last one that is present of a line stands for those behind it, as long as no plan admits it. Such
a plan is made again with more of them: what is decided is what an engine with all workloads decides. Where
a ResourceQuota has no room for the last one that is present, it has none for those behind it (N6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from queuectl.core.decisions import Admit, Plan
from queuectl.core.model import NO_PAST_ATTEMPTS, Phase, Place, StoredWorkload, WorkloadId
from queuectl.core.queues.pending import is_refusal, queue_place
from queuectl.core.reasons import Family

FIRST: Final = 1
"""How many workloads of each line are present from the start."""
MORE: Final = 16
"""How many follow at a time."""

Line = tuple[StoredWorkload, ...]


class Behind:
    """The workloads that are not present, in order, by the one that stands for them."""

    def __init__(self, lines: dict[WorkloadId, Line]) -> None:
        self._lines = lines

    @property
    def number(self) -> int:
        """How many they are."""
        return sum(map(len, self._lines.values()))

    def copy(self) -> Behind:
        return Behind(dict(self._lines))

    def needed(self, plan: Plan) -> Line:
        """Return those that are needed to make the plan: from now on they are present."""
        found: Line = ()
        for decision in plan.decisions:
            if isinstance(decision, Admit) and decision.attempt.workload in self._lines:
                found += self._next(self._lines.pop(decision.attempt.workload))
        return found

    def _next(self, line: Line) -> Line:
        now, later = line[:MORE], line[MORE:]
        if later:
            self._lines[now[-1].id] = later
        return now

    def take(self, workload: StoredWorkload) -> bool:
        """`workload` is present from now on. Return whether it was not."""
        for last, line in self._lines.items():
            left = tuple(one for one in line if one is not workload)
            if len(left) < len(line):
                self._lines[last] = left
                return True
        return False


def first_ones(workloads: Sequence[StoredWorkload]) -> tuple[Line, Behind]:
    """Return the workloads that are present from the start, in their order, and the others.

    `workloads`: in the order of first sight.
    """
    behind: dict[WorkloadId, Line] = {}
    absent: set[WorkloadId] = set()
    for line in _lines(workloads):
        if any(later.created_at < one.created_at for one, later in pairwise(line)):
            line.sort(key=_place)
        first, others = line[:FIRST], line[FIRST:]
        if not any(map(_refused, first)) and (refused := next(filter(_refused, others), None)) is not None:
            others.remove(refused)  # it is present: its group is judged before the cycles (C12)
        if others:
            behind[first[-1].id] = tuple(others)
            absent.update(one.id for one in others)
    return tuple(one for one in workloads if one.id not in absent), Behind(behind)


def ahead_of(workload: StoredWorkload, others: Iterable[StoredWorkload]) -> int:
    """Return how many come before it in its line, so that each of them starts before it does."""
    near = [one for one in others if one.cluster_queue == workload.cluster_queue]
    line = next((found for found in _lines(near) if workload in found), [])
    place = _place(workload)
    return sum(1 for one in line if _place(one) < place)


def _lines(workloads: Iterable[StoredWorkload]) -> Iterable[list[StoredWorkload]]:
    """Return the pending workloads of each group whose place is all that tells them from each other."""
    lines: defaultdict[Hashable, list[StoredWorkload]] = defaultdict(list)
    numbers: dict[Hashable, int] = {}
    known: dict[int, int] = {}
    """Numbers by identity: these values take long to hash, and most are one object for many workloads."""

    def number(value: Hashable) -> int:
        found = known[id(value)] = numbers.setdefault(value, len(numbers))
        return found

    for one in workloads:
        if not _is_plain(one):
            continue
        ref, pods, options, labels = one.ref, one.pod_sets, one.options, one.labels
        shape = known[id(pods)] if id(pods) in known else number(pods)
        asked = known[id(options)] if id(options) in known else number(options)
        marks = known[id(labels)] if id(labels) in known else number(labels)
        queue = (one.cluster_queue, one.queue, ref.namespace, ref.kind)
        lines[(*queue, one.priority, shape, asked, marks)].append(one)
    return lines.values()


def _place(one: StoredWorkload) -> Place:
    return queue_place(one.priority, one.created_at, one.arrival, one.id)


def joining(line: Iterable[StoredWorkload]) -> Line:
    """Return workloads as they join an engine: it has judged their group, so no earlier refusal counts."""
    return tuple(replace(one, reason=None) for one in line)


def _is_plain(one: StoredWorkload) -> bool:
    """Return whether it waits in a queue, and nothing that happened to it before counts."""
    if one.phase is not Phase.PENDING or one.cluster_queue is None or one.preempted_at:
        return False
    if one.past is not NO_PAST_ATTEMPTS and one.past != NO_PAST_ATTEMPTS:
        return False
    return one.reason is None or one.reason.family is not Family.HELD


def _refused(one: StoredWorkload) -> bool:
    return one.reason is not None and is_refusal(one.reason)
