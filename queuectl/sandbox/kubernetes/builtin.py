"""Rules of built-in kinds beyond their schema: computed fields, immutable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from queuectl.kinds.context import NAMESPACE_NAME_LABEL
from queuectl.kinds.jobs import conditions
from queuectl.sandbox.kubernetes.resources import CRDS, EVENTS, JOBS, NAMESPACES, PODS, ServedKind
from queuectl.sandbox.kubernetes.wire import Json, StatusCause, required

_JOB_FROZEN = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_RULE = "begin and end with an alphanumeric character, with '-', '_', '.' between"
_MAX_ANNOTATIONS = 256 * 1024
_DNS_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")


def fill_defaults(kind: ServedKind, obj: Json) -> None:
    """Defaults that depend on other fields, after the schema's; the same on create and update."""
    if kind.collection == JOBS:
        _job_defaults(obj["spec"])
        _container_defaults(obj["spec"]["template"]["spec"])
    elif kind.collection == PODS:
        _container_defaults(obj["spec"])
        for resources in (container["resources"] for container in _containers(obj["spec"])):
            if limits := resources.get("limits"):
                resources["requests"] = {**limits, **(resources.get("requests") or {})}


def prepare_create(kind: ServedKind, obj: Json) -> None:
    """Fields that the server sets on a new object, after its metadata."""
    metadata = obj["metadata"]
    if kind.status and kind.collection != "nodes":
        obj.pop("status", None)
        if not kind.custom:
            obj["status"] = {}
    if kind.collection == JOBS:
        _job_selector(obj)
    elif kind.collection == PODS:
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    elif kind.collection == NAMESPACES:
        metadata.setdefault("labels", {})[NAMESPACE_NAME_LABEL] = metadata["name"]
        obj.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
    elif kind.collection == CRDS:
        obj["status"] = _accepted(obj)


def spec_changed(old: Json, new: Json, *, status: bool) -> bool:
    """Whether anything but metadata changed. `status` counts if it is not a subresource."""
    names = (old.keys() | new.keys()) - {"metadata", "kind", "apiVersion"} - (set() if status else {"status"})
    return any(old.get(name) != new.get(name) for name in names)


def problems(kind: ServedKind, old: Json | None, new: Json) -> Iterator[StatusCause]:
    """Problems of an object beyond its schema."""
    name = new["metadata"]["name"]
    if old is None and not (_DNS_NAME.match(name) and len(name) < 254) and "rbac" not in kind.group:
        yield StatusCause("metadata.name", f'Invalid value: "{name}": must be a lowercase RFC 1123 subdomain')
    yield from _metadata_problems(new["metadata"])
    if kind.collection == JOBS:
        if "selector" not in new["spec"]:
            yield required("spec.selector")
        if old is not None:
            yield from _job_changes(old, new)
    elif kind.collection == PODS and old is not None:
        yield from _new_gates(old, new)
    elif kind.collection == CRDS:
        collection = f"{new['spec']['names']['plural']}.{new['spec']['group']}"
        if name != collection:
            yield StatusCause("metadata.name", f'Invalid value: "{name}": must be "{collection}"')
    elif kind.collection == _PRIORITY_CLASSES and old and old.get("value") != new.get("value"):
        yield StatusCause("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")


def _metadata_problems(metadata: Json) -> Iterator[StatusCause]:
    for value in (metadata.get("labels") or {}).values():
        if len(value) > 63:
            yield StatusCause("metadata.labels", f'Invalid value: "{value}": must be no more than 63 bytes')
        elif not _LABEL_VALUE.fullmatch(value):
            yield StatusCause(
                "metadata.labels", f'Invalid value: "{value}": a valid label must {_LABEL_RULE}'
            )
    size = sum(len(part.encode()) for item in (metadata.get("annotations") or {}).items() for part in item)
    if size > _MAX_ANNOTATIONS:
        message = f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
        yield StatusCause("metadata.annotations", message, "FieldValueTooLong")


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _container_defaults(spec: Json) -> None:
    for container in _containers(spec):
        latest = container["image"].endswith(":latest") or ":" not in container["image"].rpartition("/")[2]
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        resources = container["resources"]
        for field in ("requests", "limits"):
            if resources.get(field):
                # A quantity given as a number is stored as text.
                resources[field] = {name: str(amount) for name, amount in resources[field].items()}


def _new_gates(old: Json, new: Json) -> Iterator[StatusCause]:
    before = old["spec"].get("schedulingGates") or ()
    for number, gate in enumerate(new["spec"].get("schedulingGates") or ()):
        if gate not in before:
            detail = "Forbidden: only deletion is allowed, but found new scheduling gate"
            yield StatusCause(f"spec.schedulingGates[{number}].name", detail, "FieldValueForbidden")


# --- jobs -----------------------------------------------------------------------------------------


def _job_defaults(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else 2**31 - 1)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")


def _job_selector(job: Json) -> None:
    metadata, spec = job["metadata"], job["spec"]
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    if not spec["manualSelector"]:
        for prefix in ("", "batch.kubernetes.io/"):
            labels.setdefault(f"{prefix}job-name", metadata["name"])
            labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
        match = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        match.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    if not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _job_changes(old: Json, new: Json) -> Iterator[StatusCause]:
    before, after = old["spec"], new["spec"]
    changed = [name for name in (*_JOB_FROZEN, "completions") if before.get(name) != after.get(name)]
    if after["completionMode"] == "Indexed" and after.get("completions") == after["parallelism"]:
        # Those of an elastic Job may change.
        changed = [name for name in changed if name != "completions"]
    open_ = _template_open(old)
    if _template_left(before["template"], open_) != _template_left(after["template"], open_):
        changed.append("template")
    for name in changed:
        shown = "core.PodTemplateSpec" if name == "template" else after.get(name)
        yield StatusCause(f"spec.{name}", f"Invalid value: {shown}: field is immutable")


def _template_open(old: Json) -> bool:
    """Whether scheduling directives and resources may change. As in 1.36: suspended, without active pods."""
    status = old.get("status") or {}
    stopped = conditions(old).get("Suspended") == "True" or not status.get("startTime")
    return bool(old["spec"]["suspend"] and stopped and not status.get("active"))


def _template_left(template: Json, open_: bool) -> Json:
    """The immutable part of a template."""
    if not open_:
        return template
    metadata = {
        k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")
    }
    free = ("nodeSelector", "tolerations", "schedulingGates", "affinity", "resources")
    spec = {name: value for name, value in template["spec"].items() if name not in free}
    affinity = {k: v for k, v in (template["spec"].get("affinity") or {}).items() if k != "nodeAffinity"}
    for field in ("initContainers", "containers"):
        spec[field] = [{**container, "resources": None} for container in spec.get(field) or ()]
    return {"metadata": metadata, "spec": spec, "affinity": affinity}


# --- definitions and events -----------------------------------------------------------------------


def _accepted(crd: Json) -> Json:
    since, spec = crd["metadata"]["creationTimestamp"], crd["spec"]
    held = (("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted"))
    found = [
        {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": since}
        for kind, reason in held
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    return {"conditions": found, "acceptedNames": spec["names"], "storedVersions": stored}


# An Event is stored with the names of core/v1; events.k8s.io/v1 names the same fields so:
_EVENT_NAMES = {"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent"}
_EVENT_NAMES |= {"deprecatedSource": "source", "deprecatedCount": "count"}
_EVENT_NAMES |= {f"deprecated{name}Timestamp": f"{name.lower()}Timestamp" for name in ("First", "Last")}
_EVENT_NAMES_BACK = {core: new for new, core in _EVENT_NAMES.items()}


def to_stored(kind: ServedKind, obj: Json) -> Json:
    """From the version of the request to the stored form."""
    if kind.collection != EVENTS or not kind.group:
        return obj
    return {_EVENT_NAMES.get(name, name): value for name, value in obj.items()} | {"apiVersion": "v1"}


def to_stored_path(kind: ServedKind, path: str) -> str:
    """Path in the stored form of a field that can be selected."""
    if kind.collection != EVENTS:
        return path
    first, dot, rest = path.partition(".")
    return "source.component" if path == "source" else f"{_EVENT_NAMES.get(first, first)}{dot}{rest}"


def from_stored(kind: ServedKind, obj: Json) -> Json:
    """From the stored form to the version of the request."""
    if kind.collection == EVENTS and kind.group:
        obj = {_EVENT_NAMES_BACK.get(name, name): value for name, value in obj.items()}
    head: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**head, **obj, **head}
