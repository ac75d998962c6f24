"""Draws the measures of a simulation: usage and quota of each queue, and number of pending workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from queuectl.core.model.resources import format_amount
from queuectl.simulation.measures import Document

MOST_QUEUES: Final = 9
"""Queues drawn apart; the others are drawn together."""
MOST_RESOURCES: Final = 3
"""Resources drawn: the most used ones."""
OTHERS: Final = "others"
_COLOURS: Final = (
    "#4477aa", "#ee7733", "#228833", "#ccbb44", "#aa3377",
    "#66ccee", "#994f00", "#bbbbbb", "#332288", "#dddddd",
)  # fmt: skip
"""Distinguishable also with colour blindness."""
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "queuectl",  # no time in the file: the same picture is the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_UNITS: Final = ((259_200.0, 86_400.0, "days"), (7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"))


def draw(found: Document, path: Path, *others: Document) -> None:
    """Written as SVG or PNG, by the suffix of `path`. `others`: drawn beside it, with the same queues in the
    same order. Raises OSError."""
    documents = (found, *others)
    shown = [_shown(one, found) for one in documents]
    resources = _resources(found)
    with matplotlib.rc_context(_STYLE):
        rows = [3.0] * len(resources) + [2.0]
        figure = Figure(figsize=(9 * len(documents), 1.2 + sum(rows) * 0.9), layout="constrained")
        grid = figure.subplots(len(rows), len(documents), sharex=True, height_ratios=rows, squeeze=False)
        for number, (one, (queues, timeline)) in enumerate(zip(documents, shown, strict=True)):
            axes = grid[:, number]
            edges, unit = _edges(one)
            for axis, resource in zip(axes, resources, strict=False):
                _use(axis, edges, queues, timeline, resource)
            _waiting(axes[-1], edges, queues, timeline)
            axes[-1].set_xlabel(unit)
            axes[-1].set_xlim(edges[0], edges[-1])
            axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 3, 6, 10]))
        for row in grid:
            top = max(axis.get_ylim()[1] for axis in row)
            for axis in row:
                axis.set_ylim(top=top)
        handles, labels = grid[-1, 0].get_legend_handles_labels()
        if others:
            labels = [label.partition("\n")[0] for label in labels]  # waits are of one of them
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        title = " | ".join(one["name"] for one in documents)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    svg = path.suffix.lower() == ".svg"
    metadata = {"Date": None, "Creator": None} if svg else {"Software": None}
    figure.savefig(path, dpi=120, metadata=metadata)
    if svg:
        text = "\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines())
        path.write_text(text + "\n", encoding="utf-8")


# --- data ----------------------------------------------------------------------------------------------


def _shown(found: Document, first: Document) -> tuple[list[Document], list[Document]]:
    """Queues and their values over time; if there are many, those with the least usage in `first` are added
    up."""
    pairs = list(zip(found["queues"], found["timeline"]["queues"], strict=True))
    if len(pairs) > MOST_QUEUES:
        order = sorted(range(len(pairs)), key=lambda n: (-first["queues"][n]["dominantShare"]["mean"], n))
        kept = set(order[: MOST_QUEUES - 1])
        rest = [pair for n, pair in enumerate(pairs) if n not in kept]
        pairs = [pair for n, pair in enumerate(pairs) if n in kept]
        pairs.append((_together(rest), _added([over_time for _, over_time in rest])))
    return [queue for queue, _ in pairs], [over_time for _, over_time in pairs]


def _together(rest: list[tuple[Document, Document]]) -> Document:
    nominal: dict[str, int] = {}
    for queue, _ in rest:
        for one in queue["resources"]:
            nominal[one["resource"]] = nominal.get(one["resource"], 0) + one["nominal"]
    resources = [{"resource": resource, "nominal": amount} for resource, amount in nominal.items()]
    return {"name": f"{len(rest)} {OTHERS}", "resources": resources, "wait": None}


def _added(lines: list[Document]) -> Document:
    length = len(lines[0]["waiting"])
    found: Document = {"used": {}, "borrowed": {}, "waiting": [0.0] * length}
    for line in lines:
        found["waiting"] = _plus(found["waiting"], line["waiting"])
        for what in ("used", "borrowed"):
            for resource, values in line[what].items():
                found[what][resource] = _plus(found[what].get(resource, [0.0] * length), values)
    return found


def _plus(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(left, right, strict=True)]


def _resources(found: Document) -> list[str]:
    used = [(one["usedPercent"] or 0.0, one["resource"]) for one in found["total"]["resources"]]
    return [name for _, name in sorted(used, key=lambda one: (-one[0], one[1]))[:MOST_RESOURCES]]


def _edges(found: Document) -> tuple[list[float], str]:
    """Starts of the parts of the timeline and the end of the last one, in a suitable unit."""
    end, width = found["seconds"], found["timeline"]["seconds"]
    scale, unit = next(((size, unit) for least, size, unit in _UNITS if end >= least), (1.0, "seconds"))
    parts = max((len(one["waiting"]) for one in found["timeline"]["queues"]), default=1)
    edges = [number * width / scale for number in range(parts)]
    return [*edges, max(end / scale, edges[-1] + 1e-3)], unit


# --- the panels --------------------------------------------------------------------------------------


def _use(
    axis: Axes, edges: list[float], queues: list[Document], timeline: list[Document], resource: str
) -> None:
    """Stacked, with a dashed line at the total quota of each queue and those below it."""
    below = [0.0] * (len(edges) - 1)
    quota = 0.0
    for colour, queue, over_time in zip(_colours(queues), queues, timeline, strict=True):
        none = [0.0] * len(below)
        above = _plus(below, over_time["used"].get(resource, none))
        borrowed = over_time["borrowed"].get(resource, none)
        own = [whole - part for whole, part in zip(above, borrowed, strict=True)]
        axis.stairs(own, edges, baseline=below, fill=True, color=colour, linewidth=0, alpha=0.9)
        axis.stairs(above, edges, baseline=own, fill=True, color=colour, linewidth=0, alpha=0.45)
        nominal = sum(one["nominal"] for one in queue["resources"] if one["resource"] == resource)
        quota += nominal
        if nominal:
            axis.axhline(quota, color=_darker(colour), linestyle=(0, (5, 3)), linewidth=1.1)
        below = above
    axis.set_ylim(0, max(quota, *below, 1e-9) * 1.06)
    axis.set_ylabel(f"{resource} in use", wrap=True)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _amount(resource, value)))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_title(
        "pale: borrowed; dashed: nominal quota, from one queue to the next",
        fontsize=8,
        loc="left",
        color="#555555",
    )


def _waiting(axis: Axes, edges: list[float], queues: list[Document], timeline: list[Document]) -> None:
    for colour, queue, over_time in zip(_colours(queues), queues, timeline, strict=True):
        axis.stairs(
            over_time["waiting"], edges, baseline=None, color=colour, linewidth=1.4, label=_label(queue)
        )
    axis.set_ylim(bottom=0)
    axis.set_ylabel("workloads waiting")
    axis.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))


def _label(queue: Document) -> str:
    wait = queue["wait"]
    if wait is None or wait["median"] is None:
        return str(queue["name"])
    return f"{queue['name']}\nwaits: median {_time(wait['median'])}\n95 %: {_time(wait['p95'])}"


def _time(seconds: float) -> str:
    for least, size, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.1f} {unit[:-1] if unit == 'minutes' else unit[0]}".replace(
                "minute", "min"
            )
    return f"{seconds:.0f} s"


def _amount(resource: str, value: float) -> str:
    if format_amount(resource, 1024) == "1Ki":
        for power, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi")):
            if value >= 1 << power:
                return f"{value / (1 << power):g}{suffix}"
    return format_amount(resource, round(value))


def _colours(queues: Sequence[Any]) -> list[str]:
    return [_COLOURS[number % len(_COLOURS)] for number in range(len(queues))]


def _darker(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) * 6 // 10 for at in (1, 3, 5))
    return f"#{red:02x}{green:02x}{blue:02x}"
