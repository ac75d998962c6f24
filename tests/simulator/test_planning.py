"""Quotes and plans against what then happens when they are applied at once."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Verdict
from queuectl.core.model import Phase, StoredWorkload, WorkloadId
from queuectl.core.reasons import Family
from queuectl.core.what_if import PolicyChange, Start
from queuectl.simulator.counterfactuals import quote
from queuectl.simulator.planning import planned
from tests.builders import policy
from tests.core import profiles
from tests.core.running import Running
from tests.core.trees import Dice, cluster_queue, job
from tests.simulator.test_counterfactuals import at_rest, trials

profiles.load()

SEEDS = st.integers(0, 2**32)
STARTS: Counter[Start] = Counter()
CHANGES: Counter[PolicyChange] = Counter()


@profiles.sequences(100)
@given(SEEDS)
def test_a_quote_is_what_happens_when_the_workload_is_created(seed: int) -> None:
    dice = Random(seed)
    running = at_rest(dice)
    new = job(Dice(dice.randbytes(36)), "new", running.world)
    found = quote(trials(running), new).now
    STARTS[found.start] += 1
    before = {id for id, one in running.ledger.store.workloads.items() if one.phase is Phase.ADMITTED}
    running.submit(new)
    running.deliver()
    begin = len(running.evicted)
    running.come_to_rest()
    started = new.id in running.admitted_since
    assert started == found.starts, found
    if found.start is Start.NOW:
        assert first_assignment(running, new.id) == found.assignment
    victims = {victim for victim, preemptor in running.evicted[begin:] if preemptor == new.id}
    assert {one.workload for one in found.displaced} <= before
    assert victims == {one.workload for one in found.displaced}


def is_never(one: StoredWorkload) -> bool:
    return one.phase is Phase.PENDING and one.reason is not None and one.reason.family is Family.NEVER


def first_assignment(running: Running, workload: WorkloadId) -> object:
    stored = running.ledger.store.workloads[workload]
    assert stored.attempt is not None
    return stored.attempt.assignment


@profiles.sequences(100)
@given(SEEDS)
def test_a_plan_is_what_happens_when_the_policy_is_applied(seed: int) -> None:
    dice = Random(seed)
    running = at_rest(dice)
    name = dice.choice(sorted(running.policy.queues))
    value = cluster_queue(Dice(dice.randbytes(200)), name, running.world.depth, running.world.layout)
    of = trials(running)
    # The flavors that a workload has tried decide which reason it has (F8), and trials do not know them.
    never = {id for id, one in of.workloads.items() if is_never(one)}
    never = {id for id in never if of.unchanged(id).start is Start.NEVER}
    rows = len(running.ledger.store.decisions)
    found = planned(of, [policy(value)])
    running.set(value)
    running.deliver()
    running.come_to_rest()
    decided = running.ledger.store.decisions[rows:]
    after = running.ledger.store.workloads
    happened: dict[PolicyChange, set[WorkloadId | None]] = {
        PolicyChange.EVICTED: {row.workload for row in decided if row.verdict == Verdict.EVICTED},
        PolicyChange.ADMITTED: {
            row.workload
            for row in decided
            if row.verdict == Verdict.ADMITTED
            and row.workload is not None
            and after[row.workload].phase is Phase.ADMITTED
        },
        PolicyChange.STRANDED: {id for id, one in after.items() if is_never(one) and id not in never},
    }
    for change, workloads in happened.items():
        CHANGES[change] += len(workloads)
        assert {one.workload for one in found.affected if one.change is change} == workloads, change
