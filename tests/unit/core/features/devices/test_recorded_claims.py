"""The ledger has the requests of claims with the podsets that name them, and no row of their objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Configure, Enqueue
from queuectl.core.features.devices.claims import MOST_RECORDED
from queuectl.core.model.devices import DeviceRequest, PodClaim, ResourceClaim, ResourceClaimTemplate
from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.workload import PodSet
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.ledger.shared_rows import shape_of
from queuectl.scenarios.rebuilt_engine import claiming, requested
from tests.builders import GPU, World, pending_row, pod_set, workload
from tests.unit.core.features.devices.test_device_claims import ONE_GPU, OWN, PATH, SHARED, asks, held, world
from tests.unit.core.features.devices.test_device_claims import claiming as claims

TWO_GPUS = ResourceClaimTemplate("ns/one-gpu", (asks(("gpu.nvidia.com", 2)),))
DATA = ResourceClaim("ns/data", (asks(("gpu.nvidia.com", 3)),))


def queued(found: World) -> list[tuple[PodSet, ...]]:
    """The podsets of each decision `Queued`."""
    return [one.workload.pod_sets for one in found.decided if isinstance(one, Enqueue)]


def requests(found: World) -> list[tuple[DeviceRequest, ...] | None]:
    """The requests of the first claim of each decision `Queued`."""
    return [pod_sets[0].claims[0].requests for pod_sets in queued(found)]


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_an_object_that_no_workload_names_adds_no_decision(kind: str) -> None:
    found, row = world(), CONTEXT_KINDS[kind]
    found.run()
    before = len(found.decided)
    for number in range(20):
        spec = {"spec": {"devices": {}}, "devices": {}, "metadata": {"annotations": {"x": "y" * 1000}}}
        event = row.event({"metadata": {"name": f"job-{number}", "namespace": "ns"}, "spec": spec})
        assert event is not None
        found.tell(event)
        found.run()
        found.tell(row.gone(f"ns/job-{number}"))
        found.run()
    assert found.decided[before:] == []


def test_the_decision_that_queues_a_workload_has_the_requests_of_its_claims() -> None:
    found = world(ONE_GPU, DATA)
    found.submit(workload("a", pods=[claims(2, OWN, SHARED)]))
    found.run()
    assert [one.requests for one in queued(found)[0][0].claims] == [ONE_GPU.requests, DATA.requests]
    assert not any(isinstance(one, Configure) and one.key.kind in CONTEXT_KINDS for one in found.decided)


def test_an_engine_from_the_ledger_charges_claims_without_their_objects() -> None:
    live = world(ONE_GPU, DATA)
    live.submit(workload("a", pods=[claims(2, OWN, SHARED)]))
    live.run()
    stored = pending_row(workload("a"), pod_sets=queued(live)[0])
    later = world()
    later.submit(requested(stored))
    later.run()
    assert held(later).usage() == held(live).usage()
    assert queued(later) == queued(live)


def test_a_pending_workload_is_queued_again_when_its_template_is_replaced() -> None:
    found = world(ONE_GPU, gpus=0)
    found.submit(workload("a", pods=[claims(1, OWN)]))
    found.run()
    found.tell(ContextObserved(TWO_GPUS))
    found.run()
    found.tell(ContextGone(ResourceClaimTemplate, "ns/one-gpu"))
    found.run()
    assert requests(found) == [ONE_GPU.requests, TWO_GPUS.requests, None]


def test_an_object_that_is_observed_again_with_equal_requests_adds_no_decision() -> None:
    found = world(ONE_GPU, gpus=0)
    found.submit(workload("a", pods=[claims(1, OWN)]))
    found.run()
    before = len(found.decided)
    for _ in range(10):
        found.tell(ContextObserved(replace(ONE_GPU)))
        found.run()
    assert found.decided[before:] == []


def test_a_running_workload_is_not_queued_again_by_its_template() -> None:
    found = world(ONE_GPU)
    found.submit(workload("a", pods=[claims(1, OWN)]))
    found.run()
    found.tell(ContextGone(ResourceClaimTemplate, "ns/one-gpu"))
    found.run()
    assert requests(found) == [ONE_GPU.requests]


def test_what_the_claims_of_one_workload_add_to_its_podsets_has_a_limit() -> None:
    """A pod template may name 1000 claims, and each of them may name 32 requests of 32 alternatives."""
    name = "n" * 253
    many = tuple(asks(*((name, number + 1) for number in range(32))) for _ in range(32))
    found = world(ResourceClaimTemplate("ns/large", many), ONE_GPU)
    large = [PodClaim(PATH, "large", template=True)] * 500
    small = [OWN] * 500
    found.submit(workload("a", pods=[pod_set(1, {GPU: 1}, claims=(*large, *small))]))
    found.run()
    ((pods,),) = queued(found)
    kept = [one.requests for one in pods.claims if one.requests is not None]
    assert kept == [ONE_GPU.requests] * MOST_RECORDED
    without = replace(pods, claims=tuple(replace(one, requests=None) for one in pods.claims))
    added = len(shape_of((pods,)).json) - len(shape_of((without,)).json)
    assert 0 < added < MOST_RECORDED * 512


def test_a_quoted_workload_has_the_requests_that_others_of_its_namespace_have() -> None:
    known = replace(OWN, requests=ONE_GPU.requests)
    near = pending_row(workload("a"), pod_sets=(claims(1, known),))
    later = pending_row(
        workload("b"), arrival=2, pod_sets=(claims(1, replace(OWN, requests=TWO_GPUS.requests)),)
    )
    quoted = workload("new", pods=[claims(4, OWN, SHARED)])
    assert claiming(quoted, [later, near]).pod_sets[0].claims == (
        replace(OWN, requests=TWO_GPUS.requests),
        SHARED,
    )
    other = replace(near, ref=near.ref._replace(namespace="other"))
    assert claiming(quoted, [other]) == quoted
