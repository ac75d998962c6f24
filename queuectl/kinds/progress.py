"""How far an object is, by signs and numbers of its status: for kinds that are described, not programmed."""

from __future__ import annotations

from dataclasses import dataclass

from queuectl.kinds.jobs import Ending, Sign, Status, conditions, value_at
from queuectl.kinds.json_fields import MAX_COUNT, BadField, Json
from queuectl.kinds.podsets import Templates


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Reads the status of an object of one kind."""

    podsets: Templates
    ends: tuple[Ending, ...]
    gone: tuple[Sign, ...]
    """Of `ends`, those that are shown only once no pod is alive."""
    ready: Sign | None
    """Shown while all pods are ready; None: they are if as many are ready as there are pods."""
    ready_pods: tuple[tuple[str, ...], ...]
    """Paths of numbers of ready pods, which are added."""
    active: tuple[tuple[str, ...], ...]
    """Paths of numbers of pods that are alive."""

    def __call__(self, obj: Json) -> Status:
        found = conditions(obj)
        if any(sign.shows(obj, found) for sign in self.gone):
            return Status(quiet=True)
        # That none is alive may have been written before its start: only the end is a promise.
        quiet = False if _numbers(obj, self.active) else None
        if any(end.sign.shows(obj, found) for end in self.ends):
            return Status(quiet=quiet)
        up = _numbers(obj, self.ready_pods)
        return Status(quiet=quiet, ready=self._ready(obj, found, up), pods_ready=up)

    def _ready(self, obj: Json, found: dict[str, str], up: int | None) -> bool | None:
        if self.ready is not None:
            return self.ready.shows(obj, found)
        if up is None:
            return None
        try:
            return up >= sum(pods.pods for pods in self.podsets.find(obj))
        except BadField:
            return None


def _numbers(obj: Json, paths: tuple[tuple[str, ...], ...]) -> int | None:
    """The sum of the numbers that are there; None if none is."""
    found = [value for path in paths if _is_count(value := value_at(obj, path))]
    return min(sum(found), MAX_COUNT) if found else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
