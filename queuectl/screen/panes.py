"""The four tables of the screen, from the facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from rich.text import Text

from queuectl.screen.columns import Bar, Cell, TableRow
from queuectl.screen.facts import (
    Queue,
    ScreenFacts,
    ShownDecision,
    ShownQuota,
    ShownReason,
    Work,
    charges,
    meant,
)
from queuectl.screen.navigation import Pane, ScreenView
from queuectl.screen.text import NOTHING, Column, amount, duration, printable, unit

FAMILY_STYLES: Final = {"never": "red", "not yet": "yellow", "held": "blue", "evicted": "red"}
_VERDICT_STYLES: Final = {
    "Admitted": "green",
    "Pending": "yellow",
    "Evicted": "red",
    "Queued": "cyan",
    "Retired": "bright_black",
    "Released": "bright_black",
    "Configured": "bright_black",
}
_WIDE: Final = 100
_WIDER: Final = 120

_NAME: Final = Column("WORKLOAD", most=44, least=14)
_QUEUE: Final = Column("QUEUE", most=28, least=8, from_width=_WIDE)
COLUMNS: Final[dict[Pane, tuple[Column, ...]]] = {
    Pane.QUEUES: (
        Column("QUEUE", most=32, least=12),
        Column("FLAVOR", most=20, least=6),
        Column("RESOURCE", most=24, least=3),
        Column("USED OF QUOTA", most=40, least=8),
        Column("USED", most=15, right=True),
        Column("FREE", most=15, right=True),
        Column("BORROWED", most=15, right=True, from_width=_WIDE),
        Column("RUN", most=7, least=3, right=True),
        Column("WAIT", most=7, right=True),
    ),
    Pane.RUNNING: (
        _QUEUE,
        _NAME,
        Column("SINCE", most=7, least=5, right=True),
        Column("PODS", most=11, least=5, right=True),
        Column("HOLDS", most=44, least=10),
        Column("PRIO", most=11, right=True, from_width=_WIDE),
        Column("STATE", most=32, least=8),
    ),
    Pane.WAITING: (
        Column("POSITION", most=8, right=True, from_width=_WIDE),
        _QUEUE,
        _NAME,
        Column("PRIO", most=11, right=True, from_width=_WIDER),
        Column("FOR", most=7, least=5, right=True, from_width=_WIDE),
        Column("REASON", most=28, least=10),
        Column("SHORT BY", most=28, least=8),
        Column("BOUND BY", most=56, least=8),
    ),
    Pane.DECISIONS: (
        Column("TIME", most=8, least=8),
        Column("NUMBER", most=10, least=4, right=True, from_width=_WIDE),
        Column("DECISION", most=10, least=8),
        Column("WHAT", most=44, least=14),
        Column("WHY", most=160, least=8),
    ),
}
EMPTY: Final = {
    Pane.QUEUES: "no ClusterQueue yet",
    Pane.RUNNING: "no running workload",
    Pane.WAITING: "no pending workload",
    Pane.DECISIONS: "no decision yet",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Makes rows only when they are shown: the cost depends on the visible rows."""

    pane: Pane
    title: str
    note: str
    """A note if not all rows are shown."""
    items: Sequence[Any]
    make: Callable[[Any], TableRow]

    def __len__(self) -> int:
        return len(self.items)

    def rows(self, start: int = 0, stop: int | None = None) -> list[TableRow]:
        return [self.make(item) for item in self.items[start:stop]]

    def chosen(self, view: ScreenView) -> int:
        """Number of the selected row; -1 without rows."""
        return min(view.row(self.pane), len(self) - 1)

    def row(self, number: int) -> TableRow:
        return self.make(self.items[number])


def tables(
    facts: ScreenFacts, view: ScreenView, now: datetime, *, plain: bool = False, brief: bool = False
) -> dict[Pane, Table]:
    """`now`: aware, on the server's clock. `plain`: bars of ASCII characters. `brief`: a row for a queue."""
    names = meant(view.filter, facts.queues)
    queues = [queue for queue in facts.queues if queue.name in names]
    running = [work for work in facts.running if not view.filter or work.queue in names]
    waiting = [work for work in facts.waiting if not view.filter or work.queue in names]
    return {
        Pane.QUEUES: Table(
            Pane.QUEUES,
            f"{len(queues)} of {len(facts.queues)}" if view.filter else str(len(queues)),
            _queues_note(facts),
            list(_lines(queues, all_resources=view.all_resources, brief=brief)),
            lambda item: _queue_row(item, plain=plain),
        ),
        Pane.RUNNING: Table(
            Pane.RUNNING,
            _count(sum(queue.admitted for queue in queues), running, facts.more_running),
            _first(facts.more_running, running)
            or _hidden(sum(queue.admitted for queue in queues), running, facts),
            running,
            lambda work: _running_row(work, now),
        ),
        Pane.WAITING: Table(
            Pane.WAITING,
            _count(sum(queue.pending for queue in queues), waiting, facts.more_waiting),
            _first(facts.more_waiting, waiting)
            or _hidden(sum(queue.pending for queue in queues), waiting, facts),
            waiting,
            lambda work: _waiting_row(work, now),
        ),
        Pane.DECISIONS: Table(
            Pane.DECISIONS,
            "",
            "not listed by this server" if facts.decisions is None else "",
            facts.decisions or (),
            lambda decision: _decision_row(decision, now),
        ),
    }


def _queues_note(facts: ScreenFacts) -> str:
    if facts.more_queues:
        return f"the first {len(facts.queues)} by name"
    return "not shown to you" if not facts.queues and (facts.running or facts.waiting) else ""


def _count(of_queues: int, here: Sequence[Work], more: bool) -> str:
    """Those that the reader may see; if only the first are here, those of the queues."""
    return f"{max(of_queues, len(here)) if more else len(here):,}"


def _hidden(of_queues: int, here: Sequence[Work], facts: ScreenFacts) -> str:
    """How many workloads of these queues the reader may not see."""
    hidden = of_queues - len(here)
    return f"{hidden:,} more not shown to you" if hidden > 0 and facts.one_state else ""


def _first(more: bool, rows: Sequence[Work]) -> str:
    return f"the oldest {len(rows):,}; / takes one queue" if more else ""


# --- queues -----------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """One row of the queues: the title of a cohort, or one quota; a queue's name is in its first row."""

    cohort: str | None
    queue: Queue | None = None
    quota: ShownQuota | None = None
    first: bool = True
    more: int = 0
    """Quotas that have no row."""


def _lines(queues: Iterable[Queue], *, all_resources: bool, brief: bool) -> Iterable[_Line]:
    cohort: str | None = None
    for queue in sorted(queues, key=lambda queue: (queue.cohort is None, queue.cohort or "", queue.name)):
        if queue.cohort != cohort and not brief:
            cohort = queue.cohort
            yield _Line(cohort)
        quotas = queue.quotas if all_resources else scarce(queue.quotas)
        if not quotas:
            yield _Line(cohort, queue)
        if brief and quotas and not all_resources:
            most = max(quotas, key=lambda quota: (quota.used, quota.nominal))
            yield _Line(cohort, queue, most, more=len(quotas) - 1)
            continue
        for number, quota in enumerate(quotas):
            yield _Line(cohort, queue, quota, number == 0)


def _queue_row(line: _Line, *, plain: bool) -> TableRow:
    queue, quota = line.queue, line.quota
    if queue is None:
        title = f"cohort {printable(line.cohort)}" if line.cohort else "in no cohort"
        return TableRow((Text(title, style="bold blue"),), detail=title)
    name = Text(f"  {printable(queue.name)}", style="bold" if queue.active else "red")
    if not queue.active:
        name.append(" stopped" if "Stopped" in queue.why else " inactive")
    counts = (_number(queue.admitted, "green"), _number(queue.pending, "yellow"))
    detail = f"ClusterQueue {printable(queue.name)}: {printable(queue.why)}"
    if quota is None:
        return TableRow((name, *(Text(NOTHING),) * 6, *counts), detail)
    cells: tuple[Cell, ...] = (
        name if line.first else Text(),
        Text(printable(quota.flavor) + (f" +{line.more}" if line.more else "")),
        Text(printable(unit(quota.resource))),
        Bar(quota.nominal, quota.used, plain),
        Text(f"{amount(quota.resource, quota.used)}/{amount(quota.resource, quota.nominal)}"),
        Text(amount(quota.resource, quota.free), style="" if quota.free else "bright_black"),
        Text(amount(quota.resource, quota.borrowed), style="magenta") if quota.borrowed else Text(NOTHING),
        *(counts if line.first else (Text(), Text())),
    )
    return TableRow(cells, f"{detail}; {_quota(quota)}")


def scarce(quotas: Sequence[ShownQuota]) -> Sequence[ShownQuota]:
    """Quotas of devices, if there are any: cpu and memory seldom bind beside them."""
    return [quota for quota in quotas if "/" in quota.resource] or quotas


def _quota(quota: ShownQuota) -> str:
    used, nominal, free = (amount(quota.resource, value) for value in (quota.used, quota.nominal, quota.free))
    text = f"{printable(quota.resource)} of {printable(quota.flavor)}: {used} of {nominal} used, {free} free"
    return f"{text}, {amount(quota.resource, quota.borrowed)} borrowed" if quota.borrowed else text


def _number(value: int, style: str) -> Text:
    return Text(f"{value:,}", style=style if value else "bright_black")


# --- workloads --------------------------------------------------------------------------------------


def _running_row(work: Work, now: datetime) -> TableRow:
    evicting = work.phase == "Evicting"
    state = work.phase if work.why is None else f"{work.phase}: {work.why.code}"
    cells = (
        Text(printable(work.queue)),
        _title(work),
        Text(_since(work.admitted_at, now)),
        _pods(work),
        Text(printable(", ".join(charges(work.holds)))),
        Text(str(work.priority)),
        Text(printable(state), style="red" if evicting else "green"),
    )
    attempt = f", attempt {work.attempt}" if work.attempt else ""
    why = f"; {printable(work.why.message)}" if work.why else ""
    holds = printable(", ".join(charges(work.holds, all=True)) or "nothing")
    detail = f"{printable(work.title)}: {printable(work.phase)}{attempt}, holds {holds}{why}"
    return TableRow(cells, detail, work.target)


def _pods(work: Work) -> Text:
    """All its pods, and how many of them are ready."""
    if work.pods_ready is None or work.pods is None:
        return Text(printable(work.pods))
    style = "" if work.pods_ready >= work.pods else "yellow"
    return Text(f"{work.pods_ready}/{work.pods}", style=style)


def _waiting_row(work: Work, now: datetime) -> TableRow:
    why = work.why
    style = FAMILY_STYLES.get(why.family, "yellow") if why else ""
    cells = (
        Text(NOTHING if work.position is None else str(work.position)),
        Text(printable(work.queue)),
        _title(work),
        Text(str(work.priority)),
        Text(_since(work.created_at, now)),
        Text(printable(why.code) if why else "not evaluated yet", style=style),
        Text(_short(why) if why else NOTHING),
        Text(_bound(why) if why else NOTHING),
    )
    others = "".join(f"; also tried: {printable(other)}" for other in why.others) if why else ""
    message = printable(why.message) if why else "not evaluated yet"
    return TableRow(cells, f"{printable(work.title)}: {message}{others}", work.target)


def _title(work: Work) -> Text:
    return Text(printable(work.title), style="" if work.name else "bright_black")


def _since(moment: datetime | None, now: datetime) -> str:
    return NOTHING if moment is None else duration((now - moment).total_seconds())


def _short(why: ShownReason) -> str:
    if why.resource is None or why.short_by is None:
        return NOTHING
    flavor = f" {printable(why.flavor)}" if why.flavor else ""
    hours = " hours" if why.limit == "spec.hours" else ""
    return f"{amount(why.resource, why.short_by)} {printable(unit(why.resource))}{hours}{flavor}"


def _bound(why: ShownReason) -> str:
    """The field of the policy and the object that bind; otherwise the detail of the reason."""
    found = " of ".join(printable(part) for part in (why.limit, why.node) if part)
    if found:
        return found
    rest = why.message.removeprefix(why.code).removeprefix(":").strip()
    return printable(rest)


# --- decisions --------------------------------------------------------------------------------------


def _decision_row(decision: ShownDecision, now: datetime) -> TableRow:
    time = f"{decision.time.astimezone(now.tzinfo):%H:%M:%S}" if decision.time else NOTHING
    style = _VERDICT_STYLES.get(decision.verdict, "")
    cells = (
        Text(time, style="bright_black"),
        Text(str(decision.sequence), style="bright_black"),
        Text(printable(decision.verdict), style=style),
        Text(printable(decision.who)),
        Text(printable(decision.text)),
    )
    told = " ".join(printable(part) for part in (decision.verdict, decision.who, decision.text) if part)
    return TableRow(cells, f"decision {decision.sequence}: {told}")
