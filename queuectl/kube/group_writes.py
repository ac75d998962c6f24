"""Start and stop of a pod group: a write for each of its pods, any of which may have been made before.

Each reads the pods first, so that it can be repeated after a failure at any point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from queuectl.core.model.events import EffectSettled, Result, WorkloadGone, WorkloadObserved
from queuectl.core.model.workload import Effect, ObjectRef, WorkloadId, names_claim
from queuectl.kinds import patches
from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.pod_group import Unit
from queuectl.kinds.pod_group_members import Member, version_of
from queuectl.kinds.podsets import Operation
from queuectl.kinds.reserved_keys import STOPPED_ANNOTATION
from queuectl.kinds.single_pod import POD
from queuectl.kinds.stop_annotations import recorded_stop
from queuectl.kinds.workloads import observation, observe
from queuectl.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from queuectl.kube.objects import object_path, read_units
from queuectl.kube.session import JSON_PATCH, Object, Session
from queuectl.ports.cluster import ClusterUnavailable, WriteDenied

AT_ONCE: Final = 16
"""Writes of one group."""
_TRIES: Final = 4
"""Reads of one start or stop: enough for pods that change meanwhile."""
CONDITION_TRIES: Final = 2
"""Of the condition on pods that are deleted: they may change once meanwhile."""

_T = TypeVar("_T")
Settled = tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]


class GroupWrites:
    """Every method raises ApiError, WriteDenied and ClusterUnavailable."""

    def __init__(self, session: Session, kinds: KindRegistry, now: Callable[[], datetime]) -> None:
        self._session = session
        self._kinds = kinds
        self._now = now

    async def start(self, kind: JobKind, effect: Effect) -> Settled:
        """Let past their gate as many pods of each podset as the attempt has quota for, and no more.

        None, unless all are there as they were charged. Where some have been let past it, others may be
        missing: their quota is held, and a pod that takes their place is started by another call.
        """
        pod_sets = effect.attempt.assignment.pod_sets
        quota = {one.name: one.count for one in pod_sets if not names_claim(one.name)}
        unit, version, invalid = None, 0, dict[tuple[str, int], Invalid]()
        for _ in range(_TRIES):
            found, unit, obj = await self._read(kind, effect)
            if unit is None:
                return gone(effect)
            if _is_another(kind, effect, unit, obj):
                return EffectSettled(effect.key, Result.REFUSED), observe(kind, obj, owners=self._kinds)
            room = unit.room(quota)
            due = [one for one in unit.held if _takes(room, one.pod_set)]
            version = max(version, obj["metadata"]["generation"])
            if not due:
                if unit.started and not unit.active:  # a start that is late must not reach those that wait
                    await self._record(_records(effect, found), set())
                return done(effect, version)
            # Refused, and not changed since: it would be refused again.
            denied: ApiError | None = next(
                (invalid[one.uid, one.version] for one in due if (one.uid, one.version) in invalid), None
            )
            started: list[int] = []
            if denied is None:
                started, denied = await self._start(effect, unit, due, invalid)
                version = max(version, *started, 0)
            if denied is not None:
                # Those that run hold the quota of all: the others are tried again when one of them changes.
                some = started or unit.started
                raise WriteDenied(str(denied), done(effect, version)[0] if some else None)
        if unit is not None and not unit.started:
            raise ClusterUnavailable(f"{effect.workload.ref} changes faster than it can be started")
        return done(effect, version)

    async def _start(
        self, effect: Effect, unit: Unit, due: Sequence[Member], invalid: dict[tuple[str, int], Invalid]
    ) -> tuple[list[int], Forbidden | None]:
        """The resourceVersions of those that it has started, and why another one was denied. `invalid`: gets
        those that have changed, or would not be valid, by UID and resourceVersion."""
        admission = unit.admission
        shapes = admission.shapes if admission else unit.shapes
        if admission is not None:
            effect = replace(effect, attempt=admission.attempt)
        started: list[int] = []
        denied: list[Forbidden] = []

        async def start(one: Member) -> None:
            own = (one.shape, *(shape for shape in shapes if shape != one.shape))
            body = patches.start(POD, _of(effect, one), one.pod_set, own, one.constraints)
            try:
                # One that is gone is missing; one that has changed is read again.
                with suppress(NotFound, Conflict):
                    obj = await self._session.patch(object_path(POD, one.ref), body, content_type=JSON_PATCH)
                    started.append(version_of(obj))
            except Invalid as refusal:
                invalid[one.uid, one.version] = refusal
            except Forbidden as refusal:
                denied.append(refusal)

        await _each(start, due)
        return started, next(iter(denied), None)

    async def withdraw(self, kind: JobKind, effect: Effect) -> Settled:
        """Record on its pods that the start is given up, unless one of them has been started by now."""
        invalid = set[tuple[str, int]]()
        for _ in range(_TRIES):
            found, unit, obj = await self._read(kind, effect)
            if unit is None:
                return gone(effect)
            if unit.started:
                return done(effect, obj["metadata"]["generation"])
            records = [one for one in _records(effect, found) if (one[0].uid, one[0].version) not in invalid]
            if not records or await self._record(records, invalid) is not None:
                return EffectSettled(effect.key, Result.DENIED), observe(kind, obj, owners=self._kinds)
        raise ClusterUnavailable(f"{effect.workload.ref} changes faster than its start is given up")

    async def stop(self, kind: JobKind, effect: Effect) -> Settled:
        """Delete the pods that run, after the condition that says why; record the stop on those that wait, so
        that a start which arrives later is refused.

        Where none of its pods runs or ends, the group as it is after the stop is returned too: they may not
        change any more, and this read has a later version than the last watch event about them.
        """
        for tried in range(_TRIES):
            found, unit, obj = await self._read(kind, effect)
            running = [one for one in unit.started if _is_to_stop(effect, one)] if unit else []
            records = _records(effect, found)
            if not running and not records:
                if unit is None:
                    return gone(effect)
                ends = any(one.alive for one in unit.started)
                seen = None if ends else observe(kind, obj, owners=self._kinds)
                return EffectSettled(effect.key, Result.DONE, obj["metadata"]["generation"]), seen
            denied = await self._record(records, set())
            if denied is not None and not running:
                raise WriteDenied(str(denied), (done(effect, 0) if unit else gone(effect))[0]) from denied
            if tried < CONDITION_TRIES:
                await _each(lambda one: self._mark(effect, one), running)
            await _each(lambda one: delete_pod(self._session, one.ref), running)
        raise ClusterUnavailable(f"{effect.workload.ref} changes faster than it can be stopped")

    async def _record(
        self, records: Iterable[tuple[Member, patches.Write]], invalid: set[tuple[str, int]]
    ) -> Forbidden | None:
        """Why one was denied. `invalid`: gets those that have changed, or would not be valid, by UID and
        resourceVersion."""
        denied: list[Forbidden] = []

        async def record(entry: tuple[Member, patches.Write]) -> None:
            one, write = entry
            try:
                with suppress(NotFound, Conflict):
                    await self._session.patch(object_path(POD, one.ref), write.body, content_type=JSON_PATCH)
            except Invalid:
                invalid.add((one.uid, one.version))
            except Forbidden as refusal:
                denied.append(refusal)

        await _each(record, list(records))
        return next(iter(denied), None)

    async def _mark(self, effect: Effect, one: Member) -> None:
        if condition := patches.disruption(_of(effect, one), one.obj, self._now()):
            await mark_pod(self._session, one.ref, condition)

    async def _read(
        self, kind: JobKind, effect: Effect
    ) -> tuple[Sequence[tuple[Unit, Object]], Unit | None, Object]:
        """The units of its group, and its own with its object; None: it has none."""
        found = await read_units(self._session, kind, effect.workload.ref)
        return found, *next((entry for entry in found if entry[0].id == effect.key.workload), (None, {}))


def _is_another(kind: JobKind, effect: Effect, unit: Unit, obj: Object) -> bool:
    """Whether the pods are not those that were charged, or this attempt of them was stopped before."""
    if unit.started:
        return unit.admission is None or not unit.admission.attempt.is_same(effect.attempt)
    seen = observe(kind, obj)
    if seen is None or seen.workload.problem is not None:
        return True
    now, charged = seen.workload, effect.workload
    if (now.pod_sets, now.queue) != (charged.pod_sets, charged.queue):
        return True
    return any(_stopped_in(one, effect.key.workload) >= effect.key.attempt for one in unit.held)


def _stopped_in(one: Member, workload: WorkloadId) -> int:
    annotations = one.obj["metadata"].get("annotations") or {}
    stop = recorded_stop(annotations.get(STOPPED_ANNOTATION), workload)
    return stop.attempt if stop is not None else 0


def _takes(room: dict[str, int], pod_set: str) -> bool:
    room[pod_set] = room.get(pod_set, 0) - 1
    return room[pod_set] >= 0


def _records(effect: Effect, found: Iterable[tuple[Unit, Object]]) -> list[tuple[Member, patches.Write]]:
    """What records the stop on the pods that wait."""
    held = (one for unit, _ in found for one in unit.held)
    writes = ((one, patches.held_back(POD, _of(effect, one), one.obj)) for one in held)
    return [(one, write) for one, write in writes if write is not None]


def _is_to_stop(effect: Effect, one: Member) -> bool:
    return one.active and not patches.superseded(effect, one.admission.attempt if one.admission else None)


def _of(effect: Effect, one: Member) -> Effect:
    """The effect as that of a pod alone."""
    workload = replace(effect.workload, ref=one.ref)
    return replace(effect, workload=workload, observation=observation(POD, one.obj))


async def _each(write: Callable[[_T], Awaitable[None]], items: Sequence[_T]) -> None:
    """All of them are tried. Raises the first error of one."""
    for first in range(0, len(items), AT_ONCE):
        some = items[first : first + AT_ONCE]
        results = await asyncio.gather(*(write(one) for one in some), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


async def mark_pod(session: Session, ref: ObjectRef, condition: list[Operation]) -> None:
    """Write the condition that says why it is deleted. What refuses it for good must not keep it running."""
    with suppress(NotFound, Conflict, Invalid, Forbidden):
        await session.patch(object_path(POD, ref, "status"), condition, content_type=JSON_PATCH)


async def delete_pod(session: Session, ref: ObjectRef) -> None:
    with suppress(NotFound, Conflict):  # gone, or another pod has its name
        await session.delete(object_path(POD, ref), {"preconditions": {"uid": ref.uid}})


def done(effect: Effect, generation: int | None) -> Settled:
    return EffectSettled(effect.key, Result.DONE, generation), None


def gone(effect: Effect) -> Settled:
    return EffectSettled(effect.key, Result.GONE), WorkloadGone(effect.key.workload)
