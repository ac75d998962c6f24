"""Claims for devices as a real API server stores them, with its defaults."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.devices import (
    Device,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from queuectl.core.model.events import ContextObserved
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kube.errors import Invalid
from queuectl.kube.session import api_path
from queuectl.kube.sources import device_sources, events_of, sources
from tests.integration.kube.sites import NAMESPACE, Site
from tests.job_kinds import JOB_KINDS

GROUP = "resource.k8s.io"
CLASSES = (("gpu.nvidia.com", "nvidia.com/gpu"),)
CLASS = {"deviceClassName": "gpu.nvidia.com"}
ALTERNATIVES = [
    {"name": "large", **CLASS},
    {"name": "small", "deviceClassName": "mig.nvidia.com", "count": 2},
]
REQUESTS: dict[str, dict[str, Any]] = {
    "one": {"exactly": CLASS},
    "selected": {"exactly": {**CLASS, "selectors": [{"cel": {"expression": "true"}}], "count": 3}},
    "all": {"exactly": {**CLASS, "allocationMode": "All"}},
    "alternatives": {"firstAvailable": ALTERNATIVES},
}
EXPECTED = {
    "one": DeviceRequest("exactly", (("gpu.nvidia.com", 1),)),
    "selected": DeviceRequest("exactly", (("gpu.nvidia.com", 3),)),
    "all": DeviceRequest("exactly", problem="allocationMode All has no fixed count"),
    "alternatives": DeviceRequest("firstAvailable", (("gpu.nvidia.com", 1), ("mig.nvidia.com", 2))),
}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("site", ["real"], indirect=True, ids="site={}".format)
async def test_claims_and_templates_are_read_as_the_server_stores_them(site: Site) -> None:
    for name, request in REQUESTS.items():
        spec = {"devices": {"requests": [{"name": "gpu", **request}]}}
        want = EXPECTED[name]
        path = f"spec.devices.requests[0].{want.path}"
        claim = DeviceRequest(path, want.alternatives, want.problem)
        inner = DeviceRequest(f"spec.{path}", want.alternatives, want.problem)
        key = f"{NAMESPACE}/{name}"
        assert await _stored(site, "ResourceClaim", name, spec) == ResourceClaim(key, (claim,))
        template = await _stored(site, "ResourceClaimTemplate", name, {"spec": spec})
        assert template == ResourceClaimTemplate(key, (inner,))
    unnamed = {"devices": {"requests": [{"name": "gpu", "exactly": {"count": 1}}]}}
    with pytest.raises(Invalid):
        await _stored(site, "ResourceClaim", "no-class", unnamed)


@pytest.mark.asyncio(loop_scope="session")
async def test_devices_are_read_as_the_server_stores_them(site: Site) -> None:
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    pool = {"name": "n1", "generation": 2, "resourceSliceCount": 1}
    taint = {"key": "example.com/bad", "effect": "NoSchedule"}
    devices: list[dict[str, Any]] = [
        {"name": name, "attributes": {"type": {"string": name}}} for name in ("gpu", "mig")
    ]
    devices[0]["taints"] = [taint]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": pool, "devices": devices}
    of_kind = {one.name: one for one in device_sources(CLASSES)}
    bodies = {
        "ResourceSlice": ("n1-gpu", spec),
        "DeviceClass": ("gpu.nvidia.com", {"selectors": [{"cel": {"expression": expression}}]}),
    }
    for kind, (name, content) in bodies.items():
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": content}
        stored = await site.create(of_kind[kind].path, body)
        assert stored["metadata"]["generation"] == 1
        events_of(of_kind[kind], stored, {})
    unfit = {**body, "metadata": {"name": "no-spec"}, "kind": "ResourceSlice", "spec": {}}
    with pytest.raises(Invalid):
        await site.create(of_kind["ResourceSlice"].path, unfit)
    device = Device(
        name="gpu", resource="nvidia.com/gpu", node="n1", taints=(("example.com/bad", "NoSchedule"),)
    )
    found = ResourceSlice(name="n1-gpu", driver="gpu.nvidia.com", pool="n1", generation=2, devices=(device,))
    others = of_kind["DeviceClass"].others
    assert others is not None
    assert others(9) == [ContextObserved(found)], "the slice again, as its class selects its devices"


async def _stored(site: Site, kind: str, name: str, spec: dict[str, Any]) -> object:
    row = CONTEXT_KINDS[kind]
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return row.observe(await site.create(api_path(row.group, row.version, row.plural, NAMESPACE), body))


def test_the_devices_of_nodes_are_watched_only_where_device_classes_are_mapped() -> None:
    names = [{one.name for one in sources(JOB_KINDS, devices=on)} for on in ((), CLASSES)]
    published = {"DeviceClass", "ResourceSlice", "DeviceTaintRule"}
    assert names[1] - names[0] == published
    assert {"ResourceClaim", "ResourceClaimTemplate"} <= names[0], "a reason names the class of a claim"
    without_nodes = {one.name for one in sources(JOB_KINDS, devices=CLASSES, nodes=False)}
    assert not without_nodes & published
