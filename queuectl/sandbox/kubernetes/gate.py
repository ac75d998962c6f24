"""The gate's policies, played in Python: in force only while policy and binding are stored objects here.

Claims about the policies themselves count on a real API server alone; this one answers as they do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from queuectl.sandbox.kubernetes.identities import CONTROLLER_USER, Access, User, allowed
from queuectl.sandbox.kubernetes.resources import Kind
from queuectl.sandbox.kubernetes.selectors import at_path
from queuectl.sandbox.kubernetes.store import Store
from queuectl.sandbox.kubernetes.wire import Json

JOBS_POLICY = "queuectl-jobs"
SELF_POLICY = "queuectl-self"
SUSPEND_POLICY = "queuectl-suspend"
QUEUE = "queuectl.dev/queue-name"
RESERVED = "queuectl.dev/reserved-"
SUBMITTER = RESERVED + "submitter"
BYPASS = RESERVED + "bypass"


class _JobKind(NamedTuple):
    suspend: tuple[str, ...]
    replicas: str | None
    """Field of the spec with replicas by name."""


_JOBS = {
    "jobs.batch": _JobKind(("spec", "suspend"), None),
    "pytorchjobs.kubeflow.org": _JobKind(("spec", "runPolicy", "suspend"), "pytorchReplicaSpecs"),
}
# A message expression of these policies joins texts and the one variable `suspendPath`.
_CONCATENATED = re.compile(r"'([^']*)'|(variables\.suspendPath)")


class Gate:
    def __init__(self, store: Store) -> None:
        self._store = store

    def mutate(self, kind: Kind, old: Json | None, new: Json, user: User) -> None:
        """Suspend a new managed object and note who sent it; note who lets one go past queuectl."""
        if kind.collection not in _JOBS or user.name == CONTROLLER_USER or not _managed(old, new):
            return
        if not self._in_force("mutating", SUSPEND_POLICY):
            return
        if old is None:
            _set_suspend(kind, new)
            new["metadata"].setdefault("annotations", {})[SUBMITTER] = user.name
        elif _suspended(kind, old) and not _suspended(kind, new):
            new["metadata"].setdefault("annotations", {})[BYPASS] = user.name

    def validate(self, kind: Kind, old: Json | None, new: Json, user: User, subresource: str = "") -> None:
        """Raises ApiError where a policy denies it."""
        if kind.collection not in _JOBS:
            return
        if user.name == CONTROLLER_USER:
            if self._in_force("validating", SELF_POLICY):
                self._deny(kind, new, SELF_POLICY, _beyond_duty(kind, old, new, subresource))
        elif _managed(old, new) and self._in_force("validating", JOBS_POLICY) and not _may_bypass(user):
            found = _on_update(kind, old, new) if old is not None else _on_create(kind, new, user)
            self._deny(kind, new, JOBS_POLICY, found)

    def validate_delete(self, kind: Kind, obj: Json, user: User) -> None:
        """queuectl's own service account deletes no job."""
        if (
            kind.collection in _JOBS
            and user.name == CONTROLLER_USER
            and self._in_force("validating", SELF_POLICY)
        ):
            self._deny(kind, obj, SELF_POLICY, iter((0,)))

    def _in_force(self, sort: str, name: str) -> bool:
        policies = self._store.collection(f"{sort}admissionpolicies.admissionregistration.k8s.io")
        bindings = self._store.collection(f"{sort}admissionpolicybindings.admissionregistration.k8s.io")
        return ("", name) in policies and ("", name) in bindings

    def _deny(self, kind: Kind, new: Json, policy: str, failed: Iterator[int]) -> None:
        """Refuse with the words of the first validation that failed."""
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


# What follows yields places in `spec.validations` of the policy, in its order.


def _on_create(kind: Kind, new: Json, user: User) -> Iterator[int]:
    if not _suspended(kind, new):
        yield 0
    reserved = {name: value for name, value in _annotations(new).items() if name.startswith(RESERVED)}
    if reserved not in ({}, {SUBMITTER: user.name}):
        yield 7


def _on_update(kind: Kind, old: Json, new: Json) -> Iterator[int]:
    suspended, was_suspended = _suspended(kind, new), _suspended(kind, old)
    if was_suspended and not suspended:
        yield 1
    if suspended and not was_suspended and not _finished(old):
        yield 2
    if _queue(old) and not _queue(new):
        yield 3
    if not was_suspended:
        if _queue(new) != _queue(old):
            yield 4
        replicas, had = _replicas(kind, new), _replicas(kind, old)
        if any(name not in had or count > had[name] for name, count in replicas.items()):
            yield 5
        pods, pods_had = _pod_specs(kind, new), _pod_specs(kind, old)
        if any(name in pods_had and spec != pods_had[name] for name, spec in pods.items()):
            yield 6
    reserved, reserved_had = _reserved(new), _reserved(old)
    if reserved != reserved_had:
        yield 7


def _beyond_duty(kind: Kind, old: Json | None, new: Json, subresource: str) -> Iterator[int]:
    """What queuectl's own service account may not write."""
    if old is None:
        yield 0
        return
    if not _queue(old):
        yield 1
    if _metadata_but_ours(old) != _metadata_but_ours(new):
        yield 2
    row = _JOBS[kind.collection]
    (spec, templates), (spec_had, templates_had) = _split(row, new), _split(row, old)
    if spec != spec_had:
        yield 3
    if templates != templates_had:
        yield 4
    status, status_had = dict(new.get("status") or {}), dict(old.get("status") or {})
    if subresource == "status" and status != status_had:
        status_had.pop("startTime", None)
        if status != status_had:
            yield 5


def _managed(old: Json | None, new: Json) -> bool:
    return any(QUEUE in (obj["metadata"].get("labels") or {}) for obj in (old, new) if obj)


def _may_bypass(user: User) -> bool:
    return allowed(user, Access("bypass", "queuectl.dev", "workloads"))


def _suspended(kind: Kind, obj: Json) -> bool:
    return at_path(obj, ".".join(_JOBS[kind.collection].suspend)) is True


def _set_suspend(kind: Kind, obj: Json) -> None:
    *path, last = _JOBS[kind.collection].suspend
    for step in path:
        obj = obj.setdefault(step, {})
    obj[last] = True


def _finished(obj: Json) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Complete", "Succeeded", "Failed") and c["status"] == "True" for c in conditions)


def _annotations(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _reserved(obj: Json) -> dict[str, str]:
    return {name: value for name, value in _annotations(obj).items() if name.startswith(RESERVED)}


def _queue(obj: Json) -> str:
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(QUEUE, "")


def _replicas(kind: Kind, obj: Json) -> dict[str, int]:
    spec = obj["spec"]
    field = _JOBS[kind.collection].replicas
    if field is None:
        return {"": min(spec["parallelism"], spec.get("completions", spec["parallelism"]))}
    return {name: part.get("replicas", 1) for name, part in (spec.get(field) or {}).items()}


def _pod_specs(kind: Kind, obj: Json) -> dict[str, Json]:
    field = _JOBS[kind.collection].replicas
    parts = {"": obj["spec"]} if field is None else obj["spec"].get(field) or {}
    return {name: (part.get("template") or {}).get("spec") or {} for name, part in parts.items()}


def _metadata_but_ours(obj: Json) -> Json:
    metadata = obj["metadata"]
    others = {name: value for name, value in _annotations(obj).items() if not name.startswith(RESERVED)}
    kept = {name: metadata.get(name) for name in ("labels", "finalizers", "ownerReferences")}
    return {**kept, "annotations": others}


def _split(row: _JobKind, obj: Json) -> tuple[Json, Json]:
    """The spec without what queuectl may write, and of each pod template what it may not."""
    spec = dict(obj["spec"])
    if row.replicas is None:
        del spec["suspend"]
        parts = {"": {"template": spec.pop("template")}}
    else:
        parts = spec.pop(row.replicas, None) or {}
        spec["runPolicy"] = {k: v for k, v in (spec.get("runPolicy") or {}).items() if k != "suspend"}
    templates = {}
    for name, part in parts.items():
        template = dict(part.get("template") or {})
        pod = template.pop("spec", None) or {}
        kept = {k: v for k, v in pod.items() if k not in ("nodeSelector", "tolerations")}
        templates[name] = {**part, "template": {**template, "spec": kept}}
    return spec, templates
