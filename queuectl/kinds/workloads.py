"""From a job's object, as raw JSON, to the workload and observation of the core.

Never raises: a malformed field of a labelled object becomes the workload's `problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from queuectl.core.events import WorkloadObserved
from queuectl.core.model import ObjectRef, Observation, Outcome, PodSet, Workload, WorkloadId
from queuectl.core.reasons import Code, Reason
from queuectl.kinds.admission import Admission, parse
from queuectl.kinds.fields import (
    MAX_COUNT,
    BadField,
    Json,
    clean,
    mapping,
    shown,
    text,
    timestamp,
)
from queuectl.kinds.jobs import JobKind, Pods, run_times
from queuectl.kinds.labels import KUEUES_TOO, MAX_RUN_LABEL, OWN, QueueLabels, first
from queuectl.kinds.node_constraints import read_constraints, required_affinity
from queuectl.kinds.requests import RequestProblem, not_charged, pod_requests
from queuectl.kinds.written import ADMISSION_ANNOTATION, BYPASS_ANNOTATION, SUBMITTER_ANNOTATION

HOLD_ANNOTATION: Final = "queuectl.dev/hold"
REASON_ANNOTATION: Final = "queuectl.dev/reason"
"""Why a hold or a stop was set or ended, as `VERB by USER: TEXT`; not checked by any policy."""
HOLD_VERB: Final = "hold"
MAX_REASON: Final = 500
"""Characters of it that are read."""

MAX_NAME: Final = 253
MAX_LABELS: Final = 64
"""Labels stored per workload: those that queue it, then the first ones by name."""
MAX_ANNOTATIONS: Final = (256 - 8) * 1024
"""Bytes of other annotations: the API server allows 256 KiB in all, and a start adds one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def observe(kind: JobKind, obj: Json, honoured: QueueLabels = OWN) -> WorkloadObserved | None:
    """The workload of the object `obj` of `kind`; None without a queue label or an identity."""
    try:
        metadata = mapping(obj, "metadata", "")
        labels = mapping(metadata, "labels", "metadata")
        annotations = mapping(metadata, "annotations", "metadata")
    except BadField:
        return None
    names = [_short(metadata.get(key), MAX_NAME) for key in ("namespace", "name", "uid")]
    queue = _short(first(honoured.queue, labels), MAX_NAME)
    if queue is None or None in names:
        return None
    namespace, name, uid = (str(part) for part in names)
    admission = parse(annotations.get(ADMISSION_ANNOTATION), WorkloadId(uid))
    pod_sets, problem = _pod_sets(kind, obj, admission, honoured)
    problem = problem or _full(annotations)
    created, problem = _created(metadata, problem)
    max_run, problem = _max_run(labels, problem)
    return WorkloadObserved(
        Workload(
            id=WorkloadId(uid),
            ref=ObjectRef(namespace, kind.name, name, uid),
            queue=queue,
            created_at=created,
            pod_sets=pod_sets,
            priority_class=_short(first(honoured.priority, labels), MAX_NAME) or None,
            submitter=_short(annotations.get(SUBMITTER_ANNOTATION), MAX_NAME) or None,
            labels=tuple(_labels(labels)),
            hold=annotations.get(HOLD_ANNOTATION) == "true",
            hold_reason=_hold_reason(annotations),
            max_run_seconds=max_run,
            problem=problem,
        ),
        _observation(kind, obj, admission),
    )


def identity(obj: Json) -> tuple[str, str]:
    """UID and resourceVersion of an object, empty if missing."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "", ""
    return str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")


def finished(kind: JobKind, obj: Json) -> Outcome | None:
    """How it ended. An object that is being deleted creates no more pods: for the queue it has ended."""
    outcome = kind.status(obj).finished
    if outcome is None and mapping(obj, "metadata", "").get("deletionTimestamp"):
        return Outcome.DELETED
    return outcome


def _observation(kind: JobKind, obj: Json, admission: Admission | None) -> Observation:
    metadata = obj["metadata"]
    started_at, ended_at = run_times(obj)
    generation = metadata.get("generation")
    annotations = metadata.get("annotations")
    status = kind.status(obj)
    return Observation(
        resource_version=_short(metadata.get("resourceVersion"), MAX_NAME) or "",
        generation=generation if isinstance(generation, int) and 0 <= generation < 2**63 else 0,
        suspended=kind.suspended(obj),
        annotated=bool(annotations),
        finished=finished(kind, obj),
        quiet=status.quiet,
        admission=admission.attempt if admission else None,
        bypassed_by=_short((annotations or {}).get(BYPASS_ANNOTATION), MAX_NAME) or None,
        started_at=started_at,
        ended_at=ended_at,
        ready=status.ready,
        reclaimable=status.reclaimable,
        pods_ready=status.pods_ready,
        unlabelled=_unlabelled(kind, obj),
    )


def _unlabelled(kind: JobKind, obj: Json) -> tuple[tuple[str, bool], ...]:
    """The podsets whose pod template has no labels; empty if the templates are malformed."""
    try:
        found = kind.find(obj)
    except BadField:
        return ()
    return tuple((pods.name, bool(pods.metadata)) for pods in found if not pods.metadata.get("labels"))


def _pod_sets(
    kind: JobKind, obj: Json, admission: Admission | None, honoured: QueueLabels
) -> tuple[tuple[PodSet, ...], Reason | None]:
    try:
        _refuse_other_controller(kind, obj)
        return tuple(_pod_set(pods, admission, honoured) for pods in kind.find(obj)), None
    except RequestProblem as problem:
        return (), problem.reason
    except BadField as problem:
        return (), Reason(code=Code.MISCONFIGURED, detail=str(problem))


def _refuse_other_controller(kind: JobKind, obj: Json) -> None:
    path, ours = kind.managed_by
    holder: Json = obj
    for key in path[:-1]:
        holder = mapping(holder, key, "")
    found = text(holder, path[-1], ".".join(path[:-1]))
    if found is not None and found not in ours:
        raise BadField(".".join(path), f"{found!r} runs it, it can be queued only for {' or '.join(ours)}")


def _full(annotations: Json) -> Reason | None:
    size = sum(
        len(text.encode(errors="replace"))
        for key, value in annotations.items()
        if key != ADMISSION_ANNOTATION
        for text in (key, str(value))
    )
    if size <= MAX_ANNOTATIONS:
        return None
    problem = f"{size} bytes leave no room for {ADMISSION_ANNOTATION}, at most {MAX_ANNOTATIONS} do"
    return Reason(code=Code.MISCONFIGURED, detail=str(BadField("metadata.annotations", problem)))


def _pod_set(pods: Pods, admission: Admission | None, honoured: QueueLabels) -> PodSet:
    path = f"{pods.path}.spec"
    current = read_constraints(pods.spec, path)
    own = admission.own(pods.name, current) if admission else current
    return PodSet(
        name=pods.name,
        count=pods.pods,
        requests=pod_requests(pods.spec, path),
        not_charged=not_charged(pods.spec, path),
        node_selector=own.node_selector,
        tolerations=own.tolerations,
        affinity=required_affinity(pods.spec, path),
        priority_class=pods.priority_class or text(pods.spec, "priorityClassName", path),
        topology=not honoured.topology.isdisjoint(
            mapping(pods.metadata, "annotations", f"{pods.path}.metadata")
        ),
        runtime_class=None if pods.spec.get("overhead") else text(pods.spec, "runtimeClassName", path),
    )


def _created(metadata: Json, problem: Reason | None) -> tuple[datetime, Reason | None]:
    try:
        return timestamp(metadata.get("creationTimestamp"), "metadata.creationTimestamp"), problem
    except BadField as error:
        return _EPOCH, problem or Reason(code=Code.MISCONFIGURED, detail=str(error))


def _max_run(labels: Json, problem: Reason | None) -> tuple[int | None, Reason | None]:
    value = labels.get(MAX_RUN_LABEL)
    if value is None:
        return None, problem
    digits = isinstance(value, str) and value.isascii() and value.isdigit()
    if digits and len(value) <= len(str(MAX_COUNT)) and 1 <= int(value) <= MAX_COUNT:
        return int(value), problem
    error = BadField(
        f"metadata.labels[{MAX_RUN_LABEL}]",
        f"{shown(value)} is not a whole number of seconds, 1 to {MAX_COUNT}",
    )
    return None, problem or Reason(code=Code.MISCONFIGURED, detail=str(error))


def _labels(labels: Json) -> Iterator[tuple[str, str]]:
    # Labels that queue it come first: a start tests them.
    for key in sorted(sorted(labels, key=_queues_not)[:MAX_LABELS]):
        value = _short(labels[key], MAX_NAME)
        if value is not None:
            yield clean(key, 2 * MAX_NAME), value


def _queues_not(key: str) -> tuple[bool, str]:
    return key not in KUEUES_TOO.queue, key


def _hold_reason(annotations: Json) -> str | None:
    """Of a hold that has a reason: `by USER: TEXT`."""
    found = _short(annotations.get(REASON_ANNOTATION), MAX_REASON) or ""
    verb, _, rest = found.partition(" ")
    return rest if verb == HOLD_VERB and rest and annotations.get(HOLD_ANNOTATION) == "true" else None


def _short(value: object, limit: int) -> str | None:
    return clean(value, limit) if isinstance(value, str) else None
