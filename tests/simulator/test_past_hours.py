"""As of any time, the ledger has the state that was stored then, and an engine from it decides as then."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from random import Random

from queuectl.core.engine import Engine
from queuectl.core.events import Event, TimeCame
from queuectl.kinds.policy import policy_event
from queuectl.simulator.building import SOURCE
from queuectl.simulator.rebuilding import engine_of
from tests.core.machine import wait_for
from tests.simulator.hours import HOUR, START, Hour, cluster_queue, moves

MANY = 10_000
"""Budget of one plan."""


def times(seed: int, count: int) -> list[datetime]:
    dice = Random(seed)
    return [START + timedelta(seconds=dice.uniform(1, HOUR)) for _ in range(count)]


@cache
def hour() -> Hour:
    played = Hour(7, times(3, 200))
    played.run()
    return played


def started(played: Hour, when: datetime) -> Engine:
    """A controller that starts then, on what is stored and what is in the cluster."""
    engine = Engine(frozenset({SOURCE}), played.settings)
    engine.restore(played.stored[when])
    events, now = played.there[when]
    engine.handle([*events, TimeCame(now)])
    return engine


def test_the_hour_is_busy() -> None:
    played = hour()
    assert len(played.stored) > 190
    assert len({one.sequence for one in played.stored.values()}) > 100
    verdicts = {row.verdict for row in played.ledger.store.decisions}
    assert len(verdicts) == 8, verdicts
    assert any(one.preempted_at for state in played.stored.values() for one in state.workloads)
    assert max(len(state.workloads) for state in played.stored.values()) > 30


def test_as_of_a_time_the_state_is_what_was_stored_then() -> None:
    played = hour()
    for when, stored in played.stored.items():
        found = wait_for(played.ledger.at(when))
        assert found == replace(stored, now=found.now), when


def test_an_engine_from_the_ledger_decides_as_a_controller_that_starts_then() -> None:
    played = hour()
    what_if: list[Event] = [policy_event(cluster_queue("research", 40))]
    differing = 0
    for when in list(played.stored)[::4]:
        now = when + timedelta(seconds=1)
        rebuilt, live = engine_of(wait_for(played.ledger.at(when)), played.settings), started(played, when)
        assert rebuilt.check() == []
        assert moves(rebuilt.decide(now, MANY)) == moves(live.decide(now, MANY)), when
        for engine in (rebuilt, live):
            engine.handle([*what_if, TimeCame(now)])
        decided = moves(rebuilt.decide(now, MANY))
        assert decided == moves(live.decide(now, MANY)), when
        differing += bool(decided)
    assert differing > 25, "the plans that are compared are almost all empty"
