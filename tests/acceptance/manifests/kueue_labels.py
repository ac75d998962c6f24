"""The component that enables Kueue's labels, applied as kustomize would."""

from __future__ import annotations

import jsonpatch
import yaml

from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Client
from tests.acceptance.manifests.rendered import MANIFESTS, Json, documents

COMPONENT = MANIFESTS / "kueue-labels"


def patches() -> list[tuple[Json, list[Json]]]:
    """The target of each patch, and the patch."""
    (kustomization,) = yaml.safe_load_all((COMPONENT / "kustomization.yaml").read_text())
    return [
        (entry["target"], yaml.safe_load((COMPONENT / entry["path"]).read_text()))
        for entry in kustomization["patches"]
    ]


def changed(objects: list[Json]) -> list[Json]:
    """`objects` with its patches applied. Raises if the value that a patch tests is another one."""
    found = patches()
    return [
        jsonpatch.apply_patch(item, next((patch for target, patch in found if selects(target, item)), []))
        for item in objects
    ]


def selects(target: Json, item: Json) -> bool:
    """Is an object one that a patch is for? By its name, or by `LABEL=VALUE`."""
    if item["kind"] != target["kind"]:
        return False
    key, _, value = target.get("labelSelector", "=").partition("=")
    return item["metadata"]["name"] == target.get("name") or (
        bool(key) and (item["metadata"].get("labels") or {}).get(key) == value
    )


async def put_in_force(api: Client) -> None:
    """Apply it to a server that has the gate. Does not wait until it is in force."""
    await Installer(api).apply(documents(COMPONENT))
    gated = [
        item
        for name in ("gate", "mutating", "webhook", "default-queue")
        for item in documents(MANIFESTS / name)
    ]
    for item in gated:
        for patch in (patch for target, patch in patches() if selects(target, item)):
            plural = f"{item['kind'].lower()}s".replace("policys", "policies")
            path = f"/apis/admissionregistration.k8s.io/v1/{plural}/{item['metadata']['name']}"
            try:
                await api.request("PATCH", path, patch, content_type=JSON_PATCH)
            except ApiError as error:
                if error.status not in (404, 422):  # the object is missing, or is patched already
                    raise
