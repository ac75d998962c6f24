"""Short builders of plans, decisions and workloads."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from queuectl.core.decisions import (
    Admit,
    Amend,
    Configure,
    Decision,
    Enqueue,
    Evict,
    Keep,
    Plan,
    Release,
    Retire,
    Shrink,
)
from queuectl.core.model.policy import Toleration
from queuectl.core.model.reasons import Code, Limit, PreemptionCause, Reason
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    ObjectRef,
    PastAttempts,
    PodSet,
    PodSetAssignment,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)

GPU = "nvidia.com/gpu"
CREATED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

WAITING = Reason(
    code=Code.WAITING_FOR_QUOTA,
    flavor="a100",
    resource=GPU,
    requested=8,
    available=3,
    short_by=5,
    reserved=True,
    awaited=2,
    limit=Limit.NOMINAL_QUOTA,
    node="ClusterQueue/team-a",
    others=(Reason(code=Code.NO_MATCHING_FLAVOR, flavor="spot", detail="taint x is not tolerated"),),
)
PREEMPTED = Reason(
    code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE, by="ns/Job/urgent", detail="priority 5 > 0"
)


BACKING_OFF = PastAttempts(
    run_ms=12_345,
    failures=2,
    bound_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    unready_at=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
    missed=("on-demand", "spot"),
    missed_at=datetime(2026, 1, 2, 3, 4, 7, tzinfo=UTC),
    ordered_from=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    barred=Reason(
        code=Code.BACKING_OFF,
        until=datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC),
        detail="its pods were not all ready",
    ),
    until=datetime(2026, 1, 2, 4, 4, 5, 678, tzinfo=UTC),
    ready=1,
)


def ref(name: str) -> ObjectRef:
    return ObjectRef("ns", "Job", name, f"uid-{name}")


def wid(name: str) -> WorkloadId:
    return WorkloadId(f"uid-{name}")


def workload(name: str, **fields: object) -> Workload:
    given: dict[str, object] = {
        "id": wid(name),
        "ref": ref(name),
        "queue": "lq",
        "created_at": CREATED,
        "pod_sets": (PodSet(name="main", count=2, requests=(("cpu", 1500), (GPU, 4))),),
        "submitter": "alice",
        "labels": (("team", "a"),),
    }
    return Workload(**(given | fields))  # type: ignore[arg-type]


def enqueue(
    name: str,
    *,
    queue: str | None = "team-a",
    priority: int = 0,
    arrival: int = 1,
    past: PastAttempts = NO_PAST_ATTEMPTS,
) -> Enqueue:
    return Enqueue(workload(name), queue, priority, arrival, past)


def pod_sets(gpus: int = 4, workers: int = 2) -> tuple[PodSetAssignment, ...]:
    return (
        PodSetAssignment(
            name="driver",
            count=1,
            requests=(("cpu", 500),),
            flavors=(("cpu", "a100"),),
            node_selector=(("disk", "ssd"), ("zone", "b")),
            tolerations=(
                Toleration(key="x", operator="Exists", effect="NoExecute", seconds=30),
                Toleration(),
            ),
        ),
        PodSetAssignment(
            name="worker",
            count=workers,
            requests=(("cpu", 1500), (GPU, gpus)),
            flavors=(("cpu", "a100"), (GPU, "a100")),
        ),
    )


def attempt(name: str, number: int = 1, *, now: datetime, gpus: int = 4, debt: bool = False) -> Attempt:
    return Attempt(
        workload=wid(name),
        number=number,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue="team-a", pod_sets=pod_sets(gpus)),
        admitted_at=now,
        debt=debt,
    )


def admit(name: str, number: int = 1, *, now: datetime, gpus: int = 4, debt: bool = False) -> Admit:
    detail = "it was found running" if debt else None
    return Admit(attempt(name, number, now=now, gpus=gpus, debt=debt), ref(name), detail)


def keep(name: str, reason: Reason = WAITING, *, recorded: bool = True) -> Keep:
    return Keep(wid(name), ref(name), reason, recorded)


def amend(
    name: str,
    number: int = 1,
    priority: int = 7,
    past: PastAttempts = NO_PAST_ATTEMPTS,
    reason: Reason | None = None,
) -> Amend:
    return Amend(wid(name), ref(name), number, priority, past, reason)


def shrink(name: str, number: int = 1, *, workers: int, gpus: int = 4) -> Shrink:
    driver, worker = pod_sets(gpus, workers)
    worker = replace(worker, ended=("0f3c2b1a-77aa", "2b1a77aa-0f3c"))
    return Shrink(wid(name), ref(name), number, Assignment(cluster_queue="team-a", pod_sets=(driver, worker)))


def evict(name: str, number: int = 1, reason: Reason = PREEMPTED, past: PastAttempts | None = None) -> Evict:
    return Evict(wid(name), ref(name), number, reason, wid("urgent"), past)


def release(name: str, number: int = 1, past: PastAttempts | None = None) -> Release:
    return Release(wid(name), ref(name), number, "nothing of it is alive", past)


def retire(
    name: str, number: int | None = None, outcome: WorkloadOutcome = WorkloadOutcome.SUCCEEDED
) -> Retire:
    return Retire(wid(name), ref(name), number, outcome)


def configure(
    name: str,
    nominal: int | None,
    *,
    kind: str = "ClusterQueue",
    cohort: str | None = None,
    lends: int | None = None,
) -> Configure:
    """A ClusterQueue with `nominal` GPUs and plenty of cpu in flavor a100; None: deleted."""
    key = ConfigKey(kind, "", name)
    if nominal is None:
        return Configure(key, None)
    gpus: dict[str, object] = {"name": GPU, "nominalQuota": nominal}
    if lends is not None:
        gpus["lendingLimit"] = lends
    quotas = [{"name": "cpu", "nominalQuota": "1000000000"}, gpus]
    group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": "a100", "resources": quotas}]}
    spec = json.dumps({"resourceGroups": [group], **({"cohortName": cohort} if cohort else {})})
    return Configure(key, spec)


def plan(*decisions: Decision, now: datetime, cycle: int = 1) -> Plan:
    return Plan(version=1, cycle=cycle, now=now, decisions=decisions)


def month_before(today: datetime, count: int) -> datetime:
    """Return the begin of the month so many months before today's, in UTC."""
    year, month = divmod(today.year * 12 + today.month - 1 - count, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)
