"""Conversion of manifests for Kueue (v1beta1, v1beta2), with a note on everything that is not converted.

Fields and defaults: https://kueue.sigs.k8s.io/docs/reference/ . Common kinds differ in group, in a
few names of v1beta1, and in features that do not exist here yet; jobs differ in their labels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from queuectl.core.events import PolicyInvalid
from queuectl.kinds.field_support import NO_CHECKS, NO_TOPOLOGY, leave_out
from queuectl.kinds.fields import clean
from queuectl.kinds.imports import Imported, Note
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.kinds.policy import POLICY_KINDS, drop_unknown, policy_event
from queuectl.kinds.policy_objects import API_VERSION
from queuectl.kinds.registry import KindRegistry

KUEUE: Final = "kueue.x-k8s.io"
_PREFIX: Final = f"{KUEUE}/"
_LABELS: Final = {
    f"{_PREFIX}queue-name": QUEUE_LABEL,
    f"{_PREFIX}priority-class": PRIORITY_LABEL,
    f"{_PREFIX}max-exec-time-seconds": "queuectl.dev/max-exec-time-seconds",
}
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_NOTE: Final = 300
_MAX_DEPTH: Final = 64

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
_ELSEWHERE: Final = {
    "fairSharing": "converted to Cohort.spec.fairSharing of each root cohort",
    "waitForPodsReady": "set `scheduling.waitForPodsReady.timeoutSeconds` and its requeuing fields in "
    "queuectl's configuration (docs/operations.md)",
    "admissionFairSharing": "set `scheduling.admissionFairSharing.usageHalfLifeSeconds` and its other "
    "fields in queuectl's configuration (docs/operations.md)",
    "resources": "set `scheduling.resources.transformations` and its other fields, with the same words, in "
    "queuectl's configuration (docs/operations.md)",
    "manageJobsWithoutQueueName": "apply manifests/default-queue: where a namespace has a LocalQueue named "
    "default, work without a queue label queues there (docs/install.md)",
    "managedJobsNamespaceSelector": "set it as namespaceSelector of the policies of manifests/default-queue "
    "(docs/install.md)",
}


_ABOVE: Final = {"ClusterQueue": "cohortName", "Cohort": "parentName"}


def import_kueue(documents: Iterable[tuple[str, Any]], kinds: KindRegistry) -> Imported:
    """`documents`: each with its place, such as `queues.yaml: line 3`, for notes on unnamed objects.

    Lists are split; objects that are not Kueue's are passed on, with Kueue's labels
    replaced. Raises nothing: a problem becomes a note.
    """
    objects: list[dict[str, Any]] = []
    policies: list[dict[str, Any]] = []
    notes: list[Note] = []
    fair: dict[str, Any] | None = None
    for where, document in _items(documents):
        problem = _no_object(document)
        if problem is not None:
            notes.append(Note(where, "", problem))
            continue
        group, kind = str(document["apiVersion"]).partition("/")[0], document["kind"]
        if kind == "Configuration" and group == f"config.{KUEUE}":
            fair = _configuration(document, notes)
        elif group != KUEUE:
            objects.append(_relabelled(document, kinds, notes))
        elif kind in POLICY_KINDS:
            made = list(_policy(document, notes))
            policies += made
            objects += made
        else:
            notes.append(Note(_name(document), "", NOT_THERE.get(kind, "there is no such kind here")))
    if fair is not None:
        objects += _share_fairly(policies, fair)
    return Imported(tuple(objects), tuple(notes))


def _items(documents: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for where, document in documents:
        if isinstance(document, Mapping) and isinstance(document.get("items"), list):
            yield from ((f"{where}: items[{number}]", item) for number, item in enumerate(document["items"]))
        else:
            yield where, document


def _no_object(document: Any) -> str | None:
    """Why it is not a Kubernetes object; None: it is one."""
    if not isinstance(document, Mapping):
        return f"a Kubernetes object is expected, this is {_kind_of(document)}"
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            return f"a Kubernetes object is expected: {field} is {_kind_of(document.get(field))}"
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    # A job may have generateName; policy objects are referred to by name.
    fields = ("name",) if document["apiVersion"].startswith(_PREFIX) else ("name", "generateName")
    named = document["kind"] == "Configuration" or any(isinstance(names.get(f), str) for f in fields)
    return None if named else "metadata.name is missing"


def _kind_of(value: Any) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    parts = (names.get("namespace"), document["kind"], names.get("name") or names.get("generateName"))
    return clean("/".join(str(part) for part in parts if part), _MAX_NOTE)


# --- policy ---------------------------------------------------------------------------------------------


def _policy(document: Mapping[str, Any], notes: list[Note]) -> Iterator[dict[str, Any]]:
    """The converted object, unless it breaks a rule of queuectl's kinds."""
    kind, name = document["kind"], _name(document)
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind, "metadata": _metadata(document)}
    made |= {
        field: copy.deepcopy(document[field])
        for field in ("spec", "value", "description")
        if field in document
    }
    spec = made.get("spec")
    if isinstance(spec, dict):
        for rename in _RENAMES.get(kind, ()):
            rename(spec)
        notes += [Note(name, path, why) for path, why in leave_out(kind, made).items()]
    event = policy_event(made)
    if isinstance(event, PolicyInvalid):
        notes.append(Note(name, "", f"{LEFT_OUT}{event.detail}"))
        return
    notes += [Note(name, clean(path, _MAX_NOTE), NO_SUCH_FIELD) for path in drop_unknown(made)]
    yield made


def _metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    """The object without fields that a server adds and without finalizers."""
    metadata = document["metadata"]
    found = {field: metadata[field] for field in ("name", "namespace") if field in metadata}
    for field in ("labels", "annotations"):
        marks = metadata.get(field)
        if isinstance(marks, Mapping) and (kept := {k: v for k, v in marks.items() if k != _LAST_APPLIED}):
            found[field] = kept
    return found


def _cohort_name(spec: dict[str, Any]) -> None:
    if "cohort" in spec:
        spec.setdefault("cohortName", spec["cohort"])
        del spec["cohort"]


def _parent_name(spec: dict[str, Any]) -> None:
    if "parent" in spec:
        spec.setdefault("parentName", spec["parent"])
        del spec["parent"]


def _fungibility(spec: dict[str, Any]) -> None:
    choices = spec.get("flavorFungibility")
    if isinstance(choices, dict):
        for field, value in choices.items():
            if value in ("Borrow", "Preempt"):
                choices[field] = "MayStopSearch"


_RENAMES: Final[Mapping[str, tuple[Callable[[dict[str, Any]], None], ...]]] = {
    "ClusterQueue": (_cohort_name, _fungibility),
    "Cohort": (_parent_name,),
}
"""From names of v1beta1 (and Cohort's v1alpha1) to those of v1beta2, which queuectl uses."""


# --- Kueue's own configuration --------------------------------------------------------------------------


def _configuration(document: Mapping[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    """Its fair sharing, for a root cohort; None: it is off."""
    for field in sorted(document.keys() - {"apiVersion", "kind", "metadata"}):
        why = _ELSEWHERE.get(field, "docs/operations.md describes queuectl's own configuration")
        notes.append(Note("Configuration", str(field), why))
    sharing = document.get("fairSharing")
    if not isinstance(sharing, Mapping) or sharing.get("enable") is False:
        return None
    fair: dict[str, Any] = {"enabled": True}
    if strategies := sharing.get("preemptionStrategies"):
        fair["preemptionStrategies"] = strategies
    return fair


def _share_fairly(policies: list[dict[str, Any]], fair: dict[str, Any]) -> list[dict[str, Any]]:
    """Set fair sharing on the root of every cohort tree. Returns roots that had no object."""
    cohorts = {policy["metadata"]["name"]: policy for policy in policies if policy["kind"] == "Cohort"}
    asked = [policy.get("spec", {}).get(_ABOVE.get(policy["kind"], "")) for policy in policies]
    made: list[dict[str, Any]] = [
        {"apiVersion": API_VERSION, "kind": "Cohort", "metadata": {"name": name}}
        for name in dict.fromkeys(name for name in asked if name and name not in cohorts)
    ]
    for cohort in (*cohorts.values(), *made):
        spec = cohort.setdefault("spec", {})
        if not spec.get("parentName"):
            spec["fairSharing"] = {**(spec.get("fairSharing") or {}), **fair}
    return made


# --- jobs -----------------------------------------------------------------------------------------------


def _relabelled(document: Mapping[str, Any], kinds: KindRegistry, notes: list[Note]) -> dict[str, Any]:
    """The same object with queuectl's labels instead of Kueue's, in its templates too."""
    made: dict[str, Any] = copy.deepcopy(dict(document))
    name, queued = _name(document), False
    for path, metadata in _all_metadata(made):
        for field in ("labels", "annotations"):
            marks = metadata.get(field)
            if not isinstance(marks, dict):
                continue
            for key in [key for key in marks if isinstance(key, str) and key.startswith(_PREFIX)]:
                value = marks.pop(key)
                if field == "labels" and key in _LABELS:
                    marks[_LABELS[key]] = value
                    queued = queued or _LABELS[key] == QUEUE_LABEL
                else:
                    notes.append(Note(name, f"{path}.{field}", f"{clean(key, 100)} has no meaning here"))
            if not marks:
                del metadata[field]
    kind = document["kind"]
    if queued and kind != "CronJob" and kinds.of(document["apiVersion"], kind) is None:
        what = f"{kind} is not queued: it runs without waiting (queued are {kinds.known()})"
        notes.append(Note(name, "", what))
    return made


def _all_metadata(obj: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each `metadata` in the object with its path, outermost first."""
    found: list[tuple[str, Any, int]] = [("", obj, 0)]
    while found:
        path, value, depth = found.pop()
        if depth > _MAX_DEPTH:
            continue
        if isinstance(value, dict):
            metadata = value.get("metadata")
            if isinstance(metadata, dict):
                yield f"{path}metadata", metadata
            found += [
                (f"{path}{key}.", inner, depth + 1) for key, inner in value.items() if key != "metadata"
            ]
        elif isinstance(value, list):
            found += [(f"{path[:-1]}[{n}].", inner, depth + 1) for n, inner in enumerate(value)]
