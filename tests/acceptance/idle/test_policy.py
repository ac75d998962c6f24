"""An IdlePolicy over a real Prometheus with a recorded GPU: a dry run, notices, lower priority, stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from queuectl.core.decisions import Evict
from queuectl.core.model.device_use import IdlePolicy
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitTarget
from queuectl.core.model.workload import WorkloadId
from queuectl.idle.check import check
from queuectl.idle.prometheus import Prometheus
from queuectl.kinds.reserved_keys import WORKLOAD_LABEL
from queuectl.ports.idle import DeviceHolder
from queuectl.settings.idle import IdleSettings
from tests.acceptance.idle.server import PHASES, Exported, prometheus
from tests.builders import World, local_queue, observed, policy, priority, queue, workload
from tests.doubles.engine_state import state

pytestmark = [pytest.mark.acceptance]

NOTIFY, LOWER, HOLD, CHECKS = 3600, 5400, 7200, 300
POLICY = IdlePolicy(
    name="p",
    target=LimitTarget("ClusterQueue", "cq"),
    notify_after=NOTIFY,
    lower_after=LOWER,
    lower_class="scavenge",
    hold_after=HOLD,
    dry_run=True,
)
NAMES = {phase: f"w{number}" for number, phase in enumerate([*PHASES, "gap"])}
IDLE = ("no process", "a context", "an untouched notebook", "a checkpoint", "a hang", "work is over")
"""A checkpoint that has no end looks as these do (docs/accounting.md)."""


class Cluster:
    """Workloads that run with one GPU each, one for each kind of work that was recorded."""

    def __init__(self, url: str) -> None:
        self._prometheus = Prometheus(url)
        self.world = World(queue("cq", len(NAMES)), local_queue("lq", "cq"))
        self.world.tell(priority("scavenge", -10))
        self.world.submit(*(workload(name) for name in NAMES.values()))
        self.world.run()
        self.world.settle()
        for name in NAMES.values():
            self.world.tell(observed(workload(name), suspended=False, generation=2))
        self.world.run()
        self.held: list[str] = []
        """Those that were stopped: held or cancelled."""
        self.reasons: set[Code] = set()

    # --- what a check reads, and stores

    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        running = [name for name in NAMES.values() if name not in self.held]
        return [DeviceHolder("ns", WorkloadId(f"uid-{name}"), 1, "cq", 1, None) for name in running]

    async def store_check(self, problem: str | None, resources: Sequence[str]) -> datetime:
        assert problem is None
        return self.world.now

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        labels = [(name, {WORKLOAD_LABEL: f"uid-{name}"}) for name in NAMES.values()]
        yield {"items": [{"metadata": {"namespace": "ns", "name": n, "labels": one}} for n, one in labels]}

    # --- time

    async def watch(self, seconds: int) -> None:
        """Check again and again for that long."""
        for _ in range(seconds // CHECKS):
            self.world.pass_time(CHECKS)
            self._run()
            found = await check(self, self, self._prometheus, IdleSettings())  # type: ignore[arg-type]
            self.world.tell(*(event for _, event in found))
            self._run()

    def _run(self) -> None:
        for decision in self.world.run():
            if isinstance(decision, Evict):
                self.held.append(decision.ref.name)
                self.reasons.add(decision.reason.code)

    def told(self) -> set[str]:
        return {alarm.ref.name for alarm in self.world.engine.take_alarms()}

    def noticed(self) -> set[str]:
        """Those with a notice in the ledger, dry runs included."""
        entries = state(self.world.engine).entries.values()
        uses = [(one.ref.name, one.past.use) for one in entries]
        return {name for name, use in uses if use is not None and use.notice is not None}

    def lowered(self) -> set[str]:
        entries = state(self.world.engine).entries.values()
        return {one.ref.name for one in entries if one.priority == -10}

    def would_be_held(self) -> set[str]:
        entries = state(self.world.engine).entries.values()
        uses = [(one.ref.name, one.past.use) for one in entries]
        notices = [(name, use.notice) for name, use in uses if use is not None]
        return {name for name, notice in notices if notice is not None and notice.held_at is not None}


@pytest.mark.parametrize("ends", [Code.IDLE_DEVICES, Code.IDLE_CANCELLED], ids=["hold", "cancel"])
async def test_a_policy_is_tried_then_tells_then_lowers_and_then_stops(
    tmp_path: Path, figures: list[str], ends: Code
) -> None:
    tried = replace(POLICY, cancels=ends is Code.IDLE_CANCELLED)
    idle = {NAMES[phase] for phase in IDLE}
    devices = [Exported(_labels(NAMES[phase], number), phase) for number, phase in enumerate(PHASES)]
    # 20 % of the samples of an idle device are missing.
    devices.append(Exported(_labels(NAMES["gap"], 99), "an untouched notebook", missing=range(600, 1200)))
    async with prometheus(tmp_path, devices) as url:
        cluster = Cluster(url)
        cluster.world.tell(policy(tried))
        await cluster.watch(NOTIFY)
        assert cluster.noticed() == set()
        await cluster.watch(CHECKS)
        assert cluster.noticed() == idle
        await cluster.watch(HOLD - NOTIFY)
        assert cluster.would_be_held() == idle
        assert (cluster.told(), cluster.lowered(), cluster.held) == (set(), set(), [])

        tells = replace(tried, hold_after=None, cancels=False, dry_run=False)
        cluster.world.tell(policy(tells))
        await cluster.watch(CHECKS)
        assert cluster.told() == idle
        await cluster.watch(LOWER - NOTIFY - CHECKS)
        assert cluster.lowered() == set()
        await cluster.watch(2 * CHECKS)
        assert cluster.lowered() == idle
        await cluster.watch(HOLD)
        assert (cluster.told(), cluster.held) == (set(), [])

        cluster.world.tell(policy(replace(tried, dry_run=False)))
        await cluster.watch(HOLD - NOTIFY - CHECKS)
        assert cluster.told() == idle
        assert cluster.held == []
        await cluster.watch(2 * CHECKS)
        assert (set(cluster.held), cluster.reasons) == (idle, {ends})
    figures.append(
        f"IdlePolicy: {len(idle)} of {len(NAMES)} kinds of work told, lowered, then stopped ({ends.value}): "
        + ", ".join(IDLE)
    )


def _labels(pod: str, number: int) -> dict[str, str]:
    return {"namespace": "ns", "pod": pod, "container": "main", "UUID": f"GPU-{number}"}
