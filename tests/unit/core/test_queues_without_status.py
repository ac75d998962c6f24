"""A queue that was deleted and made again has no status: it is reported, although its policy is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.model.events import PolicyGone
from queuectl.core.model.policy import Policy
from queuectl.kinds.policy import policy_event
from tests.builders import World, local_queue, policy, queue

QUEUES = pytest.mark.parametrize("value", [queue("cq", 2), local_queue("lq", "cq")], ids=["cluster", "local"])


def world() -> World:
    made = World(queue("cq", 2), local_queue("lq", "cq"))
    made.engine.take_reports()
    return made


def bare(made: World) -> list[bool]:
    """Of each queue that is reported: was it seen without a status?"""
    local_queues, cluster_queues, _ = made.engine.take_reports()
    return [*(one.without_status for one in local_queues), *(one.without_status for one in cluster_queues)]


@QUEUES
def test_a_queue_that_lost_its_status_is_reported_again(value: Policy) -> None:
    made, event = world(), policy(value)
    assert made.engine.take_reports() == ([], [], [])
    made.tell(replace(event, bare=True))
    assert sum(bare(made)) == 1


@QUEUES
def test_a_queue_is_reported_once_until_its_status_was_seen(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(replace(event, bare=True))
    made.engine.take_reports()
    made.tell(replace(event, bare=True))
    assert made.engine.take_reports() == ([], [], [])
    made.tell(event)
    made.tell(replace(event, bare=True))
    assert sum(bare(made)) == 1


@QUEUES
def test_a_queue_that_is_gone_is_forgotten(value: Policy) -> None:
    made, event = world(), policy(value)
    made.tell(replace(event, bare=True), PolicyGone(event.key), replace(event, bare=True))
    assert sum(bare(made)) == 1


def test_only_queues_have_a_status() -> None:
    metadata = {"name": "x", "namespace": "ns"}
    flavor = {"kind": "ResourceFlavor", "metadata": metadata, "spec": {}}
    assert not policy_event(flavor).bare
    waiting = {
        "kind": "LocalQueue",
        "metadata": {**metadata, "namespace": "ns"},
        "spec": {"clusterQueue": "cq"},
    }
    assert policy_event(waiting).bare
    assert not policy_event({**waiting, "status": {"pendingWorkloads": 0}}).bare
