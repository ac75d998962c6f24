"""Installs manifests through the API, as `kubectl apply -k` does, as kubectl may not be installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from queuectl.files import BadFile, documents, read
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH, Session
from queuectl.sandbox.players.api import Object

RUNS_BESIDE: Final = frozenset(
    {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "CronJob", "Secret"}
)
"""Kinds that only a cluster with nodes needs: in the sandbox child processes do their work."""

_FIRST: Final = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")
_KNOWN: Final = frozenset({"apiVersion", "kind", "resources", "components", "namespace", "labels"})
_FOR_MACHINES: Final = frozenset({"configMapGenerator", "secretGenerator", "images", "replicas"})
"""Fields of a kustomization that concern only kinds left out here."""
_POLL_SECONDS: Final = 0.05


class InstallError(Exception):
    """A manifest can't be read or is refused. Names the file or the object."""


def read_kustomization(folder: Path, also: frozenset[str] = frozenset()) -> list[Object]:
    """All objects of a kustomization, dependencies first. Raises InstallError.

    Kinds that only a cluster with nodes needs are left out, unless they are in `also`. Only the basic fields
    of a kustomization are supported (resources and components, namespace, labels). One with other
    transformations is refused, so that no object is applied in a wrong form.
    """
    objects = [thing for thing in _objects(folder) if thing["kind"] not in RUNS_BESIDE - also]
    objects.sort(key=lambda thing: _FIRST.index(thing["kind"]) if thing["kind"] in _FIRST else len(_FIRST))
    return objects


def _objects(path: Path) -> Iterator[Object]:
    if path.is_file():
        yield from (thing for thing in _documents(path) if thing)
        return
    file = path / "kustomization.yaml"
    if not file.is_file():
        raise InstallError(f"{path} has no kustomization.yaml")
    (content,) = _documents(file)
    unknown = sorted(set(content) - _KNOWN - _FOR_MACHINES)
    if unknown:
        raise InstallError(f"{file}: fields {', '.join(unknown)} are not known here")
    for name in (*content.get("resources", ()), *content.get("components", ())):
        for thing in _objects(path / name):
            yield _transformed(thing, content)


def _documents(path: Path) -> list[Object]:
    try:
        return [document.content for document in documents(read(path), str(path))]
    except BadFile as error:
        raise InstallError(str(error)) from None


def _transformed(thing: Object, kustomization: Mapping[str, Any]) -> Object:
    metadata = thing["metadata"]
    if (namespace := kustomization.get("namespace")) and "namespace" in metadata:
        metadata["namespace"] = namespace
    for entry in kustomization.get("labels", ()):
        metadata.setdefault("labels", {}).update(entry["pairs"])
    return thing


class Installer:
    """Applies objects; finds the path of each kind by discovery."""

    def __init__(self, api: Session) -> None:
        self._api = api
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}
        """Path below the API version and whether the kind is namespaced, by API version and kind."""

    async def apply(self, objects: Iterable[Object]) -> list[Object]:
        """Create each object, or merge it into the existing one; returns the objects after that.

        Waits until each definition is served. Raises InstallError.
        """
        applied = []
        for thing in objects:
            found = await self.apply_one(thing)
            if thing["kind"] == "CustomResourceDefinition":
                await self._served(thing)
            applied.append(found)
        return applied

    async def apply_one(self, thing: Object) -> Object:
        """Raises InstallError, naming the object and the server's message."""
        path = await self._path(thing)
        try:
            try:
                return await self._api.request("POST", path, thing)
            except ApiError as error:
                if error.status != 409:
                    raise
            path = f"{path}/{thing['metadata']['name']}"
            return await self._api.request("PATCH", path, thing, content_type=MERGE_PATCH)
        except ApiError as error:
            name = thing["metadata"].get("name")
            raise InstallError(f"{thing['kind']} {name} can't be applied: {error}") from error

    async def serves(self, api_version: str, kind: str) -> bool:
        """Whether the server serves this kind."""
        return (api_version, kind) in self._paths or await self._discover(api_version, kind)

    async def _path(self, thing: Object) -> str:
        api_version, kind = thing["apiVersion"], thing["kind"]
        if not await self.serves(api_version, kind):
            raise InstallError(f"the server does not know {kind} of {api_version}")
        plural, namespaced = self._paths[api_version, kind]
        namespace = thing["metadata"].get("namespace", "default")
        middle = f"/namespaces/{namespace}" if namespaced else ""
        return f"{_root(api_version)}{middle}/{plural}"

    async def _discover(self, api_version: str, kind: str) -> bool:
        try:
            found = await self._api.request("GET", _root(api_version))
        except ApiError as error:
            if error.status == 404:
                return False
            raise InstallError(str(error)) from error
        for resource in found["resources"]:
            if "/" not in resource["name"]:
                place = (resource["name"], bool(resource["namespaced"]))
                self._paths[api_version, resource["kind"]] = place
        return (api_version, kind) in self._paths

    async def _served(self, definition: Object, seconds: float = 30) -> None:
        """Wait until the kind of a definition can be written."""
        spec = definition["spec"]
        version = next(v["name"] for v in spec["versions"] if v["served"])
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
                        await self._api.request("GET", path, query={"limit": "1"})
                        return
                    except ApiError as error:
                        if error.status not in (404, 503):
                            raise InstallError(str(error)) from error
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            name = definition["metadata"]["name"]
            raise InstallError(f"{name} is not served {seconds:g} s after it was applied") from None


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
