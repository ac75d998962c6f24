"""`get` and `explain` against a server."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.cli.arrays import folded
from queuectl.cli.printing import local
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.model.policy import AccountSource
from queuectl.core.model.reasons import Code, Limit, PreemptionCause, Reason
from queuectl.core.model.start_conditions import ARRAY
from queuectl.core.model.workload import AccountValue, Attribution, ConfigKey, Phase, PodSet, Verb
from queuectl.ports.reader import EffectRow
from tests.unit.api.canned import (
    AWAY,
    EPOCH_START,
    GPU,
    WAITS,
    CannedReadings,
    decision,
    queue_spec,
    workload,
)
from tests.unit.api.test_what_ifs import ledger
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import DEADLINE_SECONDS, eventually, replying, rest


def test_queues_are_listed_with_what_is_used(run: Run, server: str) -> None:
    result = run("get", "clusterqueues", "--server", server)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "NAME",
        "COHORT",
        "ACTIVE",
        "PENDING",
        "ADMITTED",
        "USED/NOMINAL",
        "FREE",
        "CONDITION",
    ]
    assert " ".join(lines[1].split()) == "team-a all True 2 2 6/8 nvidia.com/gpu of a100 2 Ready"
    assert lines[2].split()[:3] == ["team-b", "-", "False"]
    assert "FlavorNotFound: ResourceFlavor not found: h100" in lines[2]


def test_local_queues_are_listed(run: Run, server: str) -> None:
    result = run("get", "lq", "-n", "default", "--server", server)
    assert [line.split()[:4] for line in result.stdout.splitlines()[1:]] == [
        ["default", "main", "team-a", "True"]
    ]


def test_workloads_are_listed_by_queue_running_ones_first_then_by_position(run: Run, server: str) -> None:
    result = run("get", "workloads", "--server", server)
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == [
        "job/small",
        "job/large",
        "job/urgent",
        "job/waits",
        "pytorchjob/stuck",
    ]
    assert WAITS.message in result.stdout


def test_a_piped_table_is_not_shortened_and_has_no_colour(
    run: Run, readings: CannedReadings, server: str
) -> None:
    long = "x" * 400
    readings.commit(workload("long", 20, reason=Reason(code=Code.MISCONFIGURED, detail=long)))
    result = eventually(
        lambda: run("get", "workloads", "--reason", "Misconfigured", "--server", server),
        lambda result: long in result.stdout,
    )
    assert "\x1b" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_filters_are_sent_to_the_server(run: Run, server: str) -> None:
    result = run("get", "wl", "-n", "other", "--kind", "pytorchjob", "--server", server, "-o", "json")
    assert [item["name"] for item in json.loads(result.stdout)["items"]] == ["stuck"]
    result = run("get", "wl", "--phase", "Nonsense", "--server", server)
    assert result.exit_code == 2
    assert "phase" in result.stderr
    assert "Pending" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("cq", "--phase", "Pending"),
        ("lq", "--kind", "job"),
        ("wl", "a", "--queue", "q"),
        ("job/a", "--queue", "q"),
    ],
)
def test_a_filter_of_another_resource_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("get", *arguments)
    assert result.exit_code == 2
    assert "does not go with" in result.stderr


def test_all_pages_are_fetched(run: Run, readings: CannedReadings, server: str) -> None:
    readings.commit(*(workload(f"w-{n}", n) for n in range(100, 2200)))
    result = eventually(
        lambda: run("get", "workloads", "-o", "json", "--server", server),
        lambda result: "w-2199" in result.stdout,
    )
    found = [item["name"] for item in json.loads(result.stdout)["items"]]
    assert len(found) == 2105
    assert len(set(found)) == 2105


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "cq", "team-a"),
        ("get", "lq", "main"),
        ("get", "wl", "job/waits"),
        ("get", "cq/team-a"),
        ("get", "workload/waits"),
        ("get", "job/waits"),
        ("get", "workloads/job/waits"),
    ],
)
def test_one_object_is_shown_as_json_and_yaml(run: Run, server: str, arguments: tuple[str, ...]) -> None:
    as_json = json.loads(run(*arguments, "--server", server, "-o", "json").stdout)
    as_yaml = yaml.safe_load(run(*arguments, "--server", server, "-o", "yaml").stdout)
    for found in (as_json, as_yaml):
        found.pop("ageSeconds")
        found["controller"].pop("seconds")
    assert as_json == as_yaml
    assert as_json["name"] in arguments[-1]
    assert run(*arguments, "--server", server).exit_code == 0


def test_explain_shows_the_limit_its_holders_and_what_would_help(
    run: Run, readings: CannedReadings, server: str
) -> None:
    readings.rows = [
        decision(1, workload("waits", 3), "Queued"),
        decision(2, workload("waits", 3), "Pending", WAITS),
    ]
    result = run("explain", "job/waits", "--server", server)
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert text.startswith("Job default/waits: Pending, position 2 of 2 in ClusterQueue team-a\n")
    for line in (
        "Limit       nominalQuota of ClusterQueue/team-a",
        "Requested   6 nvidia.com/gpu of flavor a100",
        "Available   2 nvidia.com/gpu of flavor a100",
        "Short by    4 nvidia.com/gpu of flavor a100",
        f"Reason      {WAITS.message}",
        "Ahead       1 in the pending queue: default/job/urgent",
        "Held by     default/Job/large: 4 since 2026-01-05 ",
        "Would help  It runs when 4 nvidia.com/gpu of flavor a100 more are available",
    ):
        assert line in text
    history = text.partition("History\n")[2].splitlines()
    assert [line.split()[3] for line in history[1:]] == ["Queued", "Pending"]


def test_explain_shows_hours_of_a_budget_and_what_a_usage_limit_allows_at_most(run: Run) -> None:
    spent = Reason(
        code=Code.BUDGET_EXHAUSTED,
        resource=GPU,
        requested=16,
        available=2,
        short_by=14,
        limit=Limit.HOURS,
        node="Budget/month",
    )
    outside = replace(
        spent, code=Code.OUTSIDE_USAGE_LIMIT, limit=Limit.RESOURCES, node="UsageLimit/each", available=2
    )
    readings = ledger()
    readings.commit(workload("spent", 10, reason=spent), workload("outside", 11, reason=outside))
    with rest(readings) as server:
        hours, most = (
            run("explain", f"job/{one}", "--server", server).stdout for one in ("spent", "outside")
        )
    for line in ("Requested   16 nvidia.com/gpu hours", "Available   2 nvidia.com/gpu hours"):
        assert f"{line}\n" in hours
    assert "Short by    14 nvidia.com/gpu hours\n" in hours
    assert "At most     2 nvidia.com/gpu\n" in most


def test_explain_shows_the_command_that_makes_it_small_enough_to_start(run: Run) -> None:
    readings = ledger()
    roles = tuple(
        PodSet(name=name, count=n, requests=((GPU, 1),)) for name, n in (("master", 1), ("worker", 5))
    )
    readings.commit(replace(workload("roles", 9, kind="PyTorchJob", reason=WAITS), pod_sets=roles))
    with rest(readings) as server:
        text = run("explain", "job/waits", "--server", server).stdout
        found = run("explain", "pytorchjob/roles", "--server", server, "-o", "json").stdout
        runs = json.loads(run("explain", "job/runs", "--server", server, "-o", "json").stdout)
    told = "With 2 of 6 pods in podset main it starts as soon as 1 workload is preempted: other/Job/guest"
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[lines.index(f"With {told}") + 1] == "Command queuectl fit job/waits -n default --gpus 2"
    assert text.count("\nCommand") == 1
    tried = {one["kind"]: (one["command"], one["fit"]) for one in json.loads(found)["counterfactuals"]}
    assert tried["FewerPods"] == (
        "queuectl fit pytorchjob/roles -n default --gpus 1 --podset worker",
        {"gpus": 1, "pods": None, "podSet": "worker"},
    )
    assert tried["MoreQuota"] == (None, None)
    assert runs["counterfactuals"] is None


def test_explain_shows_what_an_admitted_workload_holds(run: Run, server: str) -> None:
    text = run("explain", "small", "--server", server).stdout
    assert text.startswith("Job default/small: Admitted in ClusterQueue team-a\n")
    assert "Requests  main: 2 x (1 nvidia.com/gpu), at least 1\n" in text
    assert "Holds     main: 2 x (1 nvidia.com/gpu of a100)" in text
    assert "Missing   train-1\n" in text


def test_explain_shows_by_when_the_pods_of_an_admitted_workload_must_be_ready(
    run: Run, readings: CannedReadings, server: str
) -> None:
    key, clocks = ConfigKey("ClusterQueue", "", "team-a"), {"schedulingTimeoutSeconds": 60}
    readings.commit(configs={key: queue_spec(8, waitForPodsReady=clocks)})
    at = local("2026-01-05T10:02:00Z")
    told = f"Deadline  {at}: all its pods are bound to nodes, else it is evicted\n"
    eventually(lambda: run("explain", "small", "--server", server).stdout, lambda text: told in text)


def test_explain_shows_what_an_admitted_workload_is_booked_on(
    run: Run, readings: CannedReadings, server: str
) -> None:
    one = next(one for _, one in readings._workloads.values() if one.ref.name == "small")
    account = (
        AccountValue("flow", "CronJob/nightly", AccountSource.OWNER),
        AccountValue("project", None, None),
    )
    booked = Attribution(namespace="default", queue="main", submitter="bot", user="ada", account=account)
    readings.commit(replace(one, attribution=booked))
    told = "Booked    on user ada, submitter bot, flow CronJob/nightly, project unassigned\n"
    eventually(lambda: run("explain", "small", "--server", server).stdout, lambda text: told in text)


EVICTED = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE, by="default/Job/urgent")


def _started_and_evicted(readings: CannedReadings) -> None:
    waits = workload("waits", 3)
    readings.rows = [
        replace(decision(1, waits, "Admitted"), attempt=1, payload={"clusterQueue": "team-a"}),
        replace(decision(2, waits, "Evicted", EVICTED), attempt=1),
    ]
    readings.effects = [
        EffectRow(1, Verb.START, 1, acknowledged_at=EPOCH_START + timedelta(seconds=1.5)),
        EffectRow(2, Verb.STOP, 1),
    ]


def test_explain_shows_the_last_eviction_and_what_it_cost(
    run: Run, readings: CannedReadings, server: str
) -> None:
    waits = workload("waits", 3)
    flavors = {GPU: "a100", "cpu": "a100"}
    pods = {"name": "main", "count": 4, "requests": {GPU: 2, "cpu": 1000}, "flavors": flavors}
    readings.rows = [
        replace(decision(1, waits, "Admitted"), attempt=1, payload={"podSets": [pods]}),
        replace(decision(2, waits, "Shrunk"), attempt=1, payload={"podSets": [{**pods, "count": 2}]}),
        replace(decision(3, waits, "Evicted", EVICTED), attempt=1, now=EPOCH_START + timedelta(hours=1.5)),
    ]
    readings.commit(workload("other", 9))
    told = f": {EVICTED.message}; attempt 1 ran 89m, 6.0 gpu hours\n"
    eventually(lambda: run("explain", "job/waits", "--server", server).stdout, lambda text: told in text)
    del readings.rows[:2]
    text = run("explain", "job/waits", "--server", server).stdout
    assert f": {EVICTED.message}\n" in text


def test_explain_prints_the_story_of_a_workload_oldest_first_in_utc(
    run: Run, readings: CannedReadings, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _started_and_evicted(readings)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        result = run("explain", "job/waits", "--story", "--server", server)
    time.tzset()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "2026-01-05T10:00:01Z  decided       Admitted, attempt 1: ClusterQueue team-a",
        "2026-01-05T10:00:01Z  requested     Start of attempt 1",
        "2026-01-05T10:00:01Z  acknowledged  Start of attempt 1",
        f"2026-01-05T10:00:02Z  decided       Evicted, attempt 1: {EVICTED.message}",
        "2026-01-05T10:00:02Z  requested     Stop of attempt 1",
    ]


def test_a_story_is_printed_as_json_and_yaml_too(run: Run, readings: CannedReadings, server: str) -> None:
    _started_and_evicted(readings)
    line = ("explain", "job/waits", "--story", "--server", server)
    as_json = json.loads(run(*line, "-o", "json").stdout)
    assert as_json["sequence"] == 2
    assert [(item["what"], item["time"]) for item in as_json["items"]][1:3] == [
        ("requested", "2026-01-05T10:00:01Z"),
        ("acknowledged", "2026-01-05T10:00:01.500000Z"),
    ]
    assert yaml.safe_load(run(*line, "-o", "yaml").stdout)["items"] == as_json["items"]


def test_a_workload_without_decisions_has_an_empty_story(run: Run, server: str) -> None:
    result = run("explain", "job/waits", "--story", "--server", server)
    assert (result.exit_code, result.stdout) == (0, "no event or decision is remembered\n")


def test_a_story_without_the_ledger_fails_as_the_history_does(
    run: Run, readings: CannedReadings, server: str
) -> None:
    readings.down = AWAY
    failed = [
        run(*line, "--server", server) for line in (("explain", "waits", "--story"), ("history", "waits"))
    ]
    for result in failed:
        assert (result.exit_code, result.stdout) == (2, "")
        assert "answers 503" in result.stderr
        assert "connection refused" in result.stderr


def test_explain_accepts_other_kinds_and_namespaces(run: Run, server: str) -> None:
    result = run("explain", "pytorchjob/stuck", "-n", "other", "--server", server, "-o", "yaml")
    assert yaml.safe_load(result.stdout)["reason"]["code"] == "Misconfigured"


def test_a_missing_object_exits_1(run: Run, server: str) -> None:
    for line in (
        "explain job/nobody",
        "explain job/nobody --story",
        "history job/nobody",
        "get cq nobody",
        "get wl job/../x",
    ):
        result = run(*line.split(), "--server", server)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "not found" in result.stderr


@pytest.mark.parametrize(
    "line", ["explain pod/x", "explain jbo/x", "explain array/x", "get wl ../x", "history /x"]
)
def test_an_unknown_kind_lists_the_known_ones(run: Run, server: str, line: str) -> None:
    result = run(*line.split(), "--server", server)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is none of job, pytorchjob" in result.stderr
    assert ("did you mean job?" in result.stderr) == ("jbo" in line)
    assert ("get workloads -l queuectl.dev/array=x" in result.stderr) == ("array" in line)


def test_a_similar_name_is_offered(run: Run, server: str) -> None:
    for line, near in (
        ("explain job/wiats", "job/waits"),
        ("get cq taem-a", "team-a"),
        ("get lq mian", "main"),
        ("get wl --queue mian", "there is no localqueue mian: did you mean main?"),
        ("get wl --cluster-queue team-c", "there is no clusterqueue team-c: did you mean team-a or team-b?"),
        (
            "get wl -n defualt",
            "there is no localqueue in namespace defualt: did you mean default?",
        ),
        ("explain pytorchjob/stuck", "there is one in other: -n names the namespace"),
    ):
        result = run(*line.split(), "--server", server)
        assert near in result.stderr.replace("team-b or team-a", "team-a or team-b"), line


def test_names_with_control_characters_are_shown_escaped(
    run: Run, readings: CannedReadings, server: str
) -> None:
    evil = Reason(code=Code.PRIORITY_NOT_FOUND, detail="a\x1b[31mred\r\n\x00\u202eb")
    # It has the name of an existing object, so that it is never missing.
    readings.commit(replace(workload("waits", 30, reason=evil), submitter="al\x07ice"))
    found = eventually(
        lambda: run("explain", "waits", "--server", server).stdout, lambda text: "PriorityNotFound" in text
    )
    assert "a\\x1b[31mred\\r\\n\\x00\\u202eb" in found
    assert "al\\x07ice" in found
    readings.rows = [decision(1, workload("waits", 30), "Pending", evil)]
    for arguments in (
        ("explain", "waits"),
        ("explain", "waits", "--story"),
        ("get", "wl"),
        ("get", "wl", "waits", "-o", "yaml"),
        ("get", "wl", "-o", "json"),
    ):
        text = run(*arguments, "--server", server).stdout
        assert "\x1b" not in text
        assert "\x00" not in text
        assert "\u202e" not in text


def test_a_stale_response_is_shown_and_marked_stale(run: Run, readings: CannedReadings, server: str) -> None:
    readings.down = AWAY
    result = eventually(
        lambda: run("explain", "waits", "--server", server), lambda result: "stale" in result.stderr
    )
    assert result.exit_code == 0
    assert "the ledger cannot be reached" in result.stderr
    assert "History: not available" in result.stdout


def test_the_sandbox_is_found_by_its_endpoints_file(run: Run, server: str, tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text(json.dumps({"rest": server}))
    result = run("get", "cq", "--data", str(tmp_path))
    assert result.exit_code == 0
    assert "team-a" in result.stdout


@pytest.mark.parametrize("content", ["", "[]", "{", '{"rest": 7}', "\x00"])
def test_a_broken_endpoints_file_is_ignored(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "endpoints.json").write_text(content)
    result = run("get", "cq", "--data", str(tmp_path))
    assert result.exit_code == 2
    assert "port-forward" in result.stderr
    assert "queuectl sandbox" in result.stderr


@pytest.mark.parametrize("url", ["localhost:80", "ftp://x", "http://", "http://[::1", ""])
def test_an_invalid_server_url_is_a_usage_error(run: Run, url: str) -> None:
    result = run("get", "cq", "--server", url)
    assert result.exit_code == 2
    assert "--server" in result.stderr


def test_a_server_that_does_not_run_exits_2_and_the_message_says_what_to_do(run: Run) -> None:
    result = run("get", "cq", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "http://127.0.0.1:9" in result.stderr
    assert "port-forward" in result.stderr


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"[]"),
        (500, b"oops"),
        (302, b""),
        (200, b"[" * 100_000),
        (503, b'{"detail": 7}'),
    ],
)
def test_another_program_that_answers_exits_2(run: Run, status: int, body: bytes) -> None:
    with replying(status, body) as url:
        result = run("get", "cq", "--server", url)
    assert result.exit_code == 2
    assert url in result.stderr
    assert len(result.stderr) < 1000


def test_a_table_in_a_terminal_is_wrapped_to_its_width(server: str) -> None:
    """Run on a pseudo-terminal that is 60 columns wide."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "queuectl", "get", "workloads", "--server", server],
        stdout=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60"},
    ) as process:
        os.close(follower)
        text = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(leader, 4096):
                text += part
        os.close(leader)
        assert process.wait(DEADLINE_SECONDS) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.decode())
    assert plain != text.decode()
    assert "job/" in plain
    assert max(len(line) for line in plain.splitlines()) <= 60


def test_explain_names_the_queues_that_borrow_what_its_owner_lacks(
    run: Run, readings: CannedReadings, server: str
) -> None:
    fair = json.dumps({"fairSharing": {"enabled": True}})
    why = replace(WAITS, requested=6, available=1, node="Cohort/lend")
    readings.commit(
        workload("owned", 30, cluster_queue="owner", reason=why),
        workload("big", 31, namespace="other", cluster_queue="guest", phase=Phase.ADMITTED, gpus=7),
        configs={
            ConfigKey("Cohort", "", "lend"): fair,
            ConfigKey("ClusterQueue", "", "owner"): queue_spec(8, cohort="lend"),
            ConfigKey("ClusterQueue", "", "guest"): queue_spec(0, cohort="lend"),
        },
    )
    result = eventually(
        lambda: run("explain", "job/owned", "-n", "default", "--server", server),
        lambda result: result.exit_code == 0,
    )
    lines = {" ".join(line.split()) for line in result.stdout.splitlines()}
    assert (
        "Lent 7 nvidia.com/gpu of the quota of ClusterQueue owner, which does not reclaim it "
        "(reclaimWithinCohort is Never)"
    ) in lines
    assert "Borrowed by ClusterQueue guest: 7; shares: 87.5%, and 0% of ClusterQueue owner" in lines


def test_lists_and_explanations_are_shown_as_of_an_earlier_time(
    run: Run, server: str, readings: CannedReadings
) -> None:
    before = [run("get", what, "--server", server).stdout for what in ("workloads", "cq")]
    readings.capacity(FlavorCapacity(flavor=NO_FLAVOR))
    readings.keep(EPOCH_START)
    readings.end(workload("waits", 3))
    readings.commit(configs={ConfigKey("ClusterQueue", "", "team-a"): queue_spec(1, cohort="all")})
    eventually(lambda: run("get", "cq", "--server", server).stdout, lambda shown: shown != before[1])
    then = ("--as-of", EPOCH_START.isoformat(), "--server", server)
    for what, shown in zip(("workloads", "cq"), before, strict=True):
        found = run("get", what, *then)
        assert found.exit_code == 0, found.output
        assert [line.split()[:4] for line in found.stdout.splitlines()] == [
            line.split()[:4] for line in shown.splitlines()
        ]
    found = run("explain", "job/waits", "-n", "default", *then)
    assert found.exit_code == 0, found.output
    assert "WaitingForQuota" in found.stdout
    assert "Finished" in run("explain", "job/waits", "-n", "default", "--server", server).stdout
    answers = (
        *(("get", "decisions"), ("history", "job/waits"), ("waited", "job/waits"), ("share", "team-a")),
        *(("preemptions",), ("preemptions", "job/waits"), ("info", "--demand")),
        *(("info",), ("info", "a100", "--unmanaged")),
    )
    for asked in answers:
        told = run(*asked, "-o", "json", *then)
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["sequence"] == readings.pasts[EPOCH_START].sequence, asked
    told = run("get", "cq", "team-a", "-o", "json", *then)
    assert json.loads(told.stdout)["sequence"] == readings.pasts[EPOCH_START].sequence


def test_a_time_ago_is_counted_by_the_clock_of_the_server(
    run: Run, server: str, readings: CannedReadings
) -> None:
    readings.keep(EPOCH_START)
    assert run("get", "cq", "--as-of", "2h", "--server", server).exit_code == 0
    (when,) = readings.looks
    assert abs(when - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(minutes=5)  # noqa: TID251


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("get", "cq", "--as-of", "1999-01-01"), "its first one is of"),
        (("get", "cq", "--as-of", "soon"), "neither how long ago"),
        (("get", "cq", "--as-of", "2h", "--watch"), "--as-of does not go with --watch"),
    ],
)
def test_a_time_that_cannot_be_shown_is_refused(
    run: Run, server: str, readings: CannedReadings, arguments: tuple[str, ...], told: str
) -> None:
    readings.keep(EPOCH_START)
    found = run(*arguments, "--server", server)
    assert found.exit_code == 2, found.output
    assert told in found.output


def test_what_is_over_is_listed_and_explained_with_its_outcome(run: Run, readings: CannedReadings) -> None:
    one = workload("waits", 3)
    admitted = replace(decision(30, one, "Admitted"), attempt=1)
    pods = {
        "name": "main",
        "count": 2,
        "requests": {GPU: 4, "cpu": 1},
        "flavors": {GPU: "a100", "cpu": "a100"},
    }
    admitted = replace(admitted, payload={"clusterQueue": "team-a", "podSets": [pods]})
    readings.rows += [
        decision(20, one, "Queued"),
        admitted,
        replace(decision(150, one, "Retired"), payload={"outcome": "Failed", "detail": "OOM\x1b"}),
    ]
    readings.sequence = 150
    readings.end(one)
    with rest(readings) as server:
        listed = run("get", "wl", "--phase", "finished", "--server", server).stdout
        assert {"job/waits", "Failed", "2m", r"OOM\x1b"} <= set(listed.split())
        wide = run("get", "wl", "--phase", "finished", "-o", "wide", "--server", server).stdout
        assert "16.0 gpu minutes" in wide
        of = ("job/waits", "-n", "default", "--server", server)
        shown = run("explain", *of).stdout
        assert r"Failed, OOM\x1b, held 16.0 gpu minutes" in run("history", *of).stdout
        for command in ("waited", "eta", "preemptions"):
            assert run(command, *of).stdout.startswith(
                ("Job default/waits: Failed", "Job default/waits is Failed")
            )
    assert shown.startswith("Job default/waits: Failed")
    assert "held quota for 2m in all, 16.0 gpu minutes\n" in shown
    assert r"Failure  OOM\x1b" in shown


def test_the_exit_code_of_a_plan_says_whether_an_object_changes(run: Run, tmp_path: Path) -> None:
    policy, same, bad = (tmp_path / name for name in ("new.yaml", "same.yaml", "bad.yaml"))
    policy.write_text("kind: Cohort\nmetadata: {name: fresh}\n")
    same.write_text("kind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 50\n")
    bad.write_text("kind: Cohort\n")
    with rest(ledger()) as server:
        codes = {
            (name.name, *flag): run("plan", str(name), "--server", server, *flag).exit_code
            for name in (policy, same, bad)
            for flag in ((), ("--detailed-exitcode",))
        }
    away = run("plan", str(policy), "--server", "http://127.0.0.1:9", "--detailed-exitcode")
    flag = "--detailed-exitcode"
    assert codes == {
        ("new.yaml",): 0,
        ("new.yaml", flag): 2,
        ("same.yaml",): 0,
        ("same.yaml", flag): 0,
        ("bad.yaml",): 2,
        ("bad.yaml", flag): 1,
    }
    assert away.exit_code == 1


def test_a_plan_warns_of_fields_that_do_not_exist(run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "kind: Cohort\nmetadata: {name: all}\nspec: {parentNme: other}\n"
        "---\n"
        "kind: Cohort\nmetadata: {name: right}\n"
    )
    with rest(ledger()) as server:
        result = run("plan", str(policy), "--server", server)
        found = json.loads(run("plan", str(policy), "--server", server, "-o", "json").stdout)
    assert result.exit_code == 0, result.output
    assert "+ Cohort/right" in result.stdout
    assert found["objects"][-1] == {"object": "Cohort/right", "change": "Created", "fields": []}
    warning = "Cohort/all spec.parentNme: no such field: it has no effect, did you mean parentName?"
    assert f"Warning: {warning}" in result.stdout
    assert [(one["object"], one["field"]) for one in found["warnings"]] == [("Cohort/all", "spec.parentNme")]


def test_a_plan_says_for_which_reason_workloads_would_wait(run: Run) -> None:
    with rest(ledger()) as server:
        lines = run("plan", "--delete", "ClusterQueue/team-a", "--server", server).stdout.splitlines()
    waits = [line.split(maxsplit=2) for line in lines[lines.index("") + 2 :]]
    assert waits, lines
    assert {(becomes, why.split()[0]) for _, becomes, why in waits} == {("Stranded", "QueueNotFound")}


def test_of_an_array_that_is_over_times_and_what_it_held_are_added_up() -> None:
    end = {"outcome": "Failed", "heldSeconds": 60.0, "resourceSeconds": {GPU: 120, "cpu": 1}}
    item: dict[str, Any] = {
        "namespace": "ns",
        "queue": "q",
        "phase": "Finished",
        "labels": {ARRAY: "a"},
        "end": end,
    }
    item |= dict.fromkeys(("position", "createdAt", "admittedAt"))
    found = folded([item, {**item, "end": {**end, "heldSeconds": 5.0}}, {**item, "end": None}])
    assert [(one["name"], one["end"] and one["end"]["heldSeconds"]) for one in found[:1]] == [("a (2)", 65.0)]
    assert found[0]["end"]["resourceSeconds"] == {GPU: 240, "cpu": 2}
    assert found[1]["end"] is None


def test_an_array_is_one_row_for_each_phase(run: Run, server: str, readings: CannedReadings) -> None:
    array = (("queuectl.dev/array", "sweep"),)
    tasks = [workload(f"sweep-{n}", 30 + n, reason=WAITS) for n in range(12)]
    tasks += [workload(f"sweep-{n}", 30 + n, phase=Phase.ADMITTED, gpus=2) for n in (12, 13)]
    readings.commit(*(replace(one, labels=array) for one in tasks))
    other = replace(workload("sweep-x", 60, namespace="other", reason=WAITS), labels=array)
    readings.commit(other, workload("alone", 61, reason=WAITS))
    result = eventually(
        lambda: run("get", "workloads", "--server", server), lambda result: "job/alone" in result.stdout
    )
    named = re.findall(r"array/sweep \(\d+\)|job/sweep\S*|job/alone", result.stdout)
    assert sorted(named) == ["array/sweep (12)", "array/sweep (2)", "job/alone", "job/sweep-x"]
    assert re.search(r"array/sweep \(2\).* Admitted +4 ", result.stdout)  # GPUs of both
    each = run("get", "workloads", "-l", "queuectl.dev/array=sweep", "--server", server)
    assert sum("job/sweep-" in line for line in each.stdout.splitlines()) == 15
    assert "array/" not in each.stdout
    document = run("get", "workloads", "-o", "json", "--server", server)
    assert sum(one["name"].startswith("sweep-") for one in json.loads(document.stdout)["items"]) == 15
