"""Rows of the configuration: what they say of an object, and what is refused in them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.configured import BadRow, parse, parse_path, shown_path
from queuectl.kinds.jobs import Status
from queuectl.kinds.workloads import observe
from tests.unit.kinds.training import KIND, ROW, training


def _with_status(**status: Any) -> dict[str, Any]:
    return {**training(small=2), "status": status}


def test_an_object_of_a_configured_kind_is_charged_by_its_podsets() -> None:
    event = observe(KIND, training(small=2, large=3))
    assert event is not None
    assert event.workload.problem is None
    charged = [(pods.name, pods.count, dict(pods.requests)) for pods in event.workload.pod_sets]
    gpu = {"nvidia.com/gpu": 1}
    assert charged == [("driver", 1, gpu), ("small", 2, gpu), ("large", 3, gpu)]
    assert event.observation.suspended


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Status()),
        ({"active": 2}, Status(quiet=False)),
        ({"readyDrivers": 1, "readyWorkers": 1}, Status(ready=False, pods_ready=2)),
        ({"readyDrivers": 1, "readyWorkers": 2}, Status(ready=True, pods_ready=3)),
        ({"readyWorkers": "2"}, Status()),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, Status(quiet=True)),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, Status()),
        ({"phase": "Failed", "active": 1}, Status(quiet=False)),
        ({"phase": "Failed"}, Status()),
        ({"phase": 7, "conditions": 8, "active": True}, Status()),
    ],
)
def test_a_status_is_read_by_signs_and_numbers(status: dict[str, Any], expected: Status) -> None:
    assert KIND.status(_with_status(**status)) == expected


def test_the_end_is_the_first_sign_that_is_shown() -> None:
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert KIND.outcome(_with_status(**complete)) is WorkloadOutcome.SUCCEEDED
    assert KIND.outcome(_with_status(phase="Failed")) is WorkloadOutcome.FAILED
    assert KIND.outcome(_with_status(phase="Running")) is None


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        ({"phase": "Failed", "reason": "OOMKilled", "message": "exit code 137"}, "OOMKilled: exit code 137"),
        ({"phase": "Failed", "message": "no disk"}, "no disk"),
        ({"phase": "Failed", "reason": 7, "message": ["x"]}, None),
        ({"phase": "Failed"}, None),
        ({"phase": "Running", "message": "pulls its image"}, None),
    ],
)
def test_why_it_failed_is_said_beside_the_sign(status: dict[str, Any], failure: str | None) -> None:
    assert KIND.failure(_with_status(**status)) == failure


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "elastic"}, "spec.mode: only gang training queues"),
        ({"managedBy": "example.com/other"}, "example.com/other"),
        ({"driver": None}, "spec.driver.template.spec: no pod spec"),
        ({"workers": [{"name": "a", "replicas": -1, "template": {}}]}, "spec.workers[0]"),
    ],
)
def test_an_object_that_cannot_be_queued_is_refused_with_its_field(change: dict[str, Any], said: str) -> None:
    obj = training(small=2)
    obj["spec"] |= change
    event = observe(KIND, obj)
    assert event is not None
    assert event.workload.problem is not None
    assert said in str(event.workload.problem)


CHANGES: list[tuple[dict[str, Any], tuple[object, ...], str]] = [
    ({"apiVersion": "v1"}, ("apiVersion",), "must match"),
    ({"suspend": "suspend"}, ("suspend",), "must be the path of a field of the spec, not suspend"),
    ({"suspend": "spec..suspend"}, ("suspend",), "must be a path such as spec.suspend"),
    ({"suspend": 7}, ("suspend",), "spec.suspend of at most 12 keys, not 7"),
    ({"podSets": []}, ("podSets",), "must not be empty"),
    ({"podSets": [{"name": "a"}]}, ("podSets", 0), "set either path, for one podset, or forEach"),
    ({"podSets": [{"path": "spec"}]}, ("podSets", 0), "a podset at path needs a name"),
    ({"podSets": [{"name": "a", "path": "status"}]}, ("podSets", 0), "must be in the spec, not at status"),
    ({"finished": [{"succeeded": True}]}, ("finished", 0), "set either condition or path"),
    ({"finished": [{"path": "status.phase", "succeeded": True}]}, ("finished", 0), "path needs the value"),
    (
        {"ready": {"path": "spec.x", "value": "y"}},
        ("ready", "path"),
        "must be the path of a field of the status",
    ),
    ({"podSelectors": [{"label": "a b"}]}, ("podSelectors", 0, "label"), "must match"),
    (
        {"podSelectors": [{"label": "a", "from": "x"}]},
        ("podSelectors", 0, "from"),
        "must be name, uid",
    ),
    (
        {"refuse": [{"rule": "object.a ==", "field": "spec.a", "message": "m"}]},
        ("refuse", 0, "rule"),
        "column 12",
    ),
    ({"colour": "red"}, ("colour",), "there is no such field"),
    ({"suspended": {"path": "status.a.b", "value": "c"}}, ("suspended",), "at the top of the status"),
]


@pytest.mark.parametrize(
    ("change", "place", "said"), CHANGES, ids=[f"{place}: {said}" for _, place, said in CHANGES]
)
def test_a_malformed_field_is_named(change: dict[str, Any], place: tuple[object, ...], said: str) -> None:
    with pytest.raises(BadRow) as refusal:
        parse({**ROW, **change})
    ((found, text),) = refusal.value.problems
    assert found == place
    assert said in text


_KEYS = st.from_regex(r"[ -&(-Z^-~]{1,9}", fullmatch=True)


@given(path=st.lists(_KEYS, min_size=1, max_size=5).map(tuple))
def test_a_path_is_shown_as_it_is_read(path: tuple[str, ...]) -> None:
    assert parse_path(shown_path(path)) == path


@given(text=st.text(max_size=30))
def test_every_text_is_a_path_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_path(shown_path(parse_path(text))) == parse_path(text)
