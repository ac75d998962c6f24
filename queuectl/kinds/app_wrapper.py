"""workload.codeflare.dev AppWrapper: objects of other kinds that are made and deleted together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from queuectl.core.model.workload import Effect, WorkloadOutcome
from queuectl.kinds.admission import additions
from queuectl.kinds.jobs import Ending, JobKind, PodLabel, Sign, Status, SuspensionSeen, conditions, value_at
from queuectl.kinds.json_fields import BadField, Json, array, checked, integer, mapping, objects
from queuectl.kinds.node_constraints import toleration_json
from queuectl.kinds.podsets import Computed, Count, Numbered, Operation, Pods, PodSetGroup, Templates
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kinds.start_patch import STARTED, add, pod_labels

_PHASE: Final = ("status", "phase")


def _steer(effect: Effect) -> list[Operation]:
    """What the operator adds to the pod templates of each component when it makes it. All of it is ours."""
    assigned = {pod_set.name: pod_set for pod_set in effect.attempt.assignment.steered()}
    infos: dict[int, list[dict[str, Any]]] = {}
    for name in (pod_set.name for pod_set in effect.workload.pod_sets):
        info: dict[str, Any] = {"labels": pod_labels(effect, assigned[name])}
        added = additions(assigned[name], effect.flavors)
        if added.node_selector:
            info["nodeSelector"] = dict(added.node_selector)
        if added.tolerations:
            info["tolerations"] = [toleration_json(item) for item in added.tolerations]
        infos.setdefault(int(name.partition("-")[0]), []).append(info)
    return [add(("spec", "components", place, "podSetInfos"), one) for place, one in infos.items()]


def _status(obj: Json, rows: Mapping[tuple[str, str], JobKind]) -> Status:
    """Its condition counts all pods of its components, also those that the order of one holds back."""
    ready = {"True": True, "False": False}.get(conditions(obj).get("PodsReady") or "")
    return Status(None, None if ready is False and _ordered(obj, rows) else ready)


def _ordered(obj: Json, rows: Mapping[tuple[str, str], JobKind]) -> bool:
    """Does a component start parts of itself after others?"""
    components = value_at(obj, ("spec", "components"))
    for component in components[:MAX_COMPONENTS] if isinstance(components, list) else ():
        template = component.get("template") if isinstance(component, Mapping) else None
        if isinstance(template, Mapping):
            row = rows.get((str(template.get("apiVersion")), str(template.get("kind"))))
            if row is not None and row.ordered is not None and row.ordered(template):
                return True
    return False


def app_wrapper(rows: Iterable[JobKind]) -> JobKind:
    """The row of AppWrapper, whose components may be of the kinds of these rows."""
    known = {(row.api_version, row.kind): row for row in rows}
    return JobKind(
        name="AppWrapper",
        group="workload.codeflare.dev",
        version="v1beta2",
        plural="appwrappers",
        names=("aw",),
        suspend=("spec", "suspend"),
        podsets=Computed(
            find=lambda obj, _: pod_sets(obj, known),
            steer=_steer,
            writes=(("spec", "components", Numbered(MAX_COMPONENTS), "podSetInfos"),),
        ),
        status=lambda obj: _status(obj, known),
        ordered=lambda obj: _ordered(obj, known),
        ends=(
            Ending(Sign(_PHASE, "Succeeded"), WorkloadOutcome.SUCCEEDED),
            # Before its components are deleted, they may make pods again.
            Ending(Sign(_PHASE, "Failed"), WorkloadOutcome.FAILED, unless=Sign("ResourcesDeployed")),
        ),
        # Between it and a pod there may be any object, such as a ReplicaSet.
        pods=(STARTED, PodLabel("workload.codeflare.dev/appwrapper", sure=True)),
        children=tuple(row.name for row in known.values()),
        managed_by=(("spec", "managedBy"), ("workload.codeflare.dev/appwrapper-controller",)),
        seen=SuspensionSeen(Sign(_PHASE, "Suspended"), asked="Suspending"),
    )


MAX_COMPONENTS: Final = 64
MAX_POD_SETS: Final = 64
"""Of one component."""
_STEP: Final = re.compile(r"\.([^.\[\]]{1,253})|\[(\d{1,4})\]", re.ASCII)
_ROOT: Final = "template"
_REPLICATED: Final = Templates(
    groups=(PodSetGroup(name="pods", at=("spec",), counts=(Count(("replicas",)),)),)
)
_INFERRED: Final = (
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("ray.io/v1", "RayCluster"),
    ("ray.io/v1", "RayJob"),
)
"""Kinds with rows whose podsets the operator infers."""
_WITHOUT_PODS: Final = (
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
    ("route.openshift.io", "Route"),
    ("scheduling.sigs.k8s.io", "PodGroup"),
    ("scheduling.x-k8s.io", "PodGroup"),
)


def pod_sets(obj: Json, rows: Mapping[tuple[str, str], JobKind]) -> list[Pods]:
    """The podsets of all components, each with the number of its component in its name.

    `rows`: by apiVersion and kind. Raises BadField, which names the component.
    """
    listed = objects(mapping(obj, "spec", ""), "components", "spec", MAX_COMPONENTS)
    found = [
        pods._replace(name=f"{place}-{pods.name}", path=f"{where}.{pods.path}")
        for place, component in enumerate(listed)
        for where in (f"spec.components[{place}]",)
        for pods in _of_component(component, where, rows)
    ]
    if not found:
        raise BadField("spec.components", "no pods")
    for pods in found:
        _refuse_our_labels(pods)
    return found


def _of_component(component: Json, where: str, rows: Mapping[tuple[str, str], JobKind]) -> list[Pods]:
    """Those that the operator adds scheduling fields to come first, in its order."""
    template = mapping(component, _ROOT, where)
    known = checked(template.get("apiVersion"), f"{where}.template.apiVersion")
    kind = checked(template.get("kind"), f"{where}.template.kind")
    declared = array(component, "podSets", where, MAX_POD_SETS)
    inferred = _inferred(template, known, kind, where, rows)
    if inferred is None:
        if declared:
            return list(_declared(component, template, where))
        if (known.rpartition("/")[0], kind) in _WITHOUT_PODS:
            return []
        raise BadField(where, f"what pods a {kind} of {known} has is not known: declare them in podSets")
    if not declared:
        if (known, kind) in rows and (known, kind) not in _INFERRED:
            raise BadField(where, f"its operator does not find the pods of a {kind}: declare them in podSets")
        return inferred
    by_path = {pods.path: pods for pods in inferred}
    ordered = []
    for place, one in enumerate(objects(component, "podSets", where, MAX_POD_SETS)):
        path = checked(one.get("path"), f"{where}.podSets[{place}].path")
        if path not in by_path:
            paths = ", ".join(pods.path for pods in inferred)
            raise BadField(f"{where}.podSets[{place}].path", f"{path}: the pods of a {kind} are at {paths}")
        ordered.append(by_path.pop(path))
    return [*ordered, *by_path.values()]


def _inferred(
    template: Json, api_version: str, kind: str, where: str, rows: Mapping[tuple[str, str], JobKind]
) -> list[Pods] | None:
    """None: the kind is not known."""
    if (api_version, kind) == ("v1", "Pod"):
        return [_pod(template, _ROOT, "pod", 1, where)]
    if api_version == "apps/v1" and kind in ("Deployment", "StatefulSet"):
        found = _REPLICATED.find(template)
    elif (row := rows.get((api_version, kind))) is None:
        return None
    elif isinstance(row.podsets, Templates) or (api_version, kind) in _INFERRED:
        found = row.podsets.find(template, None)
    else:
        raise BadField(where, f"a {kind} can't be queued inside of an AppWrapper: queue it by itself")
    return [pods._replace(path=f"{_ROOT}.{pods.path}") for pods in found]


def _declared(component: Json, template: Json, where: str) -> Iterator[Pods]:
    for place, one in enumerate(objects(component, "podSets", where, MAX_POD_SETS)):
        here = f"{where}.podSets[{place}]"
        path = checked(one.get("path"), f"{here}.path")
        count = integer(one, "replicas", here, default=1)
        yield _pod(_at(template, path, f"{here}.path"), path, str(place), count, where)


def _at(template: Json, path: str, where: str) -> Json:
    """What is at a path such as `template.spec.groups[0].template`."""
    rest, value = path.removeprefix(_ROOT), template
    steps = list(_STEP.finditer(rest))
    if not path.startswith(_ROOT) or "".join(step[0] for step in steps) != rest:
        raise BadField(where, f"{path[:80]!r} is not a path such as template.spec.template")
    found: Any = value
    for step in steps:
        if step[1] is not None:
            found = found.get(step[1]) if isinstance(found, Mapping) else None
        else:
            found = found[int(step[2])] if isinstance(found, list) and int(step[2]) < len(found) else None
    if not isinstance(found, Mapping):
        raise BadField(where, f"there is no pod template at {path[:80]}")
    return found


def _pod(holder: Json, path: str, name: str, count: int, where: str) -> Pods:
    spec = mapping(holder, "spec", f"{where}.{path}")
    if not spec:
        raise BadField(f"{where}.{path}.spec", "no pod spec")
    return Pods(name, count, path, spec, mapping(holder, "metadata", f"{where}.{path}"))


def _refuse_our_labels(pods: Pods) -> None:
    """The operator gives up where a template has another value for a label that is to be added."""
    labels = mapping(pods.metadata, "labels", f"{pods.path}.metadata")
    for label in POD_LABELS:
        if label in labels:
            raise BadField(f"{pods.path}.metadata.labels[{label}]", "leave it out: queuectl writes it")
