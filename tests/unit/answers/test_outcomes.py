"""How workloads that are over ended, and their attempts, by the decisions on them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.answers.outcomes import FinalOutcome, end_of
from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.ports.reader import DecisionRow
from tests.builders import T0


def row(second: int, verdict: Verdict, attempt: int | None = None, code: Code | None = None) -> DecisionRow:
    return DecisionRow(
        sequence=second,
        cycle=0,
        now=T0 + timedelta(seconds=second),
        epoch=1,
        verdict=verdict,
        workload=WorkloadId("uid"),
        ref=None,
        attempt=attempt,
        reason=None if code is None else Reason(code=code),
        payload={},
    )


def over(second: int, outcome: str) -> DecisionRow:
    return replace(row(second, Verdict.RETIRED), payload={"outcome": outcome})


def evicted(first: int, code: Code) -> list[DecisionRow]:
    """The first attempt, which is admitted at second `first` and releases its quota ten seconds later."""
    return [
        row(1, Verdict.QUEUED),
        row(first, Verdict.ADMITTED, 1),
        row(first + 8, Verdict.EVICTED, 1, code),
        row(first + 10, Verdict.RELEASED, 1),
    ]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("Succeeded", FinalOutcome.SUCCEEDED),
        ("Failed", FinalOutcome.FAILED),
        ("Deleted", FinalOutcome.CANCELLED),
    ],
)
def test_the_outcome_of_the_object_is_that_of_its_last_attempt(outcome: str, expected: FinalOutcome) -> None:
    end = end_of([row(1, Verdict.QUEUED), row(5, Verdict.ADMITTED, 1), over(35, outcome)], {})
    assert end is not None
    assert (end.outcome, end.held_seconds) == (expected, 30.0)
    assert (end.started_at, end.ended_at) == (T0 + timedelta(seconds=5), T0 + timedelta(seconds=35))
    assert [(one.number, one.outcome) for one in end.attempts] == [(1, expected)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.PREEMPTED, FinalOutcome.PREEMPTED),
        (Code.NODE_FAILURES, FinalOutcome.NODE_FAILURE),
        (Code.MAXIMUM_EXECUTION_TIME_EXCEEDED, FinalOutcome.TIMED_OUT),
        (Code.IDLE_CANCELLED, FinalOutcome.CANCELLED),
        (Code.USER_HOLD, FinalOutcome.EVICTED),
    ],
)
def test_an_attempt_that_was_evicted_ended_for_that_reason(code: Code, expected: FinalOutcome) -> None:
    end = end_of([*evicted(5, code), row(20, Verdict.ADMITTED, 2), over(25, "Succeeded")], {})
    assert end is not None
    assert [(one.number, one.outcome) for one in end.attempts] == [(1, expected), (2, FinalOutcome.SUCCEEDED)]
    assert (end.outcome, end.held_seconds) == (FinalOutcome.SUCCEEDED, 15.0)


def test_what_is_deleted_after_its_time_was_used_up_timed_out() -> None:
    end = end_of([*evicted(5, Code.MAXIMUM_EXECUTION_TIME_EXCEEDED), over(90, "Deleted")], {})
    assert end is not None
    assert (end.outcome, end.held_seconds) == (FinalOutcome.TIMED_OUT, 10.0)


def test_what_was_never_admitted_held_nothing() -> None:
    end = end_of([row(1, Verdict.QUEUED), over(9, "Deleted")], {})
    assert end is not None
    assert (end.outcome, end.started_at, end.held_seconds, end.attempts) == (
        FinalOutcome.CANCELLED,
        None,
        0,
        (),
    )


def test_what_is_open_has_no_end() -> None:
    assert end_of(evicted(5, Code.PREEMPTED), {}) is None
    assert end_of([], {}) is None


def test_of_an_id_that_is_used_again_the_last_life_counts() -> None:
    first = [row(1, Verdict.QUEUED), row(2, Verdict.ADMITTED, 1), over(3, "Failed")]
    assert end_of([*first, row(4, Verdict.QUEUED)], {}) is None
    end = end_of([*first, row(4, Verdict.QUEUED), row(5, Verdict.ADMITTED, 1), over(8, "Succeeded")], {})
    assert end is not None
    assert (end.outcome, end.held_seconds) == (FinalOutcome.SUCCEEDED, 3.0)


def test_an_attempt_has_what_it_requested_and_what_it_held_in_seconds() -> None:
    requests: dict[str, object] = {
        "podSets": [{"name": "main", "count": 4, "requests": {"cpu": 500, "gpu": 2}, "flavors": {}}]
    }
    admission = replace(row(20, Verdict.ADMITTED, 2), payload=requests)
    decisions = [*evicted(5, Code.PREEMPTED), admission, over(25, "Succeeded")]
    end = end_of(decisions, {15: {"gpu": 30_000_000}, 25: {"gpu": 12_500_000, "cpu": 3_000_001}})
    assert end is not None
    assert [dict(one.requests) for one in end.attempts] == [{}, {"cpu": 2000, "gpu": 8}]
    assert [one.resource_seconds for one in end.attempts] == [{"gpu": 30}, {"cpu": 3, "gpu": 12}]
    assert end.resource_seconds == {"cpu": 3, "gpu": 42}, "the sum is rounded once"
