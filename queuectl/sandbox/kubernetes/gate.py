"""The gate's policies in Python: in force only while policy and binding are stored objects.

The policies themselves are tested only on a real API server; this one gives the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from queuectl.kinds.jobs import OVER, QUEUE_LABEL, JobKind, conditions
from queuectl.kinds.labels import KUEUE_QUEUE_LABEL, KUEUES_TOO, OWN, first
from queuectl.kinds.registry import KindRegistry
from queuectl.kinds.written import (
    BYPASS_ANNOTATION,
    POD_LABELS,
    RESERVED,
    SUBMITTER_ANNOTATION,
    WORKLOAD_LABEL,
)
from queuectl.sandbox.kubernetes.identities import CONTROLLER_USER, Access, User, allowed
from queuectl.sandbox.kubernetes.resources import Kind
from queuectl.sandbox.kubernetes.store import Store
from queuectl.sandbox.kubernetes.wire import Json

JOBS_POLICY = "queuectl-jobs"
SELF_POLICY = "queuectl-self"
UNQUEUED_POLICY = "queuectl-self-unqueued"
SUSPEND_POLICY = "queuectl-suspend"
BYPASS_POLICY = "queuectl-bypass"
Labels = tuple[str, ...]

# A message expression of these policies joins texts and the variable `suspendPath`.
_CONCATENATED = re.compile(r"'([^']*)'|(variables\.suspendPath)")


class Gate:
    def __init__(self, store: Store, kinds: KindRegistry) -> None:
        self._store = store
        self._kinds = kinds

    def mutate(self, kind: Kind, old: Json | None, new: Json, user: User) -> None:
        """Suspend a new managed object and record its user; record a user who starts one past queuectl."""
        row = self._row(kind)
        if (
            row is None
            or user.name == CONTROLLER_USER
            or not self._in_force("mutating", policy := SUSPEND_POLICY if old is None else BYPASS_POLICY)
            or not _managed(self._labels("mutating", policy), old, new)
        ):
            return
        if old is None:
            _set_suspend(row, new)
            new["metadata"].setdefault("annotations", {})[SUBMITTER_ANNOTATION] = user.name
        elif row.suspended(old) and not row.suspended(new):
            new["metadata"].setdefault("annotations", {})[BYPASS_ANNOTATION] = user.name

    def validate(
        self, kind: Kind, old: Json | None, new: Json | None, user: User, subresource: str = ""
    ) -> None:
        """`old` None creates, `new` None deletes. Raises ApiError if a policy denies it."""
        row = self._row(kind)
        if row is None:
            return
        if user.name == CONTROLLER_USER:
            if self._in_force("validating", UNQUEUED_POLICY):
                labels = self._labels("validating", UNQUEUED_POLICY)
                unqueued = any(obj and not _managed(labels, None, obj) for obj in (old, new))
                self._deny(kind, row, new or old or {}, UNQUEUED_POLICY, iter([0] if unqueued else []))
            if self._in_force("validating", SELF_POLICY):
                found = _beyond_duty(row, old, new, subresource)
                self._deny(kind, row, new or old or {}, SELF_POLICY, found)
        elif new and self._in_force("validating", JOBS_POLICY) and not _may_bypass(user):
            labels = self._labels("validating", JOBS_POLICY)
            if _managed(labels, old, new):
                found = _on_create(row, new, user) if old is None else _on_update(row, labels, old, new)
                self._deny(kind, row, new, JOBS_POLICY, found)

    def _row(self, kind: Kind) -> JobKind | None:
        return self._kinds.served_at(kind.group, kind.version, kind.plural)

    def _in_force(self, sort: str, name: str) -> bool:
        policies = self._store.collection(f"{sort}admissionpolicies.admissionregistration.k8s.io")
        bindings = self._store.collection(f"{sort}admissionpolicybindings.admissionregistration.k8s.io")
        return ("", name) in policies and ("", name) in bindings

    def _labels(self, sort: str, name: str) -> Labels:
        """The labels of a policy: Kueue's too if the policy names it (manifests/kueue-labels)."""
        stored = self._store.collection(f"{sort}admissionpolicies.admissionregistration.k8s.io")["", name]
        return (KUEUES_TOO if KUEUE_QUEUE_LABEL.encode() in stored.raw else OWN).queue

    def _deny(self, kind: Kind, row: JobKind, new: Json, policy: str, failed: Iterator[int]) -> None:
        """Refuse with the message of the first validation that failed."""
        place = next(failed, None)
        if place is None:
            return
        stored = self._store.collection("validatingadmissionpolicies.admissionregistration.k8s.io")[
            "", policy
        ]
        validations = stored.read()["spec"].get("validations") or ()
        validation = validations[place] if place < len(validations) else {}
        message = validation.get("message", f"failed validation {place}")
        if expression := validation.get("messageExpression"):
            path = ".".join(row.suspend)
            message = "".join(text or path for text, _ in _CONCATENATED.findall(expression))
        text = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
        raise kind.refusal(403, new["metadata"]["name"], f"{{}} is forbidden: {text}")


# The functions below yield indexes of failed `spec.validations`, in the order of the policy.


def _on_create(kind: JobKind, new: Json, user: User) -> Iterator[int]:
    if not kind.suspended(new):
        yield 0
    if _reserved(new) not in ({}, {SUBMITTER_ANNOTATION: user.name}):
        yield 7


def _on_update(kind: JobKind, labels: Labels, old: Json, new: Json) -> Iterator[int]:
    suspended, was_suspended = kind.suspended(new), kind.suspended(old)
    held = conditions(old)
    finished = any(held.get(name) == "True" for name in OVER)
    if was_suspended and not suspended:
        yield 1
    if suspended and not was_suspended and not finished:
        yield 2
    queue, had_queue = _queue(labels, new), _queue(labels, old)
    if had_queue and not queue:
        yield 3
    if not was_suspended:
        if queue != had_queue:
            yield 4
        parts, had = _parts(kind, new), _parts(kind, old)
        if any(name not in had or _count(part) > _count(had[name]) for name, part in parts.items()):
            yield 5
        if any(name in had and _charged(part) != _charged(had[name]) for name, part in parts.items()):
            yield 6
    if _reserved(new) != _reserved(old):
        yield 7


def _beyond_duty(kind: JobKind, old: Json | None, new: Json | None, subresource: str) -> Iterator[int]:
    """Writes that are denied to queuectl's own service account."""
    if old is None or new is None:
        yield 0
        return
    if _split(kind, new) != _split(kind, old) or not _own_labels(kind, old, new):
        yield 1
    if _metadata_but_ours(old) != _metadata_but_ours(new):
        yield 2
    status, status_had = dict(new.get("status") or {}), dict(old.get("status") or {})
    if subresource == "status" and status != status_had:
        status_had.pop("startTime", None)
        told, told_had = (found.pop("conditions", None) for found in (status, status_had))
        if status != status_had or (told != told_had and not _asks(told or [], told_had or [])):
            yield 3


def _asks(conditions: list[Json], old: list[Json]) -> bool:
    """The condition Suspended has become Unknown, and no other has changed."""
    asked = all(one in old or (one["type"], one["status"]) == ("Suspended", "Unknown") for one in conditions)
    return (
        len(conditions) == len(old)
        and asked
        and all(one["type"] == "Suspended" or one in conditions for one in old)
    )


def _managed(labels: Labels, old: Json | None, new: Json) -> bool:
    return any(name in (obj["metadata"].get("labels") or {}) for obj in (old, new) if obj for name in labels)


def _may_bypass(user: User) -> bool:
    return allowed(user, Access("bypass", "queuectl.dev", "workloads"))


def _set_suspend(kind: JobKind, obj: Json) -> None:
    *path, last = kind.suspend
    for step in path:
        obj = obj.setdefault(step, {})
    obj[last] = True


def _reserved(obj: Json, ours: bool = True) -> dict[str, str]:
    """The annotations of queuectl, or the others."""
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name.startswith(RESERVED) is ours}


def _queue(labels: Labels, obj: Json) -> str:
    return first(labels, obj["metadata"].get("labels") or {}) or ""


def _parts(kind: JobKind, obj: Json) -> dict[str, Json]:
    """Parts with a count and a pod template, by name: each replica type or replicated job; a Job's spec."""
    if kind.replicas is None:
        return {"": obj["spec"]}
    found = obj["spec"].get(kind.replicas.field)
    if kind.replicas.listed:
        return {
            group["name"]: {**group["template"]["spec"], "replicas": group.get("replicas", 1)}
            for group in found or ()
        }
    return found or {}


def _count(part: Json) -> int:
    parallel = part.get("parallelism", 1)
    return int(part.get("replicas", 1) * min(parallel, part.get("completions", parallel)))


def _pod(part: Json) -> Json:
    return (part.get("template") or {}).get("spec") or {}


def _charged(part: Json) -> tuple[Json, list[str | None]]:
    """What a running workload keeps of a pod template: its spec and queuectl's labels."""
    return _pod(part), [_pod_labels(part).get(label) for label in POD_LABELS]


def _metadata_but_ours(obj: Json) -> Json:
    kept = {name: obj["metadata"].get(name) for name in ("labels", "finalizers", "ownerReferences")}
    return {**kept, "annotations": _reserved(obj, ours=False)}


def _own_labels(kind: JobKind, old: Json, new: Json) -> bool:
    """Whether queuectl's labels of each pod template are unchanged, or as a start writes them."""
    had = _parts(kind, old)
    given = new["metadata"].get("labels") or {}
    as_started = {
        QUEUE_LABEL: [first(KUEUES_TOO.queue, given)],
        WORKLOAD_LABEL: [new["metadata"]["uid"]],
    }
    return all(
        _pod_labels(part).get(label) in [*values, _pod_labels(had.get(name, {})).get(label)]
        for name, part in _parts(kind, new).items()
        for label, values in as_started.items()
    )


def _pod_labels(part: Json) -> Json:
    return ((part.get("template") or {}).get("metadata") or {}).get("labels") or {}


def _split(kind: JobKind, obj: Json) -> tuple[Json, Json]:
    """The spec without what queuectl may write, and the part of each pod template that it may not write."""
    spec, parts = dict(obj["spec"]), {}
    for name, part in _parts(kind, obj).items():
        steered = {k: v for k, v in _pod(part).items() if k not in ("nodeSelector", "tolerations")}
        template = part.get("template") or {}
        labels = {k: v for k, v in _pod_labels(part).items() if k not in POD_LABELS}
        metadata = {**(template.get("metadata") or {}), "labels": labels}
        parts[name] = {**template, "metadata": metadata, "spec": steered}
    if kind.replicas is not None and kind.replicas.listed:
        groups = [_without_template(group) for group in spec.get(kind.replicas.field) or ()]
        return {**spec, kind.replicas.field: groups, "suspend": None}, parts
    if kind.replicas is not None:
        field = kind.replicas.field
        rest = {name: {**part, "template": None} for name, part in (spec.get(field) or {}).items()}
        policy = {**(spec.get("runPolicy") or {}), "suspend": None}
        return {**spec, field: rest, "runPolicy": policy}, parts
    return {**spec, "template": None, "suspend": None}, parts


def _without_template(group: Json) -> Json:
    """A replicated job without its pod template."""
    job = group["template"]
    return {**group, "template": {**job, "spec": {**job["spec"], "template": None}}}
