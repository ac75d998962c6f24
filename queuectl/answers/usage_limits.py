"""What subjects use of UsageLimits, and which of the limits that apply to a workload binds (X). Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from queuectl.answers.charged_pods import PodsAsCharged
from queuectl.answers.state import CommittedState
from queuectl.core.features.usage_limits.usage import Holder, LimitRules, LimitUsage, demand_for, demand_of
from queuectl.core.model.policy import ClusterQueue, Cohort
from queuectl.core.model.reasons import Code, Limit, waits_for_victims
from queuectl.core.model.usage_limits import Dimension, SubjectKind, UsageLimit
from queuectl.core.model.workload import Attribution, Phase, StoredWorkload
from queuectl.core.queues.line import line_place
from queuectl.core.subjects import Place, targets_of

PENDING: Final = Dimension(None, "pending")
"""The number of eligible pending workloads (X6)."""
_NAMED: Final = (SubjectKind.USER, SubjectKind.ACCOUNT, SubjectKind.ALL)


class LimitUse(NamedTuple):
    """What one subject uses of one number of a UsageLimit."""

    limit: UsageLimit
    subject: str
    """The user, or the value of the account key; empty: all."""
    dimension: Dimension
    used: int
    """With what is kept for workloads that wait for their victims (X5); in base units."""
    most: int
    waiting: Mapping[str, int]
    """Pending workloads that this keeps waiting, by namespace."""
    binding: bool
    """Of the limits on this dimension that apply to some open workload, it has the least left."""
    namespaces: frozenset[str]
    """Of the open workloads that it applies to."""


def limit_use(
    state: CommittedState, submitter: str | None = None, cluster_queue: str | None = None
) -> list[LimitUse]:
    """Return the use of each limit by each subject that has an open workload, or that a limit names.

    By limit, subject, resource and flavor. `submitter`: only those that apply to
    an open workload of this user. `cluster_queue`: only those at this ClusterQueue and the Cohorts above it.
    """
    rules = LimitRules(policies := _Policy.of(state))
    for policy in state.policies.values():
        if isinstance(policy, UsageLimit):
            rules.set(policy.name, policy)
    if not rules.limits:
        return []
    use = _Use(state, rules, submitter)
    for one in state.workloads.values():
        use.add(one)
    if cluster_queue is None:
        return use.rows()
    named = targets_of(policies, ("", "", None, cluster_queue))
    targets = {one for one in named if one.kind in ("ClusterQueue", "Cohort")}
    return [one for one in use.rows() if one.limit.target in targets]


class _Policy(NamedTuple):
    queues: Mapping[str, ClusterQueue]
    cohorts: Mapping[str, Cohort]

    @classmethod
    def of(cls, state: CommittedState) -> _Policy:
        policies = state.policies.values()
        queues = {one.name: one for one in policies if isinstance(one, ClusterQueue)}
        return cls(queues, {one.name: one for one in policies if isinstance(one, Cohort)})


class _Use:
    def __init__(self, state: CommittedState, rules: LimitRules, submitter: str | None) -> None:
        self._state, self._rules, self._submitter = state, rules, submitter
        self._usage = LimitUsage(rules)
        self._pending: Counter[Place] = Counter()
        self._waiting: defaultdict[tuple[Place, Dimension], Counter[str]] = defaultdict(Counter)
        self._namespaces: defaultdict[Place, set[str]] = defaultdict(set)
        self._paths: set[tuple[Place, ...]] = set()

    @cached_property
    def _pods(self) -> PodsAsCharged:
        return PodsAsCharged(self._state)

    def add(self, one: StoredWorkload) -> None:
        assignment = one.attempt.assignment if one.attempt is not None else None
        queue = assignment.cluster_queue if assignment is not None else one.cluster_queue
        if queue is None:
            return
        booked = self._booked(one)
        places = self._rules.places(booked, queue)
        if not places:
            return
        if self._submitter in (None, booked.user):
            self._paths.add(places)
            for place in places:
                self._namespaces[place].add(one.ref.namespace)
        if assignment is not None:
            self._usage.hold(one.id, Holder(places, demand_of(assignment, self._rules)))
        elif one.phase is Phase.PENDING:
            self._waits(one, places)

    def _booked(self, one: StoredWorkload) -> Attribution:
        if one.attempt is not None and one.attribution is not None:
            return one.attribution
        if self._rules.by_account:
            return self._pods.booked(one)
        return Attribution(
            namespace=one.ref.namespace,
            queue=one.queue,
            submitter=one.submitter,
            user=one.submitter,
            priority_class=one.options.priority_class,
        )

    def _waits(self, one: StoredWorkload, places: Iterable[Place]) -> None:
        reason = one.reason
        if waits_for_victims(reason):
            self._usage.keep(one.id, Holder(tuple(places), demand_for(self._pods.requests(one))))
        kept = reason is not None and reason.code is Code.WAITING_FOR_USAGE_LIMIT
        if kept or line_place(one, loses_place=True) is not None:
            self._pending.update(places)
        if kept and reason is not None and reason.resource is not None:
            above = reason.limit is Limit.PENDING
            dimension = PENDING if above else Dimension(reason.flavor, reason.resource)
            name = (reason.node or "").removeprefix("UsageLimit/")
            for place in places:
                if place.limit == name:
                    self._waiting[place, dimension][one.ref.namespace] += 1

    def rows(self) -> list[LimitUse]:
        named = {
            Place(one.name, one.subject.name)
            for one in self._rules.limits.values()
            if one.subject.kind in _NAMED and self._submitter is None
        }
        binding = self._binding()
        rows = []
        for place in sorted(named | self._namespaces.keys()):
            limit, namespaces = self._rules.limits[place.limit], frozenset(self._namespaces[place])
            for dimension, most in sorted(_numbers(limit), key=_order):
                rows.append(
                    LimitUse(
                        limit,
                        place.subject,
                        dimension,
                        self._used(place, dimension),
                        most,
                        self._waiting[place, dimension],
                        (place, dimension) in binding,
                        namespaces,
                    )
                )
        return rows

    def _used(self, place: Place, dimension: Dimension) -> int:
        return self._pending[place] if dimension == PENDING else self._usage.of(place, dimension)

    def _binding(self) -> set[tuple[Place, Dimension]]:
        found = set()
        for places in self._paths:
            least: dict[Dimension, tuple[int, Place]] = {}
            for place in places:  # the narrowest target first
                for dimension, most in _numbers(self._rules.limits[place.limit]):
                    left = most - self._used(place, dimension)
                    if dimension not in least or left < least[dimension][0]:
                        least[dimension] = (left, place)
            found |= {(place, dimension) for dimension, (_, place) in least.items()}
        return found


def _numbers(limit: UsageLimit) -> tuple[tuple[Dimension, int], ...]:
    return limit.most if limit.pending is None else (*limit.most, (PENDING, limit.pending))


def _order(number: tuple[Dimension, int]) -> tuple[str, str]:
    return number[0].resource, number[0].flavor or ""
