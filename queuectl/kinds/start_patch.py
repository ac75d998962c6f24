"""What a start adds to an object so that its pods get the nodes and the labels of their admission."""

from __future__ import annotations

import re
from typing import Final

from queuectl.core.model.workload import Effect, PodSetAssignment
from queuectl.kinds.admission import additions
from queuectl.kinds.jobs import QUEUE_LABEL, PodLabel
from queuectl.kinds.node_constraints import NodeConstraints, toleration_json
from queuectl.kinds.podsets import Operation, Path
from queuectl.kinds.reserved_keys import CLUSTER_QUEUE_LABEL, FLAVOR_LABEL, PODSET_LABEL, WORKLOAD_LABEL

_VALUE: Final = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Of a label."""

LABELLED: Final = PodLabel(WORKLOAD_LABEL, uid=True)
"""Of the pods of every start. The gate lets no user take it off, so it counts without any other label."""
STARTED: Final = LABELLED._replace(sure=True)
"""The same, where owners do not tell whose pods are, or not for long."""


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def add(path: Path, value: object) -> Operation:
    return {"op": "add", "path": pointer(path), "value": value}


def pod_labels(effect: Effect, pod_set: PodSetAssignment) -> dict[str, str]:
    """Of every pod of a podset."""
    return {
        QUEUE_LABEL: effect.workload.queue,
        **admission_labels(effect, pod_set),
        PODSET_LABEL: _value(pod_set.name),
    }


def admission_labels(effect: Effect, pod_set: PodSetAssignment) -> dict[str, str]:
    """Also of a pod that queues by itself."""
    return {
        WORKLOAD_LABEL: effect.workload.id,
        CLUSTER_QUEUE_LABEL: _value(effect.attempt.assignment.cluster_queue),
        FLAVOR_LABEL: _value("_".join(dict.fromkeys(flavor for _, flavor in pod_set.flavors))),
    }


def _value(name: str) -> str:
    """Empty, if it can be no value: the API server checks no labels in templates of a custom resource, and
    its controller could make no pod."""
    return name if _VALUE.fullmatch(name) else ""


def directives(pod_set: PodSetAssignment, holder: Path, effect: Effect) -> list[Operation]:
    """The user's own scheduling fields with the flavors' on top, as fields of what is at `holder`.

    Fields that both leave empty, and that no former admission can have set, are not written.
    """
    own = NodeConstraints(pod_set.node_selector, pod_set.tolerations)
    added = additions(pod_set, effect.flavors)
    wanted = own.steered(added)
    before = effect.observation.admission is not None
    patch = []
    if before or added.node_selector:
        patch.append(add((*holder, "nodeSelector"), dict(wanted.node_selector)))
    if before or added.tolerations:
        patch.append(add((*holder, "tolerations"), [toleration_json(item) for item in wanted.tolerations]))
    return patch


def labelling(pod_set: PodSetAssignment, metadata: Path, effect: Effect) -> list[Operation]:
    """Labels of the pods of a podset, as a field of what is at `metadata`.

    Those of a former attempt are replaced.
    """
    labels = pod_labels(effect, pod_set)
    unlabelled = dict(effect.observation.unlabelled)
    if pod_set.name not in unlabelled:
        return [add((*metadata, "labels", name), value) for name, value in labels.items()]
    if unlabelled[pod_set.name]:
        return [add((*metadata, "labels"), labels)]
    return [add(metadata, {"labels": labels})]
