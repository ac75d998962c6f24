"""`-o name`, `jsonpath=` and `custom-columns=`, and the filters --mine, -l and --since."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from queuectl.cli.selecting import BadTemplate, filled, template
from tests.unit.cli.clusters import kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Document, Script, answering
from tests.unit.cli.test_following import LIFE, Ledger
from tests.unit.cli.test_listing import cohort, workload

REASON = {"code": "OnHold", "message": "OnHold"}
LIST: Document = {
    "items": [
        {
            "name": "a",
            "phase": "Pending",
            "labels": {"example.com/team": "vision"},
            "size": 3,
            "reason": None,
        },
        {"name": "b", "phase": "Admitted", "labels": {}, "size": 5, "reason": REASON},
    ]
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{.items[*].name}", "a b"),
        ('{range .items[*]}{.name}{"\\t"}{.phase}{"\\n"}{end}', "a\tPending\nb\tAdmitted\n"),
        ("{range .items[*]}{@.name}={$.items[0].name} {end}", "a=a b=a "),
        ("{range .items[*]}{range .labels.*}{@};{end}{end}", "vision;"),
        ("names: {.items[*].name}.", "names: a b."),
        (".items[0].name", "a"),
        ("items[0].name", "a"),
        ('{.items[?(@.phase=="Pending")].name}', "a"),
        ("{.items[?(@.size>3)].name}", "b"),
        ("{.items[0].labels.example\\.com/team}", "vision"),
        ("{.items[0].labels['example.com/team']}", "vision"),
        ("{.items[0]['name','phase']}", "a Pending"),
        ("{..code}", "OnHold"),
        ("{.items[-1:].size}", "5"),
        ("{.items[0].reason}{.items[0].nothing}", ""),
        ("{.items[1].reason}", '{"code":"OnHold","message":"OnHold"}'),
        ("{'it\\'s'}{\"{}\"}", "it's{}"),
    ],
)
def test_a_template_is_filled_as_kubectl_fills_it(text: str, shown: str) -> None:
    assert filled(template(text), LIST, LIST) == shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{end}", "{end} without {range}"),
        ("{range .items[*]}", "{range} without {end}"),
        ("{.a", "brace without its counterpart"),
        ("{.items[}", "'.items[' is not a path"),
        ("{.items[?(@.a ==)]}", "is not a path"),
        ('{"\\q"}', "is not text"),
    ],
)
def test_a_template_that_is_not_valid_is_reported(text: str, told: str) -> None:
    with pytest.raises(BadTemplate) as problem:
        template(text)
    assert told in str(problem.value)


def test_names_are_those_that_other_commands_take(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads", workload("a"), workload("b", kind="PyTorchJob", position=2))
    script.page("cohorts", cohort("all"))
    assert run("get", "wl", "-o", "name", "--server", scripted).stdout == "pytorchjob/b\njob/a\n"
    assert run("get", "cohorts", "-o", "name", "--server", scripted).stdout == "cohort/all\n"


def test_columns_are_chosen(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads", workload("a", reason=REASON), workload("b", priority=7, position=3))
    columns = "custom-columns=NAME:.name,PRIORITY:.priority,WHY:.reason.code,BOTH:.reason['code','message']"
    lines = run("get", "wl", "-o", columns, "--server", scripted).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "PRIORITY", "WHY", "BOTH"],
        ["b", "7", "<none>", "<none>"],
        ["a", "0", "OnHold", "OnHold,OnHold"],
    ]


def test_one_object_is_its_own_document(run: Run, script: Script, scripted: str) -> None:
    script.say("cohorts/all", {**cohort("all"), "sequence": 9})
    line = ("get", "cohort/all", "--server", scripted)
    assert run(*line, "-o", "jsonpath={.pending}").stdout == "3"
    assert run(*line, "-o", "name").stdout == "cohort/all\n"
    assert run(*line, "-o", "custom-columns=A:.admitted").stdout == "A\n4\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("get wl -o jsonpath={.a", "-o jsonpath={.a: '{.a' has a brace"),
        ("get wl -o custom-columns=NAME", "'NAME' is not a column such as NAME:.name"),
        ("get decisions -o name", "decisions have no name"),
        ("get wl -o nme", "'nme' is none of table, wide, json, yaml, name, jsonpath=, custom-columns="),
        ("explain job/a -o name", "'name' is none of table, wide, json, yaml"),
        ("-o name events", "'name' is none of table, wide, json, yaml"),
        ("get wl --mine --submitter bob", "--mine does not go with --submitter"),
        ("get cq --mine", "--mine does not go with clusterqueues"),
        ("get cq -l a=b", "-l does not go with clusterqueues"),
        ("get decisions --since 1h --after 4", "--since does not go with --after"),
        ("get wl --since yesterday", "'yesterday' is not a time such as 90s"),
    ],
)
def test_a_format_or_filter_that_does_not_apply_is_refused(run: Run, line: str, told: str) -> None:
    result = run(*line.split(), "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_format_may_stand_before_the_command(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads", workload("a"))
    assert run("-o", "name", "--server", scripted, "get", "wl").stdout == "job/a\n"


def test_filters_by_label_user_and_time_are_sent_to_the_server(
    run: Run, script: Script, scripted: str
) -> None:
    script.page("workloads")
    run("get", "wl", "-l", "team in (a, b)", "--submitter", "bob", "--since", "2h", "--server", scripted)
    _, sent = script.asked[-1]
    assert sent == {
        "labelSelector": "team in (a, b)",
        "submitter": "bob",
        "sinceSeconds": "7200",
        "limit": "1000",
    }


def test_decisions_since_a_time_are_those_after_the_last_one_before_it(
    run: Run, script: Script, scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuectl.cli.rest._date", lambda _: datetime(2026, 1, 5, 10, 9, tzinfo=UTC))
    Ledger(script, *LIFE)
    result = run(
        "get", "decisions", "--since", "3m", "-o", "jsonpath={.items[*].sequence}", "--server", scripted
    )
    assert result.stdout == "7 9"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A kubeconfig, and what its API server says of the user."""
    said: dict[str, Any] = {"status": {"userInfo": {"username": "alice"}}}

    async def answer(request: web.BaseRequest) -> web.Response:
        assert (request.method, request.path) == (
            *("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        )
        return web.json_response(said, status=201 if "status" in said else 404)

    with answering(answer) as url:
        yield str(kubeconfig(tmp_path, url)), said


def test_own_workloads_are_those_of_the_user_of_the_kubeconfig(
    run: Run, script: Script, scripted: str, api: tuple[str, dict[str, Any]]
) -> None:
    config, said = api
    script.page("workloads", workload("a"))
    line = ("get", "wl", "--mine", "--server", scripted, "--kubeconfig", config)
    assert run(*line, "-o", "name").stdout == "job/a\n"
    assert script.asked[-1][1]["submitter"] == "alice"
    said.clear()
    result = run(*line)
    assert result.exit_code == 2
    assert "this cluster does not say which user you are: use --submitter USER" in result.stderr
