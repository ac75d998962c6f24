"""Files of scenario documents: their content, and the places of errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from queuectl.scenarios.reader import MOST, BadScenarios, Scenario, read_policy, read_scenarios
from tests.unit.scenarios.cases import H100, cycle, holding, manifest, pending, queue, read

GOOD = """\
format: scenario/v1
kind: cycle
name: nothing waits
objects: []
workloads: []
expect: {}
"""


def wrong(text: str, name: str = "cases.yaml") -> list[str]:
    with pytest.raises(BadScenarios) as caught:
        read_scenarios(text.encode(), name)
    return caught.value.problems


def one(document: dict[str, Any]) -> Scenario:
    (scenario,) = read(document)
    return scenario


def test_a_file_holds_a_document_or_a_list_or_several_of_either() -> None:
    text = f"{GOOD}---\n- {json.dumps(cycle([], [], {}))}\n\n- {json.dumps(cycle([], [], {}))}\n"
    assert [scenario.line for scenario in read_scenarios(text.encode(), "cases.yaml")] == [1, 8, 10]


PLACES = {
    "no YAML": ("a: [1", "line 2, column 1: `,` or `]` is expected in this list (it begins in line 1)"),
    "a tab": (GOOD + "\tid: x\n", "line 7, column 1: a tab cannot indent: use spaces"),
    "a key twice": (GOOD + "name: again\n", "line 7, column 1: key 'name' is given twice"),
    "an alias": (GOOD + "tags: [&x a, *y]\n", "line 7, column 14: the alias *y has no anchor before it"),
    "nesting": (GOOD + f"config: {'[' * 40}{']' * 40}", "line 7, column 40: nested deeper than 32"),
    "no document": ("# nothing\n", "line 1, column 1: there is no document in it"),
    "no object": ("- 1\n", "line 1, column 3: a document is expected, this is a number"),
    "no format": (GOOD.replace("format: scenario/v1\n", ""), "line 1, column 1: format: is missing"),
    "another format": (
        GOOD.replace("/v1", "/v9"),
        "line 1, column 1: format: 'scenario/v9': must be",
    ),
    "an unknown kind": (GOOD.replace("cycle", "cicle"), "line 2, column 1: kind: 'cicle': must be 'cycle'"),
    "a misspelt field": (GOOD + "workload: []\n", "line 7, column 1: workload: there is no such field"),
    "a wrong type": (GOOD.replace("[]", "{}", 1), "line 4, column 1: objects: an object: must be a list"),
    "a number as text": (
        GOOD + "config:\n  cycles: '2'\n",
        "line 8, column 3: config.cycles: '2': must be a whole number",
    ),
    "no time": (
        GOOD + "config: {now: yesterday}\n",
        "line 7, column 10: config.now: 'yesterday' is not a time",
    ),
    "no duration": (
        GOOD + "config: {admissionFairSharing: {usageHalfLifeTime: 3 days}}\n",
        "line 7, column 33: config.admissionFairSharing.usageHalfLifeTime: '3 days' is not a duration",
    ),
}


@pytest.mark.parametrize(("text", "told"), PLACES.values(), ids=PLACES)
def test_errors_in_a_file_have_line_and_column(text: str, told: str) -> None:
    problems = wrong(text)
    assert any(problem.startswith(f"cases.yaml: {told}") for problem in problems), problems


def test_errors_in_json_have_line_and_column_too() -> None:
    text = json.dumps([cycle([], [pending("a/w", prio=1)])], indent="\t")
    assert wrong(text, "cases.json") == [
        "cases.json: line 29, column 5: workloads[0].prio: there is no such field"
    ]
    (problem,) = wrong('[{"a": 1},\n {"b" 2}]', "cases.json")
    assert problem == "cases.json: line 2, column 7: Expecting ':' delimiter"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a name twice": (cycle([], [pending("a/w"), pending("a/w")]), "workloads[1].name: a/w is given twice"),
    "no way into a queue": (
        cycle([], [pending("a/w", queue=None)]),
        "workloads[0]: a pending workload needs either queue or clusterQueue",
    ),
    "nothing held": (
        cycle([], [pending("a/w", state="admitted")]),
        "workloads[0].state: a workload in state admitted needs an admission",
    ),
    "held while it waits": (
        cycle([], [holding("a/w", state="pending")]),
        "workloads[0].admission: a pending workload holds no quota",
    ),
    "no podset": (cycle([], [pending("a/w", podSets=[])]), "workloads[0].podSets: at least one podset"),
    "more than all pods": (
        cycle([], [pending("a/w", podSets=[{"count": 2, "minCount": 3}])]),
        "workloads[0].podSets[0].minCount: 3 is more than the count 2",
    ),
    "no quantity": (
        cycle([], [pending("a/w", podSets=[{"requests": {"cpu": "2 cores"}}])]),
        "workloads[0].podSets[0].requests: cpu: '2 cores' is not a quantity",
    ),
    "half a device for each": (
        cycle([], [holding("a/w", podSets=[{"count": 2}], admission={
            "clusterQueue": "a",
            "podSets": {"main": {"flavors": {"gpu": "x"}, "usage": {"gpu": 3}}},
        })]),
        "workloads[0].admission.podSets.main.usage: gpu can't be split evenly over 2 pods",
    ),
    "a resource of no flavor": (
        cycle([], [holding("a/w", admission={"clusterQueue": "a", "podSets": {"main": {"flavors": {}}}})]),
        "workloads[0].admission.podSets.main.flavors: no flavor for nvidia.com/gpu",
    ),
    "an unknown workload": (
        cycle([], [pending("a/w")], {"reasons": {"a/v": "OnHold"}}),
        "expect.reasons.a/v: a/v is not a workload of this document",
    ),
    "an unknown reason": (
        cycle([], [pending("a/w")], {"reasons": {"a/w": "NoQuota"}}),
        "expect.reasons.a/w: no reason is called 'NoQuota'; there are BackingOff,",
    ),
    "an object twice": (cycle([H100], []), "objects[1]: ResourceFlavor h100 is given twice"),
    "a kind of no use": (
        cycle([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}], []),
        "objects[1].kind: Deployment of apps/v1 is none of ClusterQueue, Cohort",
    ),
    "a nameless object": (
        cycle([{"apiVersion": "v1", "kind": "Namespace"}], []),
        "objects[1].metadata.name: metadata.name is missing, or no text",
    ),
    "a misspelt field of an object": (
        cycle([manifest("ClusterQueue", "a", preemtion={})], []),
        "objects[1].spec.preemtion: there is no such field here",
    ),
    "a misspelt value of an object": (
        cycle([manifest("ClusterQueue", "a", preemption={"withinClusterQueue": "Always"})], []),
        "objects[1].spec.preemption.withinClusterQueue: 'Always': must be 'Never'",
    ),
    "a key of another form": (
        cycle([], [], {"reasons": {"a": "WaitingForQuota"}}),
        "expect.reasons.a: the key 'a' must match",
    ),
    "a misspelt field of one of Kueue's": (
        cycle([manifest("Cohort", "a", parnt="b") | {"apiVersion": "kueue.x-k8s.io/v1beta2"}], []),
        "objects[1].spec.parnt: there is no such field here",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "told"), BAD.values(), ids=BAD)
def test_inconsistent_fields_are_reported_with_their_path(document: dict[str, Any], told: str) -> None:
    (problem,) = wrong(json.dumps(document), "cases.json")
    assert problem.startswith("cases.json: line 1, column "), problem
    assert problem.partition(": ")[2].partition(": ")[2].startswith(told), problem


def test_of_a_file_with_many_errors_the_first_are_reported() -> None:
    problems = wrong("\n".join("- 1" for _ in range(100)))
    assert len(problems) == MOST + 1
    assert problems[-1] == f"cases.yaml: {100 - MOST} more like these"


def test_what_is_not_supported_yet_and_a_simulation_leave_the_document_out() -> None:
    topology = manifest("ResourceFlavor", "x", topologyName="t", nodeLabels={"a": "b"})
    assert [one(document).left_out for document in (
        cycle([topology], []),
        {**cycle([], []), "kind": "simulation", "until": 60},
    )] == [
        "ResourceFlavor/x spec.topologyName: topology-aware placement is not supported yet",
        "documents of kind simulation are not run",
    ]  # fmt: skip


def test_policy_files_apply_to_all_documents_except_for_objects_they_contain(tmp_path: Path) -> None:
    many = [H100, *queue("a", 8), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}]
    policy = read_policy(json.dumps({"kind": "List", "items": many}).encode(), "policy.json")
    own = cycle(queue("a", 4), [])
    (scenario,) = read_scenarios(json.dumps(own).encode(), "cases.json", policy)
    assert len(scenario.policy) == 3
    assert "4" in str(scenario.policy)
    assert "nominal=8" not in str(scenario.policy)


def test_errors_in_policy_files_have_their_place() -> None:
    text = b"apiVersion: queuectl.dev/v1beta1\nkind: Cohort\nmetadata: {name: a}\nspec:\n  parent: b\n"
    with pytest.raises(BadScenarios) as caught:
        read_policy(text, "policy.yaml")
    assert caught.value.problems == [
        "policy.yaml: line 5, column 3: spec.parent: there is no such field here"
    ]
