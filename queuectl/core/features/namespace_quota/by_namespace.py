"""Objects by namespace and name, of a kind of which most namespaces have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from queuectl.core.model.pod_limits import namespace_of


class Named(Protocol):
    @property
    def name(self) -> str:
        """`namespace/name`."""
        ...


T = TypeVar("T", bound=Named)


class ByNamespace(Generic[T]):
    """A look-up of a namespace without objects costs one step."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, T]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._known)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._known

    def put(self, value: T) -> T | None:
        """Return what it replaces."""
        there = self._known.setdefault(namespace_of(value.name), {})
        before = there.get(value.name)
        there[value.name] = value
        return before

    def forget(self, name: str) -> bool:
        """Return whether it was there."""
        there = self._known.get(namespace_of(name), {})
        if there.pop(name, None) is None:
            return False
        if not there:
            del self._known[namespace_of(name)]
        return True

    def of(self, namespace: str) -> Sequence[T]:
        """Return those of a namespace, by name."""
        there = self._known.get(namespace)
        return [there[name] for name in sorted(there)] if there else ()
