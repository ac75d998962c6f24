"""The alerts of a platform team, as promtool evaluates them: each fires, and not without its cause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, Final

import pytest
import yaml

from tests.acceptance.idle.server import programs

RULES: Final = Path(__file__).resolve().parents[3] / "manifests" / "monitoring" / "rules.yaml"
GPU: Final = "nvidia.com/gpu"
FILE: Final = {"rule_files": [str(RULES)], "evaluation_interval": "5m"}
LATER: Final = 60 * 12
"""Minutes of the series."""


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    named = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{named}}}", "values": values}


def constant(name: str, value: int, **labels: str) -> dict[str, str]:
    return series(name, f"{value}x{LATER}", **labels)


def counted(name: str, each_minute: int, **labels: str) -> dict[str, str]:
    return series(name, f"0+{each_minute}x{LATER}", **labels)


A100: Final = {"flavor": "a100", "resource": GPU}
TEAM: Final = {"cluster_queue": "team-a", "flavor": "a100"}


def quota(nominal: int, used: int) -> list[dict[str, str]]:
    return [
        constant("queuectl_quota_nominal", nominal, cluster_queue="team-a", **A100),
        constant("queuectl_quota_used", used, cluster_queue="team-a", **A100),
    ]


def preempted(each_minute: int, admitted: int) -> list[dict[str, str]]:
    return [
        counted("queuectl_evictions_total", each_minute, reason="Preempted", cause="InClusterQueue"),
        counted("queuectl_admissions_total", admitted, cluster_queue="team-a"),
    ]


def waited(within: str) -> list[dict[str, str]]:
    """All wait less than `within` seconds and more than the bucket below."""
    bounds = ("3600", "14400", "43200", "+Inf")
    return [
        counted(
            "queuectl_admission_wait_seconds_bucket",
            int(bounds.index(bound) >= bounds.index(within)),
            cluster_queue="team-a",
            le=bound,
        )
        for bound in bounds
    ]


def free(devices: int, pods: int) -> list[dict[str, str]]:
    return [
        constant("queuectl_flavor_free", devices, **A100),
        constant("queuectl_flavor_free", 100, flavor="a100", resource="cpu"),
        constant("queuectl_demand_pods", pods, awaits="Room", **TEAM),
    ]


def waits(nominal: int, used: int, pods: int) -> list[dict[str, str]]:
    return [*quota(nominal, used), constant("queuectl_demand_pods", pods, awaits="Quota", **TEAM)]


def nodes(devices: int) -> dict[str, str]:
    return constant("queuectl_flavor_capacity", devices, **A100)


CASES: Final[dict[str, tuple[str, list[dict[str, str]], str | None]]] = {
    "more is promised than nodes have": (
        "QueuectlQuotaBeyondNodes",
        [*quota(16, 0), nodes(8)],
        f"16 {GPU} of a100",
    ),
    "nodes have what is promised": ("QueuectlQuotaBeyondNodes", [*quota(8, 8), nodes(8)], None),
    "devices are free beside pods": ("QueuectlFreeBesidePending", free(3, 2), "2 pods wait for a100"),
    "no pod waits": ("QueuectlFreeBesidePending", free(3, 0), None),
    "only cpu is free": ("QueuectlFreeBesidePending", free(0, 2), None),
    "waits of half a day": ("QueuectlLongWaits", waited("43200"), "of team-a waited for more than 11h"),
    "waits of an hour": ("QueuectlLongWaits", waited("14400"), None),
    "half is preempted": ("QueuectlManyPreemptions", preempted(1, 2), "360 workloads"),
    "a tenth is preempted": ("QueuectlManyPreemptions", preempted(1, 10), None),
    "own quota is lent": ("QueuectlOwnQuotaNotUsed", waits(8, 2, 5), "team-a waits for quota of a100"),
    "own quota is used": ("QueuectlOwnQuotaNotUsed", waits(8, 8, 5), None),
    "nothing waits for quota": ("QueuectlOwnQuotaNotUsed", waits(8, 2, 0), None),
}


async def promtool(*arguments: object) -> tuple[int, str]:
    """Exit code and output."""
    tool = await asyncio.create_subprocess_exec(
        programs() / "promtool", *map(str, arguments), stdout=PIPE, stderr=STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await tool.communicate()
    assert tool.returncode is not None
    return tool.returncode, output.decode()


async def test_promtool_reads_all_rules() -> None:
    code, output = await promtool("check", "rules", RULES)
    assert code == 0, output


@pytest.mark.parametrize("case", CASES)
async def test_an_alert_fires_for_its_cause_alone(tmp_path: Path, case: str) -> None:
    alert, inputs, summary = CASES[case]
    expression = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    file = tmp_path / "test.yaml"

    async def evaluated(samples: list[dict[str, Any]]) -> tuple[int, str]:
        asked = {
            "expr": f"count({expression}) or vector(0)",
            "eval_time": f"{LATER}m",
            "exp_samples": samples,
        }
        test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [asked]}
        file.write_text(yaml.safe_dump(FILE | {"tests": [test]}))
        return await promtool("test", "rules", file)

    code, output = await evaluated([{"labels": "{}", "value": 0 if summary is None else 1}])
    assert code == 0, output
    if summary is not None:
        wrong = {"eval_time": f"{LATER}m", "alertname": alert, "exp_alerts": []}
        test = {"interval": "1m", "input_series": inputs, "alert_rule_test": [wrong]}
        file.write_text(yaml.safe_dump(FILE | {"tests": [test]}))
        _, output = await promtool("test", "rules", file)  # it names the alert that it did not expect
        assert summary in output
