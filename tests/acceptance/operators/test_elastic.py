"""An elastic PyTorchJob with an autoscaler, on the real operator."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.workload import ConfigKey
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.operators.cells import COVERED, Cell, Work, cell
from tests.acceptance.operators.charges import charged, requested
from tests.acceptance.operators.kinds import BY_NAME
from tests.acceptance.operators.site import POOLS, Site
from tests.acceptance.operators.subjects import GPU
from tests.integration.sandbox.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
Json = dict[str, Any]
METRIC: Json = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
WANTED, LEAST, MOST = 4, 1, 5
"""Workers, and the bounds of its elastic policy."""


@pytest.mark.parametrize("site", ["all"], ids=["site=all"], indirect=True, scope="session")
async def test_an_elastic_job_starts_with_fewer_workers_and_its_autoscaler_is_there_while_it_runs(
    site: Site,
) -> None:
    async with cell(site, BY_NAME["PyTorchJob"], "elastic") as place:
        await _limit(place, gpus=3)
        body = place.subject.body("w")
        body["spec"]["elasticPolicy"] = {"minReplicas": LEAST, "maxReplicas": MOST, "metrics": [METRIC]}
        body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = WANTED
        work = await place.create(body)
        await work.runs()
        assert _workers(work) == 2
        assert charged(work) == requested(work.pods(), COVERED)
        await eventually(lambda: _bounds(place, (LEAST, MOST)), "its autoscaler")
        await work.hold()
        await work.pending()
        assert _workers(work) == WANTED
        await eventually(lambda: _bounds(place), "the end of its autoscaler")


async def _limit(place: Cell, gpus: int) -> None:
    """Limit GPUs, as one pod requests of each, and wait until that is in force."""
    key, configs = ConfigKey("ClusterQueue", "", place.namespace), place.site.store.configs
    before = configs[key]
    path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{place.namespace}"
    flavors = [
        {
            "name": POOLS[0],
            "resources": [{"name": r, "nominalQuota": gpus if r == GPU else "1P"} for r in COVERED],
        }
    ]
    change = {"spec": {"resourceGroups": [{"coveredResources": list(COVERED), "flavors": flavors}]}}
    await place.site.admin.request("PATCH", path, change, content_type=MERGE_PATCH)
    await place.site.until("its quota is in force", lambda: configs[key] != before)


def _workers(work: Work) -> int:
    found: Json = work.seen() or {}
    return int(found["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


async def _bounds(place: Cell, *expected: tuple[int, int]) -> bool:
    path = f"/apis/autoscaling/v2/namespaces/{place.namespace}/horizontalpodautoscalers"
    listed = (await place.site.admin.request("GET", path))["items"]
    return tuple((one["spec"]["minReplicas"], one["spec"]["maxReplicas"]) for one in listed) == expected
