"""What the devices in ResourceSlices add to the allocatable resources of their nodes (M16 to M18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from queuectl.core.model.devices import Device, DeviceTaintRule, ResourceSlice
from queuectl.core.model.policy import Node, NodeRules
from queuectl.core.model.resources import amounts

EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""Taints of devices with another effect only inform."""
Pool = tuple[str, str]
"""Driver and name: the pools of different drivers may have one name."""


class NodeDevices:
    def __init__(self, rules: NodeRules, resources: Iterable[str]) -> None:
        """`resources`: what devices are charged as; of devices that share counters, the first count first."""
        self._unusable_taints = rules.unusable_taints
        self._order = {resource: place for place, resource in enumerate(dict.fromkeys(resources))}
        self._nodes: dict[str, Node] = {}
        """As observed, without devices."""
        self._slices: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._pools: dict[Pool, dict[str, None]] = {}
        """Names of their slices."""
        self._counted: dict[Pool, Mapping[str, Counter[str]]] = {}
        """Devices of each pool by node and resource."""
        self._pools_of: dict[str, dict[Pool, None]] = {}
        """By node."""

    def node(self, node: Node) -> Node:
        """Return a node that was observed, with its devices.

        Where its kubelet counts the same resource (a device plugin), the larger number counts: both may
        count the same devices.
        """
        self._nodes[node.name] = node
        return self._completed(node)

    def forget_node(self, name: str) -> None:
        self._nodes.pop(name, None)

    def observe(self, value: ResourceSlice | DeviceTaintRule) -> list[Node]:
        """Return the nodes whose devices may have changed."""
        if isinstance(value, DeviceTaintRule):
            if self._rules.get(value.name) == value:
                return []
            self._rules[value.name] = value
            return self._count(self._pools)
        before = self._slices.get(value.name)
        if before == value:
            return []
        left = self._leave(value.name)
        self._slices[value.name] = value
        pool = (value.driver, value.pool)
        self._pools.setdefault(pool, {})[value.name] = None
        return self._count(dict.fromkeys((*left, pool)))

    def forget(self, kind: type[ResourceSlice | DeviceTaintRule], name: str) -> list[Node]:
        """Return the nodes whose devices may have changed."""
        if kind is DeviceTaintRule:
            return self._count(self._pools) if self._rules.pop(name, None) is not None else []
        return self._count(self._leave(name))

    def of(self, node: str) -> dict[str, int]:
        """Return the number of usable devices of a node, by the resource that they are charged as."""
        found: Counter[str] = Counter()
        for pool in self._pools_of.get(node, ()):
            found.update(self._counted[pool][node])
        return dict(found)

    def nodes(self) -> Iterable[str]:
        """Return the nodes that have devices, also those that are not known."""
        return self._pools_of.keys()

    def again(self) -> dict[str, dict[str, int]]:
        """Return the devices of all nodes, counted again from the slices and rules."""
        fresh = NodeDevices(NodeRules(unusable_taints=self._unusable_taints), self._order)
        fresh._rules = dict(self._rules)
        for value in self._slices.values():
            fresh.observe(value)
        return {node: fresh.of(node) for node in fresh.nodes()}

    def _completed(self, node: Node) -> Node:
        devices = self.of(node.name)
        if not devices:
            return node
        own = dict(node.allocatable)
        for resource, count in devices.items():
            own[resource] = max(count, own.get(resource, 0))
        return replace(node, allocatable=amounts(own))

    def _leave(self, name: str) -> list[Pool]:
        """Forget a slice. Return its pool; nothing if it is not known."""
        known = self._slices.pop(name, None)
        if known is None:
            return []
        pool = (known.driver, known.pool)
        del self._pools[pool][name]
        return [pool]

    def _count(self, pools: Iterable[Pool]) -> list[Node]:
        affected: dict[str, None] = {}
        for pool in list(pools):
            for node in self._counted.pop(pool, {}):
                affected[node] = None
                del self._pools_of[node][pool]
            found = self._devices(pool)
            if found:
                self._counted[pool] = found
            for node in found:
                affected[node] = None
                self._pools_of.setdefault(node, {})[pool] = None
            if not self._pools[pool]:
                del self._pools[pool]
        for node in affected:
            if not self._pools_of[node]:
                del self._pools_of[node]
        return [self._completed(self._nodes[name]) for name in sorted(affected) if name in self._nodes]

    def _devices(self, pool: Pool) -> dict[str, Counter[str]]:
        """Return the usable devices of a pool, of its newest generation, by node and resource.

        Of devices that share counters, those count that can be allocated together (M18).
        """
        slices = [self._slices[name] for name in self._pools[pool]]
        newest = max((one.generation for one in slices), default=0)
        current = [one for one in slices if one.generation == newest]
        left = {(name, counter): amount for one in current for name, counter, amount in one.counters}
        devices = {device.name: device for one in current for device in one.devices}
        found: dict[str, Counter[str]] = {}
        for device in sorted(devices.values(), key=self._place):
            if device.node is None or self._is_tainted(pool, device) or not _take(left, device):
                continue
            found.setdefault(device.node, Counter())[device.resource] += 1
        return found

    def _place(self, device: Device) -> tuple[int, str]:
        return self._order.get(device.resource, len(self._order)), device.name

    def _is_tainted(self, pool: Pool, device: Device) -> bool:
        """Return whether a taint takes it out of use (M17)."""
        taints = [*device.taints]
        taints += [(rule.key, rule.effect) for rule in self._rules.values() if _selects(rule, pool, device)]
        return any(effect in EFFECTS or key in self._unusable_taints for key, effect in taints)


def _selects(rule: DeviceTaintRule, pool: Pool, device: Device) -> bool:
    wanted = (rule.driver, rule.pool, rule.device)
    return all(want in (None, has) for want, has in zip(wanted, (*pool, device.name), strict=True))


def _take(left: dict[tuple[str, str], int], device: Device) -> bool:
    """Take what a device consumes from what is left of the counters. Return whether it was there."""
    if any(left.get((name, counter), 0) < amount for name, counter, amount in device.consumes):
        return False
    for name, counter, amount in device.consumes:
        left[name, counter] -= amount
    return True
