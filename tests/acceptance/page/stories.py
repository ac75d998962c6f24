"""Ledgers that the page shows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Final

from queuectl.core.model.capacity import (
    NO_FLAVOR,
    AwaitedLimit,
    ClusterQueueDemand,
    FlavorCapacity,
    NodeFacts,
    PodDemand,
    PodsOnNode,
)
from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.policy import Node, Taint
from queuectl.core.model.reasons import Code, Limit, PreemptionCause, Reason
from queuectl.core.model.workload import ConfigKey, Phase, StoredWorkload
from queuectl.ports.idle import DeviceCheck
from queuectl.ports.reader import BookedOn, CapacitySum, Held, UsageSumOf
from tests.unit.api.canned import (
    EPOCH_START,
    GPU,
    WAITS,
    CannedReadings,
    decision,
    local_spec,
    queue_spec,
    workload,
)
from tests.unit.api.canned_use import judged
from tests.unit.api.test_budgets import with_budgets
from tests.unit.api.test_usage import HOUR

TEAMS: Final = ("team-a", "team-b", "team-c")
PREEMPTED: Final = Reason(
    code=Code.PREEMPTED, cause=PreemptionCause.IN_COHORT_RECLAMATION, by="team-b/Job/owner"
)
IN_TREE: Final = replace(WAITS, limit=Limit.NOMINAL_QUOTA, node="Cohort/research")
POD_SETS: Final = [{"name": "main", "count": 6, "requests": {GPU: 1}, "flavors": {GPU: "a100"}}]
LARGE: Final = 50_000
LONGEST: Final = 253
"""Characters of a name of a Kubernetes object."""
MARKUP: Final = "<img src=x onerror=alert(1)>"


def queues(*names: str) -> CannedReadings:
    """ClusterQueues of one cohort with 8 GPUs each, and a LocalQueue for each."""
    readings = CannedReadings()
    configs: dict[ConfigKey, str | None] = {
        ConfigKey("ResourceFlavor", "", "a100"): json.dumps({}),
        ConfigKey("Cohort", "", "research"): json.dumps({}),
    }
    for name in names:
        configs[ConfigKey("ClusterQueue", "", name)] = queue_spec(8, cohort="research")
        configs[ConfigKey("LocalQueue", name, "main")] = local_spec(name)
    readings.commit(configs=configs)
    return readings


def of(team: str, name: str, arrival: int, **more: object) -> StoredWorkload:
    return workload(name, arrival, namespace=team, cluster_queue=team, **more)  # type: ignore[arg-type]


def busy() -> CannedReadings:
    """team-a borrows 4 GPUs of team-b and leaves 3 idle. One workload was preempted, one can never run."""
    readings = queues(*TEAMS)
    leaves_three, hangs = UseFinding(UseVerdict.BUSY, 12, 3), UseFinding(UseVerdict.HANG, 4, 4)
    running = judged(of("team-a", "train", 1, gpus=12, phase=Phase.ADMITTED), leaves_three, EPOCH_START, 5400)
    waiting = of("team-a", "evaluate", 2, gpus=None, reason=IN_TREE)
    never = of("team-a", "too-large", 3, reason=replace(IN_TREE, code=Code.EXCEEDS_MAX_QUOTA))
    owner = judged(of("team-b", "owner", 4, gpus=4, phase=Phase.ADMITTED), hangs, EPOCH_START, 60)
    ended = of("team-c", "over", 5)
    readings.commit(running, waiting, never, owner, ended)
    readings.end(ended)
    lives = (
        (waiting, "Queued", None),
        (waiting, "Admitted", None),
        (waiting, "Evicted", PREEMPTED),
        (waiting, "Released", None),
        (waiting, "Pending", IN_TREE),
        (running, "Queued", None),
        (running, "Admitted", None),
        (owner, "Queued", None),
        (owner, "Admitted", None),
    )
    readings.rows = [
        replace(
            decision(sequence, one, verdict, reason),
            attempt=1,
            payload={"queue": "main", "clusterQueue": one.cluster_queue, "priority": 0, "podSets": POD_SETS},
        )
        for sequence, (one, verdict, reason) in enumerate(lives, start=1)
    ]
    readings.sequence = len(readings.rows)
    readings.silence = timedelta(seconds=20)
    readings.capacity(FlavorCapacity(flavor=NO_FLAVOR))
    readings.keep(EPOCH_START)
    readings.held = [
        Held("team-a", "a100", GPU, 12, EPOCH_START, None),
        Held("team-b", "a100", GPU, 4, EPOCH_START + timedelta(seconds=4), None),
    ]
    readings.device_use.found = DeviceCheck(EPOCH_START, None)
    readings.demand(
        ClusterQueueDemand(
            "team-a",
            (PodDemand(flavor="a100", awaits=AwaitedLimit.QUOTA, workloads=1, pods=1, requests=((GPU, 6),)),),
        )
    )
    return readings


def long_names() -> CannedReadings:
    """One workload holds what another waits for. Names are as long as Kubernetes allows, users are markup."""
    queue = "q" * LONGEST
    readings = queues("team-a", queue)
    bound = replace(IN_TREE, node=f"ClusterQueue/{queue}")
    waiting = replace(of("team-a", "n" * LONGEST, 1, gpus=None, reason=bound), submitter=MARKUP)
    running = replace(of(queue, "j" * LONGEST, 2, gpus=4, phase=Phase.ADMITTED), submitter="s" * LONGEST)
    readings.commit(waiting, running)
    evicted = replace(PREEMPTED, by=f"{queue}/Job/{'j' * LONGEST}")
    readings.rows = [replace(decision(1, waiting, "Evicted", evicted), attempt=1, payload={})]
    readings.sequence = 1
    there = Node(
        "g" * LONGEST, allocatable=((GPU, 8),), taints=(Taint("t" * LONGEST, "x" * 63, "NoSchedule"),)
    )
    readings.node(
        NodeFacts(name=there.name, node=there, pods=(PodsOnNode(queue, running.id, ((GPU, 4),), 2),))
    )
    for user in (MARKUP, "s" * LONGEST):
        booked = BookedOn("team-a", "main", "team-a", user, None, {})
        readings.booked.append(UsageSumOf(booked, "team-a", "a100", GPU, HOUR))
    return readings


def crowded(count: int = LARGE) -> CannedReadings:
    """That many pending workloads in one of many queues."""
    readings = queues(*(f"queue-{number:03}" for number in range(100)))
    readings.commit(
        *(of("queue-000", f"job-{number:05}", number, reason=WAITS) for number in range(1, count + 1))
    )
    return readings


def busy_on_nodes() -> CannedReadings:
    """The same with two nodes: one that is used by both, one cordoned."""
    readings = busy()
    train, owner = (readings.stored(name) for name in ("train", "owner"))
    there = ((GPU, 16), ("cpu", 64_000))
    pods = (
        PodsOnNode("team-a", train.id, ((GPU, 6), ("cpu", 1000)), 2),
        PodsOnNode("team-b", owner.id, ((GPU, 3),)),
    )
    readings.node(NodeFacts(name="gpu-1", node=Node("gpu-1", allocatable=there), pods=pods))
    taints = (Taint("team", "x", "NoSchedule"),)
    readings.node(
        NodeFacts(name="gpu-2", node=Node("gpu-2", allocatable=there, taints=taints, cordoned=True))
    )
    with_budgets(readings)
    each = {"target": {"kind": "Cohort", "name": "research"}, "subject": {"kind": "EachUser"}}
    limit = each | {"resources": {GPU: 20}, "running": 20}
    readings.commit(configs={ConfigKey("UsageLimit", "", "each-user"): json.dumps(limit)})
    readings.links = {"Logs": "https://grafana.example.com/explore?q={namespace}/{name}"}
    readings.booked = [
        UsageSumOf(BookedOn(team, "main", team, user, None, {}), team, "a100", GPU, hours * HOUR)
        for team, user, hours in (
            ("team-a", "alice", 30),
            ("team-b", "=cmd()", 10),
            ("team-a", "bob, ben", 2),
        )
    ]
    readings.had = [CapacitySum("a100", GPU, *(hours * HOUR for hours in (100, 16, 42, 50, 8, 0)))]
    return readings
