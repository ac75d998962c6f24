"""What the devices of a pod's claims are charged as, by their DeviceClass (H10, H11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from queuectl.core.model.devices import (
    MAPPINGS,
    DeviceRequest,
    PodClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from queuectl.core.model.pod_limits import namespace_of
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import PodSet, Workload

ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""API servers accept `adminAccess` only in namespaces with this label, which is `true`."""

Claims = ResourceClaim | ResourceClaimTemplate
Key = tuple[type[Claims], str]
"""Kind and `NAMESPACE/NAME` of what a pod's claim refers to."""

MOST_RECORDED: Final = 256
"""Alternatives of device requests that the ledger has with the podsets of one workload, at most."""


class NotChargeable(Exception):
    """The message names path, claim and class."""


class DeviceClaims:
    """The ResourceClaims and their templates in all namespaces, and the resource of each DeviceClass."""

    def __init__(self, resources: Mapping[str, str], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """`resources`: by DeviceClass. Empty: no claim can be charged.

        `namespaces`: the labels of each namespace.
        """
        self._resources = resources
        self._namespaces = namespaces
        self._known: dict[Key, Claims] = {}
        self._sharing: set[str] = set()
        """Namespaces of workloads that name ResourceClaims: these may say falsely that they are of a pod."""

    def __bool__(self) -> bool:
        """Whether any claim can be charged."""
        return bool(self._resources)

    def observe(self, value: Claims) -> bool:
        """Return whether what workloads are charged may have changed."""
        key = (type(value), value.name)
        changed = self._known.get(key) != value
        self._known[key] = value
        return changed and self._may_be_named(value)

    def forget(self, kind: type[Claims], name: str) -> bool:
        """Return whether what workloads are charged may have changed."""
        value = self._known.pop((kind, name), None)
        return value is not None and self._may_be_named(value)

    def named_by(self, workload: Workload) -> None:
        if any(not claim.template for pod_set in workload.pod_sets for claim in pod_set.claims):
            self._sharing.add(workload.ref.namespace)

    def _may_be_named(self, value: Claims) -> bool:
        return not _generated(value) or namespace_of(value.name) in self._sharing

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
        if not any(pod_set.claims for pod_set in workload.pod_sets):
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
                known = self._known.get(key_of(workload.ref.namespace, claim))
                try:
                    if known is not None and _generated(known):
                        raise NotChargeable(f"{_where(workload.ref.namespace, claim)} belongs to one pod")
                    self._devices(workload.ref.namespace, claim)
                except NotChargeable as problem:
                    return Reason(code=Code.RESOURCE_NOT_COVERED, detail=str(problem))
        return None

    def uncharged(self, namespace: str, claims: Iterable[PodClaim]) -> str | None:
        """Return why what a claim requests cannot be charged any more; None: it can, or is as it was.

        `claims`: with the requests that the ledger has. Without them, only a request without a fixed number
        of devices counts: what else cannot be charged may follow from the configuration.
        """
        for claim in claims:
            now = self._known.get(key_of(namespace, claim))
            for request in now.requests if now is not None and now.requests != claim.requests else ():
                if request.problem is not None or claim.requests is not None:
                    try:
                        self._request(namespace, request, _where(namespace, claim))
                    except NotChargeable as problem:
                        return str(problem)
        return None

    def held(self, namespace: str, claim: PodClaim) -> dict[str, int] | None:
        """Return the devices that a pod holds by a claim; None: the claim, or its template, is not known."""
        requests = self._requests(namespace, claim)
        if requests is None:
            return None
        total: dict[str, int] = {}
        for request in requests:
            try:
                _add(total, self._request(namespace, request, ""))
            except NotChargeable:
                continue
        return total

    def devices(self, namespace: str, claims: Iterable[PodClaim]) -> dict[str, int]:
        """Return the devices of some claims together; without those of a problem."""
        total: dict[str, int] = {}
        for claim in claims:
            try:
                devices = self._devices(namespace, claim)
            except NotChargeable:
                continue
            for each in devices:
                _add(total, each)
        return total

    def _devices(self, namespace: str, claim: PodClaim) -> list[tuple[str, int] | None]:
        """Raises NotChargeable."""
        where = _where(namespace, claim)
        requests = self._requests(namespace, claim)
        if requests is None:
            raise NotChargeable(f"{where} not found")
        return [self._request(namespace, request, where) for request in requests]

    def _requests(self, namespace: str, claim: PodClaim) -> tuple[DeviceRequest, ...] | None:
        """Return the requests of the object as it is now, else as the ledger has them; None: unknown."""
        known = self._known.get(key_of(namespace, claim))
        return claim.requests if known is None else known.requests

    def _request(self, namespace: str, request: DeviceRequest, where: str) -> tuple[str, int] | None:
        """Return the resource that one request is charged as, and how much; None: nothing.

        Raises NotChargeable.
        """
        where = f"{where} {request.path}"
        if request.admin:
            if self._namespaces.get(namespace, {}).get(ADMIN_ACCESS) != "true":
                raise NotChargeable(
                    f"{where}: adminAccess, and namespace {namespace} has no label {ADMIN_ACCESS}: true"
                )
            return None
        if request.problem is not None:
            raise NotChargeable(f"{where}: {request.problem}")
        charged: dict[str, int] = {}
        for name, count in request.alternatives:
            resource = self._resources.get(name)
            if resource is None:
                raise NotChargeable(f"{where}: DeviceClass {name} is in no {MAPPINGS}")
            charged[resource] = max(count, charged.get(resource, 0))
        if len(charged) != 1:
            raise NotChargeable(f"{where}: its alternatives are charged as {' or '.join(sorted(charged))}")
        return next(iter(charged.items()))


def key_of(namespace: str, claim: PodClaim) -> Key:
    return (ResourceClaimTemplate if claim.template else ResourceClaim), f"{namespace}/{claim.name}"


def _where(namespace: str, claim: PodClaim) -> str:
    kind, name = key_of(namespace, claim)
    return f"{claim.path}: {kind.__name__} {name}"


def _generated(value: Claims) -> bool:
    return isinstance(value, ResourceClaim) and value.generated


def _add(total: dict[str, int], devices: tuple[str, int] | None) -> None:
    if devices is not None:
        total[devices[0]] = total.get(devices[0], 0) + devices[1]
