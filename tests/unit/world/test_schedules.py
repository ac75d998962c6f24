"""A few schedules of the whole system. Many more: `python -m tests.world`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.world.schedule import schedule
from tests.world.world import play_schedule


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_schedule_breaks_no_rule(seed: int) -> None:
    assert play_schedule(schedule(seed)).violations == []


@pytest.mark.acceptance
def test_the_same_seed_gives_the_same_bytes_of_history() -> None:
    first, second = (play_schedule(schedule(9)) for _ in range(2))
    assert first.story == second.story
    assert (first.digest, first.callbacks, first.seconds) == (second.digest, second.callbacks, second.seconds)
    assert play_schedule(schedule(10)).digest != first.digest


@pytest.mark.parametrize(("seed", "kept"), [(114841, (0, 1, 2, 3, 5)), (119661, (1, 2, 3, 4, 5, 6))])
def test_a_start_that_is_late_reaches_no_pod_of_a_group_that_has_ended(
    seed: int, kept: Sequence[int]
) -> None:
    """One pod has ended, the request for another is still on its way: to the next leader, and to the same."""
    assert play_schedule(schedule(seed).only(kept)).violations == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_start_that_is_late_reaches_no_pod_of_a_group_that_is_evicted_or_loses_its_pods(
    deleted: bool,
) -> None:
    """Its first pod ends while it is evicted, or is deleted; the request for another is on its way."""
    left_out = {2, *range(5, 11), 12, 13, 19, 27, 31, 37, 38, 39}
    part = schedule(197224).only([number for number in range(43) if number not in left_out])
    if deleted:
        of_other = next(step for step in part.steps if step.verb == "delete member")
        calm = [step for step in part.steps if step.args[:2] != ("team-a", "w4")]
        steps = [*calm, of_other._replace(at=45.0, args=("team-a", *of_other.args[1:]))]
        part = replace(part, steps=tuple(sorted(steps, key=lambda step: step.at)))
    assert play_schedule(part).violations == []


def test_a_group_whose_last_pods_went_unwatched_ends() -> None:
    """A list shows that they are gone; their stop was acknowledged at a later version than theirs."""
    kept = (0, 2, 5, 6, 10, 15, 18, 20, 21, 22, 24, 26, 27, 28, 29, 36, 37, 38)
    assert play_schedule(schedule(131379).only(kept)).violations == []


def test_a_job_below_a_train_job_that_is_let_go_late_runs_within_quota() -> None:
    """Its JobSet was resumed and suspended again while the request for the Job was on its way."""
    kept = (0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 13, 15, 16)
    assert play_schedule(schedule(147125).only(kept)).violations == []


def test_what_a_standby_saw_does_not_count_where_the_leader_may_not_read() -> None:
    kept = (2, 3, 6, 7, 10, 11, 12, 13, 16, 17, 18, 19, 28, 35)
    assert play_schedule(schedule(144295).only(kept)).violations == []


def test_quota_of_a_start_and_a_stop_that_the_ledger_lost_is_held_while_pods_end() -> None:
    """The database lost both, and the object was resized since."""
    kept = (8, 18, 22, 24, 25, 26, 27, 30, 31, 32, 33, 34, 35, 45, 46)
    assert play_schedule(schedule(150801).only(kept)).violations == []


def test_what_waits_for_a_usage_limit_preempts_one_of_its_user_that_is_protected_no_longer() -> None:
    assert play_schedule(schedule(172576).only((3, 14, 17, 20, 21))).violations == []


def test_a_start_whose_record_is_denied_too_is_found_when_a_former_leader_sends_it_late() -> None:
    """Where no write of an object is valid, none can keep that start back."""
    assert play_schedule(schedule(202754).only((0, 1, 8, 9, 10))).violations == []


def test_a_pod_that_a_late_operator_makes_for_what_is_gone_is_garbage() -> None:
    """A RayCluster was deleted while its operator was slow, which made its pods again."""
    assert play_schedule(schedule(216405)).violations == []
