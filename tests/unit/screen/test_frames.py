"""Frames from documents of REST."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuectl.sandbox.endpoints import Endpoints
from queuectl.sandbox.narration import what_to_try
from queuectl.screen.columns import Bar
from queuectl.screen.facts import NotUnderstood, facts
from queuectl.screen.frame import frame, reach, share
from queuectl.screen.navigation import Pane, ScreenView
from queuectl.screen.text import duration
from tests.unit.screen.documents import (
    answers,
    busy,
    capacity,
    cell,
    decision,
    page,
    picture,
    queue,
    reason,
    running,
    waiting,
)

EVIL = "x\x1b[31m\x07\u202e\n" + "y" * 240


def shown(
    found: Any, view: ScreenView | None = None, width: int = 120, height: int | None = 40, **also: Any
) -> str:
    return "\n".join(
        text.plain for text in frame(picture(found, **also), view or ScreenView(), width, height)
    )


def test_a_busy_site_shows_quota_running_and_pending_workloads_and_decisions() -> None:
    text = shown(busy())
    assert "cohort research" in text
    line = next(line for line in text.splitlines() if "team-a  a100" in line)
    assert line.split("▆")[-1].split() == ["8/8", "0", "-", "2", "2"]
    borrowed = next(line for line in text.splitlines() if "team-b  a100" in line)
    assert "▒" in borrowed
    assert borrowed.split("▒")[-1].split() == ["10/8", "0", "2", "1", "0"]
    assert "team-a/job/train" in text
    assert "1m00s   1/2  8 gpu a100" in text
    first, second = (
        line for line in text.splitlines() if "nominalQuota of" in line and line.strip()[0].isdigit()
    )
    assert first.split()[:3] == ["1", "team-a", "team-a/job/too-large"]
    assert "ExceedsMaxQuota" in first
    assert "8 gpu a100" in first
    assert second.split()[0] == "2"
    assert "2m00s" in second
    assert "ClusterQueue/team-a" in second
    decided = [line for line in text.splitlines() if line.startswith("03:03:05")]
    assert [line.split()[1] for line in decided] == ["7", "6", "5", "4", "3", "2", "1"]


def test_the_header_says_what_is_free_on_nodes_and_what_is_unmanaged() -> None:
    told = replace(busy(), capacity=page([capacity("a100"), capacity("spot", free=0)]))
    assert " on nodes: a100 2 of 8 gpu free, 1 unmanaged   spot 0 of 8 gpu free, 1 unmanaged" in shown(told)
    assert "on nodes" not in shown(busy())


SIZES = [(40, 6), (80, 24), (120, 40), (300, 100), (20, 3), (80, 1)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize(
    "view",
    [
        ScreenView(),
        ScreenView(help=True),
        ScreenView(typing=True, filter="te"),
        ScreenView(opened=("team-a", "Job", "train")),
    ],
    ids=["tables", "help", "typing", "opened"],
)
@pytest.mark.parametrize("site", ["busy", "empty", "nothing"])
def test_a_frame_fills_the_terminal_and_never_goes_beyond_it(
    width: int, height: int, view: ScreenView, site: str
) -> None:
    found = {"busy": busy(), "empty": answers(), "nothing": None}[site]
    lines = frame(picture(found, notes=("Try", "  x" * 200)), view, width, height)
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width


def test_an_empty_site_says_so() -> None:
    text = shown(answers())
    for word in ("no ClusterQueue yet", "no running workload", "no pending workload", "no decision yet"):
        assert word in text


def test_before_the_first_answer_it_says_why_there_is_none() -> None:
    assert "connection refused" in shown(None, problem="connection refused")
    assert "\\x1b[31m" in shown(None, problem=EVIL)
    assert "\\x1b[31m" in shown(None, problem=EVIL, height=None)


def test_a_stale_ledger_and_a_silent_server_are_reported_with_their_age() -> None:
    stale = facts(answers(ageSeconds=42.0, stale=True))
    assert "STALE: ledger not reachable · state of 45s ago" in shown(stale, silent_seconds=3)
    text = shown(busy(), problem="no answer", silent_seconds=125)
    assert "NO ANSWER · state of 2m05s ago" in text
    assert "team-a/job/train" in text, "what it said last stays"


def test_a_silent_controller_is_reported_with_its_silence() -> None:
    for silence, said in ((29, False), (42, True)):
        text = shown(facts(answers(controller={"lastSeen": "2026-01-02T03:03:23Z", "seconds": silence})))
        assert ("NO CONTROLLER: none has committed for 42s" in text) is said


def test_a_narrow_terminal_keeps_workload_reason_and_shortage() -> None:
    text = shown(busy(), width=80, height=30)
    line = next(line for line in text.splitlines() if line.startswith("team-a/job/ablation"))
    assert "WaitingForQuota" in line
    assert "3 gpu a100" in line
    assert "nominalQuota" in line
    keys = shown(busy(), width=80, height=30, notes=("Try",), leave="stop").splitlines()[-1]
    assert "help, examples" in keys
    assert keys.rstrip().endswith("stop")


@pytest.mark.parametrize(
    ("folder", "width", "height"),
    [
        (Path("/home/user/.local/share/queuectl/sandbox"), 80, 24),
        (Path("/home/with a space/sandbox"), 80, 24),
        (Path("/home") / ("x" * 70) / "sandbox", 60, 40),
        *((Path("/home") / ("with a space" * 9), width, 60) for width in range(58, 72)),
    ],
)
def test_each_command_of_the_help_can_be_copied_whole(folder: Path, width: int, height: int) -> None:
    url = "http://127.0.0.1:40001"
    commands = what_to_try(folder, Endpoints(url, url, url, url), example=True)
    notes = ("Try in another terminal", *(f"  {one}" for one in commands))
    text = shown(busy(), ScreenView(help=True), width=width, height=height, place=str(folder), notes=notes)
    typed = text.replace("\\\n", "").splitlines()
    assert [shlex.split(one) for one in commands] == [
        shlex.split(one) for one in typed[3 : 3 + len(commands)]
    ]
    assert "Ctrl-C" in text, "the keys are there too"


def test_a_low_terminal_has_a_row_for_each_queue_of_the_quota_that_it_uses_most() -> None:
    cells = (cell(1, 8), cell(4, 4, flavor="spot"), cell(0, 8, flavor="h100"))
    site = answers([queue("one", *cells, cohort="all"), queue("two", *cells, cohort="all")])
    rows = shown(site, width=80, height=24, brief=True).splitlines()
    told = [line.split() for line in rows if line.startswith(("  one", "  two"))]
    assert [row[:3] for row in told] == [["one", "spot", "+2"], ["two", "spot", "+2"]]
    assert not any("cohort" in line for line in rows)


@pytest.mark.parametrize("width", [80, 40])
def test_the_address_has_a_line_of_its_own(width: int) -> None:
    lines = shown(busy(), width=width, place="/var/lib/queuectl/sandbox" * 3).splitlines()
    assert lines[1].strip() == "http://127.0.0.1:8080"


def test_what_a_budget_lacks_is_shown_in_hours() -> None:
    spent = reason(code="BudgetExhausted", limit="spec.hours", node="Budget/month", flavor=None, shortBy=14)
    text = shown(facts(answers(pending=[waiting("a", 1, reason=spent)])), width=120)
    assert "14 gpu hours" in text


def test_the_selected_row_is_shown_in_full_below_the_tables() -> None:
    view = ScreenView(pane=Pane.WAITING, chosen={Pane.WAITING: 1})
    text = " ".join(shown(busy(), view, width=80, height=40).split())
    assert reason()["message"] in text


@pytest.mark.parametrize("height", [None, 40])
def test_nothing_of_a_cluster_reaches_the_terminal_unescaped(height: int | None) -> None:
    site = answers(
        [queue(EVIL, cell(1, 2, flavor=EVIL, resource=EVIL), cohort=EVIL, condition={"reason": EVIL})],
        [running(EVIL, queue=EVIL, namespace=EVIL, kind=EVIL)],
        [
            waiting(EVIL, queue=EVIL, reason=reason(code=EVIL, message=EVIL, flavor=EVIL, node=EVIL)),
            waiting("b", 2, reason=reason(resource=EVIL, others=[reason(message=EVIL)])),
        ],
        [decision(1, EVIL, name=EVIL, details={"detail": EVIL, "outcome": EVIL})],
    )
    opened = {**waiting(EVIL), "help": EVIL, "line": 1, "holders": []}
    for view in (*(ScreenView(pane=pane) for pane in Pane), ScreenView(opened=(EVIL, EVIL, EVIL))):
        text = shown(site, view, height=height, server=EVIL, problem=EVIL, explained=opened)
        assert all(character.isprintable() or character == "\n" for character in text)
        assert "\\x1b[31m" in text


def test_200_queues_and_20_000_waiting_show_a_page_and_say_that_there_is_more() -> None:
    queues = [queue(f"team-{n:03}", cell(n % 9, 8), pending=100, admitted=1) for n in range(200)]
    site = answers(queues, (), [waiting(f"job-{n}", n, "team-000") for n in range(500)])
    site = replace(site, pending={**site.pending, "next": "on"})
    text = shown(site, ScreenView(pane=Pane.WAITING, chosen={Pane.WAITING: 499}))
    assert "Waiting 20,000" in text
    assert "the oldest 500; / takes one queue" in text
    assert "team-a/job/job-499" in text
    assert "of 500" in text
    whole = shown(site, height=None)
    assert "team-199" in whole
    assert "team-a/job/job-0 " in whole


def test_a_tenant_sees_how_many_workloads_are_not_shown_to_it() -> None:
    queues = [queue("team-a", cell(6, 8), pending=5, admitted=3)]
    text = shown(answers(queues, [running("mine")], [waiting("next")]))
    assert "Running 1" in text
    assert "2 more not shown to you" in text
    assert "Waiting 1" in text
    assert "4 more not shown to you" in text
    assert "not shown to you" not in shown(answers([queue("team-a", admitted=1)], [running("mine")], []))
    without_queues = shown(answers([], [running("mine")], [waiting("next")]))
    assert "Queues 0" in without_queues
    assert "not shown to you" in without_queues


def test_a_filter_means_the_queue_of_that_name_else_all_that_have_it_in_theirs() -> None:
    queues = [queue("team-a", pending=1), queue("team-a2", pending=1), queue("other", pending=9)]
    site = answers(queues, (), [waiting("mine"), waiting("yours", queue="team-a2")])
    both = shown(site, ScreenView(filter="team"))
    assert "Queues 2 of 3" in both
    assert "Waiting 2" in both
    one = shown(site, ScreenView(filter="team-a"))
    assert "Queues 1 of 3" in one
    assert "job/mine" in one
    assert "job/yours" not in one


def test_cpu_and_memory_have_bars_without_devices_or_on_request() -> None:
    gpus = queue("gpus", cell(1, 2), cell(1000, 8000, resource="cpu"))
    cpus = queue("cpus", cell(1500, 8000, resource="cpu"))
    text = shown(answers([gpus, cpus]))
    assert "1500m/8" in text
    assert "1/8" not in text
    assert " 1/8 " in shown(answers([gpus, cpus]), ScreenView(all_resources=True))


def test_a_stopped_queue_and_one_without_quota_stand_out() -> None:
    stopped = queue("a", active=False, condition={"reason": "Stopped", "message": "stopPolicy is Hold"})
    broken = queue("b", active=False, condition={"reason": "FlavorNotFound", "message": "flavor x"})
    text = shown(answers([stopped, broken]), ScreenView(pane=Pane.QUEUES, chosen={Pane.QUEUES: 2}))
    assert "a stopped" in text
    assert "b inactive" in text
    assert "ClusterQueue b: FlavorNotFound: flavor x" in text


def test_the_selected_workload_is_explained_with_the_holders_of_the_missing_quota() -> None:
    holder = {"namespace": None, "kind": None, "name": None, "amount": 4, "since": "2026-01-02T03:00:00Z"}
    known = {**holder, "namespace": "team-b", "kind": "Job", "name": "train", "amount": 3}
    document = {**waiting("ablation", 2), "line": 4, "holders": [holder, known], "help": "It runs when"}
    at = picture(busy())
    counts, target = reach(at, ScreenView(chosen={Pane.WAITING: 1}))
    assert target == ("team-a", "Job", "ablation")
    assert counts[Pane.WAITING] == 2
    text = shown(busy(), ScreenView(opened=target), explained=document)
    assert "Job team-a/ablation: Pending, position 2 of 4 in ClusterQueue team-a" in text
    assert "Short by      3 nvidia.com/gpu of flavor a100" in text
    assert "a workload not shown to you: 4 since" in text
    assert "team-b/Job/train: 3 since" in text
    assert "It runs when" in text
    assert "not an answer of queuectl's REST server" in shown(
        busy(), ScreenView(opened=target), explained={"a": 1}
    )


def test_a_tenant_sees_others_by_size_and_no_decisions() -> None:
    hidden = {**running("x"), "namespace": None, "kind": None, "name": None}
    text = shown(answers([queue("team-a", cell(8, 8), admitted=1)], [hidden], (), None))
    assert "a workload not shown to you" in text
    assert "8 gpu a100" in text
    assert "not listed by this server" in text


@pytest.mark.parametrize(
    "broken",
    [
        {"queues": {}},
        {"queues": page([{"name": 1}])},
        {"pending": page([{"phase": "Pending", "createdAt": "yesterday"}])},
        {"pending": {"items": None, "next": None}},
        {"decisions": page([{"verdict": "x"}])},
    ],
)
def test_documents_of_another_shape_are_refused_with_a_message(broken: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood):
        facts(replace(answers(), **broken))


@pytest.mark.parametrize(
    ("nominal", "used", "drawn"),
    [
        (8, 0, "▁▁▁▁▁▁▁▁"),
        (8, 4, "▆▆▆▆▁▁▁▁"),
        (8, 8, "▆▆▆▆▆▆▆▆"),
        (1000, 1, "▆▁▁▁▁▁▁▁"),
        (1000, 999, "▆▆▆▆▆▆▆▁"),
        (8, 16, "▆▆▆▆▒▒▒▒"),
        (0, 4, "▒▒▒▒▒▒▒▒"),
        (0, 0, "▁▁▁▁▁▁▁▁"),
    ],
)
def test_a_bar_is_full_only_at_all_and_empty_only_at_nothing(nominal: int, used: int, drawn: str) -> None:
    assert Bar(nominal, used).draw(8).plain == drawn
    plain = Bar(nominal, used, plain=True).draw(8).plain
    assert plain == drawn.translate(str.maketrans("▆▒▁", "#+."))


def test_tables_share_the_room_by_what_they_need() -> None:
    assert share(20, [3, 3, 3, 3], 3) == [3, 3, 3, 11]
    assert share(20, [100, 3, 100, 100], 4) == [6, 3, 6, 5]
    assert sum(share(57, [100, 90, 80, 70], 4)) == 57


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (7500, "2h05m"), (90000, "1d01h")],
)
def test_durations_take_two_figures(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_ascii_is_enough_where_there_is_no_more() -> None:
    site = answers([queue("tèam", cell(1, 2))])
    for view in (ScreenView(), ScreenView(help=True), ScreenView(typing=True)):
        assert shown(site, view, plain=True).isascii()
    assert "t?am    a100    gpu       ####" in shown(site, plain=True)
