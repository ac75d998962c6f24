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
from queuectl.scenarios.repair import taken
from queuectl.scenarios.verdicts import Result, judge
from tests.unit.conformance.functions import FUNCTIONS
from tests.unit.conformance.vectors import DELIBERATE, OTHERWISE, vectors

ALL = vectors()
CORE = [
    pytest.param(document, id=f"{document['id']}: {document['name']}")
    for document in ALL
    if document["tier"] == "core"
]
PAGES = Path(queuectl.__file__).parent.parent / "docs" / "decisions"


def decided(document: dict[str, Any]) -> list[str]:
    """The differences from the vector, one per line."""
    if document["kind"] in FUNCTIONS:
        try:
            return FUNCTIONS[document["kind"]](taken(document)[0])
        except BadDocument as problem:
            return [str(problem)]
    (scenario,) = read_scenarios(json.dumps(document).encode(), f"{document['id']}.json")
    verdict = judge(scenario)
    if verdict.result is Result.SKIPPED:
        return [scenario.left_out]
    return [line for difference in verdict.differences for line in difference.lines()]


def test_the_vectors_exist() -> None:
    assert Counter(document["tier"] for document in ALL) == {"core": 223, "topology": 113, "later": 46}


@pytest.mark.parametrize("document", CORE)
def test_a_vector_is_decided_as_expected(document: dict[str, Any], record_property: Any) -> None:
    record_property("table", document["table"])
    record_property("otherwise", document["id"] in OTHERWISE)
    found = decided(document)
    if document["id"] in OTHERWISE:
        assert found, "it is decided as the vector expects: remove it from DELIBERATE"
    else:
        assert not found, "\n".join(found)


def on_nodes(document: dict[str, Any]) -> dict[str, Any]:
    """The same with nodes for each flavor that have next to nothing, and flavors that they do not limit."""
    found = copy.deepcopy(document)
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


@pytest.mark.parametrize("document", CYCLES)
def test_nodes_change_no_decision_where_they_limit_nothing(document: dict[str, Any]) -> None:
    assert decided(on_nodes(document)) == decided(document)


def test_a_vector_of_an_unsupported_feature_is_read_and_skipped_with_the_reason() -> None:
    for document in ALL:
        if document["tier"] != "core":
            (scenario,) = read_scenarios(json.dumps(document).encode(), "vectors.json")
            assert scenario.left_out == f"tier {document['tier']} is not there yet"


def test_every_page_on_a_deliberate_difference_names_its_vectors() -> None:
    assert len(DELIBERATE) <= 3
    for page, found in DELIBERATE.items():
        text = (PAGES / page).read_text()
        assert all(f"`{vector}`" in text for vector in found)
