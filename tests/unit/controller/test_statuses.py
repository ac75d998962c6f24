"""The status of many queues that change all the time: a bounded number of writes, conditions first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from queuectl.controller.reports import EACH_SECOND, MOST_UNWRITTEN, Statuses
from queuectl.core.model.policy import Condition
from queuectl.core.reports import ClusterQueueReport
from queuectl.ports.cluster import ClusterUnavailable
from tests.builders import workload
from tests.unit.controller.site import Site

PERIOD = 5.0
MOST = round(EACH_SECOND * PERIOD)
READY = Condition(active=True, reason="Ready", message="")
STOPPED = Condition(active=False, reason="Stopped", message="")


def of(number: int, pending: int, condition: Condition = READY) -> ClusterQueueReport:
    return ClusterQueueReport(
        name=f"q{number}", condition=condition, pending=pending, admitted=0, nominal=(), used=()
    )


class Written:
    def __init__(self) -> None:
        self.reports: list[ClusterQueueReport] = []
        self.refused: set[str] = set()
        self.tried: list[str] = []
        self.statuses = Statuses(self._publish, PERIOD)

    async def _publish(self, report: ClusterQueueReport) -> None:
        self.tried.append(report.name)
        if report.name in self.refused:
            raise ClusterUnavailable("not now")
        self.reports.append(report)

    async def round(self) -> list[ClusterQueueReport]:
        self.reports = []
        await self.statuses.write()
        return self.reports


async def test_the_first_status_of_all_queues_is_written_at_once() -> None:
    written, all_of_them = Written(), [of(number, 0) for number in range(3 * MOST)]
    written.statuses.changed(all_of_them)
    assert await written.round() == all_of_them
    assert await written.round() == []


async def test_counts_of_many_queues_are_written_some_in_each_round_and_the_longest_waiting_first() -> None:
    written, number = Written(), 2 * MOST
    written.statuses.changed(of(one, 0) for one in range(number))
    await written.round()
    found = []
    for pending in (1, 2):
        written.statuses.changed(of(one, pending) for one in range(number))  # all change in each round
        found.append(await written.round())
    assert found[0] == [of(one, 1) for one in range(MOST)]
    assert found[1] == [of(one, 2) for one in range(MOST, number)], "the last report of each counts"
    assert await written.round() == [of(one, 2) for one in range(MOST)]
    assert await written.round() == []


async def test_a_queue_whose_condition_changes_waits_for_no_other_one() -> None:
    written = Written()
    written.statuses.changed(of(one, 0) for one in range(2 * MOST))
    await written.round()
    written.statuses.changed(of(one, 1) for one in range(2 * MOST))
    stopped = of(2 * MOST - 1, 1, STOPPED)
    written.statuses.changed([stopped])
    assert await written.round() == [stopped, *(of(one, 1) for one in range(MOST))]


async def test_a_refused_write_is_tried_again_with_the_newest_report() -> None:
    written = Written()
    written.refused = {"q0"}
    written.statuses.changed([of(0, 1), of(1, 1)])
    assert await written.round() == [of(1, 1)]
    newest = replace(of(0, 1), pending=7)
    written.statuses.changed([of(2, 1), newest])
    written.refused = set()
    assert await written.round() == [of(2, 1), newest]


@pytest.mark.parametrize("refused", [1, 3, 4, 40])
async def test_queues_whose_status_is_refused_for_good_delay_no_other_queue(refused: int) -> None:
    written = Written()
    written.statuses.changed(of(number, 0) for number in range(10))
    await written.round()
    written.refused = {f"q{100 + number}" for number in range(refused)}
    written.statuses.changed(of(100 + number, 0, STOPPED) for number in range(refused))
    for pending in range(1, 20):
        written.statuses.changed(of(number, pending) for number in range(10))
        assert await written.round() == [of(number, pending) for number in range(10)]
    turned = [of(number, 20, STOPPED) for number in range(10)]
    written.statuses.changed(turned)
    assert await written.round() == turned


async def test_each_refused_status_is_tried_again_within_a_bound_and_a_round_has_few_of_them() -> None:
    written = Written()
    names = [f"q{number}" for number in range(10)]
    written.refused = set(names)
    written.statuses.changed(of(number, 0) for number in range(10))
    for _ in range(4):
        await written.round()
    for _ in range(3):
        tried: list[str] = []
        for _ in range(4):
            written.tried = []
            await written.round()
            assert len(written.tried) == MOST_UNWRITTEN
            tried += written.tried
        assert set(tried) == set(names)


async def test_all_statuses_are_written_in_the_first_round_after_an_outage() -> None:
    written = Written()
    written.statuses.changed(of(number, 0) for number in range(MOST))
    written.refused = {f"q{number}" for number in range(MOST)}
    for _ in range(10):
        assert await written.round() == []
    written.refused = set()
    assert len(await written.round()) == MOST


async def test_a_status_write_without_an_answer_delays_neither_readers_nor_the_other_kind_of_queue() -> None:
    site = Site()
    answer, written = asyncio.Event(), list[ClusterQueueReport]()

    async def hangs(report: object) -> None:
        await answer.wait()

    async def writes(report: ClusterQueueReport) -> None:
        written.append(report)

    site.cluster.publish_local_queue = hangs  # type: ignore[method-assign]
    site.cluster.publish_cluster_queue = writes  # type: ignore[method-assign]
    async with site.leading():
        site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.until(lambda: any(one.demand for _, one in site.store.demands.values()))
        await site.until(lambda: any(report.pending for report in written))
        answer.set()
