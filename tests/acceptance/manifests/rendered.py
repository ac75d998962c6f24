"""The manifests as `kubectl apply -k` would send them, without the output of generators."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
COMPONENTS = tuple(
    name
    for name in (
        *("mutating", "authors", "webhook", "default-queue", "postgres", "monitoring", "notifier"),
        "monitoring/prometheus-operator",
    )
    if (MANIFESTS / name).is_dir()
)
"""Applied in addition to manifests/, each separately."""
NAMESPACE = "queuectl-system"
WARNINGS = ("queuectl-misplaced-labels", "queuectl-kinds-without-a-queue")
"""Policies that refuse nothing."""

Json = dict[str, Any]
Right = tuple[str, str, str | None, str]
"""Group, resource, name of the object (None: any), verb."""


def documents(folder: Path) -> list[Json]:
    """All objects that `kubectl apply -k` of this folder would send, without the output of generators."""
    return deepcopy(list(_read(folder)))


@cache
def _read(folder: Path) -> tuple[Json, ...]:
    (kustomization,) = parsed(folder / "kustomization.yaml")
    found: list[Json] = []
    for entry in kustomization["resources"]:
        path = folder / entry
        found += _read(path) if path.is_dir() else parsed(path)
    return tuple(found)


def parsed(path: Path) -> list[Json]:
    """All objects of a file."""
    return list(yaml.load_all(path.read_text(), yaml.CSafeLoader))


def everything() -> list[Json]:
    folders = (MANIFESTS, *(MANIFESTS / name for name in COMPONENTS))
    return [item for folder in folders for item in documents(folder)]


def one(kind: str, name: str, folder: Path = MANIFESTS) -> Json:
    (found,) = [
        item for item in documents(folder) if item["kind"] == kind and item["metadata"]["name"] == name
    ]
    return found


def rights(role: Json) -> set[Right]:
    found = set()
    for rule in role["rules"]:
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [None]):
                    found |= {(group, resource, name, verb) for verb in rule["verbs"]}
    return found


def pod_specs() -> Iterator[tuple[str, Json]]:
    """Kind/name and pod template of all objects that create pods."""
    for item in everything():
        template = item
        if item["kind"] == "CronJob":
            template = item["spec"]["jobTemplate"]
        if item["kind"] in ("Deployment", "StatefulSet", "CronJob"):
            yield f"{item['kind']}/{item['metadata']['name']}", template["spec"]["template"]
