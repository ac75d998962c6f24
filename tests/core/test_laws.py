"""Laws that hold of every plan in every world: random trees, random lives, judged slowly and apart.

A sequence is a world (trees of cohorts up to five deep, up to eight queues), workloads, and up to ten things
that happen; then nobody outside does anything any more until all is at rest. Each test plays sequences of its
own. Which of YuniKorn's preemption laws hold here, and in which words:

- never outside the fence: holds, a root cohort is one;
- only if the asking queue is below its guarantee, the victim's queue above it, and never pushed below it:
  hold for what is reclaimed, with the guarantee of a cohort standing for that of its queues, and with the
  last victim of a queue, which gives way whole; where priority (P2) or shares (P8) speak, admins asked for
  more;
- only equal or lower priority: holds wherever the policy is not `Any`;
- never within one application: a workload is one, gives way whole, and never to itself;
- policies are strong suggestions: does not hold, ours are rules.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Admit, Enqueue, Keep, Plan
from queuectl.core.events import Event
from queuectl.core.reasons import Code
from tests.core import laws, profiles
from tests.core.running import Law, Running, forked
from tests.core.trees import Dice, world

profiles.load()

WORLD = st.binary(min_size=420, max_size=420)
JOBS = st.lists(st.binary(min_size=36, max_size=36), min_size=2, max_size=6)
SCRIPT = st.lists(st.binary(min_size=28, max_size=28), max_size=10)
CYCLES = st.sampled_from([None, 1])
"""In one plan, on the way to rest; None: as many as there is work."""


def play(made: bytes, jobs: list[bytes], script: list[bytes], *judges: Law, guarded: bool = True) -> Running:
    """With each plan judged by `judges`, by the ledger and by the engine's own check; made twice the same."""
    running = Running(world(Dice(made), guarded=guarded), *judges)
    for one in jobs:
        running.submit_some(Dice(one))
    running.deliver()
    for happens in script:
        running.act(Dice(happens))
    return running


# --- of each plan


@profiles.sequences(200)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_nobody_is_let_go_on_quota_that_is_not_there(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.nobody_is_let_go_on_quota_that_is_not_there).come_to_rest(cycles)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_a_plan_makes_room_for_all_its_preemptors(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.a_plan_makes_room_for_its_preemptors).come_to_rest(cycles)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT)
def test_no_victim_can_be_spared(made: bytes, jobs: list[bytes], script: list[bytes]) -> None:
    play(made, jobs, script, laws.no_victim_can_be_spared).come_to_rest(1)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_nobody_gives_way_whom_policy_or_priority_spares(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    judges = (laws.priority_is_respected, laws.shares_speak_only_where_they_are_shared)
    play(made, jobs, script, *judges).come_to_rest(cycles)


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_nobody_gives_way_who_is_protected(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.nobody_protected_gives_way).come_to_rest(cycles)


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_a_victim_is_of_the_same_tree_and_holds_what_is_asked_for(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    judges = (laws.nobody_gives_way_beyond_its_tree, laws.a_victim_holds_what_is_asked_for)
    play(made, jobs, script, *judges).come_to_rest(cycles)


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_who_asks_and_who_gives_are_two(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.who_asks_and_who_gives_are_two).come_to_rest(cycles)


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT)
def test_a_queue_gives_only_what_it_borrows(made: bytes, jobs: list[bytes], script: list[bytes]) -> None:
    play(made, jobs, script, laws.a_queue_gives_only_what_it_borrows).come_to_rest(1)


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT)
def test_who_reclaims_is_below_its_guarantee(made: bytes, jobs: list[bytes], script: list[bytes]) -> None:
    play(made, jobs, script, laws.who_asks_is_below_its_guarantee).come_to_rest(1)


# --- of what comes of it


@profiles.sequences(200)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_where_trees_do_not_share_no_two_take_turns_in_preempting_each_other(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """P12. With nothing but the rules, the guards of P11 off. It comes to rest within `Running.bound` plans,
    and two do not take turns: who preempts the same workload again was preempted by a third meanwhile."""
    running = play(made, jobs, script, guarded=False)
    if running.shares:
        return
    running.evicted.clear()
    running.come_to_rest(cycles)
    last: dict[tuple[str, str], int] = {}
    for number, (victim, preemptor) in enumerate(running.evicted):
        meanwhile = running.evicted[last.get((victim, preemptor), number) : number]
        thirds = [by for gone, by in meanwhile if gone == preemptor and by != victim]
        assert thirds or not meanwhile, running.evicted
        last[victim, preemptor] = number


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_nobody_is_preempted_twice_at_the_same_moment(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """P11, P12. The guards stand behind the rules, in trees that share too."""
    running = play(made, jobs, script)
    running.evicted.clear()
    before = {uid for uid, one in running.ledger._preemptions().items() if one}
    running.come_to_rest(cycles)
    counted = Counter(victim for victim, _ in running.evicted)
    assert all(times == 1 for victim, times in counted.items() if victim not in before), running.evicted
    assert max(counted.values(), default=0) <= 2, running.evicted


@profiles.sequences(180)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_who_preempted_is_let_go_once_its_victims_are_gone(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """C7. Nobody gets in its way: it is let go by the first plan that decides on its tree after that."""
    running = play(made, jobs, script)
    running.come_to_rest(cycles)
    stored = running.ledger.store.workloads
    waiting = [
        one.ref
        for one in stored.values()
        if one.reason and one.reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS and one.attempt is None
    ]
    assert not waiting, f"{waiting} preempted, and did not get what they preempted for"
    robbed = [owner for owner in running.preemptors if owner in stored and owner not in running.let_go]
    assert not robbed, f"{robbed} preempted in vain"


@profiles.sequences(180)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_at_rest_a_process_started_now_would_not_change_anything(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """W1 to W4: nobody waits for whom a look at everything would find room, or victims."""
    running = play(made, jobs, script)
    running.come_to_rest(cycles)
    other = running.fresh()
    for _ in range(running.bound()):
        plan = other.decide(running.now)
        if not plan.decisions and not plan.probes:
            return
        for decision in plan.recorded:
            assert isinstance(decision, Keep), decision
            assert decision.claim is None, decision
        other.commit(plan, 1)
    raise AssertionError("decisions never end")


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT, st.lists(st.binary(min_size=28, max_size=28), min_size=2, max_size=4), JOBS)
def test_the_order_of_events_of_one_batch_does_not_matter(
    made: bytes, jobs: list[bytes], script: list[bytes], batch: list[bytes], order: list[bytes]
) -> None:
    running = play(made, jobs, script)
    changed: dict[str, Event] = {}
    for happens in batch:
        event = running.something(Dice(happens))
        if event is not None:
            changed[running.subject(event)] = event
    events = list(changed.values())
    shuffled = Dice(order[0]).shuffled(events)
    one, other = (forked(running.engine, found).decide(running.now, 10_000) for found in (events, shuffled))
    assert meaning(one) == meaning(other)


def meaning(plan: Plan) -> Counter[str]:
    """Its decisions in no order, without numbers that count what came first."""
    found: Counter[str] = Counter()
    for decision in plan.decisions:
        if isinstance(decision, Enqueue):
            found[f"queue {decision.workload.id} {decision.cluster_queue} {decision.priority}"] += 1
        elif isinstance(decision, Admit):
            found[f"admit {decision.attempt.assignment} {decision.attempt.number} {decision.ref}"] += 1
        elif isinstance(decision, Keep):
            found[f"keep {decision.ref} {decision.reason.key}"] += 1
        else:
            found[repr(decision)] += 1
    return found
