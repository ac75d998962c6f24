"""A program on a ledger of another version: each command says the same, and one thing to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from queuectl.cli import main
from queuectl.ledger.admin import schema
from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.pool import connection_pool, ledger_call
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.ledger import SchemaMismatch
from tests.integration.ledger.test_schema import run

COMMANDS = {
    "migrate": ["migrate"],
    "verify": ["verify"],
    "verify --from-checkpoint": ["verify", "--from-checkpoint"],
    "rebuild": ["rebuild"],
    "controller": ["controller"],
    "controller --observe": ["controller", "--observe"],
    "api": ["api"],
    "notifier": ["notifier"],
    "notifications": ["notifications"],
    "dump": ["dump"],
    "replay": ["replay", "--since", "1h", "--policy", "POLICY"],
    "report observe": ["report", "observe"],
}
CONFIGURATION = """
controller: {lease: null, listen: '127.0.0.1:0'}
api: {listen: '127.0.0.1:0'}
notifier: {listen: '127.0.0.1:0'}
notifications:
- {name: team, webhook: {url: 'http://127.0.0.1:1/x'}, rules: [{event: Evicted}]}
"""
KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {}}],
    "current-context": "c",
}
NEWER = "the ledger's schema 9999 is newer than this program, which supports up to"
OLDER = "this program needs 0999: run `queuectl migrate`"
NONE = "has no ledger in it: run `queuectl migrate`"


def told(folder: Path, url: str, name: str) -> str:
    """What the command prints, which ends with exit code 2."""
    policy, kubeconfig, configuration = (folder / one for one in ("policy.yaml", "kubeconfig", "config.yaml"))
    policy.write_text(
        "apiVersion: queuectl.dev/v1beta1\nkind: ClusterQueue\nmetadata: {name: team-b}\nspec: {}\n"
    )
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    configuration.write_text(CONFIGURATION)
    arguments = [str(policy) if one == "POLICY" else one for one in COMMANDS[name]]
    options = ["--config", str(configuration), "--database-url", url]
    if name in ("rebuild", "controller", "controller --observe", "api"):
        options += ["--kubeconfig", str(kubeconfig)]
    found = CliRunner().invoke(main, [*arguments, *options])
    assert found.exit_code == 2, (name, found.output, found.exception)
    return found.output


# Not asynchronous: servers set handlers of signals, in the main thread.
def test_each_command_says_the_same_of_a_newer_schema(migrated: str, tmp_path: Path) -> None:
    asyncio.run(run(migrated, f"UPDATE {SCHEMA}.schema_version SET version_num = '9999'"))
    for name in COMMANDS:
        found = told(tmp_path, migrated, name)
        assert NEWER in found, name
        assert found.count("run a newer queuectl") == 1, name
        assert "queuectl migrate" not in found, name


def test_each_command_says_the_same_of_an_older_schema_and_of_none(
    fresh: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = [one for one in COMMANDS if one != "migrate"]
    for name in commands:
        found = told(tmp_path, fresh, name)
        assert found.count(NONE) == 1, name
        assert found.count("queuectl migrate") == 1, name
    now = asyncio.run(migrate(fresh))
    monkeypatch.setattr(schema, "_revisions", lambda: ("0999", frozenset({now, "0999"})))
    for name in commands:
        found = told(tmp_path, fresh, name)
        assert found.count(OLDER) == 1, name
        assert found.count("queuectl migrate") == 1, name
        assert "newer queuectl" not in found, name


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("SELECT gone FROM queuectl.leadership", "column"),
        ("SELECT 1 FROM queuectl.gone", "relation"),
        ("SELECT queuectl.gone()", "function"),
    ],
)
async def test_a_program_under_which_the_schema_changes_does_not_guess_which_version_is_newer(
    migrated: str,
    statement: str,
    what: str,
) -> None:
    @ledger_call
    async def read() -> None:
        async with connection_pool(migrated) as pool, pool.begin() as connection:
            await connection.execute(text(statement))

    with pytest.raises(SchemaMismatch, match=f"{what} .*: start this program again, it says what") as found:
        await read()
    assert "migrate" not in str(found.value)
    assert "newer" not in str(found.value)
