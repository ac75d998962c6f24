"""The story of a workload: its last decisions, and the writes to its object that they requested."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from queuectl.answers.explanation import Visibility
from queuectl.answers.story import STORY_LIMIT, remarks
from queuectl.core.entries import story
from queuectl.core.model.workload import Verb
from queuectl.ports.reader import DecisionRow, EffectRow, StoryRows
from tests.unit.api.canned import EPOCH_START, WAITS, decision, workload
from tests.unit.api.conftest import Rest

PATH = "/api/v1/workloads/default/job/waits/story"
SUBJECT = workload("waits", 3)


def at(seconds: float) -> datetime:
    return EPOCH_START + timedelta(seconds=seconds)


def row(
    sequence: int, verdict: str, attempt: int | None = None, *, now: datetime | None = None
) -> DecisionRow:
    found = decision(sequence, SUBJECT, verdict)
    return replace(found, attempt=attempt, now=now or found.now, payload={})


def told(*decisions: DecisionRow, effects: tuple[EffectRow, ...] = ()) -> list[tuple[str, str]]:
    found = remarks(StoryRows(list(decisions), list(effects)), Visibility(namespaces={"default"}))
    assert all(before.at <= after.at for before, after in pairwise(found))
    return [(remark.what, str(remark.detail)) for remark in found]


async def test_a_story_has_decisions_and_writes_in_the_order_of_their_times(rest: Rest) -> None:
    rest.readings.rows = [
        decision(1, SUBJECT, "Queued"),
        replace(decision(2, SUBJECT, "Admitted"), attempt=1, payload={"clusterQueue": "team-a"}),
    ]
    rest.readings.effects = [EffectRow(2, Verb.START, 1, acknowledged_at=at(2.5))]
    found = await rest.get(PATH)
    assert found.pop("ageSeconds") >= 0
    assert found.pop("controller")["seconds"] >= 0
    assert found == {
        "items": [
            {"time": "2026-01-05T10:00:01Z", "what": "decided", "detail": "Queued: LocalQueue main"},
            {
                "time": "2026-01-05T10:00:02Z",
                "what": "decided",
                "detail": "Admitted, attempt 1: ClusterQueue team-a",
            },
            {"time": "2026-01-05T10:00:02Z", "what": "requested", "detail": "Start of attempt 1"},
            {"time": "2026-01-05T10:00:02.500000Z", "what": "acknowledged", "detail": "Start of attempt 1"},
        ],
        "next": None,
        "sequence": 2,
    }


async def test_a_story_has_no_decision_after_the_state_that_answers(rest: Rest) -> None:
    rest.readings.rows = [
        decision(1, SUBJECT, "Queued"),
        decision(2, SUBJECT, "Pending", WAITS),
        decision(3, SUBJECT, "Admitted"),
    ]
    found = await rest.get(PATH)
    assert [item["detail"] for item in found["items"]] == [
        "Queued: LocalQueue main",
        f"Pending: {WAITS.message}",
    ]


async def test_a_story_ends_with_the_last_remarks(rest: Rest) -> None:
    rest.readings.rows = [decision(1, SUBJECT, "Queued")]
    for number in range(1, 16):
        admitted = replace(decision(2 * number, SUBJECT, "Admitted"), attempt=number)
        rest.readings.rows += [
            admitted,
            replace(decision(2 * number + 1, SUBJECT, "Released"), attempt=number),
        ]
        rest.readings.effects.append(EffectRow(admitted.sequence, Verb.START, number, at(2 * number + 0.5)))
    rest.readings.sequence = 50
    await rest.view.refresh()
    found = (await rest.get(PATH))["items"]
    assert len(found) == STORY_LIMIT == 20
    assert found[-1]["detail"].startswith("Released, attempt 15")
    assert found[0]["detail"].startswith("Admitted, attempt 11")


async def test_a_story_takes_no_parameters(rest: Rest) -> None:
    await rest.refused(rest.client.get(f"{PATH}?limit=5"), 400)


def test_a_write_that_is_due_is_requested_and_no_more() -> None:
    due = EffectRow(1, Verb.START, 1)
    assert told(row(1, "Admitted", 1), effects=(due,)) == [
        ("decided", "Admitted, attempt 1"),
        ("requested", "Start of attempt 1"),
    ]


def test_a_write_that_is_withdrawn_follows_the_decision_that_withdraws_it() -> None:
    effects = (EffectRow(1, Verb.START, 1, withdrawn_at=at(2)), EffectRow(2, Verb.STOP, 1))
    assert told(row(1, "Admitted", 1), row(2, "Evicted", 1), effects=effects) == [
        ("decided", "Admitted, attempt 1"),
        ("requested", "Start of attempt 1"),
        ("decided", "Evicted, attempt 1"),
        ("requested", "Stop of attempt 1"),
        ("withdrawn", "Start of attempt 1"),
    ]


def test_an_acknowledgement_precedes_a_decision_of_the_same_commit_and_follows_its_own_request() -> None:
    """A database clock that was set back stands still: then the commits have one time."""
    now = at(1)
    rows = (row(1, "Evicted", 1, now=now), row(2, "Released", 1, now=now))
    assert told(*rows, effects=(EffectRow(1, Verb.STOP, 1, acknowledged_at=now),)) == [
        ("decided", "Evicted, attempt 1"),
        ("requested", "Stop of attempt 1"),
        ("acknowledged", "Stop of attempt 1"),
        ("decided", "Released, attempt 1"),
    ]


def test_the_details_of_a_remark_begin_in_one_column() -> None:
    effects = [EffectRow(1, Verb.START, 1, acknowledged_at=at(2))]
    text = story(remarks(StoryRows([row(1, "Admitted", 1)], effects), Visibility(namespaces={"default"})))
    assert text.splitlines() == [
        "2026-01-05T10:00:01Z  decided       Admitted, attempt 1",
        "2026-01-05T10:00:01Z  requested     Start of attempt 1",
        "2026-01-05T10:00:02Z  acknowledged  Start of attempt 1",
    ]
