"""Quotes and plans against what then happens when they are applied at once."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from queuectl.answers.what_if.counterfactuals import quote
from queuectl.answers.what_if.engines import planned
from queuectl.core.decisions import Verdict
from queuectl.core.model.policy import StopPolicy
from queuectl.core.model.reasons import Code, Family
from queuectl.core.model.what_if import PolicyChange, Start
from queuectl.core.model.workload import Phase, WorkloadId
from tests.builders import flavor, local_queue, policy, queue, workload
from tests.unit.answers.test_counterfactuals import SEEDS, at_rest, trials
from tests.unit.core.driver import Driver
from tests.unit.core.trees import Dice, Setup, cluster_queue, job

STARTS: Counter[Start] = Counter()
CHANGES: Counter[PolicyChange] = Counter()


SETUP = Setup((flavor("default"), queue("team", 4), local_queue("lq", "team")), locals=("lq",))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quote_is_what_happens_when_the_workload_is_created(seed: int) -> None:
    dice = Random(seed)
    running = at_rest(dice)
    new = job(Dice(dice.randbytes(36)), "new", running.setup)
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
        stored = running.ledger.store.workloads[new.id]
        # Another workload may preempt it, if it lets one go ahead.
        assert stored.attempt is None or stored.attempt.assignment == found.assignment
    victims = {victim for victim, preemptor in running.evicted[begin:] if preemptor == new.id}
    assert {one.workload for one in found.displaced} <= before
    assert victims == {one.workload for one in found.displaced}


def never(running: Driver) -> set[WorkloadId]:
    """The workloads that wait with a reason that no waiting helps."""
    return {
        one.id
        for one in running.ledger.store.workloads.values()
        if one.phase is Phase.PENDING and one.reason is not None and one.reason.family is Family.NEVER
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_is_what_happens_when_the_policy_is_applied(seed: int) -> None:
    dice = Random(seed)
    running = at_rest(dice)
    name = dice.choice(sorted(running.policy.queues))
    value = cluster_queue(Dice(dice.randbytes(200)), name, running.setup.depth, running.setup.layout)
    of = trials(running)
    rows = len(running.ledger.store.decisions)
    before = never(running)
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
        PolicyChange.STRANDED: {*(never(running) - before)},
    }
    for change, workloads in happened.items():
        CHANGES[change] += len(workloads)
        assert {one.workload for one in found.affected if one.change is change} == workloads, change


def test_a_workload_that_a_policy_makes_too_large_is_stranded() -> None:
    running = Driver(SETUP)
    running.submit(workload("large", gpus=5))
    running.submit(workload("runs", gpus=4))
    running.submit(workload("waits", gpus=3))
    running.deliver()
    running.come_to_rest()
    found = planned(trials(running), [policy(queue("team", 2))])
    assert [(one.workload, one.change) for one in found.affected] == [("uid-waits", PolicyChange.STRANDED)]


def test_a_workload_that_waits_for_another_reason_is_named_and_one_that_waits_as_before_is_not() -> None:
    running = Driver(SETUP)
    running.submit(workload("runs", gpus=4))
    running.submit(workload("waits", gpus=3))
    running.deliver()
    running.come_to_rest()
    found = planned(trials(running), [policy(queue("team", 4, stop=StopPolicy.HOLD))])
    (one,) = found.affected
    assert (one.workload, one.change) == ("uid-waits", PolicyChange.OTHER_REASON)
    assert one.reason is not None
    assert one.reason.code is Code.SUSPENDED
    assert planned(trials(running), [policy(queue("team", 5))]).affected == ()


def test_a_plan_with_a_stopped_queue_evicts_what_runs_in_it() -> None:
    running = Driver(SETUP)
    running.submit(workload("runs", gpus=4))
    running.deliver()
    running.come_to_rest()
    found = planned(trials(running), [policy(queue("team", 4, stop=StopPolicy.HOLD_AND_DRAIN))])
    assert [(one.workload, one.change) for one in found.affected] == [("uid-runs", PolicyChange.EVICTED)]
    assert [name for name, _ in found.inactive] == ["team"]
