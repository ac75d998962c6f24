"""The UsageLimits in force, what their subjects hold, and what they have left (X1 to X4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.resources import format_amount
from queuectl.core.model.usage_limits import WORKLOADS, Dimension, UsageLimit
from queuectl.core.model.workload import Assignment, WorkloadId
from queuectl.core.subjects import Place, QueuesAndCohorts, SubjectRules, subject_of


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


Demand = Mapping[Dimension, int]
"""In base units."""
ONE_WORKLOAD: Final = Dimension(None, WORKLOADS)
_NOTHING: Final[Demand] = {}


class Holder(NamedTuple):
    """What a workload holds, or what is kept for it, and where that counts."""

    places: tuple[Place, ...]
    demand: Demand
    """In the dimensions of limits alone."""


class LimitUsage:
    """The use of each place."""

    def __init__(self, rules: LimitRules) -> None:
        self._rules = rules
        self._holders: dict[WorkloadId, Holder] = {}
        self.kept: dict[WorkloadId, Holder] = {}
        """For workloads that wait for their victims (C7)."""
        self._used: dict[Place, dict[Dimension, int]] = {}
        """By holders and by workloads for which it is kept."""
        self._at: dict[Place, dict[WorkloadId, None]] = {}
        """The holders that count at each place."""
        self.changed: set[Place] = set()
        """Places with more left than before."""

    def clear(self) -> None:
        """Forget all use: limits, or what they apply to, have changed."""
        for known in (self._holders, self.kept, self._used, self._at):
            known.clear()

    def hold(self, workload: WorkloadId, use: Holder) -> None:
        """The workload holds this from now on."""
        self._set(self._holders, workload, use if use.places else None)

    def drop(self, workload: WorkloadId) -> None:
        """It holds nothing any more."""
        self._set(self._holders, workload, None)

    def keep(self, workload: WorkloadId, holder: Holder | None) -> None:
        """Keep this for a workload that waits for its victims; None: nothing any more."""
        self._set(self.kept, workload, holder)

    def _set(self, holders: dict[WorkloadId, Holder], workload: WorkloadId, holder: Holder | None) -> None:
        before = holders.get(workload)
        if before == holder:
            return
        if before is not None:
            del holders[workload]
            for place in before.places:
                used = self._used[place]
                add_demand(used, before.demand, -1)
                if not any(used.values()):
                    del self._used[place]
                if holders is self._holders:
                    del self._at[place][workload]
                    if not self._at[place]:
                        del self._at[place]
            self.changed.update(before.places)
        if holder is not None:
            holders[workload] = holder
            for place in holder.places:
                add_demand(self._used.setdefault(place, {}), holder.demand)
                if holders is self._holders:
                    self._at.setdefault(place, {})[workload] = None

    def at(self, place: Place) -> Iterable[WorkloadId]:
        """Return the holders that count at a place."""
        return self._at.get(place, ())

    def of(self, place: Place, dimension: Dimension) -> int:
        """Return what is used of a place, in base units."""
        used = self._used.get(place)
        return used.get(dimension, 0) if used is not None else 0

    def by_subject(self) -> Mapping[Place, Demand]:
        """Return the use of all places where any is."""
        return self._used

    def lacking(
        self,
        use: Holder,
        workload: WorkloadId,
        gone: Collection[WorkloadId],
        added: Mapping[Place, Demand],
    ) -> Reason | None:
        """Return which limit has too little left for `use`; None: each has enough.

        `gone`: workloads that are to end before. `added`: what a plan under way admits beside it.
        """
        ended = [holder for one in gone if (holder := self._holders.get(one)) is not None] if gone else []
        if workload in self.kept:
            ended.append(self.kept[workload])
        for place in use.places:
            used_now, admitted = self._used.get(place, _NOTHING), added.get(place, _NOTHING)
            for dimension, most in self._rules.limits[place.limit].most:
                asked = use.demand.get(dimension, 0)
                if not asked:
                    continue
                used = used_now.get(dimension, 0) + admitted.get(dimension, 0)
                if ended:
                    used -= sum(one.demand.get(dimension, 0) for one in ended if place in one.places)
                if asked + used > most:
                    return self.reason(place, dimension, asked, used)
        return None

    def left(self, place: Place, dimension: Dimension) -> int:
        """Return what is left of a place, in base units; below 0 if it is over its limit."""
        return dict(self._rules.limits[place.limit].most)[dimension] - self.of(place, dimension)

    def reason(self, place: Place, dimension: Dimension, asked: int, used: int) -> Reason:
        """Return why a workload that requests `asked` must wait, or can never be admitted. It may get another
        flavor later."""
        limit = self._rules.limits[place.limit]
        most = dict(limit.most)[dimension]
        never = asked > most and dimension.flavor is None
        by_flavor = Limit.FLAVORS if dimension.flavor else Limit.RESOURCES
        return Reason(
            code=Code.OUTSIDE_USAGE_LIMIT if never else Code.WAITING_FOR_USAGE_LIMIT,
            flavor=dimension.flavor,
            resource=dimension.resource,
            requested=asked,
            available=most if never else max(0, most - used),
            short_by=asked - most if never else asked + used - most,
            limit=Limit.RUNNING if dimension == ONE_WORKLOAD else by_flavor,
            node=f"UsageLimit/{limit.name}",
            detail=f"{subject_of(limit, place)}, at most {format_amount(dimension.resource, most)}",
        )


def add_demand(total: dict[Dimension, int], demand: Demand, times: int = 1) -> None:
    """Add `times` the demand to a total."""
    for dimension, amount in demand.items():
        total[dimension] = total.get(dimension, 0) + times * amount


def demand_of(assignment: Assignment, rules: LimitRules) -> Demand:
    """Return what an assignment takes that limits count: by flavor, in all flavors, and one workload."""
    found: dict[Dimension, int] = {ONE_WORKLOAD: 1}
    for pod_set in assignment.pod_sets:
        flavors = dict(pod_set.flavors)
        for resource, amount in pod_set.requests:
            for dimension in rules.dimensions[flavors[resource], resource]:
                found[dimension] = found.get(dimension, 0) + amount * pod_set.count
    return found


def demand_for(requests: Mapping[str, int]) -> Demand:
    """Return what requests take, whose flavors are not known."""
    return {**{Dimension(None, resource): amount for resource, amount in requests.items()}, ONE_WORKLOAD: 1}
