"""Each decision vector of tier core, decided by queuectl."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import queuectl
from queuectl.scenarios.manifests import BadDocument
from queuectl.scenarios.reader import read_scenarios
from queuectl.scenarios.verdicts import CaseResult, judge
from tests.unit.conformance.functions import FUNCTIONS
from tests.unit.conformance.repair import repaired
from tests.unit.conformance.vectors import DELIBERATE, OTHERWISE, document, means_the_same, vectors
from tests.unit.conformance.victims import preemption

ALL = vectors()
CORE = [
    pytest.param(vector, id=f"{vector['id']}: {vector['name']}") for vector in ALL if vector["tier"] == "core"
]
PAGES = Path(queuectl.__file__).parent.parent / "docs" / "decisions"


def decided(vector: dict[str, Any]) -> list[str]:
    """The differences from the vector, one per line."""
    vector = repaired(vector)
    if vector["kind"] in FUNCTIONS:
        try:
            return FUNCTIONS[vector["kind"]](vector)
        except BadDocument as problem:
            return [str(problem)]
    if vector["kind"] == "preemption":
        return [line for one in preemption(vector) for line in one.lines()]
    if vector["config"].get("localQueueDeletedBeforeRun"):
        return ["no workload is admitted through a LocalQueue that is gone"]
    (scenario,) = read_scenarios(json.dumps(document(vector)).encode(), f"{vector['id']}.json")
    verdict = judge(scenario)
    if verdict.result is CaseResult.SKIPPED:
        return [scenario.left_out]
    differences = [one for one in verdict.differences if not means_the_same(one)]
    return [line for difference in differences for line in difference.lines()]


def test_the_vectors_exist() -> None:
    assert Counter(vector["tier"] for vector in ALL) == {"core": 223, "topology": 113, "later": 46}


@pytest.mark.parametrize("vector", CORE)
def test_a_vector_is_decided_as_expected(vector: dict[str, Any], record_property: Any) -> None:
    record_property("table", vector["table"])
    record_property("otherwise", vector["id"] in OTHERWISE)
    found = decided(vector)
    if vector["id"] in OTHERWISE:
        assert found, "it is decided as the vector expects: remove it from DELIBERATE"
    else:
        assert not found, "\n".join(found)


def on_nodes(vector: dict[str, Any]) -> dict[str, Any]:
    """The same with nodes for each flavor that have next to nothing, and flavors that they do not limit."""
    found = copy.deepcopy(vector)
    flavors = [one for one in found["objects"] if one["kind"] == "ResourceFlavor"]
    names = {quota["name"] for one in found["objects"] for quota in _quotas(one)}
    found["nodes"] = [
        {
            "name": f"n{number}",
            "labels": one["spec"].get("nodeLabels", {}),
            "allocatable": dict.fromkeys(sorted(names), 1),
        }
        for number, one in enumerate(flavors)
        if one.setdefault("spec", {}) is not None
    ]
    for one in flavors:
        one["spec"]["nodes"] = {"mode": "Static"}
    return found


def _quotas(one: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in one.get("spec", {}).get("resourceGroups", ()):
        for flavor in group["flavors"]:
            yield from flavor["resources"]


CYCLES = [one for one in CORE if one.values[0] and one.values[0]["kind"] == "cycle"]  # type: ignore[index]


@pytest.mark.parametrize("vector", CYCLES)
def test_nodes_change_no_decision_where_they_limit_nothing(vector: dict[str, Any]) -> None:
    assert decided(on_nodes(vector)) == decided(vector)


def test_every_page_on_a_deliberate_difference_names_its_vectors() -> None:
    assert len(DELIBERATE) <= 3
    for page, found in DELIBERATE.items():
        text = (PAGES / page).read_text()
        assert all(f"`{vector}`" in text for vector in found)
