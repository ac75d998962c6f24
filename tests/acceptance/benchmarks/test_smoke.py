"""Benchmarks run, with sizes too small to measure speed: those of each way to measure."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import children
from benchmarks.report import Figure, Goal, percentile, shown
from benchmarks.server_profile import stacks
from queuectl.sandbox.control_plane import ASSETS_VARIABLE, find_assets

LEAST = 1000
"""Divisor of all sizes; each size stays at least one."""
GATED, BARE = "bare watcher, our policies", "bare watcher, no policy"


async def _bench(*arguments: str, assets: bool = True) -> tuple[int, str]:
    environment = {k: v for k, v in os.environ.items() if assets or k != ASSETS_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", "--scale", str(LEAST), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    try:
        async with asyncio.timeout(300):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode()


def _figures(report: dict[str, Any]) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = report["figures"]
    assert figures
    assert all(figure["value"] > 0 for figure in figures), figures
    return figures


async def test_the_core_and_the_ledger_are_measured_beside_their_ceilings(tmp_path: Path) -> None:
    code, out = await _bench("--only", "engine,ledger,past,replay", "--json", str(tmp_path / "found.json"))
    assert code == 0, out
    assert "this machine's own" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["cores"] == os.cpu_count()
    engine, ledger, past, replay = found["benchmarks"]
    for report in (engine, ledger, past, replay):
        assert all(figure["ratio"] > 0 for figure in _figures(report))
    assert [figure["goal"]["limit"] for figure in engine["figures"] if figure["goal"]] == [40_000]
    assert [figure["goal"]["limit"] for figure in ledger["figures"] if figure["goal"]] == [1_000]
    assert [row["read"] for row in past["details"][0]["rows"]] == ["earlier", "newest"]


async def test_the_decisions_are_measured_at_full_size_and_at_a_tenth(tmp_path: Path) -> None:
    code, out = await _bench("--only", "decisions", "--json", str(tmp_path / "found.json"))
    assert code == 0, out
    (report,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    figures = _figures(report)
    assert [figure["goal"]["limit"] for figure in figures] == [40_000, 500, 50, 300]
    assert figures[0]["ratio"] > 0
    growth, memory = report["details"]
    assert all(row["full / tenth"] > 0 for row in growth["rows"])
    assert [row["jobs that wait"] for row in memory["rows"]] == sorted(
        (row["jobs that wait"] for row in memory["rows"]), reverse=True
    )


async def test_a_benchmark_that_needs_a_control_plane_is_skipped_with_a_message_without_one(
    tmp_path: Path,
) -> None:
    code, out = await _bench("--only", "jobs", "--json", str(tmp_path / "found.json"), assets=False)
    assert code == 0, out
    assert "SKIPPED: KUBEBUILDER_ASSETS is not set" in out
    (jobs,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    assert "KUBEBUILDER_ASSETS" in jobs["skipped"]


@pytest.mark.skipif(find_assets() is None, reason=f"{ASSETS_VARIABLE} is not set")
async def test_jobs_are_measured_beside_bare_watchers_with_and_without_policies(tmp_path: Path) -> None:
    code, out = await _bench("--only", "jobs", "--json", str(tmp_path / "found.json"))
    assert code == 0, out
    (report,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    figures = _figures(report)
    assert [figure["bound"] for figure in figures[:2]] == [BARE, GATED]
    assert len([one for one in figures if one["bound"] == "queuectl without nodes"]) == 2
    requests = {
        row["resource"]: row for row in report["details"][-1]["rows"] if row["verb"] in ("POST", "PATCH")
    }
    for watcher in (GATED, BARE):
        assert requests["jobs"][watcher] == requests["jobs/status"][watcher] == 1
        assert requests["events"][watcher] == 0
    assert requests["jobs"]["queuectl"] >= 1


async def test_an_unknown_benchmark_is_refused_by_name() -> None:
    code, out = await _bench("--only", "engines")
    assert code == 2
    assert "engines is none of engine, decisions, ledger" in out


def test_a_goal_is_of_the_figure_or_of_its_ratio() -> None:
    figure = Figure(name="x", value=60.0, unit="Jobs/s", ceiling=80.0)
    assert figure.ratio == 0.75
    assert Goal("ratio", "least", 0.7).met(figure)
    assert not Goal("ratio", "most", 0.7).met(figure)
    assert not Goal("value", "least", 61.0).met(figure)
    assert Goal("value", "most", 60.0).met(figure)
    assert str(Goal("ratio", "least", 0.7)) == "≥ 70%"


def test_a_profile_of_a_go_program_is_read_as_stacks() -> None:
    """Go writes up to two numbers of a repeated field one by one, and more of them packed."""

    def field(number: int, value: int | bytes) -> bytes:
        if isinstance(value, int):
            return bytes([number << 3, value])
        return bytes([number << 3 | 2, len(value)]) + value

    texts = [b"", b"main.serve", b"main.decode", b"runtime.mallocgc"]
    functions = [field(1, number) + field(2, number) for number in (1, 2, 3)]
    places = [field(1, 10 + number) + field(4, field(1, number)) for number in (1, 2, 3)]
    unpacked = field(1, 12) + field(1, 11) + field(2, 5) + field(2, 50)
    packed = field(1, bytes([13, 12, 11])) + field(2, 7) + field(2, 70)
    profile = [field(2, one) for one in (unpacked, packed)]
    profile += [field(4, one) for one in places] + [field(5, one) for one in functions]
    profile += [field(6, text) for text in texts]
    assert list(stacks(gzip.compress(b"".join(profile)))) == [
        (["main.decode", "main.serve"], 5),
        (["runtime.mallocgc", "main.decode", "main.serve"], 7),
    ]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([3.0], 0.99) == 3
    assert (shown(0.128), shown(12.34), shown(12345.6)) == ("0.13", "12.3", "12,346")


async def test_a_benchmark_that_is_asked_to_stop_leaves_no_process() -> None:
    bench = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", "--only", "ledger"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=Path(__file__).parents[3],
    )
    try:
        async with asyncio.timeout(60):
            while not (servers := _serving(bench.pid)):
                await asyncio.sleep(0.05)
            ((pid, folder),) = servers.items()
            assert folder.name.startswith("queuectl-bench-")
            bench.terminate()
            await bench.wait()
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.05)
    finally:
        if bench.returncode is None:
            bench.kill()
            await bench.wait()
    assert not folder.exists()


def _serving(bench: int) -> dict[int, Path]:
    """Postgres servers that the benchmark started, and its folder."""
    found = {}
    for pid in children(bench):
        with contextlib.suppress(OSError):
            data = Path(f"/proc/{pid}/cwd").resolve(strict=True)
            if (data / "postmaster.pid").exists():
                found[pid] = data.parents[1]
    return found


async def test_admissions_with_usage_limits_are_measured_beside_those_without(tmp_path: Path) -> None:
    code, out = await _bench("--only", "limits", "--json", str(tmp_path / "found.json"))
    assert code == 0, out
    (report,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    assert len(report["figures"]) == 2
    assert all(figure["ratio"] > 0 for figure in report["figures"])


async def test_room_on_nodes_is_measured(tmp_path: Path) -> None:
    code, out = await _bench("--only", "room", "--json", str(tmp_path / "found.json"))
    assert code == 0, out
    (report,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    figures = {figure["unit"]: figure for figure in report["figures"]}
    assert figures["µs of CPU"]["value"] > 0
    assert figures["admissions per CPU second"]["ratio"] > 0
