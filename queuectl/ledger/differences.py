"""What an observer's lives come to: what would have happened, and where reality went beyond it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queuectl.core.reasons import Reason
from queuectl.ledger.codec import Json, reason_to_json
from queuectl.ledger.lives import Fate, Life

Nominal = Mapping[str, Mapping[str, int]]
"""Nominal quota of a ClusterQueue by resource, all flavors together, in base units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that ran at one time, whatever was decided about it."""

    queue: str
    resource: str
    used: int
    at: datetime
    nominal: int | None
    """None: no ClusterQueue of this name gives any."""


def summary(lives: Sequence[Life], now: datetime, nominal: Nominal) -> Json:
    """As JSON values: times ISO 8601, durations in seconds, amounts in base units."""
    by_queue: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        by_queue[queue_of(life)].append(life)
    return {
        "total": _figures(lives, now),
        "queues": [{"name": name, **_figures(own, now)} for name, own in sorted(by_queue.items())],
        "waits": _waits(lives),
        "evictions": _evictions(lives),
        "exceeded": [
            {
                "clusterQueue": peak.queue,
                "resource": peak.resource,
                "peak": peak.used,
                "nominal": peak.nominal,
                "at": peak.at.isoformat(),
            }
            for peak in peaks(lives, now, nominal)
            if peak.nominal is None or peak.used > peak.nominal
        ],
    }


def queue_of(life: Life) -> str:
    """Its ClusterQueue, or in brackets the LocalQueue that leads to none."""
    return life.cluster_queue or f"({life.ref.namespace}/{life.queue})"


def _figures(lives: Sequence[Life], now: datetime) -> Json:
    fates = Counter(life.fate for life in lives)
    made_to_wait = [life for life in lives if life.fate in (Fate.WAITED, Fate.WAITING)]
    sooner = [late for life in lives if (late := life.sooner(now)) is not None]
    return {
        "workloads": len(lives),
        **{fate.value: fates[fate] for fate in Fate},
        "wait": _spread([life.waited(now) for life in made_to_wait]),
        "evicted": sum(bool(life.evictions) for life in lives),
        "evictions": sum(len(life.evictions) for life in lives),
        "ranAnyway": sum(life.ran_anyway() for life in lives),
        "overBeforeItsTurn": sum(life.fate is Fate.WAITING and life.retired_at is not None for life in lives),
        "startedSooner": {"workloads": len(sooner), **_spread(sooner)},
        "overBeforeSeen": sum(life.late for life in lives),
    }


def _spread(durations: Iterable[timedelta]) -> Json:
    """Median, ninetieth percentile and maximum (nearest rank); None where there are none."""
    found = sorted(one.total_seconds() for one in durations)
    if not found:
        return {"p50": None, "p90": None, "max": None}
    ranks = {"p50": 50, "p90": 90, "max": 100}
    return {name: round(found[-(-len(found) * rank // 100) - 1], 3) for name, rank in ranks.items()}


def _waits(lives: Sequence[Life]) -> list[Json]:
    """Why they would have waited, or never have run: most frequent first."""
    groups: dict[tuple[Any, ...], list[tuple[Life, Reason]]] = defaultdict(list)
    for life in lives:
        if life.told_to_wait and life.reason is not None:
            groups[queue_of(life), *life.reason.key].append((life, life.reason))
    found = []
    for (queue, *_), own in groups.items():
        worst = max(own, key=lambda pair: pair[1].short_by or 0)
        found.append(
            {
                "queue": queue,
                "reason": {**reason_to_json(worst[1]), "message": worst[1].message},
                "workloads": len(own),
                "ranAnyway": sum(life.ran_anyway() for life, _ in own),
                "example": str(worst[0].ref),
            }
        )
    return sorted(found, key=lambda one: (-int(str(one["workloads"])), str(one["queue"])))


def _evictions(lives: Sequence[Life]) -> list[Json]:
    groups: dict[tuple[Any, ...], list[tuple[Life, Reason]]] = defaultdict(list)
    for life in lives:
        for _, reason in life.evictions:
            groups[queue_of(life), reason.code, reason.cause, reason.by].append((life, reason))
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


def peaks(lives: Iterable[Life], now: datetime, nominal: Nominal) -> list[Peak]:
    """The most of each covered resource that really ran at one time, per ClusterQueue."""
    changes: dict[tuple[str, str], list[tuple[datetime, int]]] = defaultdict(list)
    for life in lives:
        start, queue = life.real_start, life.cluster_queue
        if start is None or queue is None:
            continue
        end = life.ended_at or life.retired_at or now
        for resource, amount in life.requests.items():
            if amount > 0 and resource in nominal.get(queue, {resource: 0}):
                changes[queue, resource] += [(start, amount), (max(start, end), -amount)]
    return [_peak(queue, resource, own, nominal) for (queue, resource), own in sorted(changes.items())]


def _peak(queue: str, resource: str, changes: list[tuple[datetime, int]], nominal: Nominal) -> Peak:
    used = most = 0
    # What ends in a second makes room for what starts in it: the times are no finer than that.
    ordered = sorted(changes)
    at = ordered[0][0]
    for time, amount in ordered:
        used += amount
        if used > most:
            most, at = used, time
    quota = nominal.get(queue)
    return Peak(
        queue=queue,
        resource=resource,
        used=most,
        at=at,
        nominal=None if quota is None else quota.get(resource),
    )
