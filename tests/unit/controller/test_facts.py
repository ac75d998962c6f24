"""After any sequence of commits that fail, readers know what a new leader would tell them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.controller import commits
from queuectl.controller import quarantine as set_aside
from queuectl.controller.reports import PendingFacts
from queuectl.core.decisions import Admit, Plan
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.policy import Node
from queuectl.core.model.workload import ForReaders, PodsReady, WorkloadId
from queuectl.ports.ledger import LedgerRefused, PlanFailed
from tests.builders import GPU, local_queue, queue, workload
from tests.doubles.ledger import MemoryLedger, MemoryStore, nodes_after
from tests.unit.controller.fakes import CrashingLedger
from tests.unit.controller.site import Site

NODES = tuple("abcdefgh")


# --- without a loop ---------------------------------------------------------------------------------


@dataclass
class Readers:
    """A ledger of nodes and of ready pods, as the ledger keeps them."""

    nodes: dict[str, tuple[int, NodeFacts]] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)
    batch: int = 0

    def store(self, told: ForReaders) -> None:
        self.batch += 1
        self.nodes = nodes_after(self.nodes, told, self.batch)
        self.pods |= {one.workload: one.ready for one in told.pods_ready}

    @property
    def there(self) -> dict[str, NodeFacts]:
        return {name: one for name, (_, one) in self.nodes.items() if not one.gone}


class Cluster:
    """What changes, and what a leader tells of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {"a": 1, "b": 1}
        self.pods: dict[str, int] = {}
        self.facts = PendingFacts()
        self.readers = Readers({"old": (0, fact("old", 1))})
        self.now = 0.0
        self.stored_at = 0.0
        self.facts.tell_all_nodes(tuple(self.nodes))
        self.facts.tell("nodes", ((name, fact(name, gpus)) for name, gpus in self.nodes.items()))

    def change(self, name: str, gpus: int) -> None:
        """A node has so many GPUs now; 0: it is gone."""
        if gpus:
            self.nodes[name] = gpus
        else:
            self.nodes.pop(name, None)
        self.facts.tell("nodes", [(name, fact(name, gpus))])
        self.pods[name] = gpus
        self.facts.tell("pods_ready", [(name, PodsReady(WorkloadId(name), 1, gpus))])

    def round(self, fails: Callable[[ForReaders], bool]) -> None:
        """As the loop does once in a period."""
        self.now += 100.0
        while (part := self.facts.take(self.now)) is not None:
            if fails(part.told):
                self.facts.failed(part, self.now, self.now + 1, self.stored_at)
                return
            self.readers.store(part.told)
            self.stored_at = self.now

    def commit(self) -> None:
        """Something else is stored."""
        self.stored_at = self.now = self.now + 2.0


def fact(name: str, gpus: int) -> NodeFacts:
    return NodeFacts(name=name, node=Node(name, allocatable=((GPU, gpus),)) if gpus else None)


CHANGES = st.tuples(st.sampled_from(NODES), st.integers(0, 3))
STEPS = st.lists(st.one_of(CHANGES, st.booleans(), st.none()), max_size=30)


@given(STEPS)
def test_after_any_sequence_of_failed_commits_readers_know_all(steps: list[Any]) -> None:
    """A pair: a change; a bool: a round in which all commits fail, or none; None: another commit."""
    cluster = Cluster()
    for step in steps:
        if isinstance(step, bool):
            cluster.round(lambda told, fails=step: fails)  # type: ignore[misc]
        elif step is None:
            cluster.commit()
        else:
            cluster.change(*step)
    cluster.round(lambda told: False)
    assert not cluster.facts
    assert {name: one.node.allocatable for name, one in cluster.readers.there.items() if one.node} == {
        name: ((GPU, gpus),) for name, gpus in cluster.nodes.items()
    }
    assert cluster.readers.pods == cluster.pods


@given(STEPS, st.sampled_from(NODES))
def test_a_fact_that_cannot_be_stored_keeps_no_other_from_readers(steps: list[Any], poison: str) -> None:
    cluster = Cluster()

    def fails(told: ForReaders) -> bool:
        return any(one.name == poison and not one.gone for one in told.nodes)

    for step in [*steps, (poison, 2)]:
        if isinstance(step, bool):
            cluster.round(fails)
        elif step is not None:
            cluster.change(*step)
    for _ in range(16):  # each halves the part that fails
        cluster.commit()
        cluster.round(fails)
    there = {name: one for name, one in cluster.readers.there.items() if name != poison}
    assert there == {name: fact(name, gpus) for name, gpus in cluster.nodes.items() if name != poison}
    assert cluster.readers.pods == cluster.pods
    cluster.change("a" if poison != "a" else "b", 3)
    before = cluster.readers.batch
    cluster.round(fails)
    assert cluster.readers.batch > before, "a later fact is not tried together with the one that fails"
    cluster.round(lambda told: False)
    assert cluster.readers.there[poison] == fact(poison, 2)


def test_facts_are_not_divided_while_nothing_can_be_stored() -> None:
    cluster = Cluster()
    for _ in range(10):
        cluster.round(lambda told: True)
    part = cluster.facts.take(cluster.now + 100.0)
    assert part is not None
    assert len(part.told.nodes) == 2


def test_facts_that_take_long_to_fail_are_tried_for_a_tenth_of_the_time() -> None:
    facts = PendingFacts()
    facts.tell("nodes", [("a", fact("a", 1))])
    part = facts.take(0.0)
    assert part is not None
    facts.failed(part, 0.0, 30.0, 0.0)
    assert facts.take(320.0) is None
    assert facts.take(331.0) is not None


# --- with a loop ------------------------------------------------------------------------------------


class FailingLedger(CrashingLedger):
    """Fails commits as `random` says, and refuses those with facts or admissions."""

    random = random.Random(0)
    rate = 0.0

    async def commit(self, plan: Plan, *args: Any, **named: Any) -> int:
        chance = self.random.random()
        admits = any(isinstance(decision, Admit) for decision in plan.recorded)
        if chance < self.rate / 2 and (admits or any(named.get("for_readers", ()))):
            raise LedgerRefused("not this one")
        if chance < self.rate:
            raise PlanFailed("not now", "57014")
        return await super().commit(plan, *args, **named)


def known(store: MemoryStore) -> dict[str, Any]:
    return {
        "pods": {one.workload: one.ready for _, one in store.pods_ready.values()},
        "lines": {name: one for name, (_, one) in store.lines.items()},
        "capacities": {name: one for name, (_, one) in store.capacities.items()},
        "demands": {name: one for name, (_, one) in store.demands.items()},
        "nodes": {name: one for name, (_, one) in store.nodes.items() if not one.gone},
    }


@pytest.mark.parametrize("seed", range(6))
async def test_readers_know_what_a_new_leader_would_tell_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((commits, "_FIRST_RETRY"), (commits, "_LAST_RETRY"), (set_aside, "_SUSPECTED")):
        monkeypatch.setattr(module, name, 0.002)
    for name in ("_FIRST_THAW", "_LAST_THAW"):
        monkeypatch.setattr(set_aside, name, 0.005)
    site, rng = Site(), random.Random(seed)
    site.confirm_seconds = 0.01
    site.policies += [queue("bad", 2), local_queue("bad", "bad")]
    failing = FailingLedger(site.memory, site.crashes)
    failing.random, failing.rate = rng, 0.5
    site.ledger = failing
    nodes: dict[str, ContextObserved] = {}
    async with site.leading():
        site.cluster.submit(*(workload(f"w{n}", rng.choice(("lq", "bad")), created=n) for n in range(8)))
        for _ in range(30):
            name = rng.choice(NODES)
            if nodes.pop(name, None) is None:
                nodes[name] = ContextObserved(Node(name, allocatable=((GPU, rng.randrange(1, 9)),)))
                site.cluster.emit([nodes[name]])
            else:
                site.cluster.emit([ContextGone(Node, name)])
            for running in site.cluster.running():
                site.cluster.tell(running, pods_ready=rng.randrange(3))
            batch = site.store.batch
            await site.until(lambda batch=batch: site.store.batch > batch)  # type: ignore[misc]
        failing.rate = 0.0
        before: dict[str, Any] = {}
        while before != (before := known(site.store)):
            batch = site.store.batch
            await site.until(lambda batch=batch: site.store.batch > batch + 20)  # type: ignore[misc]
    empty: dict[Any, Any] = {}
    site.store = replace(site.store, pods_ready=empty.copy(), lines=empty.copy(), capacities=empty.copy())
    site.store = replace(site.store, demands=empty.copy(), nodes=empty.copy())
    site.ledger = CrashingLedger(MemoryLedger(site._clock, site.store), site.crashes)
    async with site.leading():
        site.cluster.emit(nodes.values())
        await site.until(lambda: known(site.store) == before)


async def test_a_fact_that_cannot_be_stored_is_stored_as_soon_as_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It needs no change for that."""
    site = Site()
    site.ledger.fails_pods = True
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.cluster.tell("a", pods_ready=1)
        await site.until(lambda: site.ledger.failed_pods >= 2)
        site.ledger.fails_pods = False
        await site.until(lambda: [one.ready for _, one in site.store.pods_ready.values()] == [1])
