"""What a real GPU reported for eleven kinds of work, through a real Prometheus, and what is said of each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from queuectl.core.model.device_use import UseVerdict
from queuectl.idle.check import device_samples
from queuectl.idle.prometheus import Prometheus, PrometheusFailed
from queuectl.idle.verdicts import DeviceSamples, finding_of
from queuectl.settings.idle import IdleSettings, PrometheusSettings
from tests.acceptance.idle.server import METRICS, PHASES, Exported, prometheus

pytestmark = [pytest.mark.acceptance, pytest.mark.asyncio(loop_scope="module")]

RULES = IdleSettings()
DEFAULT = tuple(name for name in METRICS if name != "DCGM_FI_PROF_SM_ACTIVE")
"""What dcgm-exporter exports unless configured otherwise."""
VERDICTS = {
    "no process": UseVerdict.IDLE,
    "a context": UseVerdict.IDLE,
    "an untouched notebook": UseVerdict.IDLE,
    "a notebook with a cell each 8 s": UseVerdict.SPARSE,
    "training": UseVerdict.BUSY,
    "starved training": UseVerdict.BUSY,
    # It differs from an idle device by its length alone: this one has no end.
    "a checkpoint": UseVerdict.IDLE,
    "serving": UseVerdict.SPARSE,
    "a hang": UseVerdict.HANG,
    "copies": UseVerdict.BUSY,
    "work is over": UseVerdict.IDLE,
}


def labels(pod: str, number: int, **more: str) -> dict[str, str]:
    return {"namespace": "team-a", "pod": pod, "container": "main", "UUID": f"GPU-{number}", **more}


def exported(pod: str, number: int) -> dict[str, str]:
    """As Prometheus renames the labels of a device without honorLabels."""
    ours = {"exported_namespace": "team-a", "exported_pod": pod, "UUID": f"GPU-{number}"}
    return {"namespace": "gpu-operator", "pod": "dcgm-exporter-x2b7k", **ours}


DEVICES = [
    *(Exported(labels(phase, number), phase) for number, phase in enumerate(PHASES)),
    *(Exported(labels(f"default: {phase}", 20 + n), phase, DEFAULT) for n, phase in enumerate(PHASES)),
    Exported(exported("renamed", 40), "an untouched notebook"),
    Exported({"UUID": "GPU-41", "hostname": "n1"}, "an untouched notebook"),
    # The exporter was down for 5 of 30 minutes.
    Exported(labels("gap", 42), "an untouched notebook", missing=range(600, 900)),
    Exported(labels("new", 43), "an untouched notebook", missing=range(600, 2701)),
    Exported(labels("only utilization", 44), "an untouched notebook", ("DCGM_FI_DEV_GPU_UTIL",)),
    *(Exported(labels("gang", 50 + n), "training" if n == 0 else "a context") for n in range(8)),
    *(Exported(labels("hung gang", 60 + n), "a hang") for n in range(8)),
    *(
        Exported(labels("mig", 70, GPU_I_PROFILE="1g.18gb", GPU_I_ID=str(n)), "an untouched notebook")
        for n in range(2)
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    async with prometheus(folder, DEVICES) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def samples(url: str) -> dict[str, list[DeviceSamples]]:
    found = await device_samples(Prometheus(url), RULES)
    assert {namespace for namespace, _ in found} == {"team-a"}
    return {pod: devices for (_, pod), devices in found.items()}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_kind_of_work_has_its_verdict(
    samples: dict[str, list[DeviceSamples]], phase: str, figures: list[str]
) -> None:
    for pod in (phase, f"default: {phase}"):
        told = finding_of(1, samples[pod], RULES)
        assert told.verdict is VERDICTS[phase], (pod, told)
    engine = f"{told.engine:.4f}"
    figures.append(f"{phase}: {told.verdict}, engine {engine}, samples {100 * told.coverage:.0f} %")


@pytest.mark.parametrize(
    ("pod", "devices", "verdict", "idle"),
    [
        ("renamed", 1, UseVerdict.IDLE, 1),
        ("gap", 1, UseVerdict.UNKNOWN, 0),
        ("new", 1, UseVerdict.UNKNOWN, 0),
        ("only utilization", 1, UseVerdict.UNKNOWN, 0),
        ("gang", 8, UseVerdict.BUSY, 7),
        ("hung gang", 8, UseVerdict.HANG, 8),
        ("hung gang", 9, UseVerdict.UNKNOWN, 0),
        ("mig", 2, UseVerdict.IDLE, 2),
        ("not exported", 1, UseVerdict.UNKNOWN, 0),
    ],
)
async def test_what_is_missing_is_never_idle(
    samples: dict[str, list[DeviceSamples]], pod: str, devices: int, verdict: UseVerdict, idle: int
) -> None:
    told = finding_of(devices, samples.get(pod, []), RULES)
    assert (told.verdict, told.idle_devices) == (verdict, idle)


async def test_a_query_that_the_server_refuses_is_an_error(url: str) -> None:
    with pytest.raises(PrometheusFailed, match=r"HTTP 400: .*parse error"):
        await Prometheus(url).query("avg_over_time(")
    with pytest.raises(PrometheusFailed, match="HTTP 422"):
        await Prometheus(url).query('label_replace(up, "!", "", "", "")')


async def test_the_selector_chooses_series(url: str, samples: dict[str, list[DeviceSamples]]) -> None:
    selectors = ('UUID=""', 'UUID!="", UUID=~".+"')
    sources = [PrometheusSettings(url=url, selector=one) for one in selectors]
    found = [await device_samples(Prometheus(url), IdleSettings(prometheus=one)) for one in sources]
    assert [len(pods) for pods in found] == [0, len(samples)]
