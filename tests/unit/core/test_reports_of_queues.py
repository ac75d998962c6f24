"""When a queue is reported again, although nothing about its policy has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.model.events import PolicyGone
from queuectl.core.model.policy import Policy
from tests.builders import World, local_queue, policy, queue

QUEUES = pytest.mark.parametrize("value", [queue("cq", 2), local_queue("lq", "cq")], ids=["cluster", "local"])


def world() -> World:
    made = World(queue("cq", 2), local_queue("lq", "cq"))
    made.engine.take_reports()
    return made


def lost(made: World) -> list[bool]:
    """Of each queue that is reported: has it lost its status?"""
    local_queues, cluster_queues, _ = made.engine.take_reports()
    return [*(one.status_lost for one in local_queues), *(one.status_lost for one in cluster_queues)]


@QUEUES
def test_a_queue_that_lost_its_status_is_reported_again(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(event)
    assert lost(made) == []
    made.tell(replace(event, status_lost=True))
    assert sum(lost(made)) == 1


@QUEUES
def test_it_is_reported_once_until_its_status_was_seen(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(replace(event, status_lost=True))
    lost(made)
    made.tell(replace(event, status_lost=True))
    assert lost(made) == []
    made.tell(event)
    made.tell(replace(event, status_lost=True))
    assert sum(lost(made)) == 1


@QUEUES
def test_a_queue_that_is_gone_is_forgotten(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(replace(event, status_lost=True), PolicyGone(event.key), event)
    assert not any(lost(made))
