"""What the pods on nodes hold by their claims for devices, beside what their containers request (M19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from queuectl.core.device_claims import PodClaim, ResourceClaim, ResourceClaimTemplate
from queuectl.core.namespaces.device_claims import Claims, DeviceClaims
from queuectl.core.nodes.devices import NodeDevices
from queuectl.core.nodes.pods import Pod
from queuectl.core.policy import SchedulingConfiguration
from queuectl.core.resources import amounts

Key = tuple[type[Claims], str]
"""Kind and `NAMESPACE/NAME` of what a pod's claim refers to."""


class Devices:
    """Devices that come to nodes and pods before the room on nodes counts them."""

    def __init__(self, configuration: SchedulingConfiguration, claims: DeviceClaims) -> None:
        resources = (resource for _, resource in configuration.resources.device_classes)
        self.nodes = NodeDevices(configuration.nodes, resources)
        self.pods = PodDevices(claims)


class PodDevices:
    def __init__(self, claims: DeviceClaims) -> None:
        self._claims = claims
        self._pods: dict[str, Pod] = {}
        """Those on nodes that have claims, as observed, by UID."""
        self._users: dict[Key, dict[str, None]] = {}
        """Their UIDs."""

    def observe(self, pod: Pod) -> list[Pod]:
        """Return the pod with its devices, and others that share a ResourceClaim with it."""
        touched = self._leave(pod.uid)
        if pod.node is None or not pod.claims:
            return [pod, *self._sharing(touched)]
        self._pods[pod.uid] = pod
        for claim in pod.claims:
            self._users.setdefault(_key(pod, claim), {})[pod.uid] = None
            touched[_key(pod, claim)] = None
        return [self._with_devices(pod), *(one for one in self._sharing(touched) if one.uid != pod.uid)]

    def forget(self, uid: str) -> list[Pod]:
        """Return the pods that shared a ResourceClaim with it."""
        return list(self._sharing(self._leave(uid)))

    def changed(self, kind: type[Claims], name: str) -> list[Pod]:
        """A claim or a template was observed: return the pods that use it."""
        return [self._with_devices(self._pods[uid]) for uid in self._users.get((kind, name), ())]

    def _leave(self, uid: str) -> dict[Key, None]:
        """Return what its claims refer to."""
        pod = self._pods.pop(uid, None)
        touched = {_key(pod, claim): None for claim in pod.claims} if pod is not None else {}
        for key in touched:
            del self._users[key][uid]
            if not self._users[key]:
                del self._users[key]
        return touched

    def _sharing(self, keys: dict[Key, None]) -> Iterator[Pod]:
        for key in keys:
            if key[0] is ResourceClaim:
                yield from self.changed(*key)

    def _with_devices(self, pod: Pod) -> Pod:
        """A ResourceClaim that pods share counts for the first of them by UID."""
        total = dict(pod.requests)
        for claim in pod.claims:
            if claim.template or min(self._users[_key(pod, claim)]) == pod.uid:
                for resource, count in self._claims.devices(pod.namespace, (claim,)).items():
                    total[resource] = total.get(resource, 0) + count
        return replace(pod, requests=amounts(total))


def _key(pod: Pod, claim: PodClaim) -> Key:
    return (ResourceClaimTemplate if claim.template else ResourceClaim), f"{pod.namespace}/{claim.name}"
