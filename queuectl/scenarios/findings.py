"""Differences between expected and actual decisions, and what became of the workloads that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from queuectl.core.model.reasons import Reason, RejectedCandidate
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import Assignment, PodSetAssignment
from queuectl.scenarios.documents import Expect
from queuectl.scenarios.fields import ScenarioPart

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


_ASKED_FOR: Final = {"reasons": None, "skipped_preemptions": 0}
"""Fields in which only expected workloads are compared, with the value for a missing one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not as expected. None: no value."""

    path: str
    """Such as `admitted.team-a/train.podSets.main.flavors.cpu`."""
    expected: str | None
    observed: str | None

    def lines(self) -> list[str]:
        """As in a diff: the expected value with a minus, the actual one with a plus."""
        told = [("-", self.expected)] if self.expected is not None else []
        told += [("+", self.observed)] if self.observed is not None else []
        return [f"{sign} {self.path}: {value}" for sign, value in told]


def differences(expected: ScenarioPart, observed: ScenarioPart, path: str = "") -> list[Difference]:
    """Sorted by path."""
    found: list[Difference] = []
    ours = _sets(observed)
    for name, value in _sets(expected).items():
        given = ours.get(name, {})
        if name in _ASKED_FOR:
            given = {key: given.get(key, _ASKED_FOR[name]) for key in value}
        field = type(expected).model_fields.get(name)
        found += _between(value, given, f"{path}{field.alias if field else name}")
    return sorted(found, key=lambda one: one.path)


def _sets(part: ScenarioPart) -> dict[str, Any]:
    """Its fields that are set; lists as sets."""
    found = {name: getattr(part, name) for name in part.model_fields_set}
    found = {name: value for name, value in found.items() if value is not None}
    if isinstance(part, Expect) and ("pending" in found or "inadmissible" in found):
        # Which pending workloads are inadmissible differs from the reference: compare both together.
        found["pending"] = _united(found.get("pending") or {}, found.pop("inadmissible", None) or {})
    return {name: _keyed(value) for name, value in found.items()}


def _united(*waiting: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = {}
    for part in waiting:
        for queue, workloads in part.items():
            if workloads:
                names.setdefault(queue, {}).update(dict.fromkeys(workloads, "waits"))
    return names


def _keyed(value: Any) -> Any:
    if isinstance(value, tuple):
        return {getattr(one, "workload", one): one for one in value}
    return value


def _between(expected: Any, observed: Any, path: str) -> Iterator[Difference]:
    if isinstance(expected, Mapping) and isinstance(observed, Mapping):
        for key in expected.keys() | observed.keys():
            inner = f"{path}.{key}"
            if key in expected and key in observed:
                yield from _between(expected[key], observed[key], inner)
            else:
                yield Difference(inner, _shown(expected.get(key), key), _shown(observed.get(key), key))
    elif isinstance(expected, BaseModel) and isinstance(observed, BaseModel):
        for name in expected.model_fields_set:
            alias = type(expected).model_fields[name].alias
            wanted = getattr(expected, name)
            if wanted is not None:
                yield from _between(wanted, getattr(observed, name), f"{path}.{alias}")
    elif expected != observed:
        resource = path.rpartition("usage.")[2]
        yield Difference(path, _shown(expected, resource), _shown(observed, resource))


def _shown(value: Any, resource: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, BaseModel):
        return value.model_dump_json(by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return ", ".join(sorted(map(str, value))) or "nothing"
    return format_amount(resource, value) if isinstance(value, int) else str(value)
