"""Capacity and demand as JSON of the ledger, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queuectl.core.model.capacity import (
    AwaitedLimit,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    PodDemand,
    QuotaWarning,
)
from queuectl.core.model.policy import CapacityMode

Json = dict[str, Any]


def capacity_to_json(value: FlavorCapacity) -> Json:
    resources = [_resource_to_json(one) for one in value.resources]
    return {"nodes": value.nodes, "resources": resources, "warnings": value.warnings}


def capacity_from_json(flavor: str, value: Json) -> FlavorCapacity:
    resources = tuple(_resource_from_json(one) for one in value["resources"])
    warnings = tuple(QuotaWarning(*one) for one in value["warnings"])
    return FlavorCapacity(flavor=flavor, nodes=_pairs(value["nodes"]), resources=resources, warnings=warnings)


def _resource_to_json(value: FlavorResourceCapacity) -> Json:
    return {
        "resource": value.resource,
        "mode": value.mode.value,
        "allocatable": value.allocatable,
        "used": value.used,
        "unmanaged": value.unmanaged,
        "expected": value.expected,
        "free": value.free,
        "shapes": value.shapes,
    }


def _resource_from_json(value: Json) -> FlavorResourceCapacity:
    return FlavorResourceCapacity(
        resource=value["resource"],
        mode=CapacityMode(value["mode"]),
        allocatable=_pairs(value["allocatable"]),
        used=value["used"],
        unmanaged=_pairs(value["unmanaged"]),
        expected=value["expected"],
        free=value["free"],
        shapes=tuple(FreeNodes(*shape) for shape in value["shapes"]),
    )


def demand_to_json(value: Iterable[PodDemand]) -> list[Json]:
    return [
        {
            "flavor": one.flavor,
            "awaits": one.awaits.value,
            "workloads": one.workloads,
            "pods": one.pods,
            "requests": one.requests,
            "nodeSelector": one.node_selector,
        }
        for one in value
    ]


def demand_from_json(value: Iterable[Json]) -> tuple[PodDemand, ...]:
    return tuple(
        PodDemand(
            flavor=one["flavor"],
            awaits=AwaitedLimit(one["awaits"]),
            workloads=one["workloads"],
            pods=one["pods"],
            requests=_pairs(one["requests"]),
            node_selector=_pairs(one["nodeSelector"]),
        )
        for one in value
    )


def _pairs(value: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(pair) for pair in value)
