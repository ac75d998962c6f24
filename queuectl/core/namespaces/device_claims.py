"""What the devices of a pod's claims are charged as, by their DeviceClass (H10, H11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from queuectl.core.device_claims import DeviceRequest, PodClaim, ResourceClaim, ResourceClaimTemplate
from queuectl.core.model import PodSet, Workload
from queuectl.core.reasons import Code, Reason

Claims = ResourceClaim | ResourceClaimTemplate

MOST_RECORDED: Final = 256
"""Alternatives of device requests that the ledger has with the podsets of one workload, at most."""


class NotChargeable(Exception):
    """The message names path, claim and class."""


class DeviceClaims:
    """The ResourceClaims and their templates in all namespaces, and the resource of each DeviceClass."""

    def __init__(self, resources: Mapping[str, str]) -> None:
        """`resources`: by DeviceClass. Empty: no claim can be charged, and none is read."""
        self._resources = resources
        self._known: dict[tuple[type[Claims], str], Claims] = {}

    def observe(self, value: Claims) -> bool:
        """Return whether it has changed."""
        key = (type(value), value.name)
        changed = self._known.get(key) != value
        self._known[key] = value
        return changed

    def forget(self, kind: type[Claims], name: str) -> bool:
        """Return whether it was there."""
        return self._known.pop((kind, name), None) is not None

    def of_each_pod(self, namespace: str, pod_set: PodSet) -> dict[str, int]:
        """Return the devices of the claims that each pod gets from templates; without those of a problem."""
        return self.devices(namespace, (claim for claim in pod_set.claims if claim.template))

    def shared(self, workload: Workload) -> Iterable[tuple[PodSet, str, dict[str, int]]]:
        """Yield each ResourceClaim once, with the first podset that names it, and its devices."""
        seen: set[str] = set()
        for pod_set in workload.pod_sets:
            for claim in pod_set.claims:
                if not claim.template and claim.name not in seen:
                    seen.add(claim.name)
                    devices = self.devices(workload.ref.namespace, (claim,))
                    if devices:
                        yield pod_set, claim.name, devices

    def recorded(self, workload: Workload) -> tuple[PodSet, ...]:
        """Return its podsets as the ledger has them: each claim with its requests, so that an engine can be
        made from the ledger.

        Claims beyond MOST_RECORDED alternatives, and those whose object is not found, have none.
        """
        if not self._resources or not any(pod_set.claims for pod_set in workload.pod_sets):
            return workload.pod_sets
        left, found = MOST_RECORDED, []
        for pod_set in workload.pod_sets:
            claims = []
            for claim in pod_set.claims:
                requests = self._requests(workload.ref.namespace, claim)
                size = sum(max(1, len(request.alternatives)) for request in requests or ())
                kept = requests if size <= left else None
                left -= size if kept is not None else 0
                claims.append(replace(claim, requests=kept))
            found.append(replace(pod_set, claims=tuple(claims)))
        return tuple(found)

    def problem(self, workload: Workload) -> Reason | None:
        """Return why a claim of a workload cannot be charged; None: all can."""
        for pod_set in workload.pod_sets:
            for claim in pod_set.claims:
                try:
                    self._devices(workload.ref.namespace, claim)
                except NotChargeable as problem:
                    return Reason(code=Code.RESOURCE_NOT_COVERED, detail=str(problem))
        return None

    def devices(self, namespace: str, claims: Iterable[PodClaim]) -> dict[str, int]:
        """Return the devices of some claims together; without those of a problem."""
        total: dict[str, int] = {}
        for claim in claims:
            try:
                devices = self._devices(namespace, claim)
            except NotChargeable:
                continue
            for resource, count in devices:
                total[resource] = total.get(resource, 0) + count
        return total

    def _devices(self, namespace: str, claim: PodClaim) -> list[tuple[str, int]]:
        """Raises NotChargeable."""
        if not self._resources:
            raise NotChargeable(f"{claim.path} cannot be charged to a quota")
        where = f"{claim.path}: {_kind(claim).__name__} {namespace}/{claim.name}"
        requests = self._requests(namespace, claim)
        if requests is None:
            raise NotChargeable(f"{where} not found")
        return [self._request(request, where) for request in requests]

    def _requests(self, namespace: str, claim: PodClaim) -> tuple[DeviceRequest, ...] | None:
        """Return the requests of the object as it is now, else as the ledger has them; None: unknown."""
        known = self._known.get((_kind(claim), f"{namespace}/{claim.name}"))
        return claim.requests if known is None else known.requests

    def _request(self, request: DeviceRequest, where: str) -> tuple[str, int]:
        """Return the resource that one request is charged as, and how much. Raises NotChargeable."""
        where = f"{where} {request.path}"
        if request.problem is not None:
            raise NotChargeable(f"{where}: {request.problem}")
        charged: dict[str, int] = {}
        for name, count in request.alternatives:
            resource = self._resources.get(name)
            if resource is None:
                raise NotChargeable(f"{where}: DeviceClass {name} is in no deviceClassMappings")
            charged[resource] = max(count, charged.get(resource, 0))
        if len(charged) != 1:
            raise NotChargeable(f"{where}: its alternatives are charged as {' or '.join(sorted(charged))}")
        return next(iter(charged.items()))


def _kind(claim: PodClaim) -> type[Claims]:
    return ResourceClaimTemplate if claim.template else ResourceClaim
