"""The component that enables Kueue's labels, applied as kustomize would."""

from __future__ import annotations

import jsonpatch
import yaml

from queuectl.sandbox.client import Client
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import JSON_PATCH, ApiError
from tests.manifests.rendered import MANIFESTS, Json, documents

COMPONENT = MANIFESTS / "kueue-labels"


def patches() -> list[tuple[str, str, list[Json]]]:
    """Kind and name of each object that it patches, with the patch."""
    (kustomization,) = yaml.safe_load_all((COMPONENT / "kustomization.yaml").read_text())
    return [
        (
            entry["target"]["kind"],
            entry["target"]["name"],
            yaml.safe_load((COMPONENT / entry["path"]).read_text()),
        )
        for entry in kustomization["patches"]
    ]


def changed(objects: list[Json]) -> list[Json]:
    """`objects` with its patches applied. Raises if the value that a patch tests is another one."""
    found = {(kind, name): patch for kind, name, patch in patches()}
    return [
        jsonpatch.apply_patch(item, found.get((item["kind"], item["metadata"]["name"]), []))
        for item in objects
    ]


async def put_in_force(api: Client) -> None:
    """Apply it to a server that has the gate. Does not wait until it is in force."""
    await Installer(api).apply(documents(COMPONENT))
    for kind, name, patch in patches():
        plural = f"{kind.lower()}s".replace("policys", "policies")
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}/{name}"
        try:
            await api.request("PATCH", path, patch, content_type=JSON_PATCH)
        except ApiError as error:
            if error.status not in (404, 422):  # the object is missing, or is patched already
                raise
