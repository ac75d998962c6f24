"""Devices of dynamic resource allocation: what claims ask for, and what pods hold by them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, TypeGuard

from queuectl.core.charges import PodRequests, plus
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel, NodeReader
from queuectl.core.features.devices.claims import Claims, DeviceClaims, Key, key_of
from queuectl.core.features.devices.slices import NodeDevices
from queuectl.core.model.devices import (
    DeviceTaintRule,
    PodClaim,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from queuectl.core.model.events import ContextGone, ContextObserved, Event
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Context, Node
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import amounts, format_amount
from queuectl.core.model.workload import CLAIM, LedgerSnapshot, PodSet, Workload, WorkloadId


class Devices(Feature):
    """Adds the devices of claims to what workloads are charged and pods request, and those of ResourceSlices
    to nodes. Is active where claims can be charged, or are known: then it says why one cannot be."""

    charges_claims: ClassVar = True
    events: ClassVar = frozenset({ContextObserved, ContextGone})

    def __init__(self, kernel: Kernel, nodes: NodeReader) -> None:
        """`nodes`: gets nodes and pods with their devices."""
        configuration = kernel.directory.configuration
        resources = dict(configuration.resources.device_classes)
        self._kernel = kernel
        self._readers = nodes
        self.claims = DeviceClaims(resources, kernel.directory.namespaces)
        self.nodes = NodeDevices(configuration.nodes, resources.values())
        self.pods = PodDevices(self.claims)
        self.active = bool(resources)

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        pod_sets = (pod_set for entry in entries.values() for pod_set in entry.recorded_pods)
        self.active |= any(pod_set.claims for pod_set in pod_sets)

    # --- what is observed

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        if isinstance(event, ContextObserved):
            self._observe(event, affected)
        elif isinstance(event, ContextGone):
            self._forget(event, affected)

    def _observe(self, event: ContextObserved, affected: AffectedObjects) -> None:
        match event.value:
            case Node() as node:
                affected.rules |= self._readers.observe_node(self.nodes.node(node))
            case ResourceSlice() | DeviceTaintRule() as value:
                self._count_again(self.nodes.observe(value), affected)
            case ResourceClaim() | ResourceClaimTemplate() as claim:
                if not self.active:
                    self._become_active()
                if self.claims.observe(claim):
                    affected.add_namespace_of(claim.name)
                self._tell(self.pods.changed(type(claim), claim.name))
            case _:
                pass

    def _become_active(self) -> None:
        self.active = True
        for entry in self._kernel.entries.values():
            if entry.workload is not None:
                self.claims.named_by(entry.workload)

    def _forget(self, event: ContextGone, affected: AffectedObjects) -> None:
        """Pods keep what they hold by claims that are deleted."""
        kind = event.kind
        if kind is Node:
            self.nodes.forget_node(event.name)
            affected.rules |= self._readers.forget_node(event.name)
        elif kind is ResourceSlice or kind is DeviceTaintRule:
            self._count_again(self.nodes.forget(kind, event.name), affected)
        elif _is_claim(kind) and self.claims.forget(kind, event.name):
            affected.add_namespace_of(event.name)

    def _count_again(self, nodes: Iterable[Node], affected: AffectedObjects) -> None:
        for node in nodes:
            affected.rules |= self._readers.observe_node(node)

    def observe_pod(self, pod: Pod) -> None:
        self._tell(self.pods.observe(pod))

    def forget_pod(self, uid: str) -> None:
        self._readers.forget_pod(uid)
        self._tell(self.pods.forget(uid))

    def _tell(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._readers.observe_pod(pod)

    # --- what pods are charged

    def requests(self, workload: Workload, pods: list[PodRequests]) -> list[PodRequests]:
        """Add the devices of claims from templates to each pod, and each ResourceClaim by itself."""
        if not _has_claims(workload):
            return pods
        self.claims.named_by(workload)
        namespace, shared = workload.ref.namespace, list(self.claims.shared(workload))
        together = {pod_set.name for pod_set, _, _ in shared}
        found = []
        for pod_set, requests in pods:
            if pod_set.claims:
                requests = plus(requests, self.claims.of_each_pod(namespace, pod_set).items())
            found.append(PodRequests(_grouped(pod_set) if pod_set.name in together else pod_set, requests))
        for pod_set, name, devices in shared:
            claim = replace(_grouped(pod_set), name=f"{pod_set.name}{CLAIM}{name}")
            claim = replace(claim, count=1, min_count=None, requests=())
            found.append(PodRequests(claim, amounts(devices)))
        return found

    def problem(self, workload: Workload, pods: object, cluster_queue: str) -> Reason | None:
        return self.claims.problem(workload) if _has_claims(workload) else None

    def recorded(self, workload: Workload, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        return self.claims.recorded(workload) if _has_claims(workload) else pod_sets

    # --- what it decides

    def excess(self, entry: Entry) -> str | None:
        """Return what its claims add beyond what its open attempt holds, which is no debt; None: nothing.

        What else a charge follows from does not count: a LimitRange, a RuntimeClass.
        """
        attempt, workload = entry.attempt, entry.workload
        if attempt is None or attempt.debt or workload is None or not _has_claims(workload):
            return None
        charges, namespace = self._kernel.directory.pods, workload.ref.namespace
        for recorded in entry.recorded_pods or workload.pod_sets:
            if (why := self.claims.uncharged(namespace, recorded.claims)) is not None:
                return why
        pod_sets = {one.name: one for one in workload.pod_sets}
        held = {one.name: dict(one.requests) for one in attempt.assignment.pod_sets}
        for charge in charges.charges(workload):
            name, of_pods = charge.pod_set.name, pod_sets.get(charge.pod_set.name)
            without = dict(charges.form(charges.of_pod(namespace, of_pods))) if of_pods else {}
            asked = dict(charges.form(of_pods.requests)) if of_pods else {}
            queue = attempt.assignment.cluster_queue
            for resource, amount in self._kernel.directory.charged(queue, charge.requests):
                had = held.get(name, {}).get(resource, 0)
                if amount - without.get(resource, 0) > max(0, had - asked.get(resource, 0)):
                    now, before = (format_amount(resource, each) for each in (amount, had))
                    return (
                        f"podset {name} has {now} of {resource} with its claims, it holds quota for {before}"
                    )
        return None


def _has_claims(workload: Workload) -> bool:
    return any(pod_set.claims for pod_set in workload.pod_sets)


def _is_claim(kind: type[Context]) -> TypeGuard[type[Claims]]:
    return kind is ResourceClaim or kind is ResourceClaimTemplate


def _grouped(pod_set: PodSet) -> PodSet:
    """Return the podset so that it gets the same flavors as the claims that its pods share."""
    return replace(pod_set, group=pod_set.group or pod_set.name)


class PodDevices:
    """The devices of a pod stay what they were when they were first known: a claim cannot be changed. Its
    template may be deleted, or replaced by another one of its name."""

    def __init__(self, claims: DeviceClaims) -> None:
        self._claims = claims
        self._pods: dict[str, Pod] = {}
        """Those on nodes that have claims, as observed, by UID."""
        self._users: dict[Key, list[str]] = {}
        """Their UIDs, sorted. A ResourceClaim that pods share counts for the first."""
        self._held: dict[tuple[str, Key], dict[str, int]] = {}
        """Devices, as far as they are known: by UID for claims from a template, else by claim alone."""

    def observe(self, pod: Pod) -> list[Pod]:
        """Return the pod with its devices, and others for which shared ResourceClaims count now or no more.

        These are at most two for each claim, however many pods share it.
        """
        if not self._claims:
            return [pod]
        before, after = self._keys(self._pods.get(pod.uid)), self._keys(pod)
        others = self._leave(pod.uid, before.keys() - after.keys())
        if after:
            self._pods[pod.uid] = pod
            others |= self._join(pod.uid, after.keys() - before.keys())
        return [self._with_devices(pod), *self._again(others - {pod.uid})]

    def forget(self, uid: str) -> list[Pod]:
        """Return the pods for which ResourceClaims count that it shared."""
        return self._again(self._leave(uid, self._keys(self._pods.get(uid)).keys()))

    def changed(self, kind: type[Claims], name: str) -> list[Pod]:
        """A claim or a template was observed: return the pods whose devices it makes known."""
        key = (kind, name)
        users = self._users.get(key, [])
        of_key = users[:1] if kind is ResourceClaim else users
        return self._again({uid for uid in of_key if _owner(uid, key) not in self._held})

    def _keys(self, pod: Pod | None) -> dict[Key, PodClaim]:
        if pod is None or pod.node is None:
            return {}
        return {key_of(pod.namespace, claim): claim for claim in pod.claims}

    def _join(self, uid: str, keys: Iterable[Key]) -> set[str]:
        """Return the pods for which one of these claims counts no more."""
        others: set[str] = set()
        for key in keys:
            users = self._users.setdefault(key, [])
            insort(users, uid)
            if users[0] == uid and len(users) > 1 and key[0] is ResourceClaim:
                others.add(users[1])
        return others

    def _leave(self, uid: str, keys: Iterable[Key]) -> set[str]:
        """Return the pods for which one of these claims counts now."""
        others: set[str] = set()
        for key in keys:
            users = self._users[key]
            first = users[0] == uid
            del users[bisect_left(users, uid)]
            if not users:
                del self._users[key]
            elif first and key[0] is ResourceClaim:
                others.add(users[0])
            if not users or key[0] is ResourceClaimTemplate:
                self._held.pop(_owner(uid, key), None)
        if keys:
            self._pods.pop(uid, None)
        return others

    def _again(self, uids: Iterable[str]) -> list[Pod]:
        return [self._with_devices(self._pods[uid]) for uid in sorted(uids)]

    def _with_devices(self, pod: Pod) -> Pod:
        if pod.node is None or not pod.claims:
            return pod
        total, counted = dict(pod.requests), set[Key]()
        for claim in pod.claims:
            key = key_of(pod.namespace, claim)
            if not claim.template and (key in counted or self._users[key][0] != pod.uid):
                continue
            counted.add(key)
            for resource, count in self._devices(pod, claim, key).items():
                total[resource] = total.get(resource, 0) + count
        return replace(pod, requests=amounts(total))

    def _devices(self, pod: Pod, claim: PodClaim, key: Key) -> dict[str, int]:
        owner = _owner(pod.uid, key)
        if owner not in self._held and (devices := self._claims.held(pod.namespace, claim)) is not None:
            self._held[owner] = devices
        return self._held.get(owner, {})


def _owner(uid: str, key: Key) -> tuple[str, Key]:
    return ("", key) if key[0] is ResourceClaim else (uid, key)
