"""`queuectl replay` on a real ledger."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from queuectl.answers.replay import replayed
from queuectl.app.past import past_since
from queuectl.cli import main
from queuectl.ledger.history import state_at as as_of
from queuectl.ports.ledger import NotStored
from queuectl.ports.reader import TooMuchHistory
from queuectl.settings import Settings
from tests.builders import GPU
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import configure, enqueue, retire


def settings(world: World) -> Settings:
    return Settings.model_validate({"database": {"url": world.url}})


async def test_a_past_time_has_its_state_its_workloads_and_the_changes_of_policy_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.write(configure("team-a", 100), configure("old", 1))
    await world.write(enqueue("ended"), await world.admit("ended"))
    since = await world.ledger.now()
    await world.write(retire("ended", 1), configure("team-a", 50), configure("old", None))
    await world.write(enqueue("comes", arrival=2), configure("team-a", 60))
    found = await past_since(settings(world), cluster=world.cluster, since=since)
    assert [one.ref.name for one in found.snapshot.workloads] == ["ended"]
    assert {life.workload.ref.name: len(life.runs) for life in found.lives.lives} == {"ended": 1, "comes": 0}
    quotas = [
        one["nominalQuota"]
        for change in found.changes
        for one in json.loads(change.spec)["resourceGroups"][0]["flavors"][0]["resources"]
        if one["name"] == GPU
    ]
    assert [int(quota) for quota in quotas] == [50, 60]
    assert all(since < change.at <= found.until for change in found.changes)
    assert found.removed == 1
    with pytest.raises(NotStored, match="has no decision of"):
        await past_since(settings(world), cluster=world.cluster, since=datetime(1999, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(as_of, "MOST_REVISED", 1 << 11)
    with pytest.raises(TooMuchHistory, match="changed by more than 0 MiB since"):
        await past_since(settings(world), cluster=world.cluster, since=since)


@pytest.mark.acceptance
async def test_twelve_thousand_changes_of_policy_are_read_and_replayed(world: World) -> None:
    """A tool that applies 2000 objects six times, each time with another spec."""
    await world.write(configure("team-a", 100), enqueue("one"))
    since = await world.ledger.now()
    await world.tamper(
        "INSERT INTO queuectl.config_revision SELECT :c, 'ResourceFlavor', '', 'f' || n % 2000, n, "
        "CASE WHEN n <= 10000 THEN n + 2000 END, now() + n * interval '1 us', "
        "CASE WHEN n <= 10000 THEN now() + (n + 2000) * interval '1 us' END, "
        '\'{"nodeLabels":{"round":"\' || n / 2000 || \'"}}\' FROM generate_series(1, 12000) AS n'
    )
    found = await past_since(settings(world), cluster=world.cluster, since=since)
    assert len(found.changes) == 12_000
    assert found.removed == 0
    assert len({id(change.spec) for change in found.changes}) == 7
    later = replace(found, until=found.changes[-1].at + timedelta(seconds=1))
    assert replayed(later, [])["assumed"]["policyChanges"] == 12_000


async def test_the_command_prints_tables_and_what_they_rest_on(world: World, tmp_path: Path) -> None:
    await world.write(configure("team-a", 100))
    since = await world.ledger.now()
    await world.write(enqueue("ended"), await world.admit("ended"))
    await world.write(retire("ended", 1))
    policy = tmp_path / "new.yaml"
    policy.write_text(
        "apiVersion: queuectl.dev/v1beta1\nkind: ClusterQueue\nmetadata: {name: team-b}\nspec: {}\n"
    )
    usual = ["replay", "--since", since.isoformat(), "--policy", str(policy), "--database-url", world.url]
    usual += ["--cluster", world.cluster]

    async def run(*more: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, [*usual, *more])

    found = await run("-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert [queue["name"] for queue in document["queues"]] == ["team-a", "team-b"]
    assert document["workloads"] == 1
    told = await run()
    assert told.exit_code == 0, told.output
    assert "1 workloads run as long as their last run, which ended." in told.stdout
    policy.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n")
    refused = await run()
    assert refused.exit_code != 0
    assert "objects of queuectl.dev only" in refused.stderr
