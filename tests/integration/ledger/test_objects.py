"""`queuectl verify --cluster`: how objects differ from the open state of a ledger, each said by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    EffectKey,
    LedgerSnapshot,
    Phase,
    PodSetAssignment,
    StoredWorkload,
    Verb,
    WorkloadOutcome,
)
from queuectl.ledger.admin.cluster_comparison import differences
from tests.builders import GPU, T0, observed, pending_row, pod_set, workload

A = workload("a", pods=[pod_set(4, {GPU: 1})])


def attempt(number: int = 1, count: int = 4, on: str = "a100", **fields: object) -> Attempt:
    pods = PodSetAssignment(name="main", count=count, requests=((GPU, 1),), flavors=((GPU, on),))
    return Attempt(
        workload=A.id,
        number=number,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue="cq", pod_sets=(pods,)),
        admitted_at=T0,
        **fields,  # type: ignore[arg-type]
    )


def row(held: Attempt | None, attempts: int = 1) -> StoredWorkload:
    known = pending_row(A, attempts=attempts)
    if held is None:
        return known
    evicting = held.state is AttemptState.EVICTING
    phase = Phase.EVICTING if evicting else Phase.ADMITTED
    return replace(known, attempt=held, phase=phase, attempts=held.number)


def found(stored: StoredWorkload | None, *effects: EffectKey, one: object = A, **state: object) -> list[str]:
    rows = (stored,) if stored is not None else ()
    ledger = LedgerSnapshot(sequence=1, now=T0, workloads=rows, effects=effects)
    seen = [observed(one, **state)] if one is not None else []  # type: ignore[arg-type]
    return [str(finding) for finding in differences(ledger, seen)]


EVICTING = replace(attempt(), state=AttemptState.EVICTING)
RUNS = {"suspended": False, "generation": 2}


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (row(attempt()), {**RUNS, "admission": attempt()}),
        (row(None), {"admission": attempt()}),
        (row(attempt(count=2)), {**RUNS, "admission": attempt(), "reclaimable": (("main", 2),)}),
        (row(attempt(2, debt=True)), {**RUNS, "admission": attempt()}),
        (row(EVICTING), {"admission": attempt()}),
        (row(attempt()), {"finished": WorkloadOutcome.SUCCEEDED}),
    ],
)
def test_an_object_that_the_ledger_has_as_it_is_makes_no_difference(
    stored: StoredWorkload, state: dict[str, object]
) -> None:
    assert found(stored, **state) == []


@pytest.mark.parametrize(
    ("stored", "state", "expected"),
    [
        (
            row(attempt()),
            {**RUNS, "admission": attempt(2, on="spot")},
            "Attempt: ns/Job/a: runs by attempt 2, the ledger has attempt 1",
        ),
        (
            row(attempt()),
            {**RUNS, "admission": attempt(on="spot")},
            "Charge: ns/Job/a: podset main: 4 x (1 nvidia.com/gpu of spot) by its annotation, "
            "the ledger charges 4 x (1 nvidia.com/gpu of a100)",
        ),
        (
            row(attempt(count=6)),
            {**RUNS, "admission": attempt()},
            "Charge: ns/Job/a: podset main: 4 pods by its annotation, the ledger charges 6",
        ),
        (
            row(attempt(count=2)),
            {**RUNS, "admission": attempt()},
            "Counts: ns/Job/a: podset main has 4 pods, the ledger charges 2",
        ),
        (row(attempt()), RUNS, "Attempt: ns/Job/a: has no annotation, the ledger has attempt 1"),
        (
            row(EVICTING),
            {**RUNS, "admission": attempt()},
            "NotStopped: ns/Job/a: runs by attempt 1, the ledger evicts attempt 1",
        ),
        (
            row(attempt()),
            {"admission": attempt(), "generation": 3},
            "Suspended: ns/Job/a: is suspended, the ledger has attempt 1 as admitted",
        ),
        (
            row(None),
            {**RUNS, "admission": attempt(3)},
            "NotCharged: ns/Job/a: runs by attempt 3, the ledger holds no quota for it",
        ),
        (
            row(None),
            {"admission": attempt(3)},
            "Attempt: ns/Job/a: had attempt 3, the ledger knows of 1 attempts",
        ),
        (None, RUNS, "Unknown: ns/Job/a: runs by no attempt, the ledger does not have it"),
        (None, {}, "Unknown: ns/Job/a: is suspended, the ledger does not have it"),
        (row(attempt()), {"one": None}, "Missing: ns/Job/a: is Admitted in the ledger, its object is gone"),
    ],
)
def test_each_difference_is_said_by_name(
    stored: StoredWorkload | None, state: dict[str, object], expected: str
) -> None:
    assert found(stored, **state) == [expected]


def test_pods_that_request_more_than_when_it_was_queued_are_a_difference() -> None:
    larger = replace(A, pod_sets=tuple(replace(one, requests=((GPU, 3),)) for one in A.pod_sets))
    queued = replace(row(attempt()), pod_sets=A.pod_sets)
    differing = found(queued, one=larger, **RUNS, admission=attempt())
    assert differing == ["Requests: ns/Job/a: podset main requests 3 of nvidia.com/gpu, 1 when it was queued"]


def test_a_charge_of_another_clusterqueue_or_podset_is_a_difference() -> None:
    held = attempt()
    other = replace(held.assignment, cluster_queue="other")
    renamed = replace(held.assignment, pod_sets=(replace(held.assignment.pod_sets[0], name="worker"),))
    texts = found(row(replace(held, assignment=other)), **RUNS, admission=held)
    assert texts == ["Charge: ns/Job/a: its annotation charges ClusterQueue cq, the ledger other"]
    texts = found(row(replace(held, assignment=renamed)), **RUNS, admission=held)
    assert any("podset worker is charged" in text for text in texts)


@pytest.mark.parametrize(("held", "verb"), [(attempt(), Verb.START), (EVICTING, Verb.STOP)])
def test_a_write_that_is_not_acknowledged_makes_no_difference(held: Attempt, verb: Verb) -> None:
    runs = verb is Verb.STOP
    assert found(row(held), suspended=not runs, admission=attempt()) != []
    assert found(row(held), EffectKey(A.id, 1, verb), suspended=not runs, admission=attempt()) == []
