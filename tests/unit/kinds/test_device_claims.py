"""ResourceClaims, their templates, and the claims of a pod, as raw JSON."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.devices import DeviceRequest, PodClaim, ResourceClaim, ResourceClaimTemplate
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.devices import GENERATED, held_claims, pod_claims
from queuectl.kinds.json_fields import BadField

METADATA = {"namespace": "team", "name": "x"}
EXACTLY = "spec.devices.requests[0].exactly"
FIRST = "spec.devices.requests[0].firstAvailable"


def claim(request: Any, **metadata: Any) -> object:
    spec = {"devices": {"requests": [request]}}
    return CONTEXT_KINDS["ResourceClaim"].observe({"metadata": METADATA | metadata, "spec": spec})


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"exactly": {"deviceClassName": "gpu"}}, DeviceRequest(EXACTLY, (("gpu", 1),))),
        (
            {
                "exactly": {
                    "deviceClassName": "gpu",
                    "allocationMode": "ExactCount",
                    "count": 4,
                    "selectors": [],
                }
            },
            DeviceRequest(EXACTLY, (("gpu", 4),)),
        ),
        (
            {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
            DeviceRequest(EXACTLY, problem="allocationMode All has no fixed count"),
        ),
        (
            {"exactly": {"deviceClassName": "gpu", "adminAccess": True}},
            DeviceRequest(EXACTLY, admin=True),
        ),
        (
            {"exactly": {"deviceClassName": "gpu", "adminAccess": True, "allocationMode": "All"}},
            DeviceRequest(EXACTLY, admin=True),
        ),
        (
            {"firstAvailable": [{"deviceClassName": "gpu"}, {"deviceClassName": "mig", "count": 2}]},
            DeviceRequest(FIRST, (("gpu", 1), ("mig", 2))),
        ),
        ({"name": "a"}, DeviceRequest(FIRST, problem="it asks for nothing that is known")),
    ],
    ids=["one", "several", "all", "admin", "admin of all", "alternatives", "unknown"],
)
def test_a_request_of_a_claim_is_read(request_: Any, expected: DeviceRequest) -> None:
    assert claim(request_) == ResourceClaim("team/x", (expected,))


def test_a_template_has_its_claim_one_level_deeper() -> None:
    spec = {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu"}}]}}}
    found = CONTEXT_KINDS["ResourceClaimTemplate"].observe({"metadata": METADATA, "spec": spec})
    path = "spec.spec.devices.requests[0].exactly"
    assert found == ResourceClaimTemplate("team/x", (DeviceRequest(path, (("gpu", 1),)),))


def test_a_claim_that_kubernetes_makes_for_one_pod_is_known_as_such_and_not_kept_in_the_ledger() -> None:
    found = claim({"exactly": {"deviceClassName": "gpu"}}, annotations={GENERATED: "gpu"})
    assert found == ResourceClaim("team/x", (DeviceRequest(EXACTLY, (("gpu", 1),)),), generated=True)
    assert CONTEXT_KINDS["ResourceClaim"].kept is None


def test_a_pod_holds_the_claim_that_its_status_says_was_made_from_a_template() -> None:
    claims = [
        {"name": "a", "resourceClaimTemplateName": "one-gpu"},
        {"name": "b", "resourceClaimTemplateName": "one-gpu"},
        {"name": "c", "resourceClaimName": "data"},
    ]
    made = [{"name": "b", "resourceClaimName": "p-b-x7k2"}, {"name": "a"}]
    path = "spec.resourceClaims"
    assert held_claims({"spec": {"resourceClaims": claims}, "status": {"resourceClaimStatuses": made}}) == (
        PodClaim(f"{path}[0]", "one-gpu", template=True),
        PodClaim(f"{path}[1]", "p-b-x7k2", template=False),
        PodClaim(f"{path}[2]", "data", template=False),
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"exactly": {"deviceClassName": "gpu", "count": 0}},
        {"exactly": {"deviceClassName": "gpu", "count": "2"}},
        {"exactly": {"deviceClassName": 3}},
        {"exactly": []},
        "x",
    ],
)
def test_a_malformed_claim_is_not_known(request_: Any) -> None:
    assert claim(request_) is None


def test_the_claims_of_a_pod_are_read_with_their_paths() -> None:
    claims = [
        {"name": "a", "resourceClaimTemplateName": "one-gpu"},
        {"name": "b", "resourceClaimName": "data"},
    ]
    assert pod_claims({"resourceClaims": claims}, "spec") == (
        PodClaim("spec.resourceClaims[0]", "one-gpu", template=True),
        PodClaim("spec.resourceClaims[1]", "data", template=False),
    )
    with pytest.raises(BadField, match=r"^spec\.resourceClaims\[0\]: neither"):
        pod_claims({"resourceClaims": [{"name": "a"}]}, "spec")
