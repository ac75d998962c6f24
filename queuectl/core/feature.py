"""What the kernel asks of a feature: one subject beside quota (core/features).

The kernel knows this protocol and no feature. A feature overrides what it needs; all else does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple, Protocol

from queuectl.core.charges import PodCharges, PodRequests
from queuectl.core.decisions import ChildToCheck, Decision, Evict, PodOwnerToRead
from queuectl.core.directory import AffectedObjects, Directory
from queuectl.core.entries import Entry
from queuectl.core.limits import AdmissionLimit, Limits
from queuectl.core.model.budgets import BudgetEntry
from queuectl.core.model.capacity import CapacityWarning
from queuectl.core.model.events import Event, PolicyObserved, WorkloadObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Node, Policy
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import PodResources
from queuectl.core.model.workload import (
    AccountValue,
    Assignment,
    Attempt,
    Attribution,
    LedgerSnapshot,
    ObjectRef,
    Observation,
    PastAttempts,
    PodSet,
    Workload,
    WorkloadId,
)
from queuectl.core.past_usage import UsageOrder


class Alarm(NamedTuple):
    """What users of a workload are told beside decisions."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    reason: str
    """In CamelCase, as that of a Kubernetes Event."""
    message: str
    """One sentence."""
    key: str = ""
    """Distinguishes it from others of its reason; empty: the attempt does."""


class Number(NamedTuple):
    """A number for metrics: a gauge of that name."""

    name: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values: the same names for all numbers of one name, and values that no tenant chooses."""


class StartCheck(Protocol):
    """What an admission needs beside limits, while one plan is made."""

    def lacking(
        self, entry: Entry, assignment: Assignment, gone: Collection[WorkloadId], *, observed: bool
    ) -> Reason | None:
        """Return why `entry`, which limits would admit with `assignment`, must wait; None: it need not.

        `gone`: workloads that are to end before it starts. `observed`: False: what the cluster says may be
        older than that, and does not count.
        """

    def admit(self, entry: Entry, assignment: Assignment) -> None:
        """The plan admits `entry`."""

    def preempt(self, entry: Entry, assignment: Assignment) -> None:
        """The plan evicts the victims of `entry`, which is to be admitted once they are gone."""

    def release(self, entry: Entry) -> None:
        """The plan ends the open attempt of `entry`."""


def lacking(
    checks: Iterable[StartCheck],
    entry: Entry,
    assignment: Assignment,
    gone: Iterable[WorkloadId],
    *,
    observed: bool,
) -> Reason | None:
    """Return why `entry` must wait by the first of `checks` that says so; None: by none."""
    gone = tuple(gone)
    for check in checks:
        if (reason := check.lacking(entry, assignment, gone, observed=observed)) is not None:
            return reason
    return None


class PodReader(Protocol):
    """What a feature tells of pods, with what it knows of them."""

    def observe_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""

    def forget_pod(self, uid: str) -> None:
        """The pod is gone, or has ended."""


class NodeReader(PodReader, Protocol):
    """What a feature tells of nodes and their pods."""

    def observe_node(self, node: Node) -> bool:
        """Take a node as it is now. Return whether it has changed."""

    def forget_node(self, name: str) -> bool:
        """The node is gone. Return whether it was known."""


class Kernel(Protocol):
    """What features see of the kernel, and may have done by it."""

    directory: Directory
    clock: datetime
    """The latest time that was observed."""
    entries: dict[WorkloadId, Entry]
    """All workloads that are not over."""

    now: datetime
    """Time of the plan that was applied last."""
    limits: Limits
    features: Features
    changed_queues: set[str]
    """ClusterQueues whose reports are to be made again."""

    @property
    def latest(self) -> datetime:
        """The latest time that is known: no time is observed before a timer is due."""

    @property
    def synced(self) -> bool:
        """Whether all sources have been listed."""

    def renominate(self, cluster_queue: str) -> None:
        """Nominate again all that waits in a ClusterQueue."""

    def room_changed(self, limit: AdmissionLimit) -> None:
        """Nominate again what waits for room, if there may be more of it."""

    def new_entry(self, workload: Workload, observation: Observation) -> Entry:
        """Return the new entry of an object that was observed before."""

    def route(self, entry: Entry) -> None:
        """Put it where it belongs: something that decides this changed."""

    def refresh(self, entry: Entry) -> None:
        """Find what is due: something about it changed."""


class Feature:
    """One subject beside quota."""

    events: ClassVar[frozenset[type[Event]]] = frozenset()
    """Events that it observes."""
    events_while_active: ClassVar[frozenset[type[Event]]] = frozenset()
    """Further ones that it observes while it is active."""
    decisions: ClassVar[frozenset[type[Decision]]] = frozenset()
    """Decisions that it is told of, once the ledger has accepted them."""
    decisions_while_active: ClassVar[frozenset[type[Decision]]] = frozenset()
    active = False
    """It has something to do. The kernel asks no other feature about workloads. A feature that is not active
    learns of its events and decisions alone."""
    workloads_with: ClassVar = "id"
    """Of observed workloads, it takes those that have this attribute, and all while it is active."""
    policies: ClassVar[type[Policy] | None] = None
    """Of policy objects, it takes those of this class, and all while it is active. None: all."""
    charges_claims: ClassVar = False
    """It charges the claims of pods for devices, or says why they cannot be."""
    counts_bound = False
    """How many pods of a workload are bound to nodes matters to it."""

    @property
    def limit(self) -> AdmissionLimit | None:
        """What it limits while it is active, beside quota; None: nothing."""
        return None

    # --- what happens

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        """The state of the ledger is in `entries`: at the start, and where a part of it was loaded again."""

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        """Take an event of `events`, and add what it affects to `affected`."""

    def decided(self, decision: Decision, entry: Entry) -> None:
        """Take a decision of `decisions`, which `entry` has already."""

    def charged(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        """`entry` holds quota for this attempt from now on."""

    def recharged(self, entry: Entry, attempt: Attempt) -> None:
        """What the pods of this attempt follow from may have changed: counts, its object, policy, context."""

    def resized(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        """`entry` holds less for the same attempt from now on."""

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        """`entry` holds nothing any more for this attempt."""

    def entered(self, workload: WorkloadId) -> None:
        """The workload is known from now on."""

    def changed(self, workload: WorkloadId) -> None:
        """What the workload holds may have changed, or it is over."""

    def settle(self) -> None:
        """A batch of events or decisions was applied."""

    # --- what pods are charged (core/charges)

    def completed(self, namespace: str, pod: PodResources) -> PodResources:
        """Return the pod as the API server creates it."""
        return pod

    def requests(self, workload: Workload, pods: list[PodRequests]) -> list[PodRequests]:
        """Return `pods`, those of `workload`, with what is requested beside their containers."""
        return pods

    def problem(self, workload: Workload, pods: list[PodRequests], cluster_queue: str) -> Reason | None:
        """Return why it may not be queued, such as pods that cannot be created; None: it may."""
        return None

    def recorded(self, workload: Workload, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return the podsets of a workload, so far `pod_sets`, as the ledger has them."""
        return pod_sets

    def due_at(self) -> datetime | None:
        """Return when something about it becomes due by time alone; None: nothing does."""
        return None

    # --- what it asks of drivers

    @property
    def due(self) -> bool:
        """Whether it has checks for drivers."""
        return False

    def checks(self) -> Iterable[ChildToCheck | PodOwnerToRead]:
        """Return what drivers are to read. Each is returned until it is `asked`."""
        return ()

    def asked(self, check: ChildToCheck | PodOwnerToRead) -> None:
        """Drivers have been asked."""

    # --- what it decides

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Return the eviction of an admitted workload that is due by this subject; None: none is."""
        return None

    def fails(self, entry: Entry) -> bool:
        """Return whether the object of a workload that is being evicted is to fail, not to be suspended."""
        return False

    def excess(self, entry: Entry) -> str | None:
        """Return what a workload that runs has beyond what its open attempt holds; None: nothing (L22)."""
        return None

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        """Return when, later than `now`, its answers about `entry` may change by time alone; None: never."""
        return None

    def noted(self, past: PastAttempts, entry: Entry, now: datetime) -> PastAttempts:
        """Return `past` with what is to be recorded of a running attempt."""
        return past

    def accounted(self, past: PastAttempts, decision: Decision, entry: Entry, now: datetime) -> PastAttempts:
        """Return `past`, which `decision` records, with the time of the plan and what an attempt leaves."""
        return past

    def begin_plan(self, now: datetime) -> StartCheck | None:
        """A plan of `now` begins. Return what it asks of admissions in it beside its limit; None: nothing."""
        return None

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        """A plan that is committed would have admitted `entry`, but for `reason` of a start check."""

    def bars(self, entry: Entry) -> Reason | None:
        """Return why its past keeps a pending workload out until its user ends that (L19, L20)."""
        return None

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        """Return why `entry` stays out of its pending queue for now; None: it need not.

        `eligible`: it is pending, and nothing else keeps it out; if not, it does not wait for this any more.
        """
        return None

    def revised(self, workload: WorkloadId) -> None:
        """It asks for something else, or objects of its namespace changed: it need not wait any more."""

    def gives_up(self, entry: Entry, now: datetime) -> bool:
        """Return whether the end of an evicted workload is not waited for any more, from now on (C14)."""
        return False

    @property
    def set_aside(self) -> Set[WorkloadId]:
        """Holders of quota whose end nothing waits for: they are no candidates for preemption."""
        return frozenset()

    # --- what others get

    def account(self, workload: Workload) -> tuple[AccountValue, ...]:
        """Return the values of its account keys, on which an admission now is booked."""
        return ()

    def limits_class(self, booked: Attribution, cluster_queue: str) -> bool:
        """Return whether its policies count at the class of what is booked so."""
        return False

    def time_left(self, workload: Workload, past: PastAttempts) -> timedelta | None:
        """Return for how long a workload with this past may run, if it is admitted; None: for any time."""
        return None

    def budget_entries(self, decision: Decision, entry: Entry, now: datetime) -> tuple[BudgetEntry, ...]:
        """Return what a decision of a plan whose time is `now` changes of budgets: it is stored with it."""
        return ()

    def records_use(self, entry: Entry) -> bool:
        """Return whether what an admitted workload has used so far is to be recorded (Y10)."""
        return False

    @property
    def usage(self) -> UsageOrder | None:
        """Usage by which ClusterQueues and Cohorts that say so order; None: it orders nothing."""
        return None

    def numbers(self) -> Iterable[Number]:
        """Return its numbers for metrics."""
        return ()

    def take_alarms(self) -> Iterable[Alarm]:
        """Return its alarms since the last call."""
        return ()

    def changed_warnings(self) -> Set[str]:
        """Bring its warnings up to date. Return the ClusterQueues that have others than before."""
        return frozenset()

    @property
    def warnings(self) -> tuple[CapacityWarning, ...]:
        """All its warnings, as of the last call of `changed_warnings`."""
        return ()

    def warnings_of(self, cluster_queue: str) -> tuple[CapacityWarning, ...]:
        """Return those about the flavors and resources that a ClusterQueue has quota for."""
        return ()


class Features:
    """All features in their order, and those of them that are active."""

    def __init__(self, features: Iterable[Feature], limits: Limits, pods: PodCharges) -> None:
        """`limits` and `pods` get the limits of those that are active, and their rules for pods."""
        self._all = tuple(features)
        self._limits, self._pods = limits, pods
        self.active: list[Feature] = []
        self._of_event = self._by_class("events")
        self._of_decision = self._by_class("decisions")
        self._activate()

    def _activate(self) -> None:
        active = [feature for feature in self._all if feature.active]
        if active != self.active:
            self.active = self._pods.rules = active
            self._of_event = self._by_class("events")
            self._of_decision = self._by_class("decisions")
            self._limits.others = [limit for one in active if (limit := one.limit) is not None]

    def _by_class(self, names: str) -> dict[type, list[Feature]]:
        """Return the features by the classes in their attributes `names`, and `names`_while_active."""
        found: dict[type, list[Feature]] = {}
        for feature in self._all:
            more = getattr(feature, f"{names}_while_active") if feature.active else frozenset()
            for kind in getattr(feature, names) | more:
                found.setdefault(kind, []).append(feature)
        return found

    @property
    def usage(self) -> UsageOrder | None:
        for feature in self.active:
            if (usage := feature.usage) is not None:
                return usage
        return None

    @property
    def counts_bound(self) -> bool:
        return any(feature.counts_bound for feature in self.active)

    @property
    def set_aside(self) -> Set[WorkloadId]:
        found: Set[WorkloadId] = frozenset()
        for feature in self.active:
            found |= feature.set_aside
        return found

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        for feature in self._all:
            feature.restored(snapshot, entries)
        self._activate()

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        of_event = self._of_event.get(type(event))
        if not of_event:
            return
        workload = event.workload if isinstance(event, WorkloadObserved) else None
        value = event.value if isinstance(event, PolicyObserved) else None
        observed = False
        for feature in of_event:
            kind = feature.policies
            if value is not None and not feature.active and kind is not None and not isinstance(value, kind):
                continue
            if workload is None or feature.active or getattr(workload, feature.workloads_with) is not None:
                feature.observe(event, affected)
                observed = True
        if observed:
            self._activate()

    @property
    def due(self) -> bool:
        return any(feature.due for feature in self.active)

    def checks(self) -> list[ChildToCheck | PodOwnerToRead]:
        found: list[ChildToCheck | PodOwnerToRead] = []
        for feature in self.active:
            found += feature.checks()
        return found

    def decided(self, decision: Decision, entry: Entry) -> None:
        changed = False
        for feature in self._of_decision.get(type(decision), ()):
            was_active = feature.active
            feature.decided(decision, entry)
            changed |= feature.active is not was_active
        if changed:
            self._activate()

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        if self.active:
            for feature in self.active:
                feature.released(entry, attempt, now)
            self._activate()

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Return the first eviction that a feature asks for."""
        for feature in self.active:
            if (step := feature.step(entry, now)) is not None:
                return step
        return None

    def fails(self, entry: Entry) -> bool:
        return any(feature.fails(entry) for feature in self.active)

    def due_at(self) -> datetime | None:
        times = [when for feature in self.active if (when := feature.due_at()) is not None]
        return min(times, default=None)

    def accounted(self, past: PastAttempts, decision: Decision, entry: Entry, now: datetime) -> PastAttempts:
        for feature in self.active:
            past = feature.accounted(past, decision, entry, now)
        return past

    def begin_plan(self, now: datetime) -> list[StartCheck]:
        return [check for feature in self.active if (check := feature.begin_plan(now)) is not None]

    def bars(self, entry: Entry) -> Reason | None:
        for feature in self.active:
            if (reason := feature.bars(entry)) is not None:
                return reason
        return None

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        """Return the reason of the first for which it waits. The others are told that it does not."""
        reason = None
        for feature in self.active:
            found = feature.waits(entry, eligible=eligible and reason is None)
            reason = reason or found
        return reason

    def revised(self, workload: WorkloadId) -> None:
        for feature in self.active:
            feature.revised(workload)

    def account(self, workload: Workload) -> tuple[AccountValue, ...]:
        return tuple(value for feature in self.active for value in feature.account(workload))

    def limits_class(self, booked: Attribution, cluster_queue: str) -> bool:
        return any(feature.limits_class(booked, cluster_queue) for feature in self.active)

    def time_left(self, workload: Workload, past: PastAttempts) -> timedelta | None:
        found = (feature.time_left(workload, past) for feature in self.active)
        return min((left for left in found if left is not None), default=None)

    def numbers(self) -> list[Number]:
        return [number for feature in self._all for number in feature.numbers()]

    def take_alarms(self) -> list[Alarm]:
        return [alarm for feature in self._all for alarm in feature.take_alarms()]

    def changed_warnings(self) -> Set[str]:
        return frozenset().union(*(feature.changed_warnings() for feature in self.active))

    @property
    def warnings(self) -> tuple[CapacityWarning, ...]:
        return tuple(warning for feature in self.active for warning in feature.warnings)

    def warnings_of(self, cluster_queue: str) -> tuple[CapacityWarning, ...]:
        return tuple(one for feature in self.active for one in feature.warnings_of(cluster_queue))
