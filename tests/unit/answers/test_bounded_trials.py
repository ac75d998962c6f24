"""Trials cost no more than they may, end when nothing waits for them, and leave no engine behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queuectl.answers.forecast import forecast
from queuectl.answers.forecast.forecast import settle
from queuectl.answers.what_if import counterfactuals as search
from queuectl.answers.what_if import engines, trials
from queuectl.answers.what_if.counterfactuals import counterfactuals, quote
from queuectl.answers.what_if.engines import planned
from queuectl.answers.what_if.trials import Abandoned, Trials
from queuectl.core.copies import dissolve
from queuectl.core.decisions import Keep, Plan
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved
from queuectl.core.model.policy import Namespace, Policy
from queuectl.core.model.what_if import ChangeKind
from queuectl.core.model.workload import ConfigKey, LedgerSnapshot, Workload
from queuectl.ports.reader import NotAtRest
from queuectl.scenarios.rebuilt_engine import observed
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    flavor,
    listed,
    local_queue,
    pending_row,
    pod_set,
    policy,
    queue,
    workload,
)


def of_one_queue(*quotas: int, waiting: int = 1) -> Trials:
    """A ClusterQueue `cq` with a workload that waits for 9 GPUs, and others beside it in its cohort."""
    names = ("cq", *(f"cq{number}" for number in range(1, len(quotas))))
    queues = [queue(name, quota, cohort="all") for name, quota in zip(names, quotas, strict=True)]
    locals_ = [local_queue("lq" if name == "cq" else f"lq-{name}", name) for name in names]
    objects: list[Policy] = [flavor("default"), *queues, *locals_, local_queue("more", "cq")]
    events = [policy(one) for one in objects]
    jobs = [workload(f"w{number}", gpus=9, created=number) for number in range(waiting)]
    rows = [pending_row(one, arrival=number, pod_sets=one.pod_sets) for number, one in enumerate(jobs)]
    engine = Engine(SOURCES)
    engine.restore(LedgerSnapshot(sequence=1, now=T0, workloads=tuple(rows)))
    seen = [observed(one, frozenset()) for one in rows]
    engine.handle([ContextObserved(Namespace("ns")), *events, *seen, *listed(one.id for one in rows)])
    return Trials(engine, rows, events, T0, 1)


def of_many_podsets(number: int) -> Workload:
    return workload("many", pods=[pod_set(2, {GPU: 2}, name=f"p{one}") for one in range(number)])


@pytest.mark.parametrize("podsets", [1, 64, 512])
def test_a_search_costs_no_more_than_the_bounds_of_its_kinds(podsets: int) -> None:
    of = of_one_queue(podsets * 4 - 1, waiting=0)
    asked = of_many_podsets(podsets)
    before = of.work
    of.with_workload(asked)
    one = of.work - before
    before = of.work
    found = quote(of, asked)
    kinds = len(ChangeKind) - 1
    assert of.work - before <= kinds * (search.MOST_WORK_EACH + one) + search.MOST_WORK + one + one
    incomplete = {ChangeKind.FEWER_PODS, ChangeKind.SMALLER_PODS} if podsets == 512 else set()
    assert incomplete <= set(found.incomplete)
    assert found.found, "what was found before the bound is told"


def test_every_kind_of_change_stops_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_WORK_EACH", -1)
    monkeypatch.setattr(search, "MOST_WORK", -1)
    of = of_one_queue(4)
    found = quote(of, of_many_podsets(3))
    assert not found.found
    kinds = {ChangeKind.FEWER_PODS, ChangeKind.SMALLER_PODS, ChangeKind.OTHER_QUEUE, ChangeKind.MORE_QUOTA}
    assert kinds <= set(found.incomplete)


QUESTIONS: dict[str, Callable[[Trials], object]] = {
    "counterfactuals": lambda of: counterfactuals(of, next(iter(of.workloads))),
    "quote": lambda of: quote(of, of_many_podsets(3)),
    "plan": lambda of: planned(of, [policy(queue("cq", 30))]),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("after", [0, 1])
def test_an_abandoned_question_ends_and_changes_nothing(question: str, after: int) -> None:
    ask, of = QUESTIONS[question], of_one_queue(4)
    expected = ask(of_one_queue(4))
    asked = iter(range(1000))
    of.abandoned = lambda: next(asked) >= after
    with pytest.raises(Abandoned):
        ask(of)
    assert next(asked) == after + 1, "nothing was tried after that"
    of.abandoned = lambda: False
    assert ask(of) == expected


class Restless:
    """Decides without an end once a change is tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans = 0
        self.dissolved = 0
        decide = Engine.decide

        def restless(engine: Engine, *args: Any, **how: Any) -> Plan:
            self.plans += 1
            assert self.plans < 5 * trials.PLANS, "it goes on without an end"
            found = decide(engine, *args, **how)
            return found if engine in self.calm else _more(found)

        def dissolved(engine: object) -> None:
            self.dissolved += 1
            dissolve(engine)

        self.calm: list[Engine] = []
        monkeypatch.setattr(Engine, "decide", restless)
        monkeypatch.setattr(trials, "dissolve", dissolved)
        monkeypatch.setattr(engines, "dissolve", dissolved)


def _more(made: Plan) -> Plan:
    return replace(made, more=True)


def test_a_trial_that_does_not_come_to_rest_ends_and_frees_its_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "PLANS", 20)
    of = of_one_queue(4)
    restless = Restless(monkeypatch)
    restless.calm.append(of._engine)
    larger = queue("cq", 5)
    with pytest.raises(NotAtRest, match="within 20 plans"):
        of.with_policy(ConfigKey("ClusterQueue", "", "cq"), larger, workload("new", gpus=9))
    assert restless.plans <= 21
    assert restless.dissolved == 1


def test_an_engine_that_fails_during_a_trial_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    of = of_one_queue(4)
    restless = Restless(monkeypatch)
    restless.calm.append(of._engine)

    def fails(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(Engine, "commit", fails)
    with pytest.raises(KeyError):
        of.with_policy(ConfigKey("ClusterQueue", "", "cq"), queue("cq", 5), workload("new", gpus=9))
    with pytest.raises(KeyError):
        planned(of, [policy(queue("cq", 30))])
    assert restless.dissolved == 2


def test_a_forecast_of_a_state_that_does_not_come_to_rest_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecast, "PLANS", 20)
    engine = of_one_queue(4)._engine
    engine.handle([policy(queue("cq", 5))])
    found = engine.decide(T0)
    reasons = replace(found, decisions=tuple(one for one in found.decisions if isinstance(one, Keep)))
    asked = 0

    class Always:
        def decide(self, now: object) -> Plan:
            nonlocal asked
            asked += 1
            assert asked < 1000, "it goes on without an end"
            return reasons

        def commit(self, plan: Plan, sequence: int) -> None: ...

    assert reasons.decisions
    with pytest.raises(NotAtRest, match="within 20 plans"):
        settle(Always(), T0, 1)  # type: ignore[arg-type]
    assert asked == 20
