"""Laws of room on nodes that hold for every plan (M), judged by pods and nodes alone, without an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuectl.core.decisions import Admit, Keep
from queuectl.core.forking import fork
from queuectl.core.model import Attempt, WorkloadId
from queuectl.core.nodes.modes import mode_of
from queuectl.core.nodes.pods import Pods
from queuectl.core.policy import CapacityMode, Node
from tests.core import laws
from tests.core.laws import PlanContext, Preempting, fits
from tests.core.running_on_nodes import Needed, OnNodes


def cluster(context: PlanContext) -> OnNodes:
    assert isinstance(context.running, OnNodes)
    return context.running


def limited(running: OnNodes, needed: Needed) -> dict[str, int]:
    """Return the requests that nodes limit, by M2."""
    found = {}
    for resource, amount in needed.requests:
        name = needed.flavors.get(resource)
        flavor = running.policy.flavors.get(name) if name is not None else None
        if flavor is None:
            continue
        nodes = (n for n in running.nodes.values() if set(flavor.node_labels) <= set(n.labels))
        offered = any(dict(node.allocatable).get(resource) for node in nodes)
        if amount and mode_of(flavor.nodes, resource, offered=offered) is CapacityMode.ENFORCE:
            found[resource] = amount
    return found


def can_be_placed(running: OnNodes, pods: Sequence[Needed], without: Iterable[WorkloadId] = ()) -> bool:
    """Return whether there is a way to place all `pods` beside those that are bound: every way is tried."""
    free = free_without(running, set(without))
    wanted = [(one, amounts) for one in pods if (amounts := limited(running, one))]
    wanted.sort(key=lambda item: sorted(item[1].values(), reverse=True), reverse=True)
    nodes = list(running.nodes.values())

    def placed(at: int) -> bool:
        if at == len(wanted):
            return True
        needed, amounts = wanted[at]
        tried = set()
        for node in nodes:
            left = free[node.name]
            state = (node.labels, tuple(sorted(left.items())))
            if state in tried or not running.matches(node, needed.flavors):
                continue
            tried.add(state)
            if all(left.get(resource, 0) >= amount for resource, amount in amounts.items()):
                _take(left, amounts, 1)
                if placed(at + 1):
                    return True
                _take(left, amounts, -1)
        return False

    return placed(0)


def free_without(running: OnNodes, gone: set[WorkloadId]) -> dict[str, dict[str, int]]:
    """Return what is free by node and resource, once the pods of the workloads `gone` have ended."""
    free = {node.name: running.free(node) for node in running.nodes.values()}
    for pod in running.pods.values():
        if pod.workload in gone and pod.node in free:
            _take(free[pod.node], dict(pod.requests), -1)
    return free


def _take(left: dict[str, int], amounts: dict[str, int], times: int) -> None:
    for resource, amount in amounts.items():
        left[resource] -= times * amount


def pods_of(running: OnNodes, attempt: Attempt) -> list[Needed]:
    """Return all pods of an attempt that is not carried out yet."""
    specs = {one.name: one.requests for one in running.jobs[attempt.workload].workload.pod_sets}
    return [
        Needed(attempt.workload, specs[held.name], dict(held.flavors))
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
    for decision in context.plan.decisions:
        if isinstance(decision, Admit) and not decision.attempt.debt:
            pods += pods_of(running, decision.attempt)
            assert can_be_placed(running, pods), f"{decision.ref} is admitted, and its pods cannot be placed"


def no_more_is_admitted_than_nodes_have(context: PlanContext) -> None:
    """M1, M7: with what is held by others that have not started all their pods, while no room was lost."""
    running = cluster(context)
    if running.disturbed or not running.nodes:
        return
    admitted = [d.attempt for d in context.plan.decisions if isinstance(d, Admit)]
    if not admitted or any(attempt.debt for attempt in (*admitted, *context.attempts.values())):
        return
    pods = [one for attempt in context.attempts.values() for one in running.unbound(attempt)]
    pods += [one for attempt in admitted for one in pods_of(running, attempt)]
    asked: dict[str, int] = {}
    for one in pods:
        _add(asked, limited(running, one))
    for resource, amount in asked.items():
        free = sum(max(0, running.free(node).get(resource, 0)) for node in usable(running))
        assert amount <= free, f"{amount} {resource} are held for pods that do not run yet, {free} are free"


def _add(to: dict[str, int], amounts: dict[str, int]) -> None:
    for resource, amount in amounts.items():
        to[resource] = to.get(resource, 0) + amount


def usable(running: OnNodes) -> list[Node]:
    return [node for node in running.nodes.values() if node.ready and not node.cordoned]


def a_preemptor_can_be_placed_without_its_victims(context: PlanContext) -> None:
    """M8: all preemptors of the plan together, once all their victims are gone."""
    running = cluster(context)
    if not running.nodes:
        return
    gone = {uid for preempting in context.preemptions for uid in preempting.waits_for}
    pods: list[Needed] = []
    for preempting in context.preemptions:
        for group in claimed(context, preempting):
            pods += [
                Needed(preempting.owner.id, group.shape.requests, dict(group.shape.flavors))
            ] * group.count
    assert can_be_placed(running, pods, gone), "a preemptor cannot be placed without its victims"


def claimed(context: PlanContext, preempting: Preempting) -> Pods:
    """Return the pods for which a preemptor of the plan reserves room."""
    found = (d.claim for d in context.plan.decisions if isinstance(d, Keep) and d.claim is not None)
    return next(claim.pods for claim in found if claim.owner == preempting.owner.id)


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
    room = fork(context.running.engine._state.nodes)
    for uid in gone:
        room.remove(uid)
    return not room or room.fits(claimed(context, preempting))


REPLACED = {laws.no_victim_is_unnecessary: no_victim_is_unnecessary}
ALL = (
    *(REPLACED.get(law, law) for law in laws.ALL),
    all_pods_of_an_admission_can_be_placed,
    no_more_is_admitted_than_nodes_have,
    a_preemptor_can_be_placed_without_its_victims,
)
"""Those of laws.py, where victims are needed for room as well, and those of nodes."""
