"""SparkApplication and AppWrapper, whose operators are toys."""

from __future__ import annotations

from typing import Any, Final

from queuectl.kinds.jobs import QUEUE_LABEL
from tests.acceptance.operators.subjects import GPU, Json, Part, Parts, Subject
from tests.job_kinds import JOB_KINDS

_RETRIES: Final = {
    "type": "OnFailure",
    "onSubmissionFailureRetries": 100,
    "onSubmissionFailureRetryInterval": 1,
    "onFailureRetryInterval": 1,
}
"""A submission fails while another object has a driver of the same name."""


def _spark_application(parts: Parts, settings: Json) -> Json:
    return {
        "type": "Scala",
        "mode": "cluster",
        "sparkVersion": "4.0.1",
        "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar",
        "driver": _role(parts["driver"], "spark-kubernetes-driver", "1000m"),
        "executor": {
            "instances": parts["executor"].pods,
            **_role(parts["executor"], "spark-kubernetes-executor", "8000m"),
        },
        **settings,
    }


def _role(part: Part, container: str, memory: str) -> Json:
    return {
        "cores": 2,
        "memory": memory,
        "gpu": {"name": GPU, "quantity": 1},
        "annotations": part.template["metadata"]["annotations"],
        "template": {"spec": {"containers": [{"name": container}]}},
    }


def spark_application(**without: Any) -> Subject:
    """`without`: as in Subject."""
    return Subject(
        row=JOB_KINDS["SparkApplication"],
        site="all",
        sizes={"driver": 1, "executor": 2},
        make=_spark_application,
        real=False,
        templated=False,
        once={"restartPolicy": {**_RETRIES, "onFailureRetries": 0}},
        retried={"restartPolicy": {**_RETRIES, "onFailureRetries": 5}},
        expires={"timeToLiveSeconds": 1},
        without={
            "finished with pods left behind": "a driver deletes its executors before it ends",
            **without,
        },
    )


class _Wrapped(Subject):
    """An object around a Job that is called as the object is."""

    def of(self, parts: Parts, name: str, **more: Any) -> Json:
        body = super().of(parts, name, **more)
        for component in body["spec"]["components"]:
            component["template"]["metadata"]["name"] = name
        return body


def _app_wrapper(parts: Parts, settings: Json) -> Json:
    settings, part = dict(settings), parts["main"]
    spec = {"parallelism": part.pods, "completions": part.pods, "backoffLimit": 0, "template": part.template}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"labels": settings.pop("labelsOfJobs", {})},
        "spec": spec,
    }
    return {"components": [{"template": job}], **settings}


def app_wrapper(**without: Any) -> Subject:
    """`without`: as in Subject."""
    return _Wrapped(
        row=JOB_KINDS["AppWrapper"],
        site="all",
        sizes={"main": 2},
        make=_app_wrapper,
        real=False,
        templated=False,
        labelled_children={"labelsOfJobs": {QUEUE_LABEL: "main"}},
        without={
            "TTL while suspended": "its time to live deletes its components, not the object",
            "same name again": "its operator keeps the object until its pods are gone",
            **without,
        },
    )
