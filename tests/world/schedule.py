"""What happens in one schedule, as data: each step is of tenants, of admins, or a fault. A seed makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

REQUEST_FAULTS: Final = ("conflict", "forbidden", "throttled", "error", "lost", "slow", "hang", "away")
WATCH_FAULTS: Final = ("lag", "silent", "cut")
DISCOVERY_FAULTS: Final = ("discovery fails", "discovery misses")
DATABASE_FAULTS: Final = ("database away", "commit lost", "serialization", "connection lost", "commit late")
PLAIN_FAULTS: Final = (
    *("kill", "terminate", "pause", "block loop"),
    *("expire", "compact", "definition gone", "database clock"),
)
"""Each is a verb."""
_WINDOWS: Final = {
    "requests": REQUEST_FAULTS,
    "watches": WATCH_FAULTS,
    "discovery": DISCOVERY_FAULTS,
    "database": DATABASE_FAULTS,
}
PHASES: Final = ("pending", "admitted", "started", "running", "evicting", "gone")
"""Of a workload: started has no pods yet, and gone is in the ledger alone."""
TEAMS: Final = {"team-a": 4, "team-b": 4, "guests": 0}
"""GPUs of the queue of each namespace; their cohort lends them to all."""
REPLICAS: Final = ("one", "two")
SECONDS: Final = 60.0
"""Of virtual time in which steps happen."""
_AIMED: Final = 6
_GROUPS, _NEAR = 6, 3.0
"""How often a schedule has the steps that it is to have, and within how many seconds."""
_NAMES: Final = 6
"""Names of workloads in a namespace: few, so that names are taken again."""


class Step(NamedTuple):
    at: float
    """Virtual seconds after the start of the controllers."""
    verb: str
    args: tuple[Any, ...]
    when: str = ""
    """The phase in which a workload must be: the step waits for it, until the faults end."""

    @property
    def is_fault(self) -> bool:
        return self.verb in _FAULTS

    def __str__(self) -> str:
        when = self.when and f" when one is {self.when}"
        return f"{self.at:6.1f} s  {self.verb} {' '.join(map(str, self.args))}".rstrip() + when


@dataclass(frozen=True)
class Schedule:
    seed: int
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    """Which of the steps that the seed makes these are, from 0."""

    def only(self, kept: Sequence[int]) -> Schedule:
        return Schedule(self.seed, tuple(self.steps[number] for number in kept), tuple(kept))


def schedule(seed: int, needs: Sequence[str] = ()) -> Schedule:
    """The schedule of a seed: 14 to 26 steps of tenants and admins, none or up to 8 faults of one theme, and
    with them faults that wait for a workload in a certain phase.

    `needs`: verbs or arguments of steps, of a fault also with a phase: `kill when admitted`. Beside the
    others there are six groups of steps that have one of each, within few seconds.
    """
    random = Random(f"schedule {seed}")
    steps = [_step(random, _ACTIONS) for _ in range(random.randint(14, 26))]
    theme = random.choice(_THEMES)
    faults = {verb: _FAULTS[verb] for verb in theme}
    if number := random.choice((0, 2, 3, 4, 6, 8)):
        steps += [_step(random, faults) for _ in range(number)]
        for cell in range(_AIMED * seed, _AIMED * (seed + 1)):
            steps += _aimed(random, *_AIMS[cell % len(_AIMS)])
    for _ in range(_GROUPS if needs else 0):
        steps += _together(random, needs)
    steps.sort(key=lambda step: step.at)
    return Schedule(seed, tuple(steps), tuple(range(len(steps))))


Make = Callable[[Random], tuple[Any, ...]]


def _together(random: Random, needs: Sequence[str]) -> Iterator[Step]:
    begin = random.uniform(0.0, SECONDS)
    for need, _, phase in (need.partition(" when ") for need in needs):
        while True:
            step = _step(random, _ACTIONS | _FAULTS)
            if step.verb == need or need in step.args:
                break
        yield step._replace(at=round(begin + random.uniform(0.0, _NEAR), 1), when=phase)


def _step(random: Random, table: dict[str, tuple[int, Make]]) -> Step:
    verb = random.choices(list(table), [weight for weight, _ in table.values()])[0]
    return Step(round(random.uniform(0.0, SECONDS), 1), verb, table[verb][1](random))


def _name(random: Random) -> tuple[Any, ...]:
    return random.choice(list(TEAMS)), f"w{random.randrange(_NAMES)}"


def _submit(random: Random) -> tuple[Any, ...]:
    """Namespace, name, kind, pods, GPUs of each, seconds that it runs and that it takes to end, priority."""
    kind = random.choice(("Job", "Job", "Job", "PyTorchJob"))
    pods = random.choice((1, 1, 2, 2)) if kind == "Job" else 2
    return (
        *_name(random),
        *(kind, pods, random.choice((1, 1, 2, 2)), random.choice((5, 10, 20, 1000, 1000))),
        *(random.choice((0, 0, 1, 5, 12)), random.choice(("low", "low", "mid", "high"))),
    )


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
    "move": (2, lambda r: (*_name(r), r.choice(("main", "other")))),
    "apply again": (2, _name),
    "tenant starts": (1, _name),
    "tenant suspends": (1, _name),
    "quota": (3, _quota),
    "stop queue": (2, lambda r: (r.choice(list(TEAMS)), r.choice(("Hold", "HoldAndDrain", "None")))),
    "stop local queue": (1, lambda r: (r.choice(list(TEAMS)), r.choice(("Hold", "HoldAndDrain", "None")))),
    "delete local queue": (1, lambda r: (r.choice(list(TEAMS)),)),
    "delete queue": (1, lambda r: (r.choice(list(TEAMS)),)),
    "leave cohort": (1, lambda r: (r.choice(list(TEAMS)), r.choice(("", "research")))),
    "delete pods": (1, _name),
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
    "requests": (5, lambda r: (*_window(REQUEST_FAULTS, 30.0)(r), r.random() < 0.3)),
    "watches": (4, _window(WATCH_FAULTS, 60.0)),
    "expire": (
        2,
        lambda r: (r.choice(("jobs.batch", "pytorchjobs.kubeflow.org", "clusterqueues.queuectl.dev")),),
    ),
    "compact": (1, lambda r: ()),
    "discovery": (2, _window(DISCOVERY_FAULTS, 40.0)),
    "definition gone": (1, lambda r: (round(r.uniform(1.0, 40.0), 1),)),
    "database": (6, _window(DATABASE_FAULTS, 45.0)),
    "database clock": (1, lambda r: (r.choice((-3600.0, -30.0, 30.0, 3600.0)),)),
}
CELLS: Final = tuple(
    (kind, phase)
    for phase in PHASES
    for kind in (*REQUEST_FAULTS, *WATCH_FAULTS, *DISCOVERY_FAULTS, *DATABASE_FAULTS, *PLAIN_FAULTS)
)
"""Each kind of fault with each phase of a workload's life: one schedule after the other aims at some."""


_AIMS: Final = (
    *CELLS,
    *((kind, phase) for kind, phase in CELLS if phase in ("evicting", "gone") or kind in DISCOVERY_FAULTS),
    *((kind, phase) for kind, phase in CELLS if kind in DISCOVERY_FAULTS),
)
"""What is rarely met is aimed at twice, or three times."""


def _aimed(random: Random, kind: str, phase: str) -> Iterator[Step]:
    """A fault of this kind that begins when a workload is in this phase, and what it needs to be met then."""
    at = round(random.uniform(0.0, SECONDS - 20.0), 1)
    name = _name(random)
    yield Step(at, "submit", (*name, "Job", 1, 1, 1000, 12, "high"))
    if phase in ("evicting", "gone"):
        yield Step(at + 6.0, "hold" if phase == "evicting" else "delete", name)
    window = ("", round(random.uniform(5.0, 15.0), 1), 1.0)
    if kind in PLAIN_FAULTS:
        yield Step(at, kind, _FAULTS[kind][1](random), phase)
        return
    verb = next(verb for verb, kinds in _WINDOWS.items() if kind in kinds)
    yield Step(at, verb, (kind, *window), phase)
    if verb == "discovery":  # it is asked after a change alone
        yield Step(at, "definition gone", window[1:2], phase)
    if phase == "admitted" and verb != "requests":  # it is over in milliseconds
        yield Step(at, "requests", ("slow", *window), phase)


_THEMES: Final[tuple[tuple[str, ...], ...]] = (
    ("kill", "terminate", "pause", "block loop", "database"),
    ("requests", "requests", "discovery", "kill"),
    ("watches", "expire", "compact", "discovery", "definition gone"),
    ("database", "database clock", "kill", "pause"),
    tuple(_FAULTS),
)
"""Faults that come together: alone, most of them are survived by a second line of defence."""
