"""After the faults: does all come to rest, is what is at rest right, and does all end?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from queuectl.controller.loop import last_valid
from queuectl.core.decisions import Keep, Verdict
from queuectl.core.engine import Engine
from queuectl.core.model.events import ConfigurationObserved, Event, OutcomesRead, TimeCame
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import (
    AttemptState,
    EffectKey,
    ObjectRef,
    StoredWorkload,
    WorkloadOutcome,
)
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kinds import patches
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.kinds.labels import MAX_RUN_LABEL
from queuectl.kinds.patches import TO_FAIL
from queuectl.kinds.pod_group import POD_GROUP
from queuectl.kinds.reserved_keys import GROUP_SIZE, WORKLOAD_LABEL
from queuectl.kinds.single_pod import POD
from queuectl.kinds.stop_annotations import ENDS
from queuectl.kinds.workloads import finished
from queuectl.kube.pod_groups import LedgerGroups
from queuectl.kube.reflectors import reflectors
from queuectl.kube.sources import sources
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.pods import controller_uid, ended, node_of
from tests.acceptance.chaos.witness import attempt as attempt_on
from tests.doubles import engine_state, invariants
from tests.world import objects
from tests.world.objects import gpus_of
from tests.world.oracles import PODS, WORKLOADS, is_deleted, members, single_pods
from tests.world.readers import LATEST
from tests.world.replica import KINDS, LOSS_SECONDS, SETTINGS
from tests.world.schedule import NODES, Step

if TYPE_CHECKING:
    from tests.world.actions import Actions
    from tests.world.world import World

_STATUSES_WRITTEN: Final = 10.0
"""Seconds after a takeover in which the statuses of all queues are written."""
_STILL, _STILL_AFTER_FAULTS = 15.0, 40.0
"""Seconds without a write: longer than pods take to end; than every backoff."""
_STILL_UNDONE: Final = 2 * (TO_FAIL + 40.0)
"""Where a write is not acknowledged or an attempt is evicted: longer than a stop waits for the operator to
fail its object, or for a pod that may be on its way, with 30 s between two tries. Twice: a count of pods is
void if an event meanwhile said that the object runs, which a watch that lags may say late."""
_AFTER_SILENCE: Final = 120.0
"""Seconds after a watch fell silent or a request was left without an answer: longer than until a silent
watch is found, and than a page of a list is waited for."""
_MOST_READ: Final = 100
"""Names of workloads in one query about outcomes."""
_MAX_RUN: Final = 4
_PROMPT: Final = (
    ("p0", "team-a", "Job", 1, 8, 4),
    ("p1", "guests", "", 2, 4, 3),
    ("p2", "guests", "Job", 1, 8, 1000),
)
"""Name, namespace, kind (empty: of an operator), pods, GPUs of each, seconds. The first has all that its team
owns and can borrow. The second, whose team owns nothing, waits for it. The last waits for both and has a
maximum run time: then nothing happens but that time comes."""
_PROMPT_EVERY: Final = 4
"""It is the most costly part of a short schedule, and the same in all: only each fourth seed has it."""
_PROMPT_SECONDS: Final = 17.0
"""They take 13."""
_AT_ONCE: Final = 2.0
"""Seconds within which a controller without faults stores what it sees and what it has done."""
_RESTS: Final = 600.0
"""Seconds in which it must come to rest after the faults: silent watches, backoffs and a Lease that ends add
up to some 200, and what fits then runs for up to 30 each."""


class Judge:
    def __init__(self, world: World, actions: Actions) -> None:
        self._world, self._actions = world, actions
        self._violated = world.safety.violated

    async def judge(self) -> None:
        for last in (False, False, True):
            fresh = await self._restarted_at_rest()
            if fresh is None or await self._equivalence(fresh, last=last):
                break
        await self._actions.end_the_long()
        if await self._rests("after all was deleted", first=False):
            self._nothing_left()
            if self._world.schedule.seed % _PROMPT_EVERY == 0:
                await self._prompt()
            if self._world.schedule.has("nodes") and self._world.jump == self._world.most_jump:
                await self._lose_node()

    def _still(self) -> float:
        return _STILL_AFTER_FAULTS if any(step.is_fault for step in self._world.schedule.steps) else _STILL

    async def _restarted_at_rest(self) -> Engine | None:
        """An engine that started again while all was at rest: work that ends meanwhile is waited for."""
        while await self._rests("after the faults", first=True):
            begun = self._world.loop.time()
            fresh = await self._restarted()
            if self._world.last_write < begun:
                return fresh
        return None

    async def _acts(self) -> bool:
        """Whether the leader decides now, too: it was due at this moment."""
        before = self._world.last_write
        await asyncio.sleep(_AT_ONCE)
        return self._world.last_write > before

    def _evicting(self) -> list[ObjectRef]:
        stored = self._world.memory.store.workloads.values()
        open_attempts = ((one.ref, one.attempt) for one in stored if one.attempt is not None)
        return [ref for ref, attempt in open_attempts if attempt.state is AttemptState.EVICTING]

    def _undone(self) -> bool:
        return bool(self._world.memory.store.effects or self._evicting())

    async def _rests(self, when: str, *, first: bool) -> bool:
        """Wait until nothing is written any more. Returns whether that happened.

        A leader that has just taken over may write statuses later than decisions.
        """
        world = self._world
        begun = led_from = world.loop.time()
        from_time = world.silent_since + _AFTER_SILENCE
        forged = self._actions.forged if first else []
        while world.loop.time() - begun < _RESTS:
            await asyncio.sleep(5.0)
            if forged and world.loop.time() - begun > _RESTS / 2:
                forged = []
                await self._actions.end_fights(self._evicting())
            still = _STILL_UNDONE if self._undone() else self._still() if first else _STILL
            since = max(world.last_write, begun)
            if not world.leads:
                led_from = world.loop.time()
            elif world.loop.time() >= max(since + still, led_from + _STATUSES_WRITTEN, from_time):
                world.say(f"at rest {since - begun:.0f} s {when}")
                return True
        self._violated(f"{when}: writes do not end within {_RESTS:g} s")
        return False

    # --- at rest

    async def _equivalence(self, fresh: Engine, *, last: bool) -> bool:
        """Return False, unless it is the `last` try, if what a restart decides became due just now."""
        leader = self._world.leader
        if leader is None or leader.controller is None:
            self._violated("nobody leads")
            return True
        live = engine_state.engine_of(leader.controller)
        for text in invariants.violations(live):
            self._violated(f"memory: {text}")
        if live.frozen:
            self._violated(f"set aside: {', '.join(sorted(live.frozen))}")
        store = self._world.memory.store
        # The leader may have seen a time that the ledger's clock, set back, has not reached again.
        fresh.handle([TimeCame(engine_state.state(live).clock)])
        now = await self._world.memory.now()
        plan = fresh.decide(now)
        if wrong := [one for one in plan.recorded if not self._waits_alike(one)]:
            if not last and await self._acts():
                return False
            told = "; ".join(map(self._told, wrong[:5]))
            self._violated(f"a restart decides what the leader does not: {told}")
        if store.effects:
            self._violated(f"writes are not acknowledged: {sorted(map(str, store.effects))[:3]}")
        self._compare(live, fresh)
        if engine_state.past_usage(live, now) != engine_state.past_usage(fresh, now):
            self._violated("past usage in memory is not that of a restart")
        self._cluster()
        if not plan.recorded:
            fresh.commit(plan, 0)  # who waits outside of the queues is found by nomination
            await self._answers(fresh)
        return True

    def _waits_alike(self, decision: Any) -> bool:
        """It waits for what it waits for until that changes; quota that is used up meanwhile is not told."""
        if not isinstance(decision, Keep):
            return False
        stored = self._world.memory.store.workloads.get(decision.workload)
        codes = (Code.WAITING_FOR_USAGE_LIMIT, Code.BUDGET_EXHAUSTED)
        return stored is not None and stored.reason is not None and stored.reason.code in codes

    def _told(self, decision: Any) -> str:
        of = getattr(decision, "workload", None)
        stored = self._world.memory.store.workloads.get(getattr(of, "id", of))  # type: ignore[arg-type]
        if stored is None:
            return f"{decision.verdict} {getattr(of, 'ref', of)}"
        reason = getattr(decision, "reason", None)
        return (
            f"{decision.verdict} {stored.ref.namespace}/{stored.ref.name} for {reason and reason.code}, "
            f"where the ledger has {stored.phase} for {stored.reason and stored.reason.code}"
        )

    async def _restarted(self) -> Engine:
        """An engine as the next leader would have it."""
        world = self._world
        scheduling = SETTINGS.configuration()
        groups = LedgerGroups()
        watched = sources(KINDS.registry, ledger=groups)
        engine = Engine(frozenset(source.name for source in watched), scheduling)
        snapshot = await world.memory.load()
        engine.restore(snapshot)
        groups.restore(snapshot)
        specs = dict(snapshot.configs)
        for spec in [text for key, text in world.memory._in_force() if key.kind == "Configuration"]:
            engine.handle([ConfigurationObserved(spec)])
        events: list[Event] = []
        reading = world._spawn(
            "restart", reflectors(world.session("controller"), events.extend, watched).run()
        )
        for _ in range(200):
            await asyncio.sleep(0.2)
            engine.handle([*last_valid(events, specs), *events])
            events.clear()
            if engine.synced and not await self._outcomes(engine):
                break
        reading.cancel()
        return engine

    async def _outcomes(self, engine: Engine) -> bool:
        """Read how workloads ended that others come after. Returns whether any were unread."""
        read = False
        while names := engine.features.start_conditions.unread(_MOST_READ):
            engine.handle([OutcomesRead(tuple(await self._world.memory.outcomes(names)))])
            read = True
        return read

    def _compare(self, live: Engine, fresh: Engine) -> None:
        mine, theirs = engine_state.entries(live), engine_state.entries(fresh)
        if mine.keys() != theirs.keys():
            self._violated(f"a restart knows other workloads: {sorted(mine.keys() ^ theirs.keys())[:3]}")
        for id in mine.keys() & theirs.keys():
            one, other = mine[id], theirs[id]
            for what in ("phase", "attempts", "attempt"):
                a, b = getattr(one, what, None), getattr(other, what, None)
                if a != b:
                    self._violated(f"{one.ref}: {what} is {a} in memory, and {b} after a restart")

    def _objects(self) -> dict[str, Object]:
        store = self._world.objects
        found = {}
        for collection in WORKLOADS:
            for stored in store.collection(collection).values():
                found[stored.uid] = stored.read()
        return found | {stored.uid: stored.read() for stored in single_pods(store)}

    def _cluster(self) -> None:
        """Each open attempt runs, each that runs is open, each that is not over is known."""
        ledger, cluster = self._world.memory.store.workloads, self._objects()
        for id, stored in ledger.items():
            obj = cluster.get(str(id))
            if stored.ref.kind == POD_GROUP.name:
                self._group(stored)
            elif obj is None:
                self._violated(f"{stored.ref} is gone, and the ledger has it {stored.phase}")
            elif stored.attempt is not None and stored.attempt.state is AttemptState.EVICTING:
                # No controller stops a forged Job: it holds the quota of what it names its controller.
                if (stored.ref.namespace, stored.ref.name) not in self._actions.forged:
                    self._violated(f"{stored.ref} is still being evicted")
            elif stored.attempt is not None and KINDS.registry[stored.ref.kind].suspended(obj):
                self._violated(f"{stored.ref} is admitted, and suspended")
        self._known(cluster)

    def _group(self, stored: StoredWorkload) -> None:
        """All pods of it that there are run, or none of them."""
        pods = members(self._world.objects, stored.ref.namespace, stored.ref.name)
        mine = [pod for pod in pods if pod["metadata"]["labels"].get(WORKLOAD_LABEL) == stored.id]
        alive = [pod for pod in mine if not POD.suspended(pod) and not ended(pod)]
        waiting = [pod for pod in pods if POD.suspended(pod) and alive and _may_replace(pod, alive[0])]
        attempt = stored.attempt
        if not pods:
            self._violated(f"{stored.ref} is gone, and the ledger has it {stored.phase}")
        elif attempt is None and alive:
            self._violated(f"{len(alive)} pods of {stored.ref} run, and it holds no quota")
        elif attempt is not None and attempt.state is AttemptState.EVICTING:
            self._violated(f"{stored.ref} is still being evicted")
        elif attempt is not None and not alive:
            self._violated(f"{stored.ref} is admitted, and none of its pods runs")
        elif attempt is not None and waiting and not any(map(is_deleted, alive)):
            most = sum(one.count for one in attempt.assignment.pod_sets)
            done = sum(pod["status"].get("phase") == "Succeeded" for pod in mine)
            if len(alive) + done < most:
                self._violated(f"{len(alive)} of {most} pods of {stored.ref} run, and {len(waiting)} wait")

    def _known(self, cluster: Mapping[str, Object]) -> None:
        ledger, over = self._world.memory.store.workloads, self._timed_out()
        for uid, obj in cluster.items():
            if controller_uid(obj) is not None:
                continue  # its owner is the workload
            kind = KINDS.registry[obj["kind"]]
            known = ledger.get(uid)  # type: ignore[call-overload]
            if finished(kind, obj) is not None:
                if known is not None:
                    self._violated(f"{known.ref} is over, and open in the ledger")
            elif known is None and uid in over and kind.suspended(obj):
                continue
            elif known is None:
                self._violated(f"{obj['kind']} {obj['metadata']['name']} is not in the ledger")
            elif not kind.suspended(obj) and (
                known.attempt is None or not (known.attempt.debt or known.attempt.number == attempt_on(obj))
            ):
                self._violated(f"{known.ref} runs, and the ledger has {known.attempt}")

    def _timed_out(self) -> set[str]:
        """UIDs of workloads that a stop has ended: their objects stay suspended, and say so. The ledger may
        have lost that."""
        world, ends = self._world, (WorkloadOutcome.TIMED_OUT, WorkloadOutcome.CANCELLED)
        retired = {
            str(row.workload)
            for row in (*world.memory.store.decisions, *world.safety.lost_rows)
            if row.verdict == Verdict.RETIRED and row.payload["outcome"] in ends
        }
        evicted = {
            str(row.workload)
            for row in world.safety.lost_rows
            if row.verdict == Verdict.EVICTED and row.reason is not None and row.reason.code in ENDS
        }
        return retired | evicted

    async def _answers(self, fresh: Engine) -> None:
        """REST and the statuses of queues say what a restart does, and the notifier has told of all."""
        local_queues, cluster_queues, _ = fresh.take_reports()
        readers, begun = self._world.readers, self._world.loop.time()
        self._statuses(local_queues, cluster_queues)
        await readers.check_view(local_queues)
        while not readers.told and self._world.loop.time() < begun + LATEST:
            await asyncio.sleep(5.0)
        readers.check_told()

    def _statuses(
        self, local_queues: Sequence[LocalQueueReport], cluster_queues: Sequence[ClusterQueueReport]
    ) -> None:
        """The status of each queue is what a restart would write."""
        store = self._world.objects
        for report in local_queues:
            key = (report.name.namespace, report.name.name)
            self._status("localqueues.queuectl.dev", key, patches.local_queue_status(report), store)
        for found in cluster_queues:
            self._status(
                "clusterqueues.queuectl.dev", ("", found.name), patches.cluster_queue_status(found), store
            )

    def _status(self, collection: str, key: tuple[str, str], wanted: Any, store: Any) -> None:
        stored = store.collection(collection).get(key)
        if stored is None:
            return
        status = stored.read().get("status") or {}
        for field, value in wanted.items():
            if (
                field in ("pendingWorkloads", "admittedWorkloads", "flavorsUsage")
                and status.get(field) != value
            ):
                self._violated(f"status of {key}: {field} is {status.get(field)}, and should be {value}")
            if field == "waiting":
                told = [
                    (one["uid"], one["position"], one["reason"]["code"]) for one in status.get(field) or ()
                ]
                due = [(one["uid"], one["position"], one["reason"]["code"]) for one in value]
                if told != due:
                    self._violated(f"status of {key}: waiting is {told}, and should be {due}")

    # --- at the end

    async def _prompt(self) -> None:
        """Without faults, work comes, waits, starts and ends with no wake-up but those of its own events."""
        world = self._world
        store, begun, made = world.memory.store, world.loop.time(), set()
        world.points.over = True
        # Where the database's clock was set back, its time stands still until it has caught up.
        jobs = _PROMPT if world.jump == world.most_jump else _PROMPT[:-1]
        for name, team, kind, pods, gpus, seconds in jobs:
            kind = kind or next(one for one in world.kinds if one != "RayCluster")
            body = objects.workload(team, name, kind, pods, gpus, seconds, 0, "mid")
            if seconds > _MAX_RUN:
                body["metadata"]["labels"][MAX_RUN_LABEL] = str(_MAX_RUN)
            made.add((await world.tenant.create(objects.path_of(body), body))["metadata"]["uid"])
            if len(made) == 1:
                await asyncio.sleep(1.0)
        since: dict[EffectKey, float] = {}
        while store.effects or made - {str(stored.id) for _, stored in store.ended}:
            await asyncio.sleep(0.5)
            now = world.loop.time()
            since = {key: since.get(key, now) for key in store.effects}
            if late := [key for key, begin in since.items() if now - begin > _AT_ONCE]:
                self._violated(f"without faults, a write is not acknowledged in {_AT_ONCE:g} s: {late}")
                return
            if now - begun > _PROMPT_SECONDS:
                left = [f"{one.ref.namespace}/{one.ref.name} {one.phase}" for one in store.workloads.values()]
                self._violated(f"without faults, work does not end in {_PROMPT_SECONDS:g} s: {left}")
                return
        world.say(f"without faults, work ended in {world.loop.time() - begun:.1f} s")
        self._in_time(made)

    def _in_time(self, made: set[str]) -> None:
        """What had a maximum run time ended when it was over."""
        times: dict[str, datetime] = {}
        for row in self._world.memory.store.decisions:
            if str(row.workload) in made and row.verdict == Verdict.ADMITTED:
                times[str(row.workload)] = row.now
            over = row.reason is not None and row.reason.code == Code.MAXIMUM_EXECUTION_TIME_EXCEEDED
            if str(row.workload) in times and over:
                ran = (row.now - times[str(row.workload)]).total_seconds()
                if ran > _MAX_RUN + _AT_ONCE:
                    self._violated(f"{row.ref} may run for {_MAX_RUN} s and was evicted after {ran:g} s")

    async def _lose_node(self) -> None:
        """Without faults, what runs on a node that fails is evicted in time, and starts on another (M12)."""
        world, (first, *_) = self._world, NODES
        await self._actions.do(Step(0.0, "time limits", ("team-a", 0, 0)))
        body = objects.workload("team-a", "on-a-node", "Job", 1, 1, 1000, 0, "mid")
        uid = (await world.tenant.create(objects.path_of(body), body))["metadata"]["uid"]

        def on(*nodes: str) -> bool:
            pods = (stored.read() for stored in world.objects.collection(PODS).values())
            return any(controller_uid(pod) == uid and node_of(pod) in nodes for pod in pods)

        def evicted() -> bool:
            rows = (row for row in world.memory.store.decisions if str(row.workload) == uid)
            return any(row.reason and row.reason.code == Code.NODE_FAILURES for row in rows)

        steps = (
            ("its pod is not bound", partial(on, first), _AT_ONCE),
            ("it is not evicted", evicted, LOSS_SECONDS + _AT_ONCE),
            ("its pod is not bound to another node", partial(on, *NODES.keys() - {first}), 10 * _AT_ONCE),
        )
        for what, done, seconds in steps:
            if done is evicted:
                await self._actions.turn_node(first, failed=True)
            begun = world.loop.time()
            while not done():
                await asyncio.sleep(0.5)
                if world.loop.time() - begun > seconds:
                    self._violated(f"without faults, the node of a Job fails: {what} in {seconds:g} s")
                    return

    def _nothing_left(self) -> None:
        store = self._world.memory.store
        for name, rows in (("workloads", store.workloads), ("holds", store.holds), ("writes", store.effects)):
            if rows:
                self._violated(f"{len(rows)} {name} are left in the ledger: {sorted(map(str, rows))[:3]}")


def _may_replace(pod: Object, other: Object) -> bool:
    """Whether it requests the same, and says the same of its group."""

    def says(one: Object) -> tuple[object, ...]:
        labels, annotations = one["metadata"]["labels"], one["metadata"]["annotations"]
        return *map(labels.get, (PRIORITY_LABEL, QUEUE_LABEL)), annotations.get(GROUP_SIZE), gpus_of(one)

    return says(pod) == says(other)
