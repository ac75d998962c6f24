"""What a cluster writes for a pod of REST: no kubelet and no endpoints controller run here."""

from __future__ import annotations

import socket
from typing import Final

import pytest

from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Client, Object

SYSTEM: Final = "queuectl-system"
POD: Final = {"kind": "Pod", "namespace": SYSTEM, "name": "queuectl-api-0"}
_SPEC: Final[Object] = {"containers": [{"name": "api", "image": "queuectl"}]}


def own_address() -> str:
    """An address of this machine that is not loopback: an API server proxies to nothing on loopback.

    Nothing is sent to find it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has only loopback addresses: an API server proxies to none of them")
        return str(probe.getsockname()[0])


async def expose(api: Client, address: str, port: int, spec: Object = _SPEC) -> None:
    """A pod with this address, and Endpoints with the pod; the proxy follows an address only if a pod has it.

    `spec`: of the pod, which no scheduler takes.
    """
    system = f"/api/v1/namespaces/{SYSTEM}"
    installer = Installer(api)
    head = {"apiVersion": "v1", "metadata": {"name": POD["name"], "namespace": SYSTEM}}
    await installer.apply_one({**head, "kind": "Pod", "spec": {**spec, "schedulerName": "none"}})
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    path = f"{system}/pods/{POD['name']}/status"
    await api.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)
    subset = {"addresses": [{"ip": address, "targetRef": POD}], "ports": [{"name": "rest", "port": port}]}
    head = {"apiVersion": "v1", "metadata": {"name": "queuectl-api", "namespace": SYSTEM}}
    await installer.apply_one({**head, "kind": "Endpoints", "subsets": [subset]})
