"""The common case of flavor assignment, decided from what was looked up once: one podset, and quota is free.

It finds exactly what `flavors.assign` would find, or nothing at all. What depends on the shape of a workload
and on its queue alone (who matches, cells, totals, the finished assignment) is kept with the queue's menu, so
that a look costs the quota of its cells and no more: without this an admission takes half as long again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queuectl.core.flavors.assignment import AssignmentResult, GranularMode, Mode, assigned, with_pods
from queuectl.core.flavors.queue_flavors import Charge, PodSetGroup, QueueFlavors
from queuectl.core.model import Assignment
from queuectl.core.quota.tree import Cells

KEPT = 256
"""Shapes that one menu remembers at most."""


class Choice:
    """One flavor for all that the podset asks of one resource group."""

    __slots__ = ("cells", "position")

    def __init__(self, position: int, cells: Cells) -> None:
        self.position = position
        self.cells = cells


class FastPath:
    """One podset in one queue. `groups`: by resource group, the flavors it could use, in order."""

    __slots__ = ("_finished", "_menu", "charge", "groups", "last")

    def __init__(self, menu: QueueFlavors, charge: Charge, groups: dict[int, list[Choice]]) -> None:
        self.charge = charge
        self.groups = groups
        self._menu = menu
        self._finished: dict[tuple[int, ...], _Finished] = {}

    def assigned(self, choices: Sequence[Choice], levels: Sequence[int]) -> AssignmentResult:
        key = tuple([choice.position for choice in choices])
        done = self._finished.get(key)
        if done is None:
            chosen = dict(zip(self.groups, choices, strict=True))
            done = self._finished[key] = _Finished(self._menu, self.charge, chosen)
        chances = {
            group: GranularMode(Mode.FIT, level) for group, level in zip(done.groups, levels, strict=True)
        }
        return AssignmentResult(
            done.assignment,
            done.cells,
            level=max(levels),
            chances=chances,
            modes=done.modes,
            tried=done.tried,
        )


class _Finished:
    """What comes of a set of choices, whoever asks."""

    __slots__ = ("assignment", "cells", "groups", "modes", "tried")

    def __init__(self, menu: QueueFlavors, charge: Charge, choices: Mapping[int, Choice]) -> None:
        pod_set, requests = charge.pod_set, with_pods(menu, charge)
        cells = [cell for choice in choices.values() for cell, _ in choice.cells]
        flavors = {menu.tree.names[cell].resource: menu.tree.names[cell].flavor for cell in cells}
        self.groups: list[PodSetGroup] = [(pod_set.name, number) for number in choices]
        pod_sets = (assigned(pod_set, requests, flavors),)
        self.assignment = Assignment(cluster_queue=menu.name, pod_sets=pod_sets)
        self.cells = [item for choice in choices.values() for item in choice.cells]
        self.modes = {(pod_set.name, resource): Mode.FIT for resource in flavors}
        self.tried = {
            group: choice.position
            for group, (number, choice) in zip(self.groups, choices.items(), strict=True)
            if choice.position != len(menu.groups[number]) - 1
        }


def fitting(menu: QueueFlavors, charges: Sequence[Charge], preempts: bool) -> AssignmentResult | None:
    """Where it fits, if looking for that ends at a flavor that fits (F6); None: look at it in full.

    `preempts`: the queue may take quota from others, so that a flavor that does not fit may be preferred to
    the next one.
    """
    plain = _plain(menu, charges)
    if plain is None:
        return None
    tree, node = menu.tree, menu.node
    moves_on = menu.fungibility.try_next_before_borrowing
    chosen: list[Choice] = []
    levels: list[int] = []
    for choices in plain.groups.values():
        for choice in choices:
            if tree.fits(node, choice.cells):
                level = tree.level(node, choice.cells)
                if level and moves_on:
                    return None
                chosen.append(choice)
                levels.append(level)
                break
            if preempts:
                return None
        else:
            return None
    return plain.assigned(chosen, levels)


def _plain(menu: QueueFlavors, charges: Sequence[Charge]) -> FastPath | None:
    if len(charges) != 1:
        return None
    charge = charges[0]
    # By identity, which groups of equal workloads share: to hash a podset costs as much as all else here.
    known = menu.known.get(id(charge))
    if known is None or known[0] is not charge:
        if len(menu.known) >= KEPT:
            menu.known.clear()
        known = menu.known[id(charge)] = (charge, _looked_up(menu, charge))
    return known[1]


def _looked_up(menu: QueueFlavors, charge: Charge) -> FastPath | None:
    pod_set = charge.pod_set
    total = {resource: amount * pod_set.count for resource, amount in with_pods(menu, charge)}
    if not total or any(resource not in menu.of_resource for resource, _ in charge.requests):
        return None
    groups: dict[int, list[Choice]] = {}
    for number in dict.fromkeys(menu.of_resource[resource] for resource in total):
        wanted = [(resource, total[resource]) for resource in menu.covered[number] if resource in total]
        groups[number] = [
            Choice(position, [(option.cells[resource], amount) for resource, amount in wanted])
            for position, option in enumerate(menu.groups[number])
            if menu.mismatch(option, pod_set) is None
        ]
    return FastPath(menu, charge, groups)
