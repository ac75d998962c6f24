"""Measures of a simulation as one document: waits, use, shares and preemptions, by queue and by priority.

A wait is the time from arrival to the first start. A workload that has not started counts with its time so
far, so that a policy that starts nothing does not look like one without waits. A workload that can never
start does not count, nor one that ran when the simulation began.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import by_resource
from queuectl.core.model.workload import WorkloadId
from queuectl.simulation.history import History, Life, Run
from queuectl.simulation.room_use import ROOM
from queuectl.simulation.usage import PER_MILLION, Bins, QueueUsage, QuotaTable, held

Document = dict[str, Any]

PARTS: Final = 240
"""Parts of the timeline, at most."""


def measures(history: History, site: QuotaTable) -> Document:
    """Seconds, percent, and base units of resources, for tables and pictures."""
    end = history.end
    lives: dict[str | None, list[Life]] = defaultdict(list)
    runs: dict[str, list[Run]] = defaultdict(list)
    for life in history.lives:
        lives[life.cluster_queue].append(life)
        for run in life.runs:
            runs[run.cluster_queue].append(run)
    queue_of = {life.id: life.cluster_queue for life in history.lives}
    done = Counter(queue_of.get(run.preemptor) for run in _preempted(history.lives) if run.preemptor)
    use = {name: held(site, name, runs[name], end, PARTS) for name in site.queues}
    queues = [
        {
            "name": name,
            **_figures(lives[name], end),
            "room": _room(history, lives[name], runs[name]),
            "preemptions": _preemptions(runs[name], done[name]),
            "evictions": _evictions(runs[name]),
            "lostSeconds": _lost(runs[name]),
            "resources": _resources(use[name], by_resource(site.nominal[name].items()), end),
            "dominantShare": _share(use[name], end),
        }
        for name in site.queues
    ]
    return {
        "seconds": end / 1000,
        "queues": queues,
        "total": _total(history, site, use.values()),
        "priorities": _priorities(history.lives, end),
        "nodes": _nodes(history),
        "timeline": _timeline(lives, use, end),
    }


# --- waits --------------------------------------------------------------------------------------------


def _figures(lives: Sequence[Life], end: int) -> Document:
    never = [life for life in lives if life.never and not life.runs]
    started = [life for life in lives if life.runs]
    finished = sum(life.finished is not None for life in lives)
    holding = sum(bool(life.runs) and life.runs[-1].released is None for life in lives)
    return {
        "workloads": len(lives),
        "started": len(started),
        "finished": finished,
        "running": holding,
        "waiting": len(lives) - len(never) - finished - holding,
        "never": len(never),
        "wait": _wait([_waited(life, end) for life in lives if _waits(life)]),
    }


def _waits(life: Life) -> bool:
    """Whether its wait counts."""
    if life.runs:
        return not life.present
    return not life.never and life.finished is None


def _waited(life: Life, end: int) -> int:
    return (life.runs[0].admitted if life.runs else end) - life.arrived


def _wait(waits: list[int]) -> Document:
    """In seconds. Half of the waits are at most the median, 95 % at most the 95th percentile."""
    if not waits:
        return dict.fromkeys(("mean", "median", "p95", "max"))
    waits.sort()
    return {
        "mean": _seconds(sum(waits) / len(waits)),
        "median": _seconds(waits[-(-len(waits) // 2) - 1]),
        "p95": _seconds(waits[-(-len(waits) * 95 // 100) - 1]),
        "max": _seconds(waits[-1]),
    }


def _seconds(milliseconds: float) -> float:
    return round(milliseconds / 1000, 3)


# --- preemptions --------------------------------------------------------------------------------------


def _preempted(lives: Iterable[Life]) -> list[Run]:
    return [run for life in lives for run in life.runs if run.code is Code.PREEMPTED]


def _preemptions(runs: Sequence[Run], done: int) -> Document:
    """`suffered` by runs charged to the queue, `done` for workloads that are pending in it."""
    causes = Counter(str(run.cause) for run in runs if run.code is Code.PREEMPTED and run.cause)
    return {
        "done": done,
        "suffered": sum(run.code is Code.PREEMPTED for run in runs),
        "causes": dict(sorted(causes.items())),
    }


def _evictions(runs: Iterable[Run]) -> dict[str, int]:
    """All stopped runs, by reason."""
    return dict(sorted(Counter(str(run.code) for run in runs if run.code is not None).items()))


def _lost(runs: Iterable[Run]) -> float:
    """Total run time in seconds of stopped runs, and of others before a node failed under them."""
    return _seconds(
        sum(
            run.stopped - run.admitted if run.stopped is not None and not run.finished else run.lost
            for run in runs
        )
    )


# --- room on nodes --------------------------------------------------------------------------------------


def _room(history: History, lives: Iterable[Life], runs: Iterable[Run]) -> Document | None:
    """None: there are no nodes. In seconds: how long workloads waited for room, by reason; and how long they
    were admitted without all their pods on ready nodes."""
    if history.room is None:
        return None
    waits: Counter[Code] = Counter()
    for life in lives:
        waits.update(history.room.waits.get(life.id, {}))
    return {
        "waitSeconds": {code.value: _seconds(waits[code]) for code in ROOM},
        "stalledSeconds": _seconds(sum(run.stalled(history.end) for run in runs)),
    }


def _nodes(history: History) -> list[Document]:
    """By resource, its mean amount on all nodes, and of that in percent what became of it."""
    if history.room is None or not history.end:
        return []
    return [
        {
            "resource": resource,
            "allocatable": round(use.total / history.end, 3),
            "usedPercent": _percent(use.total - use.unusable - use.unmanaged - use.free, use.total),
            "unmanagedPercent": _percent(use.unmanaged, use.total),
            "unusablePercent": _percent(use.unusable, use.total),
            "idlePercent": _percent(use.free, use.total),
            "fragmentedPercent": _percent(use.fragmented, use.total),
        }
        for resource, use in sorted(history.room.resources.items())
    ]


# --- use ----------------------------------------------------------------------------------------------


def _resources(use: QueueUsage, nominal: Mapping[str, int], end: int) -> list[Document]:
    """In percent of nominal quota over the whole time; None if it has no nominal quota."""
    return [
        {
            "resource": resource,
            "nominal": quota,
            "used": round(use.used[resource] / end, 3) if end else 0.0,
            "usedPercent": _percent(use.used[resource], quota * end),
            "borrowedPercent": _percent(use.borrowed[resource], quota * end),
            "lostPercent": _percent(use.lost[resource], quota * end),
        }
        for resource, quota in sorted({**dict.fromkeys(use.used, 0), **nominal}.items())
    ]


def _share(use: QueueUsage, end: int) -> Document:
    """Percent of its whole tree's quota that it held, for the resource with the highest percentage."""
    return {
        "mean": _percent(use.share, PER_MILLION * end) or 0.0,
        "max": _percent(use.greatest, PER_MILLION),
    }


def _percent(part: float, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


# --- the document --------------------------------------------------------------------------------------


def _total(history: History, site: QuotaTable, use: Iterable[QueueUsage]) -> Document:
    together = QueueUsage()
    for one in use:
        for sums, more in (
            (together.used, one.used),
            (together.borrowed, one.borrowed),
            (together.lost, one.lost),
        ):
            for resource, amount in more.items():
                sums[resource] += amount
    runs = [run for life in history.lives for run in life.runs]
    preempted = len(_preempted(history.lives))
    return {
        **_figures(history.lives, history.end),
        "room": _room(history, history.lives, runs),
        "preemptions": _preemptions(runs, preempted),
        "evictions": _evictions(runs),
        "lostSeconds": _lost(runs),
        "resources": _resources(together, site.total(), history.end),
    }


def _priorities(lives: Iterable[Life], end: int) -> list[Document]:
    """The highest first. Preemptions count for the priority of the preemptor."""
    of: dict[WorkloadId, int] = {}
    grouped: dict[int, list[Life]] = defaultdict(list)
    for life in lives:
        of[life.id] = life.priority
        grouped[life.priority].append(life)
    done = Counter(
        of.get(run.preemptor)
        for group in grouped.values()
        for run in _preempted(group)
        if run.preemptor is not None
    )
    found = []
    for priority, group in sorted(grouped.items(), reverse=True):
        runs = [run for life in group for run in life.runs]
        found.append(
            {
                "priority": priority,
                **_figures(group, end),
                "preemptions": _preemptions(runs, done[priority]),
                "lostSeconds": _lost(runs),
            }
        )
    return found


# --- timeline ------------------------------------------------------------------------------------------


def _timeline(
    lives: Mapping[str | None, Sequence[Life]], use: Mapping[str, QueueUsage], end: int
) -> Document:
    """Means over parts of equal length."""
    return {
        "seconds": Bins.of(end, PARTS).width / 1000,
        "queues": [
            {
                "name": name,
                "waiting": _rounded(_waiting(lives.get(name, ()), end)),
                "share": [round(mean * 100 / PER_MILLION, 2) for mean in one.shares.means(end)],
                "used": {resource: _rounded(bins.means(end)) for resource, bins in one.levels.items()},
                "borrowed": {resource: _rounded(bins.means(end)) for resource, bins in one.beyond.items()},
            }
            for name, one in use.items()
        ],
    }


def _waiting(lives: Iterable[Life], end: int) -> list[float]:
    """Number of pending workloads, including evicted ones."""
    bins = Bins.of(end, PARTS)
    for life in lives:
        since: int | None = life.arrived
        for run in life.runs:
            bins.add(since or 0, run.admitted, 1)
            since = run.released
        over = life.finished if life.finished is not None else end
        if since is not None and not (life.never and not life.runs):
            bins.add(since, over, 1)
    return bins.means(end)


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 3) for value in values]
