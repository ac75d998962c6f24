"""`get` of every resource: columns, order, limits, and --watch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from queuectl.cli.rest import Server
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import DEADLINE_SECONDS, Document, Script, ended_in_time

GI = 1 << 30
READY = {"reason": "Ready", "message": "can admit"}


def quota(used: int, nominal: int, flavor: str = "a100", resource: str = "nvidia.com/gpu") -> Document:
    free = nominal - used
    return {"flavor": flavor, "resource": resource, "used": used, "nominal": nominal, "free": free}


def cohort(name: str, **more: Any) -> Document:
    rest = {"explicit": True, "active": True, "condition": READY, "pending": 3, "admitted": 4}
    return {"name": name, "parent": None, "clusterQueues": 2, "flavors": [], **rest, **more}


def workload(name: str, **more: Any) -> Document:
    return {
        "namespace": "default",
        "kind": "Job",
        "name": name,
        "uid": f"uid-{name}",
        "queue": "main",
        "clusterQueue": "team-a",
        "phase": "Pending",
        "priority": 0,
        "position": None,
        "createdAt": "2026-01-05T10:00:00Z",
        "submitter": "alice",
        "attempts": 0,
        "attempt": None,
        "admittedAt": None,
        "reason": None,
        "admission": None,
        **more,
    }


def names(text: str) -> list[str]:
    return [line.split()[1].removeprefix("job/") for line in text.splitlines()[1:]]


@pytest.mark.parametrize("name", ["cohorts", "cohort", "co", "Cohorts"])
def test_cohorts_show_their_parent_and_what_is_used(
    run: Run, script: Script, scripted: str, name: str
) -> None:
    root = cohort("all", flavors=[quota(6, 8), quota(64 * GI, 100 * GI + 1, resource="memory")])
    script.page("cohorts", root, cohort("a", parent="all", active=False))
    result = run("get", name, "--server", scripted)
    assert result.exit_code == 0, result.stderr
    head, first, second = result.stdout.splitlines()
    assert head.split() == "NAME PARENT ACTIVE QUEUES PENDING ADMITTED USED/NOMINAL CONDITION".split()  # noqa: SIM905
    assert first.split()[:6] == ["a", "all", "False", "2", "3", "4"]
    assert "6/8 nvidia.com/gpu of a100, 64Gi/100.0Gi memory of a100" in second


@pytest.mark.parametrize("name", ["resourceflavors", "flavors", "rf"])
def test_flavors_show_their_nodes_and_what_is_used_of_them(
    run: Run, script: Script, scripted: str, name: str
) -> None:
    taint = {"key": "gpu", "value": "", "effect": "NoSchedule"}
    resource = {"resource": "nvidia.com/gpu", "nominal": 8, "used": 6}
    labels = {"example.com/accelerator": "a100"}
    flavor = {"name": "a100", "nodeLabels": labels, "nodeTaints": [taint], "resources": [resource]}
    script.page("resourceflavors", flavor)
    line = run("get", name, "--server", scripted).stdout.splitlines()[1]
    assert line.split() == ["a100", "example.com/accelerator=a100", "6/8", "nvidia.com/gpu", "of", "a100"]
    assert "gpu=:NoSchedule" in run("get", name, "--server", scripted, "-o", "wide").stdout


def test_a_nominal_quota_that_counts_in_part_shows_how_much_counts(
    run: Run, script: Script, scripted: str
) -> None:
    script.page("cohorts", cohort("all", flavors=[quota(6, 8) | {"effective": 4}]))
    assert " 6/8 nvidia.com/gpu of a100 (4 count) " in run("get", "cohorts", "--server", scripted).stdout


def test_wide_tables_have_more_columns(run: Run, script: Script, scripted: str) -> None:
    pods = {"name": "main", "count": 2, "requests": {}, "flavors": {"cpu": "spot"}}
    admission = {"clusterQueue": "team-a", "podSets": [pods]}
    script.page(
        "workloads", workload("x", attempts=3, admission=admission, admittedAt="2026-01-05T10:00:00Z")
    )
    narrow, wide = (run("get", "wl", "--server", scripted, "-o", o).stdout for o in ("table", "wide"))
    for title, cell in (("ATTEMPTS", "3"), ("FLAVORS", "spot")):
        assert title not in narrow
        assert title in wide
        assert cell in wide.splitlines()[1].split()


def test_a_workload_shows_its_pods_and_how_many_are_ready_while_it_runs(
    run: Run, script: Script, scripted: str
) -> None:
    script.page("workloads", workload("x", phase="Admitted", pods=4, podsReady=3), workload("y", pods=4))
    head, first, second = run("get", "wl", "--server", scripted).stdout.splitlines()
    pods = head.split().index("PODS")
    assert [line.split()[pods] for line in (first, second)] == ["3/4", "4"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes standard output a terminal of that many columns."""

    def of(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "dumb" if columns == 80 else "xterm")  # a dumb one has 80 columns

    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    return of


LONG = "requests 6 nvidia.com/gpu in flavor a100, 2 available, short by 4 (bound by nominalQuota of X)"
PREEMPTED = {"code": "WaitingForPreemptedWorkloads", "message": f"WaitingForPreemptedWorkloads: {LONG}"}
WAITS = {"code": "WaitingForQuota", "message": f"WaitingForQuota: {LONG}"}
TRAINING = {"requests": {"cpu": 64_000, "nvidia.com/gpu": 16, "nvidia.com/mig-1g.5gb": 2}, "pods": 16}
RUNS = {"phase": "Admitted", "podsReady": 12, "admittedAt": "2026-01-05T10:00:00Z"}
FAILED = {
    "outcome": "Failed",
    "failure": f"BackoffLimitExceeded: {LONG}",
    "heldSeconds": 9.0,
    "endedAt": "2026-01-05T11:00:00Z",
}


@pytest.mark.parametrize(
    ("name", "user", "reason", "shown"),
    [
        ("pytorchjob/finetune-llm-70b", "alice", WAITS, ["WaitingForQuota"]),
        ("job/train-resnet-50", "team-a:ci", WAITS, ["WaitingForQuota"]),
        ("job/eval", "alice", PREEMPTED, ["WaitingForPreemptedWorkloads"]),
        ("pytorchjob/llama-3-70b-sft-v2-lr", "alice@example.com", WAITS, []),
    ],
)
def test_workloads_show_user_gpus_pods_and_run_time_in_80_columns(
    run: Run,
    script: Script,
    scripted: str,
    terminal: Callable[[int], None],
    name: str,
    user: str,
    reason: Document,
    shown: list[str],
) -> None:
    kind, title = name.split("/")
    of = {"kind": kind, "submitter": user, **TRAINING}
    script.page("workloads", workload(title, **of, reason=reason), workload(title, **of, **RUNS, uid="2"))
    terminal(80)
    result = run("get", "wl", "--server", scripted)
    head, runs, waits = result.stdout.splitlines()
    assert max(map(len, (head, waits, runs))) <= 80, "a line for each, however long its reason is"
    columns = [column for column in head.split() if column not in ("NAMESPACE", "AGE")]
    assert columns == ["WORKLOAD", "USER", "PHASE", "GPUS", "PODS", "TIME", *["REASON"] * len(shown)]
    cells = [{**dict(zip(head.split(), line.split(), strict=True))} for line in (waits, runs)]
    assert [cell["USER"] for cell in cells] == [user] * 2
    assert [cell["GPUS"] for cell in cells] == ["18", "18"]
    assert [cell["PODS"] for cell in cells] == ["16", "12/16"], "all; of what runs, also those that are ready"
    assert waits.split()[-1:] == (shown or ["-"])
    assert ("REASON" in result.stderr) != bool(shown)


def test_a_reason_is_a_sentence_where_there_is_room(
    run: Run, script: Script, scripted: str, terminal: Callable[[int], None]
) -> None:
    failed = workload("b", phase="Finished", reason=None, end=FAILED)
    script.page("workloads", workload("a", reason=WAITS), failed, workload("older-server"))
    terminal(240)
    wide = run("get", "wl", "--server", scripted).stdout
    assert "WaitingForQuota: requests 6" in wide
    assert "BackoffLimitExceeded: requests 6" in wide
    terminal(80)
    narrow = run("get", "wl", "--server", scripted).stdout.splitlines()
    assert sorted(line.split()[-1] for line in narrow[1:]) == ["-", "BackoffLimitExceeded", "WaitingForQuota"]
    whole = run("get", "wl", "--server", scripted, "-o", "wide").stdout
    assert "WaitingForQuota: requests 6" in " ".join(whole.split())


def test_ages_are_by_the_servers_clock(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads", workload("x", createdAt="2001-01-01T00:00:00Z"))
    cells = run("get", "wl", "--server", scripted).stdout.splitlines()[1].split()
    assert cells[11].endswith("d")
    assert int(cells[11][:-1]) > 7000


@pytest.mark.parametrize(
    ("sort", "order"),
    [("priority", "bac"), ("-priority", "acb"), ("name", "abc"), ("reason.code", "cab"), ("-name", "cba")],
)
def test_a_list_is_sorted_by_any_field_with_those_that_lack_it_last(
    run: Run, script: Script, scripted: str, sort: str, order: str
) -> None:
    script.page(
        "workloads",
        workload("a", priority=9, position=1, reason={"code": "WaitingForQuota", "message": "x"}),
        workload("b", priority=-1, position=2),
        workload("c", priority=9, position=3, reason={"code": "OnHold", "message": "x"}),
    )
    result = run("get", "wl", f"--sort={sort}", "--server", scripted)
    assert "".join(names(result.stdout)) == order


def test_a_field_that_does_not_exist_is_reported(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads", workload("a"))
    result = run("get", "wl", "--sort", "pririty", "--server", scripted)
    assert result.exit_code == 2
    assert "did you mean priority?" in result.stderr


def test_a_limit_lists_the_first_in_order(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads", *(workload(f"w{n}", position=9 - n) for n in range(9)))
    assert names(run("get", "wl", "--limit", "2", "--server", scripted).stdout) == ["w8", "w7"]
    script.page("decisions")
    run("get", "decisions", "--limit", "2", "--server", scripted)
    assert script.asked[-1] == ("decisions", {"limit": "2"})


@pytest.mark.parametrize("line", ["get wl -A -n x", "get cq a --limit 2", "get wl a -w", "get decisions 7"])
def test_flags_that_exclude_each_other_are_usage_errors(run: Run, line: str) -> None:
    assert run(*line.split(), "--server", "http://127.0.0.1:9").exit_code == 2


def test_a_namespace_is_ignored_for_cluster_scoped_resources(run: Run, script: Script, scripted: str) -> None:
    script.page("clusterqueues")
    assert run("-n", "team-a", "get", "cq", "--server", scripted).exit_code == 0
    assert run("get", "cq", "-n", "team-a", "--server", scripted).exit_code == 0
    assert all("namespace" not in query for _, query in script.asked)


def test_an_unknown_resource_lists_the_known_ones(run: Run) -> None:
    result = run("get", "wrokloads")
    assert result.exit_code == 2
    assert "cohorts, resourceflavors, localqueues, workloads, decisions" in result.stderr
    assert "did you mean workloads" in result.stderr


def test_flags_after_the_command_take_precedence_over_those_before_it(
    run: Run, script: Script, scripted: str
) -> None:
    script.page("workloads")
    run("--server", scripted, "-n", "a", "get", "wl")
    run("--server", "http://127.0.0.1:9", "-n", "a", "get", "wl", "--server", scripted, "-n", "b")
    asked = [query["namespace"] for path, query in script.asked if path.endswith("workloads")]
    assert asked == ["a", "b"]
    assert json.loads(run("-o", "json", "--server", scripted, "get", "wl").stdout)["items"] == []


def test_a_watch_shows_existing_objects_and_then_changes(script: Script, scripted: str) -> None:
    script.page("workloads", workload("a"), workload("b"))
    program = [sys.executable, "-u", "-m", "queuectl", "get", "wl", "-w", "-o", "json", "--server", scripted]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, text=True, **streams) as process, ended_in_time(process):
        assert process.stdout is not None
        assert process.stderr is not None
        first = [json.loads(process.stdout.readline())["name"] for _ in range(2)]
        script.page("workloads", workload("a", phase="Admitted"))
        changed = json.loads(process.stdout.readline())
        assert (first, changed["name"], changed["phase"]) == (["a", "b"], "a", "Admitted")
        assert process.stderr.readline() == "b is finished or deleted\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("resource", ["wl", "cq"])
def test_a_silent_controller_is_noted(run: Run, script: Script, scripted: str, resource: str) -> None:
    silence = {"lastSeen": "2026-01-02T03:03:23Z", "seconds": 42.3}
    page: Document = {"items": [], "next": None, "sequence": 9, "ageSeconds": 0.1, "controller": silence}
    for path in ("workloads", "clusterqueues"):
        script.answers[path] = lambda query: (200, page)
    told = "no controller: none has committed for 42 s: nothing is decided until one runs"
    assert told in run("get", resource, "--server", scripted).stderr
    silence["seconds"] = 12.0
    assert "no controller" not in run("get", resource, "--server", scripted).stderr


def test_notes_on_all_responses_are_printed_once(run: Run, script: Script, scripted: str) -> None:
    pages = {"a": "b", "b": "c", "c": None}

    def answer(query: Mapping[str, str]) -> tuple[int, Document]:
        rest: Document = {"sequence": 9, "ageSeconds": 70.4, "stale": True, "observed": True}
        return 200, {"items": [], "next": pages[query.get("next", "a")], **rest}

    script.answers["workloads"] = answer
    result = run("get", "wl", "--server", scripted)
    assert len(script.asked) == 3
    assert result.stderr.splitlines() == [
        "stale: the ledger cannot be reached; this is the state of 70 s ago",
        "observed: decisions of an observer: none of them was carried out",
        "no workloads found",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["budget"], "no budgets found: there are none, or none of what you may read counts\n"),
        (["idle"], "no verdicts found\n"),
        (["limits"], "no limits found: there are no UsageLimits, or none of what you may read counts\n"),
        (["preemptions"], "no preemptions found\n"),
        (["statement", "list"], "no months found: nothing was decided yet\n"),
    ],
)
def test_a_list_without_rows_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    empty = {"items": [], "rows": [], "others": 0, "checkedAt": None}
    for name in ("get", "all"):
        monkeypatch.setattr(Server, name, lambda *_, **__: empty)
    result = run(*words, "--server", "http://127.0.0.1:1")
    assert (result.exit_code, result.stderr) == (0, said)
    assert result.stdout == "" or words == ["idle"]
