"""workload.codeflare.dev AppWrapper: objects of other kinds that are made and deleted together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from queuectl.core.model.workload import Effect, WorkloadOutcome
from queuectl.kinds.admission import additions
from queuectl.kinds.components import MAX_COMPONENTS, pod_sets
from queuectl.kinds.jobs import Ending, JobKind, PodLabel, Sign, Status, SuspensionSeen, conditions, value_at
from queuectl.kinds.json_fields import Json
from queuectl.kinds.node_constraints import toleration_json
from queuectl.kinds.podsets import Computed, Numbered, Operation
from queuectl.kinds.start_patch import STARTED, add, pod_labels

_PHASE: Final = ("status", "phase")


def _steer(effect: Effect) -> list[Operation]:
    """What the operator adds to the pod templates of each component when it makes it. All of it is ours."""
    labels = pod_labels(effect)
    assigned = {pod_set.name: pod_set for pod_set in effect.attempt.assignment.steered()}
    infos: dict[int, list[dict[str, Any]]] = {}
    for name in (pod_set.name for pod_set in effect.workload.pod_sets):
        info: dict[str, Any] = {"labels": labels}
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
