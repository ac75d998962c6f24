"""Schedules by hand that go where those of seeds rarely do: starts that are denied, given up and refused,
plans that are stored in parts, a leader that ends while it writes, watches that lag. Crash points are at the
awaits of these too, and some planted bugs show in them."""

from __future__ import annotations

from typing import Any, Final

from tests.world.schedule import FAMILIES, LOSS, OF_CLUSTER, Schedule, Step


def _aimed(seed: int, *steps: Step, kinds: tuple[str, ...] = FAMILIES[0]) -> Schedule:
    ordered = tuple(sorted(steps, key=lambda step: step.at))
    return Schedule(seed, ordered, tuple(range(len(ordered))), 40.0, kinds)


def _submit(
    at: float,
    team: str,
    name: str,
    kind: str = "Job",
    pods: int = 1,
    seconds: int = 1000,
    *,
    priority: str = "high",
    after: str = "",
) -> Step:
    return Step(at, "submit", (team, name, kind, pods, 1, seconds, 5, priority, 0, after))


def _requests(at: float, kind: str, seconds: float) -> Step:
    return Step(at, "requests", (kind, "", seconds, 1.0, False))


def _when(phase: str, verb: str, team: str, name: str, *args: Any) -> Step:
    return Step(1.0, verb, (team, name, *args), phase, (team, name))


AIMED: Final = (
    # All starts are denied until some are given up; a pod is held meanwhile, which stays behind its gate.
    _aimed(
        1,
        _requests(0.9, "denied", 12.0),
        _submit(1.0, "team-a", "w0"),
        Step(1.0, "group", ("team-a", "g0", 2, 1, 1000, 5, "high", 0, 0)),
        _submit(1.0, "team-b", "p0", "Pod"),
        Step(3.0, "hold", ("team-b", "p0")),
    ),
    # What runs is stopped: a pod, a group, and some pods of a Job.
    _aimed(
        2,
        _submit(1.0, "team-b", "p1", "Pod"),
        _when("running", "hold", "team-b", "p1"),
        Step(1.0, "group", ("team-a", "g0", 2, 1, 1000, 5, "high", 0, 0)),
        _when("running", "hold group", "team-a", "g0", 0),
        _submit(2.0, "team-b", "w0", pods=3),
        _when("running", "scale", "team-b", "w0", 1),
        _requests(24.9, "lost", 2.0),
        _submit(25.0, "team-a", "w1"),
    ),
    # Starts are under way while the label of the queue moves, and then while the leader is asked to stop.
    _aimed(
        3,
        _submit(1.0, "team-a", "w0", seconds=5),
        _submit(14.0, "team-a", "w1", after="after any:Job/w0"),
        _requests(20.0, "slow", 15.0),
        _submit(20.1, "team-b", "w2"),
        Step(21.5, "move", ("team-b", "w2", "other")),
        _submit(28.0, "team-b", "w3"),
        Step(30.0, "terminate", ("leader",)),
    ),
    # An edit comes between the read of a start that is withdrawn and the record of that.
    _aimed(
        0,
        _requests(0.9, "slow", 35.0),
        _submit(1.0, "team-b", "w2"),
        Step(1.5, "move", ("team-b", "w2", "other")),
        Step(18.0, "annotate pods", ("team-b", "w2", 7)),
    ),
    # A statement fails again and again: plans are stored in parts.
    _aimed(
        0,
        _submit(1.0, "team-a", "w0"),
        Step(2.0, "database", ("statement fails", "", 30.0, 0.85)),
        *(_submit(3.0, team, "w1") for team in ("team-a", "team-b", "guests")),
    ),
    # Watches lag while objects are deleted, statuses are not written, and discovery fails.
    _aimed(
        5,
        _submit(1.0, "team-a", "w0"),
        _submit(1.0, "team-a", "w1"),
        _submit(1.0, "team-b", "w2", "PyTorchJob", pods=2),
        Step(6.0, "watches", ("lag", "", 12.0, 1.0, False)),
        Step(7.0, "priority", ("team-a", "w0", "mid")),
        Step(8.0, "delete", ("team-a", "w0")),
        Step(8.3, "delete", ("team-a", "w1")),
        Step(24.0, "discovery", ("discovery fails", "", 8.0, 1.0, False)),
        Step(25.0, "definition changes", ()),
        Step(27.0, "expire", ("pytorchjobs.kubeflow.org",)),
        _requests(34.0, "statuses fail", 5.0),
        _submit(34.5, "team-a", "w3"),
        *(_submit(36.0, "team-b", name, pods=4, priority="low") for name in ("w4", "w5")),
    ),
    # The quota of a queue is cut, and it borrows nothing: what waits fits when that is undone.
    _aimed(
        6,
        Step(1.0, "leave cohort", ("team-a", "")),
        Step(2.0, "quota", ("team-a", 1)),
        _submit(6.0, "team-a", "w0", pods=2),
    ),
    # Trainer takes no start in one write. Two workloads are stopped, one is started late, and one never.
    _aimed(
        0,
        _submit(1.0, "team-a", "w0", "TrainJob", pods=2),
        _when("running", "hold", "team-a", "w0"),
        _submit(1.0, "team-b", "w3", "JobSet", pods=2),
        _when("running", "hold", "team-b", "w3"),
        _requests(18.0, "conflict", 2.0),
        _submit(18.1, "team-b", "w1", "TrainJob"),
        _requests(25.0, "denied", 12.0),
        _submit(25.1, "guests", "w2", "TrainJob"),
        kinds=("TrainJob", "JobSet"),
    ),
    # A RayService and a RayJob are stopped, and objects that seem to be theirs are forged.
    _aimed(
        9,
        _submit(1.0, "team-a", "w0", "RayService"),
        _submit(1.0, "team-b", "w1", "RayJob"),
        Step(6.0, "stray", ("team-a", "w0")),
        _when("running", "hold", "team-a", "w0"),
        _when("running", "hold", "team-b", "w1"),
        Step(30.0, "stray", ("team-b", "w1")),
        kinds=FAMILIES[2],
    ),
    # A JobSet is stopped while the request for a pod of its Job is on its way.
    _aimed(
        8,
        Step(0.5, "stop queue", ("team-a", "Hold")),
        _submit(1.0, "team-a", "w0", "JobSet"),
        Step(4.9, "operators slow", (15.0, OF_CLUSTER)),
        Step(5.0, "stop queue", ("team-a", "None")),
        Step(6.0, "hold", ("team-a", "w0")),
        kinds=("TrainJob", "JobSet"),
    ),
    # A forged Job has what a JobSet was charged for one of its Jobs: its controller starts that each time.
    _aimed(
        8,
        Step(0.9, "operators slow", (15.0,)),
        _submit(1.0, "team-a", "w1", "JobSet", pods=2),
        Step(5.0, "stray", ("team-a", "w1")),
        kinds=("TrainJob", "JobSet"),
    ),
    # The database loses what was decided, and then what was acknowledged alone.
    _aimed(
        2,
        _submit(1.0, "team-a", "w0"),
        _submit(1.5, "team-b", "w1"),
        Step(3.0, LOSS, (4, 1.0)),
        _submit(5.0, "guests", "w2"),
    ),
    _aimed(2, _submit(1.0, "team-a", "w0"), Step(3.0, LOSS, (1, 0.0))),
)

NEVER: Final = {
    "async with asyncio.timeout(seconds):": "it never waits",
    "self._aside.thaw(await self._commits.load() if self._aside.roots else None)": (
        "only after the ledger has refused a plan, which is a violation"
    ),
    "await self._forget_start_time(kind, effect.workload.ref)": "no Job gets a start time while suspended",
    "await self._reread(kind, effect.workload.ref, refusal) or obj,": "the same",
    "child = await self._child(kind, obj) if obj is not None else None": (
        "no JobSet of a TrainJob changes while that runs"
    ),
}
"""Awaits of the write path, by their line of code, at which no task waits in a schedule; and why."""
