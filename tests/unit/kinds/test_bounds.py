"""What a tenant writes into an object has a bound: beyond it the object is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuectl.core.model.resources import MAX_QUANTITY_LENGTH
from queuectl.kinds.json_fields import MAX_COUNT
from queuectl.kinds.podsets import MAX_ENTRIES
from queuectl.kinds.requests import MAX_CONTAINERS, MAX_RESOURCES
from queuectl.kinds.workloads import MAX_ANNOTATIONS, MAX_LABELS, MAX_NAME, observe
from tests.job_kinds import JOB_KINDS

Json = dict[str, Any]


def template(containers: int = 1, resources: int = 1, amount: str = "1", **spec: Any) -> Json:
    requests = {f"x/{number}": amount for number in range(resources)}
    each = [{"name": f"c{number}", "resources": {"requests": requests}} for number in range(containers)]
    return {"spec": {"containers": each, **spec}}


def job(pod: Json, **spec: Any) -> Json:
    return made("batch/v1", "Job", {"suspend": True, "template": pod, **spec})


def job_set(groups: int) -> Json:
    one = {"spec": {"parallelism": 1, "completions": 1, "template": template()}}
    each = [{"name": f"g{number}", "template": one} for number in range(groups)]
    return made("jobset.x-k8s.io/v1alpha2", "JobSet", {"suspend": True, "replicatedJobs": each})


def made(version: str, kind: str, spec: Json) -> Json:
    labels = {"queuectl.dev/queue-name": "main"}
    metadata = {
        "name": "x",
        "namespace": "ns",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def annotated(size: int) -> Json:
    found = job(template())
    found["metadata"]["annotations"] = {"a": "x" * (size - 1)}
    return found


def selecting(number: int) -> Json:
    return job(template(nodeSelector={f"k{one}": "v" for one in range(number)}))


def tolerating(number: int) -> Json:
    return job(template(tolerations=[{"key": f"k{one}"} for one in range(number)]))


BOUNDS: dict[str, tuple[Callable[[int], Json], int]] = {
    "podsets": (job_set, MAX_ENTRIES),
    "containers": (lambda number: job(template(containers=number)), MAX_CONTAINERS),
    "resources": (lambda number: job(template(resources=number)), MAX_RESOURCES),
    "pods": (lambda number: job(template(), parallelism=number, completions=number), MAX_COUNT),
    "bytes of annotations": (annotated, MAX_ANNOTATIONS),
    "node selectors": (selecting, MAX_ENTRIES),
    "tolerations": (tolerating, MAX_ENTRIES),
    "characters of a quantity": (
        lambda number: job(template(amount="1".rjust(number, "0"))),
        MAX_QUANTITY_LENGTH,
    ),
}


@pytest.mark.parametrize("what", BOUNDS)
def test_beyond_its_bound_an_object_is_refused_and_at_it_it_is_not(what: str) -> None:
    make, most = BOUNDS[what]
    for number in (most, most + 1, 2 * most):
        found = make(number)
        kind = JOB_KINDS.of(found["apiVersion"], found["kind"])
        assert kind is not None
        seen = observe(kind, found)
        assert seen is not None
        assert (seen.workload.problem is None) is (number <= most), (number, seen.workload.problem)


@pytest.mark.parametrize("length", [MAX_NAME, MAX_NAME + 1, 100_000])
def test_no_more_text_of_an_object_is_kept_than_its_bound(length: int) -> None:
    found = job(template())
    labels = {f"l{number:06}": "x" * 63 for number in range(length)}
    found["metadata"]["labels"] = {**labels, "queuectl.dev/queue-name": "q" * length}
    found["metadata"]["annotations"] = {"queuectl.dev/reserved-submitter": "s" * length}
    kind = JOB_KINDS.of("batch/v1", "Job")
    assert kind is not None
    seen = observe(kind, found)
    if length > MAX_NAME and seen is None:
        return  # a name that no LocalQueue can have
    assert seen is not None
    workload = seen.workload
    assert len(workload.labels) == MAX_LABELS
    assert max(map(len, (workload.queue, workload.submitter or ""))) <= MAX_NAME
