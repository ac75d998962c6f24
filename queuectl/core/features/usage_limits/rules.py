"""The UsageLimits in force (X1 to X4)."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.model.usage_limits import Dimension, UsageLimit
from queuectl.core.subjects import QueuesAndCohorts, SubjectRules


class _Dimensions(dict[tuple[str, str], tuple[Dimension, ...]]):
    """By flavor and resource, in which dimensions an amount counts: as far as any limit has them."""

    def __init__(self, limited: Iterable[Dimension]) -> None:
        super().__init__()
        self._limited = frozenset(limited)

    def __missing__(self, key: tuple[str, str]) -> tuple[Dimension, ...]:
        both = (Dimension(*key), Dimension(None, key[1]))
        found = self[key] = tuple(one for one in both if one in self._limited)
        return found


class LimitRules(SubjectRules[UsageLimit]):
    """The UsageLimits in force, by target and subject."""

    def __init__(self, policy: QueuesAndCohorts) -> None:
        super().__init__(policy)
        self.dimensions = _Dimensions(())
        self.count_pending = False
        """Whether any has a number of pending workloads."""

    def set(self, name: str, limit: UsageLimit | None) -> bool:
        """Set or remove a limit. Return whether it has changed."""
        changed = super().set(name, limit)
        self.dimensions = _Dimensions(one for known in self.limits.values() for one, _ in known.most)
        self.count_pending = any(one.pending is not None for one in self.limits.values())
        return changed
