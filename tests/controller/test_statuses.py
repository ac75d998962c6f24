"""The status of many queues that change all the time: a bounded number of writes, conditions first."""

from __future__ import annotations

from dataclasses import replace

from queuectl.controller.statuses import EACH_SECOND, Statuses
from queuectl.core.policy import Condition
from queuectl.core.reports import ClusterQueueReport
from queuectl.ports import ClusterUnavailable

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
        self.statuses = Statuses(self._publish, PERIOD)

    async def _publish(self, report: ClusterQueueReport) -> None:
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
    assert await written.round() == [newest, of(2, 1)]
