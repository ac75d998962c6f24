"""What became of the workloads of a document, and why: shown for those that a difference is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.model.reasons import Reason, RejectedCandidate
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import Assignment, PodSetAssignment
from queuectl.scenarios.comparison import Difference

_NOT_EVALUATED: Final = "not evaluated: each cycle takes at most the head of its ClusterQueue"


class WorkloadState(StrEnum):
    PENDING = "pending"
    ADMITTED = "admitted"
    EVICTED = "evicted"
    HOLDING = "holding"
    """It held quota at the start, and no decision was made on it."""


class Finding(NamedTuple):
    """What became of one workload."""

    workload: str
    """NAMESPACE/NAME."""
    state: WorkloadState
    text: str
    """The reason with its numbers, or what was decided."""
    behind: tuple[str, ...] = ()
    """The findings behind it: other flavors that were tried, candidates that were not preempted."""
    step: str = ""
    """The step after which this held, as `steps[1]`; empty: at the end."""

    def lines(self) -> Iterator[str]:
        at = f"{self.step}." if self.step else ""
        yield f"  {at}{self.workload}: {self.text}"
        yield from (f"    {text}" for text in self.behind)


def pending(workload: str, reason: Reason | None) -> Finding:
    """`reason`: None if no cycle has evaluated it."""
    if reason is None:
        return Finding(workload, WorkloadState.PENDING, _NOT_EVALUATED)
    return Finding(workload, WorkloadState.PENDING, reason.message, tuple(_behind(reason)))


def evicted(workload: str, reason: Reason) -> Finding:
    return Finding(workload, WorkloadState.EVICTED, reason.message, tuple(_behind(reason)))


def holding(workload: str, cluster_queue: str) -> Finding:
    text = f"holds quota of ClusterQueue {cluster_queue} since the start"
    return Finding(workload, WorkloadState.HOLDING, text)


def admitted(workload: str, assignment: Assignment) -> Finding:
    held = "; ".join(map(_held, assignment.pod_sets))
    text = f"admitted to ClusterQueue {assignment.cluster_queue}: {held}"
    return Finding(workload, WorkloadState.ADMITTED, text)


def _held(pods: PodSetAssignment) -> str:
    flavors = dict(pods.flavors)
    each = (f"{format_amount(name, amount)} {name} of {flavors[name]}" for name, amount in pods.requests)
    return f"{pods.name}: {pods.count} x ({', '.join(each)})"


def rejected(candidates: Iterable[RejectedCandidate]) -> Iterator[str]:
    """A line for each candidate that was not preempted."""
    return (f"not preempted: {one.who}: {one.why}" for one in candidates)


def _behind(reason: Reason) -> Iterator[str]:
    yield from rejected(reason.victims)
    for other in reason.others:
        yield f"also tried: {other.message}"
        yield from rejected(other.victims)


def concerned(differences: Sequence[Difference], findings: Mapping[str, Finding]) -> tuple[Finding, ...]:
    """The findings on workloads that the differences name.

    A victim that differs depends on what preempts or waits, so then all pending workloads are included.
    """
    named = "\n".join(f"{one.path} {one.expected} {one.observed}" for one in differences)
    victims = any(re.match(r"(steps\[\d+\]\.)?preempted\.", one.path) for one in differences)
    return tuple(
        finding
        for workload, finding in findings.items()
        if re.search(rf"(?<![\w-]){re.escape(workload)}(?![\w-])", named)
        or (victims and finding.state is WorkloadState.PENDING)
    )
