"""Victims whose pods do not end: what their preemptor claims stays reserved, others go on (C7, C14)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Decision, Evict, Keep
from queuectl.core.engine import Engine
from queuectl.core.entries import Entry
from queuectl.core.model.events import ContextObserved, Listed, PodsCounted
from queuectl.core.model.policy import (
    ClusterQueue,
    Namespace,
    Policy,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import LedgerSnapshot, Phase, StoredWorkload, Workload, WorkloadId
from tests.builders import (
    GPU,
    SOURCES,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    policy,
    queue,
    workload,
)
from tests.doubles import engine_state
from tests.unit.core import profiles

ALARM = 300
SETTINGS = SchedulingConfiguration(cooldown=0, terminating_alarm=ALARM)
LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
QUOTA = {"a100": 8, "cheap": 4}
POLICIES: tuple[Policy, ...] = (
    *(flavor(name, {"gpu": name}) for name in QUOTA),
    local_queue("lq", "cq"),
    *(WorkloadPriorityClass(f"p{n}", n) for n in range(4)),
)


def cluster_queue(strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> ClusterQueue:
    groups = [group({name: {GPU: gpus} for name, gpus in QUOTA.items()})]
    return queue("cq", groups=groups, preemption=LOWER, strategy=strategy)


def job(name: str, gpus: int, level: int, on: str | None = None, created: float = 0) -> Workload:
    pods = [pod_set(1, {GPU: gpus}, node_selector=(("gpu", on),) if on else ())]
    return workload(name, pods=pods, priority_class=f"p{level}", created=created)


def stuck(strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> World:
    """`big` has preempted `victim`, which is stopped, and whose pods do not end."""
    world = World(*POLICIES, cluster_queue(strategy), settings=SETTINGS)
    victim = job("victim", 6, 0, "a100")
    world.submit(victim)
    world.run()
    world.settle()
    world.tell(observed(victim, suspended=False, generation=2))
    world.submit(job("big", 7, 2, "a100", created=1))
    assert [d.ref.name for d in world.run() if isinstance(d, Evict)] == ["victim"]
    world.settle(generation=3)
    world.tell(observed(victim, suspended=True, generation=3))
    world.run()
    return world


def waits(decisions: list[Decision]) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)}


def test_a_workload_that_fits_beside_the_claim_is_admitted_at_once() -> None:
    world = stuck()
    world.submit(job("other", 4, 1, "cheap", created=2), job("small", 1, 0, "a100", created=3))
    made = world.run()
    assert admitted(made) == ["other", "small"]


def test_nothing_takes_what_the_claim_reserves_before_the_alarm() -> None:
    world = stuck()
    world.submit(job("two", 2, 3, "a100", created=2))
    assert waits(world.run()) == {"two": Code.WAITING_FOR_QUOTA}
    world.pass_time(ALARM - 1)
    assert admitted(world.run()) == []


def test_the_claim_ends_with_the_alarm_and_what_it_reserved_is_available() -> None:
    world = stuck()
    world.submit(job("two", 2, 0, "a100", created=2))
    world.run()
    world.pass_time(ALARM)
    made = world.run()
    assert admitted(made) == ["two"]
    assert waits(made)["big"] is Code.WAITING_FOR_QUOTA


def test_behind_a_preemptor_nothing_preempts_until_the_alarm() -> None:
    world = stuck()
    low = job("low", 4, 0, "cheap", created=2)
    world.submit(low)
    world.run()
    world.settle(generation=2)
    world.tell(observed(low, suspended=False, generation=2))
    world.submit(job("high", 4, 3, "cheap", created=3))
    assert waits(world.run()) == {"high": Code.WAITING_FOR_QUOTA}
    world.pass_time(ALARM)
    assert [d.ref.name for d in world.run() if isinstance(d, Evict)] == ["low"]


def test_what_waited_behind_a_preemptor_preempts_once_that_is_admitted() -> None:
    world = stuck()
    low = job("low", 4, 0, "cheap", created=2)
    world.submit(low)
    world.run()
    world.settle(generation=2)
    world.tell(observed(low, suspended=False, generation=2))
    world.submit(job("high", 4, 3, "cheap", created=3))
    world.run()
    world.tell(PodsCounted(job("victim", 6, 0).id, 1, alive=False))
    made = world.run()
    assert admitted(made) == ["big"]
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["low"]


def test_a_late_victim_is_no_candidate_and_its_preemptor_starts_when_its_pods_have_ended() -> None:
    world = stuck()
    world.pass_time(ALARM)
    world.run()
    world.tell(PodsCounted(job("victim", 6, 0).id, 1, alive=False))
    assert admitted(world.run()) == ["big"]


def test_under_strict_fifo_the_others_wait_for_the_head() -> None:
    world = stuck(QueueingStrategy.STRICT_FIFO)
    world.submit(job("other", 4, 1, "cheap", created=2))
    assert waits(world.run()) == {"other": Code.WAITING_FOR_HEAD}
    world.pass_time(ALARM)
    assert admitted(world.run()) == []


def test_a_controller_that_starts_after_the_alarm_does_not_wait_for_the_victim() -> None:
    world = stuck()
    entries = engine_state.entries(world.engine)
    other = job("two", 2, 0, "a100", created=2)
    victim, big = (entries[job(name, 1, 0).id] for name in ("victim", "big"))
    stored = [_stored(victim, big.id), _stored(big, None)]
    world.pass_time(ALARM)
    world.engine = Engine(SOURCES, SETTINGS)
    world.engine.restore(LedgerSnapshot(sequence=9, now=world.now, workloads=tuple(stored)))
    world.tell(ContextObserved(Namespace("ns")), *(policy(one) for one in (*POLICIES, cluster_queue())))
    world.tell(Listed("policies"), observed(job("victim", 6, 0, "a100"), generation=3))
    world.tell(observed(job("big", 7, 2, "a100", created=1)), observed(other))
    world.tell(Listed("Job", frozenset({victim.id, big.id, other.id})))
    assert admitted(world.run()) == ["two"]


def _stored(entry: Entry, preemptor: WorkloadId | None) -> StoredWorkload:
    assert entry.workload is not None
    return StoredWorkload(
        id=entry.id,
        ref=entry.ref,
        queue="lq",
        cluster_queue="cq",
        priority=entry.priority,
        created_at=entry.workload.created_at,
        arrival=entry.arrival,
        phase=entry.phase,
        attempts=entry.attempts,
        attempt=entry.attempt,
        reason=entry.reason,
        preemptor=preemptor,
        evicted_at=entry.evicted_at,
        pod_sets=entry.workload.pod_sets,
    )


# --- a law


class Stuck:
    """Workloads of one queue, some of which do not end when they are evicted."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World(*POLICIES, cluster_queue(), settings=SETTINGS)
        self.jobs: dict[str, Workload] = {}
        self.generation = 1

    def act(self) -> None:
        dice, made = self.dice, len(self.jobs)
        one = job(
            f"w{made}", dice.randint(1, 6), dice.randrange(4), dice.choice([None, *QUOTA]), created=made
        )
        self.jobs[one.id] = one
        self.world.submit(one)
        self.run()
        evicting = [uid for uid, entry in self.entries.items() if entry.phase is Phase.EVICTING]
        if evicting and dice.random() < 0.3:
            uid = dice.choice(sorted(evicting))
            self.world.tell(PodsCounted(uid, self.entries[uid].attempts, alive=False))
            self.run()
        if dice.random() < 0.2:
            self.world.pass_time(dice.choice([10, ALARM]))
            self.run()

    @property
    def entries(self):  # type: ignore[no-untyped-def]
        return engine_state.entries(self.world.engine)

    def run(self) -> None:
        """Decide, and carry out all writes."""
        for _ in range(50):
            self.world.run()
            self.generation += 1
            done = self.world.settle(generation=self.generation)
            if not done:
                return
            for each in done:
                runs = self.entries[each.key.workload].phase is Phase.ADMITTED
                one = self.jobs[each.key.workload]
                self.world.tell(observed(one, suspended=not runs, generation=self.generation))
        raise AssertionError("not at rest")

    def check_that_nothing_waits_for_what_is_free(self, *, claimed: bool) -> None:
        """`claimed`: what open claims reserve is not free, and alike workloads wait for their owner."""
        used: Counter[str] = Counter()
        then: Counter[str] = Counter()
        state, alike = engine_state.state(self.world.engine), set()
        for entry in self.entries.values():
            if entry.attempt is not None:
                used.update({cell.flavor: n for cell, n in entry.attempt.assignment.usage().items()})
        then += used
        for claim in state.claims.waiting:
            assert claimed, f"{claim.owner} waits for {claim.victims} after the alarm"
            assert claim.assignment is not None
            then.update({cell.flavor: n for cell, n in claim.assignment.usage().items()})
            for victim in claim.victims:
                held = self.entries[victim.workload].attempt.assignment.usage()
                then.subtract({cell.flavor: n for cell, n in held.items()})
            alike |= self.entries[claim.owner].group.members.keys()
        for uid, entry in self.entries.items():
            if entry.attempt is not None or uid in alike:
                continue
            ((_, asked),) = entry.workload.pod_sets[0].requests
            where = dict(entry.workload.pod_sets[0].node_selector)
            for name in [where["gpu"]] if where else QUOTA:
                fits = max(used[name], then[name]) + asked <= QUOTA[name]
                # It may wait to preempt on its first flavor.
                assert not fits or (claimed and not where), f"{uid} fits on {name}: {entry.reason}"


@profiles.sequences(600)
@given(st.integers(0, 2**32), st.integers(3, 25))
def test_nothing_that_fits_beside_a_claim_waits_for_a_victim_and_nothing_waits_after_the_alarm(
    seed: int, actions: int
) -> None:
    cluster = Stuck(seed)
    for _ in range(actions):
        cluster.act()
        cluster.check_that_nothing_waits_for_what_is_free(claimed=True)
    cluster.world.pass_time(ALARM)
    cluster.run()
    cluster.world.pass_time(ALARM)  # also those that were evicted by then
    cluster.run()
    for _ in range(len(cluster.jobs)):
        cluster.world.pass_time(ALARM)
        cluster.run()
    cluster.check_that_nothing_waits_for_what_is_free(claimed=False)


@pytest.mark.parametrize("seconds", [1, ALARM])
def test_a_released_claim_is_not_kept_by_what_waits_behind_it(seconds: int) -> None:
    world = stuck()
    world.submit(job("two", 2, 0, "a100", created=2))
    world.run()
    world.pass_time(seconds)
    world.run()
    assert bool(engine_state.claims(world.engine)) is (seconds < ALARM)
