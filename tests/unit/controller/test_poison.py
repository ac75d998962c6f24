"""A workload that the ledger can't store, or that no decision is legal for, does not stop the others."""

from __future__ import annotations

import pytest

from queuectl.controller import commits
from queuectl.controller import quarantine as set_aside
from queuectl.core.decisions import Admit, Configure, Decision, Enqueue, Keep, Plan, subject
from queuectl.core.engine import Engine
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Phase, WorkloadId
from queuectl.core.transitions import IllegalTransition
from tests.builders import GPU, local_queue, pod_set, queue, workload
from tests.doubles import engine_state
from tests.unit.controller.fakes import opened
from tests.unit.controller.site import Site

POISON = WorkloadId("uid-poison")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_FIRST_RETRY", 0.001)
    monkeypatch.setattr(commits, "_LAST_RETRY", 0.002)
    monkeypatch.setattr(set_aside, "_SUSPECTED", 0.1)
    monkeypatch.setattr(set_aside, "_FIRST_THAW", 0.01)
    monkeypatch.setattr(set_aside, "_LAST_THAW", 0.02)


def about_poison(decision: Decision) -> bool:
    return not isinstance(decision, Configure) and subject(decision) == POISON


async def test_a_workload_that_cannot_be_stored_is_set_aside_and_all_others_go_on() -> None:
    site = Site()
    site.policies += [queue("other", 1), local_queue("other", "other")]
    site.ledger.fails = about_poison
    async with site.leading():
        site.cluster.submit(workload("poison"), workload("same", created=1), workload("far", "other"))
        await site.until(lambda: site.cluster.running() == ["far", "same"])
        site.ledger.fails = lambda decision: False
        await site.until(lambda: site.cluster.running() == ["far", "poison", "same"])
    sequences = [row.sequence for row in site.store.decisions]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_an_admission_that_cannot_be_stored_keeps_nothing_from_the_next_in_its_queue() -> None:
    """Only a second admission tells the first from an outage, and it waits for the quota of the first."""
    site = Site()
    site.ledger.fails = lambda decision: isinstance(decision, Admit) and about_poison(decision)
    async with site.leading():
        site.cluster.submit(workload("poison", gpus=2), workload("next", gpus=2, created=1))
        await site.until(lambda: site.cluster.running() == ["next"])
        site.ledger.fails = lambda decision: False
        site.cluster.finish("next")
        await site.until(lambda: site.cluster.running() == ["poison"])


async def test_a_workload_that_is_set_aside_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "_FIRST_THAW", 3600)
    monkeypatch.setattr(set_aside, "_LAST_THAW", 3600)
    site = Site()
    site.ledger.fails = lambda decision: isinstance(decision, Admit) and about_poison(decision)

    def told() -> bool:
        reason = site.store.workloads[POISON].reason
        return reason is not None and reason.code is Code.LEDGER_MISMATCH

    async with site.leading():
        site.cluster.submit(workload("poison"), workload("next", created=1))
        await site.until(lambda: site.cluster.running() == ["next"] and told())
    assert site.store.workloads[POISON].phase is Phase.PENDING


@pytest.mark.parametrize("kind", [Enqueue, Admit], ids=["every decision", "every admission"])
async def test_where_nothing_of_a_kind_can_be_stored_no_workload_is_set_aside(
    kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    """A right that was revoked, a full disk: the whole ledger, not one workload."""
    site = Site()
    tried: list[Decision] = []

    def fails(decision: Decision) -> bool:
        if isinstance(decision, kind):
            tried.append(decision)
        return isinstance(decision, kind)

    async with site.leading() as controller:
        await site.until(lambda: controller.ready)
        site.ledger.fails = fails
        site.cluster.submit(*(workload(f"w{n}", created=n) for n in range(5)))
        await site.until(lambda: len(tried) > 100)
        assert site.cluster.running() == []
        site.ledger.fails = lambda decision: False
        await site.until(lambda: len(site.cluster.running()) == 2)
    assert "is set aside, the others" not in caplog.text
    reasons = {row.reason.code for row in site.store.decisions if row.reason is not None}
    assert Code.LEDGER_MISMATCH not in reasons


async def test_a_leader_stops_while_a_plan_cannot_be_stored() -> None:
    site = Site()
    tried: list[Decision] = []
    async with site.leading() as controller:
        await site.until(lambda: controller.ready)
        site.ledger.fails = lambda decision: not tried.append(decision)  # type: ignore[func-returns-value]
        site.cluster.submit(workload("a"))
        await site.until(lambda: len(tried) > 10)
    site.ledger.fails = lambda decision: False
    async with site.leading():
        await site.until(lambda: site.cluster.running() == ["a"])


async def test_an_illegal_decision_sets_its_workload_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decide = Engine.decide

    def illegal(self: Engine, *args: object, **kwargs: object) -> Plan:
        plan = decide(self, *args, **kwargs)  # type: ignore[arg-type]
        for decision in plan.decisions:
            if about_poison(decision) and not isinstance(decision, Keep):
                raise IllegalTransition(engine_state.entry(self, POISON), Phase.FINISHED, decision)
        return plan

    monkeypatch.setattr(Engine, "decide", illegal)
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("poison"), workload("a", created=1))
        await site.until(lambda: site.cluster.running() == ["a"])
    assert "is not in the table of transitions" in caplog.text
    assert "observed" in caplog.text.lower()


async def test_a_running_workload_that_no_row_can_hold_leaves_its_tree_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    site.policies += [queue("cq", 2, cohort="all"), queue("other", 1, cohort="all")]
    site.policies.append(local_queue("other", "other"))
    async with site.leading():
        site.cluster.submit(workload("poison", pods=[pod_set(2**63, {GPU: 1})]))
        site.cluster.tell("poison", suspended=False)
        site.cluster.submit(workload("same", created=1), workload("far", "other", created=1))
        await site.until(lambda: {"same", "far"} < set(site.cluster.running()))
    assert "is frozen, the ledger refuses it" not in caplog.text
    assert set(opened(await site.ledger.load())) == {"same", "far"}
