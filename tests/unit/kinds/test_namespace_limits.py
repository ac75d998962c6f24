"""LimitRange and ResourceQuota objects as raw JSON."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.pod_limits import (
    Counts,
    HardLimit,
    LimitRange,
    LimitRangeItem,
    LimitType,
    NamespaceQuota,
    QuotaScope,
)
from queuectl.kinds.context import CONTEXT_KINDS

METADATA = {"namespace": "team", "name": "x"}


def read(kind: str, spec: Any, **fields: Any) -> object:
    return CONTEXT_KINDS[kind].observe({"metadata": METADATA, "spec": spec, **fields})


def test_a_limit_range_is_read_with_the_defaults_of_the_api_server() -> None:
    item = {
        "type": "Container",
        "min": {"cpu": "100m", "memory": "1Mi"},
        "max": {"cpu": 2, "nvidia.com/gpu": 0},
        "default": {"memory": "1Gi"},
        "maxLimitRequestRatio": {"cpu": "1.5"},
    }
    volumes = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
    assert read("LimitRange", {"limits": [item, volumes]}) == LimitRange(
        "team/x",
        (
            LimitRangeItem(
                type=LimitType.CONTAINER,
                min=(("cpu", 100), ("memory", 1 << 20)),
                max=(("cpu", 2000), ("nvidia.com/gpu", 0)),
                default=(("cpu", 2000), ("memory", 1 << 30), ("nvidia.com/gpu", 0)),
                default_request=(("cpu", 2000), ("memory", 1 << 30), ("nvidia.com/gpu", 0)),
                ratio=(("cpu", 1500),),
            ),
        ),
    )


def test_a_resource_quota_is_read_as_far_as_it_counts_pods() -> None:
    hard = {
        "cpu": "2",
        "limits.memory": "1Gi",
        "requests.nvidia.com/gpu": "4",
        "hugepages-2Mi": "2Mi",
        "pods": "10",
        "count/pods": "11",
        "count/jobs.batch": "3",
        "services": "1",
        "requests.storage": "1Ti",
        "fast.storageclass.storage.k8s.io/requests.storage": "1Ti",
        "nvidia.com/gpu": "4",
        "limits.nvidia.com/gpu": "4",
        "requests.cpu": "unreadable",
    }
    found = read(
        "ResourceQuota",
        {
            "hard": hard,
            "scopes": ["NotTerminating"],
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
            },
        },
        status={"used": {"cpu": "1500m", "pods": "3"}},
    )
    assert found == NamespaceQuota(
        "team/x",
        (
            HardLimit("count/pods", Counts.PODS, "pods", 11),
            HardLimit("cpu", Counts.REQUESTS, "cpu", 2000, 1500),
            HardLimit("hugepages-2Mi", Counts.REQUESTS, "hugepages-2Mi", 2 << 20),
            HardLimit("limits.memory", Counts.LIMITS, "memory", 1 << 30),
            HardLimit("pods", Counts.PODS, "pods", 10, 3),
            HardLimit("requests.nvidia.com/gpu", Counts.REQUESTS, "nvidia.com/gpu", 4),
        ),
        (QuotaScope("NotTerminating"), QuotaScope("PriorityClass", "In", ("high",))),
    )


@pytest.mark.parametrize("spec", [[], "x", {"limits": {}}, {"limits": ["x"]}, {"hard": []}, {"scopes": {}}])
@pytest.mark.parametrize("kind", ["LimitRange", "ResourceQuota"])
def test_an_object_that_cannot_be_read_holds_nothing_back(kind: str, spec: Any) -> None:
    found = read(kind, spec)
    assert found in (None, LimitRange("team/x"), NamespaceQuota("team/x"))


def test_objects_of_two_namespaces_have_keys_of_their_own() -> None:
    row = CONTEXT_KINDS["LimitRange"]
    assert row.name_of({"metadata": METADATA}) == "team/x"
    assert row.name_of({"metadata": {**METADATA, "namespace": "other"}}) == "other/x"
    assert CONTEXT_KINDS["Namespace"].name_of({"metadata": {"name": "team"}}) == "team"
