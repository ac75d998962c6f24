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


def reported(made: World) -> int:
    """How many queues are reported."""
    local_queues, cluster_queues, _ = made.engine.take_reports()
    return len(local_queues) + len(cluster_queues)


@QUEUES
def test_a_queue_that_lost_its_status_is_reported_again(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(event)
    assert reported(made) == 0
    for _ in range(2):
        made.tell(replace(event, status_lost=True))
        assert reported(made) >= 1
    assert reported(made) == 0


@QUEUES
def test_a_queue_that_is_gone_is_not_reported(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(replace(event, status_lost=True), PolicyGone(event.key))
    local_queues, cluster_queues, _ = made.engine.take_reports()
    assert event.key.name not in {
        *(one.name.name for one in local_queues),
        *(one.name for one in cluster_queues),
    }
