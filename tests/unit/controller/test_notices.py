"""R4: which decisions become Kubernetes Events, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.controller.notices import PATIENCE, PAUSE, Notices
from queuectl.core.decisions import Admit, Amend, Decision, Evict, Keep, Plan, Retire
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attempt,
    AttemptState,
    ObjectRef,
    WorkloadId,
    WorkloadOutcome,
)
from tests.builders import T0

ALL = 10**6
ONE, OTHER = Code.WAITING_FOR_QUOTA, Code.WAITING_FOR_HEAD


def ref(name: str, namespace: str = "ns") -> ObjectRef:
    return ObjectRef(namespace, "Job", name, f"uid-{name}")


def keep(
    code: Code, name: str = "a", *, recorded: bool = True, available: int = 0, namespace: str = "ns"
) -> Keep:
    reason = Reason(code=code, resource="gpu", requested=4, available=available)
    return Keep(WorkloadId(f"uid-{name}"), ref(name, namespace), reason, recorded)


def admit(name: str = "a", number: int = 1) -> Admit:
    assignment = Assignment(cluster_queue="cq", pod_sets=())
    attempt = Attempt(
        workload=WorkloadId(f"uid-{name}"),
        number=number,
        state=AttemptState.ADMITTED,
        assignment=assignment,
        admitted_at=T0,
    )
    return Admit(attempt, ref(name))


def evict(name: str = "a", number: int = 1) -> Evict:
    return Evict(WorkloadId(f"uid-{name}"), ref(name), number, Reason(code=Code.PREEMPTED))


def retire(name: str = "a") -> Retire:
    return Retire(WorkloadId(f"uid-{name}"), ref(name), None, WorkloadOutcome.SUCCEEDED)


class Teller:
    """Notices, with what they said: time in seconds, name, reason of the Event, first word of its message."""

    def __init__(self) -> None:
        self.notices = Notices()
        self.said: list[tuple[float, str, str, str]] = []

    def hears(self, now: float, *decisions: Decision) -> None:
        plan = Plan(version=0, cycle=0, now=T0 + timedelta(seconds=now), decisions=decisions)
        self._note(now, self.notices.of(plan, now))

    def passes(self, now: float, most: int = ALL) -> None:
        self._note(now, self.notices.due(now, most))

    def _note(self, now: float, told: Iterable[tuple[WorkloadId, object]]) -> None:
        for _, notice in told:
            message = notice.message.split(":")[0]  # type: ignore[attr-defined]
            self.said.append((now, notice.ref.name, notice.reason, message))  # type: ignore[attr-defined]


def test_the_first_reason_is_said_when_the_workload_still_waits_after_some_seconds() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE))
    teller.passes(PATIENCE - 0.1)
    assert teller.said == []
    teller.passes(PATIENCE)
    teller.passes(PATIENCE + PAUSE)
    assert teller.said == [(PATIENCE, "a", "Pending", ONE)]


def test_a_workload_that_starts_or_ends_within_these_seconds_gets_no_event_for_waiting() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE), keep(ONE, "b"))
    teller.hears(1, admit(), retire("b"))
    teller.passes(ALL)
    assert [what for _, _, what, _ in teller.said] == ["Admitted"]
    assert len(teller.notices) == 0


def test_a_changed_reason_is_said_after_a_minute_and_only_the_newest() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE))
    teller.passes(5)
    teller.hears(6, keep(OTHER))
    teller.hears(7, keep(Code.MIN_RUN_TIME_PROTECTED))
    teller.passes(5 + PAUSE - 0.1)
    assert len(teller.said) == 1
    teller.passes(5 + PAUSE)
    assert teller.said[1:] == [(5 + PAUSE, "a", "Pending", Code.MIN_RUN_TIME_PROTECTED)]


def test_a_reason_that_is_back_to_what_was_said_is_not_said_again() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE))
    teller.passes(5)
    teller.hears(6, keep(OTHER))
    teller.hears(7, keep(ONE, available=3))
    teller.passes(ALL)
    assert len(teller.said) == 1


def test_after_a_quiet_minute_a_changed_reason_is_said_after_some_seconds() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE))
    teller.passes(5)
    teller.passes(100)
    teller.hears(100, keep(OTHER))
    teller.passes(100)
    assert len(teller.said) == 1
    teller.passes(100 + PATIENCE)
    assert len(teller.said) == 2


def test_each_start_and_each_eviction_is_said_once_and_at_once() -> None:
    teller = Teller()
    teller.hears(0, admit())
    teller.hears(1, evict())
    teller.hears(2, keep(ONE))
    teller.hears(3, admit(number=2))
    teller.passes(ALL)
    assert [(now, what) for now, _, what, _ in teller.said] == [
        (0, "Admitted"),
        (1, "Evicted"),
        (3, "Admitted"),
    ]


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("ns/Job/urgent", "Preempted by ns/Job/urgent"),
        ("another/Job/secret", "Preempted"),
        ("ns-2/Job/secret", "Preempted"),
    ],
)
def test_an_event_names_no_workload_of_another_namespace(by: str, said: str) -> None:
    """Every reader of the Events of a namespace reads it."""
    decision = replace(evict(), reason=Reason(code=Code.PREEMPTED, by=by))
    ((_, notice),) = Notices().of(Plan(version=0, cycle=0, now=T0, decisions=(decision,)), 0)
    assert notice.message == said


def test_an_unknown_priority_class_of_a_running_workload_is_a_warning_and_its_return_is_none() -> None:
    why = Reason(code=Code.PRIORITY_NOT_FOUND, detail="WorkloadPriorityClass hihg not found")
    amend = Amend(WorkloadId("uid-a"), ref("a"), 1, 0, NO_PAST_ATTEMPTS, why)
    plan = Plan(version=0, cycle=0, now=T0, decisions=(amend, replace(amend, reason=None)))
    ((_, notice),) = Notices().of(plan, 0)
    assert (notice.reason, notice.message, notice.warning) == ("PriorityNotFound", why.message, True)


def test_a_workload_that_waits_again_after_an_eviction_is_told_its_reason_again_a_minute_after_the_last() -> (
    None
):
    teller = Teller()
    teller.hears(0, keep(ONE))
    teller.passes(5)
    teller.hears(6, admit())
    teller.hears(7, evict())
    teller.hears(8, keep(ONE))
    teller.passes(5 + PAUSE - 1)
    assert len(teller.said) == 3
    teller.passes(5 + PAUSE)
    assert teller.said[3:] == [(5 + PAUSE, "a", "Pending", ONE)]


def test_a_decision_that_the_ledger_does_not_record_is_no_event() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE, recorded=False))
    teller.passes(ALL)
    assert (teller.said, len(teller.notices)) == ([], 0)


def test_what_is_due_together_is_said_in_parts_and_completely() -> None:
    teller = Teller()
    teller.hears(0, *(keep(ONE, f"w{number}") for number in range(50)))
    for step in range(5):
        teller.passes(PATIENCE + step, most=10)
        assert len(teller.said) == 10 * (step + 1)
    assert len({name for _, name, _, _ in teller.said}) == 50


def test_namespaces_take_turns_where_more_is_due_than_may_be_said() -> None:
    teller = Teller()
    teller.hears(0, *(keep(ONE, f"w{number}") for number in range(50)))
    teller.hears(1, keep(ONE, "single", namespace="small"), keep(ONE, "pair", namespace="small"))
    teller.passes(PATIENCE, most=10)
    teller.passes(PATIENCE + 1, most=3)
    assert [name for _, name, _, _ in teller.said[10:]] == ["w10", "single", "w11"]
    teller.passes(PATIENCE + 2, most=1)
    assert teller.said[-1][1] == "pair"


def test_a_workload_that_leaves_or_returns_to_what_was_said_gives_its_turn_to_the_next() -> None:
    teller = Teller()
    teller.hears(0, keep(ONE, "first"), keep(ONE, "b"), keep(ONE, "c"))
    teller.passes(PATIENCE, most=1)
    teller.hears(6, keep(OTHER, "first"), admit("b"))
    teller.passes(PATIENCE + PAUSE, most=1)
    assert [(name, message) for _, name, what, message in teller.said if what == "Pending"] == [
        ("first", ONE),
        ("c", ONE),
    ]
    teller.passes(PATIENCE + PAUSE + 1, most=0)
    teller.hears(PATIENCE + PAUSE + 1, keep(ONE, "first"))
    teller.passes(ALL)
    assert len(teller.said) == 3


def test_events_of_equal_reasons_at_different_times_are_different_objects() -> None:
    notices = Notices()
    found = []
    for at in (0.0, 1000.0):
        plan = Plan(version=0, cycle=0, now=T0 + timedelta(seconds=at), decisions=(keep(ONE),))
        list(notices.of(plan, at))
        found += [notice for _, notice in notices.due(at + 10, ALL)]
        list(notices.of(replace(plan, decisions=(admit(),)), at + 20))
    assert len({notice.key for notice in found}) == 2
    assert [notice.at for notice in found] == [T0, T0 + timedelta(seconds=1000)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["keep", "keep", "keep", "admit", "evict", "retire"]),
        st.integers(0, 2),
        st.integers(0, 40),
    ),
    max_size=40,
)


@given(STEPS)
def test_law_of_events(steps: list[tuple[str, int, int]]) -> None:
    """At most one reason a minute, none twice in a row, none of a workload that left, and the last always."""
    teller, now, waits = Teller(), 0.0, None
    for what, code, seconds in steps:
        match what:
            case "keep":
                waits = (ONE, OTHER, Code.MIN_RUN_TIME_PROTECTED)[code]
                teller.hears(now, keep(waits))
            case "admit":
                waits = None
                teller.hears(now, admit())
            case "evict":
                waits = None
                teller.hears(now, evict())
            case _:
                waits = None
                teller.hears(now, retire())
                teller.said.append((now, "a", "Ended", ""))
        for _ in range(seconds):
            now += 1
            before = len(teller.said)
            teller.passes(now)
            assert waits is not None or len(teller.said) == before
    for _ in range(int(PATIENCE + PAUSE) + 1):
        now += 1
        teller.passes(now)
    pending: float | None = None
    last = ""
    for when, _, what, message in teller.said:
        if what == "Pending":
            assert pending is None or when - pending >= PAUSE
            assert message != last
            pending, last = when, message
        else:
            pending, last = (None if what == "Ended" else pending), ""
    assert last == (waits or "")
    assert len(teller.notices) == (waits is not None)
