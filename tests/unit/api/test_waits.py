"""Where a wait went: tables of decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from queuectl.answers import waits
from queuectl.answers.waits import Cause, Wait
from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, Limit, PreemptionCause, Reason
from queuectl.ports.reader import DecisionRow, WorkloadStarts
from tests.unit.api.canned import EPOCH_START, GPU, decision, two_teams, workload
from tests.unit.api.conftest import Rest, Serve

ONE = workload("one", 0)
QUOTA = Reason(
    code=Code.WAITING_FOR_QUOTA,
    flavor="a100",
    resource=GPU,
    limit=Limit.NOMINAL_QUOTA,
    node="ClusterQueue/team-a",
)
TAKEN = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE, by="default/Job/other")


def at(second: int, verdict: Verdict, reason: Reason | Code | None = None, **payload: Any) -> DecisionRow:
    if isinstance(reason, Code):
        reason = Reason(code=reason)
    if verdict is Verdict.QUEUED:
        payload = {"clusterQueue": "team-a", **payload}
    return replace(decision(second, ONE, verdict, reason), payload=payload)


LAST = 1 << 62
"""Above the sequence of every decision."""


def split(
    *rows: DecisionRow, until: int, starts: dict[int, WorkloadStarts] | None = None
) -> tuple[Wait, dict[Cause, int]]:
    """`starts`: by the sequence that began the wait."""
    found = waits.spells(rows, ONE.created_at, EPOCH_START + timedelta(seconds=until))
    told = {one: (starts or {})[span.after] for one, span in waits.spans(found, LAST).items() if starts}
    wait = waits.breakdown(found, told)
    assert wait is not None
    return wait, {part.cause: part.seconds for part in wait.parts}


def test_the_time_before_it_was_seen_and_before_it_was_evaluated_are_waits() -> None:
    wait, parts = split(at(4, Verdict.QUEUED), at(9, Verdict.ADMITTED), until=20)
    assert parts == {Cause.UNEVALUATED: 5, Cause.UNSEEN: 4}
    assert (wait.waited, wait.ran, wait.evicting) == (9, 11, 0)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (Code.WAITING_FOR_PREEMPTED_WORKLOADS, Cause.PODS_ENDING),
        (Code.CAPACITY_MISSING, Cause.NODES),
        (Code.NO_NODE_FITS, Cause.NODES),
        (Code.WAITING_FOR_RESOURCE_QUOTA, Cause.NAMESPACE_QUOTA),
        (Code.WAITING_FOR_USAGE_LIMIT, Cause.USAGE_LIMIT),
        (Code.WAITING_FOR_DEPENDENCY, Cause.DEPENDENCY),
        (Code.WAITING_FOR_BEGIN_TIME, Cause.BEGIN_TIME),
        (Code.WAITING_FOR_ARRAY, Cause.ARRAY),
        (Code.DEPENDENCY_NEVER_SATISFIED, Cause.NEVER),
        (Code.BUDGET_EXHAUSTED, Cause.BUDGET),
        (Code.WAITING_FOR_HEAD, Cause.LINE),
        (Code.BACKING_OFF, Cause.BACKOFF),
        (Code.MIN_RUN_TIME_PROTECTED, Cause.PROTECTED),
        (Code.ON_HOLD, Cause.HELD),
        (Code.SUSPENDED, Cause.STOPPED),
        (Code.DEACTIVATED, Cause.DEACTIVATED),
        (Code.LEDGER_MISMATCH, Cause.LEDGER_MISMATCH),
        (Code.EXCEEDS_MAX_QUOTA, Cause.NEVER),
        (Code.QUEUE_NOT_FOUND, Cause.NEVER),
    ],
)
def test_each_reason_has_its_cause(code: Code, cause: Cause) -> None:
    _, parts = split(at(0, Verdict.QUEUED), at(2, Verdict.PENDING, code), until=30)
    assert parts == {cause: 28, Cause.UNEVALUATED: 2}


def test_every_reason_of_a_pending_workload_has_a_cause_of_its_own() -> None:
    for code in Code:
        reason = Reason(code=code)
        _, parts = split(at(0, Verdict.QUEUED), at(0, Verdict.PENDING, reason), until=5)
        unevaluated = reason.family.value == "evicted" or code is Code.PENDING_EVALUATION
        assert (Cause.UNEVALUATED in parts) == unevaluated, code


def test_all_pending_phases_count_and_runs_and_evictions_are_apart() -> None:
    wait, parts = split(
        at(0, Verdict.QUEUED),
        at(10, Verdict.PENDING, QUOTA),
        at(110, Verdict.ADMITTED),
        at(210, Verdict.EVICTED, TAKEN),
        at(240, Verdict.RELEASED),
        at(241, Verdict.PENDING, QUOTA),
        at(300, Verdict.ADMITTED),
        at(333, Verdict.AMENDED),
        at(400, Verdict.RETIRED),
        until=9999,
    )
    assert (wait.waited, wait.ran, wait.evicting) == (170, 200, 30)
    assert parts == {Cause.QUOTA: 159, Cause.UNEVALUATED: 11}
    assert wait.until == EPOCH_START + timedelta(seconds=400)


def test_a_wait_for_quota_is_behind_others_of_its_queue_until_the_last_of_them_starts() -> None:
    last = EPOCH_START + timedelta(seconds=70)
    rows = (at(0, Verdict.QUEUED), at(10, Verdict.PENDING, QUOTA))
    wait, parts = split(*rows, until=100, starts={10: WorkloadStarts(3, last)})
    assert parts == {Cause.LINE: 60, Cause.QUOTA: 30, Cause.UNEVALUATED: 10}
    texts = [part.text for part in wait.parts]
    assert texts == [
        "behind 3 workloads that started before it at ClusterQueue/team-a",
        f"quota of {GPU} in flavor a100 at ClusterQueue/team-a",
        "before it was evaluated",
    ]


def test_an_enqueue_keeps_the_reason_as_the_ledger_does() -> None:
    _, parts = split(at(0, Verdict.QUEUED), at(0, Verdict.PENDING, QUOTA), at(50, Verdict.QUEUED), until=100)
    assert parts == {Cause.QUOTA: 100}


def test_an_id_that_is_used_again_counts_from_then() -> None:
    wait, parts = split(at(0, Verdict.QUEUED), at(5, Verdict.RETIRED), at(60, Verdict.QUEUED), until=100)
    assert parts == {Cause.UNEVALUATED: 40}
    assert wait.start == EPOCH_START + timedelta(seconds=60)


def test_a_creation_that_is_later_by_the_clock_of_the_api_server_makes_no_negative_wait() -> None:
    rows = [at(0, Verdict.QUEUED), at(7, Verdict.ADMITTED)]
    created = EPOCH_START + timedelta(seconds=3)
    wait = waits.breakdown(waits.spells(rows, created, EPOCH_START + timedelta(seconds=9)), {})
    assert wait is not None
    assert (wait.waited, wait.ran) == (7, 2)


# --- REST


async def test_rest_tells_a_wait_after_the_object_is_gone(serve: Serve) -> None:
    readings = two_teams()
    gone = workload("gone", 7, gpus=2)
    readings.commit(gone)
    readings.end(gone)
    readings.rows = [
        replace(decision(8, gone, "Queued"), payload={"queue": "main", "clusterQueue": "team-a"}),
        decision(9, gone, "Pending", QUOTA),
        replace(decision(40, workload("other", 8), "Admitted"), payload={"clusterQueue": "team-a"}),
        replace(decision(69, gone, "Admitted"), payload={"clusterQueue": "team-a"}),
        decision(100, gone, "Retired"),
    ]
    readings.sequence = 100
    rest: Rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/job/gone/waited")
    assert (found["phase"], found["waitedSeconds"], found["ranSeconds"]) == ("Finished", 62, 31)
    assert [(part["cause"], part["seconds"], part["ahead"]) for part in found["parts"]] == [
        ("Line", 31, 1),
        ("Quota", 29, None),
        ("Unseen", 1, None),
        ("Unevaluated", 1, None),
    ]


async def test_a_workload_that_ended_after_the_state_of_the_answer_is_answered(serve: Serve) -> None:
    """Its row is read from the ledger, its decisions only up to the sequence of the state."""
    readings = two_teams()
    one = workload("newer", 7)
    readings.commit(one)
    readings.end(one)
    rest = await serve(readings)
    found = await rest.get("/api/v1/workloads/default/job/newer/waited")
    assert (found["name"], found["ranSeconds"]) == ("newer", 0)
