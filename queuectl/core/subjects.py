"""Whose workloads count together, where, and which of them wait: for UsageLimits and Budgets (X, Y)."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from queuectl.core.directory import DEFAULT_PRIORITY_CLASS
from queuectl.core.entries import Entry
from queuectl.core.model.policy import ClusterQueue, Cohort, cohorts_above
from queuectl.core.model.priorities import PRIORITY_CLASS
from queuectl.core.model.reasons import Reason
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.core.model.workload import AccountValue, Attribution, Workload, WorkloadId

_KEPT: Final = 20_000
_EACH_USER: Final = LimitSubject(SubjectKind.EACH_USER)
_ALL: Final = LimitSubject(SubjectKind.ALL)
_Target = tuple[str, str, str | None, str]
"""Namespace, LocalQueue, class and ClusterQueue."""


class QueuesAndCohorts(Protocol):
    """The policy that decides which Cohorts are above a ClusterQueue, by name."""

    @property
    def queues(self) -> Mapping[str, ClusterQueue]: ...
    @property
    def cohorts(self) -> Mapping[str, Cohort]: ...


class SubjectRule(Protocol):
    """A policy object about subjects."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> LimitTarget: ...
    @property
    def subject(self) -> LimitSubject: ...


R = TypeVar("R", bound=SubjectRule)


class Place(NamedTuple):
    """One rule for one subject: use is added up here."""

    limit: str
    """Name of the policy object."""
    subject: str
    """The user, or the value of the account key; empty: all."""


class _Subjects(NamedTuple):
    """The rules of one target."""

    all_subjects: Mapping[LimitSubject, Sequence[SubjectRule]]
    users: Mapping[str, Sequence[SubjectRule]]
    """By name, those of kind User."""
    each_user: Sequence[SubjectRule]
    everyone: Sequence[Place]

    @classmethod
    def of(cls, found: Mapping[LimitSubject, Sequence[SubjectRule]]) -> _Subjects:
        users = {
            subject.name: limits for subject, limits in found.items() if subject.kind is SubjectKind.USER
        }
        everyone = [Place(one.name, "") for one in found.get(_ALL, ())]
        return cls(found, users, found.get(_EACH_USER, ()), everyone)


class SubjectRules(Generic[R]):
    """The policy objects of one kind in force, by target and subject."""

    def __init__(self, policy: QueuesAndCohorts) -> None:
        self._policy = policy
        self.limits: dict[str, R] = {}
        self._by_target: dict[LimitTarget, dict[LimitSubject, list[R]]] = {}
        self._targets: dict[_Target, list[_Subjects]] = {}
        """By what targets depend on, the rules of those that have any, as long as no policy changes; at most
        _KEPT."""
        self.by_account = False
        """Whether any is about values of an account key."""

    def set(self, name: str, limit: R | None) -> bool:
        """Set or remove a rule. Return whether it has changed."""
        self.forget()
        before = self.limits.pop(name, None)
        if before is not None:
            subjects = self._by_target[before.target]
            subjects[before.subject].remove(before)
            if not subjects[before.subject]:
                del subjects[before.subject]
            if not subjects:
                del self._by_target[before.target]
        if limit is not None:
            self.limits[name] = limit
            rules = self._by_target.setdefault(limit.target, {}).setdefault(limit.subject, [])
            insort(rules, limit, key=attrgetter("name"))
        self.by_account = any(one.subject.key for one in self.limits.values())
        return limit != before

    def forget(self) -> None:
        """Policy has changed."""
        self._targets.clear()

    def places(self, booked: Attribution, cluster_queue: str) -> tuple[Place, ...]:
        """Return where the use of a workload counts, the narrowest target first, then by name."""
        key = (booked.namespace, booked.queue, booked.priority_class, cluster_queue)
        return _places(self._targets.get(key) or self._of_targets(key), booked.user, booked.account)

    def would_count(
        self,
        workload: Workload,
        cluster_queue: str,
        account: Callable[[Workload], tuple[AccountValue, ...]],
    ) -> tuple[Place, ...]:
        """Return where an admission of a workload would count now. `account`: what it is booked on."""
        key = (workload.ref.namespace, workload.queue, workload.priority_class, cluster_queue)
        # No rule depends on other values of an account: they cost more than all else here.
        values = account(workload) if self.by_account else ()
        return _places(self._targets.get(key) or self._of_targets(key), workload.submitter, values)

    def _of_targets(self, key: _Target) -> list[_Subjects]:
        targets = self._targets.get(key)
        if targets is None:
            if len(self._targets) >= _KEPT:
                self._targets.clear()
            named = targets_of(self._policy, key)
            targets = [_Subjects.of(self._by_target[one]) for one in named if one in self._by_target]
            self._targets[key] = targets
        return targets

    def at_class(self, booked: Attribution, cluster_queue: str) -> bool:
        """Return whether the use of a workload counts at its class."""
        places = self.places(booked, cluster_queue)
        return any(self.limits[one.limit].target.kind == PRIORITY_CLASS for one in places)


def targets_of(policy: QueuesAndCohorts, key: _Target) -> Iterator[LimitTarget]:
    """Yield what a policy may name to reach a workload: its class, its queues, and the Cohorts above them."""
    namespace, local_queue, priority_class, cluster_queue = key
    yield LimitTarget(PRIORITY_CLASS, priority_class or DEFAULT_PRIORITY_CLASS)
    yield LimitTarget("LocalQueue", local_queue, namespace)
    yield LimitTarget("ClusterQueue", cluster_queue)

    def parent(cohort: str) -> str | None:
        known = policy.cohorts.get(cohort)
        return known.parent if known is not None else None

    queue = policy.queues.get(cluster_queue)
    for name in cohorts_above(queue.cohort, parent) if queue is not None else ():
        yield LimitTarget("Cohort", name)


def _places(
    targets: Iterable[_Subjects], user: str | None, account: Iterable[AccountValue]
) -> tuple[Place, ...]:
    """A subject that is named at a target has its own rule there in the place of that for each."""
    places: list[Place] = []
    for target in targets:
        if user is not None:
            places += [Place(one.name, user) for one in target.users.get(user, target.each_user)]
        for key, value, _ in account:
            if value is not None:
                own = LimitSubject(SubjectKind.ACCOUNT, value, key)
                each = LimitSubject(SubjectKind.EACH_ACCOUNT, key=key)
                rules = target.all_subjects.get(own, target.all_subjects.get(each, ()))
                places += [Place(one.name, value) for one in rules]
        places += target.everyone
    return tuple(places)


def subject_of(limit: SubjectRule, place: Place) -> str:
    """Return whose use counts at `place`, and where, in words."""
    match limit.subject.kind:
        case SubjectKind.USER | SubjectKind.EACH_USER:
            who = f"user {place.subject}"
        case SubjectKind.ACCOUNT | SubjectKind.EACH_ACCOUNT:
            who = f"{limit.subject.key} {place.subject}"
        case SubjectKind.ALL:
            who = "all"
    return f"{who} at {limit.target}"


W = TypeVar("W", bound=Hashable)
"""What a workload needs."""
K = TypeVar("K", bound=Hashable)
"""What is counted, of which each need takes amounts."""
_Item = tuple[tuple[object, ...], WorkloadId]
"""Order and workload."""


class Waiter(NamedTuple, Generic[W]):
    entry: Entry
    place: Place
    want: W
    reason: Reason
    order: tuple[object, ...]
    """The first is queued again first."""


class SubjectWaiters(Generic[W]):
    """Each waits for the rule that it was refused by."""

    def __init__(self) -> None:
        self._waiting: dict[WorkloadId, Waiter[W]] = {}
        self._lines: dict[Place, dict[W, list[_Item]]] = {}
        """By place and want: heaps of (order, workload) pairs; those that wait no more are skipped."""
        self._called: dict[WorkloadId, Place] = {}
        """Queued again, and not nominated since: what they want is not offered to others meanwhile."""
        self._offered: dict[Place, dict[WorkloadId, W]] = {}
        """What is offered to them."""

    def of(self, workload: WorkloadId) -> Waiter[W] | None:
        """Return what it waits for; None: nothing."""
        return self._waiting.get(workload)

    def all(self) -> list[Waiter[W]]:
        return list(self._waiting.values())

    @property
    def places(self) -> Iterable[Place]:
        """Where any waits."""
        return self._lines.keys()

    def wait(self, waiter: Waiter[W]) -> None:
        workload = waiter.entry.id
        self._waiting[workload] = waiter
        line = self._lines.setdefault(waiter.place, {}).setdefault(waiter.want, [])
        if len(line) > 2 * len(self._waiting) + 16:  # churn must not make it grow
            line[:] = [item for item in line if self._waits_in(item, waiter.place, waiter.want)]
            heapq.heapify(line)
        heapq.heappush(line, (waiter.order, workload))

    def _waits_in(self, item: _Item, place: Place, want: W) -> bool:
        waiter = self._waiting.get(item[1])
        return waiter is not None and (waiter.order, waiter.place, waiter.want) == (item[0], place, want)

    def leave(self, workload: WorkloadId) -> None:
        """It does not wait any more."""
        self._waiting.pop(workload, None)

    def knows(self, workload: WorkloadId) -> bool:
        """Return whether it waits, or was queued again and not nominated since."""
        return workload in self._waiting or workload in self._called

    def answered(self, workload: WorkloadId, changed: set[Place]) -> None:
        """It was nominated, or left. Add the place that may be offered to others now to `changed`."""
        place = self._called.pop(workload, None)
        if place is not None:
            changed.add(place)
            del self._offered[place][workload]
            if not self._offered[place]:
                del self._offered[place]

    def clear(self) -> list[Entry]:
        """Let none wait any more. Return those that did."""
        entries = [waiter.entry for waiter in self._waiting.values()]
        self._waiting.clear()
        self._lines.clear()
        self._called.clear()
        self._offered.clear()
        return entries

    def called(
        self,
        place: Place,
        needs: Callable[[W], Iterable[tuple[K, int]]],
        left: Callable[[K], int],
        refused: Callable[[W], None] = lambda want: None,
    ) -> Iterator[Entry]:
        """Yield those for which what is left at `place` is enough now, the first in order first.

        `refused`: is passed each want that it is not enough for. A want is looked at once, and once more for
        each workload that is yielded: tenants choose what they request, and no two may want the same.
        """
        lines = self._lines.get(place)
        if lines is None:
            return
        offered: Counter[K] = Counter()
        for want in self._offered.get(place, {}).values():
            _add(offered, needs(want))
        heads = [(line[0], want) for want in list(lines) if (line := self._line(place, want))]
        heapq.heapify(heads)
        while heads:
            (_, workload), want = heads[0]
            needed = list(needs(want))
            if any(amount + offered[key] > left(key) for key, amount in needed):
                heapq.heappop(heads)
                refused(want)
                continue
            _add(offered, needed)
            entry = self._waiting[workload].entry
            self.leave(workload)
            self._called[workload] = place
            self._offered.setdefault(place, {})[workload] = want
            yield entry
            if line := self._line(place, want):
                heapq.heapreplace(heads, (line[0], want))
            else:
                heapq.heappop(heads)
        if not lines:
            del self._lines[place]

    def _line(self, place: Place, want: W) -> list[_Item]:
        """Return those that want so much at a place, a heap with the first in order first."""
        line = self._lines[place][want]
        while line and not self._waits_in(line[0], place, want):
            heapq.heappop(line)
        if not line:
            del self._lines[place][want]
        return line


def _add(offered: Counter[K], needs: Iterable[tuple[K, int]]) -> None:
    for key, amount in needs:
        offered[key] += amount
