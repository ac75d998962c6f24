"""The fold of one workload's decisions: attempts, state, and a second life of an id."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Phase, WorkloadId
from queuectl.ports.history import history_of
from queuectl.ports.reader import DecisionRow
from tests.builders import T0


def row(sequence: int, verdict: Verdict, attempt: int | None = None, **payload: Any) -> DecisionRow:
    return DecisionRow(
        sequence=sequence,
        cycle=0,
        now=T0 + timedelta(seconds=sequence),
        epoch=1,
        verdict=verdict,
        workload=WorkloadId("uid"),
        ref=None,
        attempt=attempt,
        reason=Reason(code=Code.ON_HOLD) if verdict in (Verdict.PENDING, Verdict.EVICTED) else None,
        payload=payload,
    )


QUEUED = row(1, Verdict.QUEUED, clusterQueue="a", priority=1)
FIRST = [
    QUEUED,
    row(2, Verdict.PENDING),
    row(3, Verdict.ADMITTED, 1, clusterQueue="a"),
    row(4, Verdict.SHRUNK, 1),
    row(5, Verdict.EVICTED, 1),
    row(6, Verdict.RELEASED, 1, past={"lost": 1}),
]


def test_an_attempt_has_its_admission_resize_eviction_and_end() -> None:
    running = history_of(FIRST[:3])
    assert (running.phase, running.reason, running.open_attempt) == (
        Phase.ADMITTED,
        None,
        running.attempts[0],
    )
    history = history_of(FIRST)
    (attempt,) = history.attempts
    assert (attempt.admission, attempt.resize, attempt.eviction) == (FIRST[2], FIRST[3], FIRST[4])
    assert attempt.ended_at == FIRST[5].now
    assert (history.phase, history.number, history.past) == (Phase.PENDING, 1, {"lost": 1})
    assert history.open_attempt is None
    assert history.reason is not None
    assert not history.evaluated, "the reason is that of the eviction"


def test_an_id_that_is_used_again_has_nothing_of_its_former_life() -> None:
    again = row(9, Verdict.QUEUED, clusterQueue="b", priority=2)
    ended = [*FIRST, row(7, Verdict.ADMITTED, 2, clusterQueue="a"), row(8, Verdict.RETIRED, 2)]
    assert history_of(ended).ended_at == ended[-1].now
    assert history_of(ended).attempts[-1].ended_at == ended[-1].now
    assert history_of([*ended, again]) == history_of([again])


def test_a_second_enqueue_moves_a_workload_that_goes_on_waiting() -> None:
    moved = row(3, Verdict.QUEUED, clusterQueue="b", priority=2)
    history = history_of([*FIRST[:2], moved, row(4, Verdict.AMENDED, priority=7)])
    assert (history.cluster_queue, history.priority) == ("b", 7)
    assert history.evaluated
    assert history.queued == moved


def test_an_amendment_has_the_reason_of_a_workload_that_runs_until_the_next_one() -> None:
    unknown = replace(
        row(7, Verdict.AMENDED, 1, priority=2), reason=Reason(code=Code.PRIORITY_NOT_FOUND, detail="gone")
    )
    rows = [FIRST[0], row(6, Verdict.ADMITTED, 1, clusterQueue="a"), unknown]
    assert history_of(rows).reason == unknown.reason
    assert history_of([*rows, row(8, Verdict.AMENDED, 1, priority=2)]).reason is None
