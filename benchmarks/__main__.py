"""`python -m benchmarks`: what a decision costs, and whether that depends on how much there is."""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.measures import Measure, admissions, measure


@click.command()
@click.option(
    "--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="also write the figures here"
)
@click.option(
    "--scale", type=click.IntRange(1, 100), default=1, help="divide all sizes by this, for a quick look"
)
@click.option("--profile", is_flag=True, help="show where the time goes instead")
def main(path: Path | None, scale: int, profile: bool) -> None:
    """Speed of the decision core, in CPU time, as ratios within one run."""
    if profile:
        return _profile(scale)
    found = measure(scale)
    Console().print(_table(found))
    if path is not None:
        rows = [{**asdict(one), "ratio": one.ratio} for one in found]
        path.write_text(json.dumps({"scale": scale, "measures": rows}, indent=2) + "\n", "utf-8")
    return None


def _table(found: list[Measure]) -> Table:
    table = Table(caption="ratio 1: the cost of a step does not depend on the size")
    for name in ("step", "large", "small", "per second", "µs large", "µs small", "ratio"):
        table.add_column(name, justify="left" if name in ("step", "large", "small") else "right")
    for one in found:
        table.add_row(
            one.name,
            one.large_size,
            one.small_size,
            f"{one.per_second:,.0f}",
            f"{one.large * 1e6:,.1f}",
            f"{one.small * 1e6:,.1f}",
            f"{one.ratio:.2f}",
        )
    return table


def _profile(scale: int) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    admissions(max(1, 200 // scale), 50)
    profiler.disable()
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
