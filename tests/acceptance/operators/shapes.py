"""Pods and objects of many shapes, for the comparison of charges with real pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tests.acceptance.operators.kinds import BY_NAME, SUBJECTS
from tests.acceptance.operators.subjects import GPU, RUNTIME_CLASS, Json, Part, Subject

NIC: Final = "example.com/nic"


class Shape(NamedTuple):
    """An object whose charge is compared with its pods."""

    name: str
    subject: Subject
    parts: Mapping[str, Part]
    pods: int
    """How many its operator makes."""
    settings: Mapping[str, Any] = MappingProxyType({})


def _container(requests: Json | None = None, limits: Json | None = None) -> Json:
    found = {"requests": requests, "limits": limits}
    return {"image": "none", "resources": {key: value for key, value in found.items() if value}}


def _init(requests: Json, *, sidecar: bool = False) -> Json:
    return {**_container(requests), **({"restartPolicy": "Always"} if sidecar else {})}


_SMALL: Final = {"cpu": "100m", "memory": "64Mi"}
_LARGE: Final = {"cpu": "3", "memory": "2Gi"}
PODS: Final[dict[str, Json]] = {
    "requests": {"containers": [_container({"cpu": "1500m", "memory": "1Gi"})]},
    "limits without requests": {"containers": [_container(limits={"cpu": "2", "memory": "1G", GPU: "2"})]},
    "requests below limits": {"containers": [_container(_SMALL, _LARGE)]},
    "a request for one of two limits": {"containers": [_container({"cpu": "10m"}, _SMALL)]},
    "several containers": {
        "containers": [_container(_SMALL), _container(_LARGE, {GPU: "1"}), _container(_SMALL)]
    },
    "a container that requests nothing": {"containers": [_container(_SMALL), _container()]},
    "an init container that is larger": {
        "containers": [_container(_SMALL)],
        "initContainers": [_init(_LARGE)],
    },
    "an init container that is smaller": {
        "containers": [_container(_LARGE)],
        "initContainers": [_init(_SMALL)],
    },
    "a sidecar": {"containers": [_container(_LARGE)], "initContainers": [_init(_SMALL, sidecar=True)]},
    "a sidecar before an init container": {
        "containers": [_container(_SMALL)],
        "initContainers": [_init(_SMALL, sidecar=True), _init(_LARGE), _init(_SMALL, sidecar=True)],
    },
    "fractions and suffixes": {"containers": [_container({"cpu": "0.1", "memory": "128974848"})]},
    "devices of two kinds": {"containers": [_container(_SMALL, {GPU: "1", NIC: "3"})]},
    "overhead of a RuntimeClass": {"containers": [_container(_SMALL)], "runtimeClassName": RUNTIME_CLASS},
    "requests of the pod itself": {
        "containers": [_container(_SMALL), _container()],
        "resources": {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}},
    },
}


def _part(subject: Subject, pods: int, shape: str) -> Part:
    template = subject.template()
    spec = {**template["spec"], **PODS[shape]}
    for field in ("containers", "initContainers"):
        spec[field] = [{"name": f"{field[0]}{n}", **one} for n, one in enumerate(spec.get(field, ()))]
    spec["containers"][0]["name"] = subject.container
    return Part(pods, {**template, "spec": spec})


def _paired(subject: Subject) -> Iterator[Shape]:
    """Leader and workers of different shapes, each shape in one of these."""
    names = list(PODS)
    for number, (leader, worker) in enumerate(islice(pairwise(names), 0, None, 2)):
        roles = list(subject.sizes)
        sizes = {
            role: subject.sizes[role] + (number if place == 1 else 0) for place, role in enumerate(roles)
        }
        parts = {
            role: _part(subject, sizes[role], worker if place else leader) for place, role in enumerate(roles)
        }
        yield Shape(f"{leader} - {worker}", subject, parts, sum(sizes.values()))


def _of(
    kind: str, name: str, sizes: Mapping[str, int], pods: int, shape: str = "a sidecar", **settings: Any
) -> Shape:
    subject = BY_NAME[kind]
    return Shape(name, subject, {role: _part(subject, n, shape) for role, n in sizes.items()}, pods, settings)


SHAPES: Final[tuple[Shape, ...]] = (
    *(shape for subject in SUBJECTS if subject.templated for shape in _paired(subject)),
    _of("Job", "Indexed", {"main": 3}, 3, completionMode="Indexed", completions=5),
    _of("Job", "more parallelism than completions", {"main": 4}, 2, completions=2),
    _of("Job", "no completions", {"main": 3}, 3, completions=None),
    _of("PyTorchJob", "workers alone", {"Worker": 3}, 3),
    _of("PyTorchJob", "a master alone", {"Master": 1}, 1),
    _of("TFJob", "every replica type", {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}, 6),
    _of("TFJob", "a master", {"Master": 1, "PS": 1, "Worker": 1}, 3),
    _of("PaddleJob", "workers alone", {"Worker": 2}, 2),
    _of("JobSet", "several Jobs of each", {"driver": 1, "workers": 2}, 6, replicas=2),
    _of("TrainJob", "two nodes", {"node": 2}, 2, "requests"),
    _of("TrainJob", "limits without requests", {"node": 3}, 3, "limits without requests"),
    _of("TrainJob", "one node with devices", {"node": 1}, 1, "devices of two kinds"),
    _of("JobSet", "one group", {"workers": 5}, 5),
)
