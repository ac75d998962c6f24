"""Whether owners hold quota for what their controllers run (K), and whose pods are whose (M21)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from queuectl.core.decisions import ChildToCheck, PodOwnerToRead
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry, Stray
from queuectl.core.feature import Feature, Kernel, PodReader
from queuectl.core.features.ownership.children import Children, OwnedChild, PodOwners
from queuectl.core.lifecycle import remaining
from queuectl.core.model.events import (
    Event,
    Listed,
    OwnerRead,
    PodGone,
    PodObserved,
    PodOwnerRead,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.resources import PODS
from queuectl.core.model.workload import WorkloadId

MAX_OWNERS = 10
"""Owners above each other that are followed."""


class Ownership(Feature):
    events: ClassVar = frozenset(
        {WorkloadObserved, WorkloadGone, Listed, OwnerRead, PodObserved, PodGone, PodOwnerRead}
    )
    workloads_with: ClassVar = "owner"

    def __init__(self, kernel: Kernel, pods: PodReader) -> None:
        """`pods`: gets each pod with the workload that it belongs to."""
        self._kernel = kernel
        self._pods = pods
        self.children = Children()
        """Objects whose owners queue. Only those that no owner holds quota for are entries too."""
        self.pod_owners = PodOwners(kernel.entries)

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case WorkloadObserved():
                self._observe_child(event)
            case WorkloadGone(workload):
                self.children.forget(workload)
            case Listed(kind, workloads) if workloads is not None:
                self.children.forget_unlisted(kind, workloads)
            case OwnerRead():
                self.children.read(event)
            case PodObserved(pod):
                self._pods.observe_pod(self.pod_owners.observe(pod))
            case PodGone(uid):
                self._pods.forget_pod(uid)
                self.pod_owners.forget(uid)
            case PodOwnerRead():
                self.pod_owners.read(event)
            case _:
                pass
        self.active = self.children.known or self.pod_owners.known

    def _observe_child(self, event: WorkloadObserved) -> None:
        workload, observation = event.workload, event.observation
        known = self.children.get(workload.id)
        if workload.owner is None:
            self.children.forget(workload.id)
        elif known is None or not observation.outdated_by(known.observation):
            self.children.observe(workload, observation, workload.owner)

    # --- pods

    def _judge_pods_again(self) -> None:
        """Some may belong to another workload than when they were observed, or to none (M21)."""
        for pod in self.pod_owners.take_changed():
            self._pods.observe_pod(pod)
        for workload, loose in self.pod_owners.take_loose():
            entry = self._kernel.entries[workload]
            if entry.loose_pods != loose:
                entry.loose_pods = loose
                self._kernel.refresh(entry)

    def entered(self, workload: WorkloadId) -> None:
        self.pod_owners.entered(workload)

    # --- what drivers read

    @property
    def due(self) -> bool:
        return bool(self.children.doubtful or self.pod_owners)

    def checks(self) -> Iterator[ChildToCheck | PodOwnerToRead]:
        yield from self.pod_owners.to_read()
        for child in self.children.doubtful.values():
            family = (one.workload.ref for one in self.children.family(child.holder) if one.runs)
            yield ChildToCheck(child.workload.id, child.workload.ref, tuple(family))

    def asked(self, check: ChildToCheck | PodOwnerToRead) -> None:
        if isinstance(check, PodOwnerToRead):
            self.pod_owners.ask(check)
        else:
            self.children.ask(check.workload)

    # --- children

    def changed(self, workload: WorkloadId) -> None:
        self.children.touch(workload)

    def settle(self) -> None:
        """Find pods that belong to others than before, and the children that run and for which no owner holds
        quota: their owners are to be read (K2).

        One of which they were read is charged as debt (K3).
        """
        self._judge_pods_again()
        if self._kernel.synced:
            for holder in self.children.take_changed():
                self._judge_family(holder)

    def _judge_family(self, holder: WorkloadId) -> None:
        children, entries = self.children, self._kernel.entries
        family = children.family(holder)
        room = self._room(holder, family[0], MAX_OWNERS) if family else None
        for child in family:
            children.touch(child.workload.id)
            entry = entries.get(child.workload.id)
            if entry is not None and entry.attempt is not None and child.runs:
                continue  # charged by itself
            asked = self._requests(child) if child.runs else {}
            fits = room is not None and all(room.get(name, 0) >= asked[name] for name in asked)
            if fits and room is not None:
                for name, amount in asked.items():
                    room[name] -= amount
            if fits or not child.runs:
                children.trust(child)
                self._set_stray(entry, None)
            elif child.read is None:
                children.doubt(child)
            elif not child.read.stop and self._kernel.directory.restricted(child.workload) is not None:
                self._set_stray(entry, None)  # no user was asked whether they may use that
            else:
                stray = _stray(child, held=room is not None)
                self._set_stray(entry or self._kernel.new_entry(child.workload, child.observation), stray)

    def _room(self, holder: WorkloadId, child: OwnedChild, hops: int) -> dict[str, int] | None:
        """Return the amounts that `holder` holds, in base units, with `pods`; None: it holds no quota."""
        namespace = child.workload.ref.namespace
        entry = self._kernel.entries.get(holder)
        if entry is not None and entry.attempt is not None:
            assignment = entry.attempt.assignment
            held = assignment.resources() | {PODS: assignment.pods}
            return held if entry.ref.namespace == namespace else None
        above = self.children.get(holder)
        if above is None or hops == 0 or not above.runs or above.workload.ref.namespace != namespace:
            return None
        if self._room(above.holder, above, hops - 1) is None:
            return None
        return self._requests(above)

    def _requests(self, child: OwnedChild) -> dict[str, int]:
        """Return the total that it requests, in base units, with `pods`; zero amounts are left out."""
        workload = remaining(child.workload, child.observation)
        total = {PODS: sum(pod_set.count for pod_set in workload.pod_sets)}
        for charge in self._kernel.directory.pods.charges(workload):
            for name, amount in charge.requests:
                total[name] = total.get(name, 0) + amount * charge.pod_set.count
        return {name: amount for name, amount in total.items() if amount > 0}

    def _set_stray(self, entry: Entry | None, stray: Stray | None) -> None:
        if entry is not None and entry.stray != stray:
            entry.stray = stray
            self._kernel.route(entry)
            self._kernel.refresh(entry)


def _stray(child: OwnedChild, *, held: bool) -> Stray:
    read, owner = child.read, child.workload.owner
    assert read is not None
    assert owner is not None
    problem = read.problem or ("was not charged for it" if held else "holds no quota")
    return Stray(f"was let past the gate: its owner {owner.kind} {owner.name} {problem}", stop=read.stop)
