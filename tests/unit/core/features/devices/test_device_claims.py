"""Device claims are charged as the resources that their DeviceClasses are mapped to (H10, H11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit, Evict, Keep
from queuectl.core.engine import Engine
from queuectl.core.model.devices import (
    MAPPINGS,
    DeviceRequest,
    PodClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from queuectl.core.model.events import ContextGone, ContextObserved, EffectSettled, Listed, Result
from queuectl.core.model.policy import Namespace, Policy, RuntimeClass, SchedulingConfiguration
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import CPU, PODS, ResourceForms
from queuectl.core.model.workload import Assignment, LedgerSnapshot, Phase, PodSet, Workload
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pending_row,
    pod_set,
    policy,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")
MAPPED = SchedulingConfiguration(
    resources=ResourceForms(
        device_classes=(
            ("gpu.nvidia.com", GPU),
            ("any.nvidia.com", GPU),
            ("mig.nvidia.com", "example.com/mig"),
        )
    )
)
PATH = "spec.template.spec.resourceClaims[0]"
OWN = PodClaim(PATH, "one-gpu", template=True)
SHARED = PodClaim(PATH, "data", template=False)


def asks(*alternatives: tuple[str, int], problem: str | None = None) -> DeviceRequest:
    return DeviceRequest("spec.devices.requests[0].exactly", alternatives, problem)


ONE_GPU = ResourceClaimTemplate("ns/one-gpu", (asks(("gpu.nvidia.com", 1)),))


def policies(gpus: int = 8) -> tuple[Policy, ...]:
    quotas = group({"default": {GPU: gpus, PODS: 100, CPU: 64_000}})
    return flavor("default", {"pool": "gpus"}), queue("cq", groups=[quotas]), LQ


def world(*claims: ResourceClaim | ResourceClaimTemplate, gpus: int = 8) -> World:
    found = World(*policies(gpus), settings=MAPPED)
    found.tell(*(ContextObserved(claim) for claim in claims))
    return found


def claiming(count: int, *claims: PodClaim, name: str = "main", **requests: int) -> PodSet:
    return pod_set(count, requests, name, claims=claims)


def held(found: World) -> Assignment:
    (admit,) = (d for d in found.decided if isinstance(d, Admit))
    return admit.attempt.assignment


def test_a_claim_from_a_template_is_charged_for_each_pod() -> None:
    found = world(ONE_GPU)
    found.submit(workload("a", pods=[claiming(4, OWN, cpu=1000)]))
    found.run()
    assert held(found).resources() == {CPU: 4000, GPU: 4, PODS: 4}


def test_devices_are_added_to_what_containers_request_of_the_same_resource() -> None:
    found = world(ONE_GPU)
    found.submit(workload("a", pods=[pod_set(2, {GPU: 1}, claims=(OWN,))]))
    found.run()
    assert held(found).resources()[GPU] == 4


def test_a_claim_that_pods_share_is_charged_once_and_steers_their_flavor() -> None:
    found = world(ResourceClaim("ns/data", (asks(("gpu.nvidia.com", 2)),)))
    pods = [claiming(3, SHARED), claiming(1, SHARED, name="late", cpu=500)]
    found.submit(workload("a", pods=pods))
    found.run()
    assignment = held(found)
    assert assignment.resources() == {CPU: 500, GPU: 2, PODS: 4}
    assert assignment.pods == 4
    assert [one.name for one in assignment.pod_sets] == ["main", "late", "main:resourceclaim/data"]
    assert [(one.name, dict(one.flavors)) for one in assignment.steered()] == [
        ("main", {GPU: "default", PODS: "default"}),
        ("late", {CPU: "default", PODS: "default"}),
    ]


def test_a_claim_for_what_is_not_charged_ends_nothing() -> None:
    forms = replace(MAPPED.resources, ignore_uncovered=True)
    cpus = queue("cq", groups=[group({"default": {CPU: 64_000}})])
    found = World(cpus, LQ, settings=replace(MAPPED, resources=forms))
    found.tell(ContextObserved(ONE_GPU))
    one = workload("a", pods=[claiming(4, OWN, cpu=1000)])
    found.submit(one)
    found.run()
    (effect,) = found.engine.take_effects()
    assert effect.attempt.assignment.resources() == {CPU: 4000}
    found.tell(observed(one, suspended=False, generation=2, admission=effect.attempt))
    found.tell(EffectSettled(effect.key, Result.DONE))
    assert found.run() == []


def test_a_claim_and_the_podset_that_it_is_charged_with_get_one_flavor() -> None:
    quotas = group({"first": {GPU: 1, CPU: 64_000}, "second": {GPU: 8, CPU: 64_000}})
    found = World(flavor("first"), flavor("second"), queue("cq", groups=[quotas]), LQ, settings=MAPPED)
    found.tell(ContextObserved(ResourceClaim("ns/data", (asks(("gpu.nvidia.com", 2)),))))
    found.submit(workload("a", pods=[claiming(3, SHARED, cpu=1000)]))
    found.run()
    assert {flavor for one in held(found).pod_sets for _, flavor in one.flavors} == {"second"}


@pytest.mark.parametrize(
    ("claim", "template", "detail"),
    [
        (OWN, None, f"{PATH}: ResourceClaimTemplate ns/one-gpu not found"),
        (
            OWN,
            ResourceClaimTemplate("ns/one-gpu", (asks(("tpu.example.com", 1)),)),
            f"{PATH}: ResourceClaimTemplate ns/one-gpu spec.devices.requests[0].exactly: "
            f"DeviceClass tpu.example.com is in no {MAPPINGS}",
        ),
        (
            OWN,
            ResourceClaimTemplate("ns/one-gpu", (asks(problem="allocationMode All has no fixed count"),)),
            f"{PATH}: ResourceClaimTemplate ns/one-gpu spec.devices.requests[0].exactly: "
            "allocationMode All has no fixed count",
        ),
        (
            OWN,
            ResourceClaimTemplate("ns/one-gpu", (asks(("gpu.nvidia.com", 1), ("mig.nvidia.com", 2)),)),
            f"{PATH}: ResourceClaimTemplate ns/one-gpu spec.devices.requests[0].exactly: "
            f"its alternatives are charged as example.com/mig or {GPU}",
        ),
        (SHARED, None, f"{PATH}: ResourceClaim ns/data not found"),
    ],
    ids=["missing template", "unknown class", "all devices", "different resources", "missing claim"],
)
def test_a_claim_that_cannot_be_charged_is_named_and_waits(
    claim: PodClaim, template: ResourceClaimTemplate | None, detail: str
) -> None:
    found = world(*([template] if template else []))
    found.submit(workload("a", pods=[claiming(1, claim)]))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert (kept.reason.code, kept.reason.detail) == (Code.RESOURCE_NOT_COVERED, detail)
    found.tell(ContextObserved(ONE_GPU), ContextObserved(ResourceClaim("ns/data", ONE_GPU.requests)))
    assert [type(d) for d in found.run()] == [Admit]


def test_of_alternatives_with_one_resource_the_largest_is_charged() -> None:
    found = world(ResourceClaimTemplate("ns/one-gpu", (asks(("gpu.nvidia.com", 1), ("any.nvidia.com", 3)),)))
    found.submit(workload("a", pods=[claiming(2, OWN)]))
    found.run()
    assert held(found).resources()[GPU] == 6


def test_what_waits_for_a_template_that_is_deleted_waits_again() -> None:
    found = world(ONE_GPU, gpus=0)
    found.submit(workload("a", pods=[claiming(1, OWN)]))
    found.run()
    found.tell(ContextGone(ResourceClaimTemplate, "ns/one-gpu"))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert kept.reason.code is Code.RESOURCE_NOT_COVERED


def test_without_a_mapping_no_claim_is_charged() -> None:
    found = World(queue("cq", 4), LQ)
    found.submit(workload("a", pods=[claiming(1, OWN)]))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert kept.reason.message == (
        f"ResourceNotCovered: {PATH} cannot be charged: its DeviceClass is in no {MAPPINGS}"
    )
    found.tell(ContextObserved(ONE_GPU))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert kept.reason.message == (
        f"ResourceNotCovered: {PATH}: ResourceClaimTemplate ns/one-gpu spec.devices.requests[0].exactly: "
        f"DeviceClass gpu.nvidia.com is in no {MAPPINGS}"
    ), "the class is named"


# --- while it runs (L22)


def template(*alternatives: tuple[str, int], problem: str | None = None) -> ResourceClaimTemplate:
    return ResourceClaimTemplate("ns/one-gpu", (asks(*alternatives, problem=problem),))


def runs(found: World, *claims: PodClaim, **requests: int) -> None:
    _start(found, workload("a", pods=[pod_set(4, requests, claims=claims)]))


def _start(found: World, one: Workload) -> None:
    found.submit(one)
    assert admitted(found.run()) == ["a"]
    found.settle()
    found.tell(observed(one, suspended=False, generation=2))
    assert found.run() == []


def evictions(found: World) -> list[str | None]:
    return [d.reason.detail for d in found.run() if isinstance(d, Evict) and d.reason.code is Code.BYPASS]


@pytest.mark.parametrize("deleted_first", [True, False])
@pytest.mark.parametrize(
    ("now", "why"),
    [
        (
            template(("gpu.nvidia.com", 2)),
            f"podset main has 2 of {GPU} with its claims, it holds quota for 1",
        ),
        (
            template(("mig.nvidia.com", 1)),
            "podset main has 1 of example.com/mig with its claims, it holds quota for 0",
        ),
        (
            template(problem="allocationMode All has no fixed count"),
            f"{PATH}: ResourceClaimTemplate ns/one-gpu spec.devices.requests[0].exactly: "
            "allocationMode All has no fixed count",
        ),
        (
            template(("tpu.example.com", 1)),
            f"{PATH}: ResourceClaimTemplate ns/one-gpu spec.devices.requests[0].exactly: "
            f"DeviceClass tpu.example.com is in no {MAPPINGS}",
        ),
    ],
    ids=["more", "others", "all", "of no mapping"],
)
def test_a_template_that_gives_pods_more_than_was_admitted_evicts_the_workload(
    now: ResourceClaimTemplate, why: str, deleted_first: bool
) -> None:
    found = world(ONE_GPU)
    runs(found, OWN, cpu=1000)
    if deleted_first:
        found.tell(ContextGone(ResourceClaimTemplate, now.name))
        assert evictions(found) == []
    found.tell(ContextObserved(now))
    assert evictions(found) == [why]


def test_what_containers_request_of_the_same_resource_hides_no_growth_of_claims() -> None:
    found = world(ONE_GPU)
    _start(found, workload("a", pods=[pod_set(4, {GPU: 1}, claims=(OWN,))]))
    found.tell(ContextObserved(template(("gpu.nvidia.com", 2))))
    assert evictions(found) == [f"podset main has 3 of {GPU} with its claims, it holds quota for 2"]


@pytest.mark.parametrize(
    "now", [template(("any.nvidia.com", 1)), ResourceClaimTemplate("ns/one-gpu")], ids=["the same", "none"]
)
def test_a_template_that_gives_pods_no_more_evicts_nothing(now: ResourceClaimTemplate) -> None:
    found = world(ONE_GPU)
    runs(found, OWN)
    found.tell(ContextObserved(now))
    assert found.run() == []


def test_a_mapping_that_is_taken_away_evicts_nothing() -> None:
    found = world(ONE_GPU)
    runs(found, OWN, cpu=1000)
    found.engine.features.devices.claims._resources = {"mig.nvidia.com": "example.com/mig"}
    found.tell(ContextGone(ResourceClaimTemplate, ONE_GPU.name), ContextObserved(ONE_GPU))
    assert evictions(found) == []


@pytest.mark.parametrize("generated", [False, True])
def test_a_claim_that_pods_share_and_that_is_made_again_for_more_evicts_the_workload(generated: bool) -> None:
    """Also if its annotation says that it is of one pod: users write annotations of claims."""
    found = world(ResourceClaim("ns/data", (asks(("gpu.nvidia.com", 1)),)))
    runs(found, SHARED, cpu=1000)
    found.tell(ContextGone(ResourceClaim, "ns/data"))
    found.run()
    more = ResourceClaim("ns/data", (asks(("gpu.nvidia.com", 3)),), generated=generated)
    found.tell(ContextObserved(more))
    (why,) = evictions(found)
    assert why == f"podset main:resourceclaim/data has 3 of {GPU} with its claims, it holds quota for 1"


def test_what_is_no_claim_evicts_nothing_while_it_runs() -> None:
    found = world(ONE_GPU)
    found.tell(ContextObserved(RuntimeClass("kata", ((CPU, 100),))))
    one = workload("a", pods=[pod_set(4, {CPU: 1000}, claims=(OWN,), runtime_class="kata")])
    _start(found, one)
    found.tell(ContextObserved(RuntimeClass("kata", ((CPU, 200), (GPU, 3)))))
    assert found.run() == []


def test_what_was_adopted_is_left_alone_whatever_its_claims_become() -> None:
    found = world()
    found.tell(observed(workload("a", pods=[claiming(4, OWN, cpu=1000)]), suspended=False))
    found.run()
    found.tell(ContextObserved(ONE_GPU))
    assert evictions(found) == []


# --- adminAccess

ADMIN = ResourceClaimTemplate("ns/one-gpu", (DeviceRequest("spec.devices.requests[0].exactly", admin=True),))


def test_a_claim_with_admin_access_is_charged_nothing_where_the_namespace_is_for_that() -> None:
    found = world(ADMIN)
    found.submit(workload("a", pods=[claiming(2, OWN, cpu=1000)]))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert kept.reason.code is Code.RESOURCE_NOT_COVERED
    assert (kept.reason.detail or "").endswith(
        "adminAccess, and namespace ns has no label resource.kubernetes.io/admin-access: true"
    )
    found.tell(ContextObserved(Namespace("ns", (("resource.kubernetes.io/admin-access", "true"),))))
    assert admitted(found.run()) == ["a"]
    assert held(found).resources() == {CPU: 2000, PODS: 2}


def test_a_claim_that_kubernetes_made_for_another_pod_is_not_charged_to_a_workload() -> None:
    found = world(ResourceClaim("ns/data", ONE_GPU.requests, generated=True))
    found.submit(workload("a", pods=[claiming(1, SHARED)]))
    (kept,) = found.run()
    assert isinstance(kept, Keep)
    assert kept.reason.detail == f"{PATH}: ResourceClaim ns/data belongs to one pod"


def test_a_newly_started_controller_knows_which_running_workloads_share_claims() -> None:
    claim = ResourceClaim("ns/data", (asks(("gpu.nvidia.com", 1)),))
    found = world(claim)
    one = workload("a", pods=[pod_set(4, {"cpu": 1000}, claims=[SHARED])])
    found.submit(one)
    (admit,) = (decision for decision in found.run() if isinstance(decision, Admit))
    attempt = replace(admit.attempt, sequence=2)
    row = replace(pending_row(one, attempts=1), phase=Phase.ADMITTED, attempt=attempt)
    later = world()
    later.engine = Engine(SOURCES, MAPPED)
    later.engine.restore(LedgerSnapshot(sequence=3, now=T0, workloads=(row,)))
    later.tell(
        ContextObserved(Namespace("ns")), *map(policy, policies()), ContextObserved(claim), Listed("policies")
    )
    later.tell(observed(one, suspended=False, generation=2), Listed("Job", frozenset({one.id})))
    assert evictions(later) == []
    later.tell(ContextGone(ResourceClaim, "ns/data"))
    later.run()
    later.tell(ContextObserved(replace(claim, requests=(asks(("gpu.nvidia.com", 3)),), generated=True)))
    assert len(evictions(later)) == 1
