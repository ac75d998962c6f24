"""`replay`: a past time under another policy. `dump`: a state of the ledger as a test case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.arguments import Since
from queuectl.cli.importing import read_policies
from queuectl.cli.operating import call
from queuectl.cli.options import Failure, Options, command, with_options
from queuectl.cli.progress import done_of
from queuectl.cli.reading import AS_OF
from queuectl.cli.simulating import check_picture, draw_in
from queuectl.screen.text import figure

if TYPE_CHECKING:
    from queuectl.core.model.events import Event

Document = dict[str, Any]


@command("replay")
@click.option(
    "--since",
    type=Since(),
    metavar="TIME",
    required=True,
    help="From 90m, 12h, 7d ago, or from a time (UTC), to now.",
)
@click.option(
    "--policy",
    "-p",
    "policies",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Policy manifests: a file or a folder. Replaces objects of the same kind and name. May be repeated.",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.svg|OUT.png",
    help="Draw usage and waits over time, before and after.",
)
@click.option("--cluster", help="UID of its namespace kube-system, if the ledger has several clusters.")
@with_options
def replay(
    options: Options,
    *,
    since: datetime | timedelta,
    policies: tuple[str, ...],
    picture: Path | None,
    cluster: str | None,
) -> None:
    """Play the time since TIME again on virtual time, under its policy and under another one.

    Prints waits, preemptions and resource-hours of each ClusterQueue: as they really were, replayed (BEFORE),
    and replayed with the policy of FILE (AFTER), and what a replay cannot know (docs/answers.md).
    Reads the ledger, not REST; writes nothing.
    """
    if picture is not None:
        check_picture(picture)
    policy = _policy(policies)
    settings, _, _ = options.connected(cluster=False)
    from queuectl.answers.replay import replayed
    from queuectl.app.past import past_since
    from queuectl.ports.ledger import NotStored
    from queuectl.ports.reader import TooMuchHistory
    from queuectl.simulation.player import NeverEnds

    try:
        past = call(past_since(settings, cluster=cluster, since=since))
        with done_of("playing") as progress:
            found = replayed(past, policy, progress)
    except (NotStored, TooMuchHistory, NeverEnds, ValueError) as problem:
        raise Failure(str(problem)) from None
    if not printing.as_document(found, options.output):
        _show(found)
    if picture is not None:
        draw_in(picture, found["before"], found["after"])


def _policy(names: tuple[str, ...]) -> Sequence[Event]:
    from queuectl.core.model.events import PolicyObserved

    wrong: list[str] = []
    events = read_policies(names, wrong).events
    if wrong:
        raise Failure("\n".join(wrong))
    if any(not isinstance(event, PolicyObserved) for event in events):
        raise Failure("--policy takes objects of queuectl.dev only: a replay has the context of its time")
    if not events:
        raise Failure(f"--policy {' '.join(names)}: no object in it")
    return events


# --- tables ------------------------------------------------------------------------------------------

_WAITS: Final = printing.columns_of(
    "QUEUE", "RUN", "WORKLOADS>", "STARTED>", "MEDIAN WAIT>", "P95>", "PREEMPTED>", "LOST>"
)
_HOURS: Final = printing.columns_of(
    "QUEUE", "RESOURCE", "USED BEFORE>", "AFTER>", "BORROWED BEFORE>", "AFTER>"
)


def _show(found: Document) -> None:
    from queuectl.answers.replay import unknown

    click.echo(f"From {found['since']} to {found['until']}: {found['workloads']} workloads")
    click.echo()
    printing.table(_WAITS, [row for queue in found["queues"] for row in _waits(queue)])
    click.echo()
    click.echo("In resource-hours")
    printing.table(_HOURS, [row for queue in found["queues"] for row in _hours(queue)])
    click.echo()
    click.echo("What this rests on:")
    for sentence in unknown(found["assumed"]):
        click.echo(f"- {sentence}")


def _waits(queue: Document) -> Iterator[Sequence[object]]:
    for run in ("really", "before", "after"):
        one = queue[run]
        lost = figure(one["lostSeconds"]) if "lostSeconds" in one else None
        waits = (figure(one["wait"]["median"]), figure(one["wait"]["p95"]))
        yield (queue["name"], run, one["workloads"], one["started"], *waits, one.get("preempted"), lost)


def _hours(queue: Document) -> Iterator[Sequence[object]]:
    before = {one["resource"]: one for one in queue["before"]["resources"]}
    after = {one["resource"]: one for one in queue["after"]["resources"]}
    for resource in sorted({*before, *after}):
        pair = (before.get(resource), after.get(resource))
        hours = (_amount(one, what) for what in ("usedHours", "borrowedHours") for one in pair)
        yield (queue["name"], resource, *hours)


def _amount(one: Document | None, what: str) -> str:
    if one is None:
        return printing.NOTHING
    return printing.resource_hours(one["resource"], one[what])


@command("dump")
@click.argument("tree", required=False)
@AS_OF
@click.option("--anonymous", is_flag=True, help="Replace names and UIDs, leave out free text and labels.")
@click.option(
    "--run-seconds",
    type=click.FloatRange(min=0),
    metavar="N",
    help="For `queuectl simulate`: each workload runs N seconds more.",
)
@click.option("--cluster", help="UID of its namespace kube-system, if the ledger has several clusters.")
@with_options
def dump(
    options: Options,
    tree: str | None,
    *,
    as_of: datetime | timedelta | None,
    anonymous: bool,
    run_seconds: float | None,
    cluster: str | None,
) -> None:
    """Print a state of the ledger as a document for `queuectl test`, or `queuectl simulate`.

    TREE is a Cohort or a ClusterQueue: only what is in its tree is printed. The document has the policy as
    manifests, to be edited, the workloads with all that the ledger has of them, and of now the nodes;
    add `expect` to make it a test (docs/policy-tests.md). Reads the ledger, not REST.
    """
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import past
    from queuectl.ports.ledger import NotStored
    from queuectl.scenarios.dump import NoSuchTree

    try:
        found = call(
            past.dumped(
                settings,
                cluster=cluster,
                as_of=as_of,
                tree=tree,
                run_seconds=run_seconds,
                without_names=anonymous,
            )
        )
    except (NotStored, NoSuchTree) as problem:
        raise Failure(str(problem)) from None
    printing.document(found, "json" if options.output == "json" else "yaml")
