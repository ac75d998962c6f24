"""Another number or size of the pods of an object that waits (docs/answers.md, A24 and A25)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import PodSet
from queuectl.kinds.pod_sizes import CannotFit, Fit, Size, Smaller, asked, fitted, largest, sized
from tests.job_kinds import JOB_KINDS

GPU = "nvidia.com/gpu"
NIC = "example.com/nic"
Json = dict[str, Any]


def pods(name: str, count: int, **requests: int) -> PodSet:
    named = {GPU: requests.pop("gpus", 0), NIC: requests.pop("nics", 0), **requests}
    return PodSet(name=name, count=count, requests=amounts({k: v for k, v in named.items() if v}))


ONE = (pods("main", 1, gpus=8),)
MANY = (pods("main", 4, gpus=2),)
ROLES_OF_TORCH = (pods("master", 1, gpus=1), pods("worker", 7, gpus=1))
ROLES = (pods("head", 1, cpu=1000), pods("workers", 4, gpus=2))


@pytest.mark.parametrize(
    ("pod_sets", "devices", "number", "expected"),
    [
        (ONE, 4, None, Size("main", 1, GPU, 4)),
        (ONE, 16, None, Size("main", 1, GPU, 16)),
        (ONE, None, 2, Size("main", 2)),
        (ONE, 8, 4, Size("main", 4, GPU, 2)),
        (MANY, 4, None, Size("main", 2)),
        (MANY, 4, 4, Size("main", 4, GPU, 1)),
        (MANY, None, 3, Size("main", 3)),
        (ROLES, 2, None, Size("workers", 1)),
    ],
)
def test_gpus_are_those_of_all_pods_of_the_podset_that_has_some(
    pod_sets: tuple[PodSet, ...], devices: int | None, number: int | None, expected: Size
) -> None:
    assert sized(pod_sets, devices, number) == expected


@pytest.mark.parametrize(
    ("pod_sets", "devices", "number", "name", "told"),
    [
        (MANY, 5, None, None, f"each of its 4 pods requests 2 {GPU}, and 5 is no multiple of that"),
        (MANY, 5, 2, None, f"5 {GPU} cannot be divided equally among 2 pods"),
        (ROLES, None, 2, None, "it has the podsets head, workers: name one of them"),
        (ROLES, None, 2, "tail", "it has no podset 'tail', only head, workers"),
        (ROLES, 2, None, "head", "the pods of podset head request no devices"),
        ((pods("a", 1, cpu=1),), 2, None, None, "the pods of podset a request no devices"),
        ((pods("a", 1, gpus=1, nics=1),), 2, None, None, f"request {NIC} and {GPU}: change their number"),
    ],
)
def test_a_size_that_is_not_clear_is_refused(
    pod_sets: tuple[PodSet, ...], devices: int | None, number: int | None, name: str | None, told: str
) -> None:
    with pytest.raises(CannotFit, match=told):
        sized(pod_sets, devices, number, name)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([Smaller("workers", None, 4, 2), Smaller("workers", GPU, 2, 1)], Size("workers", 2)),
        ([Smaller("workers", None, 4, 1), Smaller("workers", GPU, 2, 1)], Size("workers", 4, GPU, 1)),
        ([Smaller("workers", None, 4, 3), Smaller("workers", GPU, 2, 1)], Size("workers", 3)),
        ([Smaller("head", "cpu", 1000, 1), Smaller("workers", None, 4, 1)], Size("workers", 1)),
    ],
)
def test_of_sizes_with_which_it_starts_the_one_with_most_devices_is_taken(
    found: list[Smaller], expected: Size
) -> None:
    assert largest(ROLES, found) == expected


@pytest.mark.parametrize(
    "one", [Smaller("workers", None, 5, 2), Smaller("tail", None, 4, 2), Smaller("workers", GPU, 4, 2)]
)
def test_a_size_that_was_tried_on_another_one_is_refused(one: Smaller) -> None:
    with pytest.raises(CannotFit, match="another size than the one that was tried"):
        largest(ROLES, [one])


TWO = (pods("main", 4, gpus=2, nics=1),)
PLAIN = (pods("head", 1, cpu=4000), pods("workers", 4, cpu=1000))
RAY_PODS = (pods("head", 1, cpu=1000), pods("big", 8, gpus=8))


@pytest.mark.parametrize(
    ("kind", "pod_sets", "tried", "expected"),
    [
        ("Job", MANY, Smaller("main", None, 4, 3), Fit(6, None, None)),
        ("Job", MANY, Smaller("main", GPU, 2, 1), Fit(4, 4, None)),
        ("Job", ONE, Smaller("main", GPU, 8, 3), Fit(3, None, None)),
        ("Job", TWO, Smaller("main", None, 4, 3), Fit(None, 3, None)),
        ("Job", (pods("main", 4, cpu=1),), Smaller("main", None, 4, 3), Fit(None, 3, None)),
        ("PyTorchJob", ROLES_OF_TORCH, Smaller("worker", None, 7, 3), Fit(3, None, "worker")),
        ("RayJob", RAY_PODS, Smaller("big", None, 8, 4), Fit(32, None, None)),
    ],
)
def test_a_change_that_was_tried_is_asked_for_with_the_fewest_words(
    kind: str, pod_sets: tuple[PodSet, ...], tried: Smaller, expected: Fit
) -> None:
    assert asked(JOB_KINDS[kind], pod_sets, tried) == expected


@pytest.mark.parametrize(
    ("kind", "pod_sets", "tried"),
    [
        ("Job", TWO, Smaller("main", GPU, 2, 1)),  # it has two kinds of devices
        ("Job", (pods("main", 4, cpu=1000),), Smaller("main", "cpu", 1000, 500)),
        ("Job", MANY, Smaller("main", None, 5, 3)),  # it was tried with another size
        ("JobSet", MANY, Smaller("main", None, 4, 3)),  # its controller keeps what a JobSet requests
        ("RayJob", (pods("head", 2, gpus=1),), Smaller("head", None, 2, 1)),  # it always has one head
        ("RayJob", PLAIN, Smaller("workers", "cpu", 1000, 1)),
        ("Job", ROLES, Smaller("workers", None, 4, 3)),  # a Job has no such podset
        ("Job", (), Smaller("main", None, 4, 3)),
    ],
)
def test_a_change_that_fit_cannot_make_is_not_offered(
    kind: str, pod_sets: tuple[PodSet, ...], tried: Smaller
) -> None:
    assert asked(JOB_KINDS[kind], pod_sets, tried) is None


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=3),
    st.data(),
)
def test_what_is_asked_for_is_the_size_that_was_tried(
    shapes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    pod_sets = tuple(pods(f"g{n}", count, gpus=g, nics=nics) for n, (count, g, nics) in enumerate(shapes))
    own = data.draw(st.sampled_from(pod_sets))
    resource, before = data.draw(st.sampled_from([(None, own.count), *own.requests]))
    tried = Smaller(own.name, resource, before, data.draw(st.integers(1, before)))
    way = asked(JOB_KINDS["RayCluster"], pod_sets, tried)
    assert way is None or sized(pod_sets, way.gpus, way.pods, way.pod_set) == largest(pod_sets, [tried])


def template(*containers: Json, init: tuple[Json, ...] = ()) -> Json:
    return {"spec": {"containers": list(containers), **({"initContainers": list(init)} if init else {})}}


def container(name: str, gpus: int = 0, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": {GPU: str(gpus)} if gpus else {}, **more}}


def obj(spec: Json, **metadata: Any) -> Json:
    labels = {"queuectl.dev/queue-name": "main"}
    return {
        "metadata": {"name": "o", "namespace": "ns", "uid": "u", "labels": labels, **metadata},
        "spec": spec,
    }


def job(*containers: Json, init: tuple[Json, ...] = (), annotations: Json | None = None, **spec: Any) -> Json:
    metadata = {"annotations": annotations} if annotations else {}
    found = template(*(containers or (container("main", 2),)), init=init)
    return obj({"suspend": True, "template": found, **spec}, **metadata)


WORKERS = {
    "pytorchReplicaSpecs": {
        name: {"replicas": n, "template": template(container("pytorch", 1))}
        for name, n in (("Master", 1), ("Worker", 7))
    }
}
GROUP = {"groupName": "big", "replicas": 4, "numOfHosts": 2, "template": template(container("ray", 8))}
RAY = {
    "suspend": True,
    "shutdownAfterJobFinishes": True,
    "rayClusterSpec": {
        "headGroupSpec": {"template": template(container("head"))},
        "workerGroupSpecs": [GROUP],
    },
}
ELASTIC: Json = {
    "kueue.x-k8s.io/job-min-parallelism": "1",
    "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
}
INDEXED: Json = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}


@pytest.mark.parametrize(
    ("kind", "found", "size", "completions", "changes"),
    [
        ("Job", job(parallelism=4), Size("main", 2), False, {"spec.parallelism": (4, 2)}),
        ("Job", job(**INDEXED), Size("main", 2), False, {"spec.parallelism": (4, 2)}),
        (
            "Job",
            job(**INDEXED),
            Size("main", 2),
            True,
            {"spec.parallelism": (4, 2), "spec.completions": (4, 2)},
        ),
        (
            "Job",
            job(**INDEXED, annotations=ELASTIC),
            Size("main", 2),
            False,
            {"spec.parallelism": (4, 2), "spec.completions": (4, 2)},
        ),
        (
            "Job",
            job(container("side"), container("main", 2, requests={"cpu": "1", GPU: 2})),
            Size("main", 1, GPU, 1),
            False,
            {
                f"spec.template.spec.containers[1].resources.requests[{GPU}]": (2, "1"),
                f"spec.template.spec.containers[1].resources.limits[{GPU}]": ("2", "1"),
            },
        ),
        (
            "PyTorchJob",
            obj(WORKERS),
            Size("worker", 3),
            False,
            {"spec.pytorchReplicaSpecs.Worker.replicas": (7, 3)},
        ),
        (
            "RayJob",
            obj(RAY),
            Size("big", 2),
            False,
            {"spec.rayClusterSpec.workerGroupSpecs[0].replicas": (4, 1)},
        ),
        (
            "RayJob",
            obj(RAY),
            Size("big", 8, GPU, 4),
            False,
            {
                "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.containers[0]"
                f".resources.limits[{GPU}]": ("8", "4")
            },
        ),
    ],
)
def test_the_fields_that_make_a_podset_so_large_are_changed_and_no_others(
    kind: str, found: Json, size: Size, completions: bool, changes: Json
) -> None:
    done = fitted(JOB_KINDS[kind], found, lambda _: size, completions=completions)
    assert {one.name: (one.before, one.after) for one in done.fields} == changes
    assert done.after.count == size.pods


@pytest.mark.parametrize(
    ("kind", "found", "size", "told"),
    [
        ("Job", job(parallelism=2, completions=4), Size("main", 8), "would have 4 pods, not 8"),
        ("Job", job(container("a", 1), container("b", 1)), Size("main", 1, GPU, 1), "and here do a, b"),
        (
            "Job",
            job(container("main", 4), init=(container("load", 2),)),
            Size("main", 1, GPU, 1),
            f"each pod would request 2 {GPU}, not 1: an init container does",
        ),
        (
            "Job",
            job(parallelism=4, annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}),
            Size("main", 2),
            "'2' is not a whole number of fewer pods",
        ),
        ("RayJob", obj(RAY), Size("big", 3), "the number of pods of podset big is a multiple of 2"),
        ("RayJob", obj(RAY), Size("default-submitter", 2), "has no pod template of its own in the RayJob"),
        (
            "JobSet",
            obj(
                {
                    "replicatedJobs": [
                        {"name": "w", "template": {"spec": {"template": template(container("c"))}}}
                    ]
                }
            ),
            Size("w", 2),
            "pods of a JobSet that waits cannot be changed: the webhook of JobSet refuses",
        ),
        ("Job", obj({}), Size("main", 1), "no pod spec"),
    ],
)
def test_what_an_object_cannot_become_is_refused(kind: str, found: Json, size: Size, told: str) -> None:
    with pytest.raises(CannotFit, match=told):
        fitted(JOB_KINDS[kind], found, lambda _: size)


def test_completions_are_those_of_a_job() -> None:
    with pytest.raises(CannotFit, match="a PyTorchJob has no completions"):
        fitted(JOB_KINDS["PyTorchJob"], obj(WORKERS), lambda _: Size("worker", 3), completions=True)


@given(st.integers(1, 20), st.integers(1, 16), st.integers(1, 64), st.one_of(st.none(), st.integers(1, 20)))
def test_whatever_is_accepted_is_read_back_as_asked_for(
    parallel: int, each: int, devices: int, number: int | None
) -> None:
    found = job(container("main", each), parallelism=parallel)
    try:
        done = fitted(JOB_KINDS["Job"], found, lambda own: sized(own, devices, number))
    except CannotFit:
        assert devices % (number or each)
        return
    after = done.after
    assert after.count * dict(after.requests)[GPU] == devices
    assert number is None or after.count == number
    assert {key: value for key, value in done.patch.items() if key != "spec"} == {}
