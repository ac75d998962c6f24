"""A replay of a past time has the waits that really were, and under another policy those of that one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from queuectl.answers.replay import ReplayedPast, replayed, unknown
from queuectl.core.model.events import Event
from queuectl.core.model.workload import ConfigKey
from queuectl.kinds.policy import policy_event
from queuectl.ports.reader import PastRevision
from queuectl.scenarios.arrivals import Arrival
from tests.builders import GPU, pod_set, workload
from tests.unit.answers.hours import HOUR, START, Hour, cluster_queue
from tests.unit.core.driver import wait_for


class Quiet(Hour):
    """Without holds and changes of policy."""

    def run(self) -> None:
        self.play(self._arrivals(), until=self.seconds)

    def _arrivals(self) -> Iterable[Arrival]:
        for one in super()._arrivals():
            yield replace(one, at=one.at // 1000 * 1000)  # as `createdAt`


@cache
def quiet() -> Hour:
    played = Quiet(11, (), seconds=HOUR / 2)
    played.run()
    return played


def past(played: Hour, since: datetime) -> ReplayedPast:
    return ReplayedPast(
        since=since,
        until=START + timedelta(seconds=played.seconds),
        snapshot=wait_for(played.ledger.at(since)),
        lives=wait_for(played.ledger.past_lives(since=since)),
        configuration=played.settings,
    )


def replay(played: Hour, *policy: Event, minutes: float) -> dict[str, Any]:
    since = START + timedelta(minutes=minutes)
    return replayed(past(played, since), policy)


def waits(found: dict[str, Any], which: str) -> dict[str, Any]:
    names = ("workloads", "started", "wait")
    return {queue["name"]: {name: queue[which][name] for name in names} for queue in found["queues"]}


@pytest.mark.acceptance
@pytest.mark.parametrize("minutes", [14, 19, 22, 24])
def test_a_replay_under_the_same_policy_has_the_waits_that_really_were(minutes: int) -> None:
    """Also if workloads are being evicted at its start, and preemptors wait for them."""
    found = replay(quiet(), minutes=minutes)
    assert found["workloads"] > 60
    assert sum(queue["before"]["preempted"] for queue in found["queues"]) > 0
    assert waits(found, "before") == waits(found, "really")
    assert waits(found, "after") == waits(found, "before")


class Large(Hour):
    """Three workloads that take all GPUs of the tree, one after the other, and one that is too large."""

    def run(self) -> None:
        self.play(self._arrivals(), until=self.seconds)

    def _arrivals(self) -> Iterable[Arrival]:
        for number, (at, gpus) in enumerate(((2, 24), (10, 24), (20, 24), (30, 500))):
            one = self._workload(number, START + timedelta(seconds=at))
            one = replace(
                workload(f"large-{number}", namespace="research"),
                queue="main",
                created_at=one.created_at,
                pod_sets=(pod_set(1, {GPU: gpus, "cpu": 1}),),
            )
            yield Arrival(at=at * 1000, workload=one, run=600_000)


def test_with_more_quota_workloads_that_waited_start_at_once_and_borrow_nothing() -> None:
    played = Large(1, ())
    played.run()
    found = replay(played, policy_event(cluster_queue("research", 100)), minutes=1 / 60)
    (queue,) = (one for one in found["queues"] if one["name"] == "research")
    assert [queue[run]["started"] for run in ("really", "before", "after")] == [3, 3, 3]
    assert queue["really"]["wait"]["max"] == queue["before"]["wait"]["max"] == 1182
    assert queue["before"]["wait"]["median"] == 592
    assert queue["after"]["wait"]["max"] == 0
    gpus = [
        next(one for one in queue[run]["resources"] if one["resource"] == GPU) for run in ("before", "after")
    ]
    assert [one["usedHours"] for one in gpus] == [12, 12]
    assert [one["borrowedHours"] for one in gpus] == [6, 0]
    assert found["assumed"]["asRan"] == 3
    assert found["assumed"]["neverRan"] == found["assumed"]["endless"] == 1
    told = list(unknown(found["assumed"]))
    assert told[1] == "1 never ran: their runs are drawn from those that are alike."
    assert "Nodes of that time are not known" in told[-2]


def test_a_change_of_policy_meanwhile_is_replayed_and_not_if_the_new_policy_replaces_the_object() -> None:
    played = Large(1, ())
    played.run()
    since = START + timedelta(seconds=1)
    spec = json.dumps(cluster_queue("research", 100)["spec"])
    key = ConfigKey("ClusterQueue", "", "research")
    change = PastRevision(START + timedelta(seconds=100), key, spec)
    changed = replace(past(played, since), changes=(change,))
    found = replayed(changed, [policy_event(cluster_queue("research", 12))])
    (queue,) = (one for one in found["queues"] if one["name"] == "research")
    assert queue["before"]["wait"]["max"] == 90
    assert queue["after"]["wait"]["max"] == 1182
    assert found["assumed"]["policyChanges"] == 1


def test_a_workload_that_was_deleted_while_it_waited_leaves_then() -> None:
    played = Large(1, ())
    played.run()
    known = past(played, START + timedelta(seconds=1))
    gone = START + timedelta(seconds=300)
    lives = tuple(
        life._replace(runs=(), ended_at=gone) if life.workload.ref.name == "large-1" else life
        for life in known.lives.lives
    )
    known = replace(known, lives=known.lives._replace(lives=lives))
    (queue,) = (one for one in replayed(known, [])["queues"] if one["name"] == "research")
    assert queue["before"]["started"] == 2
    assert queue["before"]["wait"]["max"] == 582, "the third starts when the first has ended"


def test_before_and_after_are_drawn_side_by_side(tmp_path: Path) -> None:
    played = Large(1, ())
    played.run()
    found = replay(played, policy_event(cluster_queue("research", 100)), minutes=1 / 60)
    from queuectl.simulation.picture import draw  # loads matplotlib, which no other test here needs

    draw(found["before"], tmp_path / "replay.svg", found["after"])
    drawn = (tmp_path / "replay.svg").read_text("utf-8")
    assert "before | after" in drawn
    assert drawn.count("workloads waiting") == 2
