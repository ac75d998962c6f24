"""FREE is the largest request that a quote says starts now, on random states (A40)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from queuectl.answers.free import FreeQuota
from queuectl.answers.state import CommittedState
from queuectl.answers.trial_snapshot import of_namespace
from queuectl.answers.what_if.trials import Trials, trials_of
from queuectl.core.model.events import ContextObserved, PodObserved, PolicyObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Taint
from queuectl.core.model.reasons import waits_for_victims
from queuectl.core.model.resources import FlavorResource, amounts
from queuectl.core.model.what_if import Start
from queuectl.core.model.workload import ConfigKey
from queuectl.kinds.context import kept_context
from queuectl.kinds.policy import policy_event
from tests.builders import GPU, World, pod_set, workload
from tests.unit.answers.committed import Committed
from tests.unit.core import profiles
from tests.unit.core.node_worlds import node

FLAVORS = ("a", "b")
QUEUES = ("q0", "q1", "q2")
OF_A, OF_B = ({"kind": name} for name in FLAVORS)
TAINT = Taint(GPU, "present", "NoSchedule")


def policy(
    kind: str, name: str, spec: dict[str, object] | None = None, namespace: str = "", **more: object
) -> PolicyObserved:
    content = {"spec": spec} if spec is not None else {}
    event = policy_event(
        {"kind": kind, "metadata": {"name": name, "namespace": namespace}, **content, **more}
    )
    assert isinstance(event, PolicyObserved), event
    return event


def quota(dice: random.Random) -> dict[str, object]:
    nominal = dice.randrange(9)
    limits: dict[str, object] = {}
    if dice.random() < 0.3:
        limits["borrowingLimit"] = dice.randrange(5)
    if dice.random() < 0.2:
        limits["lendingLimit"] = dice.randint(0, nominal)
    return {"name": GPU, "nominalQuota": nominal, **limits}


def cluster_queue(dice: random.Random, name: str) -> PolicyObserved:
    flavors = [{"name": flavor, "resources": [quota(dice)]} for flavor in FLAVORS]
    return policy(
        "ClusterQueue",
        name,
        {
            "cohortName": dice.choice(("c", "c", "d")),
            "namespaceSelector": {},
            "queueingStrategy": dice.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "stopPolicy": dice.choice(("None",) * 6 + ("Hold",)),
            "preemption": {
                "reclaimWithinCohort": dice.choice(("Never", "Any")),
                "withinClusterQueue": dice.choice(("Never", "LowerPriority")),
            },
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
        },
    )


def resource_flavor(dice: random.Random, name: str) -> PolicyObserved:
    tolerates = [{"key": GPU, "operator": "Exists"}] if dice.random() < 0.4 else []
    headroom = {"headroom": {GPU: dice.randrange(3)}} if dice.random() < 0.3 else {}
    return policy(
        "ResourceFlavor", name, {"nodeLabels": {"kind": name}, "tolerations": tolerates, "nodes": headroom}
    )


def usage_limit(dice: random.Random, number: int) -> PolicyObserved:
    """Of all that is in a ClusterQueue or Cohort."""
    target = dice.choice((("ClusterQueue", dice.choice(QUEUES)), ("Cohort", dice.choice("cd"))))
    flavor = {"name": dice.choice(FLAVORS), "resources": {GPU: dice.randrange(9)}}
    numbers = {"running": dice.randrange(1, 5), "resources": {GPU: dice.randrange(12)}, "flavors": [flavor]}
    spec: dict[str, object] = {key: one for key, one in numbers.items() if dice.random() < 0.5}
    if dice.random() < 0.2:
        spec["minRequest"] = {GPU: dice.randrange(1, 4)}
    named = {"target": dict(zip(("kind", "name"), target, strict=True)), "subject": {"kind": "All"}}
    return policy("UsageLimit", f"limit-{number}", {**named, **(spec or {"running": 2})})


def on_nodes(dice: random.Random, committed: Committed) -> None:
    for number in range(dice.randrange(5)):
        committed.world.tell(
            ContextObserved(
                node(
                    f"n{number}",
                    dice.randrange(9),
                    dice.choice((OF_A, OF_B)),
                    ready=dice.random() < 0.9,
                    cordoned=dice.random() < 0.1,
                    taints=[TAINT] if dice.random() < 0.3 else [],
                )
            )
        )
        if dice.random() < 0.4:
            used = Pod(
                uid=f"p{number}",
                namespace="others",
                name=f"p{number}",
                node=f"n{number}",
                requests=amounts({GPU: dice.randrange(1, 4)}),
                workload=None,
            )
            committed.world.tell(PodObserved(used))


def starts_now(trials: Trials, queue: str, flavor: str, gpus: int) -> bool:
    """Of pods of one device each, which ask for one flavor."""
    pods = [replace(pod_set(gpus, {GPU: 1}), node_selector=(("kind", flavor),))]
    asked = workload(f"asked-{queue}-{flavor}-{gpus}", f"l{queue}", pods=pods, created=10_000)
    return trials.with_workload(asked).start is Start.NOW


def cells(state: CommittedState) -> Iterator[tuple[str, FlavorResource, int]]:
    for queue in QUEUES:
        for cell, amount in FreeQuota(state).of(state.queues[queue]).items():
            yield queue, cell, amount


async def history(dice: random.Random) -> Committed:
    committed = await Committed.new(World())
    world = committed.world
    world.tell(kept_context(ConfigKey("Namespace", "", "ns"), "{}"))
    world.tell(*(resource_flavor(dice, name) for name in FLAVORS))
    world.tell(policy("WorkloadPriorityClass", "high", value=10))
    world.tell(*(cluster_queue(dice, name) for name in QUEUES))
    world.tell(*(policy("LocalQueue", f"l{name}", {"clusterQueue": name}, "ns") for name in QUEUES))
    world.tell(*(usage_limit(dice, number) for number in range(dice.choice((0, 0, 1, 2)))))
    on_nodes(dice, committed)
    for number in range(dice.randrange(8)):
        pods = [
            replace(
                pod_set(dice.randrange(1, 5), {GPU: dice.randrange(1, 3)}),
                node_selector=(("kind", dice.choice(FLAVORS)),),
            )
        ]
        world.submit(
            workload(
                f"w{number}",
                f"l{dice.choice(QUEUES)}",
                pods=pods,
                created=number,
                priority_class=dice.choice((None, None, "high")),
            )
        )
        await committed.commit()
    await committed.commit()
    return committed


@pytest.mark.law
@pytest.mark.parametrize("seed", [*profiles.spread(200), 1497])  # 1497: a StrictFIFO head waits for nodes
async def test_free_is_the_largest_request_that_starts_now_without_preemption(seed: int) -> None:
    committed = await history(random.Random(seed))
    state = committed.state
    trials = trials_of(
        of_namespace(state, committed.world.now, "ns").snapshot(), state.configuration, namespace="ns"
    )
    claimed = any(waits_for_victims(one.reason) for one in state.workloads.values())
    for queue, cell, amount in cells(state):
        assert amount == 0 or starts_now(trials, queue, cell.flavor, amount), (queue, cell, amount)
        if not claimed:  # else preemptors may have taken less of the nodes than they are counted with
            assert not starts_now(trials, queue, cell.flavor, amount + 1), (queue, cell, amount)
    trials.close()
