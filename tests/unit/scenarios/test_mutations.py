"""A document with any error is refused with a message or is run: there are no other exceptions."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queuectl.scenarios.reader import BadScenarios, read_scenarios
from queuectl.scenarios.verdicts import CaseVerdict, judge
from tests.unit.scenarios.cases import GPU, cycle, holding, manifest, pending, queue

_POLICY = {
    "cohortName": "rack",
    "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    "fairSharing": {"weight": 2},
}
_OBJECTS = [manifest("Cohort", "rack", fairSharing={"weight": 1}), *queue("a", 8, **_POLICY), *queue("b", 8)]
_WORKLOADS = [
    holding("a/runs", 6, quotaReservedAt="2023-12-31T00:00:00Z"),
    pending("a/waits", 4, priority=5, uid="x", podSets=[{"count": 4, "minCount": 1, "requests": {GPU: 1}}]),
    pending("b/other", 1),
]
_BASES = [
    cycle(
        _OBJECTS,
        _WORKLOADS,
        {"admitted": {"b/other": {"clusterQueue": "b"}}, "reasons": {"a/waits": "WaitingForQuota"}},
        config={"fairSharing": {"enabled": True}, "cycles": 2},
    ),
    cycle(_OBJECTS, _WORKLOADS, {"holding": {}}, steps=[{"do": "cycle", "expect": {"preempted": []}}]),
]
_ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "a/b",
    "1E",
    "-1",
    "2Gi",
    "\0",
    [],
    {},
    ["x"],
    {"a": 1},
]


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, one in inner for path in _paths(one, (*here, key)))]


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@given(st.data())
def test_a_document_with_any_value_anywhere_is_refused_or_run(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(_BASES)))
    paths = [path for path in _paths(document) if path]
    path = data.draw(st.sampled_from(paths))
    holder = _at(document, path[:-1])
    match data.draw(st.sampled_from(["leave out", "something odd", "something from elsewhere"])):
        case "leave out":
            del holder[path[-1]]
        case "something odd":
            holder[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(_ODD)))
        case _:
            holder[path[-1]] = copy.deepcopy(_at(document, data.draw(st.sampled_from(paths))))
    for verdict in _judged(document):
        assert all(one.lines() for one in verdict.differences)


def _judged(document: dict[str, Any]) -> list[CaseVerdict]:
    """None if it is refused, with a place for each error."""
    problems: list[str] = []
    try:
        return [judge(one) for one in read_scenarios(json.dumps(document).encode(), "odd.json")]
    except BadScenarios as refused:
        problems = refused.problems
    assert problems
    assert all(problem.startswith("odd.json: line 1, column ") for problem in problems)
    return []
