"""sparkoperator.k8s.io SparkApplication: a driver and its executors.

Their pods are those that Spark 3 and 4 make from its fields and properties. A field of driver or executor
counts before the property in `spec.sparkConf`, and that before Spark's default. A pod template holds for what
neither sets, but for cpu and memory of the Spark container.

A change of its spec beyond `suspend`, and so each start, begins the application anew. A driver of a deleted
one of the same name makes the submission fail: without `restartPolicy.onSubmissionFailureRetries` it is
`FAILED` then.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

from queuectl.core.model.resources import BadQuantity, parse_quantity
from queuectl.core.model.workload import Effect, WorkloadOutcome
from queuectl.kinds.jobs import Ending, JobKind, KindRefusal, PodLabel, Sign, Status, SuspensionSeen, value_at
from queuectl.kinds.json_fields import BadField, Json, checked, integer, mapping, objects, pairs, shown, text
from queuectl.kinds.podsets import STEERED, Computed, Operation, Pods
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kinds.start_patch import STARTED, directives, labelling

MAX_PROPERTIES: Final = 1024
_MAX_LIST: Final = 1000
"""Containers or tolerations of one pod that are read."""
_MIB: Final = 1 << 20
_MAX_MIB: Final = (1 << 63) // _MIB
_SIZE: Final = re.compile(r"(\d{1,18})([a-z]+)?", re.ASCII)
_UNITS: Final = {
    unit + byte: 1 << shift
    for unit, shift in {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}.items()
    for byte in ("", "b")
    if unit + byte
}
_DEFAULT_MEMORY: Final = "1g"
_LEAST_OVERHEAD: Final = "384m"
_DEFAULT_EXECUTORS: Final = 2
_FACTOR: Final = 0.1
_FACTOR_BESIDE_THE_JVM: Final = 0.4
_BESIDE_THE_JVM: Final = ("Python", "R")


class SparkRole(NamedTuple):
    name: str
    """Of the podset, of the field below `spec`, and in the names of properties."""
    container: str
    """The Spark container of a pod template has this name, or is the first one."""


DRIVER: Final = SparkRole("driver", "spark-kubernetes-driver")
EXECUTOR: Final = SparkRole("executor", "spark-kubernetes-executor")


def pod_sets(obj: Json) -> list[Pods]:
    """Driver and executors. Raises BadField."""
    spec = mapping(obj, "spec", "")
    conf = dict(pairs(spec, "sparkConf", "spec", MAX_PROPERTIES))
    counts = {DRIVER: 1, EXECUTOR: executors(spec, conf)}
    return [_Pod(spec, conf, role).pods(count) for role, count in counts.items()]


def executors(spec: Json, conf: dict[str, str]) -> int:
    """How many executors it asks for. Raises BadField."""
    typed = mapping(spec, "executor", "spec")
    if typed.get("instances") is not None:
        return integer(typed, "instances", "spec.executor", default=None)
    key = "spark.executor.instances"
    found = conf.get(key, str(_DEFAULT_EXECUTORS)).strip()
    if not (found.isascii() and found.isdigit() and len(found) < 10):
        raise BadField(_property(key), f"{shown(found)} is not a whole number")
    return int(found)


class _Pod:
    """One of its pods. Every method raises BadField."""

    def __init__(self, spec: Json, conf: dict[str, str], role: SparkRole) -> None:
        self._spec, self._conf, self._role = spec, conf, role
        self._path = f"spec.{role.name}"
        self._own = mapping(spec, role.name, "spec")
        self._template = mapping(self._own, "template", self._path)
        self._base = mapping(self._template, "spec", f"{self._path}.template")

    def pods(self, count: int) -> Pods:
        labels = mapping(self._own, "labels", self._path)
        metadata = mapping(self._template, "metadata", f"{self._path}.template")
        annotations = mapping(metadata, "annotations", f"{self._path}.template.metadata")
        annotations = {**annotations, **mapping(self._own, "annotations", self._path)}
        path = f"{self._path}.template"
        return Pods(
            self._role.name, count, path, self._pod_spec(), {"labels": labels, "annotations": annotations}
        )

    def _pod_spec(self) -> Json:
        """As the operator's webhook completes it."""
        return {
            **self._base,
            "containers": self._containers(),
            "initContainers": [*self._listed("initContainers"), *self._listed("initContainers", self._own)],
            "nodeSelector": self._node_selector(),
            "tolerations": self._tolerations(),
            "affinity": self._own.get("affinity") or self._base.get("affinity"),
            "priorityClassName": self._own.get("priorityClassName") or self._base.get("priorityClassName"),
        }

    def _listed(self, key: str, holder: Json | None = None) -> list[Json]:
        if holder is None:
            return list(objects(self._base, key, f"{self._path}.template.spec", _MAX_LIST))
        return list(objects(holder, key, self._path, _MAX_LIST))

    def _containers(self) -> list[Json]:
        """The Spark container, with its resources, and those of template and sidecars."""
        found = self._listed("containers")
        place = next((at for at, one in enumerate(found) if one.get("name") == self._role.container), 0)
        spark = found.pop(place) if found else {}
        path = f"{self._path}.template.spec.containers[{place}]"
        resources = mapping(spark, "resources", path)
        requests = {**mapping(resources, "requests", path), "cpu": self._cores(), "memory": self._memory()}
        limits = {**mapping(resources, "limits", path), "memory": requests["memory"], **self._limits()}
        spark = {**spark, "resources": {"requests": requests, "limits": limits}}
        return [spark, *found, *self._listed("sidecars", self._own)]

    def _node_selector(self) -> dict[str, Any]:
        prefixes = ("spark.kubernetes.node.selector.", f"spark.kubernetes.{self._role.name}.node.selector.")
        found = dict(mapping(self._base, "nodeSelector", f"{self._path}.template.spec"))
        for prefix in prefixes:
            found |= {
                key.removeprefix(prefix): value for key, value in self._conf.items() if key.startswith(prefix)
            }
        return found | dict(mapping(self._own, "nodeSelector", self._path))

    def _tolerations(self) -> list[Json]:
        """Each once: a start writes those of the template beside those of the podset too."""
        found: list[Json] = []
        for one in (*self._listed("tolerations"), *self._listed("tolerations", self._own)):
            if one not in found:
                found.append(one)
        return found

    def _cores(self) -> str:
        """A quantity."""
        name = self._role.name
        if (asked := self._quantity("coreRequest", f"spark.kubernetes.{name}.request.cores")) is not None:
            return asked
        if self._own.get("cores") is not None:
            return str(integer(self._own, "cores", self._path, default=None))
        return self._quantity("", f"spark.{name}.cores") or "1"

    def _limits(self) -> dict[str, str]:
        limits = self._devices()
        cpu = self._quantity("coreLimit", f"spark.kubernetes.{self._role.name}.limit.cores")
        if cpu is not None:
            limits["cpu"] = cpu
        memory = text(self._own, "memoryLimit", self._path)
        if memory is not None:
            size = _SIZE.fullmatch(memory.lower())
            # Otherwise it is a quantity of Kubernetes.
            found = str(int(size[1]) * _UNITS[size[2]]) if size and size[2] in _UNITS else memory
            limits["memory"] = _checked(found, f"{self._path}.memoryLimit")
        gpu = mapping(self._own, "gpu", self._path)
        quantity = integer(gpu, "quantity", f"{self._path}.gpu", default=0, low=-(1 << 63))
        if quantity > 0 and (device := text(gpu, "name", f"{self._path}.gpu")):
            limits[device] = str(quantity)
        return limits

    def _quantity(self, field: str, key: str) -> str | None:
        typed = text(self._own, field, self._path) if field else None
        if typed is not None:
            return _checked(typed, f"{self._path}.{field}")
        return _checked(self._conf[key], _property(key)) if key in self._conf else None

    def _devices(self) -> dict[str, str]:
        """Those of properties `spark.executor.resource.gpu.amount` and `.vendor`."""
        found, prefix, suffix = {}, f"spark.{self._role.name}.resource.", ".amount"
        for key, amount in self._conf.items():
            if key.startswith(prefix) and key.endswith(suffix):
                device = key.removeprefix(prefix).removesuffix(suffix)
                vendor = self._conf.get(f"{prefix}{device}.vendor")
                if not vendor:
                    raise BadField(_property(key), f"its vendor is missing, {prefix}{device}.vendor")
                found[f"{vendor}/{device}"] = _checked(amount, _property(key))
        return found

    def _memory(self) -> str:
        """A quantity: of the JVM, beside it, and what only executors have."""
        memory = self._size("memory", f"spark.{self._role.name}.memory", _DEFAULT_MEMORY)
        total = memory + self._overhead(memory)
        if self._role is EXECUTOR:
            if self._spec.get("type") == "Python":
                total += self._size("", "spark.executor.pyspark.memory", "0")
            if self._conf.get("spark.memory.offHeap.enabled", "").strip().lower() == "true":
                total += self._size("", "spark.memory.offHeap.size", "0", unit=1)
        return f"{total}Mi"

    def _overhead(self, memory: int) -> int:
        name = self._role.name
        key = f"spark.{name}.memoryOverhead"
        if self._own.get("memoryOverhead") is not None or key in self._conf:
            return self._size("memoryOverhead", key, "0")
        least = self._size("", f"spark.{name}.minMemoryOverhead", _LEAST_OVERHEAD)
        return max(int(min(self._factor() * memory, _MAX_MIB)), least)

    def _factor(self) -> float:
        asked = text(self._spec, "memoryOverheadFactor", "spec")
        for key in (f"spark.{self._role.name}.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor"):
            if key in self._conf:
                return _number(self._conf[key], _property(key))
        if asked is not None:
            return _number(asked, "spec.memoryOverheadFactor")
        return _FACTOR_BESIDE_THE_JVM if self._spec.get("type") in _BESIDE_THE_JVM else _FACTOR

    def _size(self, field: str, key: str, default: str, *, unit: int = _MIB) -> int:
        """In MiB, rounded down as Spark does. `unit`: of a number without one, in bytes."""
        typed = text(self._own, field, self._path) if field else None
        where = f"{self._path}.{field}" if typed is not None else _property(key)
        found = typed if typed is not None else self._conf.get(key, default)
        size = _SIZE.fullmatch(checked(found, where).strip().lower())
        if size is None or (size[2] or "b") not in _UNITS:
            raise BadField(where, f"{shown(found)} is not a size such as 512m or 2g")
        mib = int(size[1]) * (_UNITS[size[2]] if size[2] else unit) // _MIB
        if mib > _MAX_MIB:
            raise BadField(where, f"{shown(found)} is more than {_MAX_MIB} MiB")
        return mib


def _property(key: str) -> str:
    return f"spec.sparkConf[{key}]"


def _checked(found: str, where: str) -> str:
    """A quantity of any resource."""
    try:
        parse_quantity(found, "cpu")
    except BadQuantity as error:
        raise BadField(where, str(error)) from error
    return found


def _number(found: str, where: str) -> float:
    try:
        value = float(found)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise BadField(where, f"{shown(found)} is not a factor such as 0.1")
    return value


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
