"""`queuectl test`: compares decisions of a policy with expected ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.importing import policy_option, read_each, read_policies
from queuectl.cli.options import Failure, NotGood, Options, command, with_options
from queuectl.cli.printing import Column, printable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from queuectl.scenarios.reader import Scenario
    from queuectl.scenarios.verdicts import CaseVerdict

_COLUMNS: Final = (
    Column("RESULT"),
    Column("DOCUMENT"),
    Column("KIND", wide=True),
    Column("WHERE"),
    Column("WHY"),
)
_COLORS: Final = {"-": "red", "+": "green"}


@command("test")
@click.argument("names", nargs=-1, required=True, metavar="FILE...")
@policy_option
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Also write the results as JUnit XML."
)
@click.option("--print", "shown", is_flag=True, help="Print the decisions as JSON, without comparing.")
@with_options
def test(
    options: Options, names: tuple[str, ...], policies: tuple[str, ...], junit: Path | None, shown: bool
) -> None:
    """Run policy tests: documents with queues, workloads, and the decisions to expect.

    FILE is YAML or JSON, a folder of such files, or - for standard input: one document, a list, or several
    YAML documents (docs/policy-tests.md). Uses no cluster and no ledger.

    Exit code 1 if a decision is not as expected, 2 if a document cannot be read.
    """
    from queuectl.scenarios.verdicts import judge

    scenarios = _read(names, policies, needs_expect=not shown)
    verdicts = [judge(scenario) for scenario in scenarios]
    if shown:
        printing.document([_observed(verdict) for verdict in verdicts], "json")
        return
    if junit is not None:
        _write(verdicts, junit)
    counts = Counter(verdict.result.value for verdict in verdicts)
    if options.output == "table":
        _table(verdicts, wide=options.wide)
    else:
        printing.document(
            {
                "passed": counts["passed"],
                "failed": counts["failed"],
                "skipped": counts["skipped"],
                "documents": [_told(verdict) for verdict in verdicts],
            },
            options.output,
        )
    told = ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "skipped"))
    if counts["failed"]:
        raise NotGood(f"{len(verdicts)} documents: {told}")
    click.echo(f"{len(verdicts)} documents: {told}", err=True)


def _read(names: tuple[str, ...], policies: tuple[str, ...], *, needs_expect: bool) -> list[Scenario]:
    """All documents of all files. Raises Failure with all their errors."""
    from queuectl.scenarios.documents import Cycle
    from queuectl.scenarios.reader import read_scenarios

    found: list[Scenario] = []
    wrong: list[str] = []
    policy = read_policies(policies, wrong)
    for scenarios in read_each(names, lambda text, name: read_scenarios(text, name, policy), wrong):
        found += scenarios
    if needs_expect:
        wrong += [
            f"{one.file}: line {one.line}, column 1: {one.header.title}: expect is missing (see --print)"
            for one in found
            if isinstance(one.document, Cycle) and one.document.expect is None
        ]
    if wrong:
        raise Failure("\n".join(wrong))
    return found


def _write(verdicts: list[CaseVerdict], path: Path) -> None:
    from queuectl.scenarios.verdicts import write_junit

    try:
        write_junit(verdicts, path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from None


def _table(verdicts: list[CaseVerdict], *, wide: bool) -> None:
    printing.table(_COLUMNS, map(_row, verdicts), wide=wide)
    for verdict in verdicts:
        if verdict.differences:
            scenario = verdict.scenario
            click.echo(
                f"\n{printable(scenario.header.title)} ({printable(scenario.file)}: line {scenario.line})"
            )
            for line in verdict.lines():
                click.secho(printable(line), fg=_COLORS.get(line[0]))


def _row(verdict: CaseVerdict) -> tuple[object, ...]:
    scenario, count = verdict.scenario, len(verdict.differences)
    why = f"{count} difference{'s' * (count != 1)}" if count else scenario.left_out
    where = f"{scenario.file}:{scenario.line}"
    return verdict.result, scenario.header.title, scenario.header.kind, where, why


def _told(verdict: CaseVerdict) -> dict[str, Any]:
    scenario = verdict.scenario
    found: dict[str, Any] = {
        "file": scenario.file,
        "line": scenario.line,
        "id": scenario.header.id,
        "name": scenario.header.name,
        "kind": scenario.header.kind,
        "result": verdict.result.value,
    }
    if scenario.left_out:
        found["reason"] = scenario.left_out
    if verdict.differences:
        found["differences"] = [
            {"path": one.path, "expected": one.expected, "observed": one.observed}
            for one in verdict.differences
        ]
        found["findings"] = [
            {**one._asdict(), "behind": list(one.behind), "step": one.step or None}
            for one in verdict.findings
        ]
    return found


def _observed(verdict: CaseVerdict) -> dict[str, Any]:
    scenario = verdict.scenario
    found: dict[str, Any] = {"file": scenario.file, "line": scenario.line, "name": scenario.header.name}
    if verdict.observed is None:
        return found | {"skipped": scenario.left_out}
    if verdict.steps:
        found["steps"] = [None if step is None else _plain(step) for step in verdict.steps]
    return found | {"expect": _plain(verdict.observed)}


def _plain(expect: BaseModel) -> Any:
    """In the form of a document."""
    return json.loads(expect.model_dump_json(by_alias=True, exclude_none=True))
