"""The report of an observer from constructed rows: outcomes, waits, and differences from reality."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.ports.reader import DecisionRow
from queuectl.shadow.differences import peaks, summary
from queuectl.shadow.workloads import Fate, ObservedWorkload, ObservedWorkloads, difference

T0 = datetime(2030, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"
NOMINAL = {"cq": {GPU: 4}}
SHORT = Reason(
    code=Code.WAITING_FOR_QUOTA,
    flavor="a100",
    resource=GPU,
    requested=2,
    available=0,
    short_by=2,
    limit=Limit.NOMINAL_QUOTA,
    node="ClusterQueue/cq",
)
LARGE = Reason(code=Code.EXCEEDS_MAX_QUOTA, flavor="a100", resource=GPU, requested=9, available=4, short_by=5)


class History:
    """Rows in order, and the report on them."""

    def __init__(self) -> None:
        self.workloads = ObservedWorkloads()
        self.differences: list[str | None] = []
        self._sequence = 0

    def add(
        self,
        name: str,
        verdict: Verdict,
        at: float,
        state: str = "Running",
        *,
        reason: Reason | None = None,
        started: float | None = None,
        ended: float | None = None,
        gpus: int | None = None,
        **payload: Any,
    ) -> None:
        """`at`, `started` and `ended` in seconds after T0."""
        self._sequence += 1
        real: dict[str, Any] = {"state": state}
        for key, time in (("startedAt", started), ("endedAt", ended)):
            if time is not None:
                real[key] = _at(time).isoformat()
        if gpus is not None:
            real["requests"] = {GPU: gpus}
        row = DecisionRow(
            sequence=self._sequence,
            cycle=1,
            now=_at(at),
            epoch=1,
            verdict=verdict.value,
            workload=WorkloadId(f"uid-{name}"),
            ref=ObjectRef("ns", "Job", name, f"uid-{name}"),
            attempt=None,
            reason=reason,
            payload={**payload, "reality": real},
        )
        workload = self.workloads.add(row)
        assert workload is not None
        self.differences.append(difference(row, workload))

    def queued(self, name: str, at: float, state: str = "Running", gpus: int = 2, **more: Any) -> None:
        self.add(
            name,
            Verdict.QUEUED,
            at,
            state,
            gpus=gpus,
            queue="lq",
            clusterQueue="cq",
            createdAt=_at(at).isoformat(),
            **more,
        )

    def admitted(
        self, name: str, at: float, state: str = "Running", *, debt: bool = False, **more: Any
    ) -> None:
        self.add(name, Verdict.ADMITTED, at, state, clusterQueue="cq", debt=debt, **more)

    def __getitem__(self, name: str) -> ObservedWorkload:
        return self.workloads.by_id[WorkloadId(f"uid-{name}")]


def _at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def _summary(history: History, now: float = 1000) -> dict[str, Any]:
    return summary(list(history.workloads.by_id.values()), _at(now), NOMINAL)


def test_a_workload_that_fits_is_admitted_at_once_without_a_difference() -> None:
    history = History()
    history.queued("a", 0)
    history.admitted("a", 0.2)
    history.add("a", Verdict.RETIRED, 60, "Succeeded", started=0, ended=60)
    assert history["a"].fate is Fate.AT_ONCE
    assert history.differences == [None, None, None]
    total = _summary(history)["total"]
    assert (total["admittedAtOnce"], total["ranAnyway"], total["wait"]["max"]) == (1, 0, None)


def test_a_workload_that_would_wait_but_runs_is_counted_with_its_wait_and_reason() -> None:
    history = History()
    history.queued("a", 0)
    history.add("a", Verdict.PENDING, 0.1, reason=SHORT)
    history.admitted("a", 100, started=0)
    assert history["a"].fate is Fate.WAITED
    assert history.differences == [None, "runs", "runs for 100 s already"]
    found = _summary(history)
    assert found["total"]["wait"] == {"p50": 100.0, "p90": 100.0, "max": 100.0}
    assert found["total"]["ranAnyway"] == 1
    (wait,) = found["waits"]
    assert (wait["reason"]["code"], wait["reason"]["shortBy"], wait["ranAnyway"]) == ("WaitingForQuota", 2, 1)
    assert wait["example"] == "ns/Job/a"


def test_a_workload_that_ends_before_its_admission_has_waited_at_least_until_then() -> None:
    history = History()
    history.queued("a", 0)
    history.add("a", Verdict.PENDING, 0, reason=SHORT)
    history.add("a", Verdict.RETIRED, 40, "Succeeded", started=0, ended=39)
    history.queued("b", 0)
    history.add("b", Verdict.PENDING, 0, reason=SHORT)
    found = _summary(history, now=500)["total"]
    assert found["waiting"] == 2
    assert found["overBeforeItsTurn"] == 1
    assert found["wait"] == {"p50": 40.0, "p90": 500.0, "max": 500.0}
    assert history.differences[2] == "has run without an admission"


def test_a_workload_that_never_fits_or_is_on_hold_is_no_wait() -> None:
    history = History()
    history.queued("large", 0, gpus=9)
    history.add("large", Verdict.PENDING, 0, reason=LARGE)
    history.queued("held", 0, "Suspended")
    history.add("held", Verdict.PENDING, 0, "Suspended", reason=Reason(code=Code.ON_HOLD))
    assert [history[name].fate for name in ("large", "held")] == [Fate.NEVER, Fate.HELD]
    total = _summary(history)["total"]
    assert (total["never"], total["held"], total["waiting"], total["wait"]["max"]) == (1, 1, 0, None)
    assert total["ranAnyway"] == 1


def test_debt_is_neither_a_wait_nor_a_difference_of_ours() -> None:
    history = History()
    history.queued("a", 0)
    history.admitted("a", 0.1, debt=True, started=-500)
    assert history["a"].fate is Fate.DEBT
    assert history.differences[1] == "ran before the observer started"
    assert _summary(history)["total"]["ranAnyway"] == 0


def test_evictions_are_counted_by_preemptor_and_the_first_admission_counts() -> None:
    history = History()
    history.queued("a", 0)
    history.admitted("a", 0)
    history.add("a", Verdict.EVICTED, 10, reason=Reason(code=Code.PREEMPTED, by="ns/Job/b"))
    history.add("a", Verdict.RELEASED, 10)
    history.add("a", Verdict.PENDING, 10, reason=SHORT)
    history.admitted("a", 50)
    assert history["a"].fate is Fate.AT_ONCE
    assert history["a"].waited(_at(60)) == timedelta()
    found = _summary(history)
    assert (found["total"]["evicted"], found["total"]["evictions"]) == (1, 1)
    (eviction,) = found["evictions"]
    assert (eviction["by"], eviction["evictions"]) == ("ns/Job/b", 1)
    assert history.differences[2] == "runs on"


@pytest.mark.parametrize(
    ("state", "started", "now", "longer"),
    [
        ("Running", 30.0, 1000, 30.0),  # another controller started it later than queuectl would have
        ("Running", 0.5, 1000, None),  # within one second, the resolution of the times
        ("Suspended", None, 80, 80.0),  # still not started
    ],
)
def test_a_workload_that_really_waits_longer_is_counted(
    state: str, started: float | None, now: float, longer: float | None
) -> None:
    history = History()
    history.queued("a", 0, "Suspended")
    history.admitted("a", 0, "Suspended")
    history.add("a", Verdict.EVICTED, 70, state, reason=Reason(code=Code.USER_HOLD), started=started)
    assert history.differences[1] == "still suspended"
    sooner = _summary(history, now)["total"]["startedSooner"]
    assert (sooner["workloads"], sooner["max"]) == ((1, longer) if longer else (0, None))


def test_the_peak_is_what_ran_at_the_same_time_whatever_was_decided() -> None:
    history = History()
    for name, start, end in (("a", 0, 100), ("b", 50, 150), ("c", 100, 200)):
        history.queued(name, start, gpus=3)
        history.add(name, Verdict.PENDING, start, reason=SHORT)
        history.add(name, Verdict.RETIRED, end, "Succeeded", started=start, ended=end)
    (peak,) = peaks(history.workloads.by_id.values(), _at(1000), NOMINAL)
    # a ends in the second in which c starts.
    assert (peak["peak"], peak["nominal"], peak["at"]) == (6, 4, _at(50).isoformat())
    (exceeded,) = _summary(history)["exceeded"]
    assert (exceeded["peak"], exceeded["nominal"], exceeded["resource"]) == (6, 4, GPU)
    within = summary(list(history.workloads.by_id.values()), _at(1000), {"cq": {GPU: 6}})
    assert within["exceeded"] == []


def test_a_workload_that_ended_before_it_was_seen_is_counted_separately() -> None:
    history = History()
    history.queued("a", 100, "Succeeded", started=10, ended=20)
    history.admitted("a", 100, "Succeeded", started=10, ended=20)
    total = _summary(history)["total"]
    assert (total["overBeforeSeen"], total["startedSooner"]["workloads"]) == (1, 0)
    assert history.differences[1] == "is over already"


def test_queues_are_listed_separately_and_one_without_a_clusterqueue_by_its_local_queue() -> None:
    history = History()
    history.queued("a", 0)
    history.admitted("a", 0)
    history.add("b", Verdict.QUEUED, 0, queue="lost", clusterQueue=None, createdAt=T0.isoformat(), gpus=1)
    history.add("b", Verdict.PENDING, 0, reason=Reason(code=Code.QUEUE_NOT_FOUND))
    found = _summary(history)
    assert [(queue["name"], queue["workloads"]) for queue in found["queues"]] == [("(ns/lost)", 1), ("cq", 1)]
    assert found["total"]["workloads"] == 2


def _row(
    sequence: int, verdict: str, workload: WorkloadId | None, ref: ObjectRef | None, payload: dict[str, Any]
) -> DecisionRow:
    return DecisionRow(
        sequence=sequence,
        cycle=1,
        now=T0,
        epoch=1,
        verdict=verdict,
        workload=workload,
        ref=ref,
        attempt=None,
        reason=None,
        payload=payload,
    )


def test_rows_of_policy_and_of_workloads_older_than_the_history_are_ignored() -> None:
    workloads = ObservedWorkloads()
    gate = {"kind": "Gate", "namespace": "", "name": "queuectl-jobs", "spec": {"installedAt": T0.isoformat()}}
    row = _row(1, "Configured", None, None, dict(gate))
    assert workloads.add(row) is None
    assert workloads.began == T0
    ref = ObjectRef("ns", "Job", "old", "u")
    kept = _row(2, "Retired", WorkloadId("u"), ref, {"outcome": "Succeeded"})
    assert workloads.add(kept) is None
    assert workloads.by_id == {}
