"""`make bench`: the speed on this machine, beside ceilings measured in the same run."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import click
from rich.console import Console

from benchmarks.machine import described
from benchmarks.profiles import Samples
from benchmarks.progress import console as aside
from benchmarks.report import Detail, Report, show, show_detail
from queuectl.sandbox.control_plane import ASSETS_VARIABLE, find_assets
from queuectl.sandbox.processes import end_with_make
from tests.doubles.processes import interrupt_on_sigterm

BENCHMARKS: Final = {
    "engine": "admissions a second of the decision core",
    "decisions": "cohorts three deep, 50,000 waiting: admissions, searches for victims, one event, memory",
    "ledger": "admissions committed a second",
    "past": "an earlier state of 12,000 open workloads, beside the newest one",
    "room": "nodes and pods: one check, one event, memory, and admissions with Enforce beside those without",
    "limits": "admissions with a limit for each of 1,000 users, beside those without",
    "usage": "roll-ups of 10,000,000 decisions, and usage of a month of 200,000 workloads",
    "lead": "seconds to a new leader's first admission after 10,000,000 decisions, 50,000 waiting",
    "failover": "seconds without a decision when the leader or Postgres is killed, while 50,000 Jobs wait",
    "jobs": "Jobs a second end to end on the real API server with room for all, and what each costs",
    "contended": "the same for 4,500 Jobs that come faster than 30 queues in five cohorts can run them",
    "node-loss": "seconds until a gang runs elsewhere after a node failed under it, while its queue is full",
    "gate": "CPU of the API server for a Job, without policies and with them",
    "pods": "CPU of the API server and starts a second of 1,000 pods that queue one by one",
    "kinds": "start and memory of the controller with 12 kinds of 2,000 objects each, beside as many Jobs",
    "eta": "forecasts of starts on four simulated months: intervals that held, errors beside naive estimates",
    "eta-live": "forecasts of starts beside the real starts of Jobs on the real API server, in fast time",
    "replay": "a simulated week of 20,000 workloads replayed under its policy and another one",
    "rest": "pages of REST for a tenant while 20,000 wait, and memory",
    "answers": "pages, workloads and explanations while 50,000 wait, and what readers cost the controller",
}
_LARGE: Final = ("usage", "lead", "failover", "eta", "eta-live", "answers", "replay")
"""Only when they are named: each takes minutes, and `usage` and `lead` write 10 GB."""
_NEED_CONTROL_PLANE: Final = (
    "failover",
    "jobs",
    "contended",
    "node-loss",
    "gate",
    "pods",
    "kinds",
    "eta-live",
    "rest",
    "answers",
)


def _chosen(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    names = (
        [one for one in BENCHMARKS if one not in _LARGE]
        if value is None
        else [name.strip() for name in value.split(",")]
    )
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise click.BadParameter(f"{', '.join(unknown)} is none of {', '.join(BENCHMARKS)}")
    return names


@click.command()
@click.option("--only", callback=_chosen, metavar="NAME[,NAME]", help=f"Of {', '.join(BENCHMARKS)}.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write all of it here too."
)
@click.option(
    "--scale", type=click.IntRange(1, 1000), default=1, help="Divide all sizes by this, for a quick look."
)
@click.option("--profile", is_flag=True, help="Show where CPU time goes instead.")
def main(only: list[str], path: Path | None, scale: int, profile: bool) -> None:
    """Speed of queuectl on this machine; each figure stands beside a ceiling measured in the same run."""
    end_with_make()
    interrupt_on_sigterm()  # it ends its processes and removes its folders
    if profile:
        return _profile(only, scale)
    machine, console = described(), Console(width=None if sys.stdout.isatty() else 160)
    show_detail(console, Detail("machine", tuple(machine), (tuple(machine.values()),)))
    reports = []
    for name in only:
        reports.append(_run(name, scale))
        show(console, reports[-1])
    if path is not None:
        found = {"machine": machine, "scale": scale, "benchmarks": [one.to_json() for one in reports]}
        path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return None


def _run(name: str, scale: int) -> Report:
    if (reason := _lacking(name)) is not None:
        return Report(name, skipped=reason)
    aside.print(f"{name}: {BENCHMARKS[name]} …", style="dim")
    report: Report = _module(name).run(scale)
    return report


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


def _lacking(name: str) -> str | None:
    """The reason for which the benchmark can't run here, if any."""
    if name not in _NEED_CONTROL_PLANE or find_assets() is not None:
        return None
    return f"{ASSETS_VARIABLE} is not set: it needs a real kube-apiserver (see docs/performance.md)"


def _profile(names: list[str], scale: int) -> None:
    for name in names:
        if (reason := _lacking(name)) is not None:
            show(Console(), Report(name, skipped=reason))
            continue
        profiled = getattr(_module(name), "profiled", None)
        if profiled is None:
            show(Console(), Report(name, skipped="it has no profile"))
            continue
        found: dict[str, Samples] = profiled(scale)
        for process, samples in found.items():
            for detail in samples.details(f"{name}, {process}"):
                show_detail(Console(), detail)


if __name__ == "__main__":
    main()
