"""What is restricted is not admitted while no gate checks who may name it (G5)."""

from __future__ import annotations

from collections.abc import Callable

from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.policy import Gate, WorkloadPriorityClass
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Workload
from tests.builders import T0, World, admitted, local_queue, policy, queue, workload

GATE = Gate("queuectl-jobs", T0)
URGENT = WorkloadPriorityClass("urgent", 9, restricted=True)
NOT_CHECKED = "it is restricted, and the gate, which checks who may use it, is not in force"
RESTRICTED: dict[str, Callable[[], Workload]] = {
    "WorkloadPriorityClass/urgent": lambda: workload("a", gpus=1, priority_class="urgent"),
    "LocalQueue/ns/vip": lambda: workload("a", "vip", 1),
}


def world() -> World:
    return World(queue("cq", 4), local_queue("lq", "cq"), local_queue("vip", "cq", restricted=True), URGENT)


def test_without_a_gate_what_names_something_restricted_waits_and_says_why() -> None:
    for node, names_it in RESTRICTED.items():
        without = world()
        without.submit(names_it(), workload("b"))
        assert admitted(without.run()) == ["b"]
        reason = without.reason("a")
        assert reason is not None
        assert (reason.code, reason.node, reason.detail) == (Code.MISCONFIGURED, node, NOT_CHECKED)


def test_it_is_admitted_once_the_gate_is_in_force_and_waits_again_when_that_is_gone() -> None:
    for names_it in RESTRICTED.values():
        watched = world()
        watched.submit(names_it())
        assert admitted(watched.run()) == []
        watched.tell(ContextObserved(GATE))
        assert admitted(watched.run()) == ["a"]
    watched = world()
    watched.tell(ContextObserved(GATE))
    watched.submit(workload("large", gpus=4))
    watched.run()
    watched.submit(workload("a", gpus=4, created=1, priority_class="urgent"))
    watched.run()
    watched.tell(ContextGone(Gate, GATE.name))
    watched.run()
    reason = watched.reason("a")
    assert reason is not None
    assert reason.detail == NOT_CHECKED


def test_the_default_class_and_what_is_not_restricted_need_no_gate() -> None:
    default = WorkloadPriorityClass("default", 9, restricted=True)
    without = World(queue("cq", 4), local_queue("lq", "cq"), default)
    without.submit(workload("a"))
    assert admitted(without.run()) == ["a"]


def test_a_class_that_becomes_restricted_keeps_what_runs_and_stops_what_waits() -> None:
    free = WorkloadPriorityClass("urgent", 9)
    without = World(queue("cq", 4), local_queue("lq", "cq"), free)
    without.submit(workload("a", gpus=4, priority_class="urgent"))
    without.submit(workload("b", gpus=4, created=1, priority_class="urgent"))
    assert admitted(without.run()) == ["a"]
    without.tell(policy(URGENT))
    without.run()
    reason = without.reason("b")
    assert reason is not None
    assert reason.node == "WorkloadPriorityClass/urgent"
    assert without.reason("a") is None
