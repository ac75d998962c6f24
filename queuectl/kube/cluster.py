"""The writes that committed decisions require, and the consistent reads that find out their outcome."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Set
from typing import Any, Final

from queuectl.core.decisions import ChildToCheck, PodOwnerToRead, PodsToCount
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    PodOwnerRead,
    PodsCounted,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.workload import Effect, ObjectRef
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kinds import patches
from queuectl.kinds.admission import rfc3339
from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.labels import OWN, QueueLabels, queued_by
from queuectl.kinds.workloads import finished, observe
from queuectl.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from queuectl.kube.group_writes import (
    CONDITION_TRIES,
    GroupWrites,
    Settled,
    delete_pod,
    done,
    gone,
    mark_pod,
)
from queuectl.kube.liveness import Liveness
from queuectl.kube.objects import child_row, object_path, read_child, read_object, read_owned
from queuectl.kube.session import JSON_PATCH, Object, Session, api_path
from queuectl.kube.statuses import QueueStatuses, status_path
from queuectl.ports.cluster import ClusterUnavailable, Notice, WriteDenied

log = logging.getLogger(__name__)

_STOP_WRITES: Final = 4
"""Requests of one try to stop an object: enough for one that changes once meanwhile."""
SILENT_SECONDS: Final = 600.0
"""Far longer than any request takes: a controller silent for so long is not there."""
UNHEARD_SECONDS: Final = 3.0
"""Where the controller of this kind has not said anything about any object yet."""


class KubeCluster:
    """Kubernetes through one session. Every call may be repeated and raises only ClusterUnavailable."""

    def __init__(
        self,
        session: Session,
        kinds: KindRegistry,
        *,
        honoured: QueueLabels = OWN,
        statuses: QueueStatuses | None = None,
        heard: set[str] | None = None,
    ) -> None:
        """`heard`: kinds with a controller, as it has said of an object whether that is suspended; added here
        and by `sources`."""
        self._session = session
        self._kinds = kinds
        self._liveness = Liveness(session, kinds)
        self._honoured = honoured
        self._now = session.server_time
        self._groups = GroupWrites(session, kinds, self._now)
        self._statuses = statuses or QueueStatuses()
        self._heard = set[str]() if heard is None else heard
        self._in_two: set[str] = set()
        """Kinds whose controller has refused scheduling fields in the patch that starts: Trainer 2.2.0."""

    # --- workloads ------------------------------------------------------------------------------------

    async def start(self, effect: Effect) -> Settled:
        """Start it with one patch, unless it is known to have been started."""
        kind, ref = self._kinds[effect.workload.ref.kind], effect.workload.ref
        if kind.composed_of:
            with _repeatable():
                return await self._groups.start(kind, effect)
        seen = effect.observation
        if seen.admission and seen.admission.is_same(effect.attempt) and not seen.suspended:
            return done(effect, seen.generation)
        if kind.start_time_binds and seen.started_at is not None:
            await self._forget_start_time(kind, ref)
        try:
            return done(effect, _generation(self._hear(kind, await self._start(kind, effect))))
        except NotFound:
            return gone(effect)
        except (Invalid, Conflict) as refusal:
            return await self._refused(kind, effect, refusal)
        except TooManyRequests:
            raise
        except Unavailable as doubt:
            return await self._doubted(kind, effect, doubt)
        except Forbidden as refusal:
            raise WriteDenied(str(refusal)) from refusal
        except ApiError as error:
            raise _again(error) from error

    async def _start(self, kind: JobKind, effect: Effect) -> Object:
        """The object as started. Where its controller refuses to be told in one patch, by two of them."""
        path, body = object_path(kind, effect.workload.ref), patches.start(kind, effect)
        if kind.name not in self._in_two:
            try:
                return await self._session.patch(path, body, content_type=JSON_PATCH)
            except Forbidden:
                if child_row(self._kinds, kind) is None:
                    raise
        steered = await self._session.patch(path, body[:-1], content_type=JSON_PATCH)
        self._in_two.add(kind.name)
        body = patches.resume(kind, effect, _generation(steered))
        return await self._session.patch(path, body, content_type=JSON_PATCH)

    async def withdraw(self, effect: Effect) -> Settled:
        """Record on its object that the start is given up, unless it has been started by now."""
        kind, ref = self._kinds[effect.workload.ref.kind], effect.workload.ref
        with _repeatable():
            if kind.composed_of:
                return await self._groups.withdraw(kind, effect)
            obj = await self._read(kind, ref)
            if obj is None:
                return gone(effect)
            if self._started(kind, effect, obj):
                return done(effect, _generation(obj))
            if (record := patches.held_back(kind, effect, obj)) is not None:
                try:
                    path = object_path(kind, ref)
                    obj = await self._session.patch(path, record.body, content_type=JSON_PATCH)
                except Forbidden:
                    pass  # so is the start that it would keep back
                except Invalid as refusal:
                    if await self._read(kind, ref) != obj:
                        raise _again(refusal) from refusal
                    # Every change of it is invalid, and so is that start.
        event = observe(kind, obj, self._honoured, await self._child(kind, obj), owners=self._kinds)
        return EffectSettled(effect.key, Result.DENIED), event

    async def stop(self, effect: Effect) -> Settled:
        """Suspend it with one patch, or let it fail first, unless it has finished or a later attempt runs.

        Where its status is older than the patch, another one asks its controller to say that it has seen it.
        """
        kind, ref = self._kinds[effect.workload.ref.kind], effect.workload.ref
        if kind.composed_of:
            with _repeatable():
                return await self._groups.stop(kind, effect)
        if effect.observation.finished:
            return done(effect, effect.observation.generation)
        if kind.scheduling_gate:
            return await self._delete(kind, effect)
        write, obj = patches.first_stop(kind, effect), None
        with _repeatable():
            for _ in range(_STOP_WRITES):
                obj, doubt = await self._stop_written(kind, effect, write, obj)
                if obj is None:
                    return gone(effect)
                write = patches.next_stop(kind, effect, obj)
                if write is None and patches.is_to_fail(kind, effect, obj):
                    raise ClusterUnavailable("it has not failed by its deadline yet")
                if write is None:
                    return self._stopped(kind, effect, obj)
                if doubt is not None:
                    raise _again(doubt) from doubt
        raise ClusterUnavailable(f"{'/'.join(ref[:3])} changes faster than it can be stopped")

    async def _stop_written(
        self, kind: JobKind, effect: Effect, write: patches.Write | None, obj: Object | None
    ) -> tuple[Object | None, ApiError | None]:
        """As `_written`. What is over needs no write: one that is denied must not hold its quota."""
        try:
            with _record_denied(effect, write, obj):
                return await self._written(kind, effect.workload.ref, write)
        except Forbidden:
            obj = await self._read(kind, effect.workload.ref)
            if obj is not None and not finished(kind, obj):
                raise
            return obj, None

    def _stopped(self, kind: JobKind, effect: Effect, obj: Object) -> Settled:
        """With the object if it is over: the watch may say only later that it does not run."""
        event = observe(kind, obj, self._honoured, owners=self._kinds) if finished(kind, obj) else None
        return EffectSettled(effect.key, Result.DONE, _generation(obj)), event

    async def _delete(self, kind: JobKind, effect: Effect) -> Settled:
        """Delete a pod, after the condition that says why. A pod that its gate holds back stays."""
        ref = effect.workload.ref
        with _repeatable():
            for tried in range(_STOP_WRITES):
                obj = await self._read(kind, ref)
                if obj is None:
                    return gone(effect)
                if not patches.deletes(kind, effect, obj):
                    record = patches.held_back(kind, effect, obj)
                    if record is None:
                        return self._stopped(kind, effect, obj)
                    with _record_denied(effect, record, obj):
                        _, doubt = await self._written(kind, ref, record)
                    if doubt is not None:
                        raise _again(doubt) from doubt
                    continue
                condition = patches.disruption(effect, obj, self._now())
                if condition and tried < CONDITION_TRIES:
                    await mark_pod(self._session, ref, condition)
                    continue
                await delete_pod(self._session, ref)
        raise ClusterUnavailable(f"{'/'.join(ref[:3])} is not deleted")

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        still: float = 0.0,
        unreachable: Set[str] = frozenset(),
    ) -> bool:
        """By consistent reads: may the object make pods, or is one of its pods alive?

        A suspended object may make pods until its controller says that it has seen the suspension, unless
        that controller has been silent for so long that it is not there. A pod that is being deleted
        on an unreachable node does not count (M13).
        """
        kind = self._kinds[ref.kind]
        with _repeatable():
            obj = await self._read(kind, ref)
            silent = still >= (SILENT_SECONDS if kind.name in self._heard else UNHEARD_SECONDS)
            if obj is not None and await self._liveness.may_make_pods(
                kind, obj, still=still, silent=silent, counts_deleted=not unreachable
            ):
                return True
            alive = await self._liveness.pods_alive(kind, ref, obj, unreachable) > 0
            if silent and not alive:
                text = "%s has no pods after %.0f s: its controller is not waited for any longer"
                log.warning(text, "/".join(ref[:3]), still)
            return alive

    async def count_fewer(self, count: PodsToCount, unreachable: Set[str] = frozenset()) -> list[Event]:
        """Count the pods of an object that runs, then write into its admission how many it allows now (L15).

        The events of the end of the count, the object as it is first; empty: too many pods are alive still.
        """
        kind, ref, at_most = self._kinds[count.ref.kind], count.ref, count.at_most or 0
        with _repeatable():
            obj = await self._read(kind, ref)
            for _ in range(_STOP_WRITES):
                child = await self._child(kind, obj) if obj is not None else None
                seen = observe(kind, obj, self._honoured, child, owners=self._kinds) if obj else None
                events: list[Event] = [seen] if seen is not None else []
                edited = seen is not None and seen.observation.generation != count.generation
                if (
                    not edited
                    and await self._liveness.pods_alive(kind, ref, obj, unreachable, at_most) > at_most
                ):
                    return []
                patch = patches.reduce_admission(seen, obj) if seen and obj and not edited else []
                if not patch:
                    return [
                        *events,
                        PodsCounted(count.workload, count.attempt, alive=edited, at_most=at_most),
                    ]
                obj, doubt = await self._written(kind, ref, patches.Write(patch))
                if doubt is not None:
                    raise _again(doubt) from doubt
        raise ClusterUnavailable(f"{'/'.join(ref[:3])} changes faster than its pods can be counted")

    async def check(self, child: ChildToCheck | PodOwnerToRead) -> list[Event]:
        """By consistent reads: the family of a child, and the next object above it that has a queue label; or
        whether a workload is above the controller of a pod."""
        with _repeatable():
            if isinstance(child, PodOwnerToRead):
                belongs = await self._liveness.is_above(self._kinds[child.ref.kind], child.ref, child.owner)
                return [PodOwnerRead(child.workload, child.owner.uid, belongs)]
            return await read_owned(self._session, self._kinds, self._honoured, child)

    async def _refused(self, kind: JobKind, effect: Effect, refusal: ApiError) -> Settled:
        """A refused patch changed nothing: read the object again to find out why."""
        obj = await self._reread(kind, effect.workload.ref, refusal)
        if obj is None:
            return gone(effect)
        if self._started(kind, effect, obj):
            return done(effect, _generation(obj))
        child = await self._child(kind, obj)
        event = observe(kind, obj, self._honoured, child, owners=self._kinds)
        if event is None:
            settled = EffectSettled(effect.key, Result.REFUSED)
            return settled, WorkloadGone(effect.workload.id)
        same_spec = event.observation.generation == effect.observation.generation
        if event.workload.queue != effect.workload.queue and same_spec:
            # Else one that is sent late, by a former leader, would start it when its label is back.
            settled, after = await self.withdraw(effect)
            if settled.result is Result.DENIED:
                settled = EffectSettled(effect.key, Result.REFUSED)
            return settled, after
        if not _moved(effect, event):
            if not (kind.start_time_binds and "startTime" in (obj.get("status") or {})):
                raise WriteDenied(str(refusal))
            await self._forget_start_time(kind, effect.workload.ref)
            # Removing the start time was our own write: only the resourceVersion is new.
            return EffectSettled(effect.key, Result.REFUSED), observe(
                kind,
                await self._reread(kind, effect.workload.ref, refusal) or obj,
                self._honoured,
                owners=self._kinds,
            )
        return EffectSettled(effect.key, Result.REFUSED), event

    async def _doubted(self, kind: JobKind, effect: Effect, doubt: ApiError) -> Settled:
        """Find out by a consistent read whether it was started. Raises ClusterUnavailable if it was not."""
        obj = await self._reread(kind, effect.workload.ref, doubt)
        if obj is None:
            return gone(effect)
        if self._started(kind, effect, obj):
            return done(effect, _generation(obj))
        raise _again(doubt) from doubt

    def _started(self, kind: JobKind, effect: Effect, obj: Object) -> bool:
        event = observe(kind, obj, self._honoured, owners=self._kinds)
        if event is None or event.observation.admission is None:
            return False
        ours = event.observation.admission.is_same(effect.attempt)
        return ours and (not event.observation.suspended or event.observation.finished is not None)

    async def _written(
        self, kind: JobKind, ref: ObjectRef, write: patches.Write | None
    ) -> tuple[Object | None, ApiError | None]:
        """The object after `write`, None if it is gone, and the error if it is not known whether it was done.

        Without a write, and where it was refused because the object has changed: the object as it is.
        """
        doubt = None
        if write is not None:
            try:
                path = object_path(kind, ref, write.subresource)
                obj = await self._session.patch(path, write.body, content_type=JSON_PATCH)
                return self._hear(kind, obj), None
            except NotFound:
                return None, None
            except TooManyRequests:
                raise
            except Unavailable as error:
                doubt = error
            except (Invalid, Conflict):
                pass
        return await self._read(kind, ref), doubt

    async def _reread(self, kind: JobKind, ref: ObjectRef, cause: ApiError) -> Object | None:
        try:
            return await self._read(kind, ref)
        except ClusterUnavailable:
            raise
        except ApiError as error:
            raise _again(cause) from error

    async def _child(self, kind: JobKind, obj: Object) -> Object | None:
        """Raises ClusterUnavailable."""
        with _repeatable():
            row = child_row(self._kinds, kind)
            return await read_child(row, self._session, obj) if row else None

    async def _read(self, kind: JobKind, ref: ObjectRef) -> Object | None:
        obj = await read_object(self._session, kind, ref)
        return self._hear(kind, obj) if obj is not None else None

    def _hear(self, kind: JobKind, obj: Object) -> Object:
        if kind.speaks(obj):
            self._heard.add(kind.name)
        return obj

    async def _forget_start_time(self, kind: JobKind, ref: ObjectRef) -> None:
        path = object_path(kind, ref, "status")
        # The object or its start time may be gone: the start finds out.
        with _repeatable(), contextlib.suppress(NotFound, Invalid):
            await self._session.patch(path, patches.forget_start_time(ref), content_type=JSON_PATCH)

    # --- Events and status ------------------------------------------------------------------------------

    async def announce(self, notice: Notice) -> None:
        """Create an Event on the object. No error if it exists already or the namespace is terminating."""
        kind, ref = self._kinds[notice.ref.kind], notice.ref
        with _repeatable():
            kind, ref = await self._told(kind, ref)
        body = patches.event(
            kind,
            ref,
            reason=notice.reason,
            message=notice.message,
            warning=notice.warning,
            key=notice.key or notice.message,
            at=notice.at or self._now(),
        )
        events = api_path("events.k8s.io", "v1", "events", ref.namespace)
        with _repeatable(), contextlib.suppress(Conflict, Forbidden, NotFound):
            await self._session.create(events, body)

    async def _told(self, kind: JobKind, ref: ObjectRef) -> tuple[JobKind, ObjectRef]:
        """What an Event is about: of a group its first pod, where users look for it."""
        obj = await self._read(kind, ref) if kind.composed_of else None
        return (self._kinds[kind.composed_of], obj["unit"].first.ref) if obj else (kind, ref)

    async def publish_local_queue(self, report: LocalQueueReport) -> None:
        path = status_path("LocalQueue", report.name.namespace, report.name.name)
        await self._publish(path, patches.local_queue_status(report))

    async def publish_cluster_queue(self, report: ClusterQueueReport) -> None:
        path = status_path("ClusterQueue", "", report.name)
        await self._publish(path, patches.cluster_queue_status(report))

    async def _publish(self, path: str, status: Object) -> None:
        """Write a status if it differs from the one written last, or if that one was lost.

        A queue that is gone is no error.
        """
        before = self._statuses.written(path)
        stamped = patches.stamped(status, before, rfc3339(self._now()))
        if stamped == before and not self._statuses.is_lost(path):
            return
        try:
            with self._statuses.writing(path, stamped):
                obj = await self._session.patch(path, {"status": stamped})
                self._statuses.wrote(path, stamped, obj.get("status"))
        except NotFound:
            self._statuses.found_none(path)
        except ClusterUnavailable:
            raise
        except ApiError as error:
            raise _again(error) from error


def _generation(obj: Object) -> int | None:
    generation: Any = (obj.get("metadata") or {}).get("generation")
    return generation if isinstance(generation, int) else None


def _moved(effect: Effect, now: WorkloadObserved) -> bool:
    """A value that the patch tests has changed."""
    before = effect.observation
    return (
        now.observation.generation != before.generation
        or (before.annotated and not now.observation.annotated)
        or now.observation.stopped != before.stopped
        or now.workload.queue != effect.workload.queue
        or queued_by(now.workload) != queued_by(effect.workload)
        or (
            patches.tests_resource_version(before)
            and now.observation.resource_version != before.resource_version
        )
    )


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """An error of the API server is no decision about a request: the caller repeats it later."""
    try:
        yield
    except ClusterUnavailable:
        raise
    except ApiError as error:
        raise _again(error) from error


@contextlib.contextmanager
def _record_denied(effect: Effect, write: patches.Write | None, obj: Object | None) -> Iterator[None]:
    """A record that is always denied must not hold quota: the start that it would keep back is denied too."""
    try:
        yield
    except Forbidden as refusal:
        if write is None or not write.only_records or obj is None:
            raise
        raise WriteDenied(str(refusal), done(effect, _generation(obj))[0]) from refusal


def _again(error: ApiError) -> ClusterUnavailable:
    """An error that is no decision about the write: repeat it later."""
    return ClusterUnavailable(str(error), error.retry_after)
