"""The lifecycle of a workload: the table of docs/scheduling.md, section L, and the rules next to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from docs.tables import transitions
from queuectl.core.decisions import (
    Admit,
    Amend,
    Configure,
    Decision,
    Enqueue,
    Evict,
    Keep,
    Release,
    Retire,
    Shrink,
    Verdict,
    becomes_row,
    subject,
)
from queuectl.core.engine import Engine
from queuectl.core.entries import Entry
from queuectl.core.model.budgets import (
    Budget,
    BudgetEntry,
    BudgetMode,
    BudgetPeriods,
    EntryKind,
    Period,
    PeriodKind,
)
from queuectl.core.model.device_use import IdlePolicy, UseFinding, UseVerdict
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    DeviceUseFound,
    EffectSettled,
    Event,
    Listed,
    PodObserved,
    PodsCounted,
    PolicyGone,
    Result,
    TimeCame,
    WorkloadGone,
)
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Namespace, Node, RequeuingStrategy, SchedulingConfiguration, StopPolicy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    ForcedRelease,
    LedgerSnapshot,
    PastAttempts,
    Phase,
    PodSetAssignment,
    RecordedStop,
    StoredWorkload,
    Verb,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.queues.backoff import Timers
from queuectl.core.transitions import (
    ROWS,
    IllegalTransition,
    Transition,
    TransitionRow,
    check_transitions,
    transition,
)
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    local_queue,
    observed,
    pod_set,
    policy,
    priority,
    queue,
    workload,
)
from tests.doubles.engine_state import entries, state
from tests.unit.core.node_worlds import node

LQ = local_queue("lq", "cq")
ID = WorkloadId("uid-a")
TIMED_OUT = RecordedStop(1, WorkloadOutcome.TIMED_OUT)
LIMIT, TIMEOUT = 100, 30
SETTINGS = SchedulingConfiguration(
    pods_ready_timeout=TIMEOUT, requeueing=RequeuingStrategy(base_seconds=60, most_seconds=200)
)
A = workload("a", gpus=4, pods=[pod_set(4, {GPU: 1})], max_run_seconds=LIMIT)


class Life:
    """Workload `a` alone in a queue with four GPUs, and the decisions about it."""

    def __init__(self, settings: SchedulingConfiguration = SETTINGS, one: Workload = A) -> None:
        self.world = World(
            queue("cq", 4), queue("other", 4), LQ, local_queue("lo", "other"), settings=settings
        )
        self.one = one
        self.phase = Phase.PENDING
        self.code: Code | None = None
        self.reason: Reason | None = None
        self.made: list[Decision] = []
        self.generation = 1

    def run(self) -> list[Decision]:
        made = [d for d in self.world.run() if not isinstance(d, Configure | Enqueue)]
        for decision in (d for d in made if d.ref.name == "a"):
            match decision:
                case Admit():
                    self.phase, self.reason = Phase.ADMITTED, None
                case Keep(reason=reason):
                    self.reason = reason
                case Evict(reason=reason):
                    self.phase, self.reason = Phase.EVICTING, reason
                case Release():
                    self.phase = Phase.PENDING
                case Retire(outcome=outcome):
                    self.phase = Phase.DELETED if outcome is WorkloadOutcome.DELETED else Phase.FINISHED
                case _:
                    pass
        self.code = self.reason.code if self.reason is not None else None
        self.made += made
        return list(made)

    def see(self, **state: object) -> list[Decision]:
        self.world.tell(observed(self.one, **{"generation": self.generation} | state))
        return self.run()

    def tell(self, *events: Event) -> list[Decision]:
        self.world.tell(*events)
        return self.run()

    def edit(self, **fields: object) -> list[Decision]:
        """Change labels, annotations or the spec as a user does. All other observed fields remain."""
        self.one = replace(self.one, **fields)  # type: ignore[arg-type]
        return self.see(suspended=self.phase is Phase.PENDING)

    def wait(self, seconds: float) -> list[Decision]:
        self.world.pass_time(seconds)
        return self.run()

    def settle(self, result: Result = Result.DONE, detail: str | None = None) -> list[Decision]:
        (effect,) = (e for e in self.world.engine.take_effects() if e.key.workload == ID)
        self.generation += result is Result.DONE
        self.world.tell(EffectSettled(effect.key, result, self.generation, detail))
        return self.run()

    def count_pods(self) -> list[Decision]:
        number = max(d.attempt.number for d in self.made if isinstance(d, Admit) and d.ref.name == "a")
        self.world.tell(PodsCounted(ID, number, alive=False))
        return self.run()

    # --- phases

    def pending(self) -> Life:
        self.world.submit(workload("first", gpus=4, created=-1))
        self.see()
        assert (self.phase, self.code) == (Phase.PENDING, Code.WAITING_FOR_QUOTA)
        return self

    def admitted(self) -> Life:
        self.see()
        self.settle()
        self.see(suspended=False, ready=True)
        assert self.phase is Phase.ADMITTED
        return self

    def let_go(self) -> Life:
        self.see()
        return self

    def unready(self) -> Life:
        self.let_go().settle()
        return self

    def evicting(self) -> Life:
        self.admitted().edit(hold=True)
        self.edit(hold=False)
        assert self.phase is Phase.EVICTING
        return self

    def stopped(self) -> Life:
        """The stopped workload has no pods left."""
        self.settle()
        self.see(suspended=True)
        self.count_pods()
        return self


def stop(which: str, how: StopPolicy) -> Callable[[Life], object]:
    def event(life: Life) -> object:
        value = queue("cq", 4, stop=how) if which == "ClusterQueue" else local_queue("lq", "cq", stop=how)
        life.world.tell(policy(value))
        return life.run()

    return event


def leave_idle(life: Life, *, cancels: bool = False) -> None:
    """Its devices are idle, and after a notice they still are."""
    target = LimitTarget("LocalQueue", "lq", "ns")
    idle = IdlePolicy(name="x", target=target, notify_after=1, hold_after=2, cancels=cancels, dry_run=False)
    finding, until = UseFinding(UseVerdict.IDLE, 4, 4, 1.0), life.world.now + timedelta(seconds=9)
    life.tell(policy(idle), DeviceUseFound(ID, 1, finding, life.world.now, until))
    life.wait(0)
    life.wait(1)
    life.world.decided.clear()
    life.wait(1)


def preempt(life: Life) -> None:
    """Evict the workload as a preemption does."""
    reason = Reason(code=Code.PREEMPTED, by="ns/Job/urgent")
    plan = replace(life.world.plan(), decisions=(Evict(ID, A.ref, 1, reason, past=PastAttempts(run_ms=1)),))
    life.world.commit(plan)
    life.phase, life.reason, life.code = Phase.EVICTING, reason, Code.PREEMPTED


EVENTS: dict[str, Callable[[Life], object]] = {
    "it fits": lambda life: leave_room(life) if life.phase is Phase.PENDING else None,
    "it does not fit": lambda life: grow(life) if life.phase is Phase.PENDING else None,
    "its user holds it": lambda life: life.edit(hold=True),
    "its LocalQueue is held": stop("LocalQueue", StopPolicy.HOLD),
    "its ClusterQueue is held": stop("ClusterQueue", StopPolicy.HOLD),
    "its LocalQueue is drained": stop("LocalQueue", StopPolicy.HOLD_AND_DRAIN),
    "its ClusterQueue is drained": stop("ClusterQueue", StopPolicy.HOLD_AND_DRAIN),
    "its queue label names another LocalQueue": lambda life: life.edit(queue="lo"),
    "its queue label names no LocalQueue": lambda life: life.edit(queue="nowhere"),
    "its priority changes": lambda life: (
        life.tell(priority("high", 9)),
        life.edit(priority_class="high"),
    ),
    "what it requests changes": lambda life: life.edit(
        pod_sets=(replace(life.one.pod_sets[0], node_selector=(("disk", "ssd"),)),)
    ),
    "its run time is used up": lambda life: life.wait(LIMIT),
    "an IdlePolicy holds it": lambda life: leave_idle(life),
    "an IdlePolicy cancels it": lambda life: leave_idle(life, cancels=True),
    "what a budget reserved is used up": lambda life: outlive_reservation(life),
    "its pods are not ready in time": lambda life: (
        life.see(suspended=life.phase is Phase.PENDING, ready=False),
        life.wait(TIMEOUT),
    ),
    "a node under its pods is lost": lambda life: lose_a_node(life),
    "some of its pods have ended for good": lambda life: life.see(
        suspended=life.phase is Phase.PENDING, ready=True, reclaimable=(("main", 1),)
    ),
    "another workload preempts it": lambda life: preempt(life) if life.phase is Phase.ADMITTED else None,
    "its start is denied, or refused after an edit": lambda life: (
        life.settle(Result.DENIED, "no") if life.phase is Phase.ADMITTED else None
    ),
    "it finishes": lambda life: (
        life.settle() if life.phase is Phase.EVICTING else None,
        life.see(suspended=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True),
    ),
    "its object is deleted": lambda life: (
        life.tell(WorkloadGone(ID)),
        life.tell(PodsCounted(ID, 1, alive=False)),
    ),
    "another client suspends it": lambda life: life.see(suspended=True, generation=life.generation + 1),
    "another client starts it": lambda life: life.see(suspended=False, generation=life.generation + 1),
    "its object runs by an attempt that the ledger lost": lambda life: life.see(
        suspended=False, generation=life.generation + 1, admission=lost_attempt()
    ),
    "nothing of it is alive any more": lambda life: life.stopped() if life.phase is Phase.EVICTING else None,
    "the same, and its run time limit or an IdlePolicy ended it": lambda life: (
        end_by_limit(life) if life.phase is Phase.EVICTING else None
    ),
    "an admin releases its quota by force": lambda life: release_by_force(life),
}


def lost_attempt() -> Attempt:
    pods = PodSetAssignment(name="main", count=4, requests=((GPU, 1),), flavors=((GPU, "default"),))
    return Attempt(
        workload=ID,
        number=7,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue="cq", pod_sets=(pods,)),
        admitted_at=T0,
    )


PAGE = Path(__file__).parents[3] / "docs" / "scheduling.md"
P, A_, E = Phase.PENDING, Phase.ADMITTED, Phase.EVICTING
UNREADY = ("its pods are not ready in time", "its start is denied, or refused after an edit")
"""Of a workload that runs, and whose pods have not been ready yet."""


def end_by_limit(life: Life) -> None:
    life.settle()
    life.see(suspended=True, stopped=TIMED_OUT)
    life.count_pods()


def leave_room(life: Life) -> None:
    first = workload("first", gpus=4, created=-1)
    life.world.tell(WorkloadGone(first.id), PodsCounted(first.id, 1, alive=False))
    life.run()


def outlive_reservation(life: Life) -> None:
    """It has reserved of a budget, as a new process loads it, and that ends now."""
    now = life.world.now
    entry = BudgetEntry(
        kind=EntryKind.RESERVE,
        budget="x",
        subject="",
        resource=GPU,
        period=Period(T0, T0 + timedelta(days=31)),
        workload="uid-a",
        attempt=1,
        at=now,
        rate=1,
        until=now + timedelta(seconds=1),
        reserved=1_000_000,
    )
    elsewhere = Budget(
        name="x",
        target=LimitTarget("ClusterQueue", "another"),
        subject=LimitSubject(SubjectKind.ALL),
        resource=GPU,
        amount=1_000_000,
        periods=BudgetPeriods(PeriodKind.MONTH),
        mode=BudgetMode.SAFE,
    )
    life.world.tell(policy(elsewhere))
    engine = life.world.engine
    engine.features.budgets.restored(LedgerSnapshot(sequence=0, now=now, budget_entries=(entry,)), {})
    state(engine).features._activate()
    life.see(suspended=life.phase is Phase.PENDING)
    life.wait(1)


def lose_a_node(life: Life) -> None:
    life.tell(ContextObserved(node("n0")), ContextObserved(node("n1")))
    life.tell(PodObserved(Pod(uid="a-0", namespace="ns", name="a-0", node="n0", requests=(), workload=ID)))
    life.tell(ContextGone(Node, "n0"))


def grow(life: Life) -> None:
    """Its limit changes while it waits, so that it is nominated again."""
    life.world.tell(policy(queue("cq", 5)))
    life.run()


def test_the_page_has_the_table_of_transitions_as_the_code_has_it() -> None:
    assert "\n".join(transitions()) in PAGE.read_text(), "`make manifests` writes it"


def release_by_force(life: Life) -> None:
    if life.phase is Phase.EVICTING:
        life.settle()
    life.see(suspended=life.phase is not Phase.ADMITTED, release=ForcedRelease(1, "ann", "scrap"))


def test_each_row_has_an_event_here() -> None:
    assert [row.event for row in ROWS] == list(EVENTS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.event)
@pytest.mark.parametrize("phase", [P, A_, E], ids=lambda phase: phase.value)
def test_what_an_event_decides_in_each_phase_is_what_the_table_says(phase: Phase, row: TransitionRow) -> None:
    begin = {P: Life.pending, A_: Life.admitted, E: Life.evicting}[phase]
    if phase is A_ and row.event in UNREADY:
        begin = Life.let_go if row.event == UNREADY[1] else Life.unready
    life = begin(Life())
    life.world.decided.clear()
    EVENTS[row.event](life)
    expected = row[1 + [P, A_, E].index(phase)]
    decided = [d for d in life.world.decided if not isinstance(d, Configure) and subject(d) == ID]

    if expected is None:
        assert ([d for d in decided if becomes_row(d)], life.phase) == ([], phase)
        return
    assert isinstance(expected, Transition)
    edited = expected.decision is Verdict.PENDING and isinstance(decided[0], Enqueue)
    first = decided[edited]  # the edit itself may be recorded first
    code = first.reason.code if isinstance(first, Keep | Evict) else None
    assert (first.verdict, code) == (expected.decision, expected.code)
    entry = Entry(ID, A.ref)
    assert transition(entry, phase, first) is expected.to


@pytest.mark.parametrize("phase", [P, A_, E, Phase.FINISHED], ids=lambda phase: phase.value)
def test_a_decision_that_the_table_does_not_allow_is_refused_with_the_story_of_the_workload(
    phase: Phase,
) -> None:
    entry = Entry(ID, A.ref)
    entry.remember(T0, "decided", "Queued in ns/lq")
    bypass = Evict(ID, A.ref, 1, Reason(code=Code.BYPASS))
    if phase is A_:
        assert transition(entry, phase, bypass) is E
        return
    with pytest.raises(IllegalTransition) as refused:
        transition(entry, phase, bypass)
    for part in (str(A.ref), phase.value, "Evicted", "Queued in ns/lq", "2030-01-01T00:00:00Z"):
        assert part in str(refused.value)


def test_a_plan_that_evicts_a_workload_twice_is_refused_before_it_is_committed() -> None:
    entry = Entry(ID, A.ref)
    entry.phase = A_
    evict = Evict(ID, A.ref, 1, Reason(code=Code.PREEMPTED))
    check_transitions([evict], {ID: entry})
    with pytest.raises(IllegalTransition):
        check_transitions([evict, evict], {ID: entry})


def test_a_preempted_workload_is_requeued_at_once_with_its_old_place() -> None:
    life = Life().admitted()
    life.world.submit(workload("later", gpus=4, created=9))
    life.run()
    preempt(life)
    life.stopped()
    assert life.phase is Phase.ADMITTED


# --- maximum execution time


def test_a_workload_is_evicted_when_its_run_time_ends_and_not_before() -> None:
    life = Life().admitted()
    assert life.world.engine.due_at == T0 + timedelta(seconds=LIMIT)
    assert life.wait(LIMIT - 1) == []
    (evict,) = life.wait(1)
    assert isinstance(evict, Evict)
    assert evict.reason.code is Code.MAXIMUM_EXECUTION_TIME_EXCEEDED
    assert evict.past == PastAttempts(run_ms=LIMIT * 1000, ready=1)
    life.stopped()
    assert (life.phase, life.code) == (Phase.PENDING, Code.DEACTIVATED)
    assert life.world.engine.due_at is None


def test_run_time_adds_up_over_attempts_and_pending_time_does_not_count() -> None:
    life = Life().admitted()
    life.wait(60)
    life.edit(hold=True)
    life.stopped()
    life.wait(1000)
    life.edit(hold=False)
    assert life.phase is Phase.ADMITTED
    assert life.world.engine.due_at == life.world.now + timedelta(seconds=LIMIT - 60)
    life.settle()
    life.see(suspended=False)
    assert life.wait(LIMIT - 61) == []
    (evict,) = life.wait(1)
    assert isinstance(evict, Evict)
    assert evict.past is not None
    assert evict.past.run_ms == LIMIT * 1000


def expired() -> Life:
    life = Life().admitted()
    life.wait(LIMIT)
    return life.stopped()


def test_a_deactivated_workload_is_pending_until_its_user_sets_and_removes_the_hold() -> None:
    life = expired()
    assert life.reason is not None
    assert "queuectl.dev/hold" in str(life.reason.detail)
    assert life.wait(10**6) == []
    life.edit(hold=True)
    assert life.code is Code.ON_HOLD
    life.edit(hold=False)
    assert life.phase is Phase.ADMITTED
    assert life.world.engine.due_at == life.world.now + timedelta(seconds=LIMIT), "the run time is reset"


@pytest.mark.parametrize(("limit", "left"), [(LIMIT + 20, 20), (None, None)])
def test_a_deactivated_workload_runs_again_when_its_label_allows_more(
    limit: int | None, left: int | None
) -> None:
    life = expired()
    life.edit(max_run_seconds=limit)
    assert life.phase is Phase.ADMITTED
    assert life.world.engine.due_at == (None if left is None else life.world.now + timedelta(seconds=left))


def test_a_limit_below_the_current_run_time_evicts_at_once() -> None:
    life = Life(one=replace(A, max_run_seconds=None)).admitted()
    life.wait(50)
    life.world.tell(TimeCame(life.world.now))
    (evict,) = life.edit(max_run_seconds=50)
    assert isinstance(evict, Evict)
    assert evict.reason.code is Code.MAXIMUM_EXECUTION_TIME_EXCEEDED


def test_an_earlier_time_is_ignored() -> None:
    life = Life().admitted()
    life.wait(LIMIT - 1)
    life.world.tell(TimeCame(T0 - timedelta(days=1)))
    assert life.run() == []
    assert life.wait(1) != []


# --- pods that are not ready in time


def test_pods_not_ready_in_time_cause_an_eviction_and_a_longer_backoff_each_time() -> None:
    life = Life()
    life.see()
    pauses = []
    for _ in range(4):
        life.settle()
        life.see(suspended=False, ready=False)
        assert life.wait(TIMEOUT - 1) == []
        (evict,) = life.wait(1)
        assert isinstance(evict, Evict)
        assert evict.reason.code is Code.PODS_READY_TIMEOUT
        begun = life.world.now
        life.stopped()
        assert (life.phase, life.code) == (Phase.PENDING, Code.BACKING_OFF)
        until = life.world.engine.due_at
        assert until is not None
        assert life.reason is not None
        assert f"until {until:%Y-%m-%dT%H:%M:%SZ}" in life.reason.message
        pause = (until - begun).total_seconds()
        assert life.wait(pause - 1) == []
        assert admitted(life.wait(1)) == ["a"]
        pauses.append(pause)
        life.one = replace(life.one, max_run_seconds=None)
    assert pauses == [60, 120, 200, 200]


def test_ready_pods_end_the_timeout_and_reset_the_failure_count() -> None:
    life = Life()
    life.see()
    life.settle()
    life.see(suspended=False, ready=False)
    life.wait(TIMEOUT)
    life.stopped()
    life.wait(60)
    life.settle()
    (amend,) = life.see(suspended=False, ready=True)
    assert isinstance(amend, Amend)
    assert (amend.past.failures, amend.past.ready) == (0, 2)
    life.see(suspended=False, ready=False)
    assert life.wait(TIMEOUT) == []
    assert life.phase is Phase.ADMITTED


def test_nothing_is_evicted_if_the_status_does_not_report_readiness() -> None:
    life = Life(one=replace(A, max_run_seconds=None))
    life.see()
    life.settle()
    life.see(suspended=False, ready=None)
    assert life.wait(10**6) == []
    assert life.world.engine.due_at is None


def test_the_readiness_timeout_counts_from_the_start_time_in_the_status() -> None:
    life = Life()
    life.see()
    life.wait(TIMEOUT)
    life.settle()
    assert life.see(suspended=False, ready=False, started_at=life.world.now) == []
    assert life.wait(TIMEOUT - 1) == []
    assert [type(d) for d in life.wait(1)] == [Evict]


def test_without_a_timeout_readiness_does_not_matter() -> None:
    life = Life(SchedulingConfiguration(), replace(A, max_run_seconds=None))
    life.see()
    life.settle()
    assert life.see(suspended=False, ready=False) == []
    assert life.see(suspended=False, ready=True) == []
    assert life.world.engine.due_at is None


def deactivated_by_failures() -> Life:
    life = Life(replace(SETTINGS, requeueing=RequeuingStrategy(limit=1)))
    life.see()
    for _ in range(2):
        life.settle()
        life.see(suspended=False, ready=False)
        life.wait(TIMEOUT)
        life.stopped()
        if life.code is Code.BACKING_OFF:
            life.wait(60)
    return life


def test_more_failures_than_the_limit_deactivate_a_workload() -> None:
    life = deactivated_by_failures()
    assert (life.phase, life.code) == (Phase.PENDING, Code.DEACTIVATED)
    assert life.wait(10**6) == []


@pytest.mark.parametrize("how", ["hold set and removed", "edited"])
def test_an_action_of_the_user_resets_a_workload_deactivated_for_failures(how: str) -> None:
    life = deactivated_by_failures()
    if how == "edited":
        life.generation += 1
        life.edit()
    else:
        life.edit(hold=True)
        life.edit(hold=False)
    assert life.phase is Phase.ADMITTED
    life.settle()
    life.see(suspended=False, ready=False)
    life.wait(TIMEOUT)
    life.stopped()
    assert life.code is Code.BACKING_OFF, "the failure count is reset"


def test_a_stop_effect_is_not_an_edit() -> None:
    life = Life()
    life.see()
    life.settle()
    life.see(suspended=False, ready=False)
    life.wait(TIMEOUT)
    life.settle()
    life.count_pods()
    life.see(suspended=True)
    assert (life.phase, life.code) == (Phase.PENDING, Code.BACKING_OFF)


def test_denied_starts_back_off_and_a_successful_start_does_not() -> None:
    life = Life()
    life.see()
    life.settle(Result.DENIED, "policy x says no")
    assert life.code is Code.BACKING_OFF
    assert life.reason is not None
    assert str(life.reason.detail).endswith("its start was denied: policy x says no")
    life.wait(60)
    life.settle(Result.DENIED, "policy x says no")
    assert life.wait(119) == []
    life.wait(1)
    assert life.phase is Phase.ADMITTED


# --- restarts


def restarted(
    past: PastAttempts,
    *,
    attempt: bool = False,
    settings: SchedulingConfiguration = SETTINGS,
    **fields: object,
) -> World:
    """Return a process that starts from the ledger rows of `a`, an hour after T0."""
    now = T0 + timedelta(hours=1)
    held = None
    if attempt:
        life = Life().admitted()
        (admit,) = (d for d in life.made if isinstance(d, Admit))
        held = replace(admit.attempt, sequence=9, admitted_at=now)
    stored = StoredWorkload(
        id=ID,
        ref=A.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=T0,
        arrival=1,
        phase=Phase.ADMITTED if attempt else Phase.PENDING,
        attempts=1,
        attempt=held,
        reason=past.barred,
        past=past,
    )
    world = World(queue("cq", 4), LQ, settings=settings)
    world.engine = Engine(SOURCES, settings)
    world.engine.restore(LedgerSnapshot(sequence=9, now=now, workloads=(stored,)))
    world.now = now
    world.tell(
        ContextObserved(Namespace("ns")),
        *(policy(value) for value in (flavor("default"), queue("cq", 4), LQ)),
        observed(replace(A, **fields), suspended=not attempt, ready=None),  # type: ignore[arg-type]
        Listed("policies"),
        Listed("Job", frozenset([ID])),
    )
    return world


def test_a_backoff_survives_a_restart() -> None:
    until = T0 + timedelta(hours=1, seconds=40)
    why = Reason(code=Code.BACKING_OFF, detail="until then")
    world = restarted(PastAttempts(failures=3, barred=why, until=until))
    assert world.run() == []
    assert world.engine.due_at == until
    world.pass_time(39)
    assert world.run() == []
    world.pass_time(1)
    assert admitted(world.run()) == ["a"]


def test_run_time_survives_a_restart() -> None:
    world = restarted(PastAttempts(run_ms=30_000), attempt=True)
    assert world.engine.due_at == T0 + timedelta(hours=1, seconds=LIMIT - 30)
    world.pass_time(LIMIT - 30)
    (evict,) = world.run()
    assert isinstance(evict, Evict)
    assert evict.past == PastAttempts(run_ms=LIMIT * 1000)


def test_deactivation_survives_a_restart() -> None:
    world = restarted(PastAttempts(run_ms=LIMIT * 1000))
    assert [d.reason.code for d in world.run() if isinstance(d, Keep)] == [Code.DEACTIVATED]


def test_a_hold_during_a_downtime_resets_a_workload() -> None:
    world = restarted(PastAttempts(run_ms=LIMIT * 1000), hold=True)
    assert [d.reason.code for d in world.run() if isinstance(d, Keep)] == [Code.ON_HOLD]
    world.tell(observed(A))
    assert admitted(world.run()) == ["a"]


# --- pods that have ended for good


def test_the_quota_of_pods_that_ended_for_good_goes_to_other_workloads() -> None:
    life = Life().admitted()
    life.world.submit(workload("b", gpus=3, created=1), workload("c", gpus=1, created=2))
    life.run()
    (shrink, admit) = life.see(suspended=False, ready=True, reclaimable=(("main", 1),))
    assert isinstance(shrink, Shrink)
    assert [p.count for p in shrink.assignment.pod_sets] == [3]
    assert isinstance(admit, Admit)
    assert admit.ref.name == "c"
    made = life.see(suspended=False, ready=True, reclaimable=(("main", 4),))
    assert admitted(made) == ["b"]


def test_released_quota_of_ended_pods_is_not_charged_again() -> None:
    life = Life().admitted()
    life.see(suspended=False, ready=True, reclaimable=(("main", 3),))
    for count in (2, 0):
        reclaimable = (("main", count),) if count else ()
        assert life.see(suspended=False, ready=True, reclaimable=reclaimable) == []


def test_fewer_pods_in_the_spec_release_no_quota_before_their_pods_are_counted() -> None:
    life = Life().admitted()
    assert life.edit(pod_sets=(pod_set(1, {GPU: 1}),)) == []


def test_a_workload_that_starts_again_is_charged_for_its_remaining_pods() -> None:
    life = Life().admitted()
    life.see(suspended=False, ready=True, reclaimable=(("main", 3),))
    preempt(life)
    life.settle()
    life.see(suspended=True, reclaimable=(("main", 3),))
    (release, admit) = life.count_pods()
    assert isinstance(release, Release)
    assert isinstance(admit, Admit)
    assert [p.count for p in admit.attempt.assignment.pod_sets] == [1]


def test_a_workload_that_may_start_with_fewer_pods_starts_with_what_is_left_of_it() -> None:
    """Fewer pods are left than the least number that it may start with."""
    world = World(queue("cq", 2), local_queue("lq", "cq"))
    partly = workload("a", pods=[pod_set(8, {GPU: 1}, min_count=4)])
    world.tell(observed(partly, reclaimable=(("main", 6),)))
    (admit,) = (d for d in world.run() if isinstance(d, Admit))
    assert [p.count for p in admit.attempt.assignment.pod_sets] == [2]


def test_a_stop_knows_why_and_when_it_was_decided() -> None:
    life = Life().admitted()
    life.world.pass_time(60)
    preempt(life)
    (stop,) = (one for one in life.world.engine.take_effects() if one.key.verb is Verb.STOP)
    assert stop.eviction is not None
    assert (stop.eviction.reason.code, stop.eviction.at) == (Code.PREEMPTED, life.world.now)


def test_pods_that_end_during_an_eviction_release_no_quota_until_all_are_gone() -> None:
    life = Life().evicting()
    assert life.see(suspended=False, reclaimable=(("main", 3),)) == []


# --- priority and queue


def test_a_new_priority_of_a_running_workload_is_recorded_once() -> None:
    life = Life().admitted()
    life.world.tell(priority("high", 9))
    (amend,) = life.edit(priority_class="high")
    assert isinstance(amend, Amend)
    assert amend.priority == 9
    assert life.see(suspended=False) == []
    life.world.tell(priority("high", 3))
    (amend,) = life.run()
    assert isinstance(amend, Amend)
    assert amend.priority == 3


@pytest.mark.parametrize("cause", ["deleted class", "edited label"])
def test_a_running_workload_whose_priority_class_is_unknown_keeps_its_priority_and_says_so(
    cause: str,
) -> None:
    life = Life()
    life.world.tell(priority("high", 9))
    life.one = replace(A, priority_class="high")
    life.admitted()
    if cause == "deleted class":
        life.world.tell(PolicyGone(ConfigKey("WorkloadPriorityClass", "", "high")))
        made = life.run()
    else:
        made = life.edit(priority_class="hihg")
    (amend,) = made
    assert isinstance(amend, Amend)
    assert (amend.priority, amend.reason and amend.reason.message) == (
        9,
        f"PriorityNotFound: WorkloadPriorityClass {life.one.priority_class} not found: "
        "it keeps the priority that it had",
    )
    assert life.run() == []
    life.world.tell(priority(str(life.one.priority_class), 9))
    (amend,) = life.run()
    assert isinstance(amend, Amend)
    assert amend.reason is None


def test_a_new_priority_changes_the_order_of_pending_workloads() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(priority("high", 9))
    world.submit(workload("runs"))
    world.run()
    world.settle()
    world.submit(workload("b", created=1), workload("c", created=2))
    world.run()
    world.submit(workload("c", created=2, priority_class="high"))
    world.run()
    world.tell(observed(workload("runs"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
    assert admitted(world.run()) == ["c"]


def test_a_backoff_continues_in_another_queue() -> None:
    life = Life()
    life.see()
    life.settle(Result.DENIED, "no")
    life.edit(queue="lo")
    assert (life.phase, life.code) == (Phase.PENDING, Code.BACKING_OFF)
    assert admitted(life.wait(60)) == ["a"]


# --- timers


def test_timers_yield_each_key_once_in_the_order_of_time() -> None:
    timers: Timers[str] = Timers()
    assert timers.earliest is None
    for seconds, key in ((5, "a"), (3, "b"), (4, "c"), (9, "a"), (1, "c"), (4, "c")):
        timers.set(key, T0 + timedelta(seconds=seconds))
    timers.set("b", None)
    assert timers.earliest == T0 + timedelta(seconds=4)
    assert timers.take(T0 + timedelta(seconds=3)) == []
    assert timers.take(T0 + timedelta(seconds=9)) == ["c", "a"]
    assert timers.take(T0 + timedelta(seconds=99)) == []


def test_replaced_timers_do_not_accumulate() -> None:
    timers: Timers[str] = Timers()
    for number in range(10_000):
        timers.set("a", T0 + timedelta(seconds=number))
    assert len(timers._heap) < 40
    assert timers.take(T0 + timedelta(days=1)) == ["a"]


# --- a run time limit ends the work


def timed_out() -> Life:
    """Its object records the stop of its first attempt, by its run time limit."""
    life = Life().admitted()
    life.wait(LIMIT)
    life.settle()
    life.see(suspended=True, stopped=TIMED_OUT)
    return life


def test_a_workload_past_its_run_time_limit_is_over_when_its_pods_are_gone() -> None:
    life = timed_out()
    assert life.phase is Phase.EVICTING, "its quota is held until then"
    (retire,) = life.count_pods()
    assert retire == Retire(ID, life.one.ref, 1, WorkloadOutcome.TIMED_OUT)
    assert life.see(suspended=True, stopped=TIMED_OUT) == []
    life.one = replace(life.one, max_run_seconds=None)
    assert life.see(suspended=True, stopped=TIMED_OUT) == [], "a higher limit comes too late"
    assert life.wait(10**6) == []


def test_a_controller_that_starts_does_not_queue_what_its_run_time_limit_has_ended() -> None:
    world = World(queue("cq", 4), LQ)
    world.tell(observed(A, suspended=True, stopped=TIMED_OUT, quiet=True))
    assert world.run() == []
    assert ID not in entries(world.engine)


def test_the_end_of_a_workload_that_failed_says_why_and_that_of_others_does_not() -> None:
    for outcome, why in ((WorkloadOutcome.FAILED, "OOMKilled"), (WorkloadOutcome.SUCCEEDED, None)):
        life = Life().admitted()
        life.generation += 1
        (retire,) = life.see(suspended=False, finished=outcome, quiet=True, failure="OOMKilled")
        assert retire == Retire(ID, life.one.ref, 1, outcome, why)


@pytest.mark.parametrize("also", ["suspended", "held", "stopped queue", "too late"])
def test_a_workload_that_is_over_is_not_evicted_while_its_pods_are_counted(also: str) -> None:
    """Else it was told that another client had suspended it, for a stop that came when it was over."""
    life = Life().admitted()
    over = {"suspended": also == "suspended", "finished": WorkloadOutcome.SUCCEEDED, "quiet": False}
    life.generation += 1
    assert life.see(**over) == [], "its pods are counted"
    if also == "held":
        life.one = replace(life.one, hold=True)
    if also == "stopped queue":
        stop("LocalQueue", StopPolicy.HOLD_AND_DRAIN)(life)
    if also == "too late":
        life.world.pass_time(LIMIT)
    assert life.see(**over) == []
    (retire,) = life.count_pods()
    assert retire == Retire(ID, life.one.ref, 1, WorkloadOutcome.SUCCEEDED)


def test_a_run_time_limit_whose_stop_is_not_recorded_deactivates() -> None:
    """Its annotations have no room for the record: what is not remembered on the object would be queued."""
    life = Life().admitted()
    life.wait(LIMIT)
    life.settle()
    life.see(suspended=True)
    life.count_pods()
    assert (life.phase, life.code) == (Phase.PENDING, Code.DEACTIVATED)


def test_quota_of_a_timed_out_workload_that_is_released_by_force_is_not_taken_again() -> None:
    life = timed_out()
    mark = ForcedRelease(1, "ann", "stuck")
    life.see(suspended=True, stopped=TIMED_OUT, release=mark)
    assert life.phase is Phase.FINISHED
    outcomes = [one.outcome for one in life.made if isinstance(one, Retire)]
    assert outcomes == [WorkloadOutcome.TIMED_OUT]


def test_a_workload_that_another_client_started_after_its_time_limit_is_charged_as_debt() -> None:
    life = timed_out()
    life.count_pods()
    (admit,) = (d for d in life.see(suspended=False) if isinstance(d, Admit))
    assert admit.attempt.debt
