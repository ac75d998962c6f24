"""Laws of room on nodes that hold for every plan (M), judged by pods and nodes alone, without an index."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.decisions import Admit, Keep, Plan
from queuectl.core.model import Attempt, WorkloadId
from queuectl.core.nodes.pods import Pods
from queuectl.core.policy import CapacityShortage, Cohort, Node
from tests.unit.core import laws
from tests.unit.core.laws import PlanContext, Preempting, fits
from tests.unit.core.running_on_nodes import Needed, OnNodes
from tests.unit.core.slow_room import SlowRoom, can_be_placed, limited, needed_by


def cluster(context: PlanContext) -> OnNodes:
    assert isinstance(context.running, OnNodes)
    return context.running


def admissions(context: PlanContext) -> list[Attempt]:
    found = (d.attempt for d in context.plan.decisions if isinstance(d, Admit))
    return [attempt for attempt in found if not attempt.debt]


def pods_of(running: OnNodes, attempt: Attempt) -> list[Needed]:
    """Return all pods of an attempt that is not carried out yet."""
    specs = {one.name: one.requests for one in running.jobs[attempt.workload].workload.pod_sets}
    return [
        Needed(attempt.workload, specs[held.name], dict(held.flavors), held.name)
        for held in attempt.assignment.steered()
        for _ in range(held.count)
    ]


# --- laws


def all_pods_of_an_admission_can_be_placed(context: PlanContext) -> None:
    """M1: on what is free, with all admissions of the plan."""
    running = cluster(context)
    if not running.nodes:
        return
    pods: list[Needed] = []
    for attempt in admissions(context):
        pods += pods_of(running, attempt)
        assert can_be_placed(running, pods), f"{attempt.workload} is admitted, and its pods cannot be placed"


def no_more_is_admitted_than_nodes_have(context: PlanContext) -> None:
    """M1, M7: with what is held by others that have not started all their pods, where these find nodes."""
    running, admitted = cluster(context), admissions(context)
    held = context.attempts.values()
    if not running.nodes or not admitted or any(one.debt for one in held):
        return
    if not SlowRoom(running).expect(held):
        return
    pods = [one for attempt in held for one in running.unbound(attempt)]
    pods += [one for attempt in admitted for one in pods_of(running, attempt)]
    asked: dict[str, int] = {}
    for one in pods:
        for resource, amount in limited(running, one).items():
            asked[resource] = asked.get(resource, 0) + amount
    for resource, amount in asked.items():
        free = sum(max(0, running.free(node).get(resource, 0)) for node in usable(running))
        assert amount <= free, f"{amount} {resource} are held for pods that do not run yet, {free} are free"


def usable(running: OnNodes) -> list[Node]:
    return [node for node in running.nodes.values() if node.ready and not node.cordoned]


def trees_get_their_part_of_a_shortage(context: PlanContext) -> None:
    """M11: what a tree with `ProRata` admits is never more than its part, or what it used already.

    All parts together are at most what usable nodes have, and so all is that these trees admit.
    """
    quota = context.quota()
    parts: dict[tuple[str, str], int] = {}
    for name, cohort in context.policy.cohorts.items():
        if quota.policy._parent((name, Cohort)) is None and cohort.shortage is CapacityShortage.PRO_RATA:
            for attempt in admissions(context):
                if quota.root(attempt.assignment.cluster_queue) == (name, Cohort):
                    quota.charge(attempt)
            for cell in {(f, r) for _, f, r in quota.usage}:
                subtree, _, used = quota.numbers((name, Cohort), cell)
                _, _, before = context.quota().numbers((name, Cohort), cell)
                parts[cell] = parts.get(cell, 0) + subtree
                assert used <= max(subtree, before), (
                    f"Cohort {name} uses {used} of {cell}, its part: {subtree}"
                )
    running = cluster(context)
    for cell, part in parts.items():
        there = running.capacity(cell) if running.nodes else None
        assert there is None or part <= there, f"{part} of {cell} count, nodes have {there}"


class Claims:
    """What preemptors of earlier plans wait for, and what this plan leaves them."""

    def __init__(self, context: PlanContext) -> None:
        self.running = cluster(context)
        admitted = admissions(context)
        decided = {attempt.workload for attempt in admitted}
        decided |= {d.workload for d in context.plan.decisions if isinstance(d, Keep)}
        claims = [one for one in context.running.engine._state.claims if one.owner not in decided]
        self.gone = {victim.workload for one in claims for victim in one.victims}
        self.pods = [needed_by(one.owner, one.pods) for one in claims if one.pods]
        held = [attempt for uid, attempt in context.attempts.items() if uid not in self.gone]
        room = SlowRoom(self.running, self.gone)
        self.fitted = room.expect(held) and all(map(room.fits, self.pods))
        """Before the plan, all claims could be served: no lost node, no pod of others and none that was bound
        elsewhere than expected is in their way. Evictions that these make vain are not ours."""
        self.held = [one for attempt in held for one in self.running.unbound(attempt)]

    def lose(self, started: Iterable[Needed]) -> bool:
        """Return whether the claims alone find no room beside pods that are `started` and not bound yet."""
        others = [*started, *self.held]
        pods = [one for found in self.pods for one in found]
        return not can_be_placed(self.running, [*others, *pods], self.gone) and can_be_placed(
            self.running, others, self.gone
        )


def a_preemptor_can_be_placed_without_its_victims(context: PlanContext) -> None:
    """M8: on the state that it leaves, all preemptors of the plan together fit, and all that is held.

    Where pods of admitted workloads find no node as it is, the preemptors alone.
    """
    running = cluster(context)
    if not running.nodes:
        return
    earlier = Claims(context)
    gone = earlier.gone | {uid for preempting in context.preemptions for uid in preempting.waits_for}
    held = [attempt for uid, attempt in context.attempts.items() if uid not in gone]
    pods = [one for preempting in context.preemptions for one in claimed(context, preempting)]
    if SlowRoom(running, gone).expect(held):
        pods += [one for found in earlier.pods for one in found if earlier.fitted]
        pods += [one for attempt in held for one in running.unbound(attempt)]
        pods += [one for attempt in admissions(context) for one in pods_of(running, attempt)]
    assert can_be_placed(running, pods, gone), "a preemptor cannot be placed without its victims"


def claimed(context: PlanContext, preempting: Preempting) -> list[Needed]:
    """Return the pods for which a preemptor of the plan reserves room."""
    found = (d.claim for d in context.plan.decisions if isinstance(d, Keep) and d.claim is not None)
    pods: Pods = next(claim.pods for claim in found if claim.owner == preempting.owner.id)
    return needed_by(preempting.owner.id, pods)


def claims_fit(running: OnNodes) -> bool:
    """Return whether all open claims can be served, were their victims gone."""
    return Claims(PlanContext(running, Plan(version=0, cycle=0, now=running.now), one_cycle=False)).fitted


def no_admission_takes_the_room_of_a_preemptor(context: PlanContext) -> None:
    """M8: no workload is evicted in vain because of what queuectl decides after that, in any tree."""
    claims = Claims(context)
    if claims.running.nodes and claims.pods and claims.fitted:
        pods = [one for attempt in admissions(context) for one in pods_of(claims.running, attempt)]
        assert not claims.lose(pods), "an admission takes the room that a preemptor waits for"


def no_start_can_take_the_room_of_a_preemptor(context: PlanContext) -> None:
    """M8: to whatever node the scheduler binds the first pod that it binds after the plan."""
    claims = Claims(context)
    running, admitted = claims.running, admissions(context)
    if not (running.nodes and claims.pods and claims.fitted):
        return
    pods = [one for attempt in admitted for one in pods_of(running, attempt)]
    for first in pods:
        left = list(pods)
        left.remove(first)
        for node in running.nodes.values():
            if running.can_run(node, first) and limited(running, first):
                with running.bound_to(node, first):
                    assert not claims.lose(left), f"a pod of {first.owner} may take the room of a preemptor"


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
    running = cluster(context)
    if not running.nodes:
        return True
    quota = context.quota()
    others = [attempt.assignment.cluster_queue for attempt in admissions(context)]
    others += [*context.claimed, *(one.queue for one in context.preemptions)]
    if any(quota.root(name) != quota.root(preempting.queue) for name in others):
        return False
    without = set(gone)
    room = SlowRoom(running, without)
    room.expect(attempt for uid, attempt in context.attempts.items() if uid not in without)
    return room.fits(claimed(context, preempting))


REPLACED = {laws.no_victim_is_unnecessary: no_victim_is_unnecessary}
ALL = (
    *(REPLACED.get(law, law) for law in laws.ALL),
    all_pods_of_an_admission_can_be_placed,
    no_more_is_admitted_than_nodes_have,
    trees_get_their_part_of_a_shortage,
    a_preemptor_can_be_placed_without_its_victims,
    no_admission_takes_the_room_of_a_preemptor,
    no_start_can_take_the_room_of_a_preemptor,
)
"""Those of laws.py, where victims are needed for room as well, and those of nodes."""
