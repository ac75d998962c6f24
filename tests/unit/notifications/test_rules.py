"""Which decisions a sink is told of, and what the message says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.core.decisions import Verdict
from queuectl.core.model.device_use import DeviceUse, IdleNotice, UseFinding, UseVerdict
from queuectl.core.model.reasons import Code, Reason, utc
from queuectl.core.model.workload import PastAttempts
from queuectl.kinds.selectors import label_selector
from queuectl.ledger.codec import past_to_json
from queuectl.notifications.messages import MAX_TEXT, about, gap
from queuectl.notifications.rules import Event, Selection, event_of, selected
from queuectl.ports.outbox import Deleted, Occurrence
from queuectl.ports.reader import DecisionRow
from queuectl.settings.notifications import RuleSettings
from tests.unit.notifications.books import CREATED, HELD, NEVER, NOW, PREEMPTED, WAITS, each_event, row

STARTED, EVICTED, ENDED, CAN_NEVER_RUN, IDLE, _BUDGET, START_MOVED = each_event()
AFTER_AN_HOUR = RuleSettings(event="Started", waited_more_than_seconds=3600)
PREEMPTIONS = RuleSettings(event="Evicted", reasons=(Code.PREEMPTED,))


def over(outcome: str) -> DecisionRow:
    return replace(row(4, Verdict.RETIRED), payload={"outcome": outcome})


FAILURES = RuleSettings(event="Ended", outcomes=("Failed", "TimedOut"))
CANCELLED = RuleSettings(event="Ended", outcomes=("Cancelled",))
ADMITTED = row(4, Verdict.ADMITTED)
PREEMPTION = row(4, Verdict.EVICTED, reason=PREEMPTED)


IDLE_USE = DeviceUse(
    attempt=1,
    since=NOW,
    finding=UseFinding(UseVerdict.IDLE, 8, 8, 0.95),
    idle_since=NOW - timedelta(hours=1),
)
BUSY = PastAttempts(use=replace(IDLE_USE, finding=UseFinding(UseVerdict.BUSY, 8)))


def amended(**payload: object) -> DecisionRow:
    return replace(row(4, Verdict.AMENDED), payload=payload)


def noticed(*, dry_run: bool = False, late: float = 0) -> DecisionRow:
    """A decision to tell a user of idle devices."""
    one = row(4, Verdict.AMENDED)
    at = one.now - timedelta(seconds=late)
    notice = IdleNotice(policy="p", at=at, hold_at=at + timedelta(hours=1), dry_run=dry_run)
    return amended(past=past_to_json(PastAttempts(use=replace(IDLE_USE, notice=notice))))


def found(decision: DecisionRow, waiting: timedelta | None = timedelta(minutes=5)) -> Occurrence:
    return Occurrence(decision, "main", None if waiting is None else decision.now - waiting)


@pytest.mark.parametrize(
    ("name", "rule", "decision", "waiting", "event"),
    [
        ("a start", STARTED, ADMITTED, timedelta(0), Event.STARTED),
        (
            "a start after a longer wait",
            AFTER_AN_HOUR,
            ADMITTED,
            timedelta(hours=1, seconds=1),
            Event.STARTED,
        ),
        ("a start after exactly that wait", AFTER_AN_HOUR, ADMITTED, timedelta(hours=1), None),
        ("a start after a wait that is not known", AFTER_AN_HOUR, ADMITTED, None, None),
        ("a workload that was found running", STARTED, row(4, Verdict.ADMITTED, debt=True), None, None),
        ("a preemption", EVICTED, PREEMPTION, None, Event.EVICTED),
        ("a preemption where that reason is asked for", PREEMPTIONS, PREEMPTION, None, Event.EVICTED),
        (
            "a hold where another reason is asked for",
            PREEMPTIONS,
            row(4, Verdict.EVICTED, reason=HELD),
            None,
            None,
        ),
        ("an end", ENDED, over("Succeeded"), None, Event.ENDED),
        (
            "a failure where that is asked for",
            FAILURES,
            over("Failed"),
            None,
            Event.ENDED,
        ),
        (
            "a deletion is a cancellation",
            CANCELLED,
            over("Deleted"),
            None,
            Event.ENDED,
        ),
        (
            "a success where failures are asked for",
            FAILURES,
            over("Succeeded"),
            None,
            None,
        ),
        (
            "what can never run",
            CAN_NEVER_RUN,
            row(4, Verdict.PENDING, reason=NEVER),
            None,
            Event.CAN_NEVER_RUN,
        ),
        ("what waits for quota", CAN_NEVER_RUN, row(4, Verdict.PENDING, reason=WAITS), None, None),
        ("a notice of idle devices", IDLE, noticed(), None, Event.IDLE),
        ("a later decision with the same notice", IDLE, noticed(late=60), None, None),
        ("a notice of a dry run", IDLE, noticed(dry_run=True), None, None),
        ("a verdict without a notice", IDLE, amended(past=past_to_json(BUSY)), None, None),
        ("another priority", IDLE, amended(priority=7), None, None),
        ("another event", EVICTED, ADMITTED, None, None),
        ("a start, for a rule about no decision", START_MOVED, ADMITTED, timedelta(hours=9), None),
        ("a new workload", STARTED, row(4, Verdict.QUEUED), None, None),
        ("the end of an eviction", EVICTED, row(4, Verdict.RELEASED), None, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_selects(
    name: str, rule: RuleSettings, decision: DecisionRow, waiting: timedelta | None, event: Event | None
) -> None:
    assert selected(Selection(rules=(rule,)), found(decision, waiting)) is event


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        (Selection((STARTED,), namespaces=frozenset({"team-a"})), True),
        (Selection((STARTED,), namespaces=frozenset({"team-b"})), False),
        (Selection((STARTED,), queues=frozenset({"main"})), True),
        (Selection((STARTED,), queues=frozenset({"night"})), False),
        (Selection((STARTED,), namespaces=frozenset({"team-a"}), queues=frozenset({"night"})), False),
        (Selection((EVICTED, STARTED)), True),
    ],
)
def test_a_sink_is_told_of_its_namespaces_and_queues_only(selection: Selection, told: bool) -> None:
    assert (selected(selection, found(ADMITTED)) is not None) is told


def test_a_decision_that_is_about_no_workload_is_never_told() -> None:
    assert event_of(Occurrence(row(1, Verdict.CONFIGURED), None, None)) is None


def test_the_receiver_of_a_namespace_gets_no_name_of_another_one() -> None:
    own = Selection((EVICTED,), namespaces=frozenset({"team-a"}))
    others = Reason(code=Code.NO_MATCHING_FLAVOR, by="team-c/Job/x", detail="secret-detail")
    decision = row(4, Verdict.EVICTED, reason=Reason(code=Code.PREEMPTED, by=PREEMPTED.by, others=(others,)))
    message = about("c", Event.EVICTED, found(decision), own.readable)
    for text in (message.text, message.body.decode()):
        assert "Preempted" in text
        assert "team-b" not in text
        assert "secret" not in text
    everything = about("c", Event.EVICTED, found(decision), Selection((EVICTED,)).readable)
    assert "team-b/Job/secret-project" in everything.text


def test_the_user_that_holds_a_workload_is_named() -> None:
    own = Selection((EVICTED,), namespaces=frozenset({"team-a"}))
    held = about("c", Event.EVICTED, found(row(4, Verdict.EVICTED, reason=HELD)), own.readable)
    assert held.text == "Job team-a/train was evicted, LocalQueue main: UserHold by alice"


def test_a_message_has_the_facts_of_its_decision_and_an_id_of_cluster_and_sequence() -> None:
    decision = row(7, Verdict.ADMITTED, at=CREATED + timedelta(hours=1, minutes=4, seconds=30))
    message = about("uid", Event.STARTED, Occurrence(decision, "main", CREATED), frozenset({"team-a"}))
    assert message.text == "Job team-a/train started after 1 h 4 min, LocalQueue main"
    assert json.loads(message.body) == {
        "id": "uid/1/7",
        "cluster": "uid",
        "sequence": 7,
        "event": "Started",
        "time": "2026-01-04T23:04:30Z",
        "text": message.text,
        "queue": "main",
        "workload": {"namespace": "team-a", "kind": "Job", "name": "train", "uid": "uid-train"},
        "attempt": 1,
        "waitedSeconds": 3870,
        "reason": None,
    }


def test_a_long_reason_is_cut_and_stays_on_one_line() -> None:
    endless = Reason(code=Code.MISCONFIGURED, detail="line\n" * 5000)
    decision = row(4, Verdict.PENDING, reason=endless)
    message = about("c", Event.CAN_NEVER_RUN, found(decision), frozenset())
    assert len(message.text) == MAX_TEXT
    assert "\n" not in message.text
    assert len(message.body) < 3 * MAX_TEXT


def test_deleted_history_is_told_as_a_gap() -> None:
    message = gap("c", Deleted(1, 5, 90), NOW)
    assert (message.id, message.event) == ("c/1/5-90", "Gap")
    assert "Decisions 5 to 90 were deleted" in message.text


def test_a_notice_says_what_is_idle_and_when_it_is_held() -> None:
    message = about("c", Event.IDLE, found(noticed()), frozenset())
    since, hold = utc(NOW - timedelta(hours=1)), utc(noticed().now + timedelta(hours=1))
    assert message.text == (
        f"Job team-a/train leaves GPUs idle, LocalQueue main: 8 of 8 are Idle since {since}; "
        f"IdlePolicy/p holds it at {hold} unless they work before; preemption chooses it first"
    )
    assert message.document["idle"] == {
        "verdict": "Idle",
        "since": since,
        "devices": 8,
        "idleDevices": 8,
        "coverage": 0.95,
        "policy": "p",
        "holdAt": hold,
    }


def test_users_ask_for_messages_by_a_label_and_get_those_of_their_own_work() -> None:
    asked = Selection((ENDED,), labels=label_selector("notify=team-a"))
    own = Selection((ENDED,), users=frozenset({"ada"}))
    end = over("Failed")
    labelled = replace(found(end), labels={"notify": "team-a"}, submitter="bob")
    of_ada = replace(found(end), submitter="ada")
    assert [selected(asked, one) for one in (labelled, of_ada)] == [Event.ENDED, None]
    assert [selected(own, one) for one in (labelled, of_ada)] == [None, Event.ENDED]
    assert selected(own, found(end)) is None, "who submitted it is not known"


def test_an_end_is_told_with_its_outcome_and_a_link() -> None:
    message = about(
        "c",
        Event.ENDED,
        found(over("TimedOut")),
        frozenset(),
        "https://q.example.com/x/",
    )
    link = "https://q.example.com/x/#/workloads/team-a/Job/train"
    assert message.text == f"Job team-a/train ended: TimedOut, LocalQueue main {link}"
    assert (message.document["outcome"], message.document["link"]) == ("TimedOut", link)
    assert "link" not in about("c", Event.STARTED, found(ADMITTED), frozenset()).document
