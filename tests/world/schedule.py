"""What happens in one schedule, as data: each step is of tenants, of admins, or a fault. A seed makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, NamedTuple

from tests.job_kinds import JOB_KINDS

REQUEST_FAULTS: Final = (
    *("conflict", "forbidden", "throttled", "error", "lost", "slow", "hang", "late", "away"),
)
STATUS_FAULTS: Final = ("statuses fail",)
"""The API server refuses writes of statuses, and no others."""
UNAUTHORIZED, INVALID = "unauthorized", "invalid"
WRITE_FAULTS: Final = ("denied", INVALID)
"""Of writes alone. Denied: controllers may read, and not write; of aimed schedules alone."""
WATCH_FAULTS: Final = ("lag", "silent", "cut")
DISCOVERY_FAULTS: Final = ("discovery fails", "discovery misses")
DATABASE_FAULTS: Final = (
    *("database away", "commit lost", "serialization", "connection lost", "commit late"),
    "statement fails",
)
PLAIN_FAULTS: Final = (
    *("kill", "terminate", "pause", "block loop", "operators pause", "operators slow"),
    *("expire", "compact", "definition gone", "database clock"),
)
"""Each is a verb."""
_WINDOWS: Final = {
    "requests": (*REQUEST_FAULTS, *STATUS_FAULTS),
    "watches": WATCH_FAULTS,
    "discovery": DISCOVERY_FAULTS,
    "database": DATABASE_FAULTS,
}
LOSS: Final = "transactions lost"
"""The database's server fails, and a replica takes its place that lacks the last transactions."""
NODE_FAULTS: Final = ("node fails", "node gone")
"""A node is not ready, and its pods neither run nor end; its Node is deleted, and it registers again."""
NODES: Final = {"node": 64, "node-1": 16, "node-2": 16}
"""GPUs. The first has room for all workloads, and the others are there where nodes fail."""
NAMESPACE_GONE: Final = "namespace gone"
"""A namespace is deleted with all that is in it, and made again."""
_SOME: Final = 1 / 5
"""Share of the schedules that have one of these faults, beside those of their theme."""
PHASES: Final = ("pending", "admitted", "started", "running", "evicting", "gone")
"""Of a workload: started has no pods yet, and gone is in the ledger alone."""
TEAMS: Final = {"team-a": 4, "team-b": 4, "guests": 0}
"""GPUs of the queue of each namespace; their cohort lends them to all."""
REPLICAS: Final = ("one", "two")
OPERATORS: Final = "operators"
OF_CLUSTER: Final = f"{OPERATORS}.cluster"
"""Scheduler, kubelet and Job controller: the others may be fast while these are slow."""
"""Of kinds, kube-scheduler and kubelets: one process."""
SECONDS: Final = 60.0
"""Of virtual time in which steps happen."""
_SHORT, _SHORT_SECONDS = 7 / 8, 24.0
"""Share of the schedules that are short: an eighth of the steps, in fewer seconds."""
_AIMED: Final = 6
_AIMED_WORKLOAD: Final = ("Job", 1, 1, 1000, 12, "high", 0, "")
"""It starts, and is there for long."""
_SHARING, _AGAIN, _FAIR = 1 / 6, 1 / 4, 0.8
"""Shares of the schedules with a Cohort, of these of those that edit it, and of Cohorts that share fairly."""
_HANDING_OVER: Final = 1 / 5
"""Share of the schedules in which leaders are asked to stop, beside the other faults."""
_IDLE: Final = 0.3
"""Share of the schedules in which GPUs are idle for long."""
_GROUPS, _NEAR = 6, 3.0
"""How often a schedule has the steps that it is to have, and within how many seconds."""
_NAMES: Final = 6
"""Names of workloads in a namespace: few, so that names are taken again."""
_GROUP_NAMES: Final = (("team-a", "g0"), ("guests", "g0"), ("guests", "g1"))
COHORT: Final = "research"
FAMILIES: Final = (("PyTorchJob",), ("TrainJob", "JobSet"), ("RayJob", "RayCluster", "RayService"))
"""Kinds of one operator: beside Jobs and pods, a schedule has those of one of them."""
_STRAY: Final = 0.5
"""Share of the schedules with kinds that make others, in which such an object is forged."""
_CUSTOM, _CUSTOM_RESOURCE = "PyTorchJob", "pytorchjobs.kubeflow.org"
_MADE: Final = ("RayCluster",)
"""No user makes one."""


class Step(NamedTuple):
    at: float
    """Virtual seconds after the start of the controllers."""
    verb: str
    args: tuple[Any, ...]
    when: str = ""
    """The phase in which a workload must be: the step waits for it, until the faults end."""
    of: tuple[str, str] | None = None
    """Namespace and name of that workload; None: any."""

    @property
    def is_fault(self) -> bool:
        return self.verb in _FAULTS or self.verb in _OF_NODES or self.verb in (LOSS, NAMESPACE_GONE)

    def __str__(self) -> str:
        when = self.when and f" when {'/'.join(self.of) if self.of else 'one'} is {self.when}"
        return f"{self.at:6.1f} s  {self.verb} {' '.join(map(str, self.args))}".rstrip() + when


@dataclass(frozen=True)
class Schedule:
    seed: int
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    """Which of the steps that the seed makes these are, from 0."""
    seconds: float = SECONDS
    """In which they happen."""
    kinds: tuple[str, ...] = FAMILIES[0]
    """Beside Jobs and pods. The definition of the first is what is taken away."""

    def has(self, verb: str) -> bool:
        """Whether a step has it."""
        return any(step.verb == verb for step in self.steps)

    def only(self, kept: Sequence[int]) -> Schedule:
        return replace(self, steps=tuple(self.steps[number] for number in kept), kept=tuple(kept))


def schedule(seed: int, needs: Sequence[str] = ()) -> Schedule:
    """The schedule of a seed: 14 to 26 steps of tenants and admins, none or up to 8 faults of one theme, and
    with them six faults that wait for a workload in a certain phase. Most seeds make an eighth of that. A
    fifth of the schedules have one more fault, of those that are rare (`_SOME_CELLS`), in a fifth nodes
    fail, in a tenth a namespace is deleted, in a sixth their cohort shares fairly, and in a fifth leaders are
    asked to stop.

    `needs`: verbs or arguments of steps, also with a phase, or with the seconds after which: `kill when
    admitted`, `kill after 9`. Beside the others there are six groups of steps (one in a short schedule) that
    have one of each in this order, else within few seconds, and concern one workload.
    """
    random = Random(f"schedule {seed}")
    short = random.random() < _SHORT
    seconds = _SHORT_SECONDS if short else SECONDS
    actions = random.randint(2, 4) if short else random.randint(14, 26)
    steps = [_step(random, _ACTIONS, seconds) for _ in range(actions)]
    if not short and random.random() < _IDLE:
        steps += _idle(random)
    theme = random.choice(_THEMES)
    faults = {verb: _FAULTS[verb] for verb in theme}
    if number := random.choice((0, 1, 1, 2) if short else (0, 2, 3, 4, 6, 8)):
        steps += [_step(random, faults, seconds) for _ in range(number)]
        aims = [seed] if short else range(_AIMED * seed, _AIMED * (seed + 1))
        for aim in aims:
            steps += _aimed(random, *_AIMS[aim % len(_AIMS)], seconds)
    groups = 1 if short else _GROUPS
    for group in range(groups if needs else 0):
        last = group % 3 == 0
        steps += _together(random, needs, random.uniform(seconds - 15.0 if last else 0.0, seconds))
    kinds = FAMILIES[0] if _CUSTOM in needs else _kinds(Random(f"kinds {seed}"))
    steps = [*_with_kinds(steps, kinds, seed), *_some(Random(f"some {seed}"), seconds)]
    steps += _nodes(Random(f"nodes {seed}"), seconds)
    if seed % 2 == 0:
        steps += _some(Random(f"namespaces {seed}"), seconds, _NAMESPACE_CELLS)
    steps += _sharing(Random(f"sharing {seed}"), seconds)
    steps += _handing_over(Random(f"handing over {seed}"), seconds)
    return Schedule(seed, tuple(steps), tuple(range(len(steps))), seconds, kinds)


def _kinds(random: Random) -> tuple[str, ...]:
    family = list(random.choice(FAMILIES))
    if len(family) == 2:
        random.shuffle(family)
    return tuple(family)


def _with_kinds(steps: Sequence[Step], kinds: tuple[str, ...], seed: int) -> Iterator[Step]:
    """These in the place of PyTorchJob, which steps are made with."""
    random, users = Random(f"kinds of {seed}"), [kind for kind in kinds if kind not in _MADE]
    if len(kinds) > 1 and random.random() < _STRAY:
        owner = next((step for step in steps if step.verb == "submit" and step.args[2] == _CUSTOM), None)
        if owner is not None:
            steps = [*steps, Step(round(owner.at + random.uniform(1.0, 15.0), 1), "stray", owner.args[:2])]
    for step in sorted(steps, key=lambda step: step.at):
        swapped = {_CUSTOM: random.choice(users), _CUSTOM_RESOURCE: JOB_KINDS[random.choice(kinds)].resource}
        yield step._replace(args=tuple(swapped.get(arg, arg) for arg in step.args))


Make = Callable[[Random], tuple[Any, ...]]


def _together(random: Random, needs: Sequence[str], begin: float) -> Iterator[Step]:
    team, name = _name(random)
    name = (team, f"{name}-{begin:.0f}")  # a name that is taken would be refused
    times = sorted(random.uniform(0.0, _NEAR) for _ in needs)
    submitted, of_nodes = 0, any(need in _OF_NODES for need in needs)
    for seconds, (need, _, phase) in zip(times, (need.partition(" when ") for need in needs), strict=True):
        need, _, later = need.partition(" after ")
        while True:
            step = _step(random, _ACTIONS | _FAULTS | (_OF_NODES if of_nodes else {}), SECONDS)
            if step.verb == need or need in step.args:
                break
        args = step.args
        if args[:2] and args[0] in TEAMS and str(args[1]).startswith("w"):
            again = step.verb == "submit" and submitted
            submitted += step.verb == "submit"
            args = (name[0], f"{name[1]}-{submitted}" if again else name[1], *args[2:])
            if step.verb == "submit" and any(" when " in need for need in needs):
                args = (*args[:2], *_AIMED_WORKLOAD)
        elif args and args[0] in ("leader", *REPLICAS):
            args = ("leader", *args[1:])
        elif step.verb in _WINDOWS:  # of all replicas, and of most requests
            args = (args[0], "", args[2], max(0.5, args[3]), *args[4:])
        of = name if phase else None
        if later:
            seconds += random.uniform(0.5, 1.5) * float(later)
        yield step._replace(at=round(begin + seconds, 1), args=args, when=phase, of=of)


def _step(random: Random, table: dict[str, tuple[int, Make]], seconds: float) -> Step:
    verb = random.choices(list(table), [weight for weight, _ in table.values()])[0]
    return Step(round(random.uniform(0.0, seconds), 1), verb, table[verb][1](random))


def _name(random: Random) -> tuple[Any, ...]:
    return random.choice(list(TEAMS)), f"w{random.randrange(_NAMES)}"


def _submit(random: Random) -> tuple[Any, ...]:
    """Namespace, name, kind, pods, GPUs of each, seconds that it runs and that it takes to end, priority,
    most seconds that it may run (0: any), and a condition of its start."""
    kind = random.choice(("Job", "Job", "Job", "Job", _CUSTOM, "Pod"))
    pods = {"Job": random.choice((1, 1, 2, 2)), "Pod": 1}.get(kind, 2)
    return (
        *_name(random),
        *(kind, pods, random.choice((1, 1, 2, 2)), random.choice((5, 10, 20, 1000, 1000))),
        *(random.choice((0, 0, 1, 5, 12)), random.choice(("low", "low", "mid", "high"))),
        *(random.choice((0, 0, 6, 30, 400)), random.choice(("", "", "", "", *_conditions(random)))),
    )


def _conditions(random: Random) -> tuple[str, ...]:
    """After another workload, at a time, and one of an array at a time."""
    outcome = random.choice(("ok", "failed", "any"))
    return f"after {outcome}:Job/w{random.randrange(_NAMES)}", f"begin {random.randrange(60)}", "array 1"


def _target(random: Random) -> tuple[str, str]:
    """Kind and name of what a policy applies to; of a LocalQueue, its namespace."""
    team = random.choice(list(TEAMS))
    targets = (
        ("Cohort", COHORT),
        ("ClusterQueue", team),
        ("LocalQueue", team),
        ("WorkloadPriorityClass", random.choice(("low", "mid"))),
    )
    return random.choice(targets)


def _budget(random: Random) -> tuple[Any, ...]:
    """Name, target, subject, hours (no part of one can be read), mode, period, percent that is refunded of
    what was preempted, and what is done with what it does not cover."""
    return (
        *(f"b{random.randrange(2)}", *_target(random), random.choice(("All", "EachUser"))),
        *(random.choice(("0", "0.5", "1", "3", "6")), random.choice(("Safe", "Metered"))),
        *(random.choice(("Month", "Month", "Week", "Dates")), random.choice((0, 0, 50))),
        random.choice(("Wait", "Wait", "LowerClass", "Refuse")),
    )


def _usage_limit(random: Random) -> tuple[Any, ...]:
    """Name, target, subject; workloads that run, GPUs, workloads that wait, and least request; 0: any."""
    return (
        *(f"u{random.randrange(2)}", *_target(random), random.choice(("All", "EachUser"))),
        *(random.choice((0, 1, 2)), random.choice((0, 2, 4))),
        *(random.choice((0, 0, 1)), random.choice((0, 0, 0, 2))),
    )


def _idle_policy(random: Random) -> tuple[Any, ...]:
    """Name, target, what it does with what is idle for long, and whether it only records that."""
    does = random.choice(("hold", "hold", "cancel", "lower", ""))
    return f"i{random.randrange(2)}", *_target(random), does, random.random() < 0.2


def _idle(random: Random) -> Iterator[Step]:
    """The GPUs of a team do nothing, for longer than an IdlePolicy allows: it allows ten minutes at least."""
    at, (team, workload) = round(random.uniform(0.0, SECONDS - 40.0), 1), _name(random)
    name, _, _, *does = _idle_policy(random)
    yield Step(at, "submit", (team, f"idle-{workload}", *_AIMED_WORKLOAD))
    yield Step(at, "idle policy", (name, "ClusterQueue", team, *does))
    yield Step(at, "gpus", (team, random.choice(("idle", "hang"))))
    for after in (14.0, 26.0, 38.0):
        yield Step(round(at + after, 1), "time passes", (1_000.0,))


def _group(random: Random) -> tuple[Any, ...]:
    """Namespace and name of a pod group, its size, GPUs of each pod, seconds that they run and that they take
    to end, priority, how many are made later, and how many fail."""
    return (
        *_group_name(random),
        *(random.choice((2, 2, 3)), random.choice((1, 1, 2)), random.choice((5, 10, 20, 1000))),
        *(random.choice((0, 1, 5, 12)), random.choice(("low", "mid", "high"))),
        *(random.choice((0, 0, 0, 1)), random.choice((0, 0, 0, 1))),
    )


def _group_name(random: Random) -> tuple[Any, ...]:
    return random.choice(_GROUP_NAMES)


def _member(random: Random) -> tuple[Any, ...]:
    return *_group_name(random), random.randrange(3)


def _quota(random: Random) -> tuple[Any, ...]:
    return random.choice(("team-a", "team-b")), random.choice((1, 2, 4, 6))


_ACTIONS: Final[dict[str, tuple[int, Make]]] = {
    "submit": (36, _submit),
    "delete": (3, _name),
    "recreate": (1, _name),
    "hold": (2, _name),
    "unhold": (2, _name),
    "priority": (1, lambda r: (*_name(r), r.choice(("low", "mid", "high")))),
    "resize": (2, lambda r: (*_name(r), r.choice((1, 2, 3)))),
    "annotate pods": (1, lambda r: (*_name(r), r.randrange(1_000))),
    "move": (2, lambda r: (*_name(r), r.choice(("main", "other")))),
    "apply again": (2, _name),
    "tenant starts": (1, _name),
    "tenant suspends": (1, _name),
    "quota": (3, _quota),
    "stop queue": (2, lambda r: (r.choice(list(TEAMS)), r.choice(("Hold", "HoldAndDrain", "None")))),
    "stop local queue": (1, lambda r: (r.choice(list(TEAMS)), r.choice(("Hold", "HoldAndDrain", "None")))),
    "delete local queue": (1, lambda r: (r.choice(list(TEAMS)),)),
    "delete queue": (1, lambda r: (r.choice(list(TEAMS)),)),
    "leave cohort": (1, lambda r: (r.choice(list(TEAMS)), r.choice(("", COHORT)))),
    "strict order": (1, lambda r: (r.choice(list(TEAMS)), r.choice(("Block", "PassOver")))),
    "delete pods": (1, _name),
    "definition changes": (1, lambda r: ()),
    "group": (8, _group),
    "make member": (3, _member),
    "delete member": (3, _member),
    "hold group": (1, _member),
    "unhold group": (1, _member),
    "delete group": (1, _group_name),
    "budget": (3, _budget),
    "delete budget": (1, lambda r: (f"b{r.randrange(2)}",)),
    "usage limit": (3, _usage_limit),
    "delete usage limit": (1, lambda r: (f"u{r.randrange(2)}",)),
    "gpus": (2, lambda r: (r.choice(list(TEAMS)), r.choice(("busy", "idle", "hang", "unknown")))),
    "idle policy": (1, _idle_policy),
    "delete idle policy": (1, lambda r: (f"i{r.randrange(2)}",)),
    "usage order": (1, lambda r: (r.choice(list(TEAMS)), r.choice(("", "None", "PastUsage")))),
    "time limits": (1, lambda r: (r.choice(list(TEAMS)), r.choice((0, 5, 20)), r.choice((0, 20, 100)))),
}


def _window(kinds: tuple[str, ...], longest: float) -> Make:
    return lambda r: (
        r.choice(kinds),
        r.choice(("", *REPLICAS)),
        round(r.uniform(1.0, longest), 1),
        r.choice((0.2, 0.5, 1.0)),
    )


def _replica(random: Random) -> tuple[Any, ...]:
    return (random.choice(("leader", *REPLICAS)),)


_FAULTS: Final[dict[str, tuple[int, Make]]] = {
    "kill": (4, _replica),
    "terminate": (2, _replica),
    "pause": (3, lambda r: (*_replica(r), r.choice((3.0, 12.0, 40.0)))),
    "block loop": (1, lambda r: (*_replica(r), r.choice((5.0, 15.0)))),
    "operators pause": (2, lambda r: (r.choice((2.0, 8.0, 20.0)),)),
    "operators slow": (2, lambda r: r.choice(((5.0,), (15.0, OF_CLUSTER), (30.0,)))),
    "requests": (5, lambda r: (*_window(_WINDOWS["requests"], 30.0)(r), r.random() < 0.3)),
    "watches": (4, _window(WATCH_FAULTS, 60.0)),
    "expire": (
        2,
        lambda r: (r.choice(("jobs.batch", _CUSTOM_RESOURCE, "clusterqueues.queuectl.dev")),),
    ),
    "compact": (1, lambda r: ()),
    "discovery": (2, _window(DISCOVERY_FAULTS, 40.0)),
    "readers restart": (1, lambda r: ()),
    "sink fails": (2, lambda r: (round(r.uniform(1.0, 30.0), 1), r.choice((0.3, 1.0)))),
    "definition gone": (1, lambda r: (round(r.uniform(1.0, 40.0), 1),)),
    "database": (6, _window(DATABASE_FAULTS, 45.0)),
    "database clock": (1, lambda r: (r.choice((-3600.0, -30.0, 30.0, 3600.0)),)),
}
_OF_NODES: Final[dict[str, tuple[int, Make]]] = {
    "nodes": (1, lambda r: ()),
    **dict.fromkeys(
        NODE_FAULTS,
        (2, lambda r: (r.choice(("node", "node", "node", "node-1")), r.choice((2.0, 12.0, 20.0, 45.0)))),
    ),
    "pods ready": (
        6,
        lambda r: (
            r.choice(list(TEAMS)),
            *(r.choice((0, 4, 12)) for _ in range(3)),
            r.choice((None, None, 0, 1)),
        ),
    ),
    "cordon": (1, lambda r: (r.choice(list(NODES)), r.choice((5.0, 20.0)))),
}
"""In schedules of their own: `nodes` makes those that the others are without."""
_CELLS: Final = tuple(
    (kind, phase) for phase in PHASES for kind in (*sum(_WINDOWS.values(), ()), *PLAIN_FAULTS)
)
"""Each kind of fault with each phase of a workload's life: one schedule after the other aims at some."""
_SOME_CELLS: Final = tuple((kind, phase) for phase in PHASES for kind in (UNAUTHORIZED, INVALID, LOSS))
_NODE_CELLS: Final = tuple((kind, phase) for phase in PHASES for kind in NODE_FAULTS)
_NAMESPACE_CELLS: Final = tuple((NAMESPACE_GONE, phase) for phase in PHASES)
CELLS: Final = (*_CELLS, *_SOME_CELLS, *_NODE_CELLS, *_NAMESPACE_CELLS)

LEAST: Final = 30
"""Of 10,000 schedules, those in which each cell is to be met."""
_SHARES: Final = {"evicting": 2, "admitted": 3, "started": 3, "gone": 3}
_AIMS: Final = [cell for turn in range(3) for cell in _CELLS if turn < _SHARES.get(cell[1], 1)]
"""What is rarely met is aimed at twice, or three times; in random order, so that a schedule aims at several
phases."""
Random("aims").shuffle(_AIMS)


def _some(random: Random, seconds: float, cells: Sequence[tuple[str, str]] = _SOME_CELLS) -> Iterator[Step]:
    if random.random() < _SOME:
        shares = [_SHARES.get(phase, 1) for _, phase in cells]
        yield from _aimed(random, *random.choices(cells, shares)[0], seconds)


def _nodes(random: Random, seconds: float) -> Iterator[Step]:
    if faults := list(_some(random, seconds, _NODE_CELLS)):
        more = [_step(random, _OF_NODES, seconds) for _ in range(random.choice((0, 1, 2, 3)))]
        yield from (Step(0.0, "nodes", ()), *faults, *more)


def _sharing(random: Random, seconds: float) -> Iterator[Step]:
    """Shares of queues count in preemption, and quota counts as far as nodes have it."""
    if random.random() < _SHARING:
        for at in (0.0, *([random.uniform(0.0, seconds)] if random.random() < _AGAIN else ())):
            shortage = random.choice(("ByPriority", "ProRata"))
            yield Step(round(at, 1), "cohort", (random.random() < _FAIR, shortage))
        for _ in range(random.choice((0, 1, 2))):
            weight = random.choice(("0", "0.5", "2", "4"))
            at = random.uniform(0.0, seconds)
            yield Step(round(at, 1), "weight", (random.choice(list(TEAMS)), weight))


def _handing_over(random: Random, seconds: float) -> Iterator[Step]:
    """Leaders that are asked to stop: the next one lists nothing that it has read as far as they had."""
    if random.random() < _HANDING_OVER:
        for _ in range(random.choice((1, 2, 3))):
            yield Step(round(random.uniform(0.0, seconds), 1), "terminate", ("leader",))


def _aimed(random: Random, kind: str, phase: str, seconds: float) -> Iterator[Step]:
    """A fault of this kind that begins when a workload is in this phase, and what it needs to be met then."""
    at = round(random.uniform(0.0, seconds - 20.0), 1)
    name = _name(random)
    yield Step(at, "submit", (*name, *_AIMED_WORKLOAD))
    if phase in ("evicting", "gone"):
        yield Step(at + 6.0, "hold" if phase == "evicting" else "delete", name)
    window = ("", round(random.uniform(5.0, 15.0), 1), 1.0)
    if kind in PLAIN_FAULTS or kind in NODE_FAULTS:
        yield Step(at, kind, (_FAULTS | _OF_NODES)[kind][1](random), phase)
        return
    if kind == NAMESPACE_GONE:
        yield Step(at, kind, (name[0], random.choice((1.0, 8.0, 20.0))), phase)
        return
    if kind == LOSS:
        lost = random.choice((1, 1, 2, 3, 5, 10, 30))
        yield Step(at, LOSS, (lost, round(random.uniform(0.0, 10.0), 1)), phase)
        return
    verb = next((verb for verb, kinds in _WINDOWS.items() if kind in kinds), "requests")
    yield Step(at, verb, (kind, *window), phase)
    if verb == "discovery":  # it is asked after a change alone
        yield Step(at, "definition changes", (), phase)
    # It is over in milliseconds.
    if phase == "admitted" and verb != "requests":
        yield Step(at, "requests", ("slow", *window), phase)
    if phase == "started":
        yield Step(at, "operators slow", window[1:2], phase)


_THEMES: Final[tuple[tuple[str, ...], ...]] = (
    ("kill", "terminate", "pause", "block loop", "operators pause", "operators slow", "database"),
    ("requests", "requests", "discovery", "kill"),
    ("watches", "expire", "compact", "discovery", "definition gone"),
    ("database", "database clock", "kill", "pause", "readers restart", "sink fails"),
    tuple(_FAULTS),
)
"""Faults that come together: alone, most of them are survived by a second line of defence."""
