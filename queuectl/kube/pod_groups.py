"""The workloads of pod groups, from the pods as the reflector sends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final

from queuectl.core.model.events import Event, WorkloadGone
from queuectl.core.model.workload import LedgerSnapshot, WorkloadId
from queuectl.kinds.group_owners import GroupOwner, OwnerOfGroup, Replicas, owner_of
from queuectl.kinds.jobs import NO_KINDS, JobKind, KindRegistry
from queuectl.kinds.json_fields import BadField, Json
from queuectl.kinds.pod_group import (
    NO_MOST,
    NO_PAST,
    Most,
    Past,
    Unit,
    composed,
    recorded_most,
    recorded_past,
    short_uid,
    succeeded_of,
    units,
)
from queuectl.kinds.pod_group_members import Member, member, version_of
from queuectl.kinds.reserved_keys import GROUP_LABEL
from queuectl.kinds.stop_annotations import keeps_place
from queuectl.kinds.workloads import observe
from queuectl.kube.places import PodPlaces
from queuectl.kube.session import number_of

_log: Final = logging.getLogger(__name__)

_Key = tuple[str, str]
"""Namespace and name of a group."""
_FAILED: Final = ""
"""In place of the UIDs of pods that have failed."""
_NO_EVENTS: Final[list[Event]] = []


class LedgerGroups:
    """The pod groups that the ledger has when a controller begins to lead.

    Pods that are gone by then are told by nothing else: which have succeeded, and which of the pods that were
    created within a second gave its workload the id.
    """

    def __init__(self) -> None:
        self.past: Past = NO_PAST
        self.most: Most = NO_MOST
        self._restored = asyncio.Event()

    def restore(self, snapshot: LedgerSnapshot) -> None:
        self.past, self.most = recorded_past(snapshot.workloads), recorded_most(snapshot.workloads)
        self._restored.set()

    async def restored(self) -> None:
        """Return once `restore` was called."""
        await self._restored.wait()


class _Group:
    __slots__ = ("members", "most", "owner", "past", "shown", "version")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.most: dict[str, Mapping[str, int]] = {}
        self.owner: tuple[str, str] | None = None
        """Kind and name of what says how many pods it has, when its events were last taken."""
        self.past: dict[str, dict[str, tuple[str, bool]]] = {}
        """By workload: its pods that have succeeded, and one entry for all that have failed. They count as
        ended when they are deleted, too."""
        self.shown: dict[WorkloadId, Unit] = {}
        self.version = 0


class PodGroups:
    """All groups of a cluster. What changes is taken group by group: a list has many pods of one."""

    def __init__(
        self, kind: JobKind, kinds: KindRegistry = NO_KINDS, ledger: LedgerGroups | None = None
    ) -> None:
        """`kinds`: those that a group may wait for by name; none: names of kinds are not checked. `ledger`:
        restored before the first `take`; None: there is none."""
        self._kind = kind
        self._ledger = ledger if ledger is not None else LedgerGroups()
        self._kinds = kinds
        self._groups: dict[_Key, _Group] = {}
        self._group_of: dict[str, _Key] = {}
        """By UID of a pod."""
        self._changed: dict[_Key, None] = {}
        self._owners: dict[tuple[str, *_Key], OwnerOfGroup] = {}
        """By kind, namespace and name."""
        self._places = PodPlaces()
        self._listed = False

    def present(self) -> frozenset[WorkloadId]:
        """The workloads whose events were taken."""
        return frozenset(one for group in self._groups.values() for one in group.shown)

    def observe(self, obj: Json) -> list[Event]:
        """A pod with the label of a group. It says nothing before `take`."""
        uid = str((obj.get("metadata") or {}).get("uid") or "")
        try:
            found = member(obj)
        except BadField:
            return self.forget(uid, str(version_of(obj)))
        key = _key(obj)
        if self._group_of.get(uid, key) != key:
            self.forget(uid, str(version_of(obj)))
        group = self._groups.setdefault(key, _Group())
        self._group_of[uid], self._changed[key] = key, None
        group.members[uid] = found
        group.version = max(group.version, found.version)
        if found.workload and found.phase in ("Succeeded", "Failed"):
            well = found.phase == "Succeeded"
            past = group.past.setdefault(found.workload, {})
            past[short_uid(uid) if well else _FAILED] = (found.pod_set, well)
        return _NO_EVENTS

    def forget(self, uid: str, version: str) -> list[Event]:
        """The pod is gone, or has no group any more."""
        key = self._group_of.pop(uid, None)
        if key is not None:
            group = self._groups[key]
            del group.members[uid]
            group.version = max(group.version, number_of(version) or 0)
            self._changed[key] = None
        return _NO_EVENTS

    def observe_owner(self, owner: GroupOwner, obj: Json) -> list[Event]:
        """An object that makes pods of groups. It says nothing before `take`."""
        try:
            found = owner.read(obj)
        except BadField:
            found = None
        return self._owner((owner.kind, *owner_key(obj)), found, version_of(obj))

    def forget_owner(self, owner: GroupOwner, key: object, version: str) -> list[Event]:
        """The object of this `owner_key` is gone."""
        for one in [one for one in self._owners if one[0] == owner.kind and one[1:] == key]:
            self._owner(one, None, number_of(version) or 0)
        return _NO_EVENTS

    def _owner(self, key: tuple[str, *_Key], found: OwnerOfGroup | None, version: int) -> list[Event]:
        if found != self._owners.get(key):
            if found is None:
                del self._owners[key]
            else:
                self._owners[key] = found
            kind, namespace, name = key
            for place, group in self._groups.items():
                if place[0] == namespace and group.owner == (kind, name):
                    group.version = max(group.version, version)
                    self._changed[place] = None
        return _NO_EVENTS

    def take_listed(self, most: int) -> list[Event]:
        """As `take`; none before its first call."""
        return self.take(most) if self._listed else []

    def take(self, most: int) -> list[Event]:
        """The events of up to so many groups that have changed; of more, where those have none.

        Called when all pods are listed.
        """
        self._listed = True
        events: list[Event] = []
        while self._changed and not events:
            for key in list(islice(self._changed, most)):
                del self._changed[key]
                try:
                    events += self._events(key, self._groups[key])
                except Exception:
                    # A bug. One group must not stop the others: its last known state stays.
                    _log.exception("pod group %s/%s can't be read", *key)
        return events

    def _events(self, key: _Key, group: _Group) -> list[Event]:
        started = {one.workload for one in group.members.values()} - group.shown.keys()
        for workload in started & self._ledger.past.keys():
            group.past[workload] = {**self._ledger.past[workload], **group.past.get(workload, {})}
            group.most.setdefault(workload, self._ledger.most.get(workload, {}))
        known = group.shown.keys() | {uid for uid in group.members if uid in self._ledger.past}
        group.owner = None
        with suppress(BadField):
            group.owner = owner_of(one.obj for one in group.members.values())
        owner = self._owners.get((group.owner[0], key[0], group.owner[1])) if group.owner else None
        found = units(group.members.values(), group.past, known, owner, group.most)
        group.most = {unit.id: unit.most for unit in found if unit.most}
        for workload in group.shown.keys() - {unit.id for unit in found}:
            self._places.forget(workload)
        there: list[Event] = []
        shown: dict[WorkloadId, Unit] = {}
        for unit in found:
            workload = WorkloadId(unit.id)
            if isinstance(owner, Replicas) and group.shown.get(workload) == unit:
                shown[workload] = unit  # each of its pods may have a workload of its own
                continue
            if (seen := observe(self._kind, composed(unit, group.version), owners=self._kinds)) is not None:
                stopped = any(keeps_place(one.obj) for one in unit.started)
                there.append(self._places.placed(seen, key, stopped=stopped))
                shown[seen.workload.id] = unit
        gone: list[Event] = []
        for workload in sorted(group.shown.keys() - shown.keys()):
            gone += self._outcome(group.shown[workload], group)
            gone.append(WorkloadGone(workload, str(group.version)))
        group.shown = shown
        group.past = {one: group.past[one] for one in shown if one in group.past}
        if not group.members:
            del self._groups[key]
        return [*gone, *there]

    def _outcome(self, unit: Unit, group: _Group) -> list[Event]:
        """The end of a workload whose pods were deleted together with the last one's end."""
        past = group.past.get(unit.id, {})
        if (
            unit.admission is None
            or not unit.active
            or not all(past.get(short_uid(one.uid), ("", False))[1] for one in unit.started)
        ):
            return []
        started = tuple(one._replace(phase="Succeeded") for one in unit.started)
        ended = composed(replace(unit, started=started, succeeded=succeeded_of(past)), group.version)
        seen = observe(self._kind, ended, owners=self._kinds)
        return [seen] if seen is not None else []


def owner_key(obj: Json) -> tuple[str, str]:
    """Namespace and name of an object that makes pods of groups."""
    metadata = obj["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _key(obj: Json) -> _Key:
    metadata = obj["metadata"]
    return str(metadata.get("namespace") or ""), str((metadata.get("labels") or {}).get(GROUP_LABEL) or "")
