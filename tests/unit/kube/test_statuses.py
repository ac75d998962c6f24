"""Which status of a queue stands in the API server, where writes and events overtake each other."""

from __future__ import annotations

import contextlib

import pytest

from queuectl.kube.errors import NotFound
from queuectl.kube.statuses import QueueStatuses, status_path

PATH = status_path("ClusterQueue", "", "gpus")
FIRST: dict[str, object] = {"pendingWorkloads": 1}
SECOND: dict[str, object] = {"pendingWorkloads": 2}


def lost(statuses: QueueStatuses, status: object) -> bool:
    return statuses.lost("ClusterQueue", {"metadata": {"name": "gpus"}, "status": status})


def written(statuses: QueueStatuses, status: dict[str, object]) -> None:
    with statuses.writing(PATH, status):
        statuses.wrote(PATH, status, status)


def test_a_write_without_an_answer_that_arrives_after_later_ones_is_seen_each_time() -> None:
    statuses = QueueStatuses()
    with pytest.raises(TimeoutError), statuses.writing(PATH, FIRST):
        raise TimeoutError
    for _ in range(2):
        written(statuses, SECOND)
        assert not statuses.is_lost(PATH)
        assert lost(statuses, FIRST)
        assert statuses.is_lost(PATH)


def test_its_own_write_that_is_seen_before_it_is_answered_is_not_lost() -> None:
    statuses = QueueStatuses()
    written(statuses, FIRST)
    with statuses.writing(PATH, {**SECOND, "fairSharing": None}):
        assert not lost(statuses, SECOND)
        statuses.wrote(PATH, SECOND, SECOND)
    assert not statuses.is_lost(PATH)


def test_what_is_seen_while_another_status_is_written_stays_lost() -> None:
    statuses = QueueStatuses()
    written(statuses, FIRST)
    with statuses.writing(PATH, SECOND):
        assert lost(statuses, {"pendingWorkloads": 0})
        statuses.wrote(PATH, SECOND, SECOND)
    assert statuses.is_lost(PATH)


def test_a_write_without_an_answer_whose_event_came_before_its_time_out_may_stand_there() -> None:
    statuses = QueueStatuses()
    written(statuses, FIRST)
    with contextlib.suppress(TimeoutError), statuses.writing(PATH, SECOND):
        assert not lost(statuses, SECOND)
        raise TimeoutError
    # The next report may say again what was written first.
    assert statuses.is_lost(PATH)


def test_a_write_that_fails_leaves_lost_what_was() -> None:
    statuses = QueueStatuses()
    written(statuses, FIRST)
    assert lost(statuses, SECOND)
    with pytest.raises(TimeoutError), statuses.writing(PATH, FIRST):
        raise TimeoutError
    assert statuses.is_lost(PATH)


def test_a_queue_that_is_made_again_after_a_write_found_none_has_no_status() -> None:
    """Its watch may have been silent meanwhile: then its end and its next beginning are one event."""
    statuses = QueueStatuses()
    written(statuses, FIRST)
    with contextlib.suppress(NotFound), statuses.writing(PATH, SECOND):
        raise NotFound("gone")
    statuses.found_none(PATH)
    assert statuses.written(PATH) is None
    assert lost(statuses, None)
