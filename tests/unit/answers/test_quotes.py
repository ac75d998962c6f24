"""What a quote says is what an engine decides when the workload is created, on random states (A9)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from queuectl.answers.trial_snapshot import of_namespace
from queuectl.answers.what_if.trials import trials_of, tried
from queuectl.api.what_if_rows import with_rows
from queuectl.core.model.events import OutcomesRead, PolicyObserved
from queuectl.core.model.reasons import Code
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.what_if import Start, Tried
from queuectl.core.model.workload import ConfigKey, Workload
from queuectl.kinds.context import kept_context
from tests.builders import GPU, T0, World, pod_set, workload
from tests.unit.answers.committed import Committed
from tests.unit.answers.test_free import FLAVORS, QUEUES, on_nodes, policy, quota, resource_flavor
from tests.unit.core import profiles

NAMESPACES = ("ns", "far")
SEEN = Counter[str]()


def some(dice: random.Random, part: float) -> bool:
    return dice.random() < part


def cluster_queue(dice: random.Random, name: str) -> PolicyObserved:
    flavors: list[dict[str, Any]] = []
    for flavor in FLAVORS:
        cell = quota(dice)
        flavors.append(
            {"name": flavor, "resources": [{**cell, "nominalQuota": int(str(cell["nominalQuota"])) + 4}]}
        )
    if some(dice, 0.3):
        flavors[0]["waitBeforeNextSeconds"] = 60
    preemption: dict[str, Any] = {
        "reclaimWithinCohort": dice.choice(("Never", "Any", "LowerPriority")),
        "withinClusterQueue": dice.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
    }
    if preemption["reclaimWithinCohort"] != "Never" and some(dice, 0.4):
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
    if some(dice, 0.3):
        preemption["minRunTime"] = {"InClusterQueue": 1000}
    spec: dict[str, Any] = {
        "cohortName": dice.choice("ccd"),
        "namespaceSelector": {},
        "queueingStrategy": dice.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        "headCanNeverRun": dice.choice(("Block", "PassOver")),
        "stopPolicy": dice.choice(("None",) * 8 + ("Hold",)),
        "preemption": preemption,
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
    }
    if some(dice, 0.3):
        spec["maxExecutionTime"] = {"default": 3600, "ceiling": 7200}
    return policy("ClusterQueue", name, spec)


def rule_about_users(dice: random.Random) -> dict[str, Any]:
    targets = (
        {"kind": "ClusterQueue", "name": dice.choice(QUEUES)},
        {"kind": "Cohort", "name": dice.choice("cd")},
        {"kind": "LocalQueue", "namespace": "ns", "name": f"l{dice.choice(QUEUES)}"},
        {"kind": "WorkloadPriorityClass", "name": dice.choice(("high", "default"))},
    )
    subjects = ({"kind": "EachUser"}, {"kind": "All"}, {"kind": "User", "name": "ann"})
    return {"target": dice.choice(targets), "subject": dice.choice(subjects)}


def usage_limit(dice: random.Random, name: str) -> PolicyObserved:
    numbers = {
        "running": dice.randrange(1, 4),
        "pending": dice.randrange(1, 4),
        "resources": {GPU: dice.randrange(1, 9)},
        "flavors": [{"name": dice.choice(FLAVORS), "resources": {GPU: dice.randrange(1, 5)}}],
    }
    spec = {key: value for key, value in numbers.items() if some(dice, 0.5)} or {"running": 2}
    if some(dice, 0.1):
        spec["minRequest"] = {GPU: 2}
    return policy("UsageLimit", name, {**rule_about_users(dice), **spec})


def budget(dice: random.Random, name: str) -> PolicyObserved:
    more = {"hours": dice.randrange(1, 30), "mode": dice.choice(("Safe", "Metered"))}
    spec = {**rule_about_users(dice), "resource": GPU, "period": {"kind": "Month"}, **more}
    return policy("Budget", name, spec)


def created(dice: random.Random, name: str, seconds: float, before: list[str]) -> Workload:
    """A workload that may wait for one of `before`, of namespace ns."""
    pods = pod_set(dice.randrange(1, 5), {GPU: dice.randrange(1, 3)})
    if some(dice, 0.6):
        pods = replace(pods, node_selector=(("kind", dice.choice(FLAVORS)),))
    if some(dice, 0.3) and pods.count > 1:
        pods = replace(pods, min_count=1)
    start, kind = None, dice.random()
    if kind < 0.15 and before:
        after = AfterWorkload(dice.choice(list(AfterOutcome)), "Job", dice.choice(before))
        start = StartConditions(after=(after,))
    elif kind < 0.25:
        start = StartConditions(max_running=1, array="x")
    return workload(
        name,
        f"l{dice.choice(QUEUES)}",
        pods=[pods],
        created=seconds,
        namespace=dice.choice(("ns", *NAMESPACES)),
        priority_class=dice.choice((None, None, "high")),
        submitter=dice.choice(("ann", "bob", None)),
        max_run_seconds=dice.choice((None, 3600, 7200)),
        start=start,
    )


async def commit(committed: Committed) -> None:
    """And tell the engine of names that no workload which is over has."""
    await committed.commit()
    while names := committed.world.engine.features.start_conditions.unread(100):
        committed.world.tell(OutcomesRead(tuple((name, None) for name in names)))
        await committed.commit()


async def history(dice: random.Random) -> Committed:
    committed = await Committed.new(World())
    world = committed.world
    world.tell(*(kept_context(ConfigKey("Namespace", "", name), "{}") for name in NAMESPACES))
    world.tell(*(resource_flavor(dice, name) for name in FLAVORS))
    world.tell(policy("WorkloadPriorityClass", "high", value=10))
    world.tell(*(cluster_queue(dice, name) for name in QUEUES))
    for namespace in NAMESPACES:
        world.tell(*(policy("LocalQueue", f"l{name}", {"clusterQueue": name}, namespace) for name in QUEUES))
    world.tell(*(usage_limit(dice, f"limit-{number}") for number in range(dice.randrange(3))))
    world.tell(*(budget(dice, f"budget-{number}") for number in range(dice.randrange(2))))
    if some(dice, 0.3):
        on_nodes(dice, committed)
    before: list[str] = []
    for number in range(dice.randrange(1, 10)):
        one = created(dice, f"w{number}", number, before)
        before += [one.ref.name] if one.ref.namespace == "ns" else []
        world.submit(one)
        await commit(committed)
        if some(dice, 0.3):
            world.pass_time(dice.randrange(1, 4000))
            await commit(committed)
    return committed


class Decided(NamedTuple):
    """What a quote must have in common with the decision. Numbers of a reason may be those of others."""

    start: Start
    code: Code | None
    about: tuple[object, ...]

    @classmethod
    def of(cls, found: Tried) -> Decided:
        why = found.reason
        if why is None:
            return cls(found.start, None, ())
        return cls(found.start, why.code, (why.node, why.limit, why.resource, why.flavor, why.until))


@pytest.mark.law
@pytest.mark.parametrize("seed", profiles.spread(300))
async def test_a_quote_is_what_is_decided_when_the_workload_is_created(seed: int) -> None:
    dice = random.Random(seed)
    committed = await history(dice)
    world, state = committed.world, committed.state
    asked = created(dice, "asked", (world.now - T0) / timedelta(seconds=1), [])
    namespace = asked.ref.namespace
    snapshot = with_rows(of_namespace(state, world.now, namespace).snapshot(), *await committed.rows())
    trials = trials_of(snapshot, state.configuration, namespace=namespace)
    quoted = Decided.of(trials.with_workload(asked))
    trials.close()
    before = len(world.decided)
    world.submit(asked)
    await commit(committed)
    assert quoted == Decided.of(tried(asked.id, world.decided[before:]))
    SEEN[quoted.code or quoted.start] += 1


@pytest.mark.acceptance
def test_the_states_have_every_answer() -> None:
    assert SEEN.keys() >= {
        *(Start.NOW, Code.WAITING_FOR_QUOTA, Code.WAITING_FOR_USAGE_LIMIT, Code.BUDGET_EXHAUSTED),
        *(Code.WAITING_FOR_PREEMPTED_WORKLOADS, Code.CAPACITY_MISSING, Code.WAITING_FOR_ARRAY),
    }, SEEN
