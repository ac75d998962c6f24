"""Conversion of manifests for Kueue (v1beta1, v1beta2), with a note on everything that is not converted.

Fields and defaults: https://kueue.sigs.k8s.io/docs/reference/ . Common kinds differ in group, in a
few names of v1beta1, and in features that do not exist here yet; jobs differ in their labels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from queuectl.core.model.events import PolicyInvalid
from queuectl.importers.kueue_configuration import configurations, fair_sharing, notes_of
from queuectl.importers.kueue_marks import KUEUE, is_kueues, meaning, remark
from queuectl.importers.result import Imported, Note, policy_object
from queuectl.kinds.field_support import NO_CHECKS, NO_TOPOLOGY, leave_out
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.json_fields import clean, kind_of
from queuectl.kinds.policy import POLICY_KINDS, drop_unknown, policy_event
from queuectl.kinds.policy_objects import API_VERSION

_PREFIX: Final = f"{KUEUE}/"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_NOTE: Final = 300

NOT_THERE: Final = {
    "AdmissionCheck": NO_CHECKS,
    "ProvisioningRequestConfig": NO_CHECKS,
    "MultiKueueConfig": "queuectl manages one cluster",
    "MultiKueueCluster": "queuectl manages one cluster",
    "Topology": NO_TOPOLOGY,
    "Workload": "it is Kueue's own record of a job: the job itself is queued again",
}
NO_SUCH_FIELD: Final = "there is no such field here"
LEFT_OUT: Final = "left out: "
_ABOVE: Final = {"ClusterQueue": "cohortName", "Cohort": "parentName"}
_OF_SERVERS: Final = frozenset(
    (
        *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
        "deletionGracePeriodSeconds",
    )
)
"""Fields of metadata that a server writes: a new object gets its own."""
_DELETED: Final = "it is being deleted, and is converted: remove it if it is to go"
_TWICE: Final = "is given twice: the last one counts"
_NO_CONFIGURATION: Final = (
    "not given: fair sharing is off, and no weight counts. Add the ConfigMap kueue-manager-config of "
    "kueue-system, or set spec.fairSharing.enabled of the root Cohorts"
)
_NO_NAMESPACES: Final = "no namespaceSelector: workloads of no namespace are admitted, as with Kueue"


def import_kueue(documents: Iterable[tuple[str, Any]], kinds: KindRegistry) -> Imported:
    """`documents`: each with its place, such as `queues.yaml: line 3`, for notes on unnamed objects.

    Lists are split; objects that are not Kueue's are passed on, with Kueue's labels
    replaced. Raises nothing: a problem becomes a note.
    """
    objects: list[dict[str, Any]] = []
    policies: dict[str, dict[str, Any]] = {}
    notes: list[Note] = []
    found: list[tuple[str, Mapping[str, Any]]] = []
    for where, document in _items(documents, notes):
        problem = _no_object(document)
        if problem is not None:
            notes.append(Note(where, "", problem))
            continue
        group, kind, name = document["apiVersion"].partition("/")[0], document["kind"], _name(document)
        given, others = configurations(document, name)
        found += given
        notes += others
        if given or others:
            continue
        if group != KUEUE and not group.endswith(f".{KUEUE}"):
            objects.append(_carried(document, kinds, notes))
        elif kind not in POLICY_KINDS or group != KUEUE:
            notes.append(Note(name, "", NOT_THERE.get(kind, "there is no such kind here")))
        elif made := _policy(document, notes):
            if before := policies.get(name):
                notes.append(Note(name, "", _TWICE, left_out=before != made))
                objects.remove(before)
            policies[name] = made
            objects.append(made)
    notes += [Note(name, "", f"left out: {found[0][0]} is used") for name, _ in found[1:]]
    if found:
        notes += notes_of(*found[0], kinds)
        fair, told = fair_sharing(*found[0])
        notes += told
        objects += _share_fairly(list(policies.values()), fair) if fair is not None else []
    elif any(policy["kind"] in _ABOVE for policy in policies.values()):
        notes.append(Note("Configuration", "fairSharing", _NO_CONFIGURATION, left_out=False))
    return Imported(tuple(objects), tuple(notes))


def _items(documents: Iterable[tuple[str, Any]], notes: list[Note]) -> Iterator[tuple[str, Any]]:
    """The objects, those of lists and of lists in lists too."""
    for where, document in documents:
        kind = document.get("kind") if isinstance(document, Mapping) else None
        if not isinstance(kind, str) or not kind.endswith("List"):
            yield where, document
            continue
        items, metadata = document.get("items"), document.get("metadata")
        if isinstance(metadata, Mapping) and metadata.get("continue"):
            notes.append(Note(where, "metadata.continue", "a part of a longer list: the rest is missing"))
        if isinstance(items, list):
            inner = ((f"{where}: items[{number}]", item) for number, item in enumerate(items))
            yield from _items(inner, notes)
        elif items is not None:
            notes.append(Note(where, "items", f"a list is expected, this is {_kind_of(items)}"))


def _no_object(document: Any) -> str | None:
    """Why it is not a Kubernetes object; None: it is one."""
    if not isinstance(document, Mapping):
        return f"a Kubernetes object is expected, this is {_kind_of(document)}"
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            return f"a Kubernetes object is expected: {field} is {_kind_of(document.get(field))}"
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    namespace = names.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        return f"metadata.namespace is {_kind_of(namespace)}: it must be text"
    # A job may have generateName; policy objects are referred to by name.
    fields = ("name",) if document["apiVersion"].startswith(_PREFIX) else ("name", "generateName")
    named = document["kind"] == "Configuration" or any(isinstance(names.get(f), str) for f in fields)
    return None if named else f"metadata.name is {_kind_of(names.get('name'))}: it must be text"


def _kind_of(value: Any) -> str:
    return "missing" if value is None else kind_of(value)


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    parts = (names.get("namespace"), document["kind"], names.get("name") or names.get("generateName"))
    return clean("/".join(str(part) for part in parts if part), _MAX_NOTE)


# --- policy ---------------------------------------------------------------------------------------------


def _policy(document: Mapping[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    """The converted object; None: it breaks a rule of queuectl's kinds."""
    kind, name = document["kind"], _name(document)
    metadata = _metadata(document["metadata"], name, notes)
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}
    made |= {
        field: _without_fractions(copy.deepcopy(document[field]))
        for field in ("spec", "value", "description")
        if field in document
    }
    unknown = sorted(map(str, document.keys() - made.keys() - {"status"}))
    notes += [Note(name, clean(field, _MAX_NOTE), NO_SUCH_FIELD) for field in unknown]
    spec = made.get("spec")
    if isinstance(spec, dict):
        for rename in _RENAMES.get(kind, ()):
            notes += [Note(name, f"spec.{field}", why) for field, why in rename(spec)]
        notes += [Note(name, path, why) for path, why in leave_out(kind, made).items()]
    event = policy_event(made)
    if isinstance(event, PolicyInvalid):
        notes.append(Note(name, "", f"{LEFT_OUT}{event.detail}"))
        return None
    notes += [Note(name, clean(path, _MAX_NOTE), NO_SUCH_FIELD) for path in drop_unknown(made)]
    if kind == "ClusterQueue" and (made.get("spec") or {}).get("namespaceSelector") is None:
        notes.append(Note(name, "spec.namespaceSelector", _NO_NAMESPACES, left_out=False))
    return made


def _metadata(metadata: Mapping[str, Any], name: str, notes: list[Note]) -> dict[str, Any]:
    """That of the object without what a server adds, and without Kueue's marks."""
    found: dict[str, Any] = {}
    for field, value in metadata.items():
        if field in ("name", "namespace"):
            found[field] = value
        elif field in ("labels", "annotations") and isinstance(value, Mapping):
            notes += [Note(name, f"metadata.{field}", meaning(key)) for key in value if is_kueues(key)]
            kept = {k: v for k, v in value.items() if k != _LAST_APPLIED and not is_kueues(k)}
            for key in [key for key in kept if not isinstance(kept[key], str)]:
                what = f"{clean(key, 100)} is {_kind_of(kept.pop(key))}: it must be text"
                notes.append(Note(name, f"metadata.{field}", what))
            found |= {field: kept} if kept else {}
        elif field == "finalizers" and isinstance(value, list) and all(map(is_kueues, value)):
            pass  # Kueue would take its own off
        elif field == "deletionTimestamp":
            notes.append(Note(name, "metadata.deletionTimestamp", _DELETED))
        elif field not in _OF_SERVERS and value not in (None, [], {}):
            notes.append(
                Note(name, clean(f"metadata.{field}", _MAX_NOTE), "is not carried over: set it yourself")
            )
    return found


def _without_fractions(value: Any) -> Any:
    """The same with text for numbers with a fraction: a quantity is a whole number or text."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: _without_fractions(item) for key, item in value.items()}
    return [_without_fractions(item) for item in value] if isinstance(value, list) else value


Renamed = Iterator[tuple[str, str]]
"""Fields that are not carried over, and why."""


def _renamed(old: str, new: str) -> Callable[[dict[str, Any]], Renamed]:
    def rename(spec: dict[str, Any]) -> Renamed:
        if old not in spec:
            return
        value = spec.pop(old)
        if spec.setdefault(new, value) != value:
            yield old, f"{new} is set too, and applies"

    return rename


def _fungibility(spec: dict[str, Any]) -> Renamed:
    choices = spec.get("flavorFungibility")
    if isinstance(choices, dict):
        for field, value in choices.items():
            if value in ("Borrow", "Preempt"):
                choices[field] = "MayStopSearch"
    yield from ()


_RENAMES: Final[Mapping[str, tuple[Callable[[dict[str, Any]], Renamed], ...]]] = {
    "ClusterQueue": (_renamed("cohort", "cohortName"), _fungibility),
    "Cohort": (_renamed("parent", "parentName"),),
}
"""From names of v1beta1 (and Cohort's v1alpha1) to those of v1beta2, which queuectl uses."""


def _share_fairly(policies: list[dict[str, Any]], fair: dict[str, Any]) -> list[dict[str, Any]]:
    """Set fair sharing on the root of every cohort tree. Returns roots that had no object."""
    cohorts = {policy["metadata"]["name"]: policy for policy in policies if policy["kind"] == "Cohort"}
    asked = [policy.get("spec", {}).get(_ABOVE.get(policy["kind"], "")) for policy in policies]
    made = [
        policy_object("Cohort", name)
        for name in dict.fromkeys(name for name in asked if name and name not in cohorts)
    ]
    for cohort in (*cohorts.values(), *made):
        spec = cohort.setdefault("spec", {})
        if not spec.get("parentName"):
            spec["fairSharing"] = {**(spec.get("fairSharing") or {}), **fair}
    return made


# --- work -----------------------------------------------------------------------------------------------


def _carried(document: Mapping[str, Any], kinds: KindRegistry, notes: list[Note]) -> dict[str, Any]:
    """The same object with queuectl's marks instead of Kueue's, in its templates too.

    What a server writes is left out: `kubectl apply` creates no object that has it.
    """
    made: dict[str, Any] = copy.deepcopy({key: document[key] for key in document if key != "status"})
    metadata = made.get("metadata")
    if isinstance(metadata, dict):
        if metadata.pop("deletionTimestamp", None) is not None:
            notes.append(Note(_name(document), "metadata.deletionTimestamp", _DELETED))
        for field in _OF_SERVERS & metadata.keys():
            del metadata[field]
    remark(made, _name(document), kinds, notes)
    return made
