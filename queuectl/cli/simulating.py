"""`simulate`: a policy and its workloads in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.importing import texts
from queuectl.cli.options import Failure, Options, with_options
from queuectl.cli.policies import policy_option, read_policies
from queuectl.cli.printing import Column
from queuectl.cli.progress import done_of
from queuectl.screen.text import figure

Document = dict[str, Any]

_PICTURES: Final = (".svg", ".png")


@click.command("simulate")
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
    if options.output == "table":
        _show(found)
    else:
        printing.document(found, options.output)
    if picture is not None:
        _draw(found, picture)


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


def _draw(found: Document, path: Path) -> None:
    from queuectl.simulation.picture import draw

    try:
        draw(found, path)
    except OSError as error:
        raise Failure(f"--picture {path}: {error.strerror or error}") from None


# --- tables ------------------------------------------------------------------------------------------


def _show(found: Document) -> None:
    total = found["total"]
    click.echo(
        f"{printing.printable(found['name'])}: {total['workloads']} workloads, "
        f"{figure(found['seconds'])} of virtual time"
    )
    _part("Waits, from arrival to the first start", _WAITS, map(_wait, [*found["queues"], _all(total)]))
    _part("Use, in percent of nominal quota", _USES, _uses(found))
    if any(queue["evictions"] or queue["lostSeconds"] for queue in found["queues"]):
        _part(
            "Preemptions, and the run time lost", _EVICTIONS, map(_eviction, [*found["queues"], _all(total)])
        )
    if found["nodes"]:
        _part("Nodes, in percent of what is allocatable", _NODES, map(_node, found["nodes"]))
        _part("Time without room on nodes", _ROOM, map(_room, [*found["queues"], _all(total)]))
    if len(found["priorities"]) > 1:
        _part("By priority", (_PRIORITY, *_WAITS[1:], _LOST), map(_priority, found["priorities"]))


def _all(total: Document) -> Document:
    return {"name": "total", **total}


def _part(text: str, columns: Sequence[Column], rows: Any) -> None:
    click.echo()
    click.echo(text)
    printing.table(columns, list(rows))


_WAITS: Final = printing.columns_of(
    "QUEUE", "WORKLOADS>", "STARTED>", "FINISHED>", "WAITING>", "NEVER>", "MEAN>", "MEDIAN>", "P95>", "MAX>"
)
_PRIORITY: Final = Column("PRIORITY", right=True)
_LOST: Final = Column("LOST", right=True)


def _wait(one: Document) -> Sequence[object]:
    counts = (one[key] for key in ("workloads", "started", "finished", "waiting", "never"))
    times = (figure(one["wait"][key]) for key in ("mean", "median", "p95", "max"))
    return (one.get("name"), *counts, *times)


def _priority(one: Document) -> Sequence[object]:
    return (one["priority"], *_wait(one)[1:], figure(one["lostSeconds"]))


_USES: Final = printing.columns_of(
    "QUEUE", "RESOURCE", "NOMINAL>", "IN USE>", "USED>", "BORROWED>", "LOST>", "SHARE OF TREE>", "AT MOST>"
)


def _uses(found: Document) -> Iterator[Sequence[object]]:
    for queue in [*found["queues"], _all(found["total"])]:
        share = queue.get("dominantShare")
        shares = (_percent(share["mean"]), _percent(share["max"])) if share else (None, None)
        for number, one in enumerate(queue["resources"]):
            yield (
                queue["name"],
                one["resource"],
                printing.amount(one["resource"], one["nominal"]),
                printing.amount(one["resource"], round(one["used"])),
                *(_percent(one[key]) for key in ("usedPercent", "borrowedPercent", "lostPercent")),
                *(shares if number == 0 else (None, None)),
            )


def _percent(value: float | None) -> str:
    return printing.NOTHING if value is None else f"{value:.1f} %"


_NODES: Final = printing.columns_of(
    "RESOURCE", "ALLOCATABLE>", "USED>", "UNMANAGED>", "UNUSABLE>", "IDLE>", "FRAGMENTED>"
)


def _node(one: Document) -> Sequence[object]:
    shares = ("usedPercent", "unmanagedPercent", "unusablePercent", "idlePercent", "fragmentedPercent")
    amount = printing.amount(one["resource"], round(one["allocatable"]))
    return (one["resource"], amount, *(_percent(one[share]) for share in shares))


_ROOM: Final = printing.columns_of("QUEUE", "CAPACITY MISSING>", "NO NODE FITS>", "STALLED>")


def _room(one: Document) -> Sequence[object]:
    room = one["room"]
    return (one["name"], *map(figure, room["waitSeconds"].values()), figure(room["stalledSeconds"]))


_EVICTIONS: Final = printing.columns_of("QUEUE", "DONE>", "SUFFERED>", "LOST>", "WHY")


def _eviction(one: Document) -> Sequence[object]:
    reasons = {**one["evictions"], **one["preemptions"]["causes"]}
    if one["preemptions"]["causes"]:
        reasons.pop("Preempted", None)
    why = ", ".join(f"{code} {times}" for code, times in reasons.items())
    figures = one["preemptions"]
    return (one["name"], figures["done"], figures["suffered"], figure(one["lostSeconds"]), why or None)
