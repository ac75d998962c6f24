"""Laws of room on nodes that hold for every plan (M), judged by pods and nodes alone, without an index."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.decisions import Keep, Plan
from queuectl.core.engine import DEFAULT_BUDGET
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import CapacityShortage, Cohort, Node
from queuectl.core.model.workload import WorkloadId
from tests.doubles import engine_state
from tests.unit.core import laws
from tests.unit.core.driver import Driver
from tests.unit.core.node_pool import NeededPod, NodePool
from tests.unit.core.plans import PlanContext, Preempting, When, fits, law
from tests.unit.core.slow_room import SlowRoom, can_be_placed, limited, needed_by


@law(When.PLAN)
def all_pods_of_an_admission_can_be_placed(context: PlanContext) -> None:
    """M1: on what is free, with all admissions of the plan."""
    pool = context.driver.nodes
    if not pool.nodes:
        return
    pods: list[NeededPod] = []
    for attempt in context.admissions:
        pods += pool.needed(attempt)
        assert can_be_placed(pool, pods), f"{attempt.workload} is admitted, and its pods cannot be placed"


@law(When.PLAN)
def no_more_is_admitted_than_nodes_have(context: PlanContext) -> None:
    """M1, M7: with what is held by others that have not started all their pods, where these find nodes."""
    pool, admitted = context.driver.nodes, context.admissions
    held = context.attempts.values()
    if not pool.nodes or not admitted or any(one.debt for one in held):
        return
    if not SlowRoom(pool).expect(held):
        return
    pods = [one for attempt in held for one in pool.unbound(attempt)]
    pods += [one for attempt in admitted for one in pool.needed(attempt)]
    asked: dict[str, int] = {}
    for one in pods:
        for resource, amount in limited(pool, one).items():
            asked[resource] = asked.get(resource, 0) + amount
    for resource, amount in asked.items():
        free = sum(max(0, pool.free(node).get(resource, 0)) for node in usable(pool))
        assert amount <= free, f"{amount} {resource} are held for pods that do not run yet, {free} are free"


def usable(pool: NodePool) -> list[Node]:
    return [node for node in pool.nodes.values() if node.ready and not node.cordoned]


@law(When.PLAN)
def trees_get_their_part_of_a_shortage(context: PlanContext) -> None:
    """M11: what a tree with `ProRata` admits is never more than its part, or what it used already.

    All parts together are at most what usable nodes have, and so all is that these trees admit.
    """
    quota = context.quota()
    parts: dict[tuple[str, str], int] = {}
    for name, cohort in context.policy.cohorts.items():
        if quota.policy._parent((name, Cohort)) is None and cohort.shortage is CapacityShortage.PRO_RATA:
            for attempt in context.admissions:
                if quota.root(attempt.assignment.cluster_queue) == (name, Cohort):
                    quota.charge(attempt)
            for cell in {(f, r) for _, f, r in quota.usage}:
                subtree, _, used = quota.numbers((name, Cohort), cell)
                _, _, before = context.quota().numbers((name, Cohort), cell)
                parts[cell] = parts.get(cell, 0) + subtree
                assert used <= max(subtree, before), (
                    f"Cohort {name} uses {used} of {cell}, its part: {subtree}"
                )
    pool = context.driver.nodes
    for cell, part in parts.items():
        there = pool.capacity(cell) if pool.nodes else None
        assert there is None or part <= there, f"{part} of {cell} count, nodes have {there}"


class Claims:
    """What preemptors of earlier plans wait for, and what this plan leaves them."""

    def __init__(self, context: PlanContext) -> None:
        self.pool = context.driver.nodes
        admitted = context.admissions
        decided = {attempt.workload for attempt in admitted}
        decided |= {d.workload for d in context.plan.decisions if isinstance(d, Keep)}
        claims = [one for one in engine_state.claims(context.driver.engine) if one.owner not in decided]
        self.gone = {victim.workload for one in claims for victim in one.victims}
        self.pods = [needed_by(one.owner, one.pods) for one in claims if one.pods]
        held = [attempt for uid, attempt in context.attempts.items() if uid not in self.gone]
        room = SlowRoom(self.pool, self.gone)
        self.fitted = room.expect(held) and all(map(room.fits, self.pods))
        """Before the plan, all claims could be served: no lost node, no pod of others and none that was bound
        elsewhere than expected is in their way. Evictions that these make vain are not ours."""
        self.held = [one for attempt in held for one in self.pool.unbound(attempt)]

    def lose(self, started: Iterable[NeededPod]) -> bool:
        """Return whether the claims alone find no room beside pods that are `started` and not bound yet."""
        others = [*started, *self.held]
        pods = [one for found in self.pods for one in found]
        return not can_be_placed(self.pool, [*others, *pods], self.gone) and can_be_placed(
            self.pool, others, self.gone
        )


@law(When.PLAN)
def a_preemptor_can_be_placed_without_its_victims(context: PlanContext) -> None:
    """M8: on the state that it leaves, all preemptors of the plan together fit, and all that is held.

    Where pods of admitted workloads find no node as it is, the preemptors alone.
    """
    pool = context.driver.nodes
    if not pool.nodes:
        return
    earlier = Claims(context)
    gone = earlier.gone | {uid for preempting in context.preemptions for uid in preempting.waits_for}
    held = [attempt for uid, attempt in context.attempts.items() if uid not in gone]
    pods = [one for preempting in context.preemptions for one in claimed(context, preempting)]
    if SlowRoom(pool, gone).expect(held):
        pods += [one for found in earlier.pods for one in found if earlier.fitted]
        pods += [one for attempt in held for one in pool.unbound(attempt)]
        pods += [one for attempt in context.admissions for one in pool.needed(attempt)]
    assert can_be_placed(pool, pods, gone), "a preemptor cannot be placed without its victims"


def claimed(context: PlanContext, preempting: Preempting) -> list[NeededPod]:
    """Return the pods for which a preemptor of the plan reserves room."""
    found = (d.claim for d in context.plan.decisions if isinstance(d, Keep) and d.claim is not None)
    pods: Pods = next(claim.pods for claim in found if claim.owner == preempting.owner.id)
    return needed_by(preempting.owner.id, pods)


def claims_fit(driver: Driver) -> bool:
    """Return whether all open claims can be served, were their victims gone."""
    return Claims(PlanContext(driver, Plan(version=0, cycle=0, now=driver.now), DEFAULT_BUDGET, None)).fitted


@law(When.PLAN)
def no_admission_takes_the_room_of_a_preemptor(context: PlanContext) -> None:
    """M8: no workload is evicted in vain because of what queuectl decides after that, in any tree."""
    claims = Claims(context)
    if claims.pool.nodes and claims.pods and claims.fitted:
        pods = [one for attempt in context.admissions for one in claims.pool.needed(attempt)]
        assert not claims.lose(pods), "an admission takes the room that a preemptor waits for"


@law(When.PLAN)
def no_start_can_take_the_room_of_a_preemptor(context: PlanContext) -> None:
    """M8: to whatever node the scheduler binds the first pod that it binds after the plan."""
    claims = Claims(context)
    pool, admitted = claims.pool, context.admissions
    if not (pool.nodes and claims.pods and claims.fitted):
        return
    pods = [one for attempt in admitted for one in pool.needed(attempt)]
    for first in pods:
        left = list(pods)
        left.remove(first)
        for node in pool.nodes.values():
            if pool.can_run(node, first) and limited(pool, first):
                with pool.bound_to(node, first):
                    assert not claims.lose(left), f"a pod of {first.owner} may take the room of a preemptor"


@law(When.PLAN)
def no_victim_is_unnecessary(context: PlanContext) -> None:
    """P6, M8: with any single victim restored there is no quota, or no room, for the request."""
    for preempting in context.alone():
        if not preempting.evicts:
            continue
        quota = context.quota()
        for uid in preempting.waits_for:
            quota.charge(context.attempts[uid], -1)
        bound = fits(quota, preempting, allow_borrowing=False)
        for victim in preempting.evicts:
            quota.charge(context.attempts[victim.workload])
            spared = fits(quota, preempting, allow_borrowing=True)
            if spared and bound and not context.fair(preempting.queue):
                spared = fits(quota, preempting, allow_borrowing=False)
            others = [uid for uid in preempting.waits_for if uid != victim.workload]
            assert not (spared and _has_room(context, preempting, others)), (
                f"{victim.ref} is not needed as a victim of {preempting.owner.ref}"
            )
            quota.charge(context.attempts[victim.workload], -1)


def _has_room(context: PlanContext, preempting: Preempting, gone: Iterable[WorkloadId]) -> bool:
    """Return whether there is room without `gone`. If other trees admit or claim anything: no."""
    pool = context.driver.nodes
    if not pool.nodes:
        return True
    quota = context.quota()
    others = [attempt.assignment.cluster_queue for attempt in context.admissions]
    others += [*context.claimed, *(one.queue for one in context.preemptions)]
    if any(quota.root(name) != quota.root(preempting.queue) for name in others):
        return False
    without = set(gone)
    room = SlowRoom(pool, without)
    room.expect(attempt for uid, attempt in context.attempts.items() if uid not in without)
    return room.fits(claimed(context, preempting))


ALL = (
    *(each for each in laws.OF_PLANS if each is not laws.no_victim_is_unnecessary),
    no_victim_is_unnecessary,
    all_pods_of_an_admission_can_be_placed,
    no_more_is_admitted_than_nodes_have,
    trees_get_their_part_of_a_shortage,
    a_preemptor_can_be_placed_without_its_victims,
    no_admission_takes_the_room_of_a_preemptor,
    no_start_can_take_the_room_of_a_preemptor,
)
"""Those of laws.py, where victims are needed for room as well, and those of nodes."""
