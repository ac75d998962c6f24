"""Kueue's marks on work, such as labels: which are carried over, and what the others mean here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard

from queuectl.importers.result import Note
from queuectl.kinds.field_support import NO_CHECKS, NO_TOPOLOGY
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL, KindRegistry
from queuectl.kinds.json_fields import clean
from queuectl.kinds.labels import MAX_RUN_LABEL
from queuectl.kinds.reserved_keys import GROUP_INDEX, GROUP_LABEL, GROUP_SIZE

KUEUE: Final = "kueue.x-k8s.io"
_P: Final = f"{KUEUE}/"
_LABELS: Final = {
    f"{_P}queue-name": QUEUE_LABEL,
    f"{_P}priority-class": PRIORITY_LABEL,
    f"{_P}max-exec-time-seconds": MAX_RUN_LABEL,
    f"{_P}pod-group-name": GROUP_LABEL,
    f"{_P}pod-group-pod-index": GROUP_INDEX,
}
_ANNOTATIONS: Final = {
    f"{_P}job-min-parallelism": "queuectl.dev/min-parallelism",
    f"{_P}job-completions-equal-parallelism": "queuectl.dev/completions-equal-parallelism",
    f"{_P}pod-group-total-count": GROUP_SIZE,
}
CARRIED: Final = {**_LABELS, **_ANNOTATIONS}

ONLY_PODS: Final = (
    "its pods queue, each by itself or as a group, with `kinds: [Pod]` in queuectl's configuration and a "
    "queue label of their own; else they run without waiting (docs/kinds.md)"
)
_OF_PODS: Final = frozenset({"Pod", "ReplicaSet", "Deployment", "StatefulSet", "LeaderWorkerSet"})

_GROUPS: Final = "a group starts once all of its pods exist, and ends with them (docs/serving.md)"
_OWN: Final = "Kueue writes it itself: nothing is lost"
_PLACED: Final = f"{NO_TOPOLOGY}: require the domain by affinity of the pods"
_DROPPED: Final = {
    f"{_P}pod-group-fast-admission": _GROUPS,
    f"{_P}pod-group-serving": _GROUPS,
    f"{_P}pod-group-pod-index-label": _GROUPS,
    f"{_P}retriable-in-group": _GROUPS,
    f"{_P}role-hash": _OWN,
    f"{_P}managed": _OWN,
    f"{_P}podset": _OWN,
    f"{_P}workload": _OWN,
    f"{_P}tas": _OWN,
    f"{_P}is-group-workload": _OWN,
    f"{_P}admission": "remove it: nothing removes this scheduling gate here, and its pods would not start",
    f"{_P}resource-in-use": _OWN,
    f"{_P}prebuilt-workload-name": "there are no Workload objects: the queue label queues the object",
    f"{_P}elastic-job": "a workload that runs does not grow: set queuectl.dev/min-parallelism to start "
    "with fewer pods",
    f"{_P}priority-boost": "set a WorkloadPriorityClass with a higher value: `queuectl priority`",
    f"{_P}admission-gated-by": 'set the annotation queuectl.dev/hold: "true"; `queuectl release` ends it',
    f"{_P}safe-to-forcefully-delete": "quota returns when the pods are gone (docs/operations.md)",
    f"{_P}podset-required-topology": _PLACED,
    f"{_P}podset-preferred-topology": _PLACED,
    f"{_P}podset-unconstrained-topology": f"{NO_TOPOLOGY}: without it pods are placed anywhere, as this asks",
    f"{_P}podset-slice-required-topology": _PLACED,
    f"{_P}podset-slice-size": _PLACED,
    f"{_P}podset-group-name": _PLACED,
}
_BY_PREFIX: Final = {
    f"provreq.{KUEUE}": f"{NO_CHECKS}: nodes are made by an autoscaler for the pods that have started",
    f"multikueue.{KUEUE}": "queuectl manages one cluster",
}
_UNKNOWN: Final = "has no meaning here: remove it, or keep this work in Kueue"
_MAX_DEPTH: Final = 64


def is_kueues(text: object) -> bool:
    """Whether the text is the name of a mark of Kueue's, such as a label, an annotation or a finalizer."""
    if not isinstance(text, str):
        return False
    domain, slash, _ = text.partition("/")
    return bool(slash) and (domain == KUEUE or domain.endswith(f".{KUEUE}"))


def meaning(key: str) -> str:
    """What a mark that is not carried over means here, and what to do."""
    known = _DROPPED.get(key) or _BY_PREFIX.get(key.partition("/")[0])
    return f"{clean(key, 100)}: {known}" if known else f"{clean(key, 100)} {_UNKNOWN}"


def remark(made: dict[str, Any], name: str, kinds: KindRegistry, notes: list[Note]) -> None:
    """Replace Kueue's marks in the object and its templates by queuectl's; a note on each that is dropped."""
    outer, inner = None, None
    for path, value in _objects(made):
        if path.rpartition(".")[2] == "metadata":
            for field in ("labels", "annotations"):
                _marks(value, field, f"{path}.{field}", name, notes)
            _finalizers(value, f"{path}.finalizers", name, notes)
            queue = (value.get("labels") or {}).get(QUEUE_LABEL) if _is_map(value.get("labels")) else None
            if queue is not None and path == "metadata":
                outer = queue
            elif queue is not None:
                inner = queue
        else:
            _mentions(value, path, name, notes)
    _place_of_the_queue(made, name, kinds, (outer, inner), notes)


def _place_of_the_queue(
    made: Mapping[str, Any], name: str, kinds: KindRegistry, queues: tuple[Any, Any], notes: list[Note]
) -> None:
    outer, inner = queues
    kind = made["kind"]
    if outer is None and inner is None:
        return
    if kind == "CronJob":
        template = made.get("spec", {}).get("jobTemplate", {}) if _is_map(made.get("spec")) else {}
        metadata = template.get("metadata") if _is_map(template) else None
        labels = metadata.get("labels") if _is_map(metadata) else None
        if not _is_map(labels) or QUEUE_LABEL not in labels:
            text = f"its Jobs have no queue: move {QUEUE_LABEL} to spec.jobTemplate.metadata.labels"
            notes.append(Note(name, "metadata.labels", text))
    elif kind in _OF_PODS:
        notes.append(Note(name, "", f"{kind}: {ONLY_PODS}"))
    elif kinds.of(made["apiVersion"], kind) is None:
        text = f"{kind} is not queued: it runs without waiting (queued are {kinds.known()})"
        notes.append(Note(name, "", text))
    elif outer is None:
        text = f"only a label of the object queues it: move {QUEUE_LABEL} to metadata.labels"
        notes.append(Note(name, "", text))


def _marks(metadata: dict[str, Any], field: str, path: str, name: str, notes: list[Note]) -> None:
    marks = metadata.get(field)
    if not _is_map(marks):
        return
    carried = _LABELS if field == "labels" else _ANNOTATIONS
    kueues = [key for key in marks if is_kueues(key)]
    for key in kueues:
        value = marks.pop(key)
        ours = carried.get(key)
        if ours is None:
            wrong = CARRIED.get(key)
            other = "an annotation" if field == "labels" else "a label"
            text = f"{key}: Kueue reads it as {other}: set {wrong} there" if wrong else meaning(key)
            notes.append(Note(name, path, text))
        elif ours in marks and marks[ours] != value:
            notes.append(Note(name, path, f"{key}: {ours} is set too, and applies"))
        else:
            marks[ours] = value
    if kueues and not marks:
        del metadata[field]


def _finalizers(metadata: dict[str, Any], path: str, name: str, notes: list[Note]) -> None:
    given = metadata.get("finalizers")
    if isinstance(given, list) and any(map(is_kueues, given)):
        notes += [Note(name, path, meaning(one)) for one in filter(is_kueues, given)]
        metadata["finalizers"] = [one for one in given if not is_kueues(one)]


def _mentions(value: dict[str, Any], path: str, name: str, notes: list[Note]) -> None:
    """Selectors follow the labels; other places that name a mark of Kueue's stay, with a note."""
    for key in [key for key in value if is_kueues(key)]:
        if key in _LABELS and _LABELS[key] not in value:
            value[_LABELS[key]] = value.pop(key)
        else:
            notes.append(Note(name, path, f"kept as it is. {meaning(key)}"))
    for key, item in value.items():
        for number, text in enumerate(item if isinstance(item, list) else [item]):
            if not isinstance(text, str) or KUEUE not in text:
                continue
            if key == "key" and text in _LABELS:
                value[key] = _LABELS[text]
                continue
            where = f"{path}.{key}".lstrip(".") + (f"[{number}]" if isinstance(item, list) else "")
            names = meaning(text) if is_kueues(text) else f"{clean(text, 100)!r} names Kueue"
            notes.append(Note(name, clean(where, 200), f"kept as it is. {names}"))


def _objects(obj: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object in the object with its path, outermost first; not what labels and annotations say."""
    left: list[tuple[str, Any, int]] = [("", obj, 0)]
    while left:
        path, value, depth = left.pop()
        if depth > _MAX_DEPTH:
            continue
        if isinstance(value, dict):
            yield path, value
            if path.rpartition(".")[2] == "metadata":
                continue
            left += [
                (f"{path}.{key}".lstrip("."), inner, depth + 1) for key, inner in reversed(value.items())
            ]
        elif isinstance(value, list):
            left += [(f"{path}[{n}]", inner, depth + 1) for n, inner in reversed(list(enumerate(value)))]


def _is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
