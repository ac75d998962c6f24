"""The kinds of jobs that queuectl manages: a value that `app` makes and hands to everything that needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from queuectl.kinds.jobs import JobKind


@dataclass(frozen=True, slots=True)
class KindRegistry:
    """Rows in a fixed order, each with a name of its own.

    Raises ValueError for rows that cannot be in one registry.
    """

    rows: tuple[JobKind, ...]
    _by_name: Mapping[str, JobKind] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.rows)
        object.__setattr__(self, "_by_name", {row.name: row for row in self.rows})

    def __iter__(self) -> Iterator[JobKind]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> JobKind:
        """The row of this name. Raises KeyError."""
        return self._by_name[name]

    def find(self, text: str) -> JobKind | None:
        """The row for a kind, plural, `plural.group`, `plural.version.group` or short name, in any case.

        The first row, where several have that kind.
        """
        wanted = text.lower()
        return next((row for row in self.rows if wanted in _names(row)), None)

    def of(self, api_version: object, kind: object) -> JobKind | None:
        """The row for a manifest."""
        return next((row for row in self.rows if (row.api_version, row.kind) == (api_version, kind)), None)

    def of_group(self, api_version: object, kind: object) -> JobKind | None:
        """The row for an object of any version: that of this version, else the first of its group."""
        group = str(api_version).rpartition("/")[0]
        same = (row for row in self.rows if (row.group, row.kind) == (group, kind))
        return self.of(api_version, kind) or next(same, None)

    def served_at(self, group: object, version: object, plural: object) -> JobKind | None:
        """The row for a resource."""
        wanted = (group, version, plural)
        return next((row for row in self.rows if (row.group, row.version, row.plural) == wanted), None)

    def below(self, row: JobKind) -> tuple[JobKind, ...]:
        """The kinds of objects that may stand between an object of this row and its pods."""
        found: dict[str, JobKind] = {}
        names = list(row.children)
        while names:
            child = self._by_name.get(names.pop())
            if child is not None and child.name not in found:
                found[child.name] = child
                names += child.children
        return tuple(found.values())

    def known(self) -> str:
        """All names, for messages."""
        return ", ".join(row.name for row in self.rows)


def _names(row: JobKind) -> tuple[str, ...]:
    names = (row.name, row.kind, row.plural, row.resource, _versioned(row.plural, row), *row.names)
    return tuple(name.lower() for name in names)


def _versioned(name: str, row: JobKind) -> str:
    return f"{name}.{row.version}.{row.group}"


def _check(rows: tuple[JobKind, ...]) -> None:
    names: set[str] = set()
    forms: dict[str, object] = {}
    for row in rows:
        if row.name not in (row.kind, _versioned(row.kind, row)):
            raise ValueError(f"{row.name} is not the name of a row for {row.kind} of {row.api_version}")
        if row.name in names:
            raise ValueError(f"two rows have the name {row.name}")
        names.add(row.name)
        if row.composed_of:
            continue  # a policy sees the objects that it is composed of
        # The policies of the gate know the resource of a request, whatever the version of its object.
        form = (row.suspend, row.podsets, row.ends, row.seen, row.fixed, row.refuse)
        if forms.setdefault(row.resource, form) != form:
            raise ValueError(f"{row.name} has another form than another version of {row.resource}")


NO_KINDS: Final = KindRegistry(())
