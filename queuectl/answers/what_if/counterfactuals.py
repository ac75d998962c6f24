"""The smallest changes with which a pending workload starts (docs/answers.md, A9 to A11): each is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from queuectl.answers.what_if.trials import Trials
from queuectl.core.flavors.queue_flavors import mismatch
from queuectl.core.model.policy import (
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
    Toleration,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Family, Reason
from queuectl.core.model.resources import Amounts, Container, PodResources
from queuectl.core.model.resources import requested as requested_by
from queuectl.core.model.selectors import tolerated
from queuectl.core.model.what_if import Change, ChangeKind, Counterfactual, Counterfactuals, Tried
from queuectl.core.model.workload import ConfigKey, PodSet, Workload, WorkloadId
from queuectl.scenarios.rebuilt_engine import claiming, requested

EACH: Final = 32
"""Up to so many values of a change are tried one by one; of more, some by halves."""
OTHERS: Final = 3
"""How many other queues, and other flavors, are named."""
MOST_WORK: Final = 800
"""Units of work (nominations, searches for victims) that the search for more quota may cost: each change
nominates the heads of a whole tree."""
MOST_WORK_EACH: Final = 1000
"""Units of work that the search for changes of each other kind may cost."""


def counterfactuals(trials: Trials, workload: WorkloadId) -> Counterfactuals:
    """Return what would let a pending workload start now. Raises KeyError: it is not in the state."""
    stored = trials.workloads[workload]
    now = trials.unchanged(workload)
    if stored.attempt is not None:
        return Counterfactuals(sequence=trials.read, now=now)  # it holds quota until its pods are gone
    asked = Asked(requested(stored), stored.cluster_queue, stored.priority)
    return _search(trials, asked, now)


def quote(trials: Trials, workload: Workload) -> Counterfactuals:
    """Return whether a new workload would start, and what would let it start if not."""
    workload = claiming(workload, trials.workloads.values())
    now = trials.with_workload(workload)
    return _search(trials, Asked(workload, now.cluster_queue, now.priority or 0), now)


class Asked(NamedTuple):
    """A workload, and where and with which priority it is queued."""

    workload: Workload
    cluster_queue: str | None
    priority: int


def _search(trials: Trials, asked: Asked, now: Tried) -> Counterfactuals:
    evaluated = now.reason is not None and now.reason.family is not Family.HELD
    if now.starts or not evaluated or not asked.workload.pod_sets or now.reason is None:
        return Counterfactuals(sequence=trials.read, now=now)
    search = _Search(trials, asked, now.reason)
    found = tuple(search.all())
    return Counterfactuals(sequence=trials.read, now=now, found=found, incomplete=tuple(search.incomplete))


class _Search:
    def __init__(self, trials: Trials, asked: Asked, reason: Reason) -> None:
        self._trials = trials
        self._own = asked.workload
        self._cluster_queue = asked.cluster_queue
        self._priority = asked.priority
        self._reason = reason
        self._last_work = 0
        """No trial begins after so much work of the trials."""
        self.incomplete: list[ChangeKind] = []

    def all(self) -> Iterator[Counterfactual]:
        """All kinds together cost at most five times MOST_WORK_EACH and MOST_WORK, and one trial each."""
        kinds = (
            (ChangeKind.FEWER_PODS, self._fewer()),
            (ChangeKind.SMALLER_PODS, self._smaller()),
            (ChangeKind.OTHER_FLAVOR, islice(self._flavors(), OTHERS)),
            (ChangeKind.OTHER_QUEUE, islice(self._queues(), OTHERS)),
            (ChangeKind.OTHER_PRIORITY, islice(self._priorities(), 1)),
            (ChangeKind.MORE_QUOTA, self._quota()),
        )
        for kind, changes in kinds:
            most = MOST_WORK if kind is ChangeKind.MORE_QUOTA else MOST_WORK_EACH
            self._last_work = self._trials.work + most
            try:
                yield from changes
            except _TooMuch:
                self.incomplete.append(kind)

    def _bounded(self) -> Trials:
        """Raises _TooMuch if no other trial may begin."""
        if self._trials.work > self._last_work:
            raise _TooMuch
        return self._trials

    # --- the workload

    def _fewer(self) -> Iterator[Counterfactual]:
        for number, pods in enumerate(self._own.pod_sets):
            yield from self._fewer_of(number, pods)

    def _smaller(self) -> Iterator[Counterfactual]:
        for number, pods in enumerate(self._own.pod_sets):
            for resource in self._missing(pods):
                yield from self._smaller_of(number, pods, resource)

    def _fewer_of(self, number: int, pods: PodSet) -> Iterator[Counterfactual]:
        def change(count: int) -> tuple[Change, Workload]:
            least = pods.min_count if pods.min_count is not None and pods.min_count < count else None
            fewer = replace(pods, count=count, min_count=least)
            what = Change(kind=ChangeKind.FEWER_PODS, pod_set=pods.name, before=pods.count, after=count)
            return what, self._with(number, fewer)

        yield from self._largest(pods.count - 1, change)

    def _smaller_of(self, number: int, pods: PodSet, resource: str) -> Iterator[Counterfactual]:
        asked = dict(pods.requests)[resource]

        def change(amount: int) -> tuple[Change, Workload | None]:
            what = Change(
                kind=ChangeKind.SMALLER_PODS,
                pod_set=pods.name,
                resource=resource,
                before=asked,
                after=amount,
            )
            smaller = with_request(pods, resource, amount)
            return what, None if smaller is None else self._with(number, smaller)

        yield from self._largest(asked - 1, change)

    def _missing(self, pods: PodSet) -> list[str]:
        """The resources that it waits for, of those that a pod requests."""
        reasons = (self._reason, *self._reason.others)
        named = {one.resource for one in reasons if one.resource is not None}
        return [name for name, amount in pods.requests if name in named and amount > 1]

    def _flavors(self) -> Iterator[Counterfactual]:
        """Flavors of its queue that its pods exclude by their selectors, affinity or tolerations."""
        queue = self._queue()
        known = {flavor.name: flavor for flavor in self._trials.all_of(ResourceFlavor)}
        names = [one.name for group in (queue.resource_groups if queue else ()) for one in group.flavors]
        for name in dict.fromkeys(names):
            flavor = known.get(name)
            if flavor is None or all(mismatch(flavor, pods) is None for pods in self._own.pod_sets):
                continue
            keys = {key for one in map(known.get, names) if one is not None for key, _ in one.node_labels}
            pod_sets = tuple(asking(pods, flavor, keys) for pods in self._own.pod_sets)
            yield from self._one(
                Change(kind=ChangeKind.OTHER_FLAVOR, flavor=name), replace(self._own, pod_sets=pod_sets)
            )

    def _queues(self) -> Iterator[Counterfactual]:
        for queue in self._trials.all_of(LocalQueue):
            own = queue.name.namespace == self._own.ref.namespace
            if own and queue.name.name != self._own.queue and not queue.restricted:
                change = Change(kind=ChangeKind.OTHER_QUEUE, name=queue.name.name)
                yield from self._one(change, replace(self._own, queue=queue.name.name))

    def _priorities(self) -> Iterator[Counterfactual]:
        """Classes of higher priority that all users may name, the lowest first."""
        classes = self._trials.all_of(WorkloadPriorityClass)
        for one in sorted(classes, key=lambda one: (one.value, one.name)):
            if one.value > self._priority and not one.restricted:
                change = Change(
                    kind=ChangeKind.OTHER_PRIORITY,
                    name=one.name,
                    before=self._priority,
                    after=one.value,
                )
                yield from self._one(change, replace(self._own, priority_class=one.name))

    def _with(self, number: int, pods: PodSet) -> Workload:
        pod_sets = list(self._own.pod_sets)
        pod_sets[number] = pods
        return replace(self._own, pod_sets=tuple(pod_sets))

    def _one(self, change: Change, workload: Workload) -> Iterator[Counterfactual]:
        outcome = self._bounded().with_workload(workload)
        if outcome.starts:
            yield Counterfactual(change, outcome)

    def _largest(
        self, most: int, change: Callable[[int], tuple[Change, Workload | None]]
    ) -> Iterator[Counterfactual]:
        """The largest value from `most` down to 1 with which it starts."""

        def outcome(reduction: int) -> Tried | None:
            _, workload = change(most + 1 - reduction)
            if workload is None:
                return None
            found = self._bounded().with_workload(workload)
            return found if found.starts else None

        found = smallest(outcome, most, max(1, min(most, self._reason.short_by or 1)))
        if found is not None:
            reduction, tried = found
            yield Counterfactual(change(most + 1 - reduction)[0], tried)

    # --- the policy

    def _queue(self) -> ClusterQueue | None:
        key = ConfigKey("ClusterQueue", "", self._cluster_queue or "")
        found = self._trials.policy(key)
        return found if isinstance(found, ClusterQueue) else None

    def _quota(self) -> Iterator[Counterfactual]:
        """More nominal quota of one cell of its ClusterQueue."""
        queue = self._queue()
        cells = {
            (one.flavor, one.resource): one.short_by or 1
            for one in (*self._reason.others, self._reason)
            if one.flavor is not None and one.resource is not None
        }
        if queue is None or not cells:
            return
        key = ConfigKey("ClusterQueue", "", queue.name)
        for (flavor, resource), short in cells.items():
            before = nominal(queue, flavor, resource)
            if before is None:
                continue

            def outcome(more: int, flavor: str = flavor, resource: str = resource) -> Tried | None:
                larger = with_quota(queue, flavor, resource, more)
                found = self._bounded().with_policy(key, larger, self._own)
                return found if found.starts else None

            most = 2 * max(short, self._asked(resource))
            found = smallest(outcome, most, short)
            if found is not None:
                more, tried = found
                yield Counterfactual(
                    Change(
                        kind=ChangeKind.MORE_QUOTA,
                        flavor=flavor,
                        resource=resource,
                        node=f"ClusterQueue/{queue.name}",
                        before=before,
                        after=before + more,
                    ),
                    tried,
                )

    def _asked(self, resource: str) -> int:
        return sum(dict(pods.requests).get(resource, 0) * pods.count for pods in self._own.pod_sets)


class _TooMuch(Exception):
    """The search has cost as much as it may."""


def smallest(outcome: Callable[[int], Tried | None], most: int, hint: int) -> tuple[int, Tried] | None:
    """Return the smallest value from 1 to `most` with an outcome; None: there is none.

    `most` is tried first, and decides whether there is one. Up to EACH values are tried one by one. Of more,
    `hint` is tried, and then halves: exact where each value above one with an outcome has one too.
    """
    last = outcome(most) if most > 0 else None
    if last is None:
        return None
    if most <= EACH:
        tries = ((value, outcome(value)) for value in range(1, most + 1))
        return next(((value, found) for value, found in tries if found is not None), None)
    low, high, best = 1, most, (most, last)
    for value in (hint, hint - 1):
        if low <= value < high:
            found = outcome(value)
            if found is not None:
                best, high = (value, found), value
            else:
                low = max(low, value + 1)
    while low < high:
        middle = (low + high) // 2
        found = outcome(middle)
        if found is not None:
            best, high = (middle, found), middle
        else:
            low = middle + 1
    return best


def with_request(pods: PodSet, resource: str, amount: int) -> PodSet | None:
    """Return `pods` with this request of each pod; None: its containers do not allow it."""
    requests = tuple((name, amount if name == resource else asked) for name, asked in pods.requests)
    if pods.pod is None:
        return replace(pods, requests=requests)
    smaller = _smaller(pods.pod, resource, dict(pods.requests)[resource] - amount)
    if dict(requested_by(smaller)).get(resource, 0) != amount:
        return None
    return replace(pods, requests=requested_by(smaller), pod=smaller)


def _smaller(pod: PodResources, resource: str, less: int) -> PodResources:
    """Take `less` from the containers that request the resource, the first one first."""
    containers: list[Container] = []
    for one in pod.containers:
        asked = dict(one.requests).get(resource, 0)
        taken = min(asked, less)
        less -= taken
        containers.append(
            replace(
                one,
                requests=_less(one.requests, resource, taken),
                limits=_at_least(_less(one.limits, resource, taken), resource),
            )
            if taken
            else one
        )
    return replace(pod, containers=tuple(containers), requests=_less(pod.requests, resource, less))


def _less(found: Amounts, resource: str, less: int) -> Amounts:
    return tuple((name, amount - less if name == resource else amount) for name, amount in found)


def _at_least(found: Amounts, resource: str) -> Amounts:
    return tuple((name, max(amount, 0) if name == resource else amount) for name, amount in found)


def asking(pods: PodSet, flavor: ResourceFlavor, keys: set[str]) -> PodSet:
    """Return `pods` as they would ask for this flavor: `keys` are the labels that tell flavors apart."""
    kept = tuple(pair for pair in pods.node_selector if pair[0] not in keys)
    missing = tuple(
        Toleration(taint.key, "Equal", taint.value, taint.effect)
        for taint in flavor.node_taints
        if not tolerated(taint, (*pods.tolerations, *flavor.tolerations))
    )
    return replace(
        pods,
        node_selector=tuple(sorted((*kept, *flavor.node_labels))),
        affinity=(),
        tolerations=(*pods.tolerations, *missing),
    )


def nominal(queue: ClusterQueue, flavor: str, resource: str) -> int | None:
    """Return the nominal quota of a cell, in base units; None: the queue does not have it."""
    found = (
        quota.nominal
        for group in queue.resource_groups
        for one in group.flavors
        if one.name == flavor
        for name, quota in one.resources
        if name == resource
    )
    return next(found, None)


def with_quota(queue: ClusterQueue, flavor: str, resource: str, more: int) -> ClusterQueue:
    """Return the queue with more nominal quota of a cell."""
    groups = tuple(
        replace(
            group,
            flavors=tuple(
                replace(
                    one,
                    resources=tuple(
                        (name, replace(quota, nominal=quota.nominal + more) if name == resource else quota)
                        for name, quota in one.resources
                    ),
                )
                if one.name == flavor
                else one
                for one in group.flavors
            ),
        )
        for group in queue.resource_groups
    )
    return replace(queue, resource_groups=groups)
