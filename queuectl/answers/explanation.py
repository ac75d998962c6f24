"""Why a workload waits, runs or was evicted: what binds, what is ahead, what holds quota, what helps. Pure.

Computed once from a committed state, with all names; `Explanation.to` leaves those that a caller may see. The
values below an `Explanation` are documents of REST as they are: their docstrings describe them there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeVar

from queuectl.answers.origins import origin_of_request
from queuectl.answers.state import CommittedState
from queuectl.core.features.pods_ready import ClockName, readiness_rules, running_clock
from queuectl.core.model.policy import ClusterQueue, PreemptionPolicy
from queuectl.core.model.reasons import Code, Limit, Reason, named_in, redacted
from queuectl.core.model.resources import FlavorResource, format_amount
from queuectl.core.model.start_conditions import AFTER, BEGIN, MAX_RUNNING
from queuectl.core.model.workload import Attribution, ConfigKey, ObjectRef, Phase, StoredWorkload
from queuectl.core.quota.shares import dominant_share
from queuectl.core.quota.tree import limits
from queuectl.ports.reader import DecisionRow

AHEAD: Final = 3
"""How many of the workloads before it in the pending queue are named."""
MOST_AHEAD: Final = 1_000
"""Workloads ahead that are added up."""
MAX_HOLDERS: Final = 5
MAX_BORROWERS: Final = 5
_QUOTA: Final = frozenset({Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA, Code.MIN_RUN_TIME_PROTECTED})
_LACKS_QUOTA: Final = frozenset({Code.WAITING_FOR_QUOTA, Code.MIN_RUN_TIME_PROTECTED})
_OWN_DETAILS: Final = frozenset(
    (
        *("admittedAt", "arrival", "clusterQueue", "createdAt", "debt", "detail", "outcome", "podSets"),
        *("priority", "queue", "rebuiltFrom", "shape", "submitter"),
    )
)
"""The fields of a decision's payload that are about its own workload."""


def booked_on(one: Attribution | None) -> dict[str, str | None] | None:
    """Return user, submitter and account keys of an open attempt, by the names of their axes."""
    if one is None:
        return None
    return {"user": one.user, "submitter": one.submitter, **{key: value for key, value, _ in one.account}}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadName:
    """A workload. All three are null where the caller may not read it."""

    namespace: str | None
    kind: str | None
    name: str | None


Named = TypeVar("Named", bound=WorkloadName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What a caller may see by name; all else is counted, never named. All names of answers pass here."""

    namespaces: Container[str] = frozenset()
    """Whose workloads it may see."""
    cluster_queues: Container[str] = frozenset()
    cohorts: Container[str] = frozenset()

    def workload(self, named: Named) -> Named:
        if named.namespace is None or named.namespace in self.namespaces:
            return named
        return replace(named, namespace=None, kind=None, name=None)

    def cluster_queue(self, name: str) -> str | None:
        return name if name in self.cluster_queues else None

    def node(self, node: str) -> str | None:
        """`node`: such as `ClusterQueue/team-a`, or `Cohort/all`."""
        kind, _, name = node.partition("/")
        return node if name in (self.cluster_queues if kind == "ClusterQueue" else self.cohorts) else None

    def reason(self, reason: Reason) -> Reason:
        return redacted(reason, self.namespaces)

    def decision(self, row: DecisionRow, *, specs: bool = True) -> DecisionRow:
        """`specs`: the caller may read the policy, which decisions that are not about a workload have."""
        payload: dict[str, Any] = row.payload
        names = tuple(named_in(row.reason))
        if row.ref is not None and not (names and all(one in self.namespaces for one in names)):
            payload = {key: value for key, value in payload.items() if key in _OWN_DETAILS}
        elif row.ref is None and not specs:
            payload = {key: value for key, value in payload.items() if key not in ("spec", "author")}
        return replace(row, payload=payload, reason=row.reason and self.reason(row.reason))


def name_of(ref: ObjectRef) -> WorkloadName:
    return WorkloadName(namespace=ref.namespace, kind=ref.kind, name=ref.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(WorkloadName):
    """A workload that holds quota that a pending workload lacks. Its names are as those of a WorkloadName."""

    amount: int
    """In base units: thousandths of a cpu, bytes of memory, devices, pods."""
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadSize:
    """The workloads that come before it in its pending queue."""

    workloads: int
    requests: dict[str, int]
    """Of the nearest 1,000 together. In base units: thousandths of a cpu, bytes of memory, devices, pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingLimit:
    """A limit of quota that leaves less than the workload requests."""

    flavor: str
    resource: str
    node: str
    """Such as ClusterQueue/team-a, or Cohort/all."""
    limit: Limit
    """The field of its policy."""
    requested: int
    """In base units: thousandths of a cpu, bytes of memory, devices, pods."""
    available: int
    """What the limit leaves; negative where more is used. In the same units."""
    short_by: int
    """What has to become free below that node, or be added there. In the same units."""
    ever: bool
    """Whether it would leave enough if nothing were used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrower:
    """A ClusterQueue that uses more than its nominal quota."""

    cluster_queue: str | None
    """Null where the caller may not read it."""
    amount: int
    """Beyond its nominal quota. In base units: thousandths of a cpu, bytes of memory, devices, pods."""
    share: int | None
    """Dominant share in thousandths; null without fair sharing, and with weight 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """What others have borrowed of the quota of the workload's ClusterQueue."""

    amount: int
    """Unused nominal quota that the queue cannot have now. In base units: thousandths of a cpu, bytes of
    memory, devices, pods."""
    reclaims: bool
    """Whether the queue preempts workloads of others to get it back."""
    share: int | None
    """Dominant share of the queue, as of the borrowers."""
    borrowers: tuple[Borrower, ...]
    """In its cohort tree, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """By when the pods of an admitted workload must be ready: it is evicted else."""

    clock: ClockName
    """What they must reach: all bound to nodes (Scheduling), all ready after that (Startup), all ready again
    (Recovery), or all ready after the start (PodsReady)."""
    since: datetime
    until: datetime
    """A status that shows a later start than the admission extends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a committed state tells of one workload beside its own fields."""

    reason: Reason | None
    """Its reason with the numbers of the state."""
    position: int | None
    """From 1, in its ClusterQueue; None outside the pending queue."""
    line: int | None
    """Length of the pending queue that it is in."""
    ahead: tuple[WorkloadName, ...]
    """The nearest workloads before it there, the nearest last."""
    ahead_size: AheadSize | None
    limits: tuple[BindingLimit, ...]
    """For each flavor that the reason names, the nearest node first."""
    holders: tuple[Holder, ...]
    """The largest first, at most MAX_HOLDERS."""
    more_holders: int
    lent: Lent | None
    help: str | None
    """One sentence on what would let it run."""
    readiness: Readiness | None
    pods_missing: str | None
    """Which pods of a group that runs do not exist; None: none is known to."""

    def namespaces(self) -> set[str]:
        """Of all workloads that it names."""
        names = (one.namespace for one in (*self.ahead, *self.holders))
        return {*(one for one in names if one is not None), *named_in(self.reason)}

    def cluster_queues(self) -> set[str]:
        """All that it names as borrowers."""
        borrowers = self.lent.borrowers if self.lent else ()
        return {one.cluster_queue for one in borrowers if one.cluster_queue is not None}

    def to(self, caller: Visibility) -> Explanation:
        """With the names that the caller may see."""
        lent = self.lent and replace(
            self.lent,
            borrowers=tuple(
                replace(one, cluster_queue=one.cluster_queue and caller.cluster_queue(one.cluster_queue))
                for one in self.lent.borrowers
            ),
        )
        return replace(
            self,
            reason=self.reason and caller.reason(self.reason),
            ahead=tuple(map(caller.workload, self.ahead)),
            holders=tuple(map(caller.workload, self.holders)),
            lent=lent,
        )


def explain(workload: StoredWorkload, state: CommittedState) -> Explanation:
    """With all names."""
    reason = workload.reason and as_of(workload.reason, state)
    position = state.position(workload)
    queue = state.queues.get(workload.cluster_queue or "")
    not_covered = reason is not None and reason.code is Code.RESOURCE_NOT_COVERED
    added_by = origin_of_request(workload, state.specs) if not_covered else None
    holders = _holders(workload, state)
    return Explanation(
        reason=reason,
        position=position,
        line=len(queue.workloads.order) if queue and position else None,
        ahead=tuple(name_of(one.ref) for one in state.ahead(workload, AHEAD)),
        ahead_size=_ahead_size(workload, position, state) if position else None,
        limits=tuple(binding(workload, state)),
        holders=holders[:MAX_HOLDERS],
        more_holders=len(holders[MAX_HOLDERS:]),
        lent=_lent(workload, state),
        help=advice(workload.phase, reason, added_by),
        readiness=_readiness(workload, state),
        pods_missing=_pods_missing(workload, state),
    )


def as_of(value: Reason, state: CommittedState) -> Reason:
    """The reason with the numbers of `state`: the ledger has those of the last change of code or limit.

    Unchanged where the missing quota is available by now: then the workload is about to be evaluated, or that
    quota is reserved for others.
    """
    others = tuple(as_of(other, state) for other in value.others)
    available = _available(value, state)
    if available is not None and value.requested is not None and value.requested > available:
        short = value.requested - available
        return replace(value, available=max(0, available), short_by=short, reserved=False, others=others)
    return replace(value, others=others) if others else value


def _available(value: Reason, state: CommittedState) -> int | None:
    """Of the missing quota where a ClusterQueue's nominal quota binds, in base units; may be negative."""
    kind, _, name = (value.node or "").partition("/")
    queue = state.queues.get(name) if kind == "ClusterQueue" else None
    if queue is None or value.limit is not Limit.NOMINAL_QUOTA or not value.flavor or not value.resource:
        return None
    cell = FlavorResource(value.flavor, value.resource)
    if value.code is Code.EXCEEDS_MAX_QUOTA:
        return queue.nominal.get(cell, 0)
    return queue.nominal.get(cell, 0) - queue.used.get(cell, 0) if value.code in _LACKS_QUOTA else None


# --- the pending queue


def _ahead_size(workload: StoredWorkload, position: int, state: CommittedState) -> AheadSize:
    first = max(0, position - 1 - MOST_AHEAD)
    requests: dict[str, int] = {}
    for _, one in islice(state.line(workload.cluster_queue or "", first), position - 1 - first):
        for pods in one.pod_sets:
            for resource, amount in pods.requests:
                requests[resource] = requests.get(resource, 0) + amount * pods.count
    return AheadSize(workloads=position - 1, requests=requests)


# --- quota: what binds, who holds it, who borrows it


def binding(workload: StoredWorkload, state: CommittedState) -> Iterator[BindingLimit]:
    """Every limit that binds for a pending workload (docs/answers.md, A18)."""
    reason, name = workload.reason, workload.cluster_queue
    if workload.phase is not Phase.PENDING or reason is None or name is None or name not in state.queues:
        return
    known: set[tuple[FlavorResource, int]] = set()
    for finding in (reason, *reason.others):
        requested = finding.requested
        if finding.code not in _QUOTA or not finding.flavor or not finding.resource or requested is None:
            continue
        cell = FlavorResource(finding.flavor, finding.resource)
        if (cell, requested) not in known:
            known.add((cell, requested))
            yield from _of_cell(cell, requested, name, state)


def _of_cell(
    cell: FlavorResource, requested: int, name: str, state: CommittedState
) -> Iterator[BindingLimit]:
    tree = state.tree_of(name)
    node, number = tree.queue(name), tree.cell(cell)
    whole = {(left.limit, left.at): left.available for left in limits(node, number, empty=True)}
    for available, limit, at in limits(node, number):
        if available < requested:
            reduced = limit is Limit.NOMINAL_QUOTA and number in tree.reduced.get(at, ())
            yield BindingLimit(
                flavor=cell.flavor,
                resource=cell.resource,
                node=str(at),
                limit=Limit.CAPACITY_SHORTAGE if reduced else limit,
                requested=requested,
                available=available,
                short_by=requested - available,
                ever=requested <= whole[limit, at],
            )


def _holders(workload: StoredWorkload, state: CommittedState) -> tuple[Holder, ...]:
    """The holders of the missing cell, at or below the node that binds; largest first.

    For a workload that preempts: the victims that still hold the cell, anywhere in its tree.
    """
    why = workload.reason
    if workload.phase is not Phase.PENDING or why is None or why.flavor is None or why.resource is None:
        return ()
    if why.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS:
        queues = state.in_tree_of(workload.cluster_queue or "")
        preemptor = str(workload.ref)
    elif why.code in _LACKS_QUOTA and why.node is not None:
        queues, preemptor = state.below(why.node), None
    else:
        return ()
    cell = FlavorResource(why.flavor, why.resource)
    held = [
        (attempt.assignment.usage().get(cell, 0), attempt.admitted_at, holder.ref)
        for queue in queues
        if cell in queue.used
        for holder in queue.holders
        if (attempt := holder.attempt) is not None and (preemptor is None or _leaves_for(holder, preemptor))
    ]
    held.sort(key=lambda one: (-one[0], one[1], one[2]))
    return tuple(
        Holder(namespace=ref.namespace, kind=ref.kind, name=ref.name, amount=amount, since=since)
        for amount, since, ref in held
        if amount > 0
    )


def _leaves_for(holder: StoredWorkload, preemptor: str) -> bool:
    return (
        holder.phase is Phase.EVICTING
        and holder.reason is not None
        and holder.reason.code is Code.PREEMPTED
        and holder.reason.by == preemptor
    )


def _lent(workload: StoredWorkload, state: CommittedState) -> Lent | None:
    """None if no quota that the workload lacks is lent."""
    why, queue = workload.reason, state.queues.get(workload.cluster_queue or "")
    if workload.phase is not Phase.PENDING or why is None or why.code is not Code.WAITING_FOR_QUOTA:
        return None
    if queue is None or queue.queue is None or why.flavor is None or why.resource is None:
        return None
    cell = FlavorResource(why.flavor, why.resource)
    own = queue.nominal.get(cell, 0) - queue.used.get(cell, 0)
    amount = own - state.available_quota(queue).get(cell, 0)
    if amount <= 0:
        return None
    tree = state.tree_of(queue.name)
    fair = tree.shares_fairly(tree.queue(queue.name))

    def share(name: str) -> int | None:
        return dominant_share(tree, tree.queue(name)).reported if fair else None

    beyond = [
        (one.used.get(cell, 0) - one.nominal.get(cell, 0), one.name)
        for one in state.in_tree_of(queue.name)
        if one.name != queue.name
    ]
    borrowers = sorted((pair for pair in beyond if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))
    return Lent(
        amount=amount,
        reclaims=queue.queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER,
        share=share(queue.name),
        borrowers=tuple(
            Borrower(cluster_queue=name, amount=amount, share=share(name))
            for amount, name in borrowers[:MAX_BORROWERS]
        ),
    )


# --- the clock of an admitted workload


def _readiness(workload: StoredWorkload, state: CommittedState) -> Readiness | None:
    """None: its pods are ready, its status does not say, or there is no limit.

    It counts from the admission: the start time in the status of the object may be later.
    """
    attempt, ready = workload.attempt, state.ready(workload)
    if workload.phase is not Phase.ADMITTED or attempt is None:
        return None
    if ready is None or ready >= attempt.assignment.pods - workload.past.held_back:
        return None
    queue = state.policies.get(ConfigKey("ClusterQueue", "", attempt.assignment.cluster_queue))
    rules = readiness_rules(state.configuration, queue if isinstance(queue, ClusterQueue) else None)
    clock = running_clock(rules, attempt, workload.past, None)
    return clock and Readiness(clock=clock.name, since=clock.since, until=clock.until)


def _pods_missing(workload: StoredWorkload, state: CommittedState) -> str | None:
    pods = state.pods_of(workload) if workload.phase is Phase.ADMITTED else None
    return (pods and pods.missing) or None


# --- what would let it run

_ON_HOLD: Final = "`queuectl release` lets it queue again: it removes the annotation queuectl.dev/hold."
_STOPPED: Final = "Its queue is stopped: it is evaluated again when stopPolicy is None (`queuectl resume`)."
_BY_CODE: Final = {
    Code.NO_MATCHING_FLAVOR: "Waiting will not help: change its node selector, affinity or tolerations so "
    "that a flavor of its queue matches, or ask the admin for a flavor that does.",
    Code.NO_NODE_CAN_FIT: "Waiting will not help, nor will more nodes like these: no node of the flavor can "
    "hold one of its pods, even an empty one. Change what the reason names: the size of the pods, their "
    "selectors or tolerations, or, as an admin, the nodes or the tolerations of the ResourceFlavor.",
    Code.QUEUE_NOT_FOUND: "Waiting will not help: label it with a LocalQueue of its own namespace "
    "(`queuectl get localqueues`), or have that queue created.",
    Code.NAMESPACE_NOT_ALLOWED: "Waiting will not help: the ClusterQueue's namespaceSelector does not select "
    "its namespace; use another queue or ask the admin.",
    Code.QUANTITY_OUT_OF_RANGE: "Waiting will not help: correct the quantity and create it again.",
    Code.NEGATIVE_REQUEST: "Waiting will not help: correct the request and create it again.",
    Code.PRIORITY_NOT_FOUND: "Waiting will not help: name a priority class that exists, or have it created.",
    Code.PENDING_EVALUATION: "Nothing to do: it has not been evaluated yet.",
    Code.WAITING_FOR_HEAD: "It runs after the workloads before it: this queue is StrictFIFO, so its head "
    "blocks the others.",
    Code.WAITING_FOR_PREEMPTED_WORKLOADS: "Nothing to do: the workloads preempted for it are terminating. "
    "It starts earlier if other quota that becomes available suffices.",
    Code.WAITING_FOR_RESOURCE_QUOTA: "It is evaluated again when pods of its namespace end, or when the "
    "ResourceQuota is raised; the reason names it.",
    Code.OUTSIDE_USAGE_LIMIT: "Waiting will not help: a UsageLimit never allows what it requests; the reason "
    "says for whom. Change the request, use another queue, or have the limit changed.",
    Code.WAITING_FOR_USAGE_LIMIT: "It is evaluated again when workloads that count under the same UsageLimit "
    "end, or when the limit is raised; the reason says for whom it counts.",
    Code.WAITING_FOR_DEPENDENCY: "It is evaluated again when the workload that the reason names ends, or is "
    f"created. Correct or remove its annotation {AFTER} if that is not to come.",
    Code.DEPENDENCY_NEVER_SATISFIED: "Waiting will not help: correct or remove its annotation "
    f"{AFTER}, create the workload that the reason names again, or cancel this one.",
    Code.WAITING_FOR_BEGIN_TIME: f"Nothing to do: it is queued at that time. Its annotation {BEGIN} says so.",
    Code.WAITING_FOR_ARRAY: "It is queued when others of its array end, or when their annotation "
    f"{MAX_RUNNING} is raised.",
    Code.BUDGET_NEEDS_LIMIT: "A Safe Budget reserves the run time in advance: set the label "
    "queuectl.dev/max-exec-time-seconds.",
    Code.BUDGET_EXHAUSTED: "It is evaluated again when workloads of the same Budget end before their limits, "
    "when the Budget is raised, or at the time that the reason has. A shorter run time limit fits sooner.",
    Code.CAPACITY_MISSING: "It is evaluated again when pods on its nodes end, or when nodes are added or "
    "become ready.",
    Code.NO_NODE_FITS: "It is evaluated again when pods on its nodes end: enough is free in all, but not on "
    "single nodes. Smaller pods fit sooner.",
    Code.MIN_RUN_TIME_PROTECTED: "Nothing to do: it is evaluated again when those that hold its quota are no "
    "longer protected.",
    Code.BACKING_OFF: "Nothing to do: it is evaluated again after its pause; an edit of its spec ends "
    "the pause.",
    Code.ON_HOLD: _ON_HOLD,
    Code.SUSPENDED: _STOPPED,
    Code.DEACTIVATED: "Waiting will not help: hold it and release it again (`queuectl hold`, then "
    "`queuectl release`) to let it queue; the reason says what else would.",
    Code.LEDGER_MISMATCH: "The ledger cannot store decisions about it or its cohort tree: the admin "
    "finds the cause in the controller's log.",
    Code.IDLE_DEVICES: "Waiting will not help: hold it and release it again (`queuectl hold`, then "
    "`queuectl release`) once it has work for its GPUs.",
    Code.IDLE_CANCELLED: "It is over: delete it, and create it anew once it has work for its GPUs.",
    Code.USER_HOLD: _ON_HOLD,
    Code.CLUSTER_QUEUE_STOPPED: _STOPPED,
    Code.LOCAL_QUEUE_STOPPED: _STOPPED,
}


_NOT_YET: Final = (Code.WAITING_FOR_QUOTA, Code.CAPACITY_MISSING, Code.NO_NODE_FITS)


def advice(phase: Phase, reason: Reason | None, added_by: str | None = None) -> str | None:
    """None for a workload that needs none. `added_by`: what adds the request that the reason names."""
    if phase is Phase.ADMITTED and reason is not None:
        return "Name a priority class that exists (`queuectl priority`), or have it created."
    if phase is not Phase.PENDING or reason is None:
        return None
    text = _added(reason, added_by) if added_by is not None else _by_reason(reason)
    if text is not None and reason.until is not None and reason.code in _NOT_YET:
        text += " At the time in its reason it is evaluated again in any case."
    return text


def _added(reason: Reason, added_by: str) -> str:
    return (
        f"Waiting will not help: {added_by} adds {reason.resource}, which its queue does not cover. Ask the "
        "admin to cover it, to name it in scheduling.resources.excludeResourcePrefixes, to set uncovered: "
        "Ignore there, or to change that."
    )


def _by_reason(reason: Reason) -> str | None:
    match reason.code:
        case Code.WAITING_FOR_QUOTA:
            return _quota(reason)
        case Code.EXCEEDS_MAX_QUOTA:
            return _too_large(reason)
        case Code.EXCEEDS_RESOURCE_QUOTA:
            return (
                f"Waiting will not help: its namespace's {reason.node} can never hold its pods. "
                "Request less, or ask the admin to raise it."
            )
        case Code.MISCONFIGURED:
            return _misconfigured(reason)
        case Code.RESOURCE_NOT_COVERED:
            if reason.resource is None:
                return "Waiting will not help: leave out what the reason names, and create it again."
            what = f"{reason.resource} is not covered by its queue"
            return f"Waiting will not help: {what}; leave it out or ask the admin."
        case Code.PENDING_EVALUATION if reason.detail is not None:
            return "It is evaluated once all that it consists of exists; the reason says what does not yet."
        case Code.WAITING_FOR_HEAD if reason.detail is not None:
            return (
                "Waiting will not help: the head of this StrictFIFO queue can never run, and blocks the "
                "others. Ask its user to change or delete it, or an admin to change the queue's quota, "
                "queueingStrategy or headCanNeverRun, or take this one to another queue (`queuectl move`)."
            )
        case code:
            return _BY_CODE.get(code)


def _misconfigured(reason: Reason) -> str:
    if reason.node is None:
        return "Waiting will not help: correct what the reason names, in the workload or in the cluster."
    if reason.node.startswith(("LimitRange/", "ResourceQuota/")):
        return (
            f"Waiting will not help: the API server would refuse its pods. Correct what the reason names, or "
            f"ask the admin to change {reason.node}."
        )
    if (reason.detail or "").startswith("it is restricted"):  # G5
        return f"It runs without {reason.node}, or once the admin installs the gate again (manifests/gate)."
    return (
        "Waiting will not help: its queue admits nothing until the admin corrects it; "
        "`queuectl get clusterqueues` says what is wrong."
    )


def _quota(reason: Reason) -> str:
    if reason.resource is None or reason.short_by is None:
        return "It runs when enough quota is available."
    short = f"{format_amount(reason.resource, reason.short_by)} {reason.resource}"
    where = f" of flavor {reason.flavor}" if reason.flavor else ""
    at = f" at {reason.node}" if reason.node else ""
    more = f"{short}{where} more are available{at}"
    return f"It runs when {more}; a smaller request or more quota helps at once."


def _too_large(reason: Reason) -> str:
    if reason.limit is Limit.CAPACITY_SHORTAGE:
        return (
            "It can run when nodes return: until then its cohort tree shares out what nodes have. A smaller "
            "request may run at once."
        )
    text = "Waiting will not help: it requests more than its queue can ever provide. "
    if reason.resource is None or reason.requested is None or reason.short_by is None:
        return text + "Request less, or ask the admin for more quota."
    most = format_amount(reason.resource, max(0, reason.requested - reason.short_by))
    short = format_amount(reason.resource, reason.short_by)
    field = f"{reason.limit} of {reason.node}" if reason.limit and reason.node else "the quota"
    if reason.limit is Limit.NOMINAL_QUOTA and (reason.node or "").startswith("Cohort/"):
        # It is the sum of what is below: the cohort itself may have none.
        field = f"the quota in {reason.node}"
    return f"{text}Request at most {most} {reason.resource} in all, or have {field} raised by {short}."
