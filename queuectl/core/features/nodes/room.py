"""Room on nodes, beside quota: what nodes have free for the pods of workloads (M1 to M8).

Pods that are bound count where they are. Pods of admitted workloads that are not bound yet are expected on
nodes where they fit: their places are computed anew from what is known, so that they do not depend on the
order of events. What a plan tries comes on top, and is undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from queuectl.core.features.nodes.bound import BoundPods
from queuectl.core.features.nodes.capacity import CellCapacity, Headroom, capacities
from queuectl.core.features.nodes.expected import ExpectedHolder, ExpectedPods
from queuectl.core.features.nodes.findings import room_reserved, why_no_room
from queuectl.core.features.nodes.inventory import Inventory, NodeState, Vector, is_device, limited_by_spec
from queuectl.core.features.nodes.losses import NodeLosses
from queuectl.core.features.nodes.node_choice import Matcher
from queuectl.core.features.nodes.placement import place_all, put_back, room_for, take_away, ways_on
from queuectl.core.model.pods import Pod, Pods, Spots
from queuectl.core.model.policy import CapacityMode, Node, NodeRules, ResourceFlavor, Taint
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.selectors import untolerated
from queuectl.core.model.workload import WorkloadId

Use = tuple[str | None, str]
"""Namespace of unmanaged pods, or None for pods of workloads; and a resource."""
NOTHING: Final[Mapping[Use, int]] = {}


class NodeUsage:
    """All resources that pods request, whether nodes limit them or not. A pod costs as many steps as it has
    resources; what is used on all nodes is summed by the reader."""

    def __init__(self) -> None:
        self._of_nodes: dict[str, dict[Use, int]] = {}
        self.changed = False
        """Its reader resets it."""
        self.untold: dict[str, None] = {}
        """Names of nodes that changed, or the pods on them, since readers were told of them (nodes/facts)."""
        self.told = False
        """Readers were told of any."""

    def of(self, node: str) -> Mapping[Use, int]:
        """Return amounts in base units, by who uses them."""
        return self._of_nodes.get(node, NOTHING)

    def count(self, pod: Pod, times: int) -> None:
        """Add what a pod requests; `times` is -1 to take it away."""
        if pod.node is None:
            return
        self.changed = True
        self.untold[pod.node] = None
        used = self._of_nodes.setdefault(pod.node, {})
        namespace = None if pod.workload is not None else pod.namespace
        for resource, amount in pod.requests:
            key = (namespace, resource)
            left = used.get(key, 0) + amount * times
            if left:
                used[key] = left
            else:
                used.pop(key, None)
        if not used:
            del self._of_nodes[pod.node]


_Kind = tuple[tuple[tuple[str, str], ...], frozenset[str]]
"""Labels of a node as far as flavors ask for them, and the resources that it has."""


class TriedPods(NamedTuple):
    """The pods of a workload that a plan admits, or for which it reserves room."""

    pods: Pods
    spots: Spots
    given: bool
    """The spots are given, and do not depend on where others are."""


class NodeRoom:
    def __init__(self, flavors: Mapping[str, ResourceFlavor], rules: NodeRules) -> None:
        self._flavors = flavors
        self.inventory = Inventory(rules)
        self.matcher = Matcher(self.inventory, flavors)
        self.headroom = Headroom(flavors, self.inventory, self.matcher)
        self.pods: dict[str, Pod] = {}
        """Those that have not ended, by UID."""
        self.losses = NodeLosses(self.inventory, self.pods, flavors, rules)
        self.usage = NodeUsage()
        self.bound = BoundPods(self.pods, self.losses)
        self.expected = ExpectedPods(self.inventory, self.matcher, self.bound)
        self._unsettled = False
        """What nodes have, or what is bound to them, changed: what is expected is to be computed anew."""
        self._updated = False
        """Other pods are to be expected."""
        self._recount = False
        """The resources that nodes may limit are to be collected again."""
        self._keys: set[str] = set()
        """Labels of flavors."""
        self._kinds: Counter[_Kind] = Counter()
        """How many nodes flavors and resources do not tell apart."""
        self._orphans: set[WorkloadId] = set()
        """Workloads that hold nothing any more and have bound pods."""
        self._tried: dict[WorkloadId, TriedPods] = {}
        self._tried_with_all: dict[WorkloadId, TriedPods] = {}
        """Those that are elsewhere while holders are away, where they were before."""
        self._away: dict[WorkloadId, Spots] = {}
        """The bound pods of holders that are tried without."""
        self._outdated = False
        """What is expected is that with other holders."""

    def __bool__(self) -> bool:
        """Whether nodes limit anything."""
        return bool(self.inventory.groups and self.inventory.resources)

    # --- what is observed

    def observe(self, node: Node, now: datetime) -> bool:
        """Return whether it has changed."""
        known = self.inventory.records.get(node.name)
        before = known.node if known is not None else None
        if before is not None and before.uid and node.uid and before.uid != node.uid:
            self.forget(node.name, now)  # its deletion was not seen, or merged with its return
            before = None
        self._unsettled |= self.inventory.observe(node, now)
        if before != node:
            self.usage.untold[node.name] = None
            self._count_kinds(before, node)
            self.bound.judge(node.name, now)
        return before != node

    def forget(self, name: str, now: datetime) -> bool:
        """Return whether it was known."""
        known = self.inventory.records.get(name)
        if known is not None and known.node is not None:
            self.losses.deleted(known.node)
            self._count_kinds(known.node, None)
        self.usage.untold[name] = None
        self.inventory.forget(name)
        self._unsettled = True
        self.bound.judge(name, now)
        return known is not None and known.node is not None

    def _count_kinds(self, before: Node | None, after: Node | None) -> None:
        """A node is another one now: what nodes limit changed only if it was the last of a kind, or is the
        first. So nodes that come or go one by one do not have all the others counted again.
        """
        if self._recount:
            return  # all are to be counted
        gone, come = (self._kind(node) if node is not None else None for node in (before, after))
        if gone == come:
            return
        if gone is not None:
            self._kinds[gone] -= 1
        if come is not None:
            self._kinds[come] += 1
        if (gone is not None and not self._kinds[gone]) or (come is not None and self._kinds[come] == 1):
            self._changed()

    def _kind(self, node: Node) -> _Kind:
        labels = tuple(item for item in node.labels if item[0] in self._keys)
        return labels, frozenset(resource for resource, amount in node.allocatable if amount)

    def observe_pod(self, pod: Pod, now: datetime) -> None:
        before = self.pods.get(pod.uid)
        if before == pod:
            return
        if before is not None and _place(before) == _place(pod):
            self.bound.replace(pod)
            if pod.node is not None and pod.terminating is not before.terminating:
                self.usage.untold[pod.node] = None
            return
        if before is not None:
            self.forget_pod(pod.uid)
        self.bound.add(pod, now)
        self.usage.count(pod, 1)
        self._count_pod(pod, 1)

    def forget_pod(self, uid: str) -> None:
        pod = self.bound.forget(uid)
        if pod is not None:
            self.usage.count(pod, -1)
            self._count_pod(pod, -1)

    def failed(self, name: str, now: datetime) -> None:
        """A workload was evicted because this node was lost under it (M14)."""
        until = self.losses.failed(name, now)
        if until is not None:
            self.inventory.avoid(name, until, now)
            self.usage.untold[name] = None
            self._unsettled = True

    def due_at(self) -> datetime | None:
        """Return when something changes by time alone; None: nothing does."""
        times = (self.inventory.settles_at(), self.losses.due_at())
        return min((when for when in times if when is not None), default=None)

    def take_grown(self) -> bool:
        """Return whether more may fit than at the last call."""
        self.settle()
        return self.inventory.take_grown()

    def _count_pod(self, pod: Pod, times: int) -> None:
        if pod.node is None or self._recount:
            return
        vector = self.inventory.vector(pod.requests)
        if any(vector):
            self.inventory.bind(pod.node, vector, times)
            self._unsettled = True

    def flavors_changed(self) -> None:
        self._changed()

    def time_came(self, now: datetime) -> None:
        self._unsettled |= self.inventory.tick(now)
        for name in self.losses.due(now):
            self.bound.judge(name, now)

    def _changed(self) -> None:
        self.matcher.forget()
        self.headroom.forget()
        self._recount = self._unsettled = True

    # --- what is held

    def hold(self, owner: WorkloadId, sequence: int, pods: Pods) -> None:
        """`owner` has an open attempt with these pods, or their counts changed."""
        holder = ExpectedHolder(sequence, pods)
        if self.expected.holders.get(owner) != holder:
            self.expected.holders[owner] = holder
            self.bound.touch(owner)

    def drop(self, owner: WorkloadId) -> None:
        """`owner` holds nothing any more. Pods of it that are still bound count until they are gone."""
        if self.expected.holders.pop(owner, None) is not None:
            self.bound.touch(owner)

    def note(self) -> None:
        """Note which pods are not bound. To be called after events."""
        if self._recount:
            self._recount = False
            self._count_all()
        for owner in self.bound.take_touched():
            self._updated |= self.expected.update(owner)
            orphan = owner not in self.expected.holders and self.bound.count(owner)
            (self._orphans.add if orphan else self._orphans.discard)(owner)
        self.usage.changed |= self._unsettled or self._updated

    def settle(self) -> None:
        """Bring what is expected up to date. To be called before anything is asked.

        After a change of nodes or bound pods it takes time for each pod that is not bound: after a burst of
        admissions these are many, and each of them is an event.
        """
        self.note()
        if self._unsettled or self._updated:
            self.expected.expect(anew=self._unsettled)
            self._unsettled = self._updated = False

    def _count_all(self) -> None:
        """Collect the resources that nodes may limit, and count all pods anew."""
        self._keys = {key for flavor in self._flavors.values() for key, _ in flavor.node_labels}
        nodes = (record.node for record in self.inventory.nodes())
        self._kinds = Counter(self._kind(node) for node in nodes if node is not None)
        offered = {resource for _, resources in self._kinds for resource in resources}
        limited = {r for r in offered if is_device(r)}
        for flavor in self._flavors.values():
            limited |= {r for r, mode in flavor.nodes.modes if mode is CapacityMode.ENFORCE}
            if flavor.nodes.mode is CapacityMode.ENFORCE:
                limited |= offered
        self.expected.forget()
        self.inventory.count(limited)
        self.matcher.forget()
        for pod in self.pods.values():
            self._count_pod(pod, 1)
        self.bound.touch_all(self.expected.holders)

    # --- what limits an admission

    def limits(self, owner: WorkloadId) -> bool:
        """Return whether pods of a holder need room on nodes."""
        holder = self.expected.holders.get(owner)
        return holder is not None and bool(self.matcher.needs(holder.pods).room)

    def fits(self, pods: Pods) -> bool:
        """Return whether all these pods fit on nodes now, beside all that is there, expected and tried."""
        self._expect_without_away()
        found = self.matcher.needs(pods).room
        for match, count in found:
            if room_for(match, count) < count:
                return False
        if len(found) > 1:
            spots, all_fit = place_all(self.inventory, found)
            take_away(self.inventory, spots)
            if not all_fit:
                return False
        return not found or self.headroom.left(pods)

    def fits_soon(self, pods: Pods) -> bool:
        """Return whether `pods` fit once those are gone that end already: no victim is needed (M9)."""
        self._expect_without_away()
        spots = [
            (pod.node, vector)
            for pod in self.bound.ending(self._orphans)
            if pod.node is not None and pod.workload not in self._away
            if any(vector := self.inventory.vector(pod.requests))
        ]
        if not spots:
            return False
        take_away(self.inventory, spots)
        fits = self.fits(pods)
        put_back(self.inventory, spots)
        return fits

    def why_not(self, pods: Pods) -> Reason:
        """Return why `pods`, which do not fit, do not (M10)."""
        return why_no_room(self.inventory, self.matcher, self.headroom, pods)

    def why_reserved(self, pods: Pods) -> Reason:
        """Return why `pods`, which fit when they were nominated, do not: the room is reserved for others."""
        if self.fits(pods):
            return room_reserved(self.inventory, self.matcher, pods)
        return replace(self.why_not(pods), reserved=True)

    def largest(self, pods: Pods) -> Vector:
        """Return what the pod takes that takes most."""
        return max((match.vector for match, _ in self.matcher.needs(pods).room), default=())

    def place(self, pods: Pods) -> Spots:
        """Return where these pods would be now; those that do not fit have no place. Changes nothing."""
        self._expect_without_away()
        spots, _ = place_all(self.inventory, self.matcher.needs(pods).room)
        take_away(self.inventory, spots)
        return spots

    def ways_on(self, pods: Pods, nodes: Iterable[str]) -> Iterator[Spots]:
        """Yield ways in which the scheduler may bind as many of these pods as possible to `nodes` now."""
        return ways_on(self.inventory, self.matcher.needs(pods).room, nodes)

    def add(self, owner: WorkloadId, pods: Pods, spots: Spots | None = None) -> None:
        """Try with the pods of `owner`. `spots`: where they are, whether they fit there or not.

        If `owner` was taken away by `remove`, it gets exactly back what it had.
        """
        away = self._away.pop(owner, None)
        if away is not None:
            put_back(self.inventory, away)
            self._outdated = bool(self._away and (self.expected.waiting or self._tried))
            if not self._away:
                self._expect_with_all()
            return
        given = spots is not None
        if spots is None:
            self._expect_without_away()
            spots, _ = place_all(self.inventory, self.matcher.needs(pods).room)
        else:
            put_back(self.inventory, spots)
        self._tried[owner] = TriedPods(pods, spots, given)

    def remove(self, owner: WorkloadId, *, ended: bool = False) -> None:
        """Try without the pods of `owner`, which were added, or are those of a holder.

        `ended`: it holds nothing any more, and its bound pods count until they are gone (M9).
        """
        if (tried := self._tried.pop(owner, None)) is not None:
            take_away(self.inventory, tried.spots)
            return
        if ended:
            self._away[owner] = []
            self._outdated |= owner in self.expected.waiting
            return
        bound = [
            (pod.node, vector)
            for pod in self.bound.of(owner)
            if pod.node is not None and any(vector := self.inventory.vector(pod.requests))
        ]
        take_away(self.inventory, bound)
        self._away[owner] = bound
        self._outdated = bool(self.expected.waiting or self._tried)

    def _expect_without_away(self) -> None:
        """Pods that are not bound yet are expected where they would be without the holders that are away,
        as they will be expected once these are gone (M7, M8). So are those of workloads that the plan admits.
        """
        if not self._outdated:
            return
        self._outdated = False
        moving = {owner: tried for owner, tried in self._tried.items() if not tried.given}
        for owner, tried in moving.items():
            take_away(self.inventory, tried.spots)
            self._tried_with_all.setdefault(owner, tried)
        pods = {owner: tried.pods for owner, tried in moving.items()}
        alone = not self._tried and not any(self._away.values())
        found = self.expected.expect_without(self._away, pods, alone=alone)
        given = [spot for tried in self._tried.values() if tried.given for spot in tried.spots]
        if self.expected.missing and given:
            # What is reserved must not hide a pod that has a node without it: its room would seem free.
            take_away(self.inventory, given)
            for spots in found.values():
                take_away(self.inventory, spots)
            found = self.expected.expect_without(self._away, pods, alone=False)
            put_back(self.inventory, given)
        for owner, tried in moving.items():
            self._tried[owner] = tried._replace(spots=found[owner])

    def _expect_with_all(self) -> None:
        self.expected.expect_with_all()
        for owner, before in self._tried_with_all.items():
            if (tried := self._tried.get(owner)) is not None:
                take_away(self.inventory, tried.spots)
                put_back(self.inventory, before.spots)
                self._tried[owner] = before
        self._tried_with_all.clear()

    # --- capacity

    def capacities(self, cells: Iterable[FlavorResource]) -> dict[FlavorResource, CellCapacity]:
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

    def tainted(self, name: str) -> Counter[Taint]:
        """Return the taints that a flavor does not tolerate, with the number of ready nodes that have them.

        Of nodes with devices that limit its admissions.
        """
        found: Counter[Taint] = Counter()
        flavor = self._flavors.get(name)
        if flavor is None:
            return found
        for group in self.matcher.of_flavors((name,)):
            taints = untolerated(group.taints, flavor.tolerations)
            if group.state is not NodeState.READY or not taints:
                continue
            if any(amount and self.matcher.enforced(name, r) for r, amount in group.allocatable.items()):
                found.update(dict.fromkeys(taints, sum(map(len, group.by_free.values()))))
        return found

    def stray_nodes(self) -> int:
        """Return how many nodes have the labels of no flavor."""
        self.inventory.ask(key for flavor in self._flavors.values() for key, _ in flavor.node_labels)
        known = {id(group) for name in self._flavors for group in self.matcher.of_flavors((name,))}
        groups = self.inventory.groups.values()
        return sum(len(names) for one in groups if id(one) not in known for names in one.by_free.values())


def _place(pod: Pod) -> tuple[object, ...]:
    return pod.node, pod.requests, pod.workload
