"""Independent copies of a graph of objects: what changes is copied, what cannot change is shared.

It knows no class of the core: a field that is added to one is copied without a line here. Two attributes of a
class make copies of its objects cheaper:

`FORK_COPIES`: the attributes to copy. All others hold values, or what is replaced and never changed.
`FORK_EMPTIES`: attributes that are caches, and start empty in a copy.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from datetime import date, timedelta, tzinfo
from enum import Enum
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_VALUES: Final = (str, int, float, bytes, date, timedelta, tzinfo, frozenset, Enum, type, type(None))
_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType)
_DICTS: Final = frozenset({dict, Counter, defaultdict})
_OTHERS: Final = frozenset({list, set, deque})

_SHARED: Final[set[type]] = set()
"""Types whose objects cannot change. Grows as types are met: there are as many as the program has."""


def fork(root: T) -> T:
    """Return a copy of `root` that shares no object with it that may change.

    Containers and objects of ordinary classes are copied once each, however often they are referred to.
    Values (core/model/values), enums, numbers, texts and times are shared. Depth is unlimited.
    Raises TypeError for a function, which may refer to what is forked.
    """
    return _Fork().copy(root)


def dissolve(root: object) -> None:
    """Empty all containers of a graph that is not needed any more, so that its objects are freed at once.

    Left to the garbage collector, they stop all threads while it looks for them. Empties what `fork` copies.
    Raises TypeError for a function.
    """
    known: dict[int, Any] = {}
    todo: list[Any] = [root]
    while todo:
        one = todo.pop()
        kind: Any = type(one)
        if id(one) in known or _is_shared(kind):
            continue
        known[id(one)] = one
        if isinstance(one, dict):
            todo += (*one, *one.values())
        elif isinstance(one, tuple | list | set | deque):
            todo += one
        else:
            todo += (getattr(one, name, None) for name in _plan(kind).copied)
            todo += getattr(one, "__dict__", _NOTHING).values()
    for one in known.values():
        if isinstance(one, dict | list | set | deque):
            one.clear()


class _Fork:
    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        """The copies, by the id of what they are copies of, which lives as long as the graph does."""
        self._unfilled: list[tuple[Any, Any]] = []
        """Objects with their copies, which are still empty."""

    def copy(self, root: T) -> T:
        found: T = self._of(root)
        unfilled = self._unfilled
        while unfilled:
            source, target = unfilled.pop()
            kind = type(source)
            if kind in _DICTS:
                dict.update(target, zip(self._all(source), self._all(source.values()), strict=True))
            elif kind is set:
                target.update(self._all(source))
            elif kind in _OTHERS:
                target.extend(self._all(source))
            else:
                self._fill(source, target)
        return found

    def _all(self, items: Iterable[Any]) -> Iterator[Any]:
        known, of = self._known, self._of
        for item in items:
            yield item if type(item) in _SHARED else known.get(id(item)) or of(item)

    def _of(self, one: Any) -> Any:
        """The copy of `one`, which may be empty as yet."""
        kind: Any = type(one)
        if kind in _SHARED:
            return one
        found = self._known.get(id(one))
        if found is not None:
            return found
        if issubclass(kind, tuple):
            return self._tuple(one, kind)
        if kind in _DICTS or kind in _OTHERS:
            found = defaultdict(one.default_factory) if kind is defaultdict else kind()
            if not one:
                self._known[id(one)] = found
                return found
        elif _is_shared(kind):
            _SHARED.add(kind)
            return one
        else:
            found = kind.__new__(kind)
        self._known[id(one)] = found
        self._unfilled.append((one, found))
        return found

    def _tuple(self, one: tuple[Any, ...], kind: Any) -> Any:
        """`one` itself if nothing in it may change."""
        for item in one:
            if type(item) not in _SHARED and self._of(item) is not item:
                return tuple.__new__(kind, self._all(one))
        return one

    def _fill(self, source: Any, target: Any) -> None:
        kind: Any = type(source)
        plan = _plan(kind)
        plan.share(source, target)
        of = self._of
        for name in plan.copied:
            value = getattr(source, name, _UNSET)
            if value is not _UNSET:
                setattr(target, name, value if type(value) in _SHARED else of(value))
        for name, value in getattr(source, "__dict__", _NOTHING).items():
            target.__dict__[name] = type(value)() if name in plan.emptied else of(value)


_NOTHING: Final[dict[str, Any]] = {}
_UNSET: Final = object()


@cache
def _is_shared(kind: type) -> bool:
    if issubclass(kind, _FUNCTIONS):
        raise TypeError(f"cannot fork a {kind.__name__}: it may refer to what is forked")
    if issubclass(kind, _VALUES):
        return True
    return is_dataclass(kind) and bool(kind.__dataclass_params__.unsafe_hash)  # type: ignore[attr-defined]


class _Plan(NamedTuple):
    """How objects of one class are copied."""

    share: Callable[[Any, Any], None]
    """Sets the attributes that both have."""
    copied: tuple[str, ...]
    emptied: frozenset[str]


@cache
def _plan(kind: type) -> _Plan:
    slots = {name for one in kind.__mro__ for name in _slots(one)} - {"__dict__", "__weakref__"}
    copied: tuple[str, ...] | None = getattr(kind, "FORK_COPIES", None)
    emptied = frozenset(getattr(kind, "FORK_EMPTIES", ()))
    if copied is None:
        return _Plan(_share_nothing, tuple(sorted(slots)), emptied)
    return _Plan(_sharing(sorted(slots - set(copied))), copied, emptied)


def _slots(kind: type) -> tuple[str, ...]:
    found: str | tuple[str, ...] = kind.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else found


def _share_nothing(source: object, target: object) -> None:
    pass


def _sharing(names: Iterable[str]) -> Callable[[Any, Any], None]:
    """A function with one assignment for each name: a third of the time of a loop over names."""
    lines = "".join(f"\n    target.{name} = source.{name}" for name in names)
    scope: dict[str, Any] = {}
    exec(f"def share(source, target):{lines}", scope)
    share: Callable[[Any, Any], None] = scope["share"]
    return share
