"""The gate's policies in Python: in force only while policy and binding are stored objects.

The policies themselves are tested only on a real API server; this one gives the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, Seen, value_at
from queuectl.kinds.json_fields import BadField
from queuectl.kinds.labels import KUEUE_QUEUE_LABEL, KUEUES_TOO, OWN, first
from queuectl.kinds.manifests import policy_name
from queuectl.kinds.owners import controlling
from queuectl.kinds.podsets import Computed, Each, Numbered, Own, Place
from queuectl.kinds.registry import KindRegistry
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    BYPASS_ANNOTATION,
    POD_LABELS,
    REASON_OF_BYPASS,
    RELEASE_ANNOTATION,
    RESERVED,
    SUBMITTER_ANNOTATION,
    WORKLOAD_LABEL,
)
from queuectl.kinds.start_patch import pointer
from queuectl.sandbox.kubernetes.identities import CONTROLLER_USER, Access, User, allowed
from queuectl.sandbox.kubernetes.resources import Kind
from queuectl.sandbox.kubernetes.store import Store
from queuectl.sandbox.kubernetes.wire import Json

UNQUEUED_POLICY = "queuectl-self"
PODS_POLICY = "queuectl-pods"
SUSPEND_POLICY = "queuectl-suspend"
BYPASS_POLICY = "queuectl-bypass"
DEFAULT_QUEUE_POLICY = "queuectl-default-queue"
_DEFAULT = "default"
_NOT_DEFAULTED = ("kube-system", "queuectl-system")
Labels = tuple[str, ...]

_CONFINED = (
    "updates jobs, and neither creates nor deletes them",
    "writes no field of the spec but suspend, numbers of pods that it reduces and restores, and of pod "
    "templates nodeSelector, tolerations and its own labels",
    "writes no metadata but annotations queuectl.dev/reserved-*",
    "takes startTime out of a status or makes Suspended Unknown, and writes nothing else there",
)
"""What queuectl's own service account may do: the texts of the first validation."""
_REFUSED = 13
"""Place of the validation whose message is the reason for which an object can't be queued as it is."""
_QUEUED = "queued"
"""Name of the condition by which manifests/kueue-labels selects objects."""


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
            self._validate_pod(kind, old, new, user)
            return
        if user.name == CONTROLLER_USER:
            self._confine(kind, row, old, new, subresource)
        elif new and not self._by_controller_of_owner(new, user):
            if old is None and self._defaulted("validating", new):
                self._deny(kind, row, new, DEFAULT_QUEUE_POLICY, iter([0]))
            if self._in_force("validating", policy := policy_name(row)):
                labels = self._labels("validating", policy)
                if _managed(labels, old, new):
                    self._deny(kind, row, new, policy, _refusals(row, _Request(labels, old, new, user)))

    def _confine(
        self, kind: Kind, row: JobKind, old: Json | None, new: Json | None, subresource: str
    ) -> None:
        """Refuse to queuectl's own service account what is not its duty."""
        obj = new or old or {}
        if self._in_force("validating", UNQUEUED_POLICY):
            labels = self._labels("validating", UNQUEUED_POLICY)
            unqueued = any(one and not _managed(labels, None, one) for one in (old, new))
            self._deny(kind, row, obj, UNQUEUED_POLICY, iter([0] if unqueued else []))
        if self._in_force("validating", policy := policy_name(row)):
            place = next(_beyond_duty(row, old, new, subresource), None)
            if place is not None:
                text = f"queuectl's service account {_CONFINED[place]}"
                raise _forbidden(kind, obj, policy, text)

    def _validate_pod(self, kind: Kind, old: Json | None, new: Json | None, user: User) -> None:
        """Refuse a label that says for which workload a pod is counted. Raises ApiError."""
        pods = (kind.group, kind.plural) == ("", "pods")
        if not pods or new is None or not self._in_force("validating", PODS_POLICY):
            return
        had, has = (_own_pod_labels(obj) if obj else None for obj in (old, new))
        if WORKLOAD_LABEL not in {**(had or {}), **(has or {})}:
            return
        owned = any(owner.get("controller") is True for owner in new["metadata"].get("ownerReferences") or ())
        allowed_to = owned and allowed(user, Access("create", "", "pods"))
        failed = 0 if old is None and not allowed_to else 2 if old is not None and had != has else None
        if failed is not None:
            raise _forbidden(kind, new, PODS_POLICY, self._message(PODS_POLICY, failed))

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
        spec = stored.read()["spec"]
        selector = (spec.get("matchConstraints") or {}).get("objectSelector")
        queued = [one for one in spec.get("matchConditions") or () if one.get("name") == _QUEUED]
        return (KUEUES_TOO if KUEUE_QUEUE_LABEL in str((selector, queued)) else OWN).queue

    def _deny(self, kind: Kind, row: JobKind, new: Json, policy: str, failed: Iterator[int]) -> None:
        """Refuse with the message of the first validation that failed."""
        place = next(failed, None)
        if place is not None:
            text = str(row.refusal(new)) if place == _REFUSED else self._message(policy, place)
            raise _forbidden(kind, new, policy, text)

    def _message(self, policy: str, place: int) -> str:
        """The message of a validation of a stored policy."""
        stored = self._store.collection("validatingadmissionpolicies.admissionregistration.k8s.io")[
            "", policy
        ]
        validations = stored.read()["spec"].get("validations") or ()
        validation = validations[place] if place < len(validations) else {}
        return str(validation.get("message", f"failed validation {place}"))


def _forbidden(kind: Kind, obj: Json, policy: str, message: str) -> Exception:
    text = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
    return kind.refusal(403, obj["metadata"]["name"], f"{{}} is forbidden: {text}")


class _Request:
    """A write of a queued object by a user, and what is the same in all its rules."""

    def __init__(self, labels: Labels, old: Json | None, new: Json, user: User) -> None:
        self.old, self.new, self.user = old, new, user
        self.queue, self.had_queue = _queue(labels, new), _queue(labels, old) if old else None
        self.reserved = _reserved(new)
        # What was written before the object had a queue label counts as new.
        before = old["metadata"].get("annotations") or {} if old and self.had_queue is not None else {}
        self.had_reserved = {name: value for name, value in before.items() if name.startswith(RESERVED)}
        self.reason = (new["metadata"].get("annotations") or {}).get(REASON_OF_BYPASS)
        self.reason_is_new = self.reason != before.get(REASON_OF_BYPASS)
        self.may_bypass = allowed(user, Access("bypass", "queuectl.dev", "workloads"))

    @property
    def bypasses(self) -> bool:
        """It has the right to start it past its queue, and a reason that this request writes."""
        said = self.reason_is_new and bool((self.reason or "").strip())
        return self.old is not None and said and self.may_bypass


# The functions below yield indexes of failed `spec.validations`, in the order of the policy.


def _refusals(kind: JobKind, request: _Request) -> Iterator[int]:
    old, new = request.old, request.new
    suspended = kind.suspended(new)
    runs = old is not None and not kind.suspended(old)
    if old is None and not suspended:
        yield 1
    if old is not None and not runs and not suspended and not request.bypasses:
        yield 2
    if old is not None and runs and suspended and kind.outcome(old) is None:
        yield 3
    yield from _about_the_queue(request, runs)
    if old is not None and runs:
        yield from _while_it_runs(kind, old, new)
    yield from _about_annotations(request)
    refusal, before = kind.refusal(new), kind.refusal(old) if old else None
    if refusal and (request.had_queue is None or str(refusal) != str(before)):
        yield _REFUSED


def _about_the_queue(request: _Request, runs: bool) -> Iterator[int]:
    if request.queue is None:
        yield 4
    if request.queue == "" and request.had_queue != "":
        yield 5
    if runs and request.queue != request.had_queue:
        yield 6


def _about_annotations(request: _Request) -> Iterator[int]:
    if not _reserved_kept(request):
        yield 10
    release = request.reserved.get(RELEASE_ANNOTATION)
    changed = release != request.had_reserved.get(RELEASE_ANNOTATION)
    if changed and not _may_release(request.new, request.user):
        yield 11
    if request.reason_is_new and not request.may_bypass:
        yield 12


def _reserved_kept(request: _Request) -> bool:
    """Whether the annotations of queuectl are as they were, but for those that the request may write."""
    written = {BYPASS_ANNOTATION} if request.bypasses else set()
    if request.had_queue is None:
        written.add(SUBMITTER_ANNOTATION)
    now, had = dict(request.reserved), dict(request.had_reserved)
    if request.had_queue is not None:
        now.pop(RELEASE_ANNOTATION, None)
    had.pop(RELEASE_ANNOTATION, None)
    changed = {name for name in {*now, *had} if now.get(name) != had.get(name)}
    by = request.user.name
    if request.bypasses and now.get(BYPASS_ANNOTATION, by) != by:
        return False
    return changed <= written and all(now.get(name) == by for name in changed)


def _while_it_runs(kind: JobKind, old: Json, new: Json) -> Iterator[int]:
    parts, had = _parts(kind, new), _parts(kind, old)
    if any(name not in had or part.pods > had[name].pods for name, part in parts.items()):
        yield 7
    if any(name in had and _charged(part) != _charged(had[name]) for name, part in parts.items()):
        yield 8
    if _fixed(kind, new) != _fixed(kind, old):
        yield 9


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


def _may_release(obj: Json, user: User) -> bool:
    """May the user release its quota by force, and does so in its own name?"""
    if not allowed(user, Access("force-release", "queuectl.dev", "workloads")):
        return False
    if not (text := _reserved(obj).get(RELEASE_ANNOTATION)):
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


def _queue(labels: Labels, obj: Json) -> str | None:
    queue: str | None = first(labels, obj["metadata"].get("labels") or {})
    return queue


def _own_pod_labels(obj: Json) -> dict[str, str]:
    """The labels of a pod that queuectl writes."""
    labels = obj["metadata"].get("labels") or {}
    return {label: labels[label] for label in POD_LABELS if label in labels}


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
