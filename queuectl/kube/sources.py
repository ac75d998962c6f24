"""The kinds that are watched: the path to list each, and the events that its objects become."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from queuectl.core.events import ContextObserved, Event, PolicyGone, WorkloadGone
from queuectl.core.model import ConfigKey, WorkloadId
from queuectl.kinds.context import CONTEXT_KINDS, ContextKind
from queuectl.kinds.fields import Json
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.labels import OWN, QueueLabels
from queuectl.kinds.policy import POLICY_KINDS, PolicyKind, policy_event
from queuectl.kinds.policy_objects import GROUP, VERSION
from queuectl.kinds.registry import KindRegistry
from queuectl.kinds.workloads import observe
from queuectl.kube.session import api_path

_log: Final = logging.getLogger(__name__)

Key = Hashable
"""Identifies an object of one source for as long as it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One collection of objects."""

    name: str
    """Its kind."""
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    key: Callable[[Json], Key]
    seen: Callable[[Json], Event | None]
    """None: the object is not relevant, or no longer."""
    gone: Callable[[Key, str], Event]
    """From the key and the resourceVersion of the deletion; empty: not known."""
    workloads: bool = False
    """Its keys are workloads."""


def sources(kinds: KindRegistry, honoured: QueueLabels = OWN) -> tuple[Source, ...]:
    """All sources of the core, policy first."""
    return (
        *(_policy(kind) for kind in POLICY_KINDS.values()),
        *(_context(kind) for kind in CONTEXT_KINDS.values()),
        *(_jobs(kind, honoured) for kind in kinds),
    )


def _jobs(kind: JobKind, honoured: QueueLabels) -> Source:
    return Source(
        name=kind.name,
        path=api_path(kind.group, kind.version, kind.plural),
        # When an object loses the label it leaves the selection: the server sends that as a deletion. Where
        # all objects are selected, `observe` finds it.
        query=honoured.selection,
        key=_uid,
        seen=lambda obj: observe(kind, obj, honoured),
        gone=lambda uid, version: WorkloadGone(WorkloadId(str(uid)), version),
        workloads=True,
    )


def _context(kind: ContextKind) -> Source:
    def seen(obj: Json) -> Event | None:
        value = kind.observe(obj)
        return ContextObserved(value) if value is not None else None

    return Source(
        name=kind.name,
        path=api_path(kind.group, kind.version, kind.plural),
        query={"fieldSelector": f"metadata.name={kind.only}"} if kind.only else {},
        key=lambda obj: str(_metadata(obj).get("name") or ""),
        seen=seen,
        gone=lambda name, _: kind.gone(str(name)),
    )


def _policy(kind: PolicyKind) -> Source:
    def key(obj: Json) -> Key:
        metadata = _metadata(obj)
        return ConfigKey(kind.name, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))

    def seen(obj: Json) -> Event | None:
        # Items of a list may lack their kind.
        return policy_event({**obj, "kind": kind.name}) if _metadata(obj).get("name") else None

    def gone(key: Key, _: str) -> Event:
        assert isinstance(key, ConfigKey)
        return PolicyGone(key)

    return Source(
        name=kind.name,
        path=api_path(GROUP, VERSION, kind.plural),
        key=key,
        seen=seen,
        gone=gone,
    )


def _uid(obj: Json) -> Key:
    return str(_metadata(obj).get("uid") or "")


def _metadata(obj: Json) -> Json:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def version_of(obj: Json) -> str:
    """resourceVersion; empty if there is none."""
    value = _metadata(obj).get("resourceVersion")
    return value if isinstance(value, str) else ""


def events_of(source: Source, obj: Json, known: dict[Key, str]) -> Sequence[Event]:
    """Events of an object that exists, if it changed; updates `known` (resourceVersion by key)."""
    key, version = source.key(obj), version_of(obj)
    if not key or (version and known.get(key) == version):
        return ()
    try:
        event = source.seen(obj)
    except Exception:
        # A bug. One object must not stop the source: its last known state stays.
        _log.exception("%s %s can't be read", source.name, key)
        known[key] = version
        return ()
    if event is None:
        return leave(source, key, known, version)
    known[key] = version
    return (event,)


def leave(source: Source, key: Key, known: dict[Key, str], version: str) -> Sequence[Event]:
    """Events of an object that is gone; none if it was never relevant."""
    return () if known.pop(key, None) is None else (source.gone(key, version),)
