"""Measures compared with sums calculated by hand."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.policy import Cohort
from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.core.model.resources import FlavorResource, Usage
from queuectl.core.model.workload import WorkloadId
from queuectl.simulation.history import History, Life, Run
from queuectl.simulation.measures import measures
from queuectl.simulation.usage import Bins, QuotaTable
from tests.builders import GPU, group, queue


def gpus(count: int, flavor: str = "default") -> Usage:
    return {FlavorResource(flavor, GPU): count}


def run(since: int, to: int | None, usage: Usage, name: str = "a", **fields: Any) -> Run:
    return Run(name, usage, since, released=to, finished=to is not None and "stopped" not in fields, **fields)


def life(name: str, arrived: int, *runs: Run, of: str = "a", **fields: Any) -> Life:
    finished = runs[-1].released if runs and runs[-1].finished else None
    return Life(WorkloadId(name), arrived, of, runs=list(runs), finished=finished, **fields)


def document(*lives: Life, end: int, site: QuotaTable | None = None) -> dict[str, Any]:
    made = site or QuotaTable([queue("a", 4, cohort="c"), queue("b", 4, cohort="c")])
    return measures(History(end=end, lives=lives, plans=0), made)


def of(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in found["queues"] if one["name"] == name)


def test_a_wait_is_from_arrival_to_the_first_start() -> None:
    found = document(
        life("w1", 0, run(0, 60_000, gpus(4))),
        life("w2", 0, run(60_000, 90_000, gpus(2))),
        life("w3", 10_000, run(90_000, None, gpus(4))),
        end=100_000,
    )
    assert of(found, "a")["wait"] == {"mean": 46.667, "median": 60.0, "p95": 80.0, "max": 80.0}
    figures = {key: of(found, "a")[key] for key in ("workloads", "started", "finished", "running", "waiting")}
    assert figures == {"workloads": 3, "started": 3, "finished": 2, "running": 1, "waiting": 0}


def test_a_workload_not_started_counts_with_its_wait_so_far_unless_it_never_can() -> None:
    found = document(life("w1", 20_000), life("huge", 0, never=True), end=100_000)
    assert of(found, "a")["wait"]["max"] == 80.0
    assert (of(found, "a")["waiting"], of(found, "a")["never"]) == (1, 1)
    assert of(found, "b")["wait"] == {"mean": None, "median": None, "p95": None, "max": None}


def test_use_is_in_percent_of_nominal_quota_over_the_whole_time() -> None:
    found = document(
        life("w1", 0, run(0, 50_000, gpus(4))), life("w2", 0, run(50_000, None, gpus(1))), end=100_000
    )
    (resource,) = of(found, "a")["resources"]
    assert resource == {
        "resource": GPU,
        "nominal": 4,
        "used": 2.5,
        "usedPercent": 62.5,
        "borrowedPercent": 0.0,
        "lostPercent": 0.0,
    }
    (total,) = found["total"]["resources"]
    assert (total["nominal"], total["usedPercent"]) == (8, 31.25)


def test_usage_beyond_nominal_quota_is_borrowed() -> None:
    found = document(life("w1", 0, run(0, 50_000, gpus(6))), end=100_000)
    (resource,) = of(found, "a")["resources"]
    assert (resource["usedPercent"], resource["borrowedPercent"]) == (75.0, 25.0)
    assert of(found, "a")["dominantShare"] == {"mean": 37.5, "max": 75.0}


def test_borrowing_one_flavor_is_not_hidden_by_free_quota_in_another() -> None:
    site = QuotaTable([queue("a", groups=[group({"fast": {GPU: 2}, "slow": {GPU: 2}})], cohort="c")])
    found = document(life("w1", 0, run(0, 100_000, gpus(4, "fast"))), end=100_000, site=site)
    assert of(found, "a")["resources"][0]["borrowedPercent"] == 50.0


def test_a_share_is_of_the_whole_tree_for_the_resource_with_the_highest_percentage() -> None:
    both = queue("a", groups=[group({"default": {GPU: 4, "cpu": 10_000}})], cohort="low")
    cohorts = [
        Cohort(name="low", parent="top"),
        Cohort(name="top", resource_groups=(group({"default": {GPU: 4, "cpu": 90_000}}),)),
    ]
    usage = {FlavorResource("default", GPU): 1, FlavorResource("default", "cpu"): 50_000}
    found = document(life("w1", 0, run(0, 50_000, usage)), end=100_000, site=QuotaTable([both, *cohorts]))
    assert of(found, "a")["dominantShare"] == {"mean": 25.0, "max": 50.0}


def test_preemptions_count_for_the_preemptors_and_the_victims_queue() -> None:
    taken = run(
        0,
        40_000,
        gpus(6),
        stopped=30_000,
        code=Code.PREEMPTED,
        cause=PreemptionCause.IN_COHORT_RECLAMATION,
        preemptor=WorkloadId("owner"),
    )
    found = document(
        life("guest", 0, taken, run(70_000, None, gpus(4)), priority=1),
        life("owner", 30_000, run(40_000, 70_000, gpus(4), "b"), of="b", priority=5),
        end=100_000,
    )
    suffered = {"done": 0, "suffered": 1, "causes": {"InCohortReclamation": 1}}
    assert of(found, "a")["preemptions"] == suffered
    assert of(found, "b")["preemptions"] == {"done": 1, "suffered": 0, "causes": {}}
    assert of(found, "a")["evictions"] == {"Preempted": 1}
    assert of(found, "a")["lostSeconds"] == 30.0
    assert of(found, "a")["resources"][0]["lostPercent"] == 60.0  # 6 of 4 GPUs for 40 of 100 s
    high, low = found["priorities"]
    assert (high["priority"], high["preemptions"]["done"], high["lostSeconds"]) == (5, 1, 0.0)
    assert (low["priority"], low["preemptions"]["suffered"], low["lostSeconds"]) == (1, 1, 30.0)


def test_a_preempted_workload_counts_as_pending_again_in_the_timeline() -> None:
    taken = run(0, 25_000, gpus(4), stopped=25_000, code=Code.PREEMPTED)
    found = document(life("w1", 0, taken, run(50_000, None, gpus(4))), end=100_000)
    (line, _) = found["timeline"]["queues"]
    width = found["timeline"]["seconds"]
    assert sum(line["waiting"]) * width == pytest.approx(25.0, abs=width / 2)


def test_the_timeline_adds_up_to_the_use() -> None:
    lives = [life(f"w{n}", 0, run(n * 1_700, n * 1_700 + 3_333, gpus(1))) for n in range(20)]
    found = document(*lives, end=50_001)
    (line, _) = found["timeline"]["queues"]
    width, levels = found["timeline"]["seconds"], line["used"][GPU]
    last = 50.001 - width * (len(levels) - 1)
    assert sum(levels[:-1]) * width + levels[-1] * last == pytest.approx(20 * 3.333, rel=1e-3)


def test_an_empty_history_has_zero_measures() -> None:
    found = document(end=0)
    assert found["total"]["workloads"] == 0
    assert found["timeline"]["queues"][0]["waiting"] == [0.0]


def test_a_value_is_spread_over_the_parts_it_covers() -> None:
    bins = Bins.of(100, 4)
    bins.add(10, 60, 2)
    assert bins.means(100) == [1.2, 2.0, 0.8, 0.0]
