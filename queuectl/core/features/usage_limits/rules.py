"""The UsageLimits in force (X1 to X4)."""

from __future__ import annotations

from queuectl.core.model.usage_limits import Dimension, UsageLimit
from queuectl.core.subjects import QueuesAndCohorts, SubjectRules


class LimitRules(SubjectRules[UsageLimit]):
    """The UsageLimits in force, by target and subject."""

    def __init__(self, policy: QueuesAndCohorts) -> None:
        super().__init__(policy)
        self._dimensions: dict[tuple[str, str], tuple[Dimension, ...]] = {}
        """By flavor and resource, as far as any of them limits it."""
        self.count_pending = False
        """Whether any has a number of pending workloads."""

    def set(self, name: str, limit: UsageLimit | None) -> bool:
        """Set or remove a limit. Return whether it has changed."""
        changed = super().set(name, limit)
        self._dimensions.clear()
        self.count_pending = any(one.pending is not None for one in self.limits.values())
        return changed

    def dimensions(self, flavor: str, resource: str) -> tuple[Dimension, ...]:
        """Return in which dimensions an amount of a resource in a flavor counts."""
        found = self._dimensions.get((flavor, resource))
        if found is None:
            limited = {one for known in self.limits.values() for one, _ in known.most}
            both = (Dimension(flavor, resource), Dimension(None, resource))
            found = self._dimensions[flavor, resource] = tuple(one for one in both if one in limited)
        return found
