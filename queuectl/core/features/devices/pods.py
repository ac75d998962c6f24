"""What the pods on nodes hold by their claims for devices, beside what their containers request (M19)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import replace

from queuectl.core.features.devices.claims import Claims, DeviceClaims, Key, key_of
from queuectl.core.model.devices import PodClaim, ResourceClaim, ResourceClaimTemplate
from queuectl.core.model.pods import Pod
from queuectl.core.model.resources import amounts


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
