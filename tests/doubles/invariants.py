"""Invariants of an engine's state after every step, and of a plan before its commit.

Each counter and index is recomputed from its sources and compared. Each violation is one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

from queuectl.core.decisions import Admit, Keep, Plan, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.features.nodes.room import NodeRoom, NodeUsage
from queuectl.core.flavors.pods import pods_of
from queuectl.core.lifecycle import forgotten, may_have_pods, next_number, next_time, step
from queuectl.core.model.policy import CapacityShortage, LocalQueueName
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import AttemptState, Phase, WorkloadId
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.shortage import promised
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.state import EngineState
from tests.doubles import engine_state

T = TypeVar("T")


def violations(engine: Engine, plan: Plan | None = None) -> list[str]:
    """Return the violations in the state of `engine`, and in `plan` if given: one sentence each.

    `plan` was decided by `engine`, and is not committed yet. The time grows with the whole state.
    """
    state = engine_state.state(engine)
    return [
        *_of_state(state),
        *_devices(engine),
        *_nodes(engine),
        *_nominal(engine),
        *(_of_plan(state, plan) if plan is not None else ()),
    ]


@contextmanager
def checked_commits(every: int = 1) -> Iterator[None]:
    """Check every engine before and after each `every`th commit, and the last one at the end.

    Raises AssertionError with the violations.
    """
    commit, engines = Engine.commit, list[Engine]()

    def checked(engine: Engine, plan: Plan, first: int) -> None:
        engines.append(engine)
        due = len(engines) % every == 0
        assert not due or violations(engine, plan) == []
        commit(engine, plan, first)
        assert not due or violations(engine) == []

    with patch.object(Engine, "commit", checked):
        yield
    assert not engines or violations(engines[-1]) == []


def _of_state(state: EngineState) -> list[str]:
    return [
        *_usage(state),
        *_memberships(state),
        *(wrong for queue in state.pending.values() for wrong in _pending_queue(state, queue)),
        *_attempts(state),
        *_due(state),
    ]


def _nominal(engine: Engine) -> Iterator[str]:
    """What counts of each nominal quota is computed again from specs and nodes (M11)."""
    tree = engine_state.tree(engine)
    total = promised(tree)
    there = engine_state.room(engine).capacities(total)
    for node in tree.nodes():
        pro_rata = tree.root(node).shortage is CapacityShortage.PRO_RATA
        for cell in node.named:
            name, counts = tree.names[cell], node.promised[cell]
            limit = there.get(name)
            if pro_rata and limit is not None and limit.enforced and limit.amount < total[name]:
                counts = counts * limit.amount // total[name]
            if node.nominal[cell] != counts:
                yield f"{node} counts {node.nominal[cell]} of its quota of {name}, must count {counts}"


def _observed_again(engine: Engine) -> NodeRoom:
    """The nodes and pods that are known, without holders."""
    state, room = engine_state.state(engine), engine_state.room(engine)
    again = NodeRoom(state.directory.flavors, state.configuration.nodes)
    again.inventory.avoided = dict(room.inventory.avoided)
    for record in room.inventory.nodes():
        assert record.node is not None
        again.observe(record.node, state.clock)
    for pod in room.pods.values():
        again.observe_pod(pod, state.clock)
        if room.losses.counts_as_gone(pod):
            again.bound.detach(pod)
    return again


def _nodes(engine: Engine) -> Iterator[str]:
    """What is free and expected on nodes is computed again from nodes, pods and holders."""
    state, room = engine_state.state(engine), engine_state.room(engine)
    again = _observed_again(engine)
    again.settle()
    for entry in state.entries.values() if again else ():
        if entry.attempt is not None:
            charges = state.directory.pods.charges(entry.workload) if entry.workload is not None else ()
            pods = () if entry.attempt.debt else pods_of(charges, entry.attempt.assignment)
            again.hold(entry.id, entry.attempt.sequence, pods)
    again.settle()
    for name, (known, found) in _both(_free(room), _free(again)):
        if known != found:
            yield f"node {name} has {known} free, counted again {found}"
    yield from _pods_of_nodes(room)
    lost_under = engine.features.nodes.lost
    for entry in state.entries.values():
        if entry.bound != (bound := again.bound.count(entry.id)):
            yield f"{entry.ref} has {bound} bound pods, its entry says {entry.bound}"
        lost = room.losses.lost_under(entry.id)
        if entry.attempt is not None and lost_under.get(entry.id) != lost:
            yield f"{entry.ref} has lost {lost}, noted is {lost_under.get(entry.id)}"


def _devices(engine: Engine) -> Iterator[str]:
    """Devices of nodes are counted again from all slices."""
    known = engine.features.devices.nodes
    for name, (has, found) in _both({one: known.of(one) for one in known.nodes()}, known.again()):
        if has != found:
            yield f"node {name} has devices {has}, counted again {found}"


def _pods_of_nodes(room: NodeRoom) -> Iterator[str]:
    """Pods that count as gone (M13) still take their node, for readers."""
    again = NodeUsage()
    for pod in room.pods.values():
        again.count(pod, 1)
    for name in room.inventory.records:
        known, found = dict(room.usage.of(name)), dict(again.of(name))
        if known != found:
            yield f"pods take {known} of node {name}, counted again {found}"


def _free(room: NodeRoom) -> dict[str, dict[str, int]]:
    room.settle()
    return {
        record.name: dict(zip(room.inventory.resources, record.free, strict=True))
        for record in room.inventory.nodes()
    }


def _both(one: dict[str, T], other: dict[str, T]) -> Iterator[tuple[str, tuple[T | None, T | None]]]:
    for name in sorted(one.keys() | other.keys()):
        yield name, (one.get(name), other.get(name))


def _of_plan(state: EngineState, plan: Plan) -> list[str]:
    """Return the violations in `plan` against the state that it was computed from (C3, C5)."""
    used = {
        (name, cell): amount
        for name in {*state.holders, *state.directory.queues}
        for cell, amount in _held(state, name).items()
    }
    wrong: list[str] = []
    moved: set[WorkloadId] = set()
    released: set[WorkloadId] = set()
    for decision in plan.decisions:
        if isinstance(decision, Release | Retire):
            released.add(decision.workload)
            entry = state.entries[decision.workload]
            if entry.attempt is not None:
                for cell, amount in entry.attempt.assignment.usage().items():
                    used[entry.attempt.assignment.cluster_queue, cell] -= amount
        if isinstance(decision, Retire):
            moved.add(decision.workload)
        elif isinstance(decision, Keep) and decision.workload in moved:
            wrong.append(f"{decision.ref} gets a pending reason in the plan that admits or retires it")
        elif isinstance(decision, Admit):
            wrong += _admission(state, decision, used, released)
            if decision.attempt.workload in moved:
                wrong.append(f"{decision.ref} is decided twice in one plan")
            moved.add(decision.attempt.workload)
    return wrong


def _admission(
    state: EngineState,
    admit: Admit,
    used: dict[tuple[str, FlavorResource], int],
    released: Set[WorkloadId],
) -> Iterator[str]:
    attempt, entry = admit.attempt, state.entries[admit.attempt.workload]
    marked = forgotten(entry) if attempt.debt else None
    number = next_number(entry) if marked is None or marked.number <= entry.attempts else marked.number
    if attempt.number != number or (entry.attempt is not None and entry.id not in released):
        yield f"{admit.ref} opens attempt {attempt.number} after {entry.attempts}, open: {entry.attempt}"
    node = state.tree.queue(attempt.assignment.cluster_queue)
    for cell, amount in attempt.assignment.usage().items():
        key = (node.name, cell)
        used[key] = used.get(key, 0) + amount
    if not attempt.debt:
        yield from _over_quota(state, admit, used)


def _over_quota(
    state: EngineState, admit: Admit, used: dict[tuple[str, FlavorResource], int]
) -> Iterator[str]:
    """Yield the nodes on the path of an admission whose usage exceeds their quota and limits (Q4)."""
    tree = state.tree
    queue = admit.attempt.assignment.cluster_queue
    for name, amount in admit.attempt.assignment.usage().items():
        cell = tree.cell(name)
        before = {**used, (queue, name): used[queue, name] - amount}
        for node in tree.queue(queue).path():
            usage = _used_below(node, cell, name, used)
            if usage == _used_below(node, cell, name, before):
                break
            limit = node.borrowing[cell]
            if node.parent is None:
                most: int | None = node.subtree[cell]
            else:
                most = None if limit is None else node.subtree[cell] + limit
            if most is not None and usage > most:
                yield f"{admit.ref} raises the usage of {node} to {usage} {name}, the limit is {most}"


def _used_below(
    node: QuotaNode, cell: int, name: FlavorResource, used: dict[tuple[str, FlavorResource], int]
) -> int:
    """Return the usage at `node` that follows from the usage `used` of the ClusterQueues (Q2)."""
    found: dict[QuotaNode, int] = {}
    for at in reversed(list(node.below())):
        if at.kind == "ClusterQueue":
            found[at] = used.get((at.name, name), 0)
        else:
            children = at.children.values()
            found[at] = sum(max(0, found.pop(child) - child.private[cell]) for child in children)
    return found[node]


# --- quota


def _held(state: EngineState, queue: str) -> Counter[FlavorResource]:
    total: Counter[FlavorResource] = Counter()
    for entry in state.holders.get(queue, {}).values():
        if entry.attempt is not None:
            total.update(entry.attempt.assignment.usage())
    return total


def _usage(state: EngineState) -> Iterator[str]:
    """Compare the counters of every node with the open attempts and its children (Q2)."""
    tree = state.tree
    for node in tree.nodes():
        held = _held(state, node.name) if node.kind == "ClusterQueue" else Counter()
        yield from _node(tree, node, held)
    for entry in state.entries.values():
        queue = entry.attempt.assignment.cluster_queue if entry.attempt is not None else None
        found = [name for name, holders in state.holders.items() if entry.id in holders]
        if found != ([] if queue is None else [queue]):
            yield f"{entry.ref} is charged to {queue}, but is among the holders of {found}"
    for name, holders in state.holders.items():
        for workload in holders.keys() - state.entries.keys():
            yield f"{workload} is over, but is still among the holders of {name}"


def _node(tree: QuotaTree, node: QuotaNode, held: Counter[FlavorResource]) -> Iterator[str]:
    for cell, name in enumerate(tree.names):
        subtree, usage = node.nominal[cell], held[name]
        for child in node.children.values():
            private = max(0, child.subtree[cell] - lent) if (lent := child.lending[cell]) is not None else 0
            subtree += child.subtree[cell] - private
            usage += max(0, child.usage[cell] - private)
        if (node.subtree[cell], node.usage[cell]) != (subtree, usage):
            yield (
                f"{node} counts {node.usage[cell]} used of {node.subtree[cell]} {name}, "
                f"its children and attempts amount to {usage} of {subtree}"
            )


# --- pending queues


def _memberships(state: EngineState) -> Iterator[str]:
    counted = sum(len(members) for members in state.members.values())
    if counted != len(state.entries):
        yield f"{counted} members of LocalQueues, {len(state.entries)} entries"
    for entry in state.entries.values():
        local = LocalQueueName(entry.ref.namespace, entry.queue)
        if state.members.get(local, {}).get(entry.id) is not entry:
            yield f"{entry.ref} is not among the members of LocalQueue {local}"
        yield from _membership(state, entry)


def _membership(state: EngineState, entry: Entry) -> Iterator[str]:
    group, unreported, pending = entry.group, entry.id in state.unreported, _is_pending(state, entry)
    if group is not None:
        queue = state.pending.get(group.cluster_queue)
        if queue is None or queue.groups.get(group.key) is not group:
            yield f"{entry.ref} is in a pending queue that does not exist"
        if group.cluster_queue != entry.cluster_queue or group.members.get(entry.id) is not entry:
            yield f"{entry.ref} of {entry.cluster_queue} is in the pending queue of {group.cluster_queue}"
    if group is not None and (unreported or entry.ineligible is not None or not pending):
        yield f"{entry.ref} is in a pending queue although it is ineligible: {entry.ineligible}"
    if (
        group is None
        and _is_pending(state, entry)
        and entry.ineligible is None
        and not state.is_frozen(entry)
    ):
        yield f"{entry.ref} is pending and eligible, but in no pending queue"
    if unreported and (entry.attempt is not None or entry.ineligible is None):
        yield f"{entry.ref} is marked ineligible, but has no such reason"


def _is_pending(state: EngineState, entry: Entry) -> bool:
    """Return whether an eligible workload in this state belongs to a pending queue."""
    if may_have_pods(entry, state.directory):
        return False
    seen = entry.observation
    pending = entry.workload is not None and entry.attempt is None and not entry.gone and entry.current
    return pending and seen is not None and seen.suspended and seen.finished is None


def _pending_queue(state: EngineState, queue: PendingQueue) -> Iterator[str]:
    where = f"pending queue of {queue.name}"
    groups = list(queue.groups.values())
    if queue.active.keys() != {group for group in groups if group.inadmissible is None}:
        yield f"{where}: the index of active equivalence classes is wrong"
    if queue.unreported.keys() != {group for group in groups if group.unreported}:
        yield f"{where}: the index of classes with members without a reported reason is wrong"
    missing: dict[FlavorResource, dict[EquivalenceGroup, int]] = {}
    for group in groups:
        for cell, amount in group.missing:
            amounts = missing.setdefault(cell, {})
            amounts[group] = min(amount, amounts.get(group, amount))
    if queue.by_missing != missing:
        yield f"{where}: the index of missing quota is wrong"
    if queue.due and queue.name not in state.due_queues:
        yield f"{where} is due, but is not marked so"
    for group in groups:
        for wrong in _group(queue, group):
            yield f"{where}: {wrong}"


def _group(queue: PendingQueue, group: EquivalenceGroup) -> Iterator[str]:
    if not group.members:
        yield "an equivalence class without members"
    in_heap = Counter(
        entry.id for _, version, entry in group.heap if entry.group is group and entry.heap_version == version
    )
    if in_heap != Counter(group.members.keys()):
        yield "members and heap of an equivalence class differ"
    if not group.unreported.keys() <= group.members.keys():
        yield "a workload that left is marked as not yet reported"
    if any(entry.recorded is None for entry in group.unreported.values()):
        yield "a workload that the ledger does not have is marked as not yet reported"
    head = group.head()
    for entry in group.members.values():
        turn = queue.turn(entry) if queue.usage_based else None
        if not queue.strict and group.key != (entry.shape, entry.order[0], turn):
            yield f"{entry.ref} is in an equivalence class of another shape or priority"
        if group.inadmissible is None or group in queue.requeued or entry.id in group.unreported:
            continue  # its reason is not reported yet
        if entry.recorded is None:
            continue  # the ledger does not have it yet
        expected = queue.waiting_for_head() if queue.strict and entry is not head else group.inadmissible
        if entry.reason is None or entry.reason.key != expected.key:
            yield f"{entry.ref} has reason {entry.reason and entry.reason.code} instead of {expected.code}"


# --- lifecycle


def _attempts(state: EngineState) -> Iterator[str]:
    for entry in state.entries.values():
        attempt = entry.attempt
        phase = Phase.PENDING
        if attempt is not None:
            evicting = attempt.state is AttemptState.EVICTING
            phase = Phase.EVICTING if evicting else Phase.ADMITTED
        if entry.phase is not phase:
            yield f"{entry.ref} is {entry.phase}, its attempt requires {phase}"
        if attempt is not None and attempt.number != entry.attempts:
            yield f"{entry.ref} holds attempt {attempt.number} of {entry.attempts}"
        if entry.unacknowledged is not None and attempt is None:
            yield f"{entry.ref} has an effect to send, but no attempt"
        to_send = entry.unacknowledged is not None and not (entry.dispatched or entry.start_refused)
        if to_send != (entry.id in state.outbox) and not state.is_frozen(entry):
            yield f"{entry.ref}: unsent {entry.unacknowledged}, handed {entry.dispatched}, outbox disagrees"


def _due(state: EngineState) -> Iterator[str]:
    for entry in state.entries.values():
        frozen = state.is_frozen(entry)
        what = None if frozen else step(entry, state.directory, state.features, state.clock)
        when = None if frozen else next_time(entry, state.features, state.clock)
        if state.timers.times.get(entry.id) != when:
            yield f"{entry.ref} is due at {when}, its timer is {state.timers.times.get(entry.id)}"
        if what != state.due_steps.get(entry.id):
            yield f"{entry.ref}: next step {what}, marked due: {state.due_steps.get(entry.id)}"
    for name, places in (
        ("due", state.due_steps),
        ("unreported", state.unreported),
        ("outbox", state.outbox),
    ):
        for workload in set(places) - state.entries.keys():
            yield f"{workload} is over, but is still in {name}"
    for key in state.specs.keys() | state.recorded_specs.keys():
        spec = state.specs.get(key)
        unread = spec is None and key in state.directory.invalid
        if (
            state.synced
            and not unread
            and spec != state.recorded_specs.get(key)
            and key not in state.due_configs
            and (key in state.recorded_specs or state.matters(key))
        ):
            yield f"{key} is not recorded, and is not marked due"
