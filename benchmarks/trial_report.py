"""Figures and tables of trials: queuectl beside bare watchers with and without our policies, and on nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from benchmarks.report import Detail, Figure, Goal, median, percentile
from benchmarks.trial import Run, Starter

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_Of = Callable[[Run], float]


def speed(runs: Sequence[Run], *, least: float) -> list[Figure]:
    """Jobs a second beside both watchers. `least`: goal of the ratio to the one without policies."""
    return [
        _beside(runs, "Jobs made, let go and finished", "Jobs/s", lambda run: run.rate, Starter.BARE)(
            Goal("ratio", "least", least)
        ),
        _beside(runs, "the same", "Jobs/s", lambda run: run.rate, Starter.GATED)(None),
    ]


def costs(runs: Sequence[Run]) -> list[Figure]:
    """CPU and API requests a Job, and the goals that hold for each load."""
    each = "ms a Job"
    return [
        _beside(runs, "CPU of all of it, load included", each, lambda run: run.each(run.all_cpu))(None),
        _beside(runs, "CPU of the controller", each, lambda run: run.each(run.releaser))(
            Goal("value", "most", 4.0)
        ),
        _beside(runs, "CPU of the API server", each, _server)(Goal("ratio", "most", 2.0)),
        Figure(
            name="CPU of Postgres",
            value=_middle(runs, Starter.OURS, lambda run: run.each(run.costs.postgres)),
            unit=each,
        ),
        _beside(runs, "API requests", "a Job", lambda run: run.costs.requests.total() / run.jobs)(None),
        _beside(runs, "API writes", "a Job", _writes)(None),
    ]


def on_nodes(runs: Sequence[Run]) -> list[Figure]:
    """What room on nodes costs: with `Enforce`, beside the same without nodes."""
    ours, nodes, bound = Starter.OURS, Starter.NODES, "queuectl without nodes"

    def figure(name: str, unit: str, of: _Of, goal: Goal | None) -> Figure:
        value, ceiling = _middle(runs, nodes, of), _middle(runs, ours, of)
        return Figure(name=name, value=value, unit=unit, ceiling=ceiling, bound=bound, goal=goal)

    return [
        figure("Jobs, with room on nodes", "Jobs/s", lambda run: run.rate, Goal("ratio", "least", 0.9)),
        figure("CPU of the controller", "ms a Job", lambda run: run.each(run.releaser), None),
    ]


def gate(runs: Sequence[Run]) -> Figure:
    """What our policies alone cost the API server."""
    return Figure(
        name="CPU of the API server, bare watcher under our policies",
        value=_middle(runs, Starter.GATED, _server),
        unit="ms a Job",
        ceiling=_middle(runs, Starter.BARE, _server),
        bound=Starter.BARE,
        goal=Goal("ratio", "most", 1.6),
    )


def records(runs: Sequence[Run], *, events: float, decisions: float) -> list[Figure]:
    """Events and decisions a Job, with the most that is the goal."""
    return [
        Figure(
            name=name,
            value=_middle(runs, Starter.OURS, of),
            unit="a Job",
            goal=Goal("value", "most", most),
        )
        for name, of, most in (
            ("Events", lambda run: run.costs.requests["POST", "events"] / run.jobs, events),
            ("decisions in the ledger", lambda run: run.decisions / run.jobs, decisions),
        )
    ]


def _beside(
    runs: Sequence[Run], name: str, unit: str, of: _Of, bound: Starter = Starter.BARE
) -> Callable[[Goal | None], Figure]:
    return lambda goal: Figure(
        name=name,
        value=_middle(runs, Starter.OURS, of),
        unit=unit,
        ceiling=_middle(runs, bound, of),
        bound=bound,
        goal=goal,
    )


def _server(run: Run) -> float:
    return run.each(run.costs.api_server)


def _writes(run: Run) -> float:
    return sum(count for (verb, _), count in run.costs.requests.items() if verb in _WRITES) / run.jobs


def _middle(runs: Sequence[Run], starter: Starter, of: _Of) -> float:
    return median([of(run) for run in runs if run.starter is starter])


def each_run(runs: Sequence[Run]) -> Detail:
    columns = (
        *("run", "Jobs/s", "let go p50 s", "p99 s", "settled after s", "commits/s"),
        *("API server ms", "etcd ms", "Postgres ms", "releaser ms", "load ms"),
        *("load, share of a core", "others, share of the machine"),
    )
    rows: list[tuple[str | float, ...]] = []
    for run in runs:
        found, seconds = run.costs, run.result.seconds
        each = [run.each(cpu) for cpu in (found.api_server, found.etcd, found.postgres, run.releaser)]
        waits = [wait for group in run.result.waits.values() for wait in group]
        rows.append(
            (
                *(run.starter, run.rate, percentile(waits, 0.5), percentile(waits, 0.99), run.settled),
                run.commits / seconds,
                *(*each, run.each(run.result.cpu), run.result.cpu / seconds),
                (run.others + run.busy.stolen) / (run.busy.used + run.busy.stolen),
            )
        )
    return Detail("each run; ms are of CPU, a Job", columns, tuple(rows))


def verbs(runs: Sequence[Run]) -> Detail:
    """Requests per Job by verb and resource, of each starter; those below one in a thousand Jobs omitted."""
    totals: defaultdict[Starter, Counter[tuple[str, str]]] = defaultdict(Counter)
    jobs = Counter[Starter]()
    for run in runs:
        totals[run.starter] += run.costs.requests
        jobs[run.starter] += run.jobs
    keys = sorted({key for found in totals.values() for key in found})
    rows: list[tuple[str | float, ...]] = [
        (verb, resource, *(totals[starter][verb, resource] / jobs[starter] for starter in totals))
        for verb, resource in keys
        if sum(found[verb, resource] for found in totals.values()) * 1000 >= jobs.total()
    ]
    title = "API requests a Job, as the API server counts them"
    return Detail(title, ("verb", "resource", *totals), tuple(rows))
