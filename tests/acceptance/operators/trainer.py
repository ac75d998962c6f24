"""TrainJob: its pods are those of a runtime, changed by fields of the object and by its runtimePatches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from queuectl.kinds.jobs import QUEUE_LABEL
from tests.acceptance.operators.subjects import Json, Parts, Subject
from tests.job_kinds import JOB_KINDS

_RUNTIMES: Final[dict[str, tuple[Json, Json]]] = {
    "matrix": ({}, {}),
    "retried": ({"failurePolicy": {"maxRestarts": 5}}, {}),
    "labelled": ({}, {QUEUE_LABEL: "main"}),
}
"""What the JobSets of each runtime have more in their spec, and their labels."""


def runtimes() -> Iterator[Json]:
    """For the administrator of a cluster to create."""
    for name, (spec, labels) in _RUNTIMES.items():
        pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}
        job = {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }
        template: Json = {"spec": {"replicatedJobs": [{"name": "node", "template": job}], **spec}}
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
        without={
            "TTL while suspended": "it has no time to live",
            "resourceClaims": "neither its fields nor a patch of its runtime can add claims",
            **without,
        },
    )
