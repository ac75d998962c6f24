"""`queuectl dump` on a real ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuectl.app.past import dumped
from queuectl.core.decisions import Plan
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.policy import Node
from queuectl.core.model.workload import ForReaders
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerUnavailable, NotStored
from queuectl.scenarios.dump import NoSuchTree
from queuectl.scenarios.reader import read_scenarios
from queuectl.scenarios.run import ScenarioRun
from queuectl.settings import ConfigurationError, Settings
from tests.doubles.invariants import violations
from tests.integration.ledger.edits import World


async def dump(world: World, **asked: Any) -> dict[str, Any]:
    usual = {"as_of": None, "tree": None, "run_seconds": None, "without_names": False}
    settings = Settings.model_validate({"database": {"url": world.url}})
    return await dumped(settings, **{"cluster": world.cluster, **usual, **asked})


async def test_a_dump_of_now_is_a_document_that_is_run(busy: World) -> None:
    found = await dump(busy)
    snapshot = await busy.ledger.load()
    assert len(found["workloads"]) == len(snapshot.workloads) > 0
    for document in (found, await dump(busy, without_names=True)):
        (scenario,) = read_scenarios(json.dumps(document).encode(), "dump.json")
        assert scenario.left_out == ""
        assert violations(ScenarioRun(scenario)._engine) == []


async def test_a_dump_of_now_has_the_nodes_and_one_of_a_past_time_has_none(busy: World) -> None:
    told = ForReaders(nodes=(NodeFacts(name="n", node=Node("n", allocatable=(("nvidia.com/gpu", 8),))),))
    plan = Plan(version=0, cycle=0, now=await busy.ledger.now())
    await busy.ledger.commit(plan, (), epoch=busy.epoch, batch="nodes", for_readers=told)
    assert (await dump(busy))["nodes"] == [{"name": "n", "allocatable": {"nvidia.com/gpu": "8"}}]
    assert "nodes" not in await dump(busy, as_of=timedelta())


async def test_what_cannot_be_dumped_is_refused(busy: World) -> None:
    with pytest.raises(NotStored, match="has no decision of"):
        await dump(busy, as_of=datetime(1999, 1, 1, tzinfo=UTC))
    with pytest.raises(NoSuchTree, match="nowhere is neither a Cohort nor a ClusterQueue"):
        await dump(busy, as_of=timedelta(), tree="nowhere")
    other = World(busy.pool, busy.url, "another", busy.ledger, busy.epoch)
    with pytest.raises(LedgerUnavailable, match="no controller has led"):
        await dump(other)
    await PostgresLedger(busy.pool, "another").take_epoch("test")
    with pytest.raises(ConfigurationError, match="name one with --cluster"):
        await dump(busy, cluster=None)
