"""The ledger keeps the context that decisions depend on as it keeps policy."""

from __future__ import annotations

from queuectl.core.decisions import Configure
from queuectl.core.model.events import ContextGone, ContextObserved, PolicyGone
from queuectl.core.model.pod_limits import LimitRange
from queuectl.core.model.policy import Namespace, PriorityClass
from queuectl.core.model.workload import ConfigKey
from tests.builders import World, local_queue, policy, queue

TEAM, DEFAULTS = ConfigKey("Namespace", "", "team"), ConfigKey("LimitRange", "team", "defaults")
URGENT = ConfigKey("PriorityClass", "", "urgent")
LABELLED = ContextObserved(Namespace("team", (("a", "b"),)), TEAM, '{"labels":{"a":"b"}}')
LIMITS = ContextObserved(LimitRange("team/defaults"), DEFAULTS, '{"spec":{}}')
CLASS = ContextObserved(PriorityClass("urgent", 7), URGENT, '{"value":7}')
QUEUE = policy(local_queue("lq", "cq", namespace="team"))


def recorded(world: World) -> list[tuple[ConfigKey, str | None]]:
    known = len(world.decided)
    world.run()
    return [(d.key, d.spec) for d in world.decided[known:] if isinstance(d, Configure)]


def started() -> World:
    world = World(queue("cq", 1))
    world.run()
    return world


def test_context_of_a_namespace_is_recorded_from_its_first_local_queue_on() -> None:
    world = started()
    world.tell(LABELLED, LIMITS)
    assert recorded(world) == []
    assert not world.engine.due
    world.tell(QUEUE)
    assert recorded(world) == [
        (DEFAULTS, LIMITS.spec),
        (QUEUE.key, QUEUE.spec),
        (TEAM, LABELLED.spec),
    ]
    world.tell(LABELLED, LIMITS)
    assert recorded(world) == []


def test_context_of_a_namespace_that_has_a_local_queue_is_recorded_at_once() -> None:
    world = started()
    world.tell(QUEUE, LABELLED)
    assert recorded(world) == [(QUEUE.key, QUEUE.spec), (TEAM, LABELLED.spec)]


def test_context_of_all_namespaces_is_recorded_without_a_local_queue() -> None:
    world = started()
    world.tell(CLASS)
    assert recorded(world) == [(URGENT, CLASS.spec)]


def test_the_end_of_recorded_context_is_recorded() -> None:
    world = started()
    world.tell(QUEUE, LIMITS, CLASS)
    recorded(world)
    world.tell(ContextGone(LimitRange, "team/defaults"), ContextGone(PriorityClass, "urgent"))
    assert recorded(world) == [(DEFAULTS, None), (URGENT, None)]


def test_a_change_of_recorded_context_is_recorded_after_the_last_local_queue_is_gone() -> None:
    world = started()
    world.tell(QUEUE, LIMITS)
    recorded(world)
    world.tell(PolicyGone(QUEUE.key))
    recorded(world)
    world.tell(ContextObserved(LIMITS.value, DEFAULTS, '{"spec":{"limits":[]}}'))
    assert recorded(world) == [(DEFAULTS, '{"spec":{"limits":[]}}')]


def test_context_without_a_key_is_not_recorded() -> None:
    world = started()
    world.tell(ContextObserved(PriorityClass("urgent", 7)), ContextGone(PriorityClass, "urgent"))
    assert recorded(world) == []
