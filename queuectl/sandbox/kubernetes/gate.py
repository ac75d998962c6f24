"""The gate's policies in Python: in force only while policy and binding are stored objects.

The policies themselves are tested only on a real API server; this one gives the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from queuectl.kinds.fields import BadField
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, Seen, value_at
from queuectl.kinds.labels import KUEUE_QUEUE_LABEL, KUEUES_TOO, OWN, first
from queuectl.kinds.owners import controlling
from queuectl.kinds.podsets import Computed, Each, Numbered, Own, Place
from queuectl.kinds.registry import KindRegistry
from queuectl.kinds.steering import pointer
from queuectl.kinds.written import (
    ADMISSION_ANNOTATION,
    BYPASS_ANNOTATION,
    POD_LABELS,
    RELEASE_ANNOTATION,
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
DEFAULT_QUEUE_POLICY = "queuectl-default-queue"
_DEFAULT = "default"
_NOT_DEFAULTED = ("kube-system", "queuectl-system")
Labels = tuple[str, ...]

_REFUSED = 10
"""Place of the validation whose message is the reason for which an object can't be queued as it is."""

# A message expression of these policies joins texts and the variable `suspendPath`.
_CONCATENATED = re.compile(r"'([^']*)'|(variables\.suspendPath)")


class Gate:
    def __init__(self, store: Store, kinds: KindRegistry) -> None:
        self._store = store
        self._kinds = kinds

    def mutate(self, kind: Kind, old: Json | None, new: Json, user: User) -> None:
        """Suspend a new managed object and record its user; record a user who starts one past queuectl."""
        row = self._row(kind)
        if row is not None and old is None and self._defaulted("mutating", new):
            new["metadata"].setdefault("labels", {})[QUEUE_LABEL] = _DEFAULT
        if (
            row is None
            or user.name == CONTROLLER_USER
            or not self._in_force("mutating", policy := SUSPEND_POLICY if old is None else BYPASS_POLICY)
            or not _managed(self._labels("mutating", policy), old, new)
            or self._by_controller_of_owner(new, user)
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
        elif (
            new
            and (not _may_bypass(user) or (old and _release(new) != _release(old)))
            and not self._by_controller_of_owner(new, user)
        ):
            if old is None and self._defaulted("validating", new):
                self._deny(kind, row, new, DEFAULT_QUEUE_POLICY, iter([0]))
            if not self._in_force("validating", JOBS_POLICY):
                return
            labels = self._labels("validating", JOBS_POLICY)
            if _managed(labels, old, new):
                found = _on_create(row, new, user) if old is None else _on_update(row, labels, old, new, user)
                self._deny(kind, row, new, JOBS_POLICY, found)

    def _defaulted(self, sort: str, new: Json) -> bool:
        """Does a policy of manifests/default-queue apply to a new object?"""
        namespace = new["metadata"].get("namespace", "")
        return (
            self._in_force(sort, DEFAULT_QUEUE_POLICY)
            and not _managed(self._labels(sort, DEFAULT_QUEUE_POLICY), None, new)
            and namespace not in _NOT_DEFAULTED
            and (namespace, _DEFAULT) in self._store.collection("localqueues.queuectl.dev")
        )

    def _by_controller_of_owner(self, obj: Json, user: User) -> bool:
        owner = controlling(self._kinds, obj)
        if owner is None:
            return False
        return allowed(user, Access("update", owner.kind.group, owner.kind.plural, "status"))

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
        if place == _REFUSED:
            message = str(row.refusal(new))
        elif expression := validation.get("messageExpression"):
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
    if kind.refusal(new):
        yield _REFUSED


def _on_update(kind: JobKind, labels: Labels, old: Json, new: Json, user: User) -> Iterator[int]:
    suspended, was_suspended = kind.suspended(new), kind.suspended(old)
    finished = kind.outcome(old) is not None
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
        yield from _while_it_runs(kind, old, new)
    if _reserved(new) | {RELEASE_ANNOTATION: ""} != _reserved(old) | {RELEASE_ANNOTATION: ""}:
        yield 7
    if _release(new) != _release(old) and not _may_release(new, user):
        yield 8
    if not was_suspended and _fixed(kind, new) != _fixed(kind, old):
        yield 9
    if (refusal := kind.refusal(new)) and (not had_queue or str(refusal) != str(kind.refusal(old))):
        yield _REFUSED


def _while_it_runs(kind: JobKind, old: Json, new: Json) -> Iterator[int]:
    parts, had = _parts(kind, new), _parts(kind, old)
    if any(name not in had or part.pods > had[name].pods for name, part in parts.items()):
        yield 5
    if any(name in had and _charged(part) != _charged(had[name]) for name, part in parts.items()):
        yield 6


def _beyond_duty(kind: JobKind, old: Json | None, new: Json | None, subresource: str) -> Iterator[int]:
    """Writes that are denied to queuectl's own service account."""
    if old is None or new is None:
        yield 0
        return
    kept = _unwritten(kind, new) == _unwritten(kind, old) and _counted(kind, old, new)
    if not kept or not _own_labels(kind, old, new):
        yield 1
    if _metadata_but_ours(old) != _metadata_but_ours(new):
        yield 2
    status, status_had = dict(new.get("status") or {}), dict(old.get("status") or {})
    if subresource == "status" and status != status_had:
        status_had.pop("startTime", None)
        told, told_had = (found.pop("conditions", None) for found in (status, status_had))
        if not isinstance(of := kind.seen.sign.of, str) and value_at(new, of) == kind.seen.asked:
            status, status_had = (_without(found, of[1:]) for found in (status, status_had))
        if status != status_had or (told != told_had and not _asks(kind.seen, told or [], told_had or [])):
            yield 3


def _asks(seen: Seen, conditions: list[Json], old: list[Json]) -> bool:
    """The condition that it is suspended has become Unknown, and no other has changed."""
    of = seen.sign.of
    asked = all(one in old or (one["type"], one["status"]) == (of, seen.asked) for one in conditions)
    kept = all(one["type"] == of or one in conditions for one in old)
    return asked and kept and len(conditions) == len(old)


def _managed(labels: Labels, old: Json | None, new: Json) -> bool:
    return any(name in (obj["metadata"].get("labels") or {}) for obj in (old, new) if obj for name in labels)


def _may_bypass(user: User) -> bool:
    return allowed(user, Access("bypass", "queuectl.dev", "workloads"))


def _may_release(obj: Json, user: User) -> bool:
    """May the user release its quota by force, and does so in its own name?"""
    if not allowed(user, Access("force-release", "queuectl.dev", "workloads")):
        return False
    if not (text := _release(obj).get(RELEASE_ANNOTATION)):
        return True
    whose, _, rest = text.partition(" by ")
    return whose.startswith(f"{obj['metadata']['uid']}/") and rest.startswith(f"{user.name}: ")


def _set_suspend(kind: JobKind, obj: Json) -> None:
    *path, last = kind.suspend
    for step in path:
        obj = obj.setdefault(step, {})
    obj[last] = True


def _reserved(obj: Json, ours: bool = True) -> dict[str, str]:
    """The annotations of queuectl, or the others."""
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name.startswith(RESERVED) is ours}


def _release(obj: Json) -> dict[str, str]:
    return {name: value for name, value in _reserved(obj).items() if name == RELEASE_ANNOTATION}


def _queue(labels: Labels, obj: Json) -> str:
    return first(labels, obj["metadata"].get("labels") or {}) or ""


class _Part(NamedTuple):
    """What has a number of pods and a pod template."""

    pods: int
    template: Json


def _parts(kind: JobKind, obj: Json) -> dict[str, _Part]:
    """By group and name of the podset; empty if one is malformed."""
    if isinstance(kind.podsets, Computed):
        return {}
    try:
        return {
            f"{place}/{name}": _Part(group.pods(entry, where), value_at(entry, group.template) or {})
            for place, group in enumerate(kind.podsets.groups)
            for name, where, entry in group.entries(obj)
        }
    except BadField:
        return {}


def _charged(part: _Part) -> tuple[Json, list[str | None]]:
    """What a running workload keeps of a pod template: its spec and queuectl's labels."""
    return part.template.get("spec") or {}, [_pod_labels(part).get(label) for label in POD_LABELS]


def _fixed(kind: JobKind, obj: Json) -> list[Json | None]:
    """Further fields that do not change while it runs."""
    if isinstance(kind.podsets, Computed):
        return [_without(obj["spec"], kind.suspend[1:])]
    return [value_at(obj, path) for path in kind.fixed]


def _metadata_but_ours(obj: Json) -> Json:
    kept = {name: obj["metadata"].get(name) for name in ("labels", "finalizers", "ownerReferences")}
    return {**kept, "annotations": _reserved(obj, ours=False)}


def _counted(kind: JobKind, old: Json, new: Json) -> bool:
    """Whether numbers of pods change only by a start with fewer, which records those before, and back."""
    for path in kind.counts:
        now, had = value_at(new, path), value_at(old, path)
        recorded, before = (_recorded(obj, path) for obj in (new, old))
        starts = kind.suspended(old) and not kind.suspended(new)
        fewer = starts and 1 <= (now or 0) < (had or 0) and recorded is not None
        restored = now is not None and now == before
        if recorded not in (None, before, had) or not (now == had or restored or fewer):
            return False
    return True


def _recorded(obj: Json, path: tuple[str, ...]) -> int | None:
    """The number of pods before the start, by the annotation of an admission."""
    text = (obj["metadata"].get("annotations") or {}).get(ADMISSION_ANNOTATION, "")
    found = re.search(f'"{pointer(path)}":([0-9]+)', text)
    return int(found[1]) if found else None


def _own_labels(kind: JobKind, old: Json, new: Json) -> bool:
    """Whether queuectl's labels of each pod template are unchanged, or as a start writes them."""
    had = _parts(kind, old)
    given = new["metadata"].get("labels") or {}
    as_started = {
        QUEUE_LABEL: [first(KUEUES_TOO.queue, given)],
        WORKLOAD_LABEL: [new["metadata"]["uid"]],
    }
    return all(
        _pod_labels(part).get(label) in [*values, _pod_labels(had.get(name, _Part(0, {}))).get(label)]
        for name, part in _parts(kind, new).items()
        for label, values in as_started.items()
    )


def _pod_labels(part: _Part) -> Json:
    return (part.template.get("metadata") or {}).get("labels") or {}


def _unwritten(kind: JobKind, obj: Json) -> Json:
    """The spec without what queuectl may write."""
    places: list[Place] = [kind.suspend, *kind.podsets.written(), *kind.counts]
    if not isinstance(kind.podsets, Computed):
        for group in kind.podsets.groups:
            places += [group.places(("metadata", "labels", label)) for label in POD_LABELS]
    spec: Json = obj["spec"]
    for place in places:
        spec = _without(spec, place[1:])
    return spec


def _without(holder: Any, place: Place) -> Any:
    """`holder` without what is at a place, and without what is empty then."""
    step, *rest = place
    if isinstance(step, Own):
        return [entry for entry in holder if entry.get(step.key) != step.value]
    if isinstance(step, Each | Numbered):
        if isinstance(holder, list):
            return [_without(entry, tuple(rest)) for entry in holder]
        return {key: _without(entry, tuple(rest)) for key, entry in holder.items()}
    kept = {key: value for key, value in holder.items() if key != step}
    if rest and holder.get(step):
        inside = _without(holder[step], tuple(rest))
        return {**kept, step: inside} if inside else kept
    return kept
