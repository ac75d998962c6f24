"""Readiness by ClusterQueue (docs/scheduling.md, L14, L18, L24 to L26)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Amend, Decision, Evict
from queuectl.core.features.pods_ready import readiness_rules
from queuectl.core.model.policy import RequeuingStrategy, SchedulingConfiguration, WaitForPodsReady
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import NO_PAST_ATTEMPTS, PastAttempts, WorkloadId
from queuectl.core.queues.backoff import failed
from queuectl.ledger.codec import past_from_json, past_to_json
from tests.builders import T0, admitted, flavor, local_queue, observed, policy, queue
from tests.doubles import engine_state
from tests.unit.core.node_worlds import NodeWorld, gang, node

ONE = gang("a", 2)


class Ready(NodeWorld):
    """Workload `a` of two pods in a queue with clocks of its own, started."""

    def __init__(self, **clocks: int) -> None:
        rules = WaitForPodsReady(**clocks)
        super().__init__(
            node("n0"),
            policies=[flavor("default"), queue("cq", 8, wait_for_pods_ready=rules), local_queue("lq", "cq")],
            settings=SchedulingConfiguration(pods_ready_timeout=5),
        )
        assert admitted(self.asks(ONE)) == ["a"]
        self.settle()
        self.is_ready(False)

    def is_ready(self, ready: bool | None) -> list[Decision]:
        self.tell(observed(ONE, suspended=False, generation=2, ready=ready))
        return self.run()

    def after(self, seconds: float) -> str | None:
        """Return why it is evicted after this time; None: it is not."""
        self.pass_time(seconds)
        found = [d.reason for d in self.run() if isinstance(d, Evict)]
        assert all(reason.code is Code.PODS_READY_TIMEOUT for reason in found)
        return found[0].message if found else None


def test_pods_that_are_not_bound_in_time_end_the_attempt() -> None:
    world = Ready(scheduling=60)
    world.bind("a", "n0")
    assert world.after(59) is None
    assert world.after(1) == (
        "PodsReadyTimeout at ClusterQueue/cq: its pods were not all bound to nodes 60 s after its start: "
        "schedulingTimeoutSeconds"
    )


def test_a_slow_pull_of_images_counts_for_the_startup_clock_alone() -> None:
    world = Ready(scheduling=60, startup=600)
    assert world.after(50) is None
    world.bind("a", "n0", "n0")
    world.run()
    assert world.after(599) is None
    assert world.after(1) == (
        "PodsReadyTimeout at ClusterQueue/cq: its pods were not all ready 600 s after they were bound to "
        "nodes: startupTimeoutSeconds"
    )


def test_the_startup_clock_begins_when_the_last_pod_is_bound() -> None:
    world = Ready(startup=100)
    world.bind("a", "n0")
    assert world.after(1000) is None
    world.bind("a", "n0", "n0")
    world.run()
    assert world.after(99) is None
    assert world.after(1) is not None


def test_a_pod_that_is_made_again_does_not_start_the_scheduling_clock_again() -> None:
    world = Ready(scheduling=60)
    world.bind("a", "n0", "n0")
    world.run()
    world.end_pods("a", 1)
    assert world.after(1000) is None


def test_pods_that_were_ready_may_recover_in_time() -> None:
    world = Ready(recovery=30)
    assert world.after(1000) is None
    world.is_ready(True)
    world.is_ready(False)
    assert world.after(29) is None
    world.is_ready(True)
    assert world.after(100) is None
    world.is_ready(False)
    assert world.after(29) is None
    assert world.after(1) == (
        "PodsReadyTimeout at ClusterQueue/cq: its pods were ready, and not all of them are for 30 s: "
        "recoveryTimeoutSeconds"
    )


def test_a_status_that_does_not_say_is_no_reason_to_evict() -> None:
    world = Ready(scheduling=60, startup=60, recovery=60)
    world.is_ready(None)
    assert world.after(1000) is None


def test_a_queue_without_clocks_has_none_whatever_the_configuration_says() -> None:
    assert Ready().after(1000) is None


def test_clocks_that_are_added_apply_to_running_workloads() -> None:
    world = Ready()
    rules = WaitForPodsReady(scheduling=10)
    world.pass_time(20)
    world.tell(policy(queue("cq", 8, wait_for_pods_ready=rules)))
    assert world.after(0) is not None


def test_times_are_recorded_once_with_the_time_of_the_plan() -> None:
    world = Ready(startup=100, recovery=100)
    world.now = T0.replace(minute=7)  # no event tells the engine
    world.bind("a", "n0", "n0")
    (amend,) = (d for d in world.run() if isinstance(d, Amend))
    assert amend.past.bound_at == world.now
    world.pass_time(1)
    world.is_ready(True)
    world.now = T0.replace(minute=8)
    (amend,) = (d for d in world.is_ready(False) if isinstance(d, Amend))
    assert amend.past.unready_at == world.now
    assert not [d for d in world.is_ready(False) if isinstance(d, Amend)]


def test_after_a_timeout_it_backs_off_and_keeps_its_place() -> None:
    world = Ready(scheduling=10, base_seconds=100)
    assert world.after(10) is not None
    world.end_eviction("a")
    world.tell(observed(ONE, generation=3))
    world.run()
    world.pass_time(100)
    world.submit(gang("later", 2, created=1))
    entry = engine_state.entry(world.engine, ONE.id)
    assert entry.past.bound_at is None
    assert admitted(world.run())[0] == "a"


@pytest.mark.parametrize("percent", [0, 20])
def test_the_backoff_is_longer_by_a_part_that_differs_by_workload_and_count(percent: int) -> None:
    rules = RequeuingStrategy(base_seconds=1000, most_seconds=1000, jitter_percent=percent)

    def pause(name: str, failures: int) -> float:
        past = failed(PastAttempts(failures=failures), WorkloadId(name), T0, rules, "why")
        assert past.until is not None
        return (past.until - T0).total_seconds()

    pauses = [pause(f"uid-{number}", count) for number in range(50) for count in range(4)]
    assert all(1000 <= one <= 1000 + 10 * percent for one in pauses)
    assert len(set(pauses)) > 100 if percent else set(pauses) == {1000}
    assert pauses[0] == pause("uid-0", 0), "the same each time"


def test_more_failures_than_its_queue_allows_deactivate_a_workload() -> None:
    rules = RequeuingStrategy().of_queue(WaitForPodsReady(limit=0))
    past = failed(NO_PAST_ATTEMPTS, WorkloadId("uid-a"), T0, rules, "why")
    assert past.barred is not None
    assert past.barred.code is Code.DEACTIVATED
    assert "set queuectl.dev/hold" in str(past.barred.detail)


def test_what_a_queue_does_not_say_is_as_configured() -> None:
    common = RequeuingStrategy(base_seconds=7, most_seconds=70, limit=3)
    settings = SchedulingConfiguration(pods_ready_timeout=5, requeueing=common)
    assert readiness_rules(settings, queue("cq", 1)).whole == 5
    own = WaitForPodsReady(limit=1)
    assert readiness_rules(settings, replace(queue("cq", 1), wait_for_pods_ready=own)).whole is None
    assert (common.of_queue(own).base_seconds, common.of_queue(own).limit) == (7, 1)


class InParts(Ready):
    """Its own order starts one of its two pods after the other."""

    def is_ready(self, ready: bool | None, *, held_back: int = 1) -> list[Decision]:
        state = {"ready": ready, "held_back": held_back, "not_bound": held_back}
        self.tell(observed(ONE, suspended=False, generation=2, **state))
        return self.run()

    def runs_the_second(self) -> None:
        """The first pod is bound and ready for longer than any clock, then it lets the second one run."""
        self.bind("a", "n0")
        self.is_ready(True)
        assert self.after(10_000) is None
        self.is_ready(False, held_back=0)


@pytest.mark.parametrize("clocks", [{"scheduling": 60}, {"startup": 60}, {"scheduling": 60, "startup": 60}])
def test_pods_that_its_own_order_holds_back_are_not_waited_for(clocks: dict[str, int]) -> None:
    world = InParts(**clocks)
    world.bind("a", "n0")
    world.is_ready(True)
    assert world.after(10_000) is None


def test_the_clocks_begin_again_when_its_own_order_lets_more_pods_run() -> None:
    world = InParts(scheduling=60, startup=30)
    world.runs_the_second()
    assert world.after(59) is None
    assert "all bound to nodes 60 s after" in (world.after(1) or "")


def test_pods_of_a_later_part_have_the_startup_clock_once_they_are_bound() -> None:
    world = InParts(scheduling=60, startup=600)
    world.runs_the_second()
    world.bind("a", "n0", "n0")
    world.is_ready(False, held_back=0)
    assert world.after(599) is None
    assert "startupTimeoutSeconds" in (world.after(1) or "")


def test_the_first_part_is_waited_for_as_any_start() -> None:
    world = InParts(scheduling=60, startup=600)
    assert world.after(59) is None
    assert "schedulingTimeoutSeconds" in (world.after(1) or "")


def test_a_failed_start_of_a_later_part_counts_as_one() -> None:
    world = InParts(scheduling=60)
    world.runs_the_second()
    world.pass_time(60)
    (evict,) = (d for d in world.run() if isinstance(d, Evict))
    assert evict.past is not None
    assert (evict.past.failures, evict.past.held_back, evict.past.part_at) == (1, 0, None)


def test_an_order_is_known_after_a_restart_of_the_controller() -> None:
    past = PastAttempts(held_back=3, part_at=T0)
    assert past_from_json(past_to_json(past)) == past
