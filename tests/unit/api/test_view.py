"""The state in memory follows the ledger."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from datetime import timedelta

from queuectl.answers.state import CommittedState
from queuectl.api.view import View
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.policy import AdmissionFairSharing, Node, Policy, SchedulingConfiguration
from queuectl.core.model.workload import ConfigKey, PendingLine, Phase, PodsReady, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.ports.ledger import LedgerUnavailable, SchemaMismatch
from queuectl.ports.reader import GONE_KEPT, Reading
from tests.unit.api.canned import AWAY, WAITS, CannedReadings, queue_spec, two_teams, workload


def state(view: View) -> CommittedState:
    sight = view.sight()
    assert sight is not None
    return sight.state


def test_workloads_around_queues_are_those_that_hold_their_quota_or_wait_there_or_in_none() -> None:
    runs = workload("runs", 3, gpus=1, phase=Phase.ADMITTED)
    rows = (
        workload("waits", 1),
        workload("elsewhere", 2, cluster_queue="team-b"),
        runs,
        replace(runs, id=WorkloadId("uid-4"), cluster_queue="team-b"),
        replace(runs, id=WorkloadId("uid-5"), attempt=None, cluster_queue=None, phase=Phase.PENDING),
    )
    time = rows[0].created_at
    reading = Reading(
        sequence=1, committed_at=time, read_at=time, epoch=1, workloads=rows, configs=(), batch=1
    )
    found = CommittedState().advance(reading, parse_policy)
    assert {one.id for one in found.around({"team-a"})} == {"uid-1", "uid-3", "uid-4", "uid-5"}
    assert {one.id for one in found.around({"team-b"})} == {"uid-2", "uid-4", "uid-5"}


def test_a_workload_that_ended_and_came_again_since_the_last_reading_counts_once() -> None:
    """A group of pods keeps its id."""
    one = workload("group", 1)
    time = one.created_at
    reading = Reading(
        sequence=1, committed_at=time, read_at=time, epoch=1, workloads=(one,), configs=(), batch=1
    )
    before = CommittedState().advance(reading, parse_policy)
    again = replace(one, arrival=one.arrival + 1)
    rows = (replace(one, phase=Phase.DELETED, cluster_queue=None), again)
    found = before.advance(replace(reading, sequence=3, workloads=rows), parse_policy)
    assert dict(found.workloads) == {one.id: again}
    assert list(found.counts.values()) == [(1, 0)]
    assert list(found.arrivals.values()) == [((again.arrival, one.id),)]


async def test_only_new_rows_are_read() -> None:
    readings = two_teams()
    view = View(readings, parse_policy)
    await view.refresh()
    await view.refresh()
    readings.commit(workload("more", 9))
    await view.refresh()
    assert readings.reads == [0, 2, 2]
    assert state(view).sequence == 3


async def test_ready_pods_are_read_without_a_decision() -> None:
    readings = CannedReadings()
    runs = workload("runs", 1, phase=Phase.ADMITTED, gpus=1)
    readings.commit(runs)
    view = View(readings, parse_policy)
    await view.refresh()
    assert state(view).ready(runs) is None
    readings.ready(PodsReady(runs.id, 1, 2))
    await view.refresh()
    assert state(view).ready(runs) == 2
    readings.ready(PodsReady(runs.id, 2, 0))  # of another attempt
    await view.refresh()
    assert state(view).ready(runs) is None
    readings.end(runs)
    await view.refresh()
    assert not state(view).pods_ready


async def test_nodes_are_those_that_were_told_last_and_are_all_read_again_after_too_many_batches() -> None:
    readings = CannedReadings()
    readings.commit(workload("waits", 1))
    view = View(readings, parse_policy)
    there = {name: NodeFacts(name=name, node=Node(name)) for name in ("a", "b", "c")}
    for one in there.values():
        readings.node(one)
    await view.refresh()
    assert state(view).nodes == there
    cordoned = replace(there["b"], node=Node("b", cordoned=True))
    readings.node(cordoned)
    readings.node(NodeFacts(name="c", node=None))
    await view.refresh()
    assert state(view).nodes == {"a": there["a"], "b": cordoned}
    del readings._nodes["b"]  # the ledger said that it is gone, and has forgotten that
    readings.batch += GONE_KEPT
    await view.refresh()
    assert state(view).nodes == {"a": there["a"], "b": cordoned}, "not too many"
    readings.batch += GONE_KEPT + 1
    await view.refresh()
    assert state(view).nodes == {"a": there["a"]}


async def test_where_past_usage_orders_a_queue_positions_are_those_that_the_controller_told() -> None:
    readings = CannedReadings()
    spec = json.loads(queue_spec(8)) | {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    sharing = AdmissionFairSharing(half_life=3600, sampling_interval=60)
    configs: dict[ConfigKey, str | None] = {
        ConfigKey("ClusterQueue", "", "team-a"): json.dumps(spec),
        ConfigKey("Configuration", "", "queuectl"): "{}",
    }
    one, two, three = (workload(f"w{number}", number, reason=WAITS) for number in (1, 2, 3))
    readings.commit(one, two, three, configs=configs)
    view = View(readings, parse_policy, configure=lambda spec: SchedulingConfiguration(usage_sharing=sharing))
    await view.refresh()
    assert [state(view).position(each) for each in (one, two, three)] == [None, None, None]
    readings.line(PendingLine("team-a", (three.id, one.id, two.id)))
    await view.refresh()
    assert [state(view).position(each) for each in (one, two, three)] == [2, 3, 1]
    assert state(view).ahead(two, 2) == [three, one]
    readings.end(three)
    await view.refresh()
    assert [state(view).position(each) for each in (one, two)] == [1, 2]


async def test_incremental_reads_lead_to_the_same_state_as_one_read() -> None:
    dice = random.Random(7)
    readings = CannedReadings()
    readings.commit(configs={ConfigKey("ClusterQueue", "", name): queue_spec(8) for name in ("a", "b")})
    view = View(readings, parse_policy)
    for _ in range(300):
        arrival = dice.randrange(1, 40)
        queue, phase = dice.choice("ab"), dice.choice(list(Phase))
        held = 1 if phase in (Phase.ADMITTED, Phase.EVICTING) else None
        readings.commit(
            workload(
                f"w-{arrival % 7}",
                arrival,
                queue=queue,
                cluster_queue=queue,
                phase=phase,
                gpus=held,
                priority=dice.randrange(3),
                reason=dice.choice((None, WAITS)),
            )
        )
        if dice.random() < 0.1:
            spec = dice.choice((None, queue_spec(8)))
            readings.commit(configs={ConfigKey("ClusterQueue", "", dice.choice("ab")): spec})
        if dice.random() < 0.5:
            await view.refresh()
    await view.refresh()
    fresh = View(readings, parse_policy)
    await fresh.refresh()
    stepped, whole = state(view), state(fresh)
    assert stepped.workloads == whole.workloads
    assert stepped.arrivals == whole.arrivals
    assert stepped.in_queues == whole.in_queues
    assert stepped.names == whole.names
    assert stepped.counts == whole.counts
    assert stepped.policies == whole.policies
    assert set(stepped.queues) == set(whole.queues)
    for name, expected in whole.queues.items():
        other = stepped.queues[name]
        assert (other.workloads.order, other.used, other.pending) == (
            expected.workloads.order,
            expected.used,
            expected.pending,
        )
        assert (other.condition, set(other.holders)) == (expected.condition, set(expected.holders))


async def test_a_returned_state_never_changes() -> None:
    readings = two_teams()
    view = View(readings, parse_policy)
    await view.refresh()
    before = state(view)
    positions, line = list(before.queues["team-a"].workloads.order), dict(before.arrivals)
    readings.end(workload("waits", 3))
    await view.refresh()
    assert (before.queues["team-a"].workloads.order, before.arrivals) == (positions, line)
    assert before.find("default", "Job", "waits") is not None
    assert state(view).find("default", "Job", "waits") is None


async def test_a_replaced_ledger_is_read_from_the_start() -> None:
    readings = two_teams()
    view = View(readings, parse_policy)
    await view.refresh()
    for change in ("shorter", "other epoch", "was away"):
        other = CannedReadings()
        other.commit(workload(change.replace(" ", "-"), 1))
        if change != "shorter":
            other.sequence = 5
            other.epoch = 2 if change == "other epoch" else 1
        if change == "was away":
            readings.down = AWAY
            await view.refresh()
        view._readings = other
        await view.refresh()
        assert [one.ref.name for one in state(view).workloads.values()] == [change.replace(" ", "-")]
        readings = other


async def test_age_grows_until_the_ledger_confirms_the_state_again() -> None:
    now = [100.0]
    readings = two_teams()
    view = View(readings, parse_policy, clock=lambda: now[0])
    await view.refresh()
    now[0] = 104.0
    sight = view.sight()
    assert sight is not None
    assert (sight.age_seconds, sight.stale) == (4.0, False)
    readings.down = SchemaMismatch("the ledger is of version 9")
    await view.refresh()
    sight = view.sight()
    assert sight is not None
    assert (sight.age_seconds, sight.stale) == (4.0, True)
    assert view.problem == "the ledger is of version 9"
    readings.down = None
    await view.refresh()
    sight = view.sight()
    assert sight is not None
    assert (sight.age_seconds, sight.stale) == (0.0, False)


class Silent(CannedReadings):
    """Does not answer until `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.answer = asyncio.Event()
        self.answer.set()

    async def since(self, sequence: int, batch: int = 0) -> Reading:
        self.asked += 1
        await self.answer.wait()
        return await super().since(sequence, batch)


async def test_a_ledger_that_does_not_answer_makes_the_state_stale_before_the_timeout() -> None:
    now = [100.0]
    readings = Silent()
    view = View(readings, parse_policy, clock=lambda: now[0])
    await view.refresh()
    readings.answer.clear()
    now[0] = 100.5
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(view.refresh())
        while readings.asked < 2:
            await asyncio.sleep(0)
        for passed, stale in ((1.0, False), (3.0, True)):
            now[0] = 100.0 + passed
            sight = view.sight()
            assert sight is not None
            assert (sight.age_seconds, sight.stale) == (passed, stale)
        readings.answer.set()
        await looking
    sight = view.sight()
    assert sight is not None
    assert (sight.age_seconds, sight.stale) == (2.5, False)


async def test_the_silence_of_the_controller_grows_while_the_ledger_confirms_the_state() -> None:
    now = [100.0]
    readings = CannedReadings()
    view = View(readings, parse_policy, clock=lambda: now[0])
    for passed in (0, 20, 40):
        readings.silence = timedelta(seconds=passed)
        await view.refresh()
        now[0] += 1.0
        sight = view.sight()
        assert sight is not None
        assert (sight.age_seconds, sight.silent_seconds) == (1.0, passed + 1.0)


async def test_a_ledger_that_cannot_be_parsed_leaves_the_last_state_and_makes_it_stale() -> None:
    def broken(key: ConfigKey, spec: str) -> Policy:
        raise KeyError("an unexpected error")

    readings = two_teams()
    view = View(readings, lambda key, spec: parse(key, spec))
    parse = parse_policy
    await view.refresh()
    known = state(view)
    parse = broken
    readings.commit(configs={ConfigKey("ClusterQueue", "", "team-a"): queue_spec(9)})
    await view.refresh()
    sight = view.sight()
    assert sight is not None
    assert (sight.state, sight.stale) == (known, True)
    parse = parse_policy
    await view.refresh()
    assert view.problem is None


async def test_requests_that_wait_for_a_ledger_share_one_read() -> None:
    now = [100.0]
    readings = Silent()
    view = View(readings, parse_policy, clock=lambda: now[0])
    await view.refresh()
    readings.down = LedgerUnavailable("gone")
    readings.answer.clear()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(view.refresh())
        now[0] = 101.0
        for _ in range(10):
            tasks.create_task(view.refresh(view.moment()))
        while readings.asked < 2:
            await asyncio.sleep(0)
        readings.answer.set()
    assert readings.asked <= 3
    assert view.problem == "gone"


async def test_a_spec_that_cannot_be_read_makes_only_its_queue_inactive() -> None:
    readings = two_teams()
    readings.commit(
        configs={
            ConfigKey("ClusterQueue", "", "odd"): '{"resourceGroups": 7}',
            ConfigKey("ClusterQueue", "", "broken"): "{",
            ConfigKey("Component", "", "queuectl"): '{"controller": {}}',
        }
    )
    view = View(readings, parse_policy)
    await view.refresh()
    queues = state(view).queues
    assert queues["odd"].condition.reason == "InvalidSpec"
    assert queues["broken"].condition.reason == "InvalidSpec"
    assert queues["team-a"].condition.active


async def test_a_commit_costs_nothing_if_it_changes_nothing() -> None:
    readings = two_teams()
    readings.commit(*(workload(f"w-{n}", 100 + n, namespace=f"ns-{n % 10}") for n in range(500)))
    view = View(readings, parse_policy)
    await view.refresh()
    before = state(view)
    readings.end(workload("w-7", 107, namespace="ns-7"))
    await view.refresh()
    after = state(view)
    for namespace in before.arrivals:
        kept = after.arrivals[namespace] is before.arrivals[namespace]
        assert kept == (namespace != "ns-7")
    assert after.queues["team-b"] is before.queues["team-b"]
    assert after.queues["team-a"].workloads.holders is before.queues["team-a"].workloads.holders
    assert after.policies is before.policies
    assert len(after.queues["team-a"].workloads.order) == len(before.queues["team-a"].workloads.order) - 1
