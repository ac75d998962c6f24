from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.reasons import Code
from queuectl.kinds.devices import pod_claims
from queuectl.kinds.json_fields import BadField
from queuectl.kinds.requests import RequestProblem, not_charged, pod_requests


def _one(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any) -> Any:
    resources = {}
    if requests is not None:
        resources["requests"] = requests
    if limits is not None:
        resources["limits"] = limits
    return {"name": "c", "resources": resources, **more}


def _sidecar(requests: dict[str, Any]) -> Any:
    return _one(requests, restartPolicy="Always")


VECTORS: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("no requests at all", {"containers": [{"name": "c"}]}, {}),
    ("containers add up", {"containers": [_one({"cpu": "1"}), _one({"cpu": "500m"})]}, {"cpu": 1500}),
    ("numbers as well as texts", {"containers": [_one({"cpu": 2, "gpu": 1, "memory": 1.5})]},
     {"cpu": 2000, "gpu": 1, "memory": 2}),
    ("a zero request is none", {"containers": [_one({"cpu": "0", "gpu": "1"})]}, {"gpu": 1}),
    ("a limit without a request", {"containers": [_one(limits={"nvidia.com/gpu": "4", "cpu": "2"})]},
     {"nvidia.com/gpu": 4, "cpu": 2000}),
    ("a request wins over its limit, per resource",
     {"containers": [_one({"cpu": "1"}, {"cpu": "8", "memory": "1Ki"})]}, {"cpu": 1000, "memory": 1024}),
    ("a request of zero wins over its limit", {"containers": [_one({"cpu": "0"}, {"cpu": "8"})]}, {}),
    ("the largest init container counts", {"containers": [_one({"cpu": "1"})],
     "initContainers": [_one({"cpu": "3"}), _one({"cpu": "2"})]}, {"cpu": 3000}),
    ("each resource has its own largest", {"containers": [_one({"cpu": "1", "gpu": "4"})],
     "initContainers": [_one({"cpu": "3", "gpu": "1"})]}, {"cpu": 3000, "gpu": 4}),
    ("GPUs asked for by an init container alone", {"containers": [_one({"cpu": "1"})],
     "initContainers": [_one(limits={"gpu": "8"})]}, {"cpu": 1000, "gpu": 8}),
    ("a sidecar runs beside the containers", {"containers": [_one({"cpu": "1"})],
     "initContainers": [_sidecar({"cpu": "2"})]}, {"cpu": 3000}),
    ("an init container runs beside the sidecars before it", {"containers": [_one({"cpu": "1"})],
     "initContainers": [_sidecar({"cpu": "2"}), _one({"cpu": "5"})]}, {"cpu": 7000}),
    ("an init container does not run beside the sidecars after it", {"containers": [_one({"cpu": "1"})],
     "initContainers": [_one({"cpu": "5"}), _sidecar({"cpu": "2"})]}, {"cpu": 5000}),
    ("sidecars accumulate", {"containers": [_one({"cpu": "1"})],
     "initContainers": [_sidecar({"cpu": "2"}), _sidecar({"cpu": "3"}), _one({"cpu": "1"})]}, {"cpu": 6000}),
    ("the pod's own resources take the place of its containers'",
     {"containers": [_one({"cpu": "1", "gpu": "2"})], "resources": {"requests": {"cpu": "4"}}},
     {"cpu": 4000, "gpu": 2}),
    ("the pod's own resources may be less than those of an init container",
     {"containers": [_one({"cpu": "1"})], "initContainers": [_one({"cpu": "9"})],
      "resources": {"requests": {"cpu": "4"}}}, {"cpu": 4000}),
    ("a pod's limit counts where no container asks", {"containers": [{"name": "c"}],
     "resources": {"limits": {"cpu": "4", "memory": "1Ki"}}}, {"cpu": 4000, "memory": 1024}),
    ("what containers ask for counts under a pod's limit", {"containers": [_one({"cpu": "1"})],
     "resources": {"limits": {"cpu": "4"}}}, {"cpu": 1000}),
    ("a pod's request wins over its limit", {"containers": [_one({"cpu": "1"})],
     "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}}, {"cpu": 2000}),
    ("a pod's hugepages are its limit", {"containers": [_one({"hugepages-2Mi": "2Mi"})],
     "resources": {"limits": {"hugepages-2Mi": "4Mi"}}}, {"hugepages-2Mi": 4 * 2**20}),
    ("devices can't be asked for by the pod as a whole", {"containers": [_one({"gpu": "1"})],
     "resources": {"requests": {"gpu": "8", "cpu": "1"}}}, {"gpu": 1, "cpu": 1000}),
    ("overhead comes on top of everything", {"containers": [_one({"cpu": "1"})],
     "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "250m", "memory": "1Ki"}},
     {"cpu": 2250, "memory": 1024}),
    ("ephemeral containers do not count", {"containers": [_one({"cpu": "1"})],
     "ephemeralContainers": [_one({"cpu": "9"})]}, {"cpu": 1000}),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "expected"), [pytest.param(p, e, id=n) for n, p, e in VECTORS])
def test_a_pod_is_counted_as_the_scheduler_counts_it(pod: dict[str, Any], expected: dict[str, int]) -> None:
    assert dict(pod_requests(pod, "spec")) == expected


def test_a_negative_request_names_its_container_and_amount() -> None:
    pod = {"containers": [_one({"cpu": "1"}), _one({"nvidia.com/gpu": "-1"})]}
    with pytest.raises(RequestProblem) as caught:
        pod_requests(pod, "spec.template.spec")
    reason = caught.value.reason
    assert (reason.code, reason.resource, reason.requested) == (Code.NEGATIVE_REQUEST, "nvidia.com/gpu", -1)
    assert "spec.template.spec.containers[1].resources.requests.nvidia.com/gpu" in str(reason.detail)


@pytest.mark.parametrize(
    "amount",
    ["1e1000000", "9" * 4000, 10**5000, "9223372036854775808"],
    ids=["exp", "long", "number", "bigint"],
)
def test_a_hostile_amount_is_out_of_range_within_milliseconds(amount: object) -> None:
    begun = time.perf_counter()
    for _ in range(100):
        with pytest.raises(RequestProblem) as caught:
            pod_requests({"containers": [_one({"gpu": amount})]}, "spec")
    assert time.perf_counter() - begun < 0.5
    assert caught.value.reason.code is Code.QUANTITY_OUT_OF_RANGE
    assert "containers[0]" in str(caught.value.reason.detail)


def test_containers_that_together_exceed_the_limit_are_out_of_range() -> None:
    with pytest.raises(RequestProblem) as caught:
        pod_requests({"containers": [_one({"gpu": str(2**62)}), _one({"gpu": str(2**62)})]}, "spec")
    assert caught.value.reason.code is Code.QUANTITY_OUT_OF_RANGE


@pytest.mark.parametrize("amount", ["much", "", None, True, [], {}, "1 Gi", float("nan"), float("inf")])
def test_a_malformed_quantity_is_named_by_its_path(amount: object) -> None:
    with pytest.raises(BadField, match=r"^spec\.containers\[0\]\.resources\.requests\.gpu: "):
        pod_requests({"containers": [_one({"gpu": amount})]}, "spec")


def test_a_request_above_its_own_limit_is_named_by_its_path() -> None:
    limited = _one({"cpu": "1500m", "gpu": "1"}, {"cpu": "1", "gpu": "1"})
    with pytest.raises(
        BadField, match=r"^spec\.containers\[0\]\.resources\.requests\.cpu: 1500m is more than"
    ):
        pod_requests({"containers": [limited]}, "spec")


def test_more_resources_or_containers_than_the_limit_are_refused() -> None:
    with pytest.raises(BadField, match="65 resources"):
        pod_requests({"containers": [_one({f"r{i}": "1" for i in range(65)})]}, "spec")
    with pytest.raises(BadField, match="1001 items"):
        pod_requests({"containers": [{}] * 1001}, "spec")


@pytest.mark.parametrize(
    ("pod", "path"),
    [
        (
            {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "8"}}},
            "resources.requests.nvidia.com/gpu",
        ),
        ({"resources": {"limits": {"nvidia.com/gpu": "8"}}}, "resources.limits.nvidia.com/gpu"),
        ({"resources": {"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}}, None),
        ({"overhead": {"cpu": "1"}, "initContainers": [_sidecar({"nvidia.com/gpu": "1"})]}, None),
        ({"ephemeralContainers": [_one({"cpu": "9"})]}, None),
    ],
)
def test_a_request_that_cannot_be_charged_is_named_by_its_path(pod: dict[str, Any], path: str | None) -> None:
    found = not_charged({"containers": [_one({"nvidia.com/gpu": "1"})], **pod}, "spec.template.spec")
    assert found == (None if path is None else f"spec.template.spec.{path}")


_ASKED: Any = st.fixed_dictionaries(
    {}, optional={"requests": st.just({"gpu": "2"}), "limits": st.just({"gpu": "2"})}
)
_CONTAINERS: Any = st.lists(
    st.fixed_dictionaries({"resources": _ASKED}, optional={"restartPolicy": st.just("Always")}), max_size=2
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "containers": _CONTAINERS,
            "initContainers": _CONTAINERS,
            "resources": _ASKED,
            "resourceClaims": st.lists(st.just({"resourceClaimName": "gpu"}), max_size=1),
            "overhead": st.just({"gpu": "1"}),
        },
    )
)
def test_law_whatever_a_pod_requests_is_charged_or_named(pod: dict[str, Any]) -> None:
    requested = "gpu" in json.dumps(pod)
    charged, named = dict(pod_requests(pod, "spec")), not_charged(pod, "spec")
    assert bool(charged or named or pod_claims(pod, "spec")) is requested
    if pod.get("resources"):
        assert named is not None
