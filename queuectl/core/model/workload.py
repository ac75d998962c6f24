"""The data model as frozen values, with the names of the API.

Amounts are in base units. Times are timezone-aware and in UTC.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, NewType

from queuectl.core.model.budgets import BudgetEntry, BudgetSum
from queuectl.core.model.capacity import ClusterQueueDemand, FlavorCapacity, NodeFacts
from queuectl.core.model.device_use import DeviceUse
from queuectl.core.model.devices import PodClaim
from queuectl.core.model.policy import (
    AccountSource,
    LocalQueueName,
    Requirement,
    ResourceFlavor,
    Toleration,
)
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import Amounts, FlavorResource, PodResources, Usage
from queuectl.core.model.start_conditions import StartConditions
from queuectl.core.model.values import value

WorkloadId = NewType("WorkloadId", str)
"""Identity of a workload: for a workload of one object the UID of that object, never a name."""

Place = tuple[int, int, int, str]
"""Sort key of a workload in a pending queue; the last part is the workload's identity."""


class ObjectRef(NamedTuple):
    """A Kubernetes object. `kind` is a name in the table of job kinds, such as `Job`."""

    namespace: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


@value(frozen=True, slots=True, kw_only=True)
class PastAttempts:
    """What the closed attempts of a workload determine for the next one (L17 to L20)."""

    run_ms: int = 0
    """Run time of its closed attempts in milliseconds, each from admission to eviction (L17)."""
    failures: int = 0
    """Number of consecutive failed starts (L18)."""
    barred: Reason | None = None
    """Why it is ineligible: BackingOff until `until`, or Deactivated until its user acts (L19)."""
    until: datetime | None = None
    """End of the backoff."""
    ready: int = 0
    """Number of the last attempt in which all pods were ready; 0: no attempt."""
    bound_at: datetime | None = None
    """When all pods of the open attempt were bound to nodes; None: not yet, or no clock asks (L24)."""
    unready_at: datetime | None = None
    """Since when pods of the open attempt are not ready that were; None: they are, or no clock asks (L26)."""
    held_back: int = 0
    """How many pods of the open attempt its own order last held back (L32)."""
    part_at: datetime | None = None
    """When its own order let the last of them run; None: it has held none back, or no clock asks (L32)."""
    missed: tuple[str, ...] = ()
    """The flavors of the last attempt for whose pods nodes did not come in time (M20), sorted."""
    missed_at: datetime | None = None  # when that attempt was evicted for it
    use: DeviceUse | None = None
    """What its open attempt does with its devices; None: it is not judged. Another attempt's says nothing."""
    lowered: tuple[LoweredPriority, ...] = ()
    """What has lowered its priority: one for each kind of policy at most."""
    ordered_from: datetime | None = None  # as if created then (O9); None: by its creation


NO_PAST_ATTEMPTS = PastAttempts()


@value(frozen=True, slots=True, kw_only=True)
class PodSet:
    """`count` equal pods. Scheduling fields are those of the user, without the changes of an admission."""

    name: str
    count: int
    min_count: int | None = None
    """Least number of pods that it may start with (F9); None: all pods or none."""
    requests: Amounts
    """Requests of one pod, without `pods` and without the overhead of its RuntimeClass."""
    not_charged: str | None = None
    """Path of something that its pods request and no quota can be charged for (G1); None: nothing."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    """Required node affinity: one of the terms must match, and in that term all expressions."""
    priority_class: str | None = None
    runtime_class: str | None = None
    group: str | None = None
    """Podsets with the same group get the same flavors."""
    claims: tuple[PodClaim, ...] = ()
    """Device claims of its pods."""
    pod: PodResources | None = None
    """The resources of each container; None: not known, only their sum is."""
    topology: bool = False
    """It requests a topology placement: only flavors with a topology match."""


class WorkloadOutcome(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"
    TIMED_OUT = "TimedOut"  # its run time limit ended it (L13); its object stays suspended, or failed
    CANCELLED = "Cancelled"  # an IdlePolicy ended it (I8); its object stays suspended


@value(frozen=True, slots=True, kw_only=True)
class UserOptions:
    """What the labels and annotations of a workload ask for, besides its queue and hold, and their fault."""

    priority_class: str | None = None
    max_run_seconds: int | None = None
    start: StartConditions | None = None
    problem: Reason | None = None


NO_OPTIONS = UserOptions()


@value(frozen=True, slots=True, kw_only=True)
class Workload:
    """The request of a user as read from its object: all fields that an admission depends on."""

    id: WorkloadId
    ref: ObjectRef
    queue: str
    """Name of a LocalQueue in the object's namespace."""
    created_at: datetime
    pod_sets: tuple[PodSet, ...]
    priority_class: str | None = None
    """Name of a WorkloadPriorityClass, from the label; None: the PriorityClass of the pods applies (O3)."""
    submitter: str | None = None
    """The user whose it is: whom the object names, else its creator (B1)."""
    creator: str | None = None  # if that is another one
    groups: tuple[str, ...] = ()  # of the submitter
    owner: ObjectRef | None = None
    """The object of a queued kind that controls it, as it says itself: only the topmost one queues (K1)."""
    controller: str = ""  # KIND/NAME of what controls it, as it says itself; empty: nothing does
    labels: tuple[tuple[str, str], ...] = ()
    hold: bool = False
    """The user holds it: it is ineligible (G2)."""
    hold_reason: str | None = None
    """Why, and by which user, as the user wrote it."""
    idle_exempt: datetime | None = None  # until when its devices are not judged (B18)
    max_run_seconds: int | None = None
    """Longest run time in seconds over all attempts (L13); None: no limit."""
    start: StartConditions | None = None
    """What it waits for before its start (section V); None: for quota alone."""
    problem: Reason | None = None
    """Why it cannot be queued (G1), such as a quantity out of range. Where its requests cannot be counted,
    `pod_sets` is empty."""

    @property
    def options(self) -> UserOptions:
        return UserOptions(
            priority_class=self.priority_class,
            max_run_seconds=self.max_run_seconds,
            start=self.start,
            problem=self.problem,
        )


class PodCount(NamedTuple):
    """A field of an object with the number of pods of a podset."""

    pod_set: str
    path: tuple[str, ...]
    """Keys from the root of the object."""
    own: int
    """As its user wrote it."""


class AccountValue(NamedTuple):
    """The value of one account key, such as a cost center, and what it was read from."""

    key: str
    value: str | None
    source: AccountSource | None
    """None: nothing has an allowed value."""


@value(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What an attempt is booked on, as it was at its admission: later changes of labels change nothing."""

    namespace: str
    queue: str
    """Name of the LocalQueue."""
    submitter: str | None = None
    user: str | None = None
    """The user that created the object, and the one whose usage it is; None: unknown."""
    priority_class: str | None = None
    """Name of its WorkloadPriorityClass."""
    account: tuple[AccountValue, ...] = ()
    """In the order of the configured account keys."""

    @classmethod
    def of(cls, workload: Workload, account: tuple[AccountValue, ...] = ()) -> Attribution:
        """Return what an admission of a workload is booked on now."""
        return cls(
            namespace=workload.ref.namespace,
            queue=workload.queue,
            submitter=workload.creator or workload.submitter,
            user=workload.submitter,
            priority_class=workload.priority_class,
            account=account,
        )


class ForcedRelease(NamedTuple):
    """By an admin: the quota of an attempt is to be released although pods exist (L28)."""

    attempt: int
    by: str
    reason: str


class RecordedStop(NamedTuple):
    attempt: int
    """0: the annotation is malformed, or of another workload."""
    outcome: WorkloadOutcome | None = None
    """How it is over by that (L13, I8); None: it may start again."""
    text: str = ""
    """The annotation, cut if it is too long to be read. A start tests it."""


@value(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of a workload's object, as last read."""

    resource_version: str
    generation: int
    suspended: bool
    annotated: bool
    """The object has annotations. This determines the JSON patch that adds another one."""
    finished: WorkloadOutcome | None = None
    failure: str | None = None
    """Why it failed, as its status says: text of others."""
    quiet: bool | None = None
    """True: by its status, none of its pods is alive. None: unknown; the pods must be counted (H6)."""
    admission: Attempt | None = None
    """The attempt in its reserved-admission annotation."""
    bypass: tuple[str, str] = ("", "")
    """The user that started it past its queue, and why; empty: it is not recorded on the object."""
    started_at: datetime | None = None
    """Start time in its status; None: not set."""
    ended_at: datetime | None = None
    """End time in its status, of a finished workload."""
    ready: bool | None = None
    """Whether all its pods are ready or have succeeded. None: its status does not say."""
    reclaimable: tuple[tuple[str, int], ...] = ()
    """(podset, number of its pods that have ended for good) pairs, as far as its status says so (L15)."""
    held_back: int = 0
    """How many of its pods its own order does not let run yet (L32)."""
    not_bound: int = 0
    """How many pods of what it holds are not there: held back, or ended well and made again by a restart."""
    unstarted: bool = False
    """It runs, and pods that its admission has quota for are held back: it is to be started again (L33)."""
    pods_ready: int | None = None
    """How many of its pods are ready. None: its status does not say. Reported to readers, decides nothing."""
    pods_missing: str = ""
    """Which of its pods do not exist while it runs, reported likewise; empty: none is known to."""
    unlabelled: tuple[tuple[str, bool], ...] = ()
    """Podsets whose pod template has no labels, and if that has other metadata: for a patch of labels."""
    by_child: bool = False
    """Its podsets are those of a child, which may change while the object does not (L22)."""
    own_entry: int | None = None
    """Place of queuectl's entry in a list that others write too, -1 if it has none. None: no such list."""
    elastic: tuple[PodCount, ...] = ()
    """Fields that a start with fewer pods than requested reduces (F9)."""
    reduced: tuple[PodCount, ...] = ()
    """Fields that its last start reduced: a stop restores them."""
    stopped: RecordedStop | None = None
    """Its last stop, recorded on it until its next start."""
    release: ForcedRelease | None = None
    """In its reserved-release annotation."""

    def ended_by_stop_of(self, attempt: int) -> WorkloadOutcome | None:
        """Return how it is over by the stop of this attempt, as is recorded; None: it is not."""
        return self.over if self.stopped is not None and self.stopped.attempt == attempt else None

    @property
    def over(self) -> WorkloadOutcome | None:
        """How it ended, where no attempt is open (L2); None: it waits or runs."""
        by_stop = self.finished is WorkloadOutcome.FAILED or (self.suspended and not self.finished)
        return (self.stopped.outcome if by_stop and self.stopped else None) or self.finished

    def outdated_by(self, last: Observation) -> bool:
        """Return whether it is older than `last`: a read may overtake a watch event."""
        if self.generation != last.generation:
            return self.generation < last.generation
        if last.finished is not None and self.finished is None:
            return True
        return precedes(self.resource_version, last.resource_version)


def precedes(version: str, other: str) -> bool:
    """Return whether a resourceVersion is known to be older: numbers are ordered (since Kubernetes 1.35)."""
    if not (version.isascii() and version.isdigit() and other.isascii() and other.isdigit()):
        return False
    return (len(version), version) < (len(other), other)


class Phase(StrEnum):
    PENDING = "Pending"
    ADMITTED = "Admitted"
    EVICTING = "Evicting"
    FINISHED = "Finished"
    DELETED = "Deleted"


class AttemptState(StrEnum):
    """State of an attempt. Reserved and Admitted are separate states, as for admission checks in Kueue."""

    RESERVED = "Reserved"
    ADMITTED = "Admitted"
    EVICTING = "Evicting"
    CLOSED = "Closed"


CLAIM = ":resourceclaim/"
"""`PODSET:resourceclaim/NAME` is charged for a claim that pods share, whatever their count (H11)."""


def names_claim(pod_set: str) -> bool:
    """Return whether this is the name of a shared claim. No podset has such a name."""
    return CLAIM in pod_set


@value(frozen=True, slots=True, kw_only=True)
class PodSetAssignment:
    """The charge of one podset: `count` pods with `requests` each, each resource from its flavor."""

    name: str
    count: int
    requests: Amounts
    """Charge of one pod: with the RuntimeClass overhead (H2), and with `pods` if the queue covers it (H4)."""
    flavors: tuple[tuple[str, str], ...]
    """(resource, flavor) pairs sorted by resource; the same resources as in `requests`."""
    node_selector: tuple[tuple[str, str], ...] = ()
    """The scheduling fields of the user at admission. They are restored when the workload is stopped."""
    tolerations: tuple[Toleration, ...] = ()
    ended: tuple[str, ...] = ()
    """Its pods that have ended for good (L15), where no object keeps their number."""


@value(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The quota that a workload holds: its ClusterQueue, and per podset the flavors."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]

    def usage(self) -> Usage:
        """Return the total per cell over all pods of all podsets, in base units."""
        total: Usage = {}
        for pod_set in self.pod_sets:
            flavors = dict(pod_set.flavors)
            for resource, amount in pod_set.requests:
                cell = FlavorResource(flavors[resource], resource)
                total[cell] = total.get(cell, 0) + amount * pod_set.count
        return total

    def resources(self) -> dict[str, int]:
        """Return the total per resource over all flavors, in base units."""
        total: dict[str, int] = {}
        for pod_set in self.pod_sets:
            for resource, amount in pod_set.requests:
                total[resource] = total.get(resource, 0) + amount * pod_set.count
        return total

    @property
    def pods(self) -> int:
        return sum(pod_set.count for pod_set in self.pod_sets if not names_claim(pod_set.name))

    def steered(self) -> tuple[PodSetAssignment, ...]:
        """Return the podsets that have pods, each with the flavors of the claims that these share."""
        claims = [one for one in self.pod_sets if names_claim(one.name)]
        if not claims:
            return self.pod_sets
        found = []
        for pod_set in self.pod_sets:
            if not names_claim(pod_set.name):
                own = (one for one in claims if one.name.startswith(f"{pod_set.name}{CLAIM}"))
                flavors = {pair for one in (pod_set, *own) for pair in one.flavors}
                found.append(replace(pod_set, flavors=tuple(sorted(flavors))))
        return tuple(found)


MOST_ATTEMPTS = 1_000_000
"""An annotation with a higher number of an attempt was not written by a controller."""


@value(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One admission of one workload, from its first hold line to its release. `number` counts from 1."""

    workload: WorkloadId
    number: int
    state: AttemptState
    assignment: Assignment
    admitted_at: datetime
    sequence: int = 0
    """Ledger sequence of the decision that opened it; 0 until that is committed."""
    debt: bool = False
    """It was found running and is charged whether it fits or not (L4)."""

    def is_same(self, other: Attempt) -> bool:
        """Return whether both are one admission: a ledger that lost decisions uses numbers again."""
        return (self.number, self.admitted_at) == (other.number, other.admitted_at)


class PodsReady(NamedTuple):
    """How many pods of an attempt are ready, by the status of the object, and which do not exist."""

    workload: WorkloadId
    attempt: int
    ready: int
    missing: str = ""


class PendingLine(NamedTuple):
    """The first workloads of a pending queue, where past usage orders them (U1): at most LINE."""

    cluster_queue: str
    workloads: tuple[WorkloadId, ...]


class ForReaders(NamedTuple):
    """What the driver tells the readers of the ledger beside decisions. It decides nothing."""

    pods_ready: tuple[PodsReady, ...] = ()
    """At most one item for each workload."""
    lines: tuple[PendingLine, ...] = ()
    """At most one item for each ClusterQueue."""
    capacities: tuple[FlavorCapacity, ...] = ()
    """At most one item for each flavor."""
    demands: tuple[ClusterQueueDemand, ...] = ()
    """At most one item for each ClusterQueue."""
    nodes: tuple[NodeFacts, ...] = ()
    """At most one item for each node."""
    all_nodes: tuple[str, ...] | None = None
    """Once at the start of a controller: the names of all nodes. Others that are told are gone."""
    past_capacities: tuple[FlavorCapacity, ...] = ()
    """At most one item for each flavor, to be stored as history of the time of the commit."""


NOTHING_FOR_READERS = ForReaders()


class Verb(StrEnum):
    START = "Start"
    STOP = "Stop"


class EffectKey(NamedTuple):
    """Key of a Kubernetes write that a committed decision requires. An attempt has at most one per verb."""

    workload: WorkloadId
    attempt: int
    verb: Verb


@value(frozen=True, slots=True, kw_only=True)
class StoredWorkload:
    """The record of the ledger about one workload that is not over."""

    id: WorkloadId
    ref: ObjectRef
    queue: str
    cluster_queue: str | None
    priority: int
    created_at: datetime
    arrival: int
    """Order of first observation: breaks ties between workloads created in the same second (O2)."""
    phase: Phase
    attempts: int
    """Number of its attempts, the open one included."""
    attempt: Attempt | None
    """The open attempt."""
    reason: Reason | None
    pod_sets: tuple[PodSet, ...] = ()
    """What it requests, as of the decision that queued it last; empty if an older version queued it."""
    options: UserOptions = NO_OPTIONS
    """As of its last enqueue."""
    submitter: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """As of its last enqueue, sorted."""
    attribution: Attribution | None = None
    """What its open attempt is booked on; None: unknown, or there is none."""
    past: PastAttempts = NO_PAST_ATTEMPTS
    preempted_at: tuple[datetime, ...] = ()
    """Times of its last preemptions within the eviction window, oldest first (P11)."""
    preemptor: WorkloadId | None = None
    """Of a workload that is being evicted by preemption: its preemptor."""
    evicted_at: datetime | None = None
    """Of a workload that is being evicted: the time of that decision."""

    @property
    def use(self) -> DeviceUse | None:
        """The verdict about the devices of its open attempt; None: there is none."""
        use, attempt = self.past.use, self.attempt
        return use if use is not None and attempt is not None and attempt.number == use.attempt else None


class ConfigKey(NamedTuple):
    """A policy object: kind, namespace (empty if cluster-scoped), name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


UsageAccount = tuple[str, ...]
"""Whose past usage: (charged ClusterQueue), (namespace, LocalQueue), or (namespace, LocalQueue, user).
An empty user stands for all that are unknown."""


def usage_accounts(cluster_queue: str, booked: Attribution | None) -> tuple[UsageAccount, ...]:
    """Return the accounts for which counts what a workload holds (U2, U6, U7). `booked`: None: unknown."""
    if booked is None:
        return ((cluster_queue,),)
    name = LocalQueueName(booked.namespace, booked.queue)
    return (cluster_queue,), name, (*name, booked.user or "")


class UsageSum(NamedTuple):
    """A part of the past usage of an account, as its history adds it up (`core/features/usage_history`)."""

    account: UsageAccount
    period: int
    """Half-lives since 1970."""
    total: int


@value(frozen=True, slots=True, kw_only=True)
class LedgerSnapshot:
    """The open state of the ledger of one cluster at one sequence."""

    sequence: int
    now: datetime | None
    """Time of the last commit."""
    workloads: tuple[StoredWorkload, ...] = ()
    configs: tuple[tuple[ConfigKey, str], ...] = ()
    """(key, spec in force as canonical JSON) pairs."""
    effects: tuple[EffectKey, ...] = ()
    """Effects that are not acknowledged."""
    past_usage: tuple[UsageSum, ...] = ()
    """Past usage by closed attempts (U5); empty without `admissionFairSharing` in the configuration."""
    budget_sums: tuple[BudgetSum, ...] = ()
    """What attempts that are over have used of budgets, in periods that end after `now`."""
    budget_entries: tuple[BudgetEntry, ...] = ()
    """The rows of open attempts in budgets, in the order of the decisions that wrote them."""
    nodes: tuple[NodeFacts, ...] = ()
    """The nodes by name, as readers were told of them last. Empty for a controller, and of a past time."""
    capacities: tuple[FlavorCapacity, ...] = ()
    """What nodes had, by flavor, as history has it. Empty if it has nothing of then, and for a controller."""
    read_up_to: tuple[tuple[str, int], ...] = ()
    """(kind, resourceVersion) pairs: how far the leader that stored this had read when it stopped."""


class Eviction(NamedTuple):
    """Why and when an attempt was evicted."""

    reason: Reason
    at: datetime
    fails: bool = False  # its object, if its kind has a deadline; it is suspended where that has no effect


@value(frozen=True, slots=True, kw_only=True)
class Effect:
    """A Kubernetes write that a committed decision requires, with all its inputs.

    `workload` and `observation` are the object as last read: a write of one that has changed is refused.
    """

    key: EffectKey
    workload: Workload
    observation: Observation
    attempt: Attempt
    flavors: tuple[ResourceFlavor, ...]
    """The flavors that the attempt is charged to, as of the creation of this effect."""
    eviction: Eviction | None = None
    """Of a stop."""
