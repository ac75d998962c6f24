"""The report of an observer: what would have happened, and how reality differs. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from queuectl.core.model.reasons import Reason
from queuectl.ledger.codec import Json, reason_to_json
from queuectl.shadow.workloads import Fate, ObservedWorkload

Nominal = Mapping[str, Mapping[str, int]]
"""Nominal quota of a ClusterQueue by resource, all flavors together, in base units."""


def summary(workloads: Sequence[ObservedWorkload], now: datetime, nominal: Nominal) -> Json:
    """As JSON values: times ISO 8601, durations in seconds, amounts in base units."""
    by_queue: dict[str, list[ObservedWorkload]] = defaultdict(list)
    for workload in workloads:
        by_queue[queue_of(workload)].append(workload)
    return {
        "total": _figures(workloads, now),
        "queues": [{"name": name, **_figures(own, now)} for name, own in sorted(by_queue.items())],
        "waits": _waits(workloads),
        "evictions": _evictions(workloads),
        "exceeded": [
            peak
            for peak in peaks(workloads, now, nominal)
            if peak["nominal"] is None or peak["peak"] > peak["nominal"]
        ],
    }


def queue_of(workload: ObservedWorkload) -> str:
    """Its ClusterQueue, or in brackets the LocalQueue without a ClusterQueue."""
    return workload.cluster_queue or f"({workload.ref.namespace}/{workload.queue})"


def _figures(workloads: Sequence[ObservedWorkload], now: datetime) -> Json:
    fates = Counter(workload.fate for workload in workloads)
    made_to_wait = [workload for workload in workloads if workload.fate in (Fate.WAITED, Fate.WAITING)]
    sooner = [late for workload in workloads if (late := workload.sooner(now)) is not None]
    return {
        "workloads": len(workloads),
        **{fate.value: fates[fate] for fate in Fate},
        "wait": _spread([workload.waited(now) for workload in made_to_wait]),
        "evicted": sum(bool(workload.evictions) for workload in workloads),
        "evictions": sum(len(workload.evictions) for workload in workloads),
        "ranAnyway": sum(workload.ran_anyway() for workload in workloads),
        "overBeforeItsTurn": sum(
            workload.fate is Fate.WAITING and workload.retired_at is not None for workload in workloads
        ),
        "startedSooner": {"workloads": len(sooner), **_spread(sooner)},
        "overBeforeSeen": sum(workload.late for workload in workloads),
    }


def _spread(durations: Iterable[timedelta]) -> Json:
    """Median, ninetieth percentile and maximum (nearest rank); None without values."""
    found = sorted(one.total_seconds() for one in durations)
    if not found:
        return {"p50": None, "p90": None, "max": None}
    ranks = {"p50": 50, "p90": 90, "max": 100}
    return {name: round(found[-(-len(found) * rank // 100) - 1], 3) for name, rank in ranks.items()}


def _waits(workloads: Sequence[ObservedWorkload]) -> list[Json]:
    """Reasons why workloads would have been pending, or never have run: most frequent first."""
    groups: dict[tuple[Any, ...], list[tuple[ObservedWorkload, Reason]]] = defaultdict(list)
    for workload in workloads:
        if workload.told_to_wait and workload.reason is not None:
            groups[queue_of(workload), *workload.reason.key].append((workload, workload.reason))
    found = []
    for (queue, *_), own in groups.items():
        worst = max(own, key=lambda pair: pair[1].short_by or 0)
        found.append(
            {
                "queue": queue,
                "reason": {**reason_to_json(worst[1]), "message": worst[1].message},
                "workloads": len(own),
                "ranAnyway": sum(workload.ran_anyway() for workload, _ in own),
                "example": str(worst[0].ref),
            }
        )
    return sorted(found, key=lambda one: (-int(str(one["workloads"])), str(one["queue"])))


def _evictions(workloads: Sequence[ObservedWorkload]) -> list[Json]:
    groups: dict[tuple[Any, ...], list[tuple[ObservedWorkload, Reason]]] = defaultdict(list)
    for workload in workloads:
        for reason in workload.evictions:
            groups[queue_of(workload), reason.code, reason.cause, reason.by].append((workload, reason))
    return [
        {
            "queue": queue,
            "reason": {**reason_to_json(own[0][1]), "message": own[0][1].message},
            "evictions": len(own),
            "by": own[0][1].by,
            "example": str(own[0][0].ref),
        }
        for (queue, *_), own in groups.items()
    ]


def peaks(workloads: Iterable[ObservedWorkload], now: datetime, nominal: Nominal) -> list[Json]:
    """The most of each covered resource that really ran at one time, per ClusterQueue, whatever was decided.

    `nominal` is None where no ClusterQueue of this name has quota for it.
    """
    changes: dict[tuple[str, str], list[tuple[datetime, int]]] = defaultdict(list)
    for workload in workloads:
        start, queue = workload.real_start, workload.cluster_queue
        if start is None or queue is None:
            continue
        end = workload.ended_at or workload.retired_at or now
        for resource, amount in workload.requests.items():
            if amount > 0 and resource in nominal.get(queue, {resource: 0}):
                changes[queue, resource] += [(start, amount), (max(start, end), -amount)]
    return [_peak(queue, resource, own, nominal) for (queue, resource), own in sorted(changes.items())]


def _peak(queue: str, resource: str, changes: list[tuple[datetime, int]], nominal: Nominal) -> Json:
    used = most = 0
    # An end frees capacity for starts in the same second: the times have no finer resolution.
    ordered = sorted(changes)
    at = ordered[0][0]
    for time, amount in ordered:
        used += amount
        if used > most:
            most, at = used, time
    quota = nominal.get(queue, {}).get(resource)
    return {
        "clusterQueue": queue,
        "resource": resource,
        "peak": most,
        "nominal": quota,
        "at": at.isoformat(),
    }
