"""Worlds with nodes and pods on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queuectl.core.decisions import Decision, Keep
from queuectl.core.model.events import ContextGone, ContextObserved, PodGone, PodObserved, PodsCounted
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Node, Policy, SchedulingConfiguration, Taint
from queuectl.core.model.reasons import ExcludedNodes, Reason
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import Workload, WorkloadId, WorkloadOutcome
from tests.builders import GPU, World, flavor, local_queue, observed, pod_set, queue, workload
from tests.doubles import engine_state


def node(
    name: str,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    *,
    ready: bool = True,
    cordoned: bool = False,
    taints: Iterable[Taint] = (),
    conditions: Iterable[tuple[str, str]] = (),
    others: Mapping[str, int] | None = None,
) -> Node:
    return Node(
        name,
        tuple(sorted((labels or {}).items())),
        amounts({GPU: gpus, "cpu": 64_000, "pods": 110, **(others or {})}),
        ready=ready,
        cordoned=cordoned,
        taints=tuple(taints),
        conditions=tuple(conditions),
    )


def gang(name: str, pods: int, gpus: int = 1, **fields: object) -> Workload:
    """A workload of `pods` pods with `gpus` each."""
    return workload(name, pods=[pod_set(pods, {GPU: gpus})], **fields)  # type: ignore[arg-type]


class NodeWorld(World):
    """One ClusterQueue with more quota than there are devices, unless policies say otherwise."""

    def __init__(
        self,
        *nodes: Node,
        policies: Iterable[Policy] = (),
        settings: SchedulingConfiguration | None = None,
    ) -> None:
        found = tuple(policies) or (flavor("default"), queue("cq", 1000), local_queue("lq", "cq"))
        super().__init__(*found, settings=settings or SchedulingConfiguration(cooldown=0))
        self.tell(*map(ContextObserved, nodes))

    def nodes(self, *nodes: Node) -> None:
        self.tell(*map(ContextObserved, nodes))

    def lose(self, name: str) -> None:
        """The Node object is deleted."""
        self.tell(ContextGone(Node, name))

    def bind(self, work: str | None, *where: str, gpus: int = 1, **fields: object) -> None:
        """Pods of a workload run on these nodes; None: pods that no queue knows."""
        self.tell(
            *(
                PodObserved(
                    Pod(
                        uid=f"{work}-{number}",
                        namespace="ns",
                        name=f"{work}-{number}",
                        node=place,
                        requests=amounts({GPU: gpus}),
                        workload=WorkloadId(f"uid-{work}") if work is not None else None,
                        **fields,  # type: ignore[arg-type]
                    )
                )
                for number, place in enumerate(where)
            )
        )

    def end_pods(self, work: str | None, count: int) -> None:
        self.tell(*(PodGone(f"{work}-{number}") for number in range(count)))

    def finish(self, one: Workload) -> None:
        """Its object is finished, and by its status none of its pods is alive."""
        self.settle()
        self.tell(
            observed(one, suspended=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True, generation=2)
        )

    def end_eviction(self, name: str, attempt: int = 1) -> None:
        """The object of an evicted workload has stopped, and a count of its pods finds none alive."""
        self.settle(generation=attempt + 2)
        self.run()
        self.tell(PodsCounted(WorkloadId(f"uid-{name}"), attempt, alive=False))
        self.run()

    def asks(self, one: Workload) -> list[Decision]:
        self.submit(one)
        return self.run()

    def free(self) -> dict[str, int]:
        """Free devices by node, without what is expected there."""
        number = engine_state.room(self.engine).inventory.resources[GPU]
        return {name: free[number] for name, free in engine_state.free_on_nodes(self.engine).items()}


def reasons(decisions: Iterable[Decision]) -> dict[str, Reason]:
    return {d.ref.name: d.reason for d in decisions if isinstance(d, Keep)}


def excluded(found: Reason) -> list[tuple[int, str]]:
    """The nodes that the pods cannot use: how many, and why."""
    return [(one.nodes, one.why) for one in found.nodes if isinstance(one, ExcludedNodes)]
