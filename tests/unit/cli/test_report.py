"""`report observe` and `controller --observe`: their calls of the application, and the report's text."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from queuectl.app import api as reading
from queuectl.app import controller as leading
from queuectl.app import upkeep
from queuectl.screen.text import figure
from queuectl.settings import ConfigurationError, Settings
from queuectl.shadow import report as reporting
from tests.unit.cli.conftest import Run

URL = "postgresql://nobody@127.0.0.1:1/none"
_FIGURES = {
    "workloads": 3,
    "admittedAtOnce": 1,
    "waited": 1,
    "waiting": 0,
    "never": 1,
    "held": 0,
    "debt": 0,
    "wait": {"p50": 190.0, "p90": 190.0, "max": 190.0},
    "evicted": 1,
    "evictions": 1,
    "ranAnyway": 2,
    "overBeforeItsTurn": 0,
    "startedSooner": {"workloads": 0, "p50": None, "p90": None, "max": None},
    "overBeforeSeen": 0,
}
_REASON = {"code": "WaitingForQuota", "message": "WaitingForQuota: short by 2", "node": "ClusterQueue/team-a"}
_DOCUMENT = {
    "cluster": "1234/observe",
    "observed": True,
    "observingSince": "2030-01-01T00:00:00+00:00",
    "since": None,
    "until": "2030-01-02T00:00:00+00:00",
    "sequence": 9,
    "notLookedAt": {"PyTorchJob": 1, "Job": 12},
    "total": _FIGURES,
    "queues": [{"name": "team-a", **_FIGURES}],
    "waits": [
        {"queue": "team-a", "reason": _REASON, "workloads": 2, "ranAnyway": 2, "example": "ns/Job/\x1b[31m"}
    ],
    "evictions": [
        {"queue": "team-a", "reason": _REASON, "evictions": 1, "by": None, "example": "ns/Job/stopped"}
    ],
    "exceeded": [
        {
            "clusterQueue": "team-a",
            "resource": "nvidia.com/gpu",
            "peak": 12,
            "nominal": 8,
            "at": "2030-01-01T12:00:00+00:00",
        }
    ],
    "decisions": [
        {
            "sequence": 7,
            "time": "2030-01-01T12:00:00+00:00",
            "verdict": "Pending",
            "namespace": "ns",
            "kind": "Job",
            "name": "a",
            "uid": "u",
            "attempt": None,
            "reason": _REASON,
            "reality": "Running",
            "difference": "runs",
        }
    ],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of the report."""
    calls: list[dict[str, Any]] = []

    async def observed(
        settings: Settings, kubeconfig: Path | None, context: str | None, **values: Any
    ) -> dict[str, Any]:
        calls.append({"url": settings.database_url, **values})
        return _DOCUMENT

    monkeypatch.setattr(upkeep, "observed", observed)
    return calls


def test_the_report_shows_what_would_have_been_done_and_where_reality_differs(
    run: Run, asked: list[dict[str, Any]]
) -> None:
    result = run("report", "observe", "--database-url", URL)
    assert result.exit_code == 0, result.output
    assert asked == [{"url": URL, "cluster": None, "since": None, "decisions": False}]
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[2].startswith("Not looked at, without a queue label: 12 Job, 1 PyTorchJob (")
    assert "team-a 3 1 1 0 3m10s 3m10s 3m10s 1 0 0 1" in lines
    assert "team-a 2 0 0 - - 0" in lines
    assert any(line.startswith("team-a nvidia.com/gpu 8 12 ") for line in lines)
    assert any(line.startswith("team-a 1 ClusterQueue/team-a ") for line in lines)
    assert "\x1b" not in result.output
    assert "runs" not in lines[-1]


def test_each_decision_is_listed_with_its_difference(run: Run, asked: list[dict[str, Any]]) -> None:
    result = run("report", "observe", "--database-url", URL, "--decisions")
    assert asked[0]["decisions"] is True
    last = result.output.splitlines()[-1]
    assert "ns/Job/a" in last
    assert last.endswith("runs")


def test_as_json_it_is_the_document(run: Run, asked: list[dict[str, Any]]) -> None:
    result = run("report", "observe", "--database-url", URL, "-o", "json", "--cluster", "1234")
    assert json.loads(result.output) == json.loads(json.dumps(_DOCUMENT))
    assert asked[0]["cluster"] == "1234"


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("90m", timedelta(minutes=90)),
        ("3d", timedelta(days=3)),
        ("999999999d", timedelta(days=365_000)),
        ("2030-01-31T08:00Z", datetime(2030, 1, 31, 8, tzinfo=UTC)),
        ("2030-01-31", datetime(2030, 1, 31, tzinfo=UTC)),
    ],
)
def test_since_is_a_duration_or_a_time(
    run: Run, asked: list[dict[str, Any]], text: str, since: object
) -> None:
    assert run("report", "observe", "--database-url", URL, "--since", text).exit_code == 0
    assert asked[0]["since"] == since


def test_an_invalid_since_is_reported(run: Run, asked: list[dict[str, Any]]) -> None:
    result = run("report", "observe", "--database-url", URL, "--since", "yesterday")
    assert result.exit_code == 2
    assert "'yesterday' is neither how long ago" in result.output
    assert asked == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.42, "0.4s"), (59.4, "59s"), (190, "3m10s"), (7500, "2h05m"), (360_000, "4d04h")],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert figure(seconds) == text


def test_observe_is_a_flag_of_the_controller(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[Path | None, str | None, str | None]] = []

    async def run_observer(
        settings: Settings, kubeconfig: Path | None, context: str | None, default_queue: str | None
    ) -> None:
        assert settings.database_url == URL
        calls.append((kubeconfig, context, default_queue))

    monkeypatch.setattr(leading, "run_observer", run_observer)
    flags = ["--kubeconfig", str(tmp_path / "k"), "--context", "c", "--database-url", URL]
    assert run("controller", "--observe", *flags).exit_code == 0
    assert run("controller", "--observe", "--default-queue", "main", *flags).exit_code == 0
    assert calls == [(tmp_path / "k", "c", None), (tmp_path / "k", "c", "main")]
    refused = run("controller", "--default-queue", "main", *flags)
    assert refused.exit_code == 2
    assert "--default-queue goes with --observe" in refused.output


@pytest.mark.parametrize(
    ("known", "served"),
    [
        (["a"], "a"),
        (["a", "a/observe"], "a"),
        (["a/observe"], "a/observe"),
        (["a/observe", "b", "b/observe"], "b"),
        (["a", "a/observe", "b"], None),
    ],
)
async def test_observed_decisions_are_never_used_as_real_ones(
    monkeypatch: pytest.MonkeyPatch, known: list[str], served: str | None
) -> None:
    async def clusters(engine: object) -> list[str]:
        return known

    monkeypatch.setattr(reading, "clusters", clusters)
    if served is not None:
        assert await reading._only_cluster(URL) == served
        return
    with pytest.raises(ConfigurationError, match=r"2 clusters \(a, b\)"):
        await reading._only_cluster(URL)


@pytest.mark.parametrize(
    ("known", "asked_for", "told"),
    [
        ([], None, "no cluster was observed"),
        (["a"], None, "no cluster was observed"),
        (["a/observe", "b/observe"], None, "select one with --cluster; observed were a, b"),
        (["a/observe"], "b", "cluster b was not observed with this ledger; observed were a"),
    ],
)
async def test_the_cluster_must_be_given_if_the_ledger_has_several(
    monkeypatch: pytest.MonkeyPatch, known: list[str], asked_for: str | None, told: str
) -> None:
    async def clusters(engine: object) -> list[str]:
        return known

    monkeypatch.setattr(reporting, "clusters", clusters)
    with pytest.raises(ConfigurationError, match=told):
        await reporting._twin(URL, asked_for)
