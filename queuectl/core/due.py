"""What lifecycle decides next about each workload, in the order in which plans take it (C10)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from queuectl.core.decisions import Amend, Enqueue
from queuectl.core.entries import Entry
from queuectl.core.lifecycle import Step
from queuectl.core.model.workload import WorkloadId


class DueSteps:
    """The steps that are due, in two classes.

    Requests are what users ask for: a workload is to be queued, or its priority to be changed. They are taken
    in turn by namespace. All other steps change what is in use or find it out, and come first.
    """

    def __init__(self) -> None:
        self._steps: dict[WorkloadId, tuple[Entry, Step]] = {}
        self.urgent: dict[WorkloadId, tuple[Entry, Step]] = {}
        self._requests: dict[str, dict[WorkloadId, tuple[Entry, Step]]] = {}
        """By namespace; the one that had its turn last comes last."""

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[WorkloadId]:
        return iter(self._steps)

    def get(self, workload: WorkloadId) -> Step | None:
        found = self._steps.get(workload)
        return None if found is None else found[1]

    @property
    def requested(self) -> int:
        """Number of requests."""
        return len(self._steps) - len(self.urgent)

    def set(self, entry: Entry, step: Step | None) -> None:
        """`step` is due for `entry` from now on, and nothing else; None: nothing is."""
        # A workload that runs already is charged as soon as possible.
        requested = isinstance(step, Amend) or (isinstance(step, Enqueue) and not runs_unasked(entry))
        known, namespace = self._steps.get(entry.id), entry.ref.namespace
        if known is not None:
            if known[1] == step and requested == (entry.id not in self.urgent):
                return  # it keeps its place
            del self._steps[entry.id]
            if self.urgent.pop(entry.id, None) is None:
                there = self._requests.pop(namespace)
                del there[entry.id]
                if there:
                    self._requests[namespace] = there  # its turn is over
        if step is None:
            return
        item = self._steps[entry.id] = (entry, step)
        if requested:
            self._requests.setdefault(namespace, {})[entry.id] = item
        else:
            self.urgent[entry.id] = item

    def requests(self, count: int) -> list[tuple[Entry, Step]]:
        """Return up to `count` requests, as many of each namespace as of any other that has so many."""
        if self.requested <= count:
            found = [item for there in self._requests.values() for item in there.values()]
        else:
            found = list(islice(self._in_turn(), count))
        return sorted(found, key=lambda item: item[0].arrival)

    def _in_turn(self) -> Iterator[tuple[Entry, Step]]:
        lines = [iter(there.values()) for there in self._requests.values()]
        while lines:
            left = []
            for line in lines:
                item = next(line, None)
                if item is not None:
                    yield item
                    left.append(line)
            lines = left


def runs_unasked(entry: Entry) -> bool:
    """Return whether `entry` is seen to run without an attempt: it is adopted once it is queued (L4)."""
    seen = entry.observation
    return entry.attempt is None and seen is not None and not seen.suspended and not seen.finished
