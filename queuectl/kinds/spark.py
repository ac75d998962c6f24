"""sparkoperator.k8s.io SparkApplication: a driver and its executors.

A change of its spec beyond `suspend`, and so each start, begins the application anew. A driver of a deleted
one of the same name makes the submission fail: without `restartPolicy.onSubmissionFailureRetries` it is
`FAILED` then.
"""

from __future__ import annotations

from typing import Final

from queuectl.core.model.workload import Effect, WorkloadOutcome
from queuectl.kinds.jobs import Ending, JobKind, KindRefusal, PodLabel, Sign, Status, SuspensionSeen, value_at
from queuectl.kinds.json_fields import BadField, Json, mapping, pairs
from queuectl.kinds.podsets import STEERED, Computed, Operation
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kinds.spark_pods import DRIVER, EXECUTOR, MAX_PROPERTIES, executors, pod_sets
from queuectl.kinds.start_patch import STARTED, directives, labelling

_STATE: Final = ("status", "applicationState", "state")
_FIXED: Final = "leave it out: quota is given for spec.executor.instances, and that number does not change"
_UP: Final = ("RUNNING", "COMPLETED")
"""States of executors that are there or are no longer needed."""


def _steer(effect: Effect) -> list[Operation]:
    """The fields of driver and executor that the operator and its webhook add to their pods."""
    patch = []
    for pod_set in effect.attempt.assignment.steered():
        place = ("spec", pod_set.name)
        patch += [*directives(pod_set, place, effect), *labelling(pod_set, place, effect)]
    return patch


def _status(obj: Json) -> Status:
    state = value_at(obj, _STATE)
    if not isinstance(state, str) or not state:
        return Status()
    runs = state == "RUNNING"
    try:
        spec, status = mapping(obj, "spec", ""), mapping(obj, "status", "")
        wanted = executors(spec, dict(pairs(spec, "sparkConf", "spec", MAX_PROPERTIES)))
        up = sum(one in _UP for one in mapping(status, "executorState", "status").values()) if runs else 0
    except BadField:
        return Status()
    # The driver makes the executors.
    return Status(None, runs and up >= wanted, (), up + runs, held_back=0 if runs else wanted)


SPARK_APPLICATION: Final = JobKind(
    name="SparkApplication",
    group="sparkoperator.k8s.io",
    version="v1beta2",
    plural="sparkapplications",
    names=("sparkapp", "spark"),
    suspend=("spec", "suspend"),
    podsets=Computed(
        find=lambda obj, _: pod_sets(obj),
        steer=_steer,
        writes=tuple(
            ("spec", role.name, *rest)
            for role in (DRIVER, EXECUTOR)
            for rest in (*((key,) for key in STEERED), *(("labels", label) for label in POD_LABELS))
        ),
    ),
    status=_status,
    ordered=lambda _: True,
    ends=(
        Ending(Sign(_STATE, "COMPLETED"), WorkloadOutcome.SUCCEEDED),
        Ending(Sign(_STATE, "FAILED"), WorkloadOutcome.FAILED),
    ),
    pods=(STARTED, PodLabel("sparkoperator.k8s.io/app-name")),
    # Its operator says so when it has deleted the driver, whose pod, and those of the executors, end later.
    seen=SuspensionSeen(Sign(_STATE, "SUSPENDED"), asked="SUSPENDING"),
    end_time=("status", "terminationTime"),
    refuse=(
        KindRefusal(
            "object.spec.?mode.orValue('cluster') != 'cluster'",
            "spec.mode",
            "only cluster can be queued: in other modes the driver does not run in a pod of its own",
        ),
        KindRefusal(
            "object.spec.?dynamicAllocation.?enabled.orValue(false)",
            "spec.dynamicAllocation.enabled",
            _FIXED,
        ),
        *(
            KindRefusal(
                f"!(object.spec.?sparkConf[?'{key}'].orValue('false') in ['false', 'False', 'FALSE'])",
                f"spec.sparkConf[{key}]",
                _FIXED,
            )
            for key in ("spark.dynamicAllocation.enabled", "spark.streaming.dynamicAllocation.enabled")
        ),
        KindRefusal(
            "object.spec.?nodeSelector.hasValue()",
            "spec.nodeSelector",
            "write it into spec.driver.nodeSelector and spec.executor.nodeSelector: its operator allows it in"
            " only one of these places, and queuectl adds the labels of a flavor to driver and executor",
        ),
        KindRefusal(
            "object.spec.?sparkConf[?'spark.kubernetes.namespace'].orValue(object.metadata.namespace)"
            " != object.metadata.namespace",
            "spec.sparkConf[spark.kubernetes.namespace]",
            "leave it out: the pods belong into the namespace of their SparkApplication",
        ),
    ),
)
