"""What the ledger keeps of context objects is enough to read them again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuectl.core.model.workload import ConfigKey
from queuectl.kinds.context import CONTEXT_KINDS, MAX_KEPT, is_kept, kept_context

META = {"name": "one", "namespace": "team", "resourceVersion": "7", "labels": {"env": "prod"}}
OBJECTS: dict[str, dict[str, Any]] = {
    "Namespace": {"metadata": {**META, "namespace": None}, "status": {"phase": "Active"}},
    "PriorityClass": {"metadata": {"name": "one"}, "value": 12, "globalDefault": True, "description": "x"},
    "RuntimeClass": {"metadata": {"name": "one"}, "handler": "k", "overhead": {"podFixed": {"cpu": "250m"}}},
    "LimitRange": {
        "metadata": META,
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}, "max": {"memory": "1Gi"}}]},
    },
    "ResourceQuota": {
        "metadata": META,
        "spec": {"hard": {"requests.cpu": "20"}, "scopes": ["NotTerminating"]},
    },
}
TEMPLATE = {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}}


def test_all_kinds_that_are_kept_are_tried_here() -> None:
    assert OBJECTS.keys() == {row.name for row in CONTEXT_KINDS.values() if row.kept is not None}


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_is_read_from_what_is_kept_as_from_itself(kind: str) -> None:
    event = CONTEXT_KINDS[kind].event(OBJECTS[kind])
    assert event is not None
    assert event.key is not None
    assert event.key == ConfigKey(kind, "team" if CONTEXT_KINDS[kind].namespaced else "", "one")
    assert "resourceVersion" not in event.spec
    assert kept_context(event.key, event.spec) == event


def test_what_is_used_of_a_resource_quota_is_not_kept() -> None:
    used = {**OBJECTS["ResourceQuota"], "status": {"used": {"requests.cpu": "3"}}}
    event, before = (CONTEXT_KINDS["ResourceQuota"].event(one) for one in (used, OBJECTS["ResourceQuota"]))
    assert event is not None
    assert before is not None
    assert event.value != before.value
    assert event.spec == before.spec


def test_a_huge_object_is_observed_and_not_kept() -> None:
    limits = [{"type": "Container", "comment": "x" * MAX_KEPT}]
    event = CONTEXT_KINDS["LimitRange"].event({"metadata": META, "spec": {"limits": limits}})
    assert event is not None
    assert event.key is None


@pytest.mark.parametrize("kind", ["Node", "ResourceClaim", "ResourceClaimTemplate"])
def test_nodes_and_claims_are_observed_and_not_kept(kind: str) -> None:
    event = CONTEXT_KINDS[kind].event({"metadata": META, "spec": TEMPLATE})
    assert event is not None
    assert event.key is None


def test_a_template_that_an_older_version_kept_is_read() -> None:
    key = ConfigKey("ResourceClaimTemplate", "team", "one")
    found = kept_context(key, json.dumps({"spec": TEMPLATE}))
    event = CONTEXT_KINDS[key.kind].event({"metadata": META, "spec": TEMPLATE})
    assert event is not None
    assert found.value == event.value
    assert is_kept(key.kind)


@pytest.mark.parametrize("spec", ["[]", "nonsense", '{"metadata":[]}'])
def test_a_spec_that_cannot_be_read_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"spec|value|metadata"):
        kept_context(ConfigKey("Namespace", "", "one"), spec)
