"""The gate's policies in Python: in force only while policy and binding are stored objects.

The policies themselves are tested only on a real API server; this one gives the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from queuectl.kinds.jobs import JOB_KINDS, conditions
from queuectl.kinds.labels import KUEUE_QUEUE_LABEL, KUEUES_TOO, OWN, first
from queuectl.sandbox.kubernetes.identities import CONTROLLER_USER, Access, User, allowed
from queuectl.sandbox.kubernetes.resources import Kind
from queuectl.sandbox.kubernetes.store import Store
from queuectl.sandbox.kubernetes.wire import Json

JOBS_POLICY = "queuectl-jobs"
SELF_POLICY = "queuectl-self"
SUSPEND_POLICY = "queuectl-suspend"
Labels = tuple[str, ...]
RESERVED = "queuectl.dev/reserved-"
SUBMITTER = RESERVED + "submitter"
BYPASS = RESERVED + "bypass"


_JOBS = {row.resource: row for row in JOB_KINDS.values()}
_REPLICAS = {"pytorchjobs.kubeflow.org": "pytorchReplicaSpecs"}
"""Field of the spec with replicas by name, by collection."""
# A message expression of these policies joins texts and the variable `suspendPath`.
_CONCATENATED = re.compile(r"'([^']*)'|(variables\.suspendPath)")


class Gate:
    def __init__(self, store: Store) -> None:
        self._store = store

    def mutate(self, kind: Kind, old: Json | None, new: Json, user: User) -> None:
        """Suspend a new managed object and record its user; record a user who starts one past queuectl."""
        if (
            kind.collection not in _JOBS
            or user.name == CONTROLLER_USER
            or not self._in_force("mutating", SUSPEND_POLICY)
        ):
            return
        if not _managed(self._labels("mutating", SUSPEND_POLICY), old, new):
            return
        if old is None:
            _set_suspend(kind, new)
            new["metadata"].setdefault("annotations", {})[SUBMITTER] = user.name
        elif _suspended(kind, old) and not _suspended(kind, new):
            new["metadata"].setdefault("annotations", {})[BYPASS] = user.name

    def validate(
        self, kind: Kind, old: Json | None, new: Json | None, user: User, subresource: str = ""
    ) -> None:
        """`old` None creates, `new` None deletes. Raises ApiError if a policy denies it."""
        if kind.collection not in _JOBS:
            return
        if user.name == CONTROLLER_USER:
            if self._in_force("validating", SELF_POLICY):
                labels = self._labels("validating", SELF_POLICY)
                found = _beyond_duty(kind, labels, old, new, subresource)
                self._deny(kind, new or old or {}, SELF_POLICY, found)
        elif new and self._in_force("validating", JOBS_POLICY) and not _may_bypass(user):
            labels = self._labels("validating", JOBS_POLICY)
            if _managed(labels, old, new):
                found = _on_create(kind, new, user) if old is None else _on_update(kind, labels, old, new)
                self._deny(kind, new, JOBS_POLICY, found)

    def _in_force(self, sort: str, name: str) -> bool:
        policies = self._store.collection(f"{sort}admissionpolicies.admissionregistration.k8s.io")
        bindings = self._store.collection(f"{sort}admissionpolicybindings.admissionregistration.k8s.io")
        return ("", name) in policies and ("", name) in bindings

    def _labels(self, sort: str, name: str) -> Labels:
        """The labels of a policy: Kueue's too if the policy names it (manifests/kueue-labels)."""
        stored = self._store.collection(f"{sort}admissionpolicies.admissionregistration.k8s.io")["", name]
        return (KUEUES_TOO if KUEUE_QUEUE_LABEL.encode() in stored.raw else OWN).queue

    def _deny(self, kind: Kind, new: Json, policy: str, failed: Iterator[int]) -> None:
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
            path = ".".join(_JOBS[kind.collection].suspend)
            message = "".join(text or path for text, _ in _CONCATENATED.findall(expression))
        text = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
        raise kind.refusal(403, new["metadata"]["name"], f"{{}} is forbidden: {text}")


# The functions below yield indexes of failed `spec.validations`, in the order of the policy.


def _on_create(kind: Kind, new: Json, user: User) -> Iterator[int]:
    if not _suspended(kind, new):
        yield 0
    if _reserved(new) not in ({}, {SUBMITTER: user.name}):
        yield 7


def _on_update(kind: Kind, labels: Labels, old: Json, new: Json) -> Iterator[int]:
    suspended, was_suspended = _suspended(kind, new), _suspended(kind, old)
    held = conditions(old)
    finished = any(held.get(name) == "True" for name in ("Complete", "Succeeded", "Failed"))
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
        if any(name in had and _pod(part) != _pod(had[name]) for name, part in parts.items()):
            yield 6
    if _reserved(new) != _reserved(old):
        yield 7


def _beyond_duty(
    kind: Kind, labels: Labels, old: Json | None, new: Json | None, subresource: str
) -> Iterator[int]:
    """Writes that are denied to queuectl's own service account."""
    if old is None or new is None:
        yield 0
        return
    if not _queue(labels, old):
        yield 1
    if _metadata_but_ours(old) != _metadata_but_ours(new):
        yield 2
    (spec, parts), (spec_had, parts_had) = _split(kind, new), _split(kind, old)
    if spec != spec_had:
        yield 3
    if parts != parts_had:
        yield 4
    status, status_had = dict(new.get("status") or {}), dict(old.get("status") or {})
    if subresource == "status" and status != status_had:
        status_had.pop("startTime", None)
        if status != status_had:
            yield 5


def _managed(labels: Labels, old: Json | None, new: Json) -> bool:
    return any(name in (obj["metadata"].get("labels") or {}) for obj in (old, new) if obj for name in labels)


def _may_bypass(user: User) -> bool:
    return allowed(user, Access("bypass", "queuectl.dev", "workloads"))


def _suspended(kind: Kind, obj: Json) -> bool:
    return _JOBS[kind.collection].suspended(obj)


def _set_suspend(kind: Kind, obj: Json) -> None:
    *path, last = _JOBS[kind.collection].suspend
    for step in path:
        obj = obj.setdefault(step, {})
    obj[last] = True


def _reserved(obj: Json, ours: bool = True) -> dict[str, str]:
    """The annotations of queuectl, or the others."""
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name.startswith(RESERVED) is ours}


def _queue(labels: Labels, obj: Json) -> str:
    return first(labels, obj["metadata"].get("labels") or {}) or ""


def _parts(kind: Kind, obj: Json) -> dict[str, Json]:
    """Parts with a count and a pod template, by name: each replica type; of a Job its spec."""
    field = _REPLICAS.get(kind.collection)
    return {"": obj["spec"]} if field is None else obj["spec"].get(field) or {}


def _count(part: Json) -> int:
    if "parallelism" in part:
        return int(min(part["parallelism"], part.get("completions", part["parallelism"])))
    return int(part.get("replicas", 1))


def _pod(part: Json) -> Json:
    return (part.get("template") or {}).get("spec") or {}


def _metadata_but_ours(obj: Json) -> Json:
    kept = {name: obj["metadata"].get(name) for name in ("labels", "finalizers", "ownerReferences")}
    return {**kept, "annotations": _reserved(obj, ours=False)}


def _split(kind: Kind, obj: Json) -> tuple[Json, Json]:
    """The spec without what queuectl may write, and the part of each pod template that it may not write."""
    spec, parts = dict(obj["spec"]), {}
    for name, part in _parts(kind, obj).items():
        steered = {k: v for k, v in _pod(part).items() if k not in ("nodeSelector", "tolerations")}
        parts[name] = {**(part.get("template") or {}), "spec": steered}
    if field := _REPLICAS.get(kind.collection):
        rest = {name: {**part, "template": None} for name, part in (spec.get(field) or {}).items()}
        policy = {**(spec.get("runPolicy") or {}), "suspend": None}
        return {**spec, field: rest, "runPolicy": policy}, parts
    return {**spec, "template": None, "suspend": None}, parts
