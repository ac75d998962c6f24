"""Components of a cluster: scheduler, kubelet, training operator, Job controller.

They use only the API, so they work with a real control plane as well.
"""

from __future__ import annotations

import asyncio

from queuectl.kube.session import Session
from queuectl.sandbox.players.api import Clock
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.jobs import JOBS, JobController
from queuectl.sandbox.players.kubelet import Kubelet, Nodes
from queuectl.sandbox.players.old_events import forget_events
from queuectl.sandbox.players.pods import PODS, controller_uid, node_of
from queuectl.sandbox.players.scheduler import Scheduler
from queuectl.sandbox.players.training_operator import PYTORCHJOBS, TrainingOperator


async def play(
    api: Session, clock: Clock, *, controller_manager: bool, training_operator: bool = True
) -> None:
    """Run until cancelled. `controller_manager`: also the tasks of the real kube-controller-manager.

    Without `training_operator` the real one does that work.
    """
    pods = Informer(api, PODS, clock, {"node": node_of, "owner": controller_uid})
    nodes = Informer(api, "/api/v1/nodes", clock)
    training = Informer(api, PYTORCHJOBS, clock)
    stores = [nodes, pods, training]
    players: list[Nodes | Scheduler | Kubelet | TrainingOperator | JobController] = [
        Nodes(api, nodes, clock),
        Scheduler(api, pods, nodes, clock),
        Kubelet(api, pods, nodes, clock),
    ]
    if training_operator:
        players.append(TrainingOperator(api, training, pods, clock))
    if controller_manager:
        jobs = Informer(api, JOBS, clock)
        stores.append(jobs)
        players.append(JobController(api, jobs, pods, clock))
    async with asyncio.TaskGroup() as tasks:
        if controller_manager:
            tasks.create_task(forget_events(api, clock))
        for store in stores:
            tasks.create_task(store.run())
        # Start with complete stores: with missing objects a player would create some twice.
        for store in stores:
            await store.synced.wait()
        for player in players:
            tasks.create_task(player.queue.run())
