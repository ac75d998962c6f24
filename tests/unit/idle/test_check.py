"""One check: which series belong to which pod, and what is recorded if something does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuectl.core.model.device_use import UseVerdict
from queuectl.core.model.workload import WorkloadId
from queuectl.idle.check import PodName, check, device_samples, pod_of
from queuectl.idle.prometheus import PrometheusFailed, Sample
from queuectl.kinds.reserved_keys import WORKLOAD_LABEL
from queuectl.kube.errors import ApiError
from queuectl.ports.idle import DeviceHolder
from queuectl.settings.idle import IdleSettings, PrometheusSettings

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


class Server:
    """Answers as Prometheus: every device has this activity of its engine."""

    def __init__(self, *devices: tuple[dict[str, str], float], fails: bool = False) -> None:
        self._devices = devices
        self._fails = fails
        self.asked: list[str] = []

    async def query(self, expression: str) -> list[Sample]:
        self.asked.append(expression)
        if self._fails:
            raise PrometheusFailed("HTTP 503: it starts")
        if expression.endswith(f"(count_over_time({ENGINE}[1800s]))"):
            return [Sample(labels, 60) for labels, _ in self._devices]
        if expression.endswith(f"(avg_over_time({ENGINE}[1800s]))"):
            return [Sample(labels, value) for labels, value in self._devices]
        return []


class Pods:
    """A session that lists pods, each with the workload in its label."""

    def __init__(self, pods: Mapping[tuple[str, str], str], error: ApiError | None = None) -> None:
        self._pods = pods
        self._error = error

    async def pages(self, path: str, *, query: Mapping[str, str], accept: str) -> AsyncIterator[Any]:
        assert (path, query) == ("/api/v1/pods", {"labelSelector": WORKLOAD_LABEL})
        assert "PartialObjectMetadataList" in accept
        if self._error is not None:
            raise self._error
        items = [
            {"metadata": {"namespace": namespace, "name": name, "labels": {WORKLOAD_LABEL: workload}}}
            for (namespace, name), workload in self._pods.items()
        ]
        yield {"items": items}


class Records:
    def __init__(self, *holders: DeviceHolder) -> None:
        self._holders = holders
        self.problem: str | None = None

    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        assert resources == ("nvidia.com/*",)
        return list(self._holders)

    async def store_check(self, problem: str | None, resources: Sequence[str]) -> datetime:
        self.problem = problem
        return NOW


def holder(
    workload: str, devices: int = 1, priority_class: str | None = None, namespace: str = "team-a"
) -> DeviceHolder:
    return DeviceHolder(namespace, WorkloadId(workload), 2, "team-a", devices, priority_class)


def gpu(pod: str, uuid: str, **more: str) -> dict[str, str]:
    return {"namespace": "team-a", "pod": pod, "UUID": uuid, **more}


async def verdicts(
    records: Records, server: Server, pods: Pods, exempt: frozenset[str] = frozenset()
) -> dict[str, tuple[UseVerdict, int]]:
    judged = IdleSettings(exempt_classes=tuple(exempt), check_seconds=140)
    told = await check(records, pods, server, judged)  # type: ignore[arg-type]
    for queue, event in told:
        assert (queue, event.attempt, event.at) == ("team-a", 2, NOW)
        assert event.until == NOW + timedelta(minutes=7)
    return {str(event.workload): (event.finding.verdict, event.finding.idle_devices) for _, event in told}


async def test_samples_are_joined_to_workloads_by_their_pods() -> None:
    server = Server(
        (gpu("a-0", "GPU-1"), 0.0),
        (gpu("a-1", "GPU-2"), 0.0),
        (gpu("b-0", "GPU-3"), 0.7),
        (gpu("of-no-workload", "GPU-4"), 0.7),
        ({"namespace": "gpu-operator", "pod": "dcgm-exporter-x", "UUID": "GPU-5"}, 0.0),
        ({"UUID": "GPU-6"}, 0.0),
    )
    pods = Pods(
        {("team-a", "a-0"): "a", ("team-a", "a-1"): "a", ("team-a", "b-0"): "b", ("team-b", "c-0"): "c"}
    )
    records = Records(holder("a", 2), holder("b"), holder("c", namespace="team-b"))
    assert await verdicts(records, server, pods) == {
        "a": (UseVerdict.IDLE, 2),
        "b": (UseVerdict.BUSY, 0),
        "c": (UseVerdict.UNKNOWN, 0),
    }
    assert records.problem is None


async def test_pods_of_another_namespace_with_the_label_of_a_workload_say_nothing_of_it() -> None:
    """The template of a Job that does not queue has any label: else it would hold others' workloads."""
    server = Server(
        ({"namespace": "evil", "pod": "idle", "UUID": "GPU-1"}, 0.0),
        ({"namespace": "evil", "pod": "busy", "UUID": "GPU-2"}, 0.9),
        (gpu("b-0", "GPU-3"), 0.0),
    )
    pods = Pods({("evil", "idle"): "a", ("evil", "busy"): "b", ("team-a", "b-0"): "b"})
    records = Records(holder("a"), holder("b"))
    assert await verdicts(records, server, pods) == {
        "a": (UseVerdict.UNKNOWN, 0),
        "b": (UseVerdict.IDLE, 1),
    }


async def test_a_class_that_is_exempt_is_not_judged() -> None:
    server, pods = Server((gpu("a-0", "GPU-1"), 0.0)), Pods({("team-a", "a-0"): "a"})
    records = Records(holder("a", priority_class="serving"))
    found = await verdicts(records, server, pods, frozenset({"serving"}))
    assert found == {"a": (UseVerdict.EXEMPT, 0)}


@pytest.mark.parametrize(
    ("server", "pods", "problem"),
    [
        (Server(fails=True), Pods({}), "Prometheus: HTTP 503: it starts"),
        (Server(), Pods({}, ApiError("no route", status=0)), "the API server: no route"),
    ],
    ids=["Prometheus", "the API server"],
)
async def test_without_an_answer_all_are_unknown(server: Server, pods: Pods, problem: str) -> None:
    records = Records(holder("a"))
    assert await verdicts(records, server, pods) == {"a": (UseVerdict.UNKNOWN, 0)}
    assert records.problem == problem


async def test_nothing_is_asked_where_nothing_holds_devices() -> None:
    server, records = Server(fails=True), Records()
    assert await verdicts(records, server, Pods({}, ApiError("no route"))) == {}
    assert (server.asked, records.problem) == ([], None)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"namespace": "a", "pod": "x"}, ("a", "x")),
        ({"namespace": "mon", "pod": "dcgm", "exported_namespace": "a", "exported_pod": "x"}, ("a", "x")),
        ({"namespace": "mon", "pod": "dcgm", "exported_namespace": "", "exported_pod": ""}, ("mon", "dcgm")),
        ({"exported_pod": "x", "namespace": "mon"}, None),
        ({"hostname": "n1"}, None),
        ({"namespace": "a", "pod": ""}, None),
    ],
)
def test_the_pod_is_in_exported_labels_without_honor_labels(
    labels: dict[str, str], expected: tuple[str, str] | None
) -> None:
    assert pod_of(labels) == expected


async def test_series_are_those_that_the_selector_chooses() -> None:
    """Any pod that Prometheus scrapes may export these metrics, with the labels of other pods."""
    server = Server()
    await check(
        Records(holder("a")),
        Pods({}),  # type: ignore[arg-type]
        server,
        IdleSettings(prometheus=PrometheusSettings(url="http://p", selector='job="dcgm-exporter"')),
    )
    assert len(server.asked) == 8
    assert all('{job="dcgm-exporter"}[' in expression for expression in server.asked)


async def test_instances_of_a_gpu_are_devices_of_their_own_and_copies_are_one() -> None:
    mig = {"GPU_I_PROFILE": "1g.10gb"}
    server = Server(
        (gpu("a-0", "GPU-1", GPU_I_ID="7", **mig), 0.0),
        (gpu("a-0", "GPU-1", GPU_I_ID="8", **mig), 0.5),
        (gpu("b-0", "GPU-2", prometheus_replica="one"), 0.2),
        (gpu("b-0", "GPU-2", prometheus_replica="two"), 0.3),
    )
    found = await device_samples(server, IdleSettings())
    assert sorted(one.engine or 0 for one in found[PodName("team-a", "a-0")]) == [0.0, 0.5]
    assert [one.engine for one in found[PodName("team-a", "b-0")]] == [0.3]
    assert len(server.asked) == 8
