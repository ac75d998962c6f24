"""Changes of one Kubernetes object, with the user's rights: holds, stops of queues, deletions."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from queuectl.core.model.workload import ForcedRelease, WorkloadId
from queuectl.kinds.admission import parse
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, KindRegistry
from queuectl.kinds.json_fields import Json
from queuectl.kinds.labels import may_queue
from queuectl.kinds.owners import controlling
from queuectl.kinds.policy import POLICY_KINDS
from queuectl.kinds.policy_objects import GROUP, MAX_STOP_REASON, VERSION
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    GROUP_LABEL,
    RELEASE_ANNOTATION,
    STOPPED_ANNOTATION,
)
from queuectl.kinds.stop_annotations import recorded_stop, render_release
from queuectl.kinds.workloads import HOLD_ANNOTATION, HOLD_VERB, REASON_ANNOTATION, finished
from queuectl.kube.errors import ApiError, Forbidden, NotFound
from queuectl.kube.reviews import user_name
from queuectl.kube.session import Session, api_path

POLL_SECONDS: Final = 0.5
DRAIN: Final = "HoldAndDrain"
_UNNOTICED: Final = "the controller has not seen it yet"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LISTED: Final = 500
"""Objects to list when looking for names similar to one that does not exist."""
_STOPPABLE: Final = {
    name: kind
    for name, kind in POLICY_KINDS.items()
    if "spec" in kind.model.model_fields
    and "stop_policy" in getattr(kind.model.model_fields["spec"].annotation, "model_fields", {})
}
_NAMES: Final = {
    alias: name
    for name, kind in _STOPPABLE.items()
    for alias in (
        name.lower(),
        kind.plural,
        kind.resource,
        {"ClusterQueue": "cq", "LocalQueue": "lq"}.get(name),
    )
    if alias
}


class BadTarget(ValueError):
    """The kind does not support the change, or the name is not a valid object name."""


class NotQueued(ValueError):
    """The object has no queue label: queuectl does not manage it."""


class NoSuchObject(Exception):
    """There is no policy object of this kind and name. `known`: the names that there are."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        super().__init__(name)
        self.kind = kind
        self.name = name
        self.known = known


class NotStopped(ValueError):
    """It is not being evicted: there is no quota to release by force."""


@dataclass(frozen=True, slots=True)
class EditTarget:
    """One Kubernetes object."""

    kind: str
    namespace: str | None
    name: str
    resource: str
    """As RBAC has it, such as `jobs.batch`."""
    collection: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTarget(EditTarget):
    row: JobKind
    kinds: KindRegistry


@dataclass(frozen=True, slots=True)
class EditedField:
    """One field of an object, before and after."""

    target: EditTarget
    field: str
    before: str | None
    after: str | None
    object: Json
    """The object after the change."""
    reason: str | None = None
    """The reason that was written with it, with its author."""

    @property
    def written(self) -> bool:
        return self.before != self.after or self.reason is not None


def workload(kinds: KindRegistry, kind: str, namespace: str, name: str) -> WorkloadTarget:
    """Raises BadTarget."""
    row = kinds.find(kind)
    if row is None:
        raise BadTarget(f"kind {kind!r} is none of {kinds.known().lower()}")
    if row.composed_of:
        pods = f"pods -n {namespace} -l {GROUP_LABEL}={name}"
        raise BadTarget(
            f"a {row.kind} has no object of its own that can be changed. `queuectl hold pod/NAME` of one of "
            "its pods holds it, `queuectl release` of the same pod ends that; "
            f"`kubectl delete {pods}` cancels it"
        )
    found = _target(row.name, row.resource, (row.group, row.version, row.plural), namespace, name)
    return WorkloadTarget(*astuple(found), row=row, kinds=kinds)


def queue(kind: str, namespace: str, name: str) -> EditTarget:
    """Raises BadTarget."""
    found = _NAMES.get(kind.lower())
    if found is None:
        raise BadTarget(f"kind {kind!r} is none of {', '.join(one.lower() for one in _STOPPABLE)}")
    row = _STOPPABLE[found]
    where = namespace if row.namespaced else None
    return _target(found, row.resource, (GROUP, VERSION, row.plural), where, name)


def budget(name: str) -> EditTarget:
    """Raises BadTarget."""
    row = POLICY_KINDS["Budget"]
    return _target("Budget", row.resource, (GROUP, VERSION, row.plural), None, name)


def _target(
    kind: str, resource: str, collection: tuple[str, str, str], namespace: str | None, name: str
) -> EditTarget:
    for field, text in (("name", name), ("namespace", namespace)):
        # Checked before it becomes part of a path: `..` would lead to another one.
        if text is not None and _NAME.fullmatch(text) is None:
            raise BadTarget(f"{field} {text[:80]!r} is not a name of a Kubernetes object")
    base, path = api_path(*collection, namespace), api_path(*collection, namespace, name)
    return EditTarget(kind, namespace, name, resource, base, path)


async def check_exists(session: Session, kind: str, namespace: str | None, name: str) -> None:
    """Raises NoSuchObject and ApiError. Without the right to read the kind nothing is checked."""
    row = POLICY_KINDS[kind]
    where = namespace if row.namespaced else None
    with contextlib.suppress(NotFound):
        if _NAME.fullmatch(name):
            with contextlib.suppress(Forbidden):
                await session.get(api_path(GROUP, VERSION, row.plural, where, name))
            return
    raise NoSuchObject(kind, name, await names(session, api_path(GROUP, VERSION, row.plural, where)))


async def hold(
    session: Session,
    target: WorkloadTarget,
    held: bool,
    allowed: Callable[[Json], None],
    reason: str | None = None,
) -> EditedField:
    """Set the hold annotation, or remove it. One patch, or none if nothing changes.

    `allowed` gets the object before it is changed, and raises if it must not be. Raises ApiError, and
    NotQueued if a hold would have no effect.
    """
    now = await session.get(target.path)
    if held:
        must_queue_itself(now, target, "a hold would have no effect")
    before = part(now, "metadata", "annotations").get(HOLD_ANNOTATION)
    after = "true" if held else None
    field = f"metadata.annotations[{HOLD_ANNOTATION}]"
    noted = await notes(session, now, HOLD_VERB if held else "release", reason)
    if before == after and not reason:
        return EditedField(target, field, before, after, now)
    if before != after:
        allowed(now)
    # With the UID it fails on another object that has the name meanwhile.
    patch = {"metadata": {"uid": uid(now), "annotations": {HOLD_ANNOTATION: after, **noted}}}
    return EditedField(
        target, field, before, after, await session.patch(target.path, patch), noted.get(REASON_ANNOTATION)
    )


async def force_release(session: Session, target: WorkloadTarget, reason: str) -> tuple[EditedField, int]:
    """Release the quota of its last attempt although pods of it may exist. One patch.

    Returns the attempt too. Raises ApiError, NotQueued, and NotStopped if it runs, or if no attempt of it is
    recorded on the object.
    """
    now = await session.get(target.path)
    must_queue(now, target, "it holds no quota")
    if runs(now, target.row) and not over(now, target.row):
        raise NotStopped(f"{target} runs: `queuectl hold` stops it first")
    annotations, workload = part(now, "metadata", "annotations"), WorkloadId(str(uid(now)))
    stop = recorded_stop(annotations.get(STOPPED_ANNOTATION), workload)
    attempt = stop.attempt if stop is not None and stop.attempt else None
    if attempt is None and (admission := parse(annotations.get(ADMISSION_ANNOTATION), workload)) is not None:
        attempt = admission.attempt.number
    if attempt is None:
        raise NotStopped(f"{target} has no record of an admission: it holds no quota")
    user = await user_name(session)
    if user is None:
        raise NotStopped("the API server does not tell your name (SelfSubjectReview), which is recorded")
    after = render_release(workload, ForcedRelease(attempt, user, reason))
    before = annotations.get(RELEASE_ANNOTATION)
    field = f"metadata.annotations[{RELEASE_ANNOTATION}]"
    if before == after:
        return EditedField(target, field, before, after, now), attempt
    patch = {"metadata": {"uid": workload, "annotations": {RELEASE_ANNOTATION: after}}}
    return EditedField(target, field, before, after, await session.patch(target.path, patch)), attempt


def must_queue_itself(obj: Json, target: WorkloadTarget, effect: str) -> None:
    """As must_queue. Raises NotQueued too for a child: only the topmost object queues (rule K1)."""
    must_queue(obj, target, effect)
    owner = controlling(target.kinds, obj)
    if owner is not None:
        above = f"{owner.kind.name} {target.namespace}/{owner.name}"
        raise NotQueued(f"{target} belongs to {above}, and only its owner queues: {effect}")


def must_queue(obj: Json, target: EditTarget, effect: str) -> None:
    """Raises NotQueued, with `effect`, if the object has no queue label."""
    if not may_queue(obj):
        raise NotQueued(f"{target} has no label {QUEUE_LABEL}: queuectl leaves it alone, and {effect}")


async def notes(session: Session, now: Json, verb: str, reason: str | None) -> dict[str, str | None]:
    """The annotation with the reason of a change and its author; one of an earlier change is removed."""
    if reason:
        user = await user_name(session) or "an unknown user"
        return {REASON_ANNOTATION: f"{verb} by {user}: {reason}"}
    return {REASON_ANNOTATION: None} if REASON_ANNOTATION in part(now, "metadata", "annotations") else {}


async def notes_beside_hold(
    session: Session, now: Json, verb: str, reason: str | None
) -> dict[str, str | None]:
    """As notes, but the reason of a hold that is in force stays, unless there is a new one."""
    held = part(now, "metadata", "annotations").get(HOLD_ANNOTATION) == "true"
    return {} if held and not reason else await notes(session, now, verb, reason)


async def set_stop_policy(
    session: Session, target: EditTarget, policy: str, reason: str | None = None
) -> EditedField:
    """One patch, or none if nothing changes; who waits is told the reason of a stop. Raises ApiError."""
    now = await session.get(target.path)
    before = str(part(now, "spec").get("stopPolicy") or "None")
    noted = await notes(session, now, "resume" if policy == "None" else "stop", reason)
    told = "" if policy == "None" else (noted.get(REASON_ANNOTATION) or "").removeprefix("stop ")
    if before == policy and not reason:
        return EditedField(target, "spec.stopPolicy", before, policy, now)
    metadata = {"uid": uid(now), **({"annotations": noted} if noted else {})}
    spec: dict[str, str | None] = {"stopPolicy": policy}
    if told or "stopReason" in part(now, "spec"):
        spec["stopReason"] = told[:MAX_STOP_REASON] or None
    patch = {"metadata": metadata, "spec": spec}
    changed = await session.patch(target.path, patch)
    return EditedField(target, "spec.stopPolicy", before, policy, changed, noted.get(REASON_ANNOTATION))


async def grant(session: Session, target: EditTarget, given: Json) -> EditedField:
    """Add hours by hand to a Budget. One patch, which fails if it has changed meanwhile. Raises ApiError."""
    now = await session.get(target.path)
    before = part(now, "spec").get("grants") or []
    metadata = {"uid": uid(now), "resourceVersion": part(now, "metadata").get("resourceVersion")}
    changed = await session.patch(target.path, {"metadata": metadata, "spec": {"grants": [*before, given]}})
    count = len(before)
    return EditedField(target, "spec.grants", str(count), str(count + 1), changed, given["reason"])


async def delete(session: Session, target: EditTarget, allowed: Callable[[Json], None]) -> Json:
    """Delete a workload, its pods in the background. Returns the object as it was.

    `allowed` gets the object before, and raises if it must not be deleted. Raises ApiError, and NotQueued.
    """
    now = await session.get(target.path)
    must_queue(now, target, f"so does this command; `kubectl delete {target.resource}` deletes it")
    allowed(now)
    await session.delete(
        target.path,
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid(now)},
        },
    )
    return now


async def names(session: Session, collection: str) -> list[str]:
    """Names of the objects in the collection at this path; empty if the caller may not list them."""
    try:
        found = await session.request("GET", collection, query={"limit": str(_LISTED)})
    except ApiError:
        return []
    return [str(part(item, "metadata").get("name")) for item in found.get("items") or ()]


async def wait(
    session: Session, target: EditTarget, missing: Callable[[Json], str | None], told: Callable[[str], None]
) -> None:
    """Until `missing` returns None for the object; `told` gets each other result. Raises ApiError."""
    while (lacks := missing(await session.get(target.path))) is not None:
        told(lacks)
        await asyncio.sleep(POLL_SECONDS)


def not_stopped(obj: Json, policy: str) -> str | None:
    """The part of a queue's stop that its status does not show yet."""
    active, reason, message = _active(obj)
    if active != "False" or (reason == "Stopped" and policy not in message):
        return _UNNOTICED
    running = counted(obj)[1]
    if policy == DRAIN and running:
        return f"{running} still run or are being evicted"
    return None


def not_resumed(obj: Json) -> str | None:
    """The part of the end of a queue's stop that its status does not show yet."""
    active, reason, _ = _active(obj)
    return _UNNOTICED if active is None or reason == "Stopped" else None


def still_running(obj: Json, row: JobKind) -> str | None:
    """The part of a hold that the object itself does not show yet."""
    if not row.suspended(obj):
        return "it is not suspended yet"
    return "its pods are not gone yet" if row.status(obj).quiet is False else None


def counted(obj: Json) -> tuple[int, int]:
    """Pending and admitted workloads of a queue, by its status."""
    status = part(obj, "status")
    return int(status.get("pendingWorkloads") or 0), int(status.get("admittedWorkloads") or 0)


def over(obj: Json, row: JobKind) -> bool:
    """Whether it has finished or is being deleted."""
    return finished(row, obj) is not None


def runs(obj: Json, row: JobKind) -> bool:
    return not row.suspended(obj)


def uid(obj: Json) -> object:
    return part(obj, "metadata").get("uid")


def _active(obj: Json) -> tuple[str | None, str, str]:
    """Status, reason and message of a queue's condition Active; None and empty if it has none yet."""
    for condition in part(obj, "status").get("conditions") or ():
        if condition.get("type") == "Active":
            return condition.get("status"), condition.get("reason") or "", condition.get("message") or ""
    return None, "", ""


def part(obj: Json, *keys: str) -> Json:
    """The object at a path; empty if it is absent or null."""
    for key in keys:
        obj = obj.get(key) or {}
    return obj
