"""The registry of kinds that a command works with: built-in rows, and those of the configuration.

`survey` says what a cluster knows of them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from queuectl.kinds.builtin import BUILT_IN, OPTIONAL
from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kube.definitions import served_versions
from queuectl.kube.errors import ApiError
from queuectl.kube.reviews import ACCESS_REVIEWS
from queuectl.kube.session import Session
from queuectl.ports.cluster import KindState

if TYPE_CHECKING:
    from queuectl.kinds.configured import KindRow
    from queuectl.settings import Settings

Place = Callable[..., str]
"""Where the value at a path of the configuration is: `FILE: line 3`, empty if it is from no file."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredKind:
    """A row of the configuration."""

    place: str
    """`FILE: line 3`, or that in the list of rows if it is from no file."""
    row: JobKind | None
    """None: it is malformed, and its kind does not queue."""
    name: str
    """Of its row; of a malformed one, its place in the list: `kinds[0]`."""
    problems: tuple[str, ...] = ()
    """One line each, with place and field."""


@dataclass(frozen=True, slots=True)
class Kinds:
    registry: KindRegistry
    configured: tuple[ConfiguredKind, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(problem for one in self.configured for problem in one.problems)

    @property
    def malformed(self) -> dict[str, KindState]:
        """Rows that cannot be read, by their place in the list."""
        broken = (one for one in self.configured if one.row is None)
        return {one.name: KindState(None, (), "; ".join(one.problems)) for one in broken}


def built_in() -> Kinds:
    """The registry without a configuration."""
    return Kinds(BUILT_IN)


def job_kinds(settings: Settings) -> Kinds:
    """All rows that can be read. A malformed one is among `problems`, and logged: it costs its kind alone."""
    found = _read(settings.kinds, settings.place)
    for problem in found.problems:
        _log.error("a kind of the configuration does not queue: %s", problem)
    return found


class RecordedKinds:
    """Those of the controller, by the configuration that it records in the ledger."""

    def __init__(self) -> None:
        self._registry = BUILT_IN

    @property
    def registry(self) -> KindRegistry:
        return self._registry

    def take(self, spec: str) -> None:
        """`spec`: JSON of the configuration in force."""
        rows = json.loads(spec).get("kinds")
        self._registry = _read(rows, lambda *_: "").registry if isinstance(rows, list) else BUILT_IN

    def find(self, text: str) -> JobKind | None:
        return self._registry.find(text)

    def of(self, api_version: object, kind: object) -> JobKind | None:
        return self._registry.of(api_version, kind)

    def known(self) -> str:
        return self._registry.known()


def _read(rows: Sequence[Any], place: Place) -> Kinds:
    registry, found = BUILT_IN, []
    for number, content in enumerate(rows):
        one = _configured(place, number, content, registry)
        if one.row is not None:
            groups = (other for other in OPTIONAL if other.composed_of == one.row.name)
            registry = KindRegistry((*registry.rows, one.row, *groups))
        found.append(one)
    return Kinds(registry, tuple(found))


def _configured(place: Place, number: int, content: Any, registry: KindRegistry) -> ConfiguredKind:
    # Imported here: it is slow, and most configurations have no rows.
    from queuectl.kinds.configured import BadRow, parse

    where = place("kinds", number) or f"kinds[{number}]"

    try:
        row = _optional(content) if isinstance(content, str) else row_of(parse(content), registry)
        KindRegistry((*registry.rows, row))
    except BadRow as error:
        problems = error.problems
    except ValueError as error:
        problems = (((), str(error)),)
    else:
        return ConfiguredKind(place=where, row=row, name=row.name)
    lines = (_line(place, (number, *path), problem) for path, problem in problems)
    return ConfiguredKind(place=where, row=None, name=f"kinds[{number}]", problems=tuple(lines))


def _optional(name: str) -> JobKind:
    """Raises ValueError."""
    known = {row.name: row for row in OPTIONAL if not row.composed_of}
    found = known.get(name)
    if found is None:
        raise ValueError(f"{name[:100]!r} is no optional kind, known: {', '.join(known)}")
    return found


def row_of(model: KindRow, registry: KindRegistry) -> JobKind:
    """The row, with a name that none of the registry has. Raises ValueError."""
    group, _, version = model.api_version.partition("/")
    if registry.served_at(group, version, model.plural) or registry.of(model.api_version, model.kind):
        raise ValueError(f"there is a row for {model.kind} of {model.api_version} already")
    taken = any(row.kind == model.kind for row in registry)
    name = f"{model.kind}.{version}.{group}" if taken else model.kind

    def child(api_version: str, kind: str) -> str:
        found = registry.of(api_version, kind)
        if found is None:
            raise ValueError(f"children: there is no row for {kind} of {api_version} before this one")
        return found.name

    return model.job_kind(name, child)


def _line(place: Place, path: tuple[int | str, ...], problem: str) -> str:
    where = place("kinds", *path)
    field = "kinds" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"{f'{where}: ' if where else ''}{field}: {problem}"


_ACCOUNT: Final = "system:serviceaccount:queuectl-system:queuectl"
"""The controller's, by the shipped manifests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    name: str
    api_version: str | None
    """None: its row is malformed."""
    place: str | None
    """Of its row in a configuration; None: it is built in."""
    served: tuple[str, ...] | None = None
    """Versions that the cluster serves; none: it is not installed. None itself: not known."""
    problem: str | None = None
    """Why its objects do not queue."""


async def survey(kinds: Kinds, session: Session | None) -> list[Surveyed]:
    """All rows in their order. Without a session nothing is known of the cluster. Raises ApiError."""
    places = {one.name: one.place for one in kinds.configured if one.row is not None}
    groups = dict.fromkeys(row.group for row in kinds.registry)
    served = {group: await served_versions(session, group) for group in groups} if session else {}
    found = []
    for row in kinds.registry:
        versions = served[row.group].get(row.plural, ()) if session else None
        problem = await _problem(row, versions, session) if session and versions else None
        found.append(
            Surveyed(
                name=row.name,
                api_version=row.api_version,
                place=places.get(row.name),
                served=versions,
                problem=problem,
            )
        )
    malformed = (one for one in kinds.configured if one.row is None)
    return found + [
        Surveyed(name=one.name, api_version=None, place=one.place, problem="; ".join(one.problems))
        for one in malformed
    ]


async def _problem(row: JobKind, versions: tuple[str, ...] | None, session: Session) -> str | None:
    if versions and row.version not in versions:
        return f"the cluster serves {', '.join(versions)}, and the row is for {row.version}"
    if await _refused(row, session):
        return f"the controller may not list {row.resource}: apply the manifests again"
    return None


async def _refused(row: JobKind, session: Session) -> bool:
    """Whether the controller's account lacks a right; false if the caller may not ask."""
    attributes = {"group": row.group, "resource": row.plural, "verb": "list"}
    spec = {"user": _ACCOUNT, "groups": _groups(), "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    try:
        answer = await session.create(ACCESS_REVIEWS, body)
    except ApiError:
        return False
    return (answer.get("status") or {}).get("allowed") is False


def _groups() -> list[str]:
    """Those of every service account of its namespace."""
    namespace = _ACCOUNT.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
