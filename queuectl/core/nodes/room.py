"""Room on nodes, beside quota: what nodes have free for the pods of workloads (M1 to M8).

Pods that are bound count where they are. Pods of admitted workloads that are not bound yet are expected on
nodes where they fit: their places are computed anew from what is known, so that they do not depend on the
order of events. What a plan tries comes on top, and is undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from operator import eq, ge
from typing import NamedTuple

from queuectl.core.model import WorkloadId
from queuectl.core.nodes.capacity import Capacity, capacities
from queuectl.core.nodes.inventory import Inventory, NodeState
from queuectl.core.nodes.losses import NodeLosses
from queuectl.core.nodes.matching import Match, Matcher
from queuectl.core.nodes.modes import is_device, limited_by_spec
from queuectl.core.nodes.placing import Spots, place, place_all, place_at, put_back, room_for, take_away
from queuectl.core.nodes.pods import Pod, PodGroup, Pods, PodShape
from queuectl.core.nodes.usage import NodeUsage
from queuectl.core.policy import CapacityMode, Node, NodeRules, ResourceFlavor
from queuectl.core.resources import FlavorResource


class Holder(NamedTuple):
    """A workload with an open attempt, and the pods that it may have."""

    sequence: int
    """Of its admission: holders are in this order."""
    pods: Pods


class NodeRoom:
    def __init__(self, flavors: Mapping[str, ResourceFlavor], rules: NodeRules) -> None:
        self._flavors = flavors
        self.inventory = Inventory(rules)
        self.matcher = Matcher(self.inventory, flavors)
        self.pods: dict[str, Pod] = {}
        """Those that have not ended, by UID."""
        self.losses = NodeLosses(self.inventory, self.pods, flavors, rules)
        self.usage = NodeUsage()
        self._bound: dict[WorkloadId, dict[str, None]] = {}
        """UIDs of the bound pods of workloads, without those that count as gone (M13)."""
        self._holders: dict[WorkloadId, Holder] = {}
        self._waiting: dict[WorkloadId, Pods] = {}
        """Holders with pods that are not bound yet, and how many."""
        self._touched: set[WorkloadId] = set()
        """Holders whose bound pods changed."""
        self._expected: dict[PodShape, Spots] = {}
        self._unsettled = False
        """What is expected is to be computed again."""
        self._recount = False
        """The resources that nodes may limit are to be collected again."""
        self._moved: set[WorkloadId] = set()
        """Workloads whose bound pods changed since they were last taken."""
        self._leaving: set[str] = set()
        """UIDs of bound pods that are being deleted."""
        self._orphans: set[WorkloadId] = set()
        """Workloads that hold nothing any more and have bound pods."""
        self._tried: dict[WorkloadId, Spots] = {}
        self._away: dict[WorkloadId, Spots] = {}
        """The bound pods of holders that are tried without."""
        self._expected_with_all: dict[PodShape, Spots] | None = None
        """What is expected with those as well; None: that is what is expected now."""
        self._outdated = False
        """What is expected is that with other holders."""

    def __bool__(self) -> bool:
        """Whether nodes limit anything."""
        return bool(self.inventory) and bool(self.inventory.resources)

    # --- what is observed

    def observe(self, node: Node, now: datetime) -> None:
        known = self.inventory.records.get(node.name)
        before = known.node if known is not None else None
        if before is None or (before.labels, _names(before)) != (node.labels, _names(node)):
            self._changed()
        self._unsettled |= self.inventory.observe(node, now)
        if before != node:
            self._judge(node.name, now)

    def forget(self, name: str, now: datetime) -> None:
        known = self.inventory.records.get(name)
        if known is not None and known.node is not None:
            self.losses.deleted(known.node)
        self.inventory.forget(name)
        self._changed()
        self._judge(name, now)

    def _judge(self, name: str, now: datetime) -> None:
        """A node changed, or its time has come: pods on it may count as gone, or not any more."""
        if self.losses.judge(name, now):
            for uid in self.losses.on(name):
                self._attach(self.pods[uid])

    def observe_pod(self, pod: Pod, now: datetime) -> None:
        before = self.pods.get(pod.uid)
        if before == pod:
            return
        if before is not None and (before.node, before.requests, before.workload) == (
            pod.node,
            pod.requests,
            pod.workload,
        ):
            self.pods[pod.uid] = pod
            self._note_leaving(pod)
            self._attach(pod)
            return
        if before is not None:
            self.forget_pod(pod.uid)
        self.pods[pod.uid] = pod
        self.usage.count(pod, 1)
        self._count_pod(pod, 1)
        self._note_leaving(pod)
        if pod.workload is not None and pod.node is not None:
            self.losses.bind(pod, now)
            self._attach(pod)

    def _attach(self, pod: Pod) -> None:
        """Count it as a bound pod of its workload, unless it counts as gone."""
        owner = pod.workload
        if owner is None or pod.node is None:
            return
        self.losses.terminates(pod)
        if self.losses.counts_as_gone(pod):
            self.detach(pod)
        elif pod.uid not in self._bound.get(owner, ()):
            self._bound.setdefault(owner, {})[pod.uid] = None
            self._touch(owner)

    def detach(self, pod: Pod) -> None:
        """It does not count as a bound pod of its workload any more."""
        there = self._bound.get(pod.workload) if pod.workload is not None else None
        if pod.workload is None or there is None or pod.uid not in there:
            return
        del there[pod.uid]
        if not there:
            del self._bound[pod.workload]
        self._touch(pod.workload)

    def forget_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.usage.count(pod, -1)
        self._count_pod(pod, -1)
        self._leaving.discard(uid)
        if pod.workload is not None and pod.node is not None:
            self.losses.unbind(pod)
            self.detach(pod)

    def _touch(self, owner: WorkloadId) -> None:
        self._touched.add(owner)
        self._moved.add(owner)
        orphan = owner in self._bound and owner not in self._holders
        (self._orphans.add if orphan else self._orphans.discard)(owner)

    def _note_leaving(self, pod: Pod) -> None:
        leaves = pod.terminating and pod.node is not None
        (self._leaving.add if leaves else self._leaving.discard)(pod.uid)

    def bound_pods(self, owner: WorkloadId) -> int:
        """Return how many pods of a workload are bound to nodes, and do not count as gone."""
        return len(self._bound.get(owner, ()))

    def named_pods(self, owner: WorkloadId, most: int = 3) -> tuple[str, ...]:
        """Return the first `most` bound pods of a workload by name, each with its node."""
        pods = sorted((self.pods[uid] for uid in self._bound.get(owner, ())), key=lambda pod: pod.name)
        return tuple(f"{pod.name} on node {pod.node}" for pod in pods[:most])

    def failed(self, name: str, now: datetime) -> None:
        """A workload was evicted because this node was lost under it (M14)."""
        until = self.losses.failed(name, now)
        if until is not None:
            self.inventory.avoid(name, until, now)
            self._unsettled = True

    def due_at(self) -> datetime | None:
        """Return when something changes by time alone; None: nothing does."""
        times = (self.inventory.settles_at(), self.losses.due_at())
        return min((when for when in times if when is not None), default=None)

    def expected(self) -> Spots:
        """Return the pods that are expected on nodes."""
        self.settle()
        return [spot for spots in self._expected.values() for spot in spots]

    def take_moved(self) -> list[WorkloadId]:
        """Return the workloads whose bound pods changed since the last call."""
        moved, self._moved = sorted(self._moved), set()
        return moved

    def take_grown(self) -> bool:
        """Return whether more may fit than at the last call."""
        return self.inventory.take_grown()

    def _count_pod(self, pod: Pod, times: int) -> None:
        if pod.node is None or self._recount:
            return
        vector = self.inventory.vector(pod.requests)
        if any(vector):
            self.inventory.charge(pod.node, vector, times)
            self._unsettled = True

    def flavors_changed(self) -> None:
        self._changed()

    def time_came(self, now: datetime) -> None:
        self._unsettled |= self.inventory.tick(now)
        for name in self.losses.due(now):
            self._judge(name, now)

    def _changed(self) -> None:
        self.matcher.forget()
        self._recount = self._unsettled = True

    # --- what is held

    def hold(self, owner: WorkloadId, sequence: int, pods: Pods) -> None:
        """`owner` has an open attempt with these pods, or their counts changed."""
        holder = Holder(sequence, pods)
        if self._holders.get(owner) != holder:
            self._holders[owner] = holder
            self._touch(owner)

    def drop(self, owner: WorkloadId) -> None:
        """`owner` holds nothing any more. Pods of it that are still bound count until they are gone."""
        if self._holders.pop(owner, None) is not None:
            self._touch(owner)

    def note(self) -> None:
        """Note which pods are not bound. To be called after events."""
        if self._recount:
            self._recount = False
            self._count_all()
        for owner in self._touched:
            self._unsettled |= self._update_waiting(owner)
        self._touched.clear()
        self.usage.changed |= self._unsettled

    def settle(self) -> None:
        """Bring what is expected up to date. To be called before anything is asked.

        It takes time for each pod that is not bound: after a burst of admissions these are many, and each of
        them is an event.
        """
        self.note()
        if not self._unsettled:
            return
        self._unsettled = False
        for spots in self._expected.values():
            take_away(self.inventory, spots)
        self._expected = {}
        if self._waiting:
            self._expect()

    def _count_all(self) -> None:
        """Collect the resources that nodes may limit, and count all pods anew."""
        nodes = (record.node for record in self.inventory.nodes())
        offered = {r for node in nodes if node is not None for r, amount in node.allocatable if amount}
        limited = {r for r in offered if is_device(r)}
        for flavor in self._flavors.values():
            limited |= {r for r, mode in flavor.nodes.modes if mode is CapacityMode.ENFORCE}
            if flavor.nodes.mode is CapacityMode.ENFORCE:
                limited |= offered
        self._expected = {}
        self.inventory.count(limited)
        self.matcher.forget()
        for pod in self.pods.values():
            self._count_pod(pod, 1)
        self._touched.update(self._holders)

    def _update_waiting(self, owner: WorkloadId) -> bool:
        """Return whether the pods of `owner` that are not bound changed."""
        holder = self._holders.get(owner)
        found = self._not_bound(owner, holder.pods) if holder is not None else ()
        if self._waiting.get(owner, ()) == found:
            return False
        if found:
            self._waiting[owner] = found
        else:
            del self._waiting[owner]
        return True

    def _not_bound(self, owner: WorkloadId, pods: Pods) -> Pods:
        """Return the pods that are not bound. One that is bound and requests more than its podset, such as
        with a container that was added to it, stands for a pod of the podset as well.
        """
        left: dict[PodShape, int] = {}
        for group in pods:
            if self.matcher.match(group.shape).limits:
                left[group.shape] = left.get(group.shape, 0) + group.count
        bound = Counter(self.inventory.vector(self.pods[uid].requests) for uid in self._bound.get(owner, ()))
        others = dict(bound)
        for like, there in ((eq, bound), (ge, others)):
            for shape in left:
                limits = self.matcher.match(shape).limits
                for vector in sorted(there):
                    if all(like(vector[number], amount) for number, amount in limits):
                        found = min(left[shape], there[vector])
                        left[shape] -= found
                        there[vector] -= found
                        if like is eq:
                            others.pop(vector, None)
        return tuple(PodGroup(shape, count) for shape, count in left.items() if count)

    def _expect(self) -> None:
        """Expect pods that are not bound yet: those that take most first, then in order of admission."""
        wanted: dict[PodShape, int] = {}
        waiting = self._waiting.keys() - self._away.keys()
        for owner in sorted(waiting, key=lambda owner: (self._holders[owner].sequence, owner)):
            for group in self._waiting[owner]:
                wanted[group.shape] = wanted.get(group.shape, 0) + group.count
        shapes = zip(self.matcher.match_all(wanted), wanted, strict=True)
        for match, shape in sorted(shapes, key=lambda item: item[0].vector, reverse=True):
            spots: Spots = []
            place(self.inventory, match, wanted[shape], spots=spots)
            self._expected[shape] = spots

    # --- what limits an admission

    def _needing(self, pods: Pods) -> list[tuple[Match, int]]:
        """Return those of the pods that need room."""
        if not self.inventory:
            return []
        found = self.matcher.match_all([group.shape for group in pods])
        return [(match, group.count) for match, group in zip(found, pods, strict=True) if match.needs_room]

    def limits(self, owner: WorkloadId) -> bool:
        """Return whether pods of a holder need room on nodes."""
        holder = self._holders.get(owner)
        return holder is not None and bool(self._needing(holder.pods))

    def fits(self, pods: Pods) -> bool:
        """Return whether all these pods fit on nodes now, beside all that is there, expected and tried."""
        self._expect_without_away()
        found = self._needing(pods)
        if not all(room_for(match, count) >= count for match, count in found):
            return False
        if len(found) > 1:
            spots, all_fit = place_all(self.inventory, found)
            take_away(self.inventory, spots)
            if not all_fit:
                return False
        return not found or self.headroom_left(pods)

    def fits_soon(self, pods: Pods) -> bool:
        """Return whether `pods` fit once those are gone that end already: no victim is needed (M9)."""
        self._expect_without_away()
        uids = {uid for owner in self._orphans for uid in self._bound[owner]} | self._leaving
        ending = (self.pods[uid] for uid in sorted(uids))
        spots = [
            (pod.node, vector)
            for pod in ending
            if pod.node is not None and pod.workload not in self._away
            if any(vector := self.inventory.vector(pod.requests))
        ]
        if not spots:
            return False
        take_away(self.inventory, spots)
        fits = self.fits(pods)
        put_back(self.inventory, spots)
        return fits

    def place(self, pods: Pods) -> Spots:
        """Return where these pods would be now; those that do not fit have no place. Changes nothing."""
        self._expect_without_away()
        spots, _ = place_all(self.inventory, self._needing(pods))
        take_away(self.inventory, spots)
        return spots

    def place_on(self, pods: Pods, nodes: Collection[str]) -> Spots:
        """Return where as many of these pods as possible would be on some nodes. Changes nothing."""
        self._expect_without_away()
        spots: Spots = []
        for match, count in self._needing(pods):
            left = count
            for name in sorted(nodes):
                taken = place_at(self.inventory, match, left, name)
                spots += [(name, match.vector)] * taken
                left -= taken
        take_away(self.inventory, spots)
        return spots

    def add(self, owner: WorkloadId, pods: Pods, spots: Spots | None = None) -> None:
        """Try with the pods of `owner`. `spots`: where they are, whether they fit there or not.

        If `owner` was taken away by `remove`, it gets exactly back what it had.
        """
        away = self._away.pop(owner, None)
        if away is not None:
            put_back(self.inventory, away)
            self._outdated = bool(self._waiting)
            if not self._away:
                self._expect_with_all()
            return
        if spots is None:
            self._expect_without_away()
            spots, _ = place_all(self.inventory, self._needing(pods))
        else:
            put_back(self.inventory, spots)
        self._tried[owner] = spots

    def remove(self, owner: WorkloadId) -> None:
        """Try without the pods of `owner`, which were added, or are those of a holder."""
        if (tried := self._tried.pop(owner, None)) is not None:
            take_away(self.inventory, tried)
            return
        bound = [
            (pod.node, vector)
            for pod in (self.pods[uid] for uid in self._bound.get(owner, ()))
            if pod.node is not None and any(vector := self.inventory.vector(pod.requests))
        ]
        take_away(self.inventory, bound)
        self._away[owner] = bound
        self._outdated = bool(self._waiting)

    def _expect_without_away(self) -> None:
        """Pods that are not bound yet are expected where they would be without the holders that are away,
        as they will be expected once these are gone (M7, M8).
        """
        if not self._outdated:
            return
        self._outdated = False
        if self._expected_with_all is None:
            self._expected_with_all = self._expected
        for spots in (*self._tried.values(), *self._expected.values()):
            take_away(self.inventory, spots)
        self._expected = {}
        self._expect()
        for spots in self._tried.values():
            put_back(self.inventory, spots)

    def _expect_with_all(self) -> None:
        self._outdated = False
        if self._expected_with_all is None:
            return
        for spots in self._expected.values():
            take_away(self.inventory, spots)
        self._expected, self._expected_with_all = self._expected_with_all, None
        for spots in self._expected.values():
            put_back(self.inventory, spots)

    # --- capacity

    def capacities(self, cells: Iterable[FlavorResource]) -> dict[FlavorResource, Capacity]:
        """Return what the quota of `cells` is compared with; nothing while no node is known (M4)."""
        return capacities(self.matcher, self._flavors, cells) if self.inventory else {}

    def flavors_without_nodes(self) -> list[str]:
        """Return the flavors whose spec says that nodes limit something, and that no node has the labels of.

        None while no node is known (M4).
        """
        return [
            name
            for name, flavor in self._flavors.items()
            if self.inventory and limited_by_spec(flavor.nodes) and not self.matcher.of_flavors((name,))
        ]

    def stray_nodes(self) -> int:
        """Return how many nodes have the labels of no flavor."""
        self.inventory.ask(key for flavor in self._flavors.values() for key, _ in flavor.node_labels)
        known = {id(group) for name in self._flavors for group in self.matcher.of_flavors((name,))}
        groups = self.inventory.groups.values()
        return sum(len(names) for one in groups if id(one) not in known for names in one.by_free.values())

    # --- headroom

    def headroom_left(self, pods: Pods) -> bool:
        """Return whether the headroom of their flavors stays free after these pods are added (M6)."""
        if not any(flavor.nodes.headroom for flavor in self._flavors.values()):
            return True
        asked: dict[FlavorResource, int] = {}
        for group in pods:
            shape, count = group.shape, group.count
            match = self.matcher.match(shape)
            for name in dict.fromkeys(flavor for _, flavor in shape.flavors):
                for resource, number in self.inventory.resources.items():
                    cell = FlavorResource(name, resource)
                    asked[cell] = asked.get(cell, 0) + match.vector[number] * count
        return all(
            self.free(cell) - amount >= kept
            for cell, amount in asked.items()
            if amount and (kept := self._headroom(cell))
        )

    def _headroom(self, cell: FlavorResource) -> int:
        flavor = self._flavors.get(cell.flavor)
        return dict(flavor.nodes.headroom).get(cell.resource, 0) if flavor is not None else 0

    def free(self, cell: FlavorResource) -> int:
        """Return what is free on the ready nodes of a flavor, in base units; 0 if nodes do not limit it."""
        number = self.inventory.resources.get(cell.resource)
        if number is None:
            return 0
        return sum(
            max(0, free[number]) * len(names)
            for group in self.matcher.of_flavors((cell.flavor,))
            if group.state is NodeState.READY
            for free, names in group.by_free.items()
        )


def _names(node: Node) -> set[str]:
    return {resource for resource, amount in node.allocatable if amount}
