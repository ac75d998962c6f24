"""The witness of `make test-long` finds what it is there for."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION
from queuectl.sandbox.players.api import Object
from tests.acceptance.chaos.witness import Witness
from tests.acceptance.e2e.site import GPU
from tests.integration.sandbox.cluster import WallClock

_Api: Any = None
"""Nothing is asked: each test says what it sees."""


def _witness(gpus: int = 4) -> Witness:
    clock = count()
    return Witness(_Api, WallClock(), gpus, now=lambda: float(next(clock)))


def _job(attempt: int | None, *, suspended: bool, uid: str = "a", over: bool = False) -> Object:
    notes = {} if attempt is None else {ADMISSION_ANNOTATION: json.dumps({"attempt": attempt})}
    conditions = [{"type": "Complete", "status": "True"}] if over else []
    return {
        "kind": "Job",
        "metadata": {"uid": uid, "namespace": "team-a", "name": "job", "annotations": notes},
        "spec": {"suspend": suspended},
        "status": {"conditions": conditions},
    }


def _pod(uid: str, gpus: int, phase: str = "Running", **metadata: Any) -> Object:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    owners = [{"uid": "a", "kind": "Job"}]
    return {
        "kind": "Pod",
        "metadata": {"uid": uid, "namespace": "team-a", "name": uid, "ownerReferences": owners, **metadata},
        "spec": {"containers": [container]},
        "status": {"phase": phase},
    }


def _see(witness: Witness, *states: Object | None) -> None:
    before = None
    for state in states:
        witness.see_workload(before, state)
        before = state


def test_a_workload_started_by_two_attempts_is_in_order() -> None:
    witness = _witness()
    _see(
        witness,
        _job(None, suspended=True),
        _job(1, suspended=False),
        _job(1, suspended=True),
        _job(2, suspended=False),
    )
    assert witness.starts == 2
    assert witness.double_starts() == []
    assert witness.unfinished() == ["Job team-a/job"]
    witness.see_workload(_job(2, suspended=False), _job(2, suspended=False, over=True))
    assert witness.unfinished() == []


def test_a_workload_started_twice_by_one_attempt_is_found() -> None:
    witness = _witness()
    _see(witness, _job(1, suspended=True), _job(1, suspended=False), _job(1, suspended=True))
    witness.see_workload(_job(1, suspended=True), _job(1, suspended=False))
    (found,) = witness.double_starts()
    assert found.startswith("Job team-a/job: started by attempt 1 ")


def test_a_workload_that_runs_without_an_admission_is_found() -> None:
    witness = _witness()
    _see(witness, _job(None, suspended=False))
    assert len(witness.double_starts()) == 1


def test_a_workload_that_is_created_again_is_another_one() -> None:
    witness = _witness()
    _see(
        witness,
        _job(1, suspended=False),
        _job(None, suspended=True, uid="b"),
        _job(1, suspended=False, uid="b"),
    )
    assert witness.double_starts() == []
    assert witness.over == {"a"}


def test_pods_count_until_they_have_ended_or_are_gone() -> None:
    witness = _witness()
    witness.see_pod(None, _pod("one", 2))
    witness.see_pod(None, _pod("two", 2))
    witness.see_pod(_pod("one", 2), _pod("one", 2, deletionTimestamp="now"))
    assert witness.live == 4
    witness.see_pod(_pod("one", 2), None)
    witness.see_pod(_pod("two", 2), _pod("two", 2, "Succeeded"))
    assert (witness.live, witness.peak, witness.excesses) == (0, 4, [])


def test_a_pod_too_many_is_found_with_all_that_live_then() -> None:
    witness = _witness()
    _see(witness, _job(None, suspended=True), _job(1, suspended=False), _job(1, suspended=True))
    witness.see_pod(None, _pod("one", 4, deletionTimestamp="now"))
    witness.see_pod(None, _pod("two", 1, "Pending"))
    (excess,) = witness.excesses
    assert excess.gpus == witness.peak == 5
    assert excess.pods[0].startswith("one (4 GPUs, Running, asked to end); started by attempt 1 ")
    assert "suspended by attempt 1" in excess.pods[0]


def test_a_pod_with_the_name_of_one_that_is_gone_replaces_it() -> None:
    witness = _witness()
    witness.see_pod(None, _pod("one", 4))
    witness.see_pod(_pod("one", 4), _pod("another", 4))
    assert (witness.live, witness.excesses) == (4, [])
