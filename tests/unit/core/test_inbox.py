"""Merged events lead to the same state as all of them in order, and do not grow with their number."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.engine import Engine
from queuectl.core.inbox import Inbox
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PodGone,
    PodsCounted,
    PolicyGone,
    PolicyInvalid,
    Result,
    WorkloadGone,
)
from queuectl.core.model.policy import Gate, Namespace
from queuectl.core.model.workload import ConfigKey, EffectKey, Verb, WorkloadId, WorkloadOutcome
from tests.builders import SOURCES, T0, World, local_queue, observed, policy, queue, workload
from tests.doubles import engine_state
from tests.doubles.invariants import violations
from tests.unit.core import actions, profiles
from tests.unit.core.actions import JOBS, SCRIPT, SETUP, any_job, on_quota, play
from tests.unit.core.driver import Action, Driver
from tests.unit.core.trees import Dice

HAPPENS = st.lists(st.binary(min_size=28, max_size=28), min_size=1, max_size=30)
A = WorkloadId("uid-a")


def merged(events: Sequence[Event]) -> list[Event]:
    inbox = Inbox()
    inbox.extend(events)
    assert bool(inbox) is bool(events)
    return inbox.events()


def state(engine: Engine, events: Sequence[Event]) -> dict[str, object]:
    """What the engine knows after `events`: of each workload, of policy, and what is due."""
    other = deepcopy(engine)
    other.handle(events)
    assert violations(other) == []
    core = engine_state.state(other)
    entries = {
        entry.id: (
            *(entry.workload, entry.observation, entry.gone_at, entry.phase, entry.attempt),
            *(entry.pods_gone, entry.counting_pods, entry.count_void),
            *(entry.start_refused, entry.start_denied),
            *(entry.unacknowledged, entry.generation, entry.past, entry.ineligible, entry.cluster_queue),
            *(entry.priority, core.due_steps.get(entry.id)),
        )
        for entry in core.entries.values()
    }
    return {
        "entries": entries,
        "specs": dict(core.specs),
        "invalid": dict(core.directory.invalid),
        "gate": (core.directory.gate, core.directory.gate_since),
        "missing": set(core.missing),
    }


def unread(running: Driver, happens: Sequence[bytes]) -> list[Event]:
    """Perform random actions without a decision, and return their events as two channels deliver them."""
    events: list[Event] = []
    for one in happens:
        dice = Dice(one)
        dice.pick(*UNREAD)(running, dice)
        answers = list(running.answers)
        running.answers.clear()
        watch = list(running.watch)
        running.watch.clear()
        events += [*answers, *watch] if dice.below(2) else [*watch, *answers]
    return events


def repeat(running: Driver, dice: Dice) -> None:
    """An event is delivered again, or one of an older version."""
    if uid := any_job(running, dice):
        event = running.seen(uid)
        older = max(0, int(event.observation.resource_version) - dice.below(6))
        seen = replace(event.observation, resource_version=str(older))
        running.watch.append(replace(event, observation=seen))


def lose(running: Driver, dice: Dice) -> None:
    """A workload loses its label, and may get it again."""
    if uid := any_job(running, dice):
        running.version += 1
        running.watch.append(WorkloadGone(uid, str(running.version)))
        if dice.below(2):
            running.write(uid, spec=False)


def answer(running: Driver, dice: Dice) -> None:
    """Writes and probes under way have a result."""
    for uid in list(running.probes):
        running.count(uid)
    for uid in list(running.effects):
        running.settle(uid, denied=dice.below(4) == 3)


def suspend(running: Driver, dice: Dice) -> None:
    """Another client suspends or starts a workload."""
    if uid := any_job(running, dice):
        suspended = not running.jobs[uid].suspended
        running.write(uid, suspended=suspended, pods=running.jobs[uid].pods or not suspended)


UNREAD: tuple[Action, ...] = (
    *(actions.submit, actions.finish, actions.delete, actions.hold),
    *(actions.change_priority, actions.change_policy, repeat, lose, suspend, answer),
    *(lambda driver, _: driver.relist(), lambda driver, _: driver.kill_pods()),
)


@profiles.sequences(200)
@given(SETUP, JOBS, SCRIPT, HAPPENS)
def test_merged_events_lead_to_the_same_state_as_all_of_them_in_order(
    made: bytes, jobs: list[bytes], script: list[bytes], happens: list[bytes]
) -> None:
    running = play(on_quota(made), jobs, script)
    plan = running.plan()
    if plan.decisions or plan.probes:
        running.commit(plan)  # its writes are not settled yet
    events = unread(running, happens)
    assert state(running.engine, merged(events)) == state(running.engine, events)


@profiles.sequences(40)
@given(SETUP, JOBS, SCRIPT, HAPPENS)
def test_an_engine_that_takes_over_knows_from_the_time_before_what_it_would_read_now(
    made: bytes, jobs: list[bytes], script: list[bytes], happens: list[bytes]
) -> None:
    running = play(on_quota(made), jobs, script)
    standby, fold = Inbox(first=True), running.fold
    standby.extend(running.everything())

    def hear(events: list[Event]) -> None:
        standby.extend(event for event in events if not isinstance(event, EffectSettled | PodsCounted))
        fold(events)

    with patch.object(running, "fold", hear):
        for one in happens:
            dice = Dice(one)
            dice.pick(*(act for act in UNREAD if act is not lose))(running, dice)
            running.deliver()
            if dice.below(2):
                running.decide()
                running.settle_all()
            if not dice.below(4):
                standby.extend(running.jobs_listed())
        running.deliver()
    taking = Engine(SOURCES, running.setup.settings)
    taking.restore(running.loaded())
    warm, cold = state(taking, standby.events()), state(taking, running.everything())
    for known in (warm, cold):
        entries = known["entries"]
        assert isinstance(entries, dict)
        # Pods of what ran meanwhile are counted again.
        known["entries"] = {
            id: (*entry[:5], *entry[8:-1]) for id, entry in entries.items() if id in running.jobs
        }
    assert warm == cold


def test_what_came_and_went_before_a_controller_leads_is_kept_until_the_next_list() -> None:
    one, two = workload("a"), workload("b")
    ended = observed(one, finished=WorkloadOutcome.SUCCEEDED)
    listed = Listed("Job", frozenset({two.id}))
    standby = Inbox(first=True)
    standby.extend([observed(one), Listed("Job", frozenset({A})), ended, WorkloadGone(A, "9"), observed(two)])
    assert standby.events()[:2] == [ended, WorkloadGone(A, "9")]
    standby.extend([listed])
    assert standby.events() == [WorkloadGone(two.id), observed(two), listed]
    standby.extend([PodGone("uid-pod"), ContextGone(Namespace, "team")])
    assert len(standby) == 3


@given(st.lists(st.tuples(st.sampled_from("oxrfgl"), st.integers(0, 2), st.integers(0, 3)), max_size=400))
def test_what_is_kept_does_not_grow_with_the_number_of_events(
    happens: list[tuple[str, int, int]],
) -> None:
    one = workload("a")
    inbox = Inbox()
    for what, number, version in happens:
        ref = f"{version}"
        events: dict[str, Event] = {
            "o": observed(one, suspended=True, generation=number + 1),
            "x": observed(one, suspended=False, generation=number + 1),
            "f": observed(one, suspended=False, generation=number + 1, finished=WorkloadOutcome.SUCCEEDED),
            "g": WorkloadGone(A, ref),
            "l": Listed("Job", frozenset([A][:number])),
            "r": policy(queue("cq", number)),
        }
        inbox.extend([events[what]])
        assert len(inbox) <= 6


def test_a_deletion_does_not_hide_the_outcome_before_it() -> None:
    one = workload("a")
    events: list[Event] = [
        observed(one),
        observed(one, finished=WorkloadOutcome.SUCCEEDED),
        WorkloadGone(A, "9"),
    ]
    assert merged(events) == events[1:]


def test_outcomes_of_writes_are_kept_between_the_observations_around_them() -> None:
    one = workload("a")
    refused = EffectSettled(EffectKey(A, 1, Verb.START), Result.REFUSED)
    counted = PodsCounted(A, 1, alive=False)
    events: list[Event] = [observed(one), refused, observed(one, generation=2), counted]
    assert merged([*events[:2], observed(one), *events[2:]]) == events


def test_an_older_read_does_not_replace_a_newer_one() -> None:
    one = workload("a")
    newer = observed(one, generation=3)
    assert merged([newer, observed(one, generation=2)]) == [newer]


def test_a_spec_that_is_valid_stays_in_force_under_a_later_one_that_is_not() -> None:
    key = ConfigKey("ClusterQueue", "", "cq")
    valid, invalid = policy(queue("cq", 2)), PolicyInvalid(key, "no number")
    assert merged([policy(queue("cq", 1)), valid, invalid]) == [valid, invalid]
    assert merged([valid, invalid, PolicyGone(key)]) == [PolicyGone(key)]
    assert merged([valid, PolicyGone(key), policy(queue("cq", 1))]) == [policy(queue("cq", 1))]


def test_a_gate_that_is_gone_again_was_there() -> None:
    events: list[Event] = [ContextObserved(Gate("gate", T0)), ContextGone(Gate, "gate")]
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.tell(*merged(events))
    assert engine_state.state(world.engine).directory.gate_since == T0
    assert merged([*events, ContextObserved(Gate("gate", T0))]) == [events[0]]


def test_what_the_last_list_does_not_have_is_gone_unless_it_was_observed_later() -> None:
    world = World(queue("cq", 0), local_queue("lq", "cq"))
    world.submit(workload("a"))
    world.run()
    gone = [Listed("Job", frozenset())]
    back = observed(workload("a"))
    known = engine_state.entries(world.engine)
    world.tell(*merged([*gone, back]))
    assert not known[A].gone
    world.tell(*merged([back, *gone]))
    assert known[A].gone


def test_that_it_ran_between_two_observations_is_kept() -> None:
    """Its pods are counted again before its quota is released (L12)."""
    one = workload("a")
    stopped, ran = observed(one), observed(one, suspended=False, generation=2)
    again = observed(one, generation=3)
    assert merged([stopped, ran, again]) == [ran, again]
    assert merged([ran, again, again]) == [ran, again]
