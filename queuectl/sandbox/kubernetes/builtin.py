"""What the API server knows of built-in kinds: defaults, what can't change, and generation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from queuectl.sandbox.kubernetes.resources import CRDS, EVENTS, JOBS, NAMESPACES, PODS, Kind
from queuectl.sandbox.kubernetes.wire import ApiError, Cause, Json, invalid

_JOB_FROZEN = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_JOB_COUNTS = (
    "parallelism",
    "completions",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_TEMPLATES = ("jobs.batch", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps")
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates")
_DNS_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_DNS_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_COLON_NAMES = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")


def fill_defaults(kind: Kind, obj: Json) -> None:
    """Defaults that don't depend on who asks; the same on create and update."""
    if kind.collection == JOBS:
        _job_defaults(obj)
    elif kind.collection == PODS:
        _pod_defaults(obj.setdefault("spec", {}), "Always")
        for container in _containers(obj["spec"]):
            resources = container["resources"]
            for name, amount in (resources.get("limits") or {}).items():
                resources.setdefault("requests", {}).setdefault(name, amount)
    elif kind.collection in _TEMPLATES:
        _pod_defaults(_mapping(_mapping(obj, "spec", "template"), "spec"), "Always")
    elif kind.collection == CRDS:
        _definition_defaults(obj)


def prepare_create(kind: Kind, obj: Json) -> None:
    """What the server itself sets on a new object, after its metadata."""
    metadata = obj["metadata"]
    if kind.collection == JOBS:
        _job_selector(obj)
    elif kind.collection == PODS:
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    elif kind.collection == NAMESPACES:
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
        obj.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
    elif kind.collection == "priorityclasses.scheduling.k8s.io":
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if kind.collection == CRDS:
        obj["status"] = _accepted(obj)
    elif kind.status and kind.collection not in (PODS, NAMESPACES, "nodes"):
        obj.pop("status", None)
        if not kind.custom:
            obj["status"] = {}


def spec_changed(old: Json, new: Json, *, status: bool) -> bool:
    """Did anything but metadata change? `status` counts where it is no subresource."""
    names = (old.keys() | new.keys()) - {"metadata", "kind", "apiVersion"} - (set() if status else {"status"})
    return any(old.get(name) != new.get(name) for name in names)


def problems(kind: Kind, old: Json | None, new: Json) -> Iterator[Cause]:
    """What the server refuses of a built-in object."""
    if old is None:
        yield from _name_problems(kind, new["metadata"]["name"])
    if kind.collection == JOBS:
        yield from _job_problems(new)
        if old is not None:
            yield from _job_changes(old, new)
    elif kind.collection == PODS and old is None:
        yield from _pod_problems(new["spec"], "spec")
    elif (
        kind.collection == "priorityclasses.scheduling.k8s.io"
        and old
        and old.get("value") != new.get("value")
    ):
        yield Cause("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")


def _name_problems(kind: Kind, name: str) -> Iterator[Cause]:
    if kind.plural in _COLON_NAMES:
        return
    if not _DNS_NAME.match(name) or len(name) > 253:
        yield Cause("metadata.name", f'Invalid value: "{name}": {_DNS_MESSAGE}')
    elif kind.collection == CRDS and "." not in name:
        yield Cause("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group')


# --- pods -----------------------------------------------------------------------------------------


def _mapping(obj: Json, *path: str) -> Json:
    """The object at `path`, made where it is missing. Raises ApiError 400 where something else stands."""
    for step in path:
        child = obj.get(step)
        if child is None:
            child = obj[step] = {}
        elif not isinstance(child, dict):
            raise ApiError(
                400, f"json: cannot unmarshal {type(child).__name__} into field {step} of type object"
            )
        obj = child
    return obj


def _containers(spec: Json) -> Iterator[Json]:
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            if not isinstance(container, dict):
                raise ApiError(400, f"json: cannot unmarshal into field {field} of type Container")
            yield container


def _pod_defaults(spec: Json, restart_policy: str | None) -> None:
    if restart_policy:
        spec.setdefault("restartPolicy", restart_policy)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in _containers(spec):
        image = str(container.get("image", ""))
        latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = _mapping(container, "resources")
        for field in ("requests", "limits"):
            if resources.get(field):
                # A quantity written as a number is stored as text.
                resources[field] = {name: str(amount) for name, amount in resources[field].items()}


def _pod_problems(spec: Json, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield Cause(f"{path}.containers", "Required value", "FieldValueRequired")
    for index, container in enumerate(spec.get("containers") or ()):
        for field in ("name", "image"):
            if not container.get(field):
                yield Cause(f"{path}.containers[{index}].{field}", "Required value", "FieldValueRequired")


# --- jobs -----------------------------------------------------------------------------------------


def _job_defaults(job: Json) -> None:
    spec = _mapping(job, "spec")
    for name in [name for name, value in spec.items() if value is None]:
        del spec[name]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else 2**31 - 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    _pod_defaults(_mapping(spec, "template", "spec"), None)
    if not isinstance(spec["suspend"], bool):
        raise ApiError(400, "json: cannot unmarshal into Go struct field JobSpec.spec.suspend of type bool")
    for name in _JOB_COUNTS:
        if not isinstance(spec.get(name, 0), int):
            raise ApiError(
                400, f"json: cannot unmarshal into Go struct field JobSpec.spec.{name} of type int32"
            )


def _job_selector(job: Json) -> None:
    metadata, spec = job["metadata"], job["spec"]
    if not spec["manualSelector"]:
        labels = _mapping(spec, "template", "metadata", "labels")
        for prefix in ("", "batch.kubernetes.io/"):
            labels.setdefault(f"{prefix}job-name", metadata["name"])
            labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
        match = _mapping(spec, "selector", "matchLabels")
        match.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    if not metadata.get("labels"):
        metadata["labels"] = dict(spec["template"].get("metadata", {}).get("labels") or {})


def _job_problems(job: Json) -> Iterator[Cause]:
    spec = job["spec"]
    pod = spec["template"]["spec"]
    for name in _JOB_COUNTS:
        if spec.get(name, 0) < 0:
            text = f"Invalid value: {spec[name]}: must be greater than or equal to 0"
            yield Cause(f"spec.{name}", text)
    yield from _pod_problems(pod, "spec.template.spec")
    policy = pod.get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        values = 'valid values: "OnFailure", "Never"'
        yield (
            Cause(
                "spec.template.spec.restartPolicy",
                f'Unsupported value: "{policy}": {values}',
                "FieldValueNotSupported",
            )
            if policy
            else Cause("spec.template.spec.restartPolicy", f"Required value: {values}", "FieldValueRequired")
        )
    if "selector" not in spec:
        yield Cause("spec.selector", "Required value", "FieldValueRequired")


def _job_changes(old: Json, new: Json) -> Iterator[Cause]:
    before, after = old["spec"], new["spec"]
    for name in _JOB_FROZEN:
        if before.get(name) != after.get(name):
            yield _immutable(f"spec.{name}", after.get(name))
    if before.get("completions") != after.get("completions"):
        elastic = after.get("completionMode") == "Indexed" and after.get("completions") == after.get(
            "parallelism"
        )
        if not elastic:
            yield _immutable("spec.completions", after.get("completions"))
    if _template_left(before["template"], old, new) != _template_left(after["template"], old, new):
        yield _immutable("spec.template", "core.PodTemplateSpec")


def _template_open(old: Json) -> bool:
    """May scheduling directives and resources change? As 1.36 answers: suspended, and nothing of it runs."""
    status = old.get("status") or {}
    conditions = status.get("conditions") or ()
    suspended = any(c["type"] == "Suspended" and c["status"] == "True" for c in conditions)
    never_started = not status.get("startTime")
    return bool(old["spec"]["suspend"] and (never_started or suspended) and not status.get("active"))


def _template_left(template: Json, old: Json, new: Json) -> Json:
    """What of a template must stay as it is."""
    if not _template_open(old):
        return template
    metadata = {
        k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")
    }
    spec = {name: value for name, value in template["spec"].items() if name not in _SCHEDULING}
    affinity = {k: v for k, v in (spec.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [{k: v for k, v in c.items() if k != "resources"} for c in spec[field]]
    spec.pop("resources", None)
    return {"metadata": metadata, "spec": spec, "affinity": affinity}


def _immutable(path: str, value: Any) -> Cause:
    return Cause(path, f"Invalid value: {value}: field is immutable")


# --- definitions and events -----------------------------------------------------------------------


def _definition_defaults(crd: Json) -> None:
    spec = _mapping(crd, "spec")
    names = _mapping(spec, "names")
    missing = [f"spec.{name}" for name in ("group", "scope", "versions") if not spec.get(name)]
    missing += [f"spec.names.{name}" for name in ("plural", "kind") if not names.get(name)]
    if missing:
        name = crd.get("metadata", {}).get("name", "")
        causes = [Cause(path, "Required value", "FieldValueRequired") for path in missing]
        raise invalid("CustomResourceDefinition", "apiextensions.k8s.io", name, causes)
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _accepted(crd: Json) -> Json:
    since = crd["metadata"]["creationTimestamp"]
    stored = [version["name"] for version in crd["spec"]["versions"] if version.get("storage")]
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {
        "conditions": [
            {"type": t, "status": "True", "reason": r, "message": m, "lastTransitionTime": since}
            for t, r, m in conditions
        ],
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored,
    }


_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENT_NAMES_BACK = {core: new for new, core in _EVENT_NAMES.items()}


def to_stored(kind: Kind, obj: Json) -> Json:
    """From the version it was written in to the one form it is stored in."""
    if kind.collection != EVENTS or not kind.group:
        return obj
    return {_EVENT_NAMES.get(name, name): value for name, value in obj.items()} | {"apiVersion": "v1"}


def from_stored(kind: Kind, obj: Json) -> Json:
    """To the version it is asked for in."""
    if kind.collection == EVENTS and kind.group:
        obj = {_EVENT_NAMES_BACK.get(name, name): value for name, value in obj.items()}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj} | {"apiVersion": kind.api_version}
