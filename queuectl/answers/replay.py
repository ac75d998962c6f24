"""A past time of the ledger played again, under its policy and under another one (A21 to A24). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from queuectl.answers.forecast.forward import Resumed
from queuectl.answers.forecast.samples import Endings, RunTimes, grouped, run_of
from queuectl.core.engine import Engine
from queuectl.core.model.events import Event, PolicyObserved
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.model.reasons import Family
from queuectl.core.model.workload import LedgerSnapshot, Phase, StoredWorkload, WorkloadId, WorkloadOutcome
from queuectl.core.observed_events import CONFIGURATION
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import PastLife, PastLives, PastRevision
from queuectl.scenarios.arrivals import Arrival, milliseconds
from queuectl.scenarios.rebuilt_engine import engine_of, requested, rule
from queuectl.simulation.history import History, Life, Run
from queuectl.simulation.measures import measures
from queuectl.simulation.usage import QuotaTable, held

Document = dict[str, Any]

_HOUR: Final = 3_600_000
_TREES: Final = ("Cohort", "ClusterQueue")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPast:
    """What the ledger has of a time."""

    since: datetime
    until: datetime
    snapshot: LedgerSnapshot
    """As of `since`."""
    lives: PastLives
    """As known at `until`, of all workloads that were open at `since` or later."""
    changes: Sequence[PastRevision] = ()
    """After `since`, in order."""
    removed: int = 0
    """How many objects of policy and context were deleted meanwhile."""
    configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION


@dataclass(slots=True)
class Assumed:
    """How many workloads each assumption is made of."""

    as_ran: int = 0
    """They run as long as their last run, which ended."""
    longer: int = 0
    """Their runs were evicted or go on: drawn from longer ones."""
    never_ran: int = 0
    """Drawn from runs that are alike."""
    endless: int = 0
    """Of those two: nothing to draw from, so they run to the end."""
    held: int = 0
    """On hold at the start: they stay so."""
    again: int = 0
    """Later lives of an object that left its queue and came back: they are left out."""


@dataclass(slots=True)
class _Plan:
    """A workload, and how it is played."""

    life: PastLife
    run: int | None
    """Milliseconds of one whole run; None: to the end of the replay."""
    leaves: int | None
    """It is deleted then, if it does not run."""


class _Replay(Resumed):
    def leave(self, at: int, workload: WorkloadId) -> None:
        """Delete it at this time, if it does not run then."""
        self._at(at, partial(self._leave, workload))

    def _leave(self, workload: WorkloadId) -> Iterable[Event]:
        job = self._jobs[workload]
        if job.finished or not job.suspended:
            return ()
        job.end(WorkloadOutcome.DELETED)
        self._finished += 1
        return (job.seen(),)


@dataclass(slots=True)
class _Basis:
    """What both replays have in common."""

    past: ReplayedPast
    plans: dict[WorkloadId, _Plan]
    assumed: Assumed = field(default_factory=Assumed)

    @property
    def end(self) -> int:
        return self.at(self.past.until)

    def at(self, when: datetime) -> int:
        """Milliseconds from the start; 0 for all earlier times."""
        return max(0, milliseconds((when - self.past.since).total_seconds()))


def replayed(
    past: ReplayedPast,
    policy: Iterable[Event],
    progress: Callable[[float], None] = lambda _: None,
) -> Document:
    """Return the figures of each ClusterQueue: as it really was, replayed, and replayed with `policy`.

    `policy`: objects in force from the start instead of those with their kind and name.
    Raises ValueError for a spec that cannot be read, and NeverEnds.
    """
    basis = _basis(past)
    events = list(policy)
    sites = _sites(past, events)
    before = _play(basis, [], lambda part: progress(part / 2))
    after = _play(basis, events, lambda part: progress(0.5 + part / 2))
    really = measures(_really(basis), sites[0])
    told = [_measured(*one) for one in zip((before, after), sites, ("before", "after"), strict=True)]
    queues = [
        {"name": was["name"], "really": _waits(was), "before": _figures(old), "after": _figures(new)}
        for was, old, new in zip(really["queues"], told[0]["queues"], told[1]["queues"], strict=True)
    ]
    return {
        "since": past.since.isoformat(),
        "until": past.until.isoformat(),
        "seconds": basis.end / 1000,
        "workloads": len(basis.plans),
        "queues": queues,
        "assumed": _assumed(basis),
        "before": told[0],
        "after": told[1],
    }


# --- what is played ------------------------------------------------------------------------------------


def _basis(past: ReplayedPast) -> _Basis:
    basis = _Basis(past, {})
    times = RunTimes(grouped(past.lives.lives, past.until))
    lives: dict[WorkloadId, PastLife] = {}
    for life in sorted(past.lives.lives, key=lambda one: one.ended_at or past.until):
        if life.ended_at is not None and life.ended_at <= past.since:
            continue
        basis.assumed.again += life.workload.id in lives
        lives.setdefault(life.workload.id, life)
    for one in past.snapshot.workloads:
        lives.setdefault(one.id, PastLife(one, None, ()))
        basis.assumed.held += requested(one).hold
    for id, life in lives.items():
        run = _run_time(life, times, basis)
        leaves = None if life.ended_in_a_run or life.ended_at is None else basis.at(life.ended_at)
        basis.plans[id] = _Plan(life, run, leaves)
    return basis


def _run_time(life: PastLife, times: RunTimes, basis: _Basis) -> int | None:
    """Milliseconds of one whole run (A22)."""
    longer, ended = run_of(life, basis.past.until)
    if ended:
        basis.assumed.as_ran += 1
        return max(1, milliseconds(longer))
    if life.runs:
        basis.assumed.longer += 1
    else:
        basis.assumed.never_ran += 1
    try:
        drawn = times.draw(life.workload, Random(str(life.workload.id)).random(), longer)
    except KeyError:
        basis.assumed.endless += 1
        return None
    most = (basis.past.until - basis.past.since).total_seconds() + longer
    # Longer also than one that its limit ended: the limit ends it again.
    return max(milliseconds(longer) + 1, milliseconds(min(drawn, most)))


def _play(basis: _Basis, policy: Sequence[Event], progress: Callable[[float], None]) -> History:
    past = basis.past
    engine: Engine = engine_of(past.snapshot, past.configuration)
    engine.handle(policy)
    ending = Endings(past.lives.lives).usual
    play = _Replay(engine, past.since, sequence=past.snapshot.sequence, eviction_seconds=ending)
    there = {one.id: one for one in past.snapshot.workloads}
    due = frozenset(past.snapshot.effects)
    for id, one in there.items():
        plan = basis.plans[id]
        play.know(one, plan.run, _left(one, plan, basis), due)
        if one.phase is Phase.EVICTING and (released := _released(plan.life, past.since)) is not None:
            play.gone(basis.at(released), id)
    coming = [_arrival(plan, basis) for id, plan in basis.plans.items() if id not in there]
    for id, plan in basis.plans.items():
        if plan.leaves is not None:
            play.leave(plan.leaves, id)
    replaced = {event.key for event in policy if isinstance(event, PolicyObserved)}
    for change in past.changes:
        if change.key not in replaced and change.key != CONFIGURATION:
            play.happen(basis.at(change.at), partial(_revised, change))
    play.resume()
    return play.play(coming, until=basis.end / 1000, progress=progress)


def _revised(change: PastRevision, _: datetime) -> Iterable[Event]:
    """Return the event of a revision. It is read when it comes into force: a long time has many."""
    return (rule(change.key, change.spec),)


def _released(life: PastLife, since: datetime) -> datetime | None:
    """When the run that was open at `since` gave its quota back; None: it has not."""
    ends = (run.ended_at for run in life.runs if run.admitted_at <= since)
    return next((at for at in ends if at is not None and at > since), None)


def _left(one: StoredWorkload, plan: _Plan, basis: _Basis) -> int | None:
    """What is left at the start of its open run, in milliseconds."""
    if one.attempt is None or plan.run is None:
        return plan.run
    ran = milliseconds((basis.past.since - one.attempt.admitted_at) / timedelta(seconds=1))
    return max(1, plan.run - max(0, ran))


def _arrival(plan: _Plan, basis: _Basis) -> Arrival:
    stored = plan.life.workload
    workload = requested(stored)
    if plan.life.runs:
        workload = replace(workload, hold=False, hold_reason=None)  # of later
    return Arrival(at=basis.at(stored.created_at), workload=workload, run=plan.run)


# --- what is told --------------------------------------------------------------------------------------


def _really(basis: _Basis) -> History:
    """What happened. Of the runs only their times are known."""
    past = basis.past
    lives = []
    for plan in basis.plans.values():
        stored, ended_at, ran = plan.life
        over = None if ended_at is None else basis.at(ended_at)
        queue = stored.cluster_queue
        runs = [
            Run(
                queue or "",
                {},
                basis.at(run.admitted_at),
                released=None if run.ended_at is None else basis.at(run.ended_at),
            )
            for run in ran
            if run.ended_at is None or run.ended_at > past.since
        ]
        never = stored.reason is not None and stored.reason.family is Family.NEVER
        present = any(
            run.admitted_at <= past.since and (run.ended_at is None or run.ended_at > past.since)
            for run in ran
        )
        life = Life(stored.id, basis.at(stored.created_at), queue, stored.priority)
        life.runs, life.finished, life.present, life.never = runs, over, present, never
        lives.append(life)
    return History(end=basis.end, lives=tuple(lives), plans=0)


def _sites(past: ReplayedPast, policy: Iterable[Event]) -> tuple[QuotaTable, QuotaTable]:
    """The quota of the start, and with `policy`. Both have the same queues."""
    then = {key: parse_policy(key, spec) for key, spec in past.snapshot.configs if key.kind in _TREES}
    for change in past.changes:
        if change.key.kind in _TREES and change.key not in then:
            then[change.key] = _empty(parse_policy(change.key, change.spec))
    new = {
        event.key: event.value
        for event in policy
        if isinstance(event, PolicyObserved) and event.key.kind in _TREES
    }
    before = {**{key: _empty(value) for key, value in new.items()}, **then}
    return QuotaTable(before.values()), QuotaTable({**before, **new}.values())


def _empty(value: Any) -> Any:
    return replace(value, resource_groups=())


def _measured(history: History, site: QuotaTable, name: str) -> Document:
    """The measures of `simulate`, with resource-hours."""
    found = {"name": name, **measures(history, site)}
    for queue in found["queues"]:
        runs = [run for life in history.lives for run in life.runs if run.cluster_queue == queue["name"]]
        use = held(site, queue["name"], runs, history.end, 1)
        for one in queue["resources"]:
            resource = one["resource"]
            one["usedHours"] = round(use.used.get(resource, 0) / _HOUR, 3)
            one["borrowedHours"] = round(use.borrowed.get(resource, 0) / _HOUR, 3)
    return found


def _waits(queue: Document) -> Document:
    return {name: queue[name] for name in ("workloads", "started", "wait")}


def _figures(queue: Document) -> Document:
    hours = ("resource", "usedHours", "borrowedHours")
    return {
        **_waits(queue),
        "preempted": queue["preemptions"]["suffered"],
        "lostSeconds": queue["lostSeconds"],
        "resources": [{name: one[name] for name in hours} for one in queue["resources"]],
    }


def _assumed(basis: _Basis) -> Document:
    one = basis.assumed
    return {
        "asRan": one.as_ran,
        "longerThanRan": one.longer,
        "neverRan": one.never_ran,
        "endless": one.endless,
        "onHold": one.held,
        "cameBack": one.again,
        "policyChanges": sum(change.key != CONFIGURATION for change in basis.past.changes),
        "policyDeletions": basis.past.removed,
        "configurationChanges": sum(change.key == CONFIGURATION for change in basis.past.changes),
    }


def unknown(assumed: Document) -> Iterator[str]:
    """Yield what the replay cannot know, one sentence each."""
    sentences = (
        ("asRan", "{} workloads run as long as their last run, which ended."),
        (
            "longerThanRan",
            "{} were evicted or run: whole runs are drawn from longer ones that are alike.",
        ),
        ("neverRan", "{} never ran: their runs are drawn from those that are alike."),
        ("endless", "{} of those have no such runs and no limit: they run to the end of the replay."),
        ("onHold", "{} were on hold at the start, and stay so."),
        ("cameBack", "{} left their queue and came back: only their first life is replayed."),
        ("policyDeletions", "{} objects of policy or context were deleted meanwhile: they stay."),
        ("configurationChanges", "{} changes of the configuration are not replayed."),
    )
    for name, text in sentences:
        if assumed[name]:
            yield text.format(assumed[name])
    yield "Nodes of that time are not known: each workload that has quota runs at once."
    yield "Users do what they did: another policy changes neither what they submit nor what they delete."
