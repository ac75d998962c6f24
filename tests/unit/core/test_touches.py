"""An object that is observed again with an equal value routes no workload, whatever else of it changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest

from queuectl.core.model.budgets import HOUR, Budget, BudgetMode, BudgetPeriods, PeriodKind
from queuectl.core.model.device_use import IdlePolicy
from queuectl.core.model.devices import (
    Device,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from queuectl.core.model.events import ContextGone, ContextObserved, PolicyGone, PolicyObserved
from queuectl.core.model.pod_limits import Counts, HardLimit, LimitRange, NamespaceQuota
from queuectl.core.model.policy import (
    Cohort,
    Context,
    Gate,
    Namespace,
    Node,
    Policy,
    PriorityClass,
    RuntimeClass,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind, UsageLimit
from queuectl.core.model.workload import ConfigKey
from queuectl.core.queues.inadmissible import Requeuer
from queuectl.core.state import EngineState
from tests.builders import GPU, T0, World, flavor, local_queue, policy, queue, workload

POLICIES: list[Policy] = [
    queue("cq", 2, cohort="all"),
    Cohort(name="all"),
    flavor("default"),
    local_queue("lq", "cq"),
    WorkloadPriorityClass("high", 10),
    UsageLimit(name="all", target=LimitTarget("Cohort", "all"), subject=LimitSubject(SubjectKind.ALL)),
    IdlePolicy(name="all", target=LimitTarget("Cohort", "all"), notify_after=600),
    Budget(
        name="all",
        target=LimitTarget("Cohort", "all"),
        subject=LimitSubject(SubjectKind.ALL),
        resource=GPU,
        amount=HOUR,
        periods=BudgetPeriods(PeriodKind.MONTH),
        mode=BudgetMode.METERED,
    ),
]
CONTEXTS: list[Context] = [
    Namespace("ns", (("team", "a"),)),
    PriorityClass("urgent", 7),
    RuntimeClass("kata", ((GPU, 1),)),
    Node("n1", allocatable=((GPU, 8),)),
    ResourceSlice(name="s1", driver="d", pool="p"),
    DeviceTaintRule(name="r1", key="k", effect="NoSchedule"),
    LimitRange("ns/limits"),
    NamespaceQuota("ns/quota", (HardLimit("pods", Counts.PODS, "pods", 100),)),
    ResourceClaim("ns/claim"),
    ResourceClaimTemplate("ns/template"),
    Gate("gate", T0 - timedelta(days=1)),  # the only one of its kind
]
WORKLOADS = 20


class Work:
    """Counts workloads that are routed, and pending queues that are nominated again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.routed = self.renominated = 0
        route, renominate = EngineState.route, Requeuer.renominate

        def counted_route(state: EngineState, entry: object) -> None:
            self.routed += 1
            route(state, entry)  # type: ignore[arg-type]

        def counted_renominate(requeuer: Requeuer, queue: object) -> None:
            self.renominated += 1
            renominate(requeuer, queue)  # type: ignore[arg-type]

        monkeypatch.setattr(EngineState, "route", counted_route)
        monkeypatch.setattr(Requeuer, "renominate", counted_renominate)

    def take(self) -> tuple[int, int]:
        done, self.routed, self.renominated = (self.routed, self.renominated), 0, 0
        return done


def world_of(*, at_rest: bool) -> World:
    """A world with two workloads that hold quota and many that wait; or with steps that are still due."""
    world = World(*POLICIES)
    world.tell(*(ContextObserved(value, _key(value), "{}") for value in CONTEXTS))
    world.submit(*(workload(f"w{number}") for number in range(WORKLOADS)))
    if at_rest:
        world.run()
        world.settle()
    return world


def _key(value: Context) -> ConfigKey | None:
    return ConfigKey("PriorityClass", "", value.name) if isinstance(value, PriorityClass) else None


def test_the_tables_have_every_kind() -> None:
    assert {type(value) for value in POLICIES} == set(get_args(Policy))
    assert {type(value) for value in CONTEXTS} == set(get_args(Context))


@pytest.mark.parametrize("at_rest", [True, False], ids=["at rest", "with steps due"])
@pytest.mark.parametrize("value", POLICIES, ids=lambda value: type(value).__name__)
def test_a_policy_object_with_another_spec_and_an_equal_value_routes_no_workload(
    value: Policy, at_rest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(at_rest=at_rest)
    work = Work(monkeypatch)
    event = policy(value)
    world.tell(PolicyObserved(event.key, event.value, '{"description":"another"}'))
    assert work.take() == (0, 0)


@pytest.mark.parametrize("at_rest", [True, False], ids=["at rest", "with steps due"])
@pytest.mark.parametrize("value", CONTEXTS, ids=lambda value: type(value).__name__)
def test_a_context_object_with_an_equal_value_routes_no_workload(
    value: Context, at_rest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(at_rest=at_rest)
    work = Work(monkeypatch)
    world.tell(ContextObserved(value, _key(value), '{"another":1}'))
    assert work.take() == (0, 0)


@pytest.mark.parametrize("at_rest", [True, False], ids=["at rest", "with steps due"])
@pytest.mark.parametrize("value", CONTEXTS[:-1], ids=lambda value: type(value).__name__)
def test_the_end_of_an_object_that_is_not_known_routes_no_workload(
    value: Context, at_rest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(at_rest=at_rest)
    work = Work(monkeypatch)
    world.tell(ContextGone(type(value), "ns/unknown" if "/" in value.name else "unknown"))
    assert work.take() == (0, 0)


@pytest.mark.parametrize("value", POLICIES, ids=lambda value: type(value).__name__)
def test_the_end_of_a_policy_object_that_is_not_known_routes_no_workload(
    value: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(at_rest=True)
    work = Work(monkeypatch)
    key = policy(value).key
    world.tell(PolicyGone(ConfigKey(key.kind, key.namespace, "unknown")))
    assert work.take() == (0, 0)


def test_a_priority_class_with_another_value_routes_all_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(at_rest=True)
    work = Work(monkeypatch)
    world.tell(ContextObserved(PriorityClass("urgent", 8)))
    assert work.take()[0] == WORKLOADS
    world.tell(ContextObserved(RuntimeClass("kata", ((GPU, 2),))))
    assert work.take()[0] == WORKLOADS
    world.tell(policy(WorkloadPriorityClass("high", 11)))
    assert work.take()[0] == WORKLOADS


def test_a_taint_rule_that_did_not_change_counts_no_devices_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*POLICIES, settings=SchedulingConfiguration())
    rule = DeviceTaintRule(name="r1", key="k", effect="NoSchedule")
    devices = tuple(Device(name=f"d{number}", resource=GPU, node="n1") for number in range(2))
    world.tell(
        ContextObserved(ResourceSlice(name="s1", driver="d", pool="p", devices=devices)),
        ContextObserved(rule),
    )
    nodes = world.engine.features.devices.nodes
    assert nodes.observe(replace(rule)) == []
