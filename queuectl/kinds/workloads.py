"""From a job's object, as raw JSON, to the workload and observation of the core.

Never raises: a malformed field of a labelled object becomes the workload's `problem`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, TypedDict, TypeVar

import orjson

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import (
    Attempt,
    ForcedRelease,
    ObjectRef,
    Observation,
    PodCount,
    PodSet,
    RecordedStop,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.kinds.admission import AdmissionAnnotation, parse
from queuectl.kinds.devices import pod_claims
from queuectl.kinds.jobs import NO_KINDS, Elastic, JobKind, KindRegistry, Status
from queuectl.kinds.json_fields import (
    MAX_COUNT,
    BadField,
    Json,
    clean,
    mapping,
    shown,
    text,
    timestamp,
)
from queuectl.kinds.labels import KUEUES_TOO, MAX_RUN_LABEL, OWN, QueueLabels, first
from queuectl.kinds.node_constraints import NodeConstraints, read_constraints, required_affinity
from queuectl.kinds.owners import controller, controlling
from queuectl.kinds.podsets import Computed, NotYet, Pods, text_at
from queuectl.kinds.requests import RequestProblem, counted, not_charged, pod_resources
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    BYPASS_ANNOTATION,
    GROUPS_ANNOTATION,
    IDLE_EXEMPT,
    REASON_OF_BYPASS,
    RELEASE_ANNOTATION,
    STOPPED_ANNOTATION,
    SUBMITTER_ANNOTATION,
    USER_ANNOTATION,
)
from queuectl.kinds.start_conditions import start_conditions
from queuectl.kinds.start_patch import as_requested, elastic, reduced
from queuectl.kinds.stop_annotations import forced_release, recorded_stop

T = TypeVar("T")

HOLD_ANNOTATION: Final = "queuectl.dev/hold"
REASON_ANNOTATION: Final = "queuectl.dev/reason"
"""Why a hold or a stop was set or ended, as `VERB by USER: TEXT`; not checked by any policy."""
HOLD_VERB: Final = "hold"
MAX_REASON: Final = 500
"""Characters of it that are read."""

MAX_NAME: Final = 253
MAX_GROUPS: Final = 200
"""Of a user: further ones are not read."""
MAX_LABELS: Final = 64
"""Labels stored per workload: those that queue it, then the first ones by name."""
_ALL_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object that the API server accepts."""
MAX_ANNOTATIONS: Final = _ALL_ANNOTATIONS - 8 * 1024
"""Bytes of other annotations: a start adds one, and a stop."""

_LONGEST_KNOWN: Final = 16 * 1024
"""Bytes of a pod spec that is kept."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_POD_SETS: Final[tuple[PodSet, ...]] = ()
_NO_END: Final = datetime.max.replace(tzinfo=UTC)
_GIVES_TIME: Final = re.compile(r"\s*until|.*?\d{4}-\d", re.IGNORECASE | re.DOTALL)


def observe(
    kind: JobKind,
    obj: Json,
    honoured: QueueLabels = OWN,
    child: Json | None = None,
    *,
    owners: KindRegistry = NO_KINDS,
) -> WorkloadObserved | None:
    """The workload of the object `obj` of `kind`; None without a queue label or an identity.

    `child`: the child that has its podsets, if it is of such a kind and there is one.
    `owners`: the kinds whose objects queue for what they control; none: each object queues for itself.
    """
    try:
        metadata = mapping(obj, "metadata", "")
        labels = mapping(metadata, "labels", "metadata")
        annotations = mapping(metadata, "annotations", "metadata")
    except BadField:
        return None
    if kind.scheduling_gate:
        honoured = OWN  # of a pod, the gate checks no other label
    names = [_short(metadata.get(key), MAX_NAME) for key in ("namespace", "name", "uid")]
    label = first(honoured.queue, labels)
    queue = _short(honoured.default if label is None else label, MAX_NAME)
    if queue is None or None in names:
        return None
    namespace, name, uid = (str(part) for part in names)
    marks = _marks(kind, obj, annotations, WorkloadId(uid))
    requested = as_requested(obj, marks.reduced)
    fields = _Fields()
    pod_sets = fields.read(lambda: _pod_sets(kind, requested, child, marks.admission, honoured), _NO_POD_SETS)
    least = fields.read(lambda: kind.elastic(requested, honoured.counts) if kind.elastic else None, None)
    pod_sets = tuple(_with_least(pods, least) for pods in pod_sets)
    if fields.problem is None:
        fields.read(lambda: _check(kind, obj, annotations, pod_sets), None)
    created = fields.read(lambda: _created(metadata), _EPOCH)
    max_run = fields.read(lambda: _max_run(labels), None)
    exempt = fields.read(lambda: _exemption(annotations), None)
    start = fields.read(lambda: start_conditions(annotations, labels, owners), None)
    return WorkloadObserved(
        Workload(
            id=WorkloadId(uid),
            ref=ObjectRef(namespace, kind.name, name, uid),
            queue=queue,
            created_at=created,
            pod_sets=pod_sets,
            priority_class=_short(first(honoured.priority, labels), MAX_NAME) or None,
            **_persons(annotations),
            owner=_owner(obj, namespace, owners),
            controller=_controller(obj),
            labels=tuple(_labels(labels)),
            hold=annotations.get(HOLD_ANNOTATION) == "true",
            hold_reason=_hold_reason(annotations),
            idle_exempt=exempt,
            max_run_seconds=max_run,
            start=start,
            problem=fields.problem,
        ),
        _observation(kind, obj, child, marks, elastic(least, requested)),
    )


class _Fields:
    """Reads parts of an object; what is wrong with the first malformed one is its problem."""

    def __init__(self) -> None:
        self.problem: Reason | None = None

    def read(self, part: Callable[[], T], default: T) -> T:
        try:
            return part()
        except NotYet as awaited:
            found = Reason(code=Code.PENDING_EVALUATION, detail=str(awaited))
        except RequestProblem as problem:
            found = problem.reason
        except BadField as problem:
            found = Reason(code=Code.MISCONFIGURED, detail=str(problem))
        self.problem = self.problem or found
        return default


def _exemption(annotations: Json) -> datetime | None:
    """Until when its devices are not judged, by `until TIME: REASON`; without a time it has no end. Raises
    BadField."""
    if IDLE_EXEMPT not in annotations:
        return None
    text = str(annotations[IDLE_EXEMPT])
    if not _GIVES_TIME.match(text):
        return _NO_END
    first_word, *others = text.split(maxsplit=2)
    try:
        return timestamp(others[0].rstrip(":") if first_word == "until" and others else "", "")
    except BadField:
        form = "write `until 2026-12-01T00:00:00Z: REASON`, or a reason without a time"
        fault = f"{text[:80]!r} is no exemption: {form}"
        raise BadField(f"metadata.annotations[{IDLE_EXEMPT}]", fault) from None


class _Persons(TypedDict):
    submitter: str | None
    creator: str | None
    groups: tuple[str, ...]


def _persons(annotations: Json) -> _Persons:
    """The user whose it is, the creator if that is another one, and the groups of the user."""
    creator = _short(annotations.get(SUBMITTER_ANNOTATION), MAX_NAME) or None
    user = _short(annotations.get(USER_ANNOTATION), MAX_NAME) or None
    groups = annotations.get(GROUPS_ANNOTATION)
    named = groups.split(",", MAX_GROUPS)[:MAX_GROUPS] if groups and isinstance(groups, str) else ()
    return {
        "submitter": user or creator,
        "creator": creator if user else None,
        "groups": tuple(clean(group, MAX_NAME) for group in named),
    }


def _owner(obj: Json, namespace: str, owners: KindRegistry) -> ObjectRef | None:
    found = controlling(owners, obj)
    if found is None:
        return None
    return ObjectRef(namespace, found.kind.name, clean(found.name, MAX_NAME), clean(found.uid, MAX_NAME))


def _controller(obj: Json) -> str:
    try:
        found = controller(obj)
    except BadField:
        return ""
    kind, name = (_short(found.get(key), MAX_NAME) for key in ("kind", "name")) if found else ("", "")
    return f"{kind}/{name}" if kind and name else ""


def is_queued(obj: Json, honoured: QueueLabels) -> bool:
    """Does it have a queue label that counts?"""
    try:
        labels = mapping(mapping(obj, "metadata", ""), "labels", "metadata")
    except BadField:
        return False
    return first(honoured.queue, labels) is not None


def observation(kind: JobKind, obj: Json) -> Observation:
    """The state of an object, without what only a start needs."""
    metadata = mapping(obj, "metadata", "")
    workload = WorkloadId(str(metadata.get("uid")))
    marks = _marks(kind, obj, mapping(metadata, "annotations", ""), workload)
    return _observation(kind, obj, None, marks, ())


class _Marks(NamedTuple):
    """What queuectl has written on an object."""

    admission: AdmissionAnnotation | None
    stopped: RecordedStop | None
    reduced: tuple[PodCount, ...]
    """Fields that its last start reduced."""
    release: ForcedRelease | None


def _marks(kind: JobKind, obj: Json, annotations: Json, workload: WorkloadId) -> _Marks:
    admission = parse(annotations.get(ADMISSION_ANNOTATION), workload)
    stopped = recorded_stop(annotations.get(STOPPED_ANNOTATION), workload)
    release = forced_release(annotations.get(RELEASE_ANNOTATION), workload)
    return _Marks(admission, stopped, reduced(kind, obj, admission, stopped and stopped.attempt), release)


def identity(obj: Json) -> tuple[str, str]:
    """UID and resourceVersion of an object, empty if missing."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "", ""
    return str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")


def finished(kind: JobKind, obj: Json) -> WorkloadOutcome | None:
    """How it ended. An object that is being deleted creates no more pods: for the queue it has ended."""
    outcome = kind.outcome(obj)
    if outcome is None and mapping(obj, "metadata", "").get("deletionTimestamp"):
        return WorkloadOutcome.DELETED
    return outcome


def _observation(
    kind: JobKind, obj: Json, child: Json | None, marks: _Marks, elastic: tuple[PodCount, ...]
) -> Observation:
    metadata = obj["metadata"]
    started_at, ended_at = kind.run_times(obj)
    generation = metadata.get("generation")
    annotations = metadata.get("annotations")
    status = kind.status(obj if child is None else child)
    outcome = finished(kind, obj)
    failure = kind.failure(obj) if outcome is WorkloadOutcome.FAILED else None
    return Observation(
        resource_version=_short(metadata.get("resourceVersion"), MAX_NAME) or "",
        generation=generation if isinstance(generation, int) and 0 <= generation < 2**63 else 0,
        suspended=kind.suspended(obj),
        annotated=bool(annotations),
        finished=outcome,
        failure=_short(failure, MAX_REASON) or None,
        quiet=status.quiet,
        admission=_with_ended(marks.admission.attempt, status) if marks.admission else None,
        bypass=(
            _short((annotations or {}).get(BYPASS_ANNOTATION), MAX_NAME) or "",
            _short((annotations or {}).get(REASON_OF_BYPASS), MAX_REASON) or "",
        ),
        started_at=started_at,
        ended_at=ended_at,
        ready=status.ready,
        reclaimable=_reclaimable(kind, obj, status, marks.reduced),
        held_back=status.held_back,
        not_bound=status.held_back + status.ended,
        unstarted=status.unstarted,
        pods_ready=status.pods_ready,
        pods_missing=status.pods_missing,
        unlabelled=_unlabelled(kind, obj),
        by_child=child is not None,
        own_entry=_own_entry(kind, obj),
        elastic=elastic,
        reduced=marks.reduced,
        stopped=marks.stopped,
        release=marks.release,
    )


def _with_ended(attempt: Attempt, status: Status) -> Attempt:
    if not status.pods_ended:
        return attempt
    ended, assignment = dict(status.pods_ended), attempt.assignment
    pod_sets = tuple(replace(one, ended=ended.get(one.name, ())) for one in assignment.pod_sets)
    return replace(attempt, assignment=replace(assignment, pod_sets=pod_sets))


def _reclaimable(
    kind: JobKind, obj: Json, status: Status, reduced: tuple[PodCount, ...]
) -> tuple[tuple[str, int], ...]:
    """How many pods of those that are requested have ended: a status counts those of a reduced podset."""
    if not reduced or not status.reclaimable:
        return status.reclaimable
    requested, runs = (
        {pods.name: pods.pods for pods in kind.podsets.find(one, None)}
        for one in (as_requested(obj, reduced), obj)
    )
    return tuple((name, ended + requested[name] - runs[name]) for name, ended in status.reclaimable)


def _unlabelled(kind: JobKind, obj: Json) -> tuple[tuple[str, bool], ...]:
    """The podsets whose pod template has no labels; empty if the templates are malformed, or a child's."""
    try:
        found = kind.podsets.find(obj, None)
    except (BadField, NotYet):
        return ()
    return tuple((pods.name, bool(pods.metadata)) for pods in found if not pods.metadata.get("labels"))


def _own_entry(kind: JobKind, obj: Json) -> int | None:
    try:
        return kind.podsets.own_entry(obj) if isinstance(kind.podsets, Computed) else None
    except BadField:
        return None


def _pod_sets(
    kind: JobKind, obj: Json, child: Json | None, admission: AdmissionAnnotation | None, honoured: QueueLabels
) -> tuple[PodSet, ...]:
    """Raises BadField, RequestProblem and NotYet."""
    _refuse_other_controller(kind, obj)
    priority_class = text_at(obj, kind.priority_class) if kind.priority_class else None
    found = kind.podsets.find(obj, child)
    pod_sets = tuple(_pod_set(pods, priority_class, admission, honoured) for pods in found)
    if kind.scheduling_gate:
        # It exists: the LimitRanges and ResourceQuotas of its namespace have counted it.
        pod_sets = tuple(replace(pod_set, pod=None) for pod_set in pod_sets)
    return pod_sets


def _with_least(pods: PodSet, least: Elastic | None) -> PodSet:
    return replace(pods, min_count=least.least) if least and pods.name == least.pod_set else pods


def _refuse_other_controller(kind: JobKind, obj: Json) -> None:
    path, ours = kind.managed_by
    found = text_at(obj, path) if path else None
    if found is not None and found not in ours:
        raise BadField(".".join(path), f"{found!r} runs it, it can be queued only for {' or '.join(ours)}")


def _check(kind: JobKind, obj: Json, annotations: Json, pod_sets: Iterable[PodSet]) -> None:
    """Raises BadField for an object that its kind refuses, and for one without room for an annotation: the
    API server would refuse each start of it, for which others may have been preempted."""
    if (refusal := kind.refusal(obj)) is not None:
        raise refusal
    size = annotation_bytes(annotations, (ADMISSION_ANNOTATION, STOPPED_ANNOTATION))
    most = min(MAX_ANNOTATIONS, _ALL_ANNOTATIONS - sum(map(_least_bytes, pod_sets)))
    if size > most:
        problem = f"{size} bytes leave no room for {ADMISSION_ANNOTATION}, at most {max(most, 0)} do"
        raise BadField("metadata.annotations", problem)


def _pod_set(
    pods: Pods, priority_class: str | None, admission: AdmissionAnnotation | None, honoured: QueueLabels
) -> PodSet:
    above = f"{pods.path}." if pods.path else ""
    asked = _asked(pods.spec, f"{above}spec")
    own = NodeConstraints(asked.node_selector, asked.tolerations)
    own = admission.own(pods.name, own) if admission else own
    return replace(
        asked,
        name=pods.name,
        count=pods.pods,
        node_selector=own.node_selector,
        tolerations=own.tolerations,
        priority_class=priority_class or asked.priority_class,
        topology=not honoured.topology.isdisjoint(mapping(pods.metadata, "annotations", f"{above}metadata")),
    )


def _asked(spec: Json, path: str) -> PodSet:
    """What one pod asks for. Equal specs are read once: most objects of a cluster have one of few."""
    try:
        text = orjson.dumps(spec)
    except TypeError:  # it is from no API server
        return _read(spec, path)
    return _known(text, path) if len(text) <= _LONGEST_KNOWN else _read(spec, path)


@lru_cache(maxsize=1000)
def _known(spec: bytes, path: str) -> PodSet:
    return _read(orjson.loads(spec), path)


def _read(spec: Json, path: str) -> PodSet:
    constraints = read_constraints(spec, path)
    pod = pod_resources(spec, path)
    return PodSet(
        name="",
        count=1,
        requests=counted(pod, path),
        pod=pod,
        not_charged=not_charged(spec, path),
        claims=pod_claims(spec, path),
        node_selector=constraints.node_selector,
        tolerations=constraints.tolerations,
        affinity=required_affinity(spec, path),
        priority_class=text(spec, "priorityClassName", path),
        runtime_class=None if spec.get("overhead") else text(spec, "runtimeClassName", path),
    )


def has_room(obj: Json, annotation: str, value: str) -> bool:
    """Does the API server accept this annotation besides those that the object has?"""
    others = annotation_bytes(mapping(mapping(obj, "metadata", ""), "annotations", "metadata"), (annotation,))
    return others + annotation_bytes({annotation: value}) <= _ALL_ANNOTATIONS


def _least_bytes(pods: PodSet) -> int:
    """Of a podset in ADMISSION_ANNOTATION, whatever flavors it gets."""
    resources = sum(2 * len(name) + 12 for name, _ in pods.requests)
    return 71 + len(pods.name.encode()) + resources + sum(len(k) + len(v) + 5 for k, v in pods.node_selector)


def annotation_bytes(annotations: Json, without: tuple[str, ...] = ()) -> int:
    """Bytes of their keys and values, as the API server counts them."""
    return sum(
        len(text.encode(errors="replace"))
        for key, value in annotations.items()
        if key not in without
        for text in (key, str(value))
    )


def _created(metadata: Json) -> datetime:
    return timestamp(metadata.get("creationTimestamp"), "metadata.creationTimestamp")


def _max_run(labels: Json) -> int | None:
    """Raises BadField."""
    value = labels.get(MAX_RUN_LABEL)
    if value is None:
        return None
    digits = isinstance(value, str) and value.isascii() and value.isdigit()
    if digits and len(value) <= len(str(MAX_COUNT)) and 1 <= int(value) <= MAX_COUNT:
        return int(value)
    raise BadField(
        f"metadata.labels[{MAX_RUN_LABEL}]",
        f"{shown(value)} is not a whole number of seconds, 1 to {MAX_COUNT}",
    )


def _labels(labels: Json) -> Iterator[tuple[str, str]]:
    # Labels that queue it come first: a start tests them.
    for key in sorted(sorted(labels, key=lambda key: (key not in KUEUES_TOO.queue, key))[:MAX_LABELS]):
        value = _short(labels[key], MAX_NAME)
        if value is not None:
            yield clean(key, 2 * MAX_NAME), value


def _hold_reason(annotations: Json) -> str | None:
    """Of a hold that has a reason: `by USER: TEXT`."""
    found = _short(annotations.get(REASON_ANNOTATION), MAX_REASON) or ""
    verb, _, rest = found.partition(" ")
    return rest if verb == HOLD_VERB and rest and annotations.get(HOLD_ANNOTATION) == "true" else None


def _short(value: object, limit: int) -> str | None:
    return clean(value, limit) if isinstance(value, str) else None
