"""Claims of preemptors (docs/scheduling.md, C7): their states, and what a restart keeps of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.engine import Engine
from queuectl.core.entries import story
from queuectl.core.model.events import ContextObserved, Listed, PodsCounted
from queuectl.core.model.policy import (
    ClusterQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    LedgerSnapshot,
    Phase,
    PodSetAssignment,
    StoredWorkload,
    Workload,
    WorkloadId,
)
from queuectl.core.preemption.claims import ClaimState, PreemptionClaim, PreemptionClaims, Victim
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

OWNER, FIRST, SECOND = WorkloadId("owner"), WorkloadId("first"), WorkloadId("second")
ASSIGNMENT = Assignment(cluster_queue="cq", pod_sets=())


def claim(*victims: WorkloadId, queue: str = "cq", owner: WorkloadId = OWNER) -> PreemptionClaim:
    return PreemptionClaim(
        owner=owner,
        cluster_queue=queue,
        cells=((0, 4),),
        victims=tuple(Victim(victim, 1) for victim in victims),
        assignment=ASSIGNMENT,
    )


def test_a_claim_waits_for_its_last_victim_and_is_granted_then() -> None:
    claims = PreemptionClaims()
    claims.open(claim(FIRST, SECOND))
    assert list(claims.ended(FIRST)) == []
    [waiting] = claims.by_queue.values()
    assert waiting.state is ClaimState.WAITING
    assert list(claims.ended(SECOND)) == ["cq"]
    [granted] = claims.by_queue.values()
    assert (granted.state, granted.assignment) == (ClaimState.GRANTED, ASSIGNMENT)


def test_one_victim_may_be_of_two_claims_and_dropping_one_leaves_the_other() -> None:
    claims = PreemptionClaims()
    claims.open(claim(FIRST))
    claims.open(claim(FIRST, queue="other", owner=SECOND))
    claims.drop(claims.by_queue["cq"])
    assert "cq" not in claims.by_queue
    assert list(claims.ended(FIRST)) == ["other"]


def test_a_cluster_queue_has_one_claim() -> None:
    claims = PreemptionClaims()
    claims.open(claim(FIRST))
    with pytest.raises(AssertionError):
        claims.open(claim(SECOND))


def restarted(preemptor: Workload, *pending: Workload) -> World:
    """A controller that starts while `victim` is being evicted for `preemptor`, and observes `pending`."""
    victim = workload("victim", gpus=4)
    pods = PodSetAssignment(name="main", count=1, requests=((GPU, 4),), flavors=((GPU, "default"),))
    reason = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE, by=str(preemptor.ref))
    stored = StoredWorkload(
        id=victim.id,
        ref=victim.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=victim.created_at,
        arrival=1,
        phase=Phase.EVICTING,
        attempts=1,
        attempt=Attempt(
            workload=victim.id,
            number=1,
            state=AttemptState.EVICTING,
            assignment=Assignment(cluster_queue="cq", pod_sets=(pods,)),
            admitted_at=T0,
        ),
        reason=reason,
        preemptor=preemptor.id,
    )
    world = World()
    world.engine = Engine(SOURCES)
    world.engine.restore(LedgerSnapshot(sequence=1, now=T0, workloads=(stored,)))
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 4)))
    world.tell(policy(local_queue("lq", "cq")), Listed("policies"))
    world.tell(*(observed(one) for one in (victim, *pending)))
    world.tell(Listed("Job", frozenset({victim.id, *(one.id for one in pending)})))
    world.run()
    world.tell(PodsCounted(victim.id, 1, alive=False))
    return world


def test_after_a_restart_the_preemptor_is_admitted_before_an_older_workload() -> None:
    preemptor, older = workload("preempts", gpus=4, created=9), workload("older", gpus=4, created=1)
    assert admitted(restarted(preemptor, older, preemptor).run()) == ["preempts"]


def test_after_a_restart_a_new_workload_with_the_name_of_the_preemptor_is_not_first() -> None:
    preemptor, older = workload("preempts", gpus=4, created=9), workload("older", gpus=4, created=1)
    again = replace(preemptor, id=WorkloadId("another"), ref=preemptor.ref._replace(uid="another"))
    victim_first = workload("victim", gpus=4)  # it is pending again, and the oldest
    world = restarted(preemptor, older, again)
    assert admitted(world.run()) == [victim_first.ref.name]


def test_the_story_of_a_workload_has_its_last_observations_and_decisions_in_words() -> None:
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.submit(workload("runs"), workload("waits", created=1))
    world.run()
    for name, words in (
        ("runs", ("suspended", "Queued", "Admitted  attempt 1")),
        ("waits", ("WaitingForQuota",)),
    ):
        entry = engine_state.entry(world.engine, workload(name).id)
        text = story(entry.recent)
        assert all(word in text for word in words), text


def two_flavors(name: str, first: int, second: int) -> ClusterQueue:
    anyone = Preemption(
        reclaim_within_cohort=PreemptionPolicy.ANY, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY
    )
    quotas = group({"first": {GPU: first}, "second": {GPU: second}})
    return queue(name, groups=[quotas], cohort="team", preemption=anyone)


def test_a_preemptor_that_fits_a_flavor_but_for_another_claim_ends_its_search_in_the_plan() -> None:
    world = World(
        *(flavor("first"), flavor("second"), two_flavors("a", 0, 2), two_flavors("b", 3, 0)),
        *(local_queue("lqa", "a"), local_queue("lqb", "b"), WorkloadPriorityClass("high", 9)),
    )
    world.submit(workload("b-runs", "lqb", 2, created=1), workload("a-runs", "lqa", 2, created=2))
    world.run()
    world.submit(
        workload("a-preempts", "lqa", 2, created=3, priority_class="high"),
        workload("b-preempts", "lqb", 3, created=4, priority_class="high"),
    )
    world.run()
    # Once a-runs is gone a-preempts would fit `first`, where b-preempts claims what is available.
    world.tell(policy(two_flavors("b", 4, 1)))
    plan = world.plan()
    assert (plan.left, plan.more) == ((), False)
    world.run()
    reasons = [world.reason(name) for name in ("a-preempts", "b-preempts")]
    assert [reason and reason.code for reason in reasons] == 2 * [Code.WAITING_FOR_PREEMPTED_WORKLOADS]
