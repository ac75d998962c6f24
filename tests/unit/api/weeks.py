"""A simulated week of three borrowing teams, recorded in the ledger in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

from queuectl.core.decisions import Plan
from queuectl.core.model.events import Event, PolicyObserved
from queuectl.core.model.policy import ResourceFlavor
from queuectl.kinds.policy import policy_event
from queuectl.scenarios.arrivals import Template, arrivals, exponential, lognormal
from queuectl.simulation.history import History
from queuectl.simulation.player import Play
from tests.builders import GPU, T0, World, pod_set, workload
from tests.doubles.readers import ReadableLedger

DAY = 86_400
WEEK = 7 * DAY
EVICTION_SECONDS = 95.0

Found = TypeVar("Found")


def at_once(work: Coroutine[Any, Any, Found]) -> Found:
    """The result of a coroutine that never waits: the ledger in memory has such ones only."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def policy(kind: str, name: str, spec: dict[str, object], namespace: str = "") -> PolicyObserved:
    found = policy_event({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    assert isinstance(found, PolicyObserved), found
    return found


def team(name: str, gpus: int, **spec: object) -> PolicyObserved:
    quota = {"name": "default", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    cohort = spec.pop("cohortName", "all")
    fields = {"namespaceSelector": {}, "resourceGroups": groups, "cohortName": cohort, **spec}
    return policy("ClusterQueue", name, {"preemption": preemption, **fields})


class Recorded(Play):
    """Commits each plan to a ledger first, as the controller does."""

    def __init__(self, world: World, ledger: ReadableLedger) -> None:
        super().__init__(world.engine, T0, eviction_seconds=EVICTION_SECONDS)
        self._ledger = ledger
        ledger._clock = self._clock
        self._epoch = at_once(ledger.take_epoch("test"))

    def later(self, seconds: float, *events: Event) -> None:
        self._at(round(seconds * 1000), lambda: events)

    def _commit(self, plan: Plan) -> None:
        self._sequence = at_once(
            self._ledger.commit(plan, (), epoch=self._epoch, batch=f"batch-{self._plans}")
        )
        super()._commit(plan)


class Week(NamedTuple):
    history: History
    ledger: ReadableLedger


@cache
def week(fair: bool) -> Week:
    """`fair`: the cohort shares fairly. A queue is stopped for a while, and quota changes in mid-week."""
    world = World(ResourceFlavor(name="default"))
    world.tell(
        policy("ResourceFlavor", "default", {}),
        policy("Cohort", "all", {"fairSharing": {"enabled": fair}}),
        policy("Cohort", "north", {"parentName": "all"}),
        team("a", 8, cohortName="north"),
        team("b", 8, cohortName="north"),
        team("c", 8),
        *(policy("LocalQueue", f"l{name}", {"clusterQueue": name}, "ns") for name in "abc"),
    )
    ledger = ReadableLedger(lambda: T0)
    play = Recorded(world, ledger)
    play.later(1.5 * DAY, team("b", 8, cohortName="north", stopPolicy="HoldAndDrain"))
    play.later(1.7 * DAY, team("b", 8, cohortName="north"))
    play.later(3.2 * DAY, team("c", 4))
    play.later(5.1 * DAY, team("c", 8))
    templates = [
        Template(
            shape=workload(f"{name}{gpus}", f"l{name}", pods=[pod_set(gpus, {GPU: 1})]),
            spacing=exponential(spacing * gpus),
            run=lognormal(9_000, 1.2),
            seed=number,
        )
        for number, (name, spacing) in enumerate(zip("abc", (2_000, 4_000, 9_000), strict=True))
        for gpus in (1, 3, 6)
    ]
    work = [one for template in templates for one in arrivals(template, T0, until=WEEK)]
    return Week(play.play(work, until=WEEK), ledger)


END = T0 + timedelta(seconds=WEEK)
