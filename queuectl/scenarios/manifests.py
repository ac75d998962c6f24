"""Converts manifests in a document, as accepted by the API server, to events of the core."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeGuard

from queuectl.core.model.events import ContextObserved, Event, PolicyInvalid, PolicyObserved
from queuectl.core.model.policy import Namespace, Node
from queuectl.importers.kueue import LEFT_OUT, NO_SUCH_FIELD, NOT_THERE, import_kueue
from queuectl.importers.kueue_marks import KUEUE
from queuectl.kinds.context import CONTEXT_KINDS, as_created
from queuectl.kinds.field_support import unsupported
from queuectl.kinds.jobs import KindRegistry, conditions
from queuectl.kinds.json_fields import BadField, Json
from queuectl.kinds.policy import POLICY_KINDS, drop_unknown, policy_event
from queuectl.kinds.policy_objects import API_VERSION, GROUP

Path = tuple[int | str, ...]
"""Keys and indexes on the way to a value within a document."""

_CLUSTER: Final = ("Namespace", "Node")
_CONTEXT: Final = ("LimitRange", "ResourceQuota", "PriorityClass", "RuntimeClass", "ResourceClaimTemplate")
_NO_JOBS: Final = KindRegistry(())
"""Only objects of Kueue's own kinds are converted here."""
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class BadDocument(ValueError):
    """An error in a document: `path` is its place, the message names the problem."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class Manifests(NamedTuple):
    events: tuple[Event, ...] = ()
    without: tuple[str, ...] = ()
    """Their fields that are not supported yet."""

    @property
    def node_names(self) -> set[str]:
        return {event.value.name for event in self.events if _is_node(event)}

    def without_nodes(self, names: set[str]) -> Manifests:
        kept = (event for event in self.events if not (_is_node(event) and event.value.name in names))
        return self._replace(events=tuple(kept))

    def under(self, others: Manifests) -> Manifests:
        """These objects, without those that are in `others` too."""
        given = set(map(_subject, others.events))
        kept = tuple(event for event in self.events if _subject(event) not in given)
        return Manifests((*kept, *others.events), (*self.without, *others.without))


def _is_node(event: Event) -> TypeGuard[ContextObserved]:
    return isinstance(event, ContextObserved) and isinstance(event.value, Node)


def _subject(event: Event) -> object:
    assert isinstance(event, PolicyObserved | ContextObserved)
    return event.key if isinstance(event, PolicyObserved) else (type(event.value), event.value.name)


def read_manifests(objects: Sequence[Json]) -> Manifests:
    """Raises BadDocument."""
    events: list[Event] = []
    without: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    for number, obj in enumerate(objects):
        here: Path = ("objects", number)
        kind, namespace, name = _identity(obj, here)
        if (kind, namespace, name) in seen:
            raise BadDocument(here, f"{kind} {name} is given twice")
        seen.add((kind, namespace, name))
        group = obj["apiVersion"].partition("/")[0]
        if kind in NOT_THERE:
            without.append(f"{kind} {name}: {NOT_THERE[kind]}")
        elif group in (KUEUE, GROUP) and kind in POLICY_KINDS:
            policy = _converted(obj, here, without) if group == KUEUE else obj
            events.append(_policy(policy, namespace, here, without))
        elif (group, kind) == ("v1", "Namespace"):
            events.append(_namespace(obj, here))
        elif (group, kind) == ("v1", "Node"):
            events.append(_node(obj, here))
        elif _is_context(group, kind):
            events.append(_context(obj, namespace, here))
        else:
            known = ", ".join((*POLICY_KINDS, *_CLUSTER, *_CONTEXT))
            raise BadDocument((*here, "kind"), f"{kind} of {obj['apiVersion']} is none of {known}")
    return Manifests(tuple(events), tuple(without))


def concerns(obj: object) -> bool:
    """Whether its kind is used here, among manifests of all kinds."""
    if not isinstance(obj, dict):
        return True  # its error is reported later
    group = str(obj.get("apiVersion", GROUP)).partition("/")[0]
    kind = obj.get("kind")
    return group in (GROUP, KUEUE) or (group == "v1" and kind in _CLUSTER) or _is_context(group, kind)


def _is_context(group: str, kind: object) -> bool:
    return kind in _CONTEXT and group == (CONTEXT_KINDS[str(kind)].group or "v1")


def _identity(obj: Json, here: Path) -> tuple[str, str, str]:
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            raise BadDocument((*here, field), f"{field} is missing, or no text")
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise BadDocument((*here, "metadata", "name"), "metadata.name is missing, or no text")
    kind = obj["kind"]
    if kind in POLICY_KINDS and not POLICY_KINDS[kind].namespaced:
        return kind, "", name
    namespaced = kind in POLICY_KINDS or (kind in _CONTEXT and CONTEXT_KINDS[kind].namespaced)
    namespace = metadata.get("namespace") or ("default" if namespaced else "")
    if not isinstance(namespace, str):
        raise BadDocument((*here, "metadata", "namespace"), "must be text")
    return kind, namespace, name


def _converted(obj: Json, here: Path, without: list[str]) -> Json:
    """Convert an object of Kueue's kinds to ours."""
    found = import_kueue([("", obj)], _NO_JOBS)
    for note in found.notes:
        if note.text.startswith(LEFT_OUT):
            raise _placed(here, note.text.removeprefix(LEFT_OUT))
        if note.text == NO_SUCH_FIELD:
            raise BadDocument((*here, *_steps(note.field)), note.text)
        if note.left_out:
            without.append(f"{note.object} {note.field}: {note.text}")
    return found.objects[0]


def _policy(obj: Json, namespace: str, here: Path, without: list[str]) -> PolicyObserved:
    if obj["apiVersion"] != API_VERSION:
        raise BadDocument((*here, "apiVersion"), f"must be {API_VERSION}")
    whole = {**copy.deepcopy(dict(obj)), "metadata": {**obj["metadata"], "namespace": namespace}}
    event = policy_event(whole)
    if isinstance(event, PolicyInvalid):
        raise _placed(here, event.detail)
    for path in drop_unknown(whole):
        raise BadDocument((*here, *_steps(path)), NO_SUCH_FIELD)
    without += [f"{event.key} {field}" for field in unsupported(obj["kind"], whole)]
    return event


def _namespace(obj: Json, here: Path) -> ContextObserved:
    labels = obj["metadata"].get("labels")
    if not (labels is None or isinstance(labels, dict)):
        raise BadDocument((*here, "metadata", "labels"), "must be an object")
    found = CONTEXT_KINDS["Namespace"].observe(obj)
    if not isinstance(found, Namespace):
        raise BadDocument((*here, "metadata"), "can't be read as a Namespace")
    return ContextObserved(as_created(found))


def _node(obj: Json, here: Path) -> ContextObserved:
    """Ready unless it says something else, and for long: its times are not those of the document."""
    try:
        found = CONTEXT_KINDS["Node"].read(obj)
        ready = conditions(obj).get("Ready", "True") == "True"
    except BadField as problem:
        raise _placed(here, str(problem)) from None
    assert isinstance(found, Node)
    return ContextObserved(replace(found, ready=ready, ready_since=None, created_at=None))


def _context(obj: Json, namespace: str, here: Path) -> ContextObserved:
    whole = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    try:
        return ContextObserved(CONTEXT_KINDS[obj["kind"]].read(whole))
    except BadField as problem:
        raise _placed(here, str(problem)) from None


def _placed(here: Path, detail: str) -> BadDocument:
    """`detail` starts with the path in the object: `spec.resourceGroups[0]: ...`."""
    path, _, message = detail.partition(": ")
    return BadDocument((*here, *_steps(path)), message or detail)


def _steps(path: str) -> Iterator[int | str]:
    for number, key in _STEP.findall(path):
        yield int(number) if number else key
