"""What `kubectl get` shows of queuectl's kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from release.crds import files
from tests.integration.kube_api.client import MERGE, TABLE, Client, Json, Server, eventually
from tests.integration.kube_api.conftest import DEFINITIONS, client_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

API = "/apis/queuectl.dev/v1beta1"


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def kinds(server: Server) -> AsyncIterator[None]:
    """Install queuectl's kinds on the server for this module."""
    definitions = [yaml.safe_load(text) for text in files().values()]
    definitions = [found for found in definitions if found["kind"] == "CustomResourceDefinition"]
    async with client_of(server, "admin", "") as client:
        for definition in definitions:
            await client.create(DEFINITIONS, definition)
            collection = f"{API}/{definition['spec']['names']['plural']}"

            async def served(collection: str = collection) -> bool:
                return (await client.call("GET", collection))[0] == 200

            await eventually(served, f"{collection} to be served")
        yield
        for definition in definitions:
            status, _ = await client.call("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")
            assert status == 200


async def printed(api: Client, collection: str) -> Json:
    """The cells of the only object, by column name."""
    _, table = await api.call("GET", collection, headers={"Accept": TABLE})
    (row,) = table["rows"]
    return {
        column["name"]: cell for column, cell in zip(table["columnDefinitions"], row["cells"], strict=True)
    }


async def made(api: Client, collection: str, kind: str, **parts: object) -> str:
    body = {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": {"name": "printed"}, **parts}
    await api.create(collection, body)
    return f"{collection}/printed"


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
async def test_queues_show_pending_and_admitted_workloads_and_why_they_do_not_admit(
    api: Client, kind: str
) -> None:
    local = kind == "LocalQueue"
    collection = f"{API}/namespaces/{api.namespace}/localqueues" if local else f"{API}/clusterqueues"
    own = {"ClusterQueue": "team-a"} if local else {"Cohort": "all", "Strategy": "BestEffortFIFO"}
    spec = {"clusterQueue": "team-a"} if local else {"cohortName": "all"}
    path = await made(api, collection, kind, spec={**spec, "stopPolicy": "Hold"})
    before = await printed(api, collection)
    assert (before["Pending"], before["Active"]) == (None, None)
    condition = {
        "type": "Active",
        "status": "False",
        "reason": "Stopped",
        "message": "stopPolicy is Hold",
        "lastTransitionTime": "2026-01-05T10:00:00Z",
    }
    status = {"pendingWorkloads": 12, "admittedWorkloads": 3, "conditions": [condition]}
    await api.patch(f"{path}/status", {"status": status}, MERGE)
    found = await printed(api, collection)
    await api.call("DELETE", path)
    assert found.pop("Age")
    assert found == {
        "Name": "printed",
        **own,
        "Pending": 12,
        "Admitted": 3,
        "Active": "False",
        "Stop": "Hold",
        "Reason": "Stopped",
        "Message": "stopPolicy is Hold",
    }


@pytest.mark.parametrize(
    ("collection", "kind", "parts", "shown"),
    [
        (
            "cohorts",
            "Cohort",
            {"spec": {"parentName": "all", "fairSharing": {"weight": "3"}}},
            {"Parent": "all", "Weight": "3"},
        ),
        (
            "workloadpriorityclasses",
            "WorkloadPriorityClass",
            {"value": 7, "description": "for demos"},
            {"Value": 7, "Description": "for demos"},
        ),
        (
            "resourceflavors",
            "ResourceFlavor",
            {"spec": {"nodeLabels": {"example.com/gpu": "a100"}, "topologyName": "racks"}},
            {"Node Labels": '{"example.com/gpu":"a100"}', "Topology": "racks"},
        ),
    ],
)
async def test_the_other_kinds_have_their_columns(
    api: Client, collection: str, kind: str, parts: Json, shown: Json
) -> None:
    path = await made(api, f"{API}/{collection}", kind, **parts)
    found = await printed(api, f"{API}/{collection}")
    await api.call("DELETE", path)
    assert found.pop("Age")
    assert found == {"Name": "printed", **shown}
