"""TrainJob: its pods are those of a runtime, changed by fields of the object and by its runtimePatches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.sandbox.players.kubelet import RUN_SECONDS
from tests.acceptance.operators.subjects import LONG, Json, Parts, Subject
from tests.job_kinds import JOB_KINDS

INITIALIZER: Final = "dataset-initializer"
INITIALIZER_SECONDS: Final = 16
"""How long the initializer of runtime `initialized` runs."""


def _replicated_job(name: str, step: str, run: float = LONG, **more: Any) -> Json:
    """Its pods run for `run` seconds and request half a core, unless the TrainJob says otherwise."""
    container = {"name": name, "image": "none", "resources": {"requests": {"cpu": "500m"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    metadata = {"annotations": {RUN_SECONDS: f"{run:g}"}}
    return {
        "name": name,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"backoffLimit": 0, "template": {"metadata": metadata, "spec": spec}},
        },
        **more,
    }


_NODE: Final = _replicated_job("node", "trainer")
_INITIALIZED: Final = [
    _replicated_job(INITIALIZER, INITIALIZER, run=INITIALIZER_SECONDS),
    {**_NODE, "dependsOn": [{"name": INITIALIZER, "status": "Complete"}]},
]
_RUNTIMES: Final[dict[str, tuple[Json, Json]]] = {
    "matrix": ({}, {}),
    "retried": ({"failurePolicy": {"maxRestarts": 5}}, {}),
    "labelled": ({}, {QUEUE_LABEL: "main"}),
    "initialized": ({"replicatedJobs": _INITIALIZED}, {}),
}
"""What the JobSets of each runtime have more in their spec, and their labels."""


def runtimes() -> Iterator[Json]:
    """For the administrator of a cluster to create."""
    for name, (spec, labels) in _RUNTIMES.items():
        template: Json = {"spec": {"replicatedJobs": [_NODE], **spec}}
        if labels:
            template["metadata"] = {"labels": labels}
        yield {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template},
        }


def _train_job(parts: Parts, settings: Json) -> Json:
    settings = dict(settings)
    part = parts["node"]
    (container,) = part.template["spec"]["containers"]
    pods: Json = {"spec": {"template": {"metadata": part.template["metadata"]}}}
    jobs: Json = {"replicatedJobs": [{"name": "node", "template": pods}]}
    patch = {"manager": "example.com/matrix", "trainingRuntimeSpec": {"template": {"spec": jobs}}}
    return {
        "runtimeRef": {"name": settings.pop("runtime", "matrix")},
        "trainer": {"numNodes": part.pods, "resourcesPerNode": container["resources"]},
        "runtimePatches": [patch],
        **settings,
    }


def train_job(**without: Any) -> Subject:
    """`without`: as in Subject."""
    return Subject(
        row=JOB_KINDS["TrainJob"],
        site="all",
        also=("trainer-2.3",),
        sizes={"node": 2},
        make=_train_job,
        container="node",
        templated=False,
        retried={"runtime": "retried"},
        labelled_children={"runtime": "labelled"},
        webhooks=True,
        retries_late=True,
        without={
            "TTL while suspended": "it has no time to live",
            "resourceClaims": "neither its fields nor a patch of its runtime can add claims",
            **without,
        },
    )
