"""Workloads started by hand: charged as debt in the name of the user, or stopped without a gate (L4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit, Evict
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextGone, ContextObserved, Listed, PodsCounted
from queuectl.core.model.policy import Gate, Namespace
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, LedgerSnapshot, Phase, StoredWorkload, Verb, WorkloadOutcome
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    policy,
    queue,
    workload,
)

GATE = Gate("queuectl-jobs", T0)
HELD = workload("a", created=5, hold=True)


def evicted(world: World) -> Attempt:
    """Admit workload `a`, hold it until its quota is released, and return the attempt of its annotation."""
    world.tell(ContextObserved(GATE))
    world.submit(workload("a", created=5))
    (attempt,) = (d.attempt for d in world.run() if isinstance(d, Admit))
    world.settle(generation=2)
    world.tell(observed(HELD, suspended=False, generation=2, admission=attempt))
    world.run()
    world.settle(generation=3)
    world.tell(observed(HELD, generation=3, admission=attempt), PodsCounted(HELD.id, 1, alive=False))
    world.run()
    return attempt


def adopted(world: World) -> tuple[Admit, list[Evict]]:
    """The next plan: one adoption, and evictions."""
    made = world.run()
    (admit,) = (d for d in made if isinstance(d, Admit))
    return admit, [d for d in made if isinstance(d, Evict)]


def test_a_workload_that_was_admitted_before_is_charged_as_debt_in_the_name_of_the_user() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    before = evicted(world)
    world.tell(observed(HELD, suspended=False, generation=4, admission=before, bypassed_by="boss"))
    admit, _ = adopted(world)
    assert (admit.detail, admit.attempt.debt, admit.attempt.number) == (
        "was let past the gate by boss",
        True,
        2,
    )
    assert admit.attempt.assignment.usage()


@pytest.mark.parametrize(("gpus", "charged"), [(1, "spot"), (2, "a100")])
def test_a_workload_that_was_admitted_before_is_charged_on_the_flavor_that_its_pods_still_have(
    gpus: int, charged: str
) -> None:
    """A stop leaves the node selectors of the last admission; an edit after it may have replaced them."""
    quotas = {"a100": {GPU: 4}, "spot": {GPU: 4}}
    world = World(*map(flavor, quotas), queue("cq", groups=[group(quotas)]), local_queue("lq", "cq"))
    world.submit(workload("b", gpus=4))
    world.run()
    before = evicted(world)
    assert [cell.flavor for cell in before.assignment.usage()] == ["spot"]
    world.tell(
        observed(workload("b", gpus=4), suspended=False, generation=2, finished=WorkloadOutcome.SUCCEEDED)
    )
    world.run()
    again = workload("a", gpus=gpus, created=5, hold=True)
    world.tell(observed(again, suspended=False, generation=5, admission=before, bypassed_by="boss"))
    (admit,) = (d for d in world.run() if isinstance(d, Admit))
    assert [cell.flavor for cell in admit.attempt.assignment.usage()] == [charged]


def test_the_reason_of_the_user_is_recorded_with_its_name() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    before = evicted(world)
    started = observed(HELD, suspended=False, generation=4, admission=before, bypassed_by="boss")
    world.tell(
        replace(started, observation=replace(started.observation, bypass=("boss", "the demo is at noon")))
    )
    assert adopted(world)[0].detail == "was let past the gate by boss: the demo is at noon"


def test_of_two_users_the_last_one_is_named() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    before = evicted(world)
    world.tell(observed(HELD, suspended=False, generation=4, admission=before, bypassed_by="boss"))
    adopted(world)
    world.run()
    world.settle(generation=5)
    world.tell(observed(HELD, generation=5, admission=before, bypassed_by="boss"))
    world.tell(PodsCounted(HELD.id, 2, alive=False))
    world.run()
    world.tell(observed(HELD, suspended=False, generation=6, admission=before, bypassed_by="admin"))
    assert adopted(world)[0].detail == "was let past the gate by admin"


@pytest.mark.parametrize("by", [None, "tenant"])
def test_without_a_gate_it_is_charged_and_stopped_whatever_its_annotations_say(by: str | None) -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    before = evicted(world)
    world.tell(ContextGone(Gate, GATE.name))
    free = workload("a", created=5)
    world.tell(observed(free, suspended=False, generation=4, admission=before, bypassed_by=by))
    admit, (evict,) = adopted(world)
    assert admit.attempt.debt
    assert evict.reason.code is Code.BYPASS
    assert (by or "") in (evict.reason.detail or "")
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]


def restarted(attempts: int) -> World:
    """A controller that starts while no gate is in force; the ledger has closed attempts of workload `a`."""
    one = workload("a", created=5)
    stored = StoredWorkload(
        id=one.id,
        ref=one.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=one.created_at,
        arrival=1,
        phase=Phase.PENDING,
        attempts=attempts,
        attempt=None,
        reason=None,
    )
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.engine = Engine(SOURCES)
    world.engine.restore(LedgerSnapshot(sequence=3, now=T0, workloads=(stored,)))
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 4)))
    world.tell(policy(local_queue("lq", "cq")), Listed("policies"))
    return world


def test_a_workload_that_was_admitted_before_did_not_run_before_any_gate() -> None:
    before = evicted(World(queue("cq", 4), local_queue("lq", "cq")))
    world = restarted(attempts=1)
    world.tell(observed(workload("a", created=5), suspended=False, generation=4, admission=before))
    world.tell(Listed("Job", frozenset({HELD.id})))
    _, (evict,) = adopted(world)
    assert evict.reason.code is Code.BYPASS


def test_an_admission_newer_than_the_ledger_is_one_that_the_ledger_has_forgotten() -> None:
    before = evicted(World(queue("cq", 4), local_queue("lq", "cq")))
    world = restarted(attempts=0)
    world.tell(observed(workload("a", created=5), suspended=False, generation=2, admission=before))
    world.tell(Listed("Job", frozenset({HELD.id})))
    admit, evictions = adopted(world)
    assert (admit.detail, evictions) == ("runs by an admission that the ledger has no memory of", [])
    assert admit.attempt.assignment == before.assignment


def test_a_workload_that_cannot_be_queued_is_charged_while_it_runs_if_its_pods_are_known() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.tell(ContextObserved(GATE))
    full = replace(workload("a", created=5), problem=Reason(code=Code.MISCONFIGURED, detail="annotations"))
    world.submit(full)
    assert not [d for d in world.run() if isinstance(d, Admit)]
    world.tell(observed(full, suspended=False, generation=2, bypassed_by="boss"))
    admit, evictions = adopted(world)
    assert (admit.detail, admit.attempt.debt) == ("was let past the gate by boss", True)
    assert admit.attempt.assignment.usage()
    assert not evictions


@pytest.mark.parametrize(
    ("pods", "gpus", "detail"),
    [
        (3, 1, "podset main has 3 pods, it had 1 when it was queued"),
        (1, 2, "podset main requests 2 of nvidia.com/gpu, 1 when it was queued"),
        (1, 1, None),
    ],
)
def test_a_workload_whose_child_has_grown_is_evicted_and_queued_with_what_it_requests(
    pods: int, gpus: int, detail: str | None
) -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.submit(workload("a"))
    (attempt,) = (d.attempt for d in world.run() if isinstance(d, Admit))
    world.settle(generation=2)
    grown = workload("a", pods=[pod_set(pods, {GPU: gpus})])
    event = observed(grown, suspended=False, generation=2, admission=attempt)
    world.tell(replace(event, observation=replace(event.observation, by_child=True)))
    found = [d.reason for d in world.run() if isinstance(d, Evict)]
    assert [(one.code, one.detail) for one in found] == ([(Code.BYPASS, detail)] if detail else [])


@pytest.mark.parametrize("gpus", [1, 3])
def test_a_workload_whose_pods_request_more_by_an_edit_while_it_runs_is_evicted(gpus: int) -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.submit(workload("a"))
    (attempt,) = (d.attempt for d in world.run() if isinstance(d, Admit))
    world.settle(generation=2)
    world.tell(observed(workload("a"), suspended=False, generation=2, admission=attempt))
    assert not world.run()
    world.tell(observed(workload("a", gpus=gpus), suspended=False, generation=3, admission=attempt))
    details = [d.reason.detail for d in world.run() if isinstance(d, Evict)]
    larger = [f"podset main requests {gpus} of nvidia.com/gpu, 1 when it was queued"]
    assert details == (larger if gpus > 1 else [])
