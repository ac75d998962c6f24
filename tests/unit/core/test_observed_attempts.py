"""What follows from an observation of an object in each phase. The last attempt of the ledger is number 2."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.core.decisions import Admit, Configure, Decision, Enqueue, Evict, Keep
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, EffectSettled, Listed, PodsCounted, Result
from queuectl.core.model.policy import Gate, Namespace, StopPolicy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import (
    MOST_ATTEMPTS,
    Assignment,
    Attempt,
    AttemptState,
    EffectKey,
    LedgerSnapshot,
    Phase,
    PodSetAssignment,
    StoredWorkload,
    Verb,
)
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    policy,
    queue,
    workload,
)
from tests.doubles import engine_state
from tests.unit.core.observed_courses import OBSERVED, Course, Observed

A = workload("a", gpus=4, created=5)
COLUMNS = ("pending", "starting", "admitted", "stopping", "evicting", "over")
NUMBERS = {"none": None, "an older one": 1, "the same": 2, "a later one": 3}


def attempt(number: int, state: AttemptState = AttemptState.ADMITTED, on: str = "a100") -> Attempt:
    pods = PodSetAssignment(name="main", count=1, requests=((GPU, 4),), flavors=((GPU, on),))
    return Attempt(
        workload=A.id,
        number=number,
        state=state,
        assignment=Assignment(cluster_queue="cq", pod_sets=(pods,)),
        admitted_at=T0 + timedelta(seconds=number),
        sequence=number,
    )


def stored(column: str) -> StoredWorkload:
    phase = {"pending": Phase.PENDING, "starting": Phase.ADMITTED, "admitted": Phase.ADMITTED}
    now = phase.get(column, Phase.EVICTING)
    state = AttemptState.EVICTING if now is Phase.EVICTING else AttemptState.ADMITTED
    evicting = now is Phase.EVICTING
    return StoredWorkload(
        id=A.id,
        ref=A.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=A.created_at,
        arrival=1,
        phase=now,
        attempts=2,
        attempt=None if now is Phase.PENDING else attempt(2, state),
        reason=Reason(code=Code.USER_HOLD) if evicting else None,
        pod_sets=A.pod_sets,
        evicted_at=T0 if evicting else None,
    )


class Begun:
    """A controller with workload `a` in one phase, all of which is as its last write left it."""

    def __init__(self, column: str) -> None:
        quotas = [group({"a100": {GPU: 4}, "spot": {GPU: 4}})]
        waits = column in ("pending", "over")
        lq = local_queue("lq", "cq", stop=StopPolicy.HOLD if waits else StopPolicy.NONE)
        policies = (flavor("a100"), flavor("spot"), queue("cq", groups=quotas), lq)
        self.world = World(*policies)
        self.world.engine = Engine(SOURCES)
        rows = () if column == "over" else (stored(column),)
        verb = {"starting": Verb.START, "stopping": Verb.STOP}.get(column)
        effects = (EffectKey(A.id, 2, verb),) if verb is not None else ()
        self.world.engine.restore(LedgerSnapshot(sequence=9, now=T0, workloads=rows, effects=effects))
        self.world.sequence = 9
        self.world.tell(ContextObserved(Namespace("ns")), ContextObserved(Gate("queuectl-jobs", T0)))
        self.world.tell(*(policy(one) for one in policies), Listed("policies"))
        self.column = column
        if column != "over":
            runs = column in ("admitted", "stopping")
            last = attempt(1 if column == "starting" else 2)
            self.world.tell(observed(A, suspended=not runs, generation=3, admission=last))
        self.world.tell(Listed("Job", frozenset({A.id})))
        self.run()
        self.writes()
        if column == "evicting":
            self.world.tell(PodsCounted(A.id, 2, alive=True))

    def run(self) -> list[Decision]:
        self.counted = False
        made: list[Decision] = []
        while (plan := self.world.plan()).decisions or plan.probes:
            self.world.commit(plan)
            self.counted |= any(probe.workload == A.id for probe in plan.probes)
            made += plan.decisions
        keeps = (Configure, Enqueue, Keep)
        return [d for d in made if not isinstance(d, keeps) and d.ref == A.ref]

    def writes(self) -> list[Verb]:
        effects = [e for e in self.world.engine.take_effects() if e.key.workload == A.id]
        return [effect.key.verb for effect in effects]

    def see(self, row: Observed) -> list[Decision]:
        number = NUMBERS[row.attempt]
        marked = None if number is None else attempt(number, on="spot" if number > 2 else "a100")
        self.world.tell(observed(A, suspended=row.suspended, generation=4, admission=marked))
        made = self.run()
        if not made and self.column == "starting":  # its start named the generation before
            self.world.tell(EffectSettled(EffectKey(A.id, 2, Verb.START), Result.REFUSED))
            made = self.run()
        return made


def test_the_table_has_a_row_for_each_state_and_attempt() -> None:
    pairs = [(row.suspended, row.attempt) for row in OBSERVED]
    assert pairs == [(suspended, name) for suspended in (False, True) for name in NUMBERS]


@pytest.mark.parametrize("row", OBSERVED, ids=lambda row: f"{'suspended' if row[0] else 'runs'}-{row[1]}")
@pytest.mark.parametrize("column", COLUMNS)
def test_what_follows_from_an_observation_is_what_the_table_says(column: str, row: Observed) -> None:
    begun = Begun(column)
    made = begun.see(row)
    expected: Course = getattr(row, column)
    writes = begun.writes()
    counted = begun.counted or engine_state.entry(begun.world.engine, A.id).counting_pods
    starts = column == "starting" and expected.text == "stays"  # the write finds that it is done
    assert [d.verdict for d in made] == list(expected.decisions)
    assert writes == ([expected.sends] if expected.sends is not None else [Verb.START] * starts)
    assert counted is (expected.counts or (counted and column == "evicting"))
    for decision in made:
        if isinstance(decision, Admit):
            later = NUMBERS[row.attempt] or 0
            lost = later > (0 if column == "over" else 2)
            assert decision.attempt.number == (later if lost else 1 if column == "over" else 3)
            assert decision.attempt.debt
            if lost:
                assert decision.attempt.assignment.cluster_queue == "cq"
                flavors = decision.attempt.assignment.pod_sets[0].flavors
                assert flavors == ((GPU, "spot" if later > 2 else "a100"),)


def test_a_stop_that_was_sent_again_is_followed_by_a_new_count_of_pods() -> None:
    begun = Begun("evicting")
    begun.world.tell(observed(A, suspended=False, generation=4, admission=attempt(2)))
    begun.world.run()
    assert begun.writes() == [Verb.STOP]
    begun.world.tell(PodsCounted(A.id, 2, alive=False))  # a count from before it was started again
    stop = EffectSettled(EffectKey(A.id, 2, Verb.STOP), Result.DONE, 5)
    begun.world.tell(stop, observed(A, generation=5, admission=attempt(2)))
    assert begun.run() == []
    assert begun.counted
    begun.world.tell(PodsCounted(A.id, 2, alive=False))
    assert [d.verdict.value for d in begun.run()][:1] == ["Released"]


def test_later_attempts_are_numbered_above_the_one_of_the_annotation() -> None:
    begun = Begun("pending")
    begun.see(next(row for row in OBSERVED if row.suspended and row.attempt == "a later one"))
    begun.writes()
    begun.world.tell(EffectSettled(EffectKey(A.id, 3, Verb.STOP), Result.DONE, 4))
    begun.run()
    begun.world.tell(PodsCounted(A.id, 3, alive=False))
    begun.world.tell(policy(local_queue("lq", "cq")))
    numbers = [d.attempt.number for d in begun.run() if isinstance(d, Admit)]
    assert numbers == [4]


def test_an_annotation_that_no_controller_wrote_changes_no_number() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.tell(observed(A, admission=replace(attempt(1), number=MOST_ATTEMPTS + 1)))
    (made,) = [d for d in world.run() if isinstance(d, Admit)]
    assert made.attempt.number == 1


def test_an_annotation_of_another_clusterqueue_or_charge_holds_no_quota() -> None:
    for charge in ("cq", "other"):
        world = World(queue("cq", 4), queue("other", 400), local_queue("lq", "cq"))
        pods = replace(attempt(1).assignment.pod_sets[0], requests=((GPU, 400),))
        forged = Assignment(cluster_queue=charge, pod_sets=(pods,))
        world.tell(observed(A, admission=replace(attempt(7), assignment=forged)))
        made = world.run()
        assert admitted(made) == ["a"]
        assert not [d for d in made if isinstance(d, Evict)]


def test_a_start_of_the_same_number_by_a_ledger_that_lost_decisions_is_charged_as_it_runs() -> None:
    begun = Begun("starting")
    lost = replace(attempt(2, on="spot"), admitted_at=T0 - timedelta(seconds=3))
    begun.world.tell(observed(A, suspended=False, generation=4, admission=lost))
    release, admit = begun.run()
    assert release.verdict.value == "Released"
    assert isinstance(admit, Admit)
    assert (admit.attempt.number, admit.attempt.debt) == (3, True)
    assert admit.attempt.assignment == lost.assignment
    assert begun.run() == []
