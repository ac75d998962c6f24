"""Workloads that wait for others in an engine from rows of the ledger, which do not say how others ended."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit, Keep
from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.workload import (
    ConfigKey,
    LedgerSnapshot,
    Phase,
    StoredWorkload,
    UserOptions,
    Workload,
    WorkloadOutcome,
)
from queuectl.scenarios.rebuilt_engine import SUSPENDED, engine_of
from tests.builders import GPU, T0, pending_row, workload

OK, ANY, FAILED = AfterOutcome.OK, AfterOutcome.ANY, AfterOutcome.FAILED
CONFIGS = {
    ConfigKey("Namespace", "", "ns"): {"labels": {}},
    ConfigKey("ResourceFlavor", "", "default"): {},
    ConfigKey("LocalQueue", "ns", "lq"): {"clusterQueue": "cq"},
    ConfigKey("ClusterQueue", "", "cq"): {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": [GPU],
                "flavors": [{"name": "default", "resources": [{"name": GPU, "nominalQuota": 8}]}],
            }
        ],
    },
}


def row(one: Workload, arrival: int) -> StoredWorkload:
    return pending_row(one, arrival=arrival, pod_sets=one.pod_sets, options=UserOptions(start=one.start))


def snapshot(awaits: StoredWorkload, *others: StoredWorkload) -> LedgerSnapshot:
    configs = tuple((key, json.dumps(spec)) for key, spec in CONFIGS.items())
    return LedgerSnapshot(sequence=9, now=T0, workloads=(*others, awaits), configs=configs)


def awaiting(reason: Reason, *after: tuple[AfterOutcome, str]) -> StoredWorkload:
    start = StartConditions(after=tuple(AfterWorkload(outcome, "Job", name) for outcome, name in after))
    return replace(row(workload("awaits", created=5, start=start), 5), reason=reason)


@pytest.mark.parametrize("outcome", [OK, ANY, FAILED])
@pytest.mark.parametrize("first", [True, False])
def test_it_starts_when_the_last_one_ends_that_it_waits_for(outcome: AfterOutcome, first: bool) -> None:
    """`over` ended before, as it had to: `runs` is named, whichever comes first."""
    runs = workload("runs")
    held = replace(row(runs, 1), phase=Phase.PENDING)
    names = ((outcome, "over"), (OK, "runs"))
    awaits = awaiting(
        Reason(code=Code.WAITING_FOR_DEPENDENCY, node="Job/runs"), *(names if first else reversed(names))
    )
    engine = engine_of(snapshot(awaits, held), DEFAULT_CONFIGURATION)
    engine.handle([WorkloadObserved(runs, replace(SUSPENDED, finished=WorkloadOutcome.SUCCEEDED))])
    started = []
    for number in range(20):
        plan = engine.decide(T0, 1000)
        engine.commit(plan, 10 + 10 * number)
        started += [one.ref.name for one in plan.decisions if isinstance(one, Admit)]
    assert "awaits" in started


@pytest.mark.parametrize("outcome", [OK, FAILED])
def test_what_is_never_satisfied_stays_so(outcome: AfterOutcome) -> None:
    never = Reason(code=Code.DEPENDENCY_NEVER_SATISFIED, node="Job/over", detail="it ended otherwise")
    engine = engine_of(snapshot(awaiting(never, (outcome, "over"))), DEFAULT_CONFIGURATION)
    reasons = [one.reason.code for one in engine.decide(T0, 1000).decisions if isinstance(one, Keep)]
    assert reasons == [Code.DEPENDENCY_NEVER_SATISFIED]


def test_what_does_not_exist_yet_is_waited_for() -> None:
    waits = Reason(code=Code.WAITING_FOR_DEPENDENCY, node="Job/later")
    engine = engine_of(snapshot(awaiting(waits, (OK, "later"))), DEFAULT_CONFIGURATION)
    plan = engine.decide(T0, 1000)
    assert not [one for one in plan.decisions if isinstance(one, Admit)]
