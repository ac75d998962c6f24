"""Output of the sandbox while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.reader import DecisionRow
from queuectl.sandbox.endpoints import Endpoints
from queuectl.sandbox.narration import controller_command, describe, tell_decisions, what_to_try

ROW = DecisionRow(
    sequence=7,
    cycle=1,
    now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    epoch=1,
    verdict="Admitted",
    workload=WorkloadId("u"),
    ref=ObjectRef("team-a", "Job", "train", "u"),
    attempt=1,
    reason=None,
    payload={
        "clusterQueue": "team-a",
        "podSets": [
            {
                "name": "main",
                "count": 2,
                "requests": {"cpu": 1500, "nvidia.com/gpu": 4},
                "flavors": {"cpu": "a100", "nvidia.com/gpu": "a100"},
            }
        ],
    },
)
TOO_LARGE = Reason(
    code=Code.EXCEEDS_MAX_QUOTA,
    flavor="a100",
    resource="nvidia.com/gpu",
    requested=16,
    available=8,
    short_by=8,
    limit=Limit.NOMINAL_QUOTA,
    node="ClusterQueue/team-a",
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "03:04:05 #7     Admitted   team-a/Job/train - team-a: 8 nvidia.com/gpu of a100, 3 cpu of a100"),
        (
            {"verdict": "Pending", "reason": TOO_LARGE, "payload": {}},
            f"03:04:05 #7     Pending    team-a/Job/train - {TOO_LARGE.message}",
        ),
        (
            {"verdict": "Queued", "payload": {"clusterQueue": "team-a", "queue": "main", "priority": 100}},
            "03:04:05 #7     Queued     team-a/Job/train - in team-a, priority 100",
        ),
        (
            {"verdict": "Retired", "payload": {"outcome": "Succeeded"}},
            "03:04:05 #7     Retired    team-a/Job/train - Succeeded",
        ),
        (
            {
                "verdict": "Configured",
                "ref": None,
                "payload": {"kind": "LocalQueue", "namespace": "team-a", "name": "main", "spec": {}},
            },
            "03:04:05 #7     Configured LocalQueue/team-a/main",
        ),
    ],
)
def test_a_decision_is_one_line_with_object_verdict_and_reason(changes: dict[str, Any], line: str) -> None:
    assert describe(replace(ROW, **changes)) == line


class Ledger:
    """Decisions in pages, with the database unavailable in between."""

    def __init__(self) -> None:
        self.rows = [replace(ROW, sequence=number) for number in (3, 4, 5)]
        self.asked: list[int] = []

    async def decisions(self, *, after: int, limit: int) -> list[DecisionRow]:
        self.asked.append(after)
        if len(self.asked) == 2:
            raise LedgerUnavailable("away")
        return [row for row in self.rows if row.sequence > after][:1]


async def test_decisions_are_printed_once_each_in_order_through_an_outage() -> None:
    ledger, told = Ledger(), []
    everything = asyncio.Event()
    admissions = 0

    def say(line: str, style: str) -> None:
        told.append(line.split()[1])

    def admitted() -> None:
        nonlocal admissions
        admissions += 1
        if admissions == 2:
            everything.set()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell_decisions(ledger, 3, say, admitted))  # type: ignore[arg-type]
            await everything.wait()
            telling.cancel()
    assert told == ["#4", "#5"]


def test_commands_to_try_can_be_pasted_for_any_folder_name() -> None:
    endpoints = Endpoints(
        "https://k", "http://127.0.0.1:8", "http://m/metrics", "postgresql://u@/d?host=%2Fx&port=1"
    )
    folder = Path("/data/my sandbox")
    lines = what_to_try(folder, endpoints, example=True)
    assert lines[0].startswith("kubectl --kubeconfig '/data/my sandbox/kubeconfig' get jobs")
    assert any("explain job/too-large -n team-a --server http://127.0.0.1:8" in line for line in lines)
    command = controller_command(folder, folder / "queuectl.yaml", endpoints)
    assert command.endswith(
        "controller --config '/data/my sandbox/queuectl.yaml' --kubeconfig '/data/my sandbox/kubeconfig' "
        "--context controller --database-url 'postgresql://u@/d?host=%2Fx&port=1'"
    )
