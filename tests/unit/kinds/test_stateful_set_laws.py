"""Laws of a StatefulSet whose pods are a group: it is scaled, pods are lost, workloads are stopped, and both
watches tell it late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.events import Event, WorkloadGone, WorkloadObserved
from queuectl.kinds.group_owners import Replicas
from queuectl.kinds.pod_group import POD_GROUP, Unit, units
from queuectl.kinds.pod_group_members import member
from queuectl.kube.pod_groups import LedgerGroups, PodGroups
from tests.unit.kinds.test_pod_group import started
from tests.unit.kinds.test_stateful_set import Watched, replica, total

Json = dict[str, Any]
_MOST = 6
_RESTS = 200


class Cluster:
    """Its controller, a queue with quota for all, and the ledger as far as it counts pods."""

    def __init__(self, *, in_order: bool) -> None:
        self.in_order = in_order
        self.replicas = 0
        self.pods: dict[int, Json] = {}
        self.watched = Watched()
        self.streams: tuple[deque[Callable[[], list[Event]]], ...] = (deque(), deque())
        self.waits: dict[str, int] = {}
        self.charged: dict[str, int] = {}
        self.allowed: dict[str, int] = {}
        self.unstarted: set[str] = set()
        self.made = 100
        self.pod_set = ""

    # --- what happens

    def scale(self, replicas: int) -> None:
        self.replicas = replicas
        self.streams[1].append(lambda: self.watched.scaled(replicas))

    def control(self) -> bool:
        """One step of its controller. Returns whether there was any."""
        beyond = [ordinal for ordinal in self.pods if ordinal >= self.replicas]
        missing = [ordinal for ordinal in range(self.replicas) if ordinal not in self.pods]
        if beyond:
            self.lose(max(beyond))
        elif missing and not (self.in_order and any(self.gated(one) for one in range(missing[0]))):
            self.made += 1
            one = replica(missing[0], uid=f"uid-{self.made}")
            one["metadata"]["creationTimestamp"] = f"2026-11-27T07:{self.made // 60:02}:{self.made % 60:02}Z"
            self.pods[missing[0]] = one
            self.tell(one)
        else:
            return False
        return True

    def gated(self, ordinal: int) -> bool:
        return bool(self.pods[ordinal]["spec"]["schedulingGates"])

    def lose(self, ordinal: int) -> None:
        if (one := self.pods.pop(ordinal, None)) is not None:
            self.streams[0].append(lambda: self.watched.gone(one))

    def tell(self, one: Json) -> None:
        self.made += 1
        one["metadata"]["resourceVersion"] = str(self.made)
        self.streams[0].append(lambda: self.watched.there(one))

    # --- what queuectl does

    def deliver(self, stream: int) -> bool:
        if not self.streams[stream]:
            return False
        for event in self.streams[stream].popleft()():
            if isinstance(event, WorkloadGone):
                self.forget(event.workload)
            elif isinstance(event, WorkloadObserved):
                self.see(event)
        return True

    def see(self, event: WorkloadObserved) -> None:
        id, count = event.workload.id, total(event)
        self.pod_set = next((one.name for one in event.workload.pod_sets), self.pod_set)
        self.forget(id, charge=False)
        if not event.observation.suspended:
            self.allowed[id] = count
            if event.observation.unstarted:
                self.unstarted.add(id)
        elif event.workload.problem is None:
            self.waits[id] = count

    def forget(self, id: str, *, charge: bool = True) -> None:
        self.waits.pop(id, None)
        self.unstarted.discard(id)
        if charge:
            self.charged.pop(id, None)
            self.allowed.pop(id, None)

    def shrink(self) -> bool:
        """Charge less where its pods were counted, and no more are alive than it may have."""
        due = {id for id, most in self.allowed.items() if self.alive(id) <= most < self.charged.get(id, 0)}
        for id in due:
            self.charged[id] = self.allowed[id]
        return bool(due)

    def alive(self, id: str) -> int:
        labels = (one["metadata"]["labels"] for one in self.pods.values())
        return sum(one.get("queuectl.dev/workload") == id for one in labels)

    def start(self) -> bool:
        """The next start that is due, as far as its quota goes. Returns whether there was any."""
        due = sorted({*self.waits, *self.unstarted})
        if not due:
            return False
        id = due[0]
        unit, quota = self.unit(id), self.waits.get(id, self.charged.get(id, 0))
        self.forget(id, charge=False)
        # Its pods are gone, or it is another one by now, of which it was not told yet: refused.
        if unit is None or (not unit.started and sum(unit.counts.values()) != quota):
            return True
        self.charged[id] = quota
        alive = sum(one.alive for one in unit.started)
        started([], unit=unit, count=max(0, quota - alive))
        for one in unit.held:
            self.tell(self.pods[int(one.name.rpartition("-")[2])])
        return True

    def unit(self, id: str) -> Unit | None:
        found = units(map(member, self.pods.values()), known={id}, owner=Replicas(self.replicas))
        return next((one for one in found if one.id == id), None)

    def restart(self) -> None:
        """Another controller, which knows what the ledger has, reads all again."""
        ledger = LedgerGroups()
        ledger.past = {id: {} for id in {*self.charged, *self.waits}}
        ledger.most = {id: {self.pod_set: count} for id, count in self.charged.items()}
        self.watched.groups = PodGroups(POD_GROUP, ledger=ledger)
        for known in (self.waits, self.allowed):
            known.clear()
        self.unstarted.clear()
        for stream in self.streams:
            stream.clear()
        self.scale(self.replicas)
        there = list(self.pods.values())
        self.streams[0].append(lambda: self.watched.there(*there))
        left = {one["metadata"]["labels"].get("queuectl.dev/workload") for one in self.pods.values()}
        for id in self.charged.keys() - left:
            del self.charged[id]

    def stop(self) -> None:
        """Evict the first workload that runs."""
        for ordinal in [*self.pods]:
            workload = self.pods[ordinal]["metadata"]["labels"].get("queuectl.dev/workload")
            if workload == min(self.charged, default=None):
                self.lose(ordinal)

    # --- what holds

    def check(self) -> None:
        """No pod runs beyond what its workload is charged for."""
        for id, most in self.charged.items():
            assert self.alive(id) <= most, id

    def rest(self) -> None:
        """All run in the end, and as many are charged."""
        for _ in range(_RESTS):
            steps = [self.deliver(0), self.deliver(1), self.control(), self.start(), self.shrink()]
            self.check()
            if not any(steps):
                break
        assert sorted(self.pods) == list(range(self.replicas))
        assert not any(map(self.gated, self.pods)), (self.waits, self.charged)
        assert sum(self.charged.values()) == self.replicas


_STEP = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, _MOST)),
    st.tuples(st.sampled_from(["deliver", "lose"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["control", "start", "shrink", "stop", "restart", "rest"]), st.just(0)),
)


@given(in_order=st.booleans(), steps=st.lists(_STEP, max_size=40))
def test_all_pods_run_in_the_end_and_as_many_are_charged(
    in_order: bool, steps: list[tuple[str, int]]
) -> None:
    cluster = Cluster(in_order=in_order)
    for what, number in steps:
        match what:
            case "scale":
                cluster.scale(number)
            case "deliver":
                cluster.deliver(number)
            case "lose":
                cluster.lose(number)
            case "control":
                cluster.control()
            case "start":
                cluster.start()
            case "shrink":
                cluster.shrink()
            case "restart":
                cluster.restart()
            case "stop":
                cluster.stop()
            case _:
                cluster.rest()
        cluster.check()
    cluster.rest()
