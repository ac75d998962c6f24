"""Podsets as the ledger stores them: once for all workloads that are alike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.policy import Requirement, Toleration
from queuectl.core.model.resources import Container, PodResources, Role
from queuectl.core.model.workload import PodSet
from queuectl.ledger.shared_rows import id_of, shape_from_json, shape_of
from tests.integration.ledger.plans import workload

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
AMOUNTS = st.lists(st.tuples(TEXTS, st.integers(0, 2**63 - 1)), max_size=2).map(tuple)
REQUIREMENTS = st.builds(Requirement, TEXTS, TEXTS, st.lists(TEXTS, max_size=2).map(tuple))
CONTAINERS = st.builds(Container, TEXTS, AMOUNTS, AMOUNTS, st.sampled_from(list(Role)))
PODS = st.builds(
    PodResources,
    containers=st.lists(CONTAINERS, max_size=2).map(tuple),
    requests=AMOUNTS,
    limits=AMOUNTS,
    overhead=AMOUNTS,
    deadline=st.booleans(),
    priority_class=st.none() | TEXTS,
)
POD_SETS = st.builds(
    PodSet,
    name=TEXTS,
    count=st.integers(0, 2**31),
    min_count=st.none() | st.integers(1, 9),
    requests=AMOUNTS,
    not_charged=st.none() | TEXTS,
    node_selector=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
    tolerations=st.lists(st.builds(Toleration), max_size=2).map(tuple),
    affinity=st.lists(st.lists(REQUIREMENTS, max_size=2).map(tuple), max_size=2).map(tuple),
    topology=st.booleans(),
    pod=st.none() | PODS,
)
(MAIN,) = workload("any").pod_sets


@pytest.mark.acceptance
@given(st.lists(POD_SETS, max_size=3).map(tuple))
def test_podsets_are_read_as_they_were_observed(pod_sets: tuple[PodSet, ...]) -> None:
    shape = shape_of(pod_sets)
    value: Any = json.loads(shape.json)
    assert shape.id == id_of(value)
    assert shape_from_json(value) == pod_sets


def test_what_postgres_cannot_store_is_left_out() -> None:
    (stored,) = shape_from_json(json.loads(shape_of((replace(MAIN, not_charged="a\0b\ud800"),)).json))
    assert stored == replace(MAIN, not_charged="ab?")


def test_each_field_makes_another_shape_and_defaults_take_no_space() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "other"},
        {"count": 3},
        {"min_count": 1},
        {"requests": (("cpu", 2**62),)},
        {"not_charged": "spec.x"},
        {"node_selector": (("a", "b"),)},
        {"priority_class": "high"},
        {"runtime_class": "gvisor"},
        {"group": "g"},
        {"topology": True},
        {"pod": PodResources(containers=(Container("main", ()),))},
    ]
    shapes = {shape_of((replace(MAIN, **one),)) for one in fields} | {shape_of((MAIN,)), shape_of(())}
    assert len({shape.id for shape in shapes}) == len(fields) + 2
    assert json.loads(shape_of((MAIN,)).json) == [
        {"name": "main", "count": 2, "requests": [["cpu", 1500], ["nvidia.com/gpu", 4]]}
    ]
