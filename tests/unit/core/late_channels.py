"""Actions for events that lag and repeat: two queues, three flavors, two cohorts, three nodes.

The policies are within what reference.py knows: no usage-based order, no start with fewer pods.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from queuectl.core.model.policy import (
    CapacityMode,
    Cohort,
    FairSharing,
    FlavorNodes,
    LabelSelector,
    LocalQueueName,
    Node,
    QueueingStrategy,
    RequeuingStrategy,
    ResourceGroup,
    ResourceQuota,
    SchedulingConfiguration,
    StopPolicy,
    Taint,
    Toleration,
    WorkloadPriorityClass,
)
from queuectl.core.model.policy import Policy as PolicyObject
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import ForcedRelease, PodSet
from tests.builders import ALL_NAMESPACES, GPU, flavor, group, local_queue, pod_set, queue, workload
from tests.unit.core.actions import any_job, any_of, finish
from tests.unit.core.driver import Action, Driver
from tests.unit.core.trees import Dice, Setup, passing_over_or_not, preemption, strategies, with_quotas

SETTINGS = SchedulingConfiguration(
    pods_ready_timeout=30, requeueing=RequeuingStrategy(base_seconds=10, most_seconds=30, limit=3)
)
SPOT = flavor("f2", labels={"zone": "b"}, taints=[Taint("spot", "yes", "NoSchedule")])
FLAVORS = (
    *(flavor("f1"), flavor("f1", labels={"zone": "a"}), flavor("f2"), SPOT, flavor("f3")),
    replace(flavor("f1"), nodes=FlavorNodes(mode=CapacityMode.ENFORCE, headroom=((GPU, 1),))),
    replace(flavor("f2", labels={"zone": "b"}), nodes=FlavorNodes(mode=CapacityMode.OBSERVE)),
)
NAMES: tuple[tuple[str, str | LocalQueueName], ...] = (
    ("ClusterQueue", "qa"),
    ("LocalQueue", LocalQueueName("ns", "la")),
    ("ResourceFlavor", "f1"),
    ("ResourceFlavor", "f3"),
    ("Cohort", "c1"),
    ("WorkloadPriorityClass", "high"),
)
STOPS = (StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN)
LATE = Setup(settings=SETTINGS)


def budget(dice: Dice) -> int:
    return dice.pick(1000, 1, 2, 3, 7)


# --- random values


def random_groups(dice: Dice) -> tuple[ResourceGroup, ...]:
    """Two flavors of one resource, and perhaps another flavor of others."""
    groups = [group({"f1": {GPU: dice.below(7)}, "f2": {GPU: dice.below(4)}})]
    if rest := dice.mostly(0, 1, 3):
        groups.append(group({"f3": {"cpu": rest, "pods": rest}}))
    borrowing, lending = dice.mostly(None, 0, 1, 3), dice.mostly(None, 0, 1, 3)

    def limited(quota: ResourceQuota) -> ResourceQuota:
        lent = None if lending is None else min(lending, quota.nominal)
        return replace(quota, borrowing_limit=borrowing, lending_limit=lent)

    return tuple(with_quotas(one, limited) for one in groups)


def random_request(dice: Dice) -> dict[str, Any]:
    """Return the fields of a workload that its user may edit."""
    return {
        "pod_sets": (random_pods(dice),),
        "queue": dice.pick("la", "lb", "la", "lb", "la", "lb", "nowhere"),
        "priority_class": dice.mostly(None, "high", "low", "unknown"),
        "max_run_seconds": dice.mostly(None, 40),
    }


def random_pods(dice: Dice) -> PodSet:
    requests = {GPU: 1 + dice.below(3), "cpu": dice.mostly(0, 1)}
    tolerations = (Toleration("spot", "Exists"),) if dice.below(2) else ()
    selector = dice.mostly((), (("zone", "a"),))
    return pod_set(dice.mostly(1, 2), requests, tolerations=tolerations, node_selector=selector)


def random_policy(dice: Dice) -> PolicyObject:
    match dice.below(7):
        case 0 | 1:
            drawn = queue(
                dice.pick("qa", "qb"),
                groups=random_groups(dice),
                strategy=dice.pick(*QueueingStrategy),
                stop=dice.mostly(*STOPS),
                selector=dice.mostly(ALL_NAMESPACES, None, LabelSelector((("team", "a"),))),
                cohort=dice.pick(None, "c1", "c2"),
                preemption=preemption(dice),
                weight=dice.mostly(1000, 0, 2500),
            )
            return passing_over_or_not(drawn)
        case 2:
            return local_queue("la", dice.mostly("qa", "qb", "none"), stop=dice.mostly(*STOPS))
        case 3:
            return local_queue("lb", dice.mostly("qb", "qa"))
        case 4:
            return dice.pick(*FLAVORS)
        case 5:
            return Cohort(
                name=dice.pick("c1", "c2"),
                parent=dice.mostly(None, "c1", "c2"),
                resource_groups=dice.mostly((), (group({"f1": {GPU: 2}, "f2": {GPU: 1}}),)),
                weight=dice.mostly(1000, 0),
                sharing=FairSharing(enabled=dice.pick(None, True), strategies=strategies(dice)),
            )
    return WorkloadPriorityClass(dice.pick("high", "low"), dice.below(4) - 1)


# --- users


def begin(driver: Driver, dice: Dice) -> None:
    repair(driver, dice)
    for number in range(3 + dice.below(4)):
        submit_copies(driver, random_request(dice), created=number % 2, copies=2)


def submit(driver: Driver, dice: Dice) -> None:
    request, created, copies = random_request(dice), dice.below(4), 1 + dice.below(3)
    submit_copies(driver, request, created=created, copies=copies, running=dice.mostly(False, True))


def submit_copies(
    driver: Driver, request: dict[str, Any], *, created: int, copies: int, running: bool = False
) -> None:
    for _ in range(copies):
        driver.made += 1
        one = replace(workload(f"w{driver.made}", created=created), **request)
        driver.submit(one, running=running)


def change(driver: Driver, dice: Dice) -> None:
    """Edit a Job within what the admission policy allows users and break-glass admins."""
    uid = any_job(driver, dice)
    if uid is None:
        return
    what = dice.mostly("edit", "hold", "unhold", "delete", "bypass", "suspend")
    job = driver.jobs[uid]
    if what in ("hold", "unhold"):
        driver.write(uid, spec=False, workload=replace(job.workload, hold=what == "hold"))
    elif what == "delete":
        driver.delete(uid)
    elif what == "suspend" or not job.suspended:
        driver.write(uid, suspended=True)
    elif what == "edit":
        driver.write(uid, workload=replace(job.workload, **random_request(dice)))
    else:
        driver.write(uid, suspended=False, pods=True)


def hold_for_a_moment(driver: Driver, dice: Dice) -> None:
    if uid := any_job(driver, dice, running=False):
        workload = driver.jobs[uid].workload
        for hold in (True, False):
            driver.write(uid, spec=False, workload=replace(workload, hold=hold))
            driver.deliver()


def pass_time(driver: Driver, dice: Dice) -> None:
    """Let time pass. A timer that is due is told with the next plan."""
    driver.now += timedelta(seconds=dice.pick(1, 9, 10, 25, 31, 100))


def progress(driver: Driver, dice: Dice) -> None:
    """Change the readiness of pods of a running Job, or end one of its pods for good, except the last."""
    if uid := any_job(driver, dice, running=True):
        job, ready = driver.jobs[uid], dice.pick(True, False, None)
        ended = min(job.ended + dice.below(2), min(p.count for p in job.workload.pod_sets) - 1)
        driver.write(uid, spec=False, ready=ready, ended=max(ended, job.ended))


def release_by_force(driver: Driver, dice: Dice) -> None:
    uid = any_job(driver, dice)
    if uid is not None and (row := driver.ledger.store.workloads.get(uid)) is not None:
        driver.write(uid, spec=False, release=ForcedRelease(row.attempts, "ann", "scrap"))


# --- the cluster and the controller


def answer(driver: Driver, dice: Dice) -> None:
    """Carry out one effect or one pod count."""
    if dice.below(2):
        driver.kill_pods()
    if driver.effects:
        driver.settle(dice.pick(*driver.effects), denied=dice.below(7) == 6)
    elif driver.probes:
        driver.count(dice.pick(*driver.probes))


def hear(driver: Driver, dice: Dice) -> None:
    """Deliver some events of one channel, perhaps twice. The other channel may be ahead or behind."""
    channel = driver.answers if dice.below(2) else driver.watch
    count = 1 + dice.below(5)
    events = channel[:count]
    del channel[:count]
    for _ in range(dice.pick(1, 2)):
        driver.fold(events)


def decide(driver: Driver, dice: Dice) -> None:
    driver.decide(budget(dice))


def refuse(driver: Driver, dice: Dice) -> None:
    driver.refuse(budget(dice), dice.below(256))
    if dice.below(2):
        driver.thaw()


def quiesce(driver: Driver, dice: Dice) -> None:
    driver.deliver()
    driver.decide_all(budget(dice))


def rest(driver: Driver, dice: Dice) -> None:
    driver.come_to_rest(budget=budget(dice))


def crash(driver: Driver, dice: Dice) -> None:
    """Restart. A Job whose start was due may be edited during the restart."""
    if driver.effects and dice.below(2):
        uid = dice.pick(*driver.effects)
        job = driver.jobs.get(uid)
        if job is not None and job.suspended and not job.finished:
            driver.write(uid, workload=replace(job.workload, **random_request(dice)))
    driver.start()


# --- admins and nodes


def spoil(driver: Driver, dice: Dice) -> None:
    """Delete a policy object, or change the labels of the namespace."""
    if dice.below(2):
        driver.unset(*dice.pick(*NAMES))
    else:
        driver.label("ns", dice.pick(None, {"team": "b"}))


def repair(driver: Driver, dice: Dice) -> None:
    """Write all policies that workloads may need."""
    cohort, rules = dice.pick(None, "c1"), preemption(dice)
    for value in (FLAVORS[0], FLAVORS[2], FLAVORS[4]):
        driver.set(value)
    for name, local in (("qa", "la"), ("qb", "lb")):
        driver.set(queue(name, groups=random_groups(dice), cohort=cohort, preemption=rules))
        driver.set(local_queue(local, name))
    driver.set(WorkloadPriorityClass("high", 1))
    driver.set(WorkloadPriorityClass("low", -1))
    driver.label("ns", {"team": "a"})


def add_node(driver: Driver, dice: Dice) -> None:
    """Add a node, or another one of that name and zone. No pod is bound there: all are expected (M7)."""
    number = dice.below(3)
    offered = amounts({GPU: dice.pick(0, 2, 4, 50), "cpu": 4, "pods": 4})
    taints = (Taint("spot", "yes", "NoSchedule"),) if dice.below(3) == 2 else ()
    created, zone = driver.now - timedelta(days=1), (("zone", "aba"[number]),)
    ready = dice.below(3) < 2
    driver.nodes.set(Node(f"n{number}", zone, offered, ready=ready, created_at=created, taints=taints))


def change_node(driver: Driver, dice: Dice) -> None:
    name, what = f"n{dice.below(3)}", dice.pick("fail", "return", "cordon", "open", "remove")
    node = driver.nodes.nodes.get(name)
    if node is None or what == "remove":
        driver.nodes.remove(name)
    elif what in ("cordon", "open"):
        driver.nodes.set(replace(node, cordoned=what == "cordon"))
    elif node.ready is not (what == "return"):
        driver.nodes.set(replace(node, ready=what == "return", ready_since=driver.now))


ACTIONS: tuple[Action, ...] = (
    *(submit, change, hold_for_a_moment, finish, pass_time, progress, release_by_force),
    *(answer, hear, decide, refuse, quiesce, rest, lambda driver, _: driver.relist(), crash),
    *(lambda driver, dice: driver.set(random_policy(dice)), spoil, repair, add_node, change_node),
)


def some_of(dice: Dice) -> Action:
    """Return an action that performs one of a part of the table: other bugs are in reach of a part."""
    return any_of(*([action for action in ACTIONS if dice.below(4)] or ACTIONS))
