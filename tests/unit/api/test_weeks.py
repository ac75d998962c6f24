"""Answers about every workload and queue of a simulated week, beside the simulator's own records."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from queuectl.answers import waits
from queuectl.answers.statements import of_cohort
from queuectl.answers.waits import Cause
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import DecisionRow
from queuectl.simulation.history import History, Life
from tests.builders import GPU, T0
from tests.doubles import readers
from tests.unit.api.test_statements import statement
from tests.unit.api.weeks import END, Week, at_once, week

pytestmark = pytest.mark.acceptance

GPUS: Final = FlavorResource("default", GPU)
LAST: Final = 1 << 62
"""Above the sequence of every decision."""

# --- where the wait went


def rows_of(found: Week) -> dict[WorkloadId, list[DecisionRow]]:
    rows: dict[WorkloadId, list[DecisionRow]] = {}
    for row in found.ledger.store.decisions:
        if row.workload is not None:
            rows.setdefault(row.workload, []).append(row)
    return rows


def lived(life: Life, end: int) -> tuple[int, int, int]:
    """Milliseconds that it waited, ran, and was evicting, by the simulator's own records."""
    over = end if life.finished is None else life.finished
    ran = evicting = 0
    for run in life.runs:
        released = over if run.released is None else run.released
        stopped = released if run.stopped is None else run.stopped
        ran += stopped - run.admitted
        evicting += released - stopped
    return over - life.arrived - ran - evicting, ran, evicting


@pytest.mark.parametrize("fair", [False, True])
def test_the_parts_of_every_wait_of_a_week_sum_to_the_wait(fair: bool) -> None:
    found = week(fair)
    rows = rows_of(found)
    causes: dict[Cause, int] = {}
    workloads = {one.id: one for one in found.ledger.store.workloads.values()}
    workloads |= {one.id: one for _, one in found.ledger.store.ended}
    assert len(found.history.lives) > 400
    for life in found.history.lives:
        created = workloads[life.id].created_at
        spells = waits.spells(rows[life.id], created, END)
        told = {
            one: readers.starts(found.ledger.store.decisions, span)
            for one, span in waits.spans(spells, LAST).items()
        }
        wait = waits.breakdown(spells, told)
        assert wait is not None
        assert sum(part.seconds for part in wait.parts) == wait.waited
        assert all(part.seconds > 0 for part in wait.parts)
        assert wait.waited + wait.ran + wait.evicting == int((wait.until - wait.start).total_seconds())
        waited, ran, evicting = lived(life, found.history.end)
        # Created in a whole second, up to 1 s before it arrives; each boundary is cut to a second.
        boundaries = 2 + 3 * len(life.runs)
        for seconds, milliseconds in ((wait.waited, waited), (wait.ran, ran), (wait.evicting, evicting)):
            assert abs(seconds - milliseconds / 1000) <= boundaries, life
        for part in wait.parts:
            causes[part.cause] = causes.get(part.cause, 0) + part.seconds
    assert {Cause.QUOTA, Cause.LINE, Cause.PODS_ENDING, Cause.STOPPED} <= causes.keys()


# --- what was lent and borrowed


def test_the_next_time_continues_the_one_before() -> None:
    ledger = week(fair=True).ledger
    middle = T0 + timedelta(days=3.21)
    whole, first, second = (
        statement("b", at_once(ledger.past_holds(since=begin, until=end)), begin, end)[GPUS]
        for begin, end in ((T0, END), (T0, middle), (middle, END))
    )
    first.add(second)
    for name in ("guaranteed", "used", "borrowed", "beyond", "lent", "idle"):
        # Each stretch is cut to whole microseconds for each lender.
        assert abs(getattr(whole, name) - getattr(first, name)) <= 2, name


def integral(history: History, queue: str) -> int:
    """Base units times microseconds, by the simulator's own records."""
    total = 0
    for run in (run for life in history.lives for run in life.runs if run.cluster_queue == queue):
        end = history.end if run.released is None else run.released
        total += sum(run.usage.values()) * (end - run.admitted) * 1000
    return total


@pytest.mark.parametrize("fair", [False, True])
def test_the_hours_of_a_week_are_those_of_its_hold_lines(fair: bool) -> None:
    found = week(fair)
    holds = at_once(found.ledger.past_holds(since=T0, until=END))
    of = {name: statement(name, holds, T0, END)[GPUS] for name in "abc"}
    for name, one in of.items():
        assert one.used == integral(found.history, name)
        assert one.borrowed == sum(one.borrowed_from.values()) + one.beyond
        assert one.guaranteed - one.lent - one.idle == one.used - one.borrowed
        for borrower, amount in one.lent_to.items():
            assert of[borrower].borrowed_from[f"ClusterQueue/{name}"] == amount
    assert of["a"].borrowed > 0
    assert of["c"].lent > 0
    days = 8 * 7 - 4 * 1.9  # quota of c was halved for 1.9 days
    assert of["c"].guaranteed == round(days * 24 * 3_600_000_000)


@pytest.mark.parametrize("fair", [False, True])
def test_the_statement_of_a_tree_is_that_of_each_of_its_queues(fair: bool) -> None:
    found = week(fair)
    holds = at_once(found.ledger.past_holds(since=T0, until=END))
    [tree] = of_cohort("all", holds, (T0, END), parse_policy)
    assert tree == {name: statement(name, holds, T0, END) for name in "abc"}
    used = sum(one[GPUS].used for one in tree.values())
    assert used == sum(integral(found.history, name) for name in "abc")
    lines = ((one, min(one.end or END, END) - max(one.start, T0)) for one in holds.holds)
    assert used == sum(one.amount * (time // timedelta(microseconds=1)) for one, time in lines)
    borrowed = sum(one[GPUS].borrowed - one[GPUS].beyond for one in tree.values())
    assert borrowed == sum(one[GPUS].lent for one in tree.values()) > 0


# --- what was preempted


@pytest.mark.parametrize("fair", [False, True])
def test_what_a_week_lost_is_what_its_preempted_attempts_ran(fair: bool) -> None:
    found = week(fair)
    rows = at_once(found.ledger.preemptions(before=None, since=None, until=None, limit=100_000))
    told = sorted(
        (str(one.decision.workload), _milliseconds(one.admitted_at), _milliseconds(one.decision.now))
        for one in rows
    )
    simulated = sorted(
        (str(life.id), run.admitted, run.stopped)
        for life in found.history.lives
        for run in life.runs
        if run.code is Code.PREEMPTED and run.stopped is not None
    )
    assert len(told) > 20
    assert told == simulated
    usage = {(life.id, run.admitted): run.usage for life in found.history.lives for run in life.runs}
    for one in rows:
        assert one.decision.workload is not None
        assert one.admitted_at is not None
        size = usage[one.decision.workload, _milliseconds(one.admitted_at)]
        ran = (one.decision.now - one.admitted_at) // timedelta(microseconds=1)
        assert one.held == {cell: amount * ran for cell, amount in size.items()}


def _milliseconds(time: datetime | None) -> int:
    assert time is not None
    return (time - T0) // timedelta(milliseconds=1)


def shares_of(found: Week) -> list[dict[str, dict[str, Any]]]:
    """Of preemptions with one victim: another one in the queue of the preemptor lowers its share."""
    rows = at_once(found.ledger.preemptions(before=None, since=None, until=None, limit=100_000))
    victims = Counter((one.decision.now, one.decision.payload["preemptor"]) for one in rows)
    stored: list[Any] = [
        one.decision.payload.get("shares")
        for one in rows
        if victims[one.decision.now, one.decision.payload["preemptor"]] == 1
    ]
    return [one for one in stored if one is not None]


def test_a_preemption_of_a_week_lowers_the_share_of_its_victim_and_raises_that_of_the_preemptor() -> None:
    assert shares_of(week(fair=False)) == []
    found = shares_of(week(fair=True))
    assert len(found) > 10
    for one in found:
        victim, preemptor = one["victim"], one["preemptor"]
        assert victim["node"] != preemptor["node"]
        assert victim["after"] <= victim["before"]
        assert preemptor["after"] >= preemptor["before"]
    assert any(one["victim"]["after"] < one["victim"]["before"] for one in found)
    # Queues a and b are in one cohort: against c, that cohort is compared.
    nodes = {one["victim"]["node"] for one in found}
    assert nodes <= {"ClusterQueue/a", "ClusterQueue/b", "ClusterQueue/c", "Cohort/north"}
