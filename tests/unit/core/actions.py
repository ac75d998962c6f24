"""Random actions of users, admins, other clients, nodes and the controller, and tables of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st

from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    Event,
    PodGone,
    PodObserved,
    PolicyObserved,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import LocalQueueName, StopPolicy, WorkloadPriorityClass
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import WorkloadId, WorkloadOutcome
from tests.builders import GPU, workload
from tests.doubles.readers import ReadableLedger
from tests.unit.core.driver import Action, Driver
from tests.unit.core.plans import Law
from tests.unit.core.trees import (
    CLASSES,
    Dice,
    cluster_queue,
    cohort,
    job,
    random_setup,
    setup_on_nodes,
    some_node,
)

SETUP = st.binary(min_size=420, max_size=420)
JOBS = st.lists(st.binary(min_size=36, max_size=36), min_size=2, max_size=6)
SCRIPT = st.lists(st.binary(min_size=28, max_size=28), max_size=10)
SCRIPT_ON_NODES = st.lists(st.binary(min_size=28, max_size=28), max_size=14)
CYCLES = st.sampled_from([None, 1])
"""Cycles per plan until rest; None: unlimited."""


def any_of(*actions: Action) -> Action:
    """Return the action that performs one of these."""
    return lambda driver, dice: dice.pick(*actions)(driver, dice)


def any_job(driver: Driver, dice: Dice, *, running: bool | None = None) -> WorkloadId | None:
    """Return a Job that has not finished."""
    jobs = [
        uid
        for uid, job in driver.jobs.items()
        if job.finished is None and (running is None or job.suspended is not running)
    ]
    return dice.pick(*jobs) if jobs else None


# --- users


def submit(driver: Driver, dice: Dice) -> None:
    driver.made += 1
    driver.submit(job(dice, f"w{driver.made}", driver.setup))


def submit_some(driver: Driver, dice: Dice) -> None:
    for _ in range(1 + dice.below(3)):
        submit(driver, dice)


def finish(driver: Driver, dice: Dice) -> None:
    if uid := any_job(driver, dice, running=True):
        quiet = dice.pick(True, False)
        driver.write(uid, spec=False, finished=WorkloadOutcome.SUCCEEDED, quiet=quiet, pods=not quiet)


def end_some_pods(driver: Driver, dice: Dice) -> None:
    """Some pods of the first podset of a running workload end for good."""
    if uid := any_job(driver, dice, running=True):
        job = driver.jobs[uid]
        if (most := job.workload.pod_sets[0].count - 1) > job.ended:
            driver.write(uid, spec=False, ended=job.ended + 1 + dice.below(most - job.ended))


def delete(driver: Driver, dice: Dice) -> None:
    if uid := any_job(driver, dice):
        driver.delete(uid)


def hold(driver: Driver, dice: Dice) -> None:
    """Hold a workload, or end its hold."""
    if uid := any_job(driver, dice):
        workload = driver.jobs[uid].workload
        driver.write(uid, spec=False, workload=replace(workload, hold=not workload.hold))


def change_priority(driver: Driver, dice: Dice) -> None:
    """Change the priority of one pending workload or of a priority class."""
    uid = any_job(driver, dice, running=False)
    if uid is None or dice.below(3) == 2:
        driver.set(WorkloadPriorityClass(dice.pick(*CLASSES), dice.below(5) - 2))
    else:
        changed = replace(driver.jobs[uid].workload, priority_class=dice.pick(None, *CLASSES))
        driver.write(uid, spec=False, workload=changed)


# --- admins


def change_policy(driver: Driver, dice: Dice) -> None:
    """Change a queue or a cohort."""
    setup, known = driver.setup, driver.policy
    if setup.depth and dice.below(4) == 3:
        driver.set(cohort(dice, dice.below(setup.depth), setup.layout))
        return
    name = dice.pick(*sorted(known.queues))
    if dice.below(4) == 3:
        stop = dice.pick(StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN)
        driver.set(replace(known.queues[name], stop_policy=stop))
    else:
        driver.set(cluster_queue(dice, name, setup.depth, setup.layout))


def remove_everything(driver: Driver) -> None:
    """Delete all jobs, and all queues, cohorts and flavors in some order."""
    for uid in list(driver.jobs):
        driver.delete(uid)
    known = driver.policy
    kinds: dict[str, list[str] | list[LocalQueueName]] = {
        "ResourceFlavor": list(known.flavors),
        "ClusterQueue": list(known.queues),
        "LocalQueue": list(known.local_queues),
        "Cohort": list(known.cohorts),
    }
    for kind, names in kinds.items():
        for name in names:
            driver.unset(kind, name)
            driver.deliver()


# --- the controller and time


def decide(cycles: int | None = None) -> Action:
    return lambda driver, _: driver.decide(cycles=cycles)


def restart(driver: Driver, _: Dice) -> None:
    driver.start()
    if driver.prompt:
        driver.settle_all()


def end_pods(driver: Driver, _: Dice) -> None:
    driver.end_pods()


def wait(*seconds: int) -> Action:
    """Return the action that lets some of these numbers of seconds pass; a timer that is due is told."""

    def action(driver: Driver, dice: Dice) -> None:
        driver.now += timedelta(seconds=dice.pick(*seconds))
        driver.tell_time()

    return action


# --- nodes


def bind_some(driver: Driver, dice: Dice) -> None:
    """A scheduler binds pods of running workloads to nodes where they fit."""
    pool = driver.nodes
    for _ in range(1 + dice.below(4)):
        uid = any_job(driver, dice, running=True)
        attempt = driver.jobs[uid].admission if uid is not None else None
        if uid is None or attempt is None or not driver.jobs[uid].pods:
            continue
        for needed in pool.unbound(attempt)[:1]:
            fitting = [node.name for node in pool.nodes.values() if pool.can_run(node, needed)]
            if fitting:
                pool.run_pod(uid, dice.pick(*fitting), needed.requests, needed.pod_set)


def run_pod_of_others(driver: Driver, dice: Dice) -> None:
    node = dice.pick(*driver.nodes.nodes.values())
    requests = amounts({GPU: 1 + dice.below(2)})
    if driver.nodes.free(node).get(GPU, 0) >= requests[0][1]:
        driver.nodes.run_pod(None, node.name, requests)


def end_pod_of_others(driver: Driver, dice: Dice) -> None:
    if others := [uid for uid, pod in driver.nodes.pods.items() if pod.workload is None]:
        driver.nodes.end_pod(dice.pick(*others))


def cordon(driver: Driver, dice: Dice) -> None:
    """Cordon a node, or open it again."""
    node = dice.pick(*driver.nodes.nodes.values())
    driver.nodes.set(replace(node, cordoned=not node.cordoned))


def add_node(driver: Driver, dice: Dice) -> None:
    driver.nodes.set(some_node(dice, len(driver.nodes.nodes)))


def remove_node(driver: Driver, dice: Dice) -> None:
    pool = driver.nodes
    empty = [name for name in pool.nodes if all(pod.node != name for pod in pool.pods.values())]
    if empty and len(pool.nodes) > 1:
        pool.remove(dice.pick(*empty))


# --- other clients of the API server


def suspend(driver: Driver, dice: Dice) -> None:
    if (uid := any_job(driver, dice)) and not driver.jobs[uid].suspended:
        driver.write(uid, suspended=True)


def let_go(driver: Driver, dice: Dice) -> None:
    if (uid := any_job(driver, dice)) and driver.jobs[uid].suspended:
        driver.write(uid, suspended=False, pods=True)


def toggle(driver: Driver, dice: Dice) -> None:
    """Suspend a workload that runs and start it again, perhaps with a plan or a write between."""
    uid = any_job(driver, dice)
    if uid is None or driver.jobs[uid].suspended:
        return
    driver.write(uid, suspended=True)
    if dice.below(2):
        driver.deliver()
    if dice.below(2):
        driver.decide()
    if dice.below(2) and uid in driver.effects:
        driver.settle(uid)
    if uid in driver.jobs and driver.jobs[uid].suspended:
        driver.write(uid, suspended=False, pods=True)


def edit_annotation(driver: Driver, dice: Dice) -> None:
    uid = any_job(driver, dice)
    marked = driver.jobs[uid].admission if uid is not None else None
    if uid is not None and marked is not None:
        number = dice.pick(marked.number, marked.number + 3, max(1, marked.number - 1))
        driver.write(uid, spec=False, edited=True, admission=dice.pick(None, replace(marked, number=number)))


def make_again(driver: Driver, dice: Dice) -> None:
    """Delete an object, and make it again with the same name."""
    if uid := any_job(driver, dice):
        driver.made += 1
        former, again = driver.jobs[uid].workload, WorkloadId(f"uid-w{driver.made}")
        driver.delete(uid)
        driver.submit(replace(former, id=again, ref=former.ref._replace(uid=again)))


def submit_of_four_gpus(driver: Driver, dice: Dice) -> None:
    driver.made += 1
    priority = dice.mostly(None, "high")
    driver.submit(workload(f"w{driver.made}", gpus=1 + dice.below(4), priority_class=priority))


def settle_one(driver: Driver, dice: Dice) -> None:
    if driver.effects:
        driver.settle(dice.pick(*sorted(driver.effects)))


def take_a_round(driver: Driver, _: Dice) -> None:
    """A round of a controller that is not disturbed."""
    driver.deliver()
    driver.decide_all()
    driver.settle_all()
    driver.end_pods()
    driver.decide_all()


def other_clients() -> Action:
    """Return what other clients do, with dumps of the ledger, one of which may be restored."""
    dumps: list[ReadableLedger] = []

    def dump(driver: Driver, _: Dice) -> None:
        dumps.append(copy.deepcopy(driver.ledger))

    def restore(driver: Driver, dice: Dice) -> None:
        if dumps:
            # A restore takes time: no later admission has the time of one that is lost (`Attempt.is_same`).
            driver.now += timedelta(seconds=1)
            driver.ledger = copy.deepcopy(dice.pick(*dumps))
            driver.start()

    return any_of(
        *(submit_of_four_gpus, take_a_round, suspend, let_go, toggle),
        lambda driver, _: driver.deliver(),
        *(decide(), settle_one, lambda driver, _: driver.end_and_count_pods(), edit_annotation),
        *(delete, make_again, dump, restore, restart, hold, wait(1, 20, 600)),
        *(take_a_round, submit_of_four_gpus, restore),
    )


# --- tables

ON_QUOTA = any_of(
    *(submit_some, decide(1), decide(), submit_some, end_pods, finish, decide(1)),
    lambda driver, dice: driver.decide(budget=1 + dice.below(4)),
    lambda driver, dice: driver.decide(cycles=1 + dice.below(3)),
    *(delete, hold, change_priority, change_policy, wait(1, 6, 20, 4000), end_some_pods, restart, decide()),
)
CHANGES_OF_NODES = any_of(run_pod_of_others, end_pod_of_others, cordon, add_node, remove_node)
ON_NODES = any_of(ON_QUOTA, bind_some, ON_QUOTA, CHANGES_OF_NODES, bind_some)
UNDER_PRESSURE = any_of(
    *(submit_some, decide(1), bind_some, decide(), bind_some, end_pods, CHANGES_OF_NODES),
    *(submit_some, decide(), finish),
)
"""As `ON_NODES`, without what ends claims: no policy, hold, priority or process changes."""
EVENTS = any_of(submit, finish, delete, hold, change_priority, change_policy)


def random_event(driver: Driver, dice: Dice) -> Event | None:
    """Perform one random action and return its event without delivery; None: no event."""
    on_nodes = driver.nodes.nodes and not dice.below(2)
    (CHANGES_OF_NODES if on_nodes else EVENTS)(driver, dice)
    events, driver.watch = driver.watch, []
    return events[-1] if events else None


def subject_of(event: Event) -> str:
    """Return what identifies the object of an event."""
    match event:
        case WorkloadObserved():
            return event.workload.id
        case WorkloadGone():
            return event.workload
        case PolicyObserved():
            return str(event.key)
        case PodObserved():
            return event.pod.uid
        case PodGone():
            return event.uid
        case ContextObserved():
            return f"node {event.value.name}"
        case ContextGone():
            return f"node {event.name}"
    raise AssertionError(event)


def play(driver: Driver, jobs: Sequence[bytes], script: Sequence[bytes]) -> Driver:
    """Submit jobs, then perform random actions, and return the driver."""
    for data in jobs:
        submit_some(driver, Dice(data))
    driver.deliver()
    for data in script:
        driver.act(Dice(data))
    return driver


def on_quota(data: bytes, *laws: Law, guarded: bool = True) -> Driver:
    """Return a driver with a random policy, whose plans the laws and the ledger check."""
    return Driver(random_setup(Dice(data), guarded=guarded), *laws, actions=ON_QUOTA)


def on_nodes(data: bytes, *laws: Law) -> Driver:
    return Driver(setup_on_nodes(Dice(data)), *laws, actions=ON_NODES)
