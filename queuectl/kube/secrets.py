"""Our certificates in a Secret, and the authority that callers have to trust, where they read it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from queuectl.kube.errors import ApiError, Conflict, Forbidden, NotFound
from queuectl.kube.session import JSON_PATCH, Object, Session, api_path
from queuectl.ports.cluster import ClusterUnavailable, WriteDenied

BUNDLE_KEY: Final = "ca.crt"
"""Key in the ConfigMap."""
_CONFIGURATIONS: Final = ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")


class SecretVault:
    """An existing Secret: the manifests ship it empty, so that no right to create Secrets is needed."""

    def __init__(self, session: Session, namespace: str, name: str) -> None:
        self._session = session
        self._path = api_path("", "v1", "secrets", namespace, name)
        self.where = f"Secret {namespace}/{name}"

    async def read(self) -> tuple[Mapping[str, bytes], str]:
        """The texts by name, and the resourceVersion. Raises ClusterUnavailable."""
        secret = await _read(self._session, self._path, self.where)
        return _decoded(secret.get("data") or {}), str(secret["metadata"]["resourceVersion"])

    async def write(self, texts: Mapping[str, bytes], version: str) -> bool:
        """Replace the texts of `version`; False: another process was faster. Raises ClusterUnavailable."""
        data = {name: base64.b64encode(text).decode() for name, text in texts.items()}
        patch = {"metadata": {"resourceVersion": version}, "data": data}
        try:
            await self._session.patch(self._path, patch)
        except Conflict:
            return False
        except ApiError as error:
            raise _denied(error, self.where) from error
        return True


class BundleConfigMap:
    """A ConfigMap that every user may read, for callers outside the cluster's own configuration."""

    def __init__(self, session: Session, namespace: str, name: str) -> None:
        self._session = session
        self._path = api_path("", "v1", "configmaps", namespace, name)
        self._where = f"ConfigMap {namespace}/{name}"

    async def publish(self, bundle: str) -> None:
        """Raises ClusterUnavailable."""
        found = await _read(self._session, self._path, self._where)
        if (found.get("data") or {}).get(BUNDLE_KEY) == bundle:
            return
        try:
            await self._session.patch(self._path, {"data": {BUNDLE_KEY: bundle}})
        except ApiError as error:
            raise _denied(error, self._where) from error


class WebhookConfiguration:
    """A MutatingWebhookConfiguration whose webhooks are all ours."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._path = api_path(*_CONFIGURATIONS, None, name)
        self._where = f"MutatingWebhookConfiguration {name}"

    async def publish(self, bundle: str) -> None:
        """Raises ClusterUnavailable."""
        found = await _read(self._session, self._path, self._where)
        wanted = base64.b64encode(bundle.encode()).decode()
        version: Any = found["metadata"]["resourceVersion"]
        patch: list[Object] = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
        patch += [
            {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": wanted}
            for place, webhook in enumerate(found.get("webhooks") or ())
            if (webhook.get("clientConfig") or {}).get("caBundle") != wanted
        ]
        if len(patch) == 1:
            return
        try:
            await self._session.patch(self._path, patch, content_type=JSON_PATCH)
        except ApiError as error:
            raise _denied(error, self._where) from error


async def _read(session: Session, path: str, where: str) -> Object:
    try:
        return await session.get(path)
    except ApiError as error:
        raise _denied(error, where) from error


def _denied(error: ApiError, where: str) -> ClusterUnavailable:
    if isinstance(error, NotFound):
        return WriteDenied(f"{where} is not there: it comes empty with the manifests, apply them again")
    if isinstance(error, Forbidden):
        return WriteDenied(f"{where}: {error}. Its Role comes with the manifests, apply them again")
    if isinstance(error, ClusterUnavailable):
        return error
    return ClusterUnavailable(f"{where}: {error}", error.retry_after)


def _decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    """Values that are not base64 count as missing: they are made anew."""
    found = {}
    for name, text in data.items():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
    return found
