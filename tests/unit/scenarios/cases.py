"""Builders of short scenario documents; a test gives only the fields it is about."""

from __future__ import annotations

import json
from typing import Any

from queuectl.scenarios.reader import Scenario, read_scenarios
from queuectl.scenarios.verdicts import CaseVerdict, judge

GPU = "nvidia.com/gpu"


def queue(name: str, gpus: int, **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue with GPUs of flavor `h100`, and a LocalQueue `main` in the namespace of its name."""
    quota = {
        "coveredResources": [GPU],
        "flavors": [{"name": "h100", "resources": [{"name": GPU, "nominalQuota": gpus}]}],
    }
    return [
        manifest("ClusterQueue", name, **{"namespaceSelector": {}, "resourceGroups": [quota], **spec}),
        manifest("LocalQueue", "main", namespace=name, clusterQueue=name),
    ]


def manifest(kind: str, name: str, namespace: str | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


H100 = manifest("ResourceFlavor", "h100")


def pending(reference: str, gpus: int = 1, **fields: Any) -> dict[str, Any]:
    namespace, name = reference.split("/")
    return {
        "name": name,
        "namespace": namespace,
        "queue": "main",
        "state": "pending",
        "podSets": [{"requests": {GPU: gpus}}],
        **fields,
    }


def holding(reference: str, gpus: int = 1, **fields: Any) -> dict[str, Any]:
    admission = {"clusterQueue": reference.split("/")[0], "podSets": {"main": {"flavors": {GPU: "h100"}}}}
    return {**pending(reference, gpus), "state": "admitted", "admission": admission, **fields}


def cycle(
    objects: list[dict[str, Any]], workloads: list[dict[str, Any]], expect: Any = None, **fields: Any
) -> dict[str, Any]:
    found = {"format": "scenario/v1", "kind": "cycle", "name": "a case", "objects": [H100, *objects]}
    return found | {"workloads": workloads} | ({} if expect is None else {"expect": expect}) | fields


def read(*documents: dict[str, Any]) -> list[Scenario]:
    return read_scenarios(json.dumps(documents).encode(), "cases.json")


def judged(document: dict[str, Any]) -> CaseVerdict:
    (scenario,) = read(document)
    return judge(scenario)


def lines(document: dict[str, Any]) -> list[str]:
    return [line for one in judged(document).differences for line in one.lines()]


def findings(document: dict[str, Any]) -> list[str]:
    """What is said on the workloads that its differences are about."""
    return [line for one in judged(document).findings for line in one.lines()]
