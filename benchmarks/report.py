"""Figures with their ceilings on this machine, and their output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

Json = dict[str, Any]


class Goal(NamedTuple):
    """A goal: of the figure or of its ratio to the ceiling, at least or at most."""

    of: Literal["value", "ratio"]
    at: Literal["least", "most"]
    limit: float

    def met(self, figure: Figure) -> bool:
        found = figure.value if self.of == "value" else figure.ratio
        assert found is not None, f"{figure.name} has no ceiling to be a ratio of"
        return found >= self.limit if self.at == "least" else found <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at == "least" else "≤"
        return f"{sign} {self.limit:.0%}" if self.of == "ratio" else f"{sign} {shown(self.limit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One result in `unit`, and the same quantity of `bound`: the ceiling without queuectl."""

    name: str
    value: float
    unit: str
    ceiling: float | None = None
    bound: str = ""
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.ceiling if self.ceiling else None

    def to_json(self) -> Json:
        goal = None if self.goal is None else {**self.goal._asdict(), "met": self.goal.met(self)}
        return {**asdict(self), "ratio": self.ratio, "goal": goal}


@dataclass(frozen=True, slots=True)
class Detail:
    """A table with details of figures: cells are texts or numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]

    def to_json(self) -> Json:
        return {"title": self.title, "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows]}


@dataclass(slots=True)
class Report:
    """The results of one benchmark."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    skipped: str = ""
    """The reason for which it was not run."""

    def to_json(self) -> Json:
        found: Json = {"benchmark": self.name}
        if self.skipped:
            return {**found, "skipped": self.skipped}
        figures = [figure.to_json() for figure in self.figures]
        return {**found, "figures": figures, "details": [detail.to_json() for detail in self.details]}


def shown(value: str | float) -> str:
    """Format with three significant digits."""
    if isinstance(value, str):
        return value
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.{1 if size >= 10 else 2}f}"


def show(console: Console, report: Report) -> None:
    if report.skipped:
        console.print(f"[yellow]{report.name}: SKIPPED: {report.skipped}[/]")
        return
    table = Table(title=report.name, title_justify="left", title_style="bold")
    for column in ("", "found", "unit", "this machine's own", "ratio", "goal", ""):
        table.add_column(column, justify="right" if column in ("found", "ratio", "goal") else "left")
    for figure in report.figures:
        ratio, goal = figure.ratio, figure.goal
        table.add_row(
            figure.name,
            shown(figure.value),
            figure.unit,
            "" if figure.ceiling is None else f"{shown(figure.ceiling)}  {figure.bound}",
            "" if ratio is None else f"{ratio:.2f}",
            "" if goal is None else str(goal),
            "" if goal is None else "met" if goal.met(figure) else "MISSED",
        )
    console.print(table)
    for detail in report.details:
        show_detail(console, detail)


def show_detail(console: Console, detail: Detail) -> None:
    table = Table(title=detail.title, title_justify="left")
    for number, column in enumerate(detail.columns):
        texts = all(isinstance(row[number], str) for row in detail.rows)
        table.add_column(column, justify="left" if texts else "right")
    for row in detail.rows:
        table.add_row(*(shown(cell) for cell in row))
    console.print(table)


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


def percentile(values: Sequence[float], part: float) -> float:
    """The least value that `part` (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), -int(-part * len(ordered) // 1)) - 1)]
