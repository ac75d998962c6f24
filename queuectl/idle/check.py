"""One check: samples from Prometheus, joined by pod to the attempts that hold devices."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound
from queuectl.core.model.workload import WorkloadId
from queuectl.idle.prometheus import PrometheusFailed, Sample
from queuectl.idle.verdicts import DeviceSamples, finding_of
from queuectl.kinds.reserved_keys import WORKLOAD_LABEL
from queuectl.kube.errors import ApiError
from queuectl.kube.session import METADATA_LIST, Session
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.ports.idle import DeviceHolder, UseRecords
from queuectl.settings.idle import IdleSettings

log = logging.getLogger(__name__)

_CHECKS: Final = 3
"""So many checks may fail before what the last one found says nothing any more."""
_ENGINE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_BY_DEVICE: Final = "max by(namespace,pod,exported_namespace,exported_pod,UUID,gpu,device,GPU_I_ID)"
"""Labels that are not read would be most of an answer."""
_HANG_METRICS: Final = {
    "hang_engine": _ENGINE,
    "multiprocessors": "DCGM_FI_PROF_SM_ACTIVE",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "memory": "DCGM_FI_PROF_DRAM_ACTIVE",
    "watts": "DCGM_FI_DEV_POWER_USAGE",
}


class PodName(NamedTuple):
    namespace: str
    name: str


class Queries(Protocol):
    async def query(self, expression: str) -> list[Sample]:
        """Raises PrometheusFailed."""


async def check(
    records: UseRecords, session: Session, prometheus: Queries, settings: IdleSettings
) -> list[tuple[str, DeviceUseFound]]:
    """What each attempt that holds devices does with them, with its ClusterQueue. Raises LedgerUnavailable.

    If Prometheus or the API server does not answer, all are unknown, and the reason is recorded.
    """
    holders, problem = await records.holders(settings.resources), None
    samples: Mapping[PodName, list[DeviceSamples]] = {}
    pods: Mapping[WorkloadId, list[PodName]] = {}
    try:
        if holders:
            samples = await device_samples(prometheus, settings)
            pods = await pods_by_workload(session)
    except (PrometheusFailed, ApiError, ClusterUnavailable) as error:
        problem = f"{'Prometheus' if isinstance(error, PrometheusFailed) else 'the API server'}: {error}"
        log.warning("the use of devices is not known: %s", problem)
        samples = {}
    findings = [_finding(one, pods.get(one.workload, ()), samples, settings) for one in holders]
    at = await records.store_check(problem, settings.resources)
    until = at + timedelta(seconds=_CHECKS * settings.check_seconds)
    return [
        (one.cluster_queue, DeviceUseFound(one.workload, one.attempt, finding, at, until))
        for one, finding in zip(holders, findings, strict=True)
    ]


def _finding(
    holder: DeviceHolder,
    pods: Iterable[PodName],
    samples: Mapping[PodName, list[DeviceSamples]],
    settings: IdleSettings,
) -> UseFinding:
    if holder.priority_class in settings.exempt_classes:
        return UseFinding(UseVerdict.EXEMPT, holder.devices)
    # Templates of objects that do not queue put the label on pods of other namespaces.
    own = (pod for pod in pods if pod.namespace == holder.namespace)
    found = [device for pod in own for device in samples.get(pod, ())]
    return finding_of(holder.devices, found, settings)


async def pods_by_workload(session: Session) -> dict[WorkloadId, list[PodName]]:
    """The pods with the label of each workload, which its start puts on its own. Raises ApiError."""
    found = defaultdict[WorkloadId, list[PodName]](list)
    async for page in session.pages(
        "/api/v1/pods", query={"labelSelector": WORKLOAD_LABEL}, accept=METADATA_LIST
    ):
        for pod in page.get("items") or ():
            metadata = pod["metadata"]
            workload = WorkloadId(metadata["labels"][WORKLOAD_LABEL])
            found[workload].append(PodName(metadata["namespace"], metadata["name"]))
    return found


async def device_samples(prometheus: Queries, settings: IdleSettings) -> dict[PodName, list[DeviceSamples]]:
    """What each pod's devices did, in eight queries about all devices. Raises PrometheusFailed."""
    source = settings.prometheus
    chosen = f"{{{source.selector}}}" if source is not None and source.selector else ""
    window, hang = f"{chosen}[{settings.window_seconds}s]", f"{chosen}[{settings.hang.window_seconds}s]"
    expressions = {
        "engine": f"{_BY_DEVICE}(avg_over_time({_ENGINE}{window}))",
        "samples": f"{_BY_DEVICE}(count_over_time({_ENGINE}{window}))",
        "hang_samples": f"{_BY_DEVICE}(count_over_time({_ENGINE}{hang}))",
        **{name: f"{_BY_DEVICE}(avg_over_time({metric}{hang}))" for name, metric in _HANG_METRICS.items()},
    }
    found = defaultdict[PodName, dict[Device, dict[str, float]]](lambda: defaultdict(dict))
    for name, expression in expressions.items():
        for sample in await prometheus.query(expression):
            pod = pod_of(sample.labels)
            if pod is not None:
                values = found[pod][_device(sample.labels)]
                # Two servers scrape it with other labels, or slices have a copy each.
                values[name] = max(values.get(name, sample.value), sample.value)
    return {pod: list(map(_of_values, devices.values())) for pod, devices in found.items()}


def _of_values(values: dict[str, Any]) -> DeviceSamples:
    return DeviceSamples(**{"engine": None, "samples": 0.0, **values})


Device = tuple[str, str]


def pod_of(labels: Mapping[str, str]) -> PodName | None:
    """The pod that uses the device. Without honorLabels the labels of the exporter's own pod stand in the
    place of the device's, which are `exported_` then."""
    prefix = "exported_" if labels.get("exported_pod") else ""
    name, namespace = labels.get(f"{prefix}pod"), labels.get(f"{prefix}namespace")
    return PodName(namespace, name) if name and namespace else None


def _device(labels: Mapping[str, str]) -> Device:
    """A GPU, or an instance of one (MIG)."""
    return labels.get("UUID") or labels.get("gpu") or labels.get("device") or "", labels.get("GPU_I_ID") or ""
