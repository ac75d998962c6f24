"""Room on nodes, lost nodes, and flavors whose nodes do not come (M)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from queuectl.core.decisions import Admit, Decision, Evict
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry, Shape
from queuectl.core.feature import Alarm, Feature, Kernel
from queuectl.core.features.nodes.expected import Predicted, Predictions
from queuectl.core.features.nodes.facts import ToldNodes, capacities, take_facts
from queuectl.core.features.nodes.losses import LostPods
from queuectl.core.features.nodes.promises import Promises, StockOuts
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.capacity import CapacityWarning, FlavorCapacity
from queuectl.core.model.events import Event, Listed, PolicyGone, PolicyObserved, TimeCame
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Node, ResourceFlavor
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import Attempt, LedgerSnapshot, WorkloadId
from queuectl.core.quota.shortage import promised


class Nodes(Feature):
    """Is active from the first Node or pod on, and once a flavor is left out as its nodes did not come."""

    events_while_active: ClassVar = frozenset({PolicyObserved, PolicyGone, Listed, TimeCame})
    decisions: ClassVar = frozenset({Evict})
    decisions_while_active: ClassVar = frozenset({Admit})

    def __init__(self, kernel: Kernel) -> None:
        directory, rules = kernel.directory, kernel.directory.configuration.nodes
        self._kernel = kernel
        self.room = NodeRoom(directory.flavors, rules)
        self.predictions = Predictions()
        self._stock_outs = StockOuts(rules.stock_out_seconds)
        directory.out_until = self._stock_outs.until
        self._promises = Promises(directory, self.room, self._stock_outs)
        self._flavors: dict[str, ResourceFlavor] = {}
        """As last counted."""
        self.lost: dict[WorkloadId, LostPods] = {}
        """Nodes that are lost under workloads that hold quota (M12)."""
        self._began = False
        """All sources have been listed."""
        self._restored = False
        self._reported = -1
        """Version of the quota tree of the last report on capacity."""

    def _activate(self) -> None:
        if not self.active:
            self.active = True
            self.room.flavors_changed()
            self._begin()

    def _begin(self) -> None:
        if self._kernel.synced and not self._began:
            self._began = True
            self.room.losses.begin()

    @property
    def limit(self) -> NodeRoom:
        return self.room

    # --- what happens

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        for stored in snapshot.workloads:
            self._stock_outs.note(stored.past, self._kernel.now)
        if self._stock_outs.until:
            self._activate()
        if not self._restored:
            self._restored = True
            for one in snapshot.nodes:
                if one.avoided_until is not None:
                    self.room.inventory.avoided[one.name] = one.avoided_until

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case TimeCame():
                self.room.time_came(self._kernel.clock)
                self._stock_outs.time_came(self._kernel.clock)
            case Listed():
                self._begin()
            case PolicyObserved(value=ResourceFlavor() as flavor) if self._flavors.get(flavor.name) != flavor:
                self._flavors[flavor.name] = flavor
                self.room.flavors_changed()
            case PolicyGone(key) if key.kind == "ResourceFlavor":
                self._flavors.pop(key.name, None)
                self.room.flavors_changed()
            case _:
                pass

    def observe_node(self, node: Node) -> bool:
        self._activate()
        return self.room.observe(node, self._kernel.clock)

    def forget_node(self, name: str) -> bool:
        return self.room.forget(name, self._kernel.clock)

    def observe_pod(self, pod: Pod) -> None:
        self._activate()
        self.predictions.observe(pod)
        self.room.observe_pod(pod, self._kernel.clock)

    def forget_pod(self, uid: str) -> None:
        self.room.forget_pod(uid)

    def decided(self, decision: Decision, entry: Entry) -> None:
        if isinstance(decision, Admit):
            if self.room.limits(entry.id) and entry.attempt is not None:
                self.predictions.admitted(entry.id, entry.ref, entry.attempt.number)
        elif isinstance(decision, Evict):
            reason, now = decision.reason, self._kernel.now
            if reason.code is Code.NODE_FAILURES and reason.node is not None:
                self.room.failed(reason.node.removeprefix("Node/"), now)
            if entry.past.missed_at is not None:
                self._stock_outs.note(entry.past, now)
            if self._stock_outs.until:
                self._activate()

    def due_at(self) -> datetime | None:
        times = (self.room.due_at(), self._stock_outs.due_at)
        return min((when for when in times if when is not None), default=None)

    # --- what is held

    def charged(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        if self.room:
            # What it was nominated with: its charges need not be computed again.
            self.hold(entry, attempt, entry.shape if entry.workload is not None else ())
        self._note_loss(entry.id)

    def recharged(self, entry: Entry, attempt: Attempt) -> None:
        if self.room:
            self.hold(entry, attempt)

    def hold(self, entry: Entry, attempt: Attempt, charges: Shape | None = None) -> None:
        """Expect the pods of an open attempt. `charges`: of its workload; None: they are to be computed."""
        if charges is None:
            workload = entry.workload
            charges = self._kernel.directory.pods.charges(workload) if workload is not None else ()
        # What ran before its admission has pods without our label, which count where they are.
        pods = () if attempt.debt else self._kernel.limits.pods_of(charges, attempt.assignment)
        self.room.hold(entry.id, attempt.sequence, pods)

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        self.room.drop(entry.id)
        self.predictions.ended(entry.id)
        self.lost.pop(entry.id, None)

    # --- after a batch of events or decisions

    def settle(self) -> None:
        self._settle_room()
        self._settle_quota()
        self._settle_flavors()

    def _settle_room(self) -> None:
        """Nodes, their pods, or what is held changed: bring the room up to date."""
        room, limited, entries = self.room, bool(self.room), self._kernel.entries
        room.note()
        if room and not limited:
            for entry in entries.values():
                if entry.attempt is not None:
                    self.hold(entry, entry.attempt)
            room.note()
        for workload in room.bound.take_moved():
            moved = entries.get(workload)
            if moved is not None and moved.bound != (bound := room.bound.count(workload)):
                matters = self._kernel.features.counts_bound or not moved.bound or not bound
                moved.bound = bound
                if matters:
                    self._kernel.refresh(moved)
        room.losses.settle()
        for workload in room.losses.take_affected():
            affected = entries.get(workload)
            if affected is not None and affected.attempt is not None and self._note_loss(workload):
                self._kernel.refresh(affected)
        self._kernel.room_changed(room)

    def _note_loss(self, workload: WorkloadId) -> bool:
        """Note the node that is lost under a workload that holds quota. Return whether that changed."""
        before, lost = self.lost.pop(workload, None), self.room.losses.lost_under(workload)
        if lost is not None:
            self.lost[workload] = lost
        return before != lost

    def _settle_quota(self) -> None:
        """Nodes or policy may have changed: nominal quotas count as nodes allow (M11)."""
        changed, tree = self._promises.share_out(), self._kernel.directory.tree
        for root in dict.fromkeys(map(tree.root, changed)):
            for node in root.queues():
                self._kernel.renominate(node.name)
        self._kernel.changed_queues.update(node.name for node in changed if node.kind == "ClusterQueue")

    def _settle_flavors(self) -> None:
        """Nominate again what may use a flavor that is left out, or used again (M20)."""
        for flavor in self._stock_outs.take_changed():
            for name in self._kernel.directory.users_of(flavor):
                self._kernel.directory.renew_flavors(name)
                self._kernel.changed_queues.add(name)
                self._kernel.renominate(name)
            self.room.usage.changed = True

    # --- what it decides

    def begin_plan(self, now: datetime) -> None:
        self.room.settle()

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Evict a workload that loses pods with a node (L23)."""
        attempt, lost = entry.attempt, self.lost.get(entry.id)
        if attempt is None or lost is None or attempt.debt:
            return None
        reason = Reason(code=Code.NODE_FAILURES, node=f"Node/{lost.node}", detail=lost.why)
        return Evict(entry.id, entry.ref, attempt.number, reason)

    # --- what readers get

    def changed_warnings(self) -> set[str]:
        return self._promises.compare()

    @property
    def warnings(self) -> tuple[CapacityWarning, ...]:
        return self._promises.warnings

    def warnings_of(self, cluster_queue: str) -> tuple[CapacityWarning, ...]:
        return self._promises.of_queue(cluster_queue)

    @property
    def unreachable(self) -> frozenset[str]:
        """Nodes on which pods that are being deleted count as gone (M13)."""
        return self.room.losses.unreachable()

    def take_capacities(self) -> list[FlavorCapacity] | None:
        """Return what the nodes of each flavor have (see `facts`); None: as returned last.

        Costs some ten microseconds for each node. None, too, until all sources are listed.
        """
        kernel, usage = self._kernel, self.room.usage
        tree = kernel.directory.tree
        if not kernel.synced or not (usage.changed or self._reported != tree.version):
            return None
        usage.changed, self._reported = False, tree.version
        kernel.changed_queues.update(self._promises.compare())
        return capacities(self.room, kernel.directory.flavors, promised(tree), self.warnings)

    def take_facts(self) -> ToldNodes | None:
        """Return facts of nodes that changed since the last call; None until all sources are listed.

        Costs some 0.1 us for each pod of the cluster if any node changed.
        """
        return take_facts(self.room) if self._kernel.synced else None

    def take_predictions(self) -> Predicted:
        """Return how often room was found since the last call, and how often kube-scheduler found none."""
        return self.predictions.take()

    def take_alarms(self) -> list[Alarm]:
        return self.predictions.take_alarms()

    def expected(self, workload: WorkloadId) -> list[tuple[str, Amounts]]:
        """Return the nodes where pods of an admitted workload are expected that are not bound (M7), each with
        what the pod requests. Pods that find no node are not in it."""
        self.room.settle()
        return list(self.room.expected.of(workload))

    def bound_pods(self, workload: WorkloadId) -> tuple[str, ...]:
        """Return the first pods of a workload that are bound, each with its node."""
        return self.room.bound.named(workload)
