"""What readers are told of each node, and the same as events for an engine that is made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.node_facts import NodeFacts, PodsOnNode
from queuectl.core.model.pods import Pod
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import WorkloadId

MOST_TOLD: Final = 250
"""Nodes at a time: the others are told later, those that changed first before the others."""


class ToldNodes(NamedTuple):
    changed: tuple[NodeFacts, ...]
    """Since they were last told, by name."""
    every: tuple[str, ...] | None
    """The first time: the names of all nodes; None later."""


def take_facts(room: NodeRoom, most: int = MOST_TOLD) -> ToldNodes:
    """Return facts of nodes that changed since they were last returned, at most so many.

    Costs one step for each pod of the cluster if any node changed, else nothing.
    """
    usage = room.usage
    every = None if usage.told else tuple(usage.untold)
    usage.told = True
    names = sorted(islice(usage.untold, most))
    for name in names:
        del usage.untold[name]
    pods = _pods_on(room, names)
    return ToldNodes(tuple(_facts(room, name, pods[name]) for name in names), every)


def _facts(room: NodeRoom, name: str, pods: Iterable[Pod]) -> NodeFacts:
    record = room.inventory.records.get(name)
    return NodeFacts(
        name=name,
        node=record.node if record is not None else None,
        pods=tuple(sorted(_grouped(pods), key=_order)),
        avoided_until=room.inventory.avoided.get(name),
    )


def _pods_on(room: NodeRoom, names: Iterable[str]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {name: [] for name in names}
    for pod in room.pods.values() if found else ():
        if pod.node in found:
            found[pod.node].append(pod)
    return found


def _grouped(pods: Iterable[Pod]) -> Iterator[PodsOnNode]:
    alike: Counter[PodsOnNode] = Counter()
    others: list[PodsOnNode] = []
    for pod in pods:
        one = PodsOnNode(pod.namespace, pod.workload, pod.requests, 1, pod.terminating)
        if pod.workload is None:
            others.append(one)
        else:
            alike[one] += 1
    for one, count in alike.items():
        yield one._replace(pods=count)
    yield from _summed(others)


def _summed(unmanaged: Iterable[PodsOnNode]) -> Iterator[PodsOnNode]:
    sums: dict[tuple[str, bool], Counter[str]] = {}
    for one in unmanaged:
        total = sums.setdefault((one.namespace, one.terminating), Counter())
        for resource, amount in one.requests:
            total[resource] += amount * one.pods
    for (namespace, terminating), total in sums.items():
        yield PodsOnNode(namespace, None, amounts(total), 1, terminating)


def with_unmanaged(facts: NodeFacts, others: Container[str]) -> NodeFacts:
    """Return the facts for an engine that does not have these workloads: their pods take room, and stay.

    Pods of a workload that an engine does not know are expected to end, as those of one that is over.
    """
    if not any(one.workload is not None and one.workload in others for one in facts.pods):
        return facts
    pods = [one._replace(workload=None) if one.workload in others else one for one in facts.pods]
    kept = (one for one in pods if one.workload is not None)
    summed = _summed(one for one in pods if one.workload is None)
    return replace(facts, pods=tuple(sorted((*kept, *summed), key=_order)))


def _order(one: PodsOnNode) -> tuple[object, ...]:
    return one.workload or "", one.namespace, one.requests, one.terminating


def pods_of_facts(facts: NodeFacts) -> Iterator[Pod]:
    """Yield pods that an engine does not tell apart from those that the facts are of."""
    for number, one in enumerate(facts.pods):
        for copy in range(one.pods):
            name = f"{facts.name}/{number}/{copy}"
            yield Pod(
                uid=name,
                namespace=one.namespace,
                name=name,
                node=facts.name,
                requests=one.requests,
                workload=None if one.workload is None else WorkloadId(one.workload),
                terminating=one.terminating,
            )
