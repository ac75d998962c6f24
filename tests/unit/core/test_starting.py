"""A newly started process goes on as the former one would have (C12): the cases; the law is in test_laws."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit, Evict
from queuectl.core.engine import Engine
from queuectl.core.model.events import Listed
from queuectl.core.model.policy import Cohort, QueueingStrategy
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadId, WorkloadOutcome
from tests.builders import GPU, SOURCES, flavor, group, local_queue, queue, workload
from tests.doubles import engine_state
from tests.unit.core.driver import Driver
from tests.unit.core.trees import Setup

FIFO, STRICT = QueueingStrategy.BEST_EFFORT_FIFO, QueueingStrategy.STRICT_FIFO


class Shared(Driver):
    """Two queues without quota of their own share the 6 GPUs of a cohort, of which 4 are in use."""

    def __init__(self, strategy: QueueingStrategy = FIFO) -> None:
        groups = [group({"default": {GPU: 0}})]
        queues = [
            queue(name, groups=groups, cohort="all", strategy=strategy if name == "a" else FIFO)
            for name in ("a", "b")
        ]
        shared = Cohort(name="all", resource_groups=(group({"default": {GPU: 6}}),))
        locals_ = [local_queue(name, name) for name in ("a", "b")]
        super().__init__(Setup((flavor("default"), shared, *queues, *locals_), locals=("a", "b")))
        self.submit_one_of("runs", "a", 4, created=0)
        self.come_to_rest()

    def submit_one_of(self, name: str, local: str, gpus: int, *, created: int) -> None:
        self.submit(workload(name, local, gpus, created=created))
        self.deliver()

    def admits(self, engine: Engine) -> list[str]:
        return [one.ref.name for one in engine.decide(self.now).decisions if isinstance(one, Admit)]


def test_what_is_refused_again_takes_no_turn_of_its_queue() -> None:
    found = Shared()
    found.submit_one_of("large", "a", 3, created=1)
    found.come_to_rest()
    for name, local in (("first", "b"), ("second", "b"), ("third", "a")):
        found.submit_one_of(name, local, 1, created=len(found.jobs))
    assert found.admits(found.engine) == found.admits(found.fresh()) == ["first", "third"]


def test_what_was_refused_and_fits_now_is_admitted() -> None:
    found = Shared()
    found.submit_one_of("large", "a", 3, created=1)
    found.come_to_rest()
    found.write(
        WorkloadId("uid-runs"), spec=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True, pods=False
    )
    found.submit_one_of("small", "b", 4, created=2)
    assert found.admits(found.fresh()) == ["large"]
    fresh = found.fresh()
    for _ in range(20):
        fresh.commit(plan := fresh.decide(found.now, budget=1), 1)
        if any(isinstance(one, Admit) for one in plan.decisions):
            return
    raise AssertionError("what fits is judged again in each plan, and never admitted")


@pytest.mark.parametrize("strategy", [FIFO, STRICT])
def test_a_budget_of_one_refuses_all_again_and_then_admits(strategy: QueueingStrategy) -> None:
    found = Shared(strategy)
    for gpus in (3, 4, 5):
        found.submit_one_of(f"large{gpus}", "a", gpus, created=gpus)
    found.come_to_rest()
    found.submit_one_of("small", "b", 1, created=9)
    fresh = found.fresh()
    for _ in range(20):
        plan = fresh.decide(found.now, budget=1)
        if any(isinstance(one, Admit) for one in plan.decisions):
            return
        assert plan.decisions
        fresh.commit(plan, 1)
    raise AssertionError("small is never admitted")


def test_a_new_head_of_a_strict_queue_is_judged_by_itself() -> None:
    """The head that was refused waits behind it now."""
    found = Shared(STRICT)
    found.submit_one_of("large", "a", 3, created=5)
    found.come_to_rest()
    for name, local, gpus, created in (("older", "a", 4, 1), ("first", "b", 1, 2), ("second", "b", 2, 3)):
        found.submit_one_of(name, local, gpus, created=created)
    fresh = found.fresh()
    assert found.admits(fresh) == found.admits(found.engine) == ["first"]
    for engine in (found.engine, fresh):
        engine.commit(engine.decide(found.now), 1)
        head = engine_state.entry(engine, "older")
        assert head.reason is not None
        assert head.reason.code is Code.WAITING_FOR_QUOTA


@pytest.mark.parametrize(
    ("ran", "decided"),
    [(False, ["Evict"]), (True, ["Admit", "Evict"])],
    ids=["waited then and runs now", "ran then and waits now"],
)
def test_a_kind_that_cannot_be_read_is_not_judged_by_what_a_standby_read_of_it(
    ran: bool, decided: list[str]
) -> None:
    """The ledger is newer than what was read before it was loaded."""
    found, late = Shared(), WorkloadId("uid-late")
    found.submit_one_of("late", "a", 1, created=1)
    if ran:
        found.come_to_rest()
    before = found.seen(late)
    if ran:
        found.write(late, spec=False, workload=replace(found.jobs[late].workload, hold=True))
    found.come_to_rest()
    found.submit_one_of("other", "b", 1, created=2)
    found.come_to_rest()  # what is acknowledged is stored with the next decision
    for listed, expected in ((frozenset(found.jobs), decided), (None, [])):
        engine = Engine(SOURCES)
        engine.restore(found.loaded())
        policies = found.everything()[: -len(found.jobs_listed())]
        others = (found.seen(uid) for uid in found.jobs if uid != late)
        engine.handle([*policies, *others, before, Listed("Job", listed)])
        assert [type(one).__name__ for one in engine.decide(found.now).decisions] == expected
    engine.handle(found.jobs_listed())
    assert engine.decide(found.now).decisions == ()


def test_pods_of_a_start_that_is_not_acknowledged_are_counted_once_it_was_suspended_and_changed() -> None:
    """The ledger has neither the answer to the start nor the stop: it lost both, or a client was faster."""
    found, late = Shared(), WorkloadId("uid-late")
    found.submit_one_of("late", "a", 1, created=1)
    found.come_to_rest()
    found.write(late, suspended=True, workload=replace(workload("late", "a", 2, created=1), id=late))
    (decision,) = found.fresh().decide(found.now).decisions
    assert isinstance(decision, Evict)
    assert decision.reason.code is Code.BYPASS
