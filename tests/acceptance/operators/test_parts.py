"""Objects with an order of their own, on real operators: what waits its turn is charged, not late (L32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from queuectl.core.decisions import Verdict
from queuectl.core.model.workload import ConfigKey
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.operators.cells import Cell, Work, cell
from tests.acceptance.operators.kinds import BY_NAME
from tests.acceptance.operators.site import Site
from tests.acceptance.operators.subjects import GPU
from tests.acceptance.operators.trainer import INITIALIZER, INITIALIZER_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="session")
Json = dict[str, Any]
CLOCKS = {"schedulingTimeoutSeconds": 2, "startupTimeoutSeconds": 2}
LONGER = 6.0
"""Seconds that the first part runs: longer than all clocks together."""


async def _clocks(place: Cell, clocks: Mapping[str, int] = CLOCKS) -> None:
    path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{place.namespace}"
    configs, key = place.site.store.configs, ConfigKey("ClusterQueue", "", place.namespace)
    await place.site.until("the controller has the queue", lambda: key in configs)
    before = configs[key]
    change = {"spec": {"waitForPodsReady": dict(clocks)}}
    await place.site.admin.request("PATCH", path, change, content_type=MERGE_PATCH)
    await place.site.until("the clocks are in force", lambda: configs[key] != before)


def _in_parts(place: Cell) -> Json:
    """The workers start when the driver has succeeded."""
    body = place.subject.body("w", run=LONGER)
    driver, workers = body["spec"]["replicatedJobs"]
    workers["dependsOn"] = [{"name": driver["name"], "status": "Complete"}]
    return body


@pytest.mark.parametrize("site", ["all"], ids=["site=all"], indirect=True, scope="session")
async def test_jobs_that_depend_on_others_are_charged_and_not_waited_for(site: Site) -> None:
    async with cell(site, BY_NAME["JobSet"], "parts") as place:
        await _clocks(place)
        work = await place.create(_in_parts(place))
        await work.until("the driver runs", lambda: _parts(work) == {"driver": 1})
        assert work.held()[GPU] == place.subject.pods
        await work.until("the workers run", lambda: _parts(work) == {"workers": 2})
        assert work.verdicts() == [Verdict.ADMITTED]
        assert work.attempts == 1


@pytest.mark.parametrize(
    "site", ["all", "trainer-2.3"], ids=["site=all", "site=trainer-2.3"], indirect=True, scope="session"
)
async def test_nodes_of_a_train_job_wait_for_its_initializer_without_being_late(site: Site) -> None:
    clocks = {"schedulingTimeoutSeconds": 10, "startupTimeoutSeconds": 2}  # through Trainer, JobSet and Job
    assert sum(clocks.values()) < INITIALIZER_SECONDS
    async with cell(site, BY_NAME["TrainJob"], "parts") as place:
        await _clocks(place, clocks)
        work = await place.create(place.subject.body("w", runtime="initialized"))
        await work.until("the initializer runs", lambda: _parts(work) == {INITIALIZER: 1})
        assert (work.held()["cpu"], work.held()[GPU]) == (2 * 1000 + 500, 2)
        await work.until("the nodes run", lambda: _parts(work) == {"node": 2})
        assert work.verdicts() == [Verdict.ADMITTED]
        assert work.attempts == 1


def _parts(work: Work) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in work.running():
        name = pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
        found[name] = found.get(name, 0) + 1
    return found
