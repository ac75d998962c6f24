"""`simulate`: a policy and its workloads in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.importing import policy_option, read_policies, texts
from queuectl.cli.options import Failure, Options, command, with_options
from queuectl.cli.printing import field, quantity, section, shown
from queuectl.cli.progress import done_of
from queuectl.screen.text import figure

Document = dict[str, Any]

_PICTURES: Final = (".svg", ".png")


@command("simulate")
@click.argument("file")
@policy_option
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.svg|OUT.png",
    help="Draw usage and waits over time.",
)
@with_options
def simulate(options: Options, file: str, policies: tuple[str, ...], picture: Path | None) -> None:
    """Simulate the workloads in FILE in virtual time, and print measurements.

    FILE is a scenario document of kind `simulation`: queues, workloads with run times, and templates
    (docs/simulation.md); - is standard input. Reads and writes no cluster. The same file
    gives the same result.
    """
    if picture is not None:
        check_picture(picture)
    found = _played(file, policies)
    if not printing.as_document(found, options.output):
        _show(found)
    if picture is not None:
        draw_in(picture, found)


def _played(file: str, policies: tuple[str, ...]) -> Document:
    from queuectl.files import BadFile
    from queuectl.scenarios.reader import BadScenarios
    from queuectl.simulation.player import NeverEnds
    from queuectl.simulation.stage import play, read_simulation

    wrong: list[str] = []
    policy = read_policies(policies, wrong)
    if wrong:
        raise Failure("\n".join(wrong))
    try:
        (name, text), *more = texts(file)
        if more:
            raise Failure(f"{file}: one file is simulated at a time")
        scenario = read_simulation(text, name, policy)
        with done_of(f"playing {name}") as progress:
            return play(scenario, progress)
    except BadFile as problem:
        raise Failure(str(problem)) from None
    except BadScenarios as bad:
        raise Failure("\n  ".join(["the scenario is not valid:", *bad.problems])) from None
    except NeverEnds as problem:
        raise Failure(f"{file}: {problem}") from None


# --- the picture -------------------------------------------------------------------------------------


def check_picture(path: Path) -> None:
    """Checks before a simulation that may take minutes."""
    if path.suffix.lower() not in _PICTURES:
        raise Failure(f"--picture {path}: its name must end in .svg or .png")
    if not path.parent.is_dir():
        raise Failure(f"--picture {path}: there is no folder {path.parent}")
    try:
        import queuectl.simulation.picture  # noqa: F401
    except ModuleNotFoundError as error:
        raise Failure(
            f"--picture needs {error.name}, which is not installed: pip install 'queuectl[pictures]'"
        ) from None


def draw_in(path: Path, found: Document, *others: Document) -> None:
    """The picture of one simulation, or of several beside each other."""
    from queuectl.simulation.picture import draw

    try:
        draw(found, path, *others)
    except OSError as error:
        raise Failure(f"--picture {path}: {error.strerror or error}") from None


# --- tables ------------------------------------------------------------------------------------------


def _show(found: Document) -> None:
    total = found["total"]
    queues = [*found["queues"], {"name": "total", **total}]
    click.echo(
        f"{printing.printable(found['name'])}: {total['workloads']} workloads, "
        f"{figure(found['seconds'])} of virtual time"
    )
    section("Waits, from arrival to the first start", _WAITS, queues)
    section("Use, in percent of nominal quota", _USES, [one for queue in queues for one in _uses(queue)])
    if any(queue["evictions"] or queue["lostSeconds"] for queue in found["queues"]):
        section("Preemptions, and the run time lost", _EVICTIONS, queues)
    if found["nodes"]:
        section("Nodes, in percent of what is allocatable", _NODES, found["nodes"])
        section("Time without room on nodes", _ROOM, queues)
    if len(found["priorities"]) > 1:
        section("By priority", _PRIORITIES, found["priorities"])


def _uses(queue: Document) -> Iterator[Document]:
    """A line for each resource; the first one has the share of the tree too."""
    share = queue.get("dominantShare")
    for number, one in enumerate(queue["resources"]):
        yield {**one, "name": queue["name"], "share": share if number == 0 else None}


def _percent(path: str) -> Callable[[Document], object]:
    return shown(lambda value: None if value is None else f"{value:.1f} %", path)


def _rounded(path: str) -> Callable[[Document], object]:
    return lambda one: printing.amount(one["resource"], round(one[path]))


def _why(one: Document) -> str | None:
    """The reasons of evictions, those of preemptions by their rule."""
    reasons = {**one["evictions"], **one["preemptions"]["causes"]}
    if one["preemptions"]["causes"]:
        reasons.pop("Preempted", None)
    return ", ".join(f"{code} {times}" for code, times in reasons.items()) or None


_WAITS: Final = (
    field("QUEUE", "name"),
    field("WORKLOADS>", "workloads"),
    field("STARTED>", "started"),
    field("FINISHED>", "finished"),
    field("WAITING>", "waiting"),
    field("NEVER>", "never"),
    field("MEAN>", shown(figure, "wait.mean")),
    field("MEDIAN>", shown(figure, "wait.median")),
    field("P95>", shown(figure, "wait.p95")),
    field("MAX>", shown(figure, "wait.max")),
)
_PRIORITIES: Final = (
    field("PRIORITY>", "priority"),
    *_WAITS[1:],
    field("LOST>", shown(figure, "lostSeconds")),
)
_USES: Final = (
    field("QUEUE", "name"),
    field("RESOURCE", "resource"),
    field("NOMINAL>", quantity("nominal")),
    field("IN USE>", _rounded("used")),
    field("USED>", _percent("usedPercent")),
    field("BORROWED>", _percent("borrowedPercent")),
    field("LOST>", _percent("lostPercent")),
    field("SHARE OF TREE>", _percent("share.mean")),
    field("AT MOST>", _percent("share.max")),
)
_NODES: Final = (
    field("RESOURCE", "resource"),
    field("ALLOCATABLE>", _rounded("allocatable")),
    field("USED>", _percent("usedPercent")),
    field("UNMANAGED>", _percent("unmanagedPercent")),
    field("UNUSABLE>", _percent("unusablePercent")),
    field("IDLE>", _percent("idlePercent")),
    field("FRAGMENTED>", _percent("fragmentedPercent")),
)
_ROOM: Final = (
    field("QUEUE", "name"),
    field("CAPACITY MISSING>", shown(figure, "room.waitSeconds.CapacityMissing")),
    field("NO NODE FITS>", shown(figure, "room.waitSeconds.NoNodeFits")),
    field("STALLED>", shown(figure, "room.stalledSeconds")),
)
_EVICTIONS: Final = (
    field("QUEUE", "name"),
    field("DONE>", "preemptions.done"),
    field("SUFFERED>", "preemptions.suffered"),
    field("LOST>", shown(figure, "lostSeconds")),
    field("WHY", _why),
)
