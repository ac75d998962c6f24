"""Short builders of documents of REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from queuectl.screen.facts import Answers, ScreenFacts, facts
from queuectl.screen.frame import Picture

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GPU = "nvidia.com/gpu"
Document = dict[str, Any]


def page(items: Sequence[Document] = (), *, sequence: int = 7, more: bool = False, **also: Any) -> Document:
    found = {"items": list(items), "next": "on" if more else None, "sequence": sequence, "ageSeconds": 0.2}
    return {**found, **also}


def cell(used: int, nominal: int, *, flavor: str = "a100", resource: str = GPU) -> Document:
    free = max(0, nominal - used)
    return {"flavor": flavor, "resource": resource, "nominal": nominal, "used": used, "free": free}


def queue(name: str, *cells: Document, cohort: str | None = None, **also: Any) -> Document:
    found = {
        "name": name,
        "cohort": cohort,
        "active": True,
        "condition": {"reason": "Ready", "message": "Can admit new workloads"},
        "stopPolicy": "None",
        "queueingStrategy": "BestEffortFIFO",
        "pending": 0,
        "admitted": 0,
        "flavors": list(cells),
    }
    return {**found, **also}


def reason(**also: Any) -> Document:
    found = {
        "code": "WaitingForQuota",
        "family": "not yet",
        "message": "WaitingForQuota: requests 4 nvidia.com/gpu in flavor a100, 1 available, short by 3 "
        "(bound by nominalQuota of ClusterQueue/team-a)",
        "flavor": "a100",
        "resource": GPU,
        "requested": 4,
        "available": 1,
        "shortBy": 3,
        "limit": "nominalQuota",
        "node": "ClusterQueue/team-a",
        "cause": None,
        "by": None,
        "detail": None,
        "others": [],
        "victims": [],
    }
    return {**found, **also}


def waiting(name: str, position: int | None = 1, queue: str = "team-a", **also: Any) -> Document:
    found = {
        "namespace": "team-a",
        "kind": "Job",
        "name": name,
        "queue": "main",
        "clusterQueue": queue,
        "phase": "Pending",
        "priority": 100,
        "position": position,
        "createdAt": "2026-01-02T03:02:05Z",
        "submitter": "tenant",
        "attempts": 0,
        "attempt": None,
        "admittedAt": None,
        "reason": reason(),
        "admission": None,
        "holders": [],
        "help": None,
        "line": 4,
    }
    return {**found, **also}


def running(name: str, gpus: int = 4, queue: str = "team-a", **also: Any) -> Document:
    requests, flavors = {"cpu": 2000, GPU: gpus}, {"cpu": "a100", GPU: "a100"}
    pods = {"name": "main", "count": 2, "requests": requests, "flavors": flavors}
    found = {
        "phase": "Admitted",
        "reason": None,
        "attempt": 1,
        "admittedAt": "2026-01-02T03:03:05Z",
        "pods": 2,
        "podsReady": 1,
        "admission": {"clusterQueue": queue, "podSets": [pods]},
    }
    return {**waiting(name, None, queue), **found, **also}


def decision(sequence: int, verdict: str = "Admitted", **also: Any) -> Document:
    found = {
        "sequence": sequence,
        "time": "2026-01-02T03:03:05Z",
        "verdict": verdict,
        "namespace": "team-a",
        "kind": "Job",
        "name": "train",
        "attempt": 1,
        "reason": None,
        "details": {"clusterQueue": "team-a"},
    }
    return {**found, **also}


def capacity(flavor: str, free: int = 2) -> Document:
    """8 GPUs on ready nodes; one is used by a pod that belongs to no workload."""
    gpus = {
        "resource": "nvidia.com/gpu",
        "allocatable": {"Ready": 8, "Cordoned": 4},
        "free": free,
        "unmanaged": 1,
    }
    cpu = {"resource": "cpu", "allocatable": {"Ready": 64_000}, "free": 64_000, "unmanaged": 0}
    return {"flavor": flavor, "resources": [cpu, gpus]}


def answers(
    queues: Sequence[Document] = (),
    admitted: Sequence[Document] = (),
    pending: Sequence[Document] = (),
    decisions: Sequence[Document] | None = (),
    **of_queues: Any,
) -> Answers:
    return Answers(
        queues=page(queues, **of_queues),
        admitted=page(admitted),
        evicting=page(),
        pending=page(pending),
        decisions=None if decisions is None else page(decisions),
    )


def busy() -> Answers:
    """Two queues of one cohort, one of them over its quota; three run, two wait."""
    return answers(
        [
            queue("team-a", cell(8, 8), cell(2, 4, flavor="spot"), cohort="research", pending=2, admitted=2),
            queue("team-b", cell(10, 8), cohort="research", admitted=1),
        ],
        [running("train"), running("sweep", 1), running("tokenize", 5, "team-b")],
        [
            waiting("ablation", 2),
            waiting("too-large", 1, reason=reason(code="ExceedsMaxQuota", family="never", shortBy=8)),
        ],
        [decision(number) for number in range(1, 8)],
    )


def picture(found: Answers | ScreenFacts | None, **also: Any) -> Picture:
    known = facts(found) if isinstance(found, Answers) else found
    values: Mapping[str, Any] = {"server": "http://127.0.0.1:8080", "now": NOW, **also}
    return Picture(facts=known, **values)
