"""The pods that a workload would have by its charges and its flavors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from queuectl.core.flavors.queue_flavors import Charge
from queuectl.core.model.pods import PodGroup, Pods, PodShape
from queuectl.core.model.workload import Assignment, names_claim


def pods_of(charges: Iterable[Charge], assignment: Assignment) -> Pods:
    """Return the pods that a workload with `charges` has by `assignment`.

    A podset without a charge (its object has not been observed) is taken from the assignment alone.
    """
    known = {charge.pod_set.name: charge for charge in charges}
    found = []
    for held in assignment.steered():
        if held.count:
            charge = known.get(held.name)
            unknown = PodShape(held.requests, held.flavors)
            found.append(PodGroup(unknown if charge is None else shape_of(charge, held.flavors), held.count))
    return tuple(found)


KEPT: Final = 4096
"""Assignments whose pods are kept."""


class KnownPods:
    """The pods of assignments, computed once: equal workloads of a queue share their assignment, and those
    of other queues or times their pods."""

    FORK_EMPTIES = ("_equal", "_known")

    def __init__(self) -> None:
        self._known: dict[int, tuple[Assignment, tuple[Charge, ...], Pods]] = {}
        """By identity of the assignment. To hash one would take as long as to compute its pods."""
        self._equal: dict[Pods, Pods] = {}
        """What was computed for pods is found by their identity (`Matcher.needs`)."""

    def of(self, charges: Iterable[Charge], assignment: Assignment) -> Pods:
        """Return what `pods_of` returns: the same object for the same assignment and equal charges."""
        charges, known = tuple(charges), self._known.get(id(assignment))
        if known is not None and known[0] is assignment and known[1] == charges:
            return known[2]
        if len(self._known) >= KEPT:
            self._known.clear()
            self._equal.clear()
        found = pods_of(charges, assignment)
        found = self._equal.setdefault(found, found)
        self._known[id(assignment)] = (assignment, charges, found)
        return found


def shape_of(charge: Charge, flavors: Iterable[tuple[str, str]]) -> PodShape:
    """Return the shape of one pod with these (resource, flavor) pairs."""
    of = charge.pod_set
    return PodShape(charge.pod, tuple(sorted(flavors)), of.node_selector, of.tolerations, of.affinity)


def with_flavors(charges: Iterable[Charge], flavors: Mapping[str, str]) -> Pods:
    """Return the pods of these podsets, all with the same flavors by resource.

    A charged resource without a flavor is left out: the flavor that it gets decides which nodes limit it.
    """
    return tuple(
        PodGroup(shape_of(_requesting(charge, flavors), flavors.items()), charge.pod_set.count)
        for charge in charges
        if charge.pod_set.count and not names_claim(charge.pod_set.name)
    )


def _requesting(charge: Charge, flavors: Mapping[str, str]) -> Charge:
    """Return `charge` without the charged resources that have no flavor."""
    without = {resource for resource, _ in charge.requests if resource not in flavors}
    if not without:
        return charge
    return replace(charge, pod=tuple(item for item in charge.pod if item[0] not in without))
