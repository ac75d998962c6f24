"""Counterfactuals: each lets the workload start when it is applied, and no smaller one of its kind does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TypeVar

import pytest

from queuectl.answers import trial_snapshot
from queuectl.answers.trial_snapshot import without_alike
from queuectl.answers.what_if import counterfactuals as search
from queuectl.answers.what_if.counterfactuals import counterfactuals, with_quota
from queuectl.answers.what_if.trials import (
    BUDGET,
    TooFewWorkloads,
    Trials,
    by_subject,
    commit,
    tried,
)
from queuectl.core.decisions import Decision
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, Event, Listed, PolicyObserved, WorkloadObserved
from queuectl.core.model.policy import (
    BorrowWithinCohort,
    ClusterQueue,
    Namespace,
    Policy,
    Preemption,
    PreemptionPolicy,
    WorkloadPriorityClass,
)
from queuectl.core.model.what_if import Change, ChangeKind, Counterfactual
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    LedgerSnapshot,
    Phase,
    PodSetAssignment,
    StoredWorkload,
    UserOptions,
    Workload,
    WorkloadId,
)
from queuectl.scenarios.rebuilt_engine import SUSPENDED, observed
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    flavor,
    listed,
    local_queue,
    pending_row,
    policy,
    queue,
    workload,
)
from tests.unit.core import profiles
from tests.unit.core.actions import on_quota, play
from tests.unit.core.driver import Driver, wait_for
from tests.unit.core.features.budgets.test_laws import with_budgets

T = TypeVar("T")
SEEN: Counter[ChangeKind] = Counter()


SEEDS = profiles.spread(100)


def at_rest(dice: Random, world: Callable[[bytes], Driver] = on_quota) -> Driver:
    """A random world after random actions. Its bytes are uniform: full queues are wanted, not simple ones."""
    jobs, script = ([dice.randbytes(36) for _ in range(dice.randrange(3, most))] for most in (8, 10))
    running = play(world(dice.randbytes(420)), jobs, script)
    running.come_to_rest()
    return running


def trials(running: Driver) -> Trials:
    policies = [event for event in running.everything() if isinstance(event, PolicyObserved)]
    stored = running.ledger.store
    return Trials(
        running.fresh(),
        tuple(stored.workloads.values()),
        policies,
        running.now,
        len(stored.decisions),
    )


def known(value: T | None) -> T:
    assert value is not None
    return value


def applied(change: Change, own: Workload, running: Driver) -> Event:
    """The event of this change, made without the code that found it."""
    pods = {one.name: one for one in own.pod_sets}
    match change.kind:
        case ChangeKind.FEWER_PODS:
            of = pods[known(change.pod_set)]
            least = of.min_count if of.min_count is not None and of.min_count < known(change.after) else None
            pods[of.name] = replace(of, count=known(change.after), min_count=least)
        case ChangeKind.SMALLER_PODS:
            of = pods[known(change.pod_set)]
            requests = {**dict(of.requests), known(change.resource): known(change.after)}
            pods[of.name] = replace(of, requests=tuple(sorted(requests.items())))
        case ChangeKind.OTHER_QUEUE:
            own = replace(own, queue=known(change.name))
        case ChangeKind.OTHER_PRIORITY:
            own = replace(own, priority_class=change.name)
        case ChangeKind.MORE_QUOTA:
            value = running.policy.queues[known(change.node).removeprefix("ClusterQueue/")]
            more = known(change.after) - known(change.before)
            return policy(with_quota(value, known(change.flavor), known(change.resource), more))
        case ChangeKind.OTHER_FLAVOR:
            raise AssertionError("no workload of these worlds asks for a flavor")
    return WorkloadObserved(replace(own, pod_sets=tuple(pods.values())), SUSPENDED)


def starts(running: Driver, of: Trials, event: Event, workload: WorkloadId) -> bool:
    """Whether it starts or preempts, by an engine that decides until nothing is left to decide."""
    engine = of.fork()
    engine.handle([event])
    sequence = of.sequence
    found: list[Decision] = []
    for _ in range(100):
        plan = engine.decide(running.now, BUDGET)
        if not plan.decisions and not plan.more:
            return tried(workload, found).starts
        found += [decision for subject, decision in by_subject(plan) if subject == workload]
        sequence = commit(engine, plan, sequence)
    raise AssertionError("not at rest")


def smaller_ones(change: Change) -> list[Change]:
    """All changes of its kind that change less."""
    match change.kind:
        case ChangeKind.FEWER_PODS | ChangeKind.SMALLER_PODS:
            values = range(known(change.after) + 1, known(change.before))
        case ChangeKind.MORE_QUOTA:
            values = range(known(change.before) + 1, known(change.after))
        case _:
            return []
    return [replace(change, after=value) for value in values]


def apply_and_rest(running: Driver, one: Counterfactual, workload: WorkloadId) -> None:
    event = applied(one.change, running.jobs[workload].workload, running)
    if isinstance(event, WorkloadObserved):
        running.write(workload, workload=event.workload)
    else:
        assert isinstance(event, PolicyObserved)
        assert isinstance(event.value, ClusterQueue)
        running.set(event.value)
    running.deliver()
    running.come_to_rest()


@pytest.mark.parametrize("world", [on_quota, with_budgets])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_starts_the_workload_and_no_smaller_one_does(
    seed: int, world: Callable[[bytes], Driver]
) -> None:
    dice = Random(seed)
    running = at_rest(dice, world)
    of = trials(running)
    waiting = [one for one in of.workloads.values() if one.phase is Phase.PENDING]
    found: list[tuple[WorkloadId, Counterfactual]] = []
    for stored in waiting:
        answer = counterfactuals(of, stored.id)
        assert not answer.now.starts, "everything that can start has started"
        assert answer == counterfactuals(of, stored.id), "a trial has left something behind"
        own = running.jobs[stored.id].workload
        for one in answer.found:
            assert starts(running, of, applied(one.change, own, running), stored.id), one
            for less in smaller_ones(one.change):
                assert not starts(running, of, applied(less, own, running), stored.id), (less, one)
            found.append((stored.id, one))
            SEEN[one.change.kind] += 1
    if found:
        workload, one = dice.choice(found)
        apply_and_rest(running, one, workload)
        assert workload in running.admitted_since, one
        assert {victim.workload for victim in one.outcome.displaced} <= {v for v, _ in running.evicted}


def snapshot(running: Driver, dice: Random) -> LedgerSnapshot:
    """Its ledger, where each pending workload is one of many that are alike."""
    store = running.ledger.store
    workloads = list(store.workloads.values())
    number = max((one.arrival for one in workloads), default=0)
    for one in [one for one in workloads if one.phase is Phase.PENDING]:
        for copy in range(dice.choice((0, 1, 3, 24))):
            number += 1
            id = WorkloadId(f"{one.id}-{copy}")
            later = timedelta(seconds=dice.randrange(3))
            workloads.append(
                replace(
                    one,
                    id=id,
                    ref=one.ref._replace(name=id, uid=id),
                    arrival=number,
                    created_at=one.created_at + later,
                    reason=dice.choice((one.reason, None)),
                )
            )
    loaded = wait_for(running.ledger.load())
    return replace(loaded, workloads=tuple(sorted(workloads, key=lambda one: (one.arrival, one.id))))


def of_ledger(found: LedgerSnapshot, running: Driver, asked: StoredWorkload | None = None) -> Trials:
    """Trials on these workloads, with what the cluster has beside them. `asked`: the only one tried."""
    present, last = found.workloads, frozenset[WorkloadId]()
    if asked is not None:
        present, last = without_alike(found.workloads, asked.ref.namespace, asked.id)
    engine = Engine(SOURCES, running.setup.settings)
    engine.restore(replace(found, workloads=tuple(present)))
    beside = [one for one in running.everything() if not isinstance(one, WorkloadObserved | Listed)]
    seen = [observed(one, frozenset(found.effects)) for one in present]
    engine.handle([*beside, *seen, *listed(one.id for one in present)])
    policies = [one for one in beside if isinstance(one, PolicyObserved)]
    return Trials(engine, found.workloads, policies, running.now, found.sequence, last=last)


REDUCED = Counter[str]()


@pytest.mark.parametrize("seed", range(profiles.examples(30)))
@pytest.mark.parametrize("first", [(1, 1), (2, 16)])
def test_trials_without_workloads_that_are_alike_find_what_those_with_all_find(
    seed: int, first: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_snapshot, "FIRST", first[0])
    monkeypatch.setattr(trial_snapshot, "FIRST_OF_OWN", first[1])
    monkeypatch.setattr(search, "MOST_WORK", 1_000_000)  # those with all need more of it
    dice = Random(seed)
    running = at_rest(dice)
    found = snapshot(running, dice)
    whole = of_ledger(found, running)
    pending = [one for one in found.workloads if one.phase is Phase.PENDING]
    for stored in dice.sample(pending, min(6, len(pending))):
        try:
            few = counterfactuals(of_ledger(found, running, stored), stored.id)
        except TooFewWorkloads:
            REDUCED["too few"] += 1
            continue
        REDUCED["enough"] += 1
        all_of_them = counterfactuals(whole, stored.id)
        assert few.found == all_of_them.found, stored.ref
        assert (few.now.starts, few.incomplete) == (all_of_them.now.starts, all_of_them.incomplete)


def test_the_worlds_have_questions_with_enough_workloads_and_with_too_few() -> None:
    assert REDUCED["enough"] > REDUCED["too few"] > 0, REDUCED


def test_more_quota_may_make_another_queue_borrow_of_which_the_workload_preempts() -> None:
    """One GPU more goes to `small`: its queue borrows then, and `large` may preempt what held four."""
    lends = queue("lends", 4, cohort="all")
    takes = queue(
        "takes",
        0,
        cohort="all",
        preemption=Preemption(
            reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
            borrow_within_cohort=BorrowWithinCohort(most_priority=None),
        ),
    )
    classes = [WorkloadPriorityClass(name=name, value=value) for name, value in (("mid", 5), ("top", 9))]
    local_queues = [local_queue("a", "lends"), local_queue("b", "takes")]
    holds = workload("holds", "a", 4)
    held = PodSetAssignment(name="main", count=1, requests=((GPU, 4),), flavors=((GPU, "default"),))
    attempt = Attempt(
        workload=holds.id,
        number=1,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue="lends", pod_sets=(held,)),
        admitted_at=T0,
        sequence=1,
    )
    runs = replace(
        pending_row(holds, attempts=1, pod_sets=holds.pod_sets),
        phase=Phase.ADMITTED,
        queue="a",
        cluster_queue="lends",
        attempt=attempt,
    )
    small = workload("small", "a", 1, created=1, priority_class="top")
    large = workload("large", "b", 4, created=2, priority_class="mid")
    waiting = [
        replace(
            pending_row(one, arrival=number, pod_sets=one.pod_sets),
            queue=one.queue,
            cluster_queue=cluster_queue,
            priority=priority,
            options=UserOptions(priority_class=one.priority_class),
        )
        for number, (one, cluster_queue, priority) in enumerate(
            ((small, "lends", 9), (large, "takes", 5)), start=2
        )
    ]
    rows = [runs, *waiting]
    engine = Engine(SOURCES)
    engine.restore(LedgerSnapshot(sequence=1, now=T0, workloads=tuple(rows)))
    objects: list[Policy] = [flavor("default"), lends, takes, *local_queues, *classes]
    events = [policy(one) for one in objects]
    seen = [observed(one, frozenset()) for one in rows]
    engine.handle([ContextObserved(Namespace("ns")), *events, *seen, *listed(one.id for one in rows)])
    of = Trials(engine, rows, events, T0, 1)
    found = {one.change.kind: one for one in counterfactuals(of, large.id).found}
    assert found[ChangeKind.MORE_QUOTA].change.after == 1
    assert [one.workload for one in found[ChangeKind.MORE_QUOTA].outcome.displaced] == [holds.id]


def test_an_answer_does_not_depend_on_earlier_questions() -> None:
    """Of a StrictFIFO queue whose heads an earlier trial had left to be evaluated again."""
    dice = Random(841)
    running = at_rest(dice)
    found = snapshot(running, dice)
    asked, of = WorkloadId("uid-w6-4"), of_ledger(found, running)
    alone = counterfactuals(of_ledger(found, running), asked)
    for other in ("uid-w4-11", "uid-w3-0", "uid-w4-5"):
        counterfactuals(of, WorkloadId(other))
    assert counterfactuals(of, asked) == alone


def test_an_answer_does_not_depend_on_the_same_question_asked_before() -> None:
    """Once evaluated, the workload lacked another resource of its second flavor than its ledger says."""
    dice = Random(148)
    running = at_rest(dice)
    of = of_ledger(snapshot(running, dice), running)
    first, second = (counterfactuals(of, WorkloadId("uid-w2-19")) for _ in range(2))
    assert second == first


@pytest.mark.acceptance
def test_the_worlds_have_every_kind() -> None:
    assert len(SEEN) >= 4, SEEN
