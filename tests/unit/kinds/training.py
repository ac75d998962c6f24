"""A made-up kind that only a configuration knows: a driver, and a list of worker groups."""

from __future__ import annotations

from typing import Any

import yaml

from queuectl.kinds.configured import KindRow
from queuectl.kinds.jobs import JobKind

ROW: dict[str, Any] = yaml.safe_load("""
apiVersion: example.com/v1
kind: DistributedTraining
plural: distributedtrainings
shortNames: [dt]
suspend: spec.runPolicy.suspend
podSets:
  - name: driver
    path: spec.driver
    counts: [replicas]
  - forEach: spec.workers
    nameFrom: name
    counts: [replicas]
finished:
  - {condition: Complete, succeeded: true, podsGone: true}
  - {path: status.phase, value: Failed, succeeded: false}
readyPods: [status.readyDrivers, status.readyWorkers]
active: [status.active]
podSelectors:
  - {label: example.com/training}
managedBy: {path: spec.managedBy, values: [example.com/controller]}
priorityClassPath: spec.priorityClassName
refuse:
  - rule: object.spec.?mode.orValue('gang') != 'gang'
    field: spec.mode
    message: only gang training queues, set it to gang
""")
KIND: JobKind = KindRow.model_validate(ROW).job_kind("DistributedTraining", lambda _, kind: kind)
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": KIND.resource},
    "spec": {
        "group": KIND.group,
        "names": {
            "kind": KIND.kind,
            "listKind": f"{KIND.kind}List",
            "plural": KIND.plural,
            "singular": "training",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": KIND.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def template(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"spec": {"containers": [container], **spec}}


def training(name: str = "train", **workers: int) -> dict[str, Any]:
    """`workers`: replicas by the name of a group."""
    groups = [{"name": group, "replicas": size, "template": template()} for group, size in workers.items()]
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": "1f1a0a1e-6b2f-4c5e-9f0e-0d6f2f6f0b11",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"queuectl.dev/queue-name": "main"},
        },
        "spec": {"runPolicy": {"suspend": True}, "driver": {"template": template()}, "workers": groups},
    }
