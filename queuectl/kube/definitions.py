"""Which custom kinds the API server serves, and in which versions.

One watch on the metadata of all CustomResourceDefinitions. When one of a kind that is asked for changes,
discovery says which versions of its group are served. So a kind that is not installed costs no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from random import Random
from typing import Any, Final, NamedTuple

from queuectl.core.model.events import Listed
from queuectl.kinds.json_fields import Json
from queuectl.kube.errors import ApiError, NotFound
from queuectl.kube.reflector import Definition, Reflector, Timings
from queuectl.kube.session import Session, api_path
from queuectl.kube.sources import Resource, Source, name_of

SETTLING: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between two looks at discovery after a change: servers show it with a delay. Later: `absent`."""

_log: Final = logging.getLogger(__name__)


class Defined(NamedTuple):
    """A CustomResourceDefinition exists, and was created or changed."""

    name: str


class Undefined(NamedTuple):
    name: str


_SOURCE: Final[Source[Defined | Undefined]] = Source(
    name="CustomResourceDefinition",
    path=api_path("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    key=name_of,
    seen=lambda obj: Defined(name_of(obj)),
    gone=lambda name, _: Undefined(str(name)),
    optional=True,
    metadata_only=True,
)


class _Group:
    """The kinds of one API group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kinds: list[tuple[str, Definition]] = []
        """Plurals, each with its definition. Two rows may be two versions of one kind."""
        self.moved = asyncio.Event()

    def wants(self, there: set[str]) -> bool:
        """Is one of its kinds installed, but not served in the version that is asked for?"""
        return any(f"{plural}.{self.name}" in there and not found.served for plural, found in self.kinds)


class Definitions:
    """Those of some resources."""

    def __init__(
        self, session: Session, wanted: Mapping[str, Resource], *, random: Random, timings: Timings
    ) -> None:
        """`wanted`: by the name of a source."""
        self._session = session
        self._timings = timings
        self._groups: dict[str, _Group] = {}
        self._of: dict[str, Definition] = {}
        self._there: set[str] = set()
        self._reflector = Reflector(session, _SOURCE, self._take, random, timings)
        for name, (group, version, plural) in wanted.items():
            there = self._groups.setdefault(group, _Group(group))
            self._of[name] = Definition(version, there.moved)
            there.kinds.append((plural, self._of[name]))

    def of(self, source: str) -> Definition | None:
        """That of a source by its name; None for one that needs none."""
        return self._of.get(source)

    def age(self) -> float | None:
        """Seconds since the server's last answer; None: none yet."""
        return self._reflector.age()

    async def run(self) -> None:
        """Until cancelled; not at all if nothing is asked for."""
        if not self._groups:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name="reflect CustomResourceDefinition")
            for group in self._groups.values():
                tasks.create_task(self._follow(group), name=f"discover {group.name}")

    def _take(self, events: Sequence[Defined | Undefined | Listed]) -> None:
        for event in events:
            match event:
                case Defined(name):
                    self._there.add(name)
                    self._move(name.partition(".")[2])
                case Undefined(name):
                    self._there.discard(name)
                    self._move(name.partition(".")[2])
                case Listed():
                    for group in self._groups:
                        self._move(group)

    def _move(self, group: str) -> None:
        if group in self._groups:
            self._groups[group].moved.set()

    async def _follow(self, group: _Group) -> None:
        """After each change, ask discovery until it shows all that is asked for."""
        while True:
            await group.moved.wait()
            for wait in chain(SETTLING, repeat(self._timings.absent)):
                await asyncio.sleep(wait)
                group.moved.clear()
                if await self._settled(group):
                    break

    async def _settled(self, group: _Group) -> bool:
        """Look once. Returns whether all installed kinds are served in the version that is asked for."""
        if self._reflector.problem is not None:
            # Without the right to list definitions, each kind is asked for itself.
            for _, found in group.kinds:
                found.settle(None, (found.version,))
            return True
        if not self._reflector.listed:
            return True  # the end of the list is a change
        names = [f"{plural}.{group.name}" for plural, _ in group.kinds]
        try:
            installed = any(name in self._there for name in names)
            served = await served_versions(self._session, group.name) if installed else {}
        except ApiError as error:
            _log.info("versions of %s are not known: %s", group.name, error)
            for name, (_, found) in zip(names, group.kinds, strict=True):
                if name not in self._there:
                    found.settle(False, ())
            return False
        for name, (plural, found) in zip(names, group.kinds, strict=True):
            there = name in self._there
            found.settle(there, served.get(plural, ()) if there else ())
        return not group.wants(self._there)


async def served_versions(session: Session, group: str) -> dict[str, tuple[str, ...]]:
    """By plural, the versions in which the resources of a group are served. Raises ApiError.

    `group`: empty for that of pods, which has one version.
    """
    served: dict[str, tuple[str, ...]] = {}
    root = f"/apis/{group}" if group else "/api"
    try:
        found = _texts(await session.get(root), "versions", "version") if group else ["v1"]
        for version in found:
            resources = await session.get(f"{root}/{version}")
            for plural in _texts(resources, "resources", "name"):
                served[plural] = (*served.get(plural, ()), version)
    except NotFound:
        pass  # the group, or a version that has just gone
    return served


def _texts(obj: Json, items: str, key: str) -> list[str]:
    found: Any = obj.get(items)
    listed = found if isinstance(found, list) else []
    return [one[key] for one in listed if isinstance(one, dict) and isinstance(one.get(key), str)]
