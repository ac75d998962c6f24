"""A real Prometheus with a past: the samples of a recorded GPU, as dcgm-exporter's series."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import pytest

VARIABLE: Final = "QUEUECTL_PROMETHEUS"
SAMPLE_SECONDS: Final = 30
PAST_SECONDS: Final = 2700
_TRACE: Final = json.loads((Path(__file__).parent / "h200.json").read_text())
METRICS: Final[tuple[str, ...]] = tuple(_TRACE["metrics"])
PHASES: Final[Mapping[str, list[list[float]]]] = _TRACE["phases"]


class Exported(NamedTuple):
    """One device as an exporter tells of it."""

    labels: Mapping[str, str]
    phase: str
    metrics: tuple[str, ...] = METRICS
    missing: range = range(0)
    """Seconds ago, without samples."""


def programs() -> Path:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: nothing is read from a Prometheus")
    return Path(folder)


@contextlib.asynccontextmanager
async def prometheus(folder: Path, devices: Iterable[Exported]) -> AsyncIterator[str]:
    """Its URL. It scrapes nothing: what it has is of the last three quarters of an hour."""
    binaries, source, data = programs(), folder / "samples.txt", folder / "data"
    now = datetime.now(UTC).timestamp()  # noqa: TID251 - Prometheus answers by its own clock
    source.write_text("\n".join([*_lines(list(devices), now), "# EOF\n"]))
    command = ("tsdb", "create-blocks-from", "openmetrics", source, data)
    stored = await asyncio.create_subprocess_exec(binaries / "promtool", *command, stdout=DEVNULL)
    async with asyncio.timeout(60):
        assert await stored.wait() == 0
    async with served(folder, {}) as url:
        yield url


@contextlib.asynccontextmanager
async def served(folder: Path, config: Mapping[str, object]) -> AsyncIterator[str]:
    """The URL of a Prometheus with this configuration, which keeps its data in `folder`."""
    binaries = programs()
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binaries / "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            stdout=DEVNULL,
            stderr=log,
        )
    try:
        async with asyncio.timeout(60):
            while not await _ready(address):
                assert process.returncode is None, (folder / "log").read_text()[-2000:]
                await asyncio.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        async with asyncio.timeout(30):
            await process.wait()


async def _ready(address: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/-/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def _lines(devices: list[Exported], now: float) -> Iterator[str]:
    """OpenMetrics with times, a metric after the other."""
    for place, metric in enumerate(METRICS):
        yield f"# TYPE {metric} gauge"
        for device in devices:
            if metric not in device.metrics:
                continue
            labels = ",".join(f'{name}="{text}"' for name, text in device.labels.items())
            rows = PHASES[device.phase]
            for number, ago in enumerate(range(PAST_SECONDS, -1, -SAMPLE_SECONDS)):
                if ago not in device.missing:
                    value = rows[number % len(rows)][place]
                    yield f"{metric}{{{labels}}} {value} {now - ago:.3f}"
