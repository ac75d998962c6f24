"""Who changed a queue: from the API server to the command line."""

from __future__ import annotations

import json

import pytest

from queuectl.kinds.reserved_keys import AUTHOR_ANNOTATION
from queuectl.shipped import shipped
from tests.acceptance.e2e.site import Json, Site, eventually
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.mutating_policies]


async def test_events_name_the_user_that_changed_a_queue(world: World, kubectl: Site) -> None:
    name, folder = world.namespace, str(shipped("manifests") / "authors")
    path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{name}"

    async def authored() -> bool:
        """The policy takes effect some seconds after it is applied."""
        for change in ("resume", "stop"):
            told = await kubectl.queuectl(change, f"clusterqueue/{name}", "--wait")
            assert told.code == 0, told.err
        metadata: Json = (await world.api.request("GET", path))["metadata"]
        return bool(metadata.get("annotations", {}).get(AUTHOR_ANNOTATION) == "admin")

    async def recorded() -> bool:
        told = await kubectl.queuectl("events", "--since", "10m", "-o", "json")
        assert told.code == 0, told.err
        found = [row["details"] for row in map(json.loads, told.out.splitlines()) if row["uid"] is None]
        mine = [row for row in found if (row["kind"], row["name"]) == ("ClusterQueue", name)]
        assert mine[0]["author"] is None
        return bool(mine[-1]["author"] == "admin")

    applied = await kubectl.kubectl("apply", "-k", folder)
    assert applied.code == 0, applied.err
    try:
        await eventually("the author of the change is written on the queue", authored)
        await eventually("the author of the change is recorded", recorded)
        told = await kubectl.queuectl("events", "--since", "10m")
        lines = [line for line in told.out.splitlines() if f"clusterqueue/{name}" in line]
        assert lines[-1].endswith("(by admin)")
    finally:
        await kubectl.kubectl("delete", "-k", folder)
