"""A small API server with a few objects and merge patches, for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

Json = dict[str, Any]


def merged(target: Json, patch: Json) -> Json:
    """RFC 7386."""
    found = dict(target)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


class Cluster:
    """Objects by path; `refusals` come first, by method and path."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.refusals: dict[tuple[str, str], tuple[int, str]] = {}
        self.writes: list[tuple[str, Json]] = []
        self.asked: list[tuple[str, str]] = []
        self.authorizations: set[str] = set()
        """Values of the header, of all requests."""
        self.says_user: str | None = None
        """Name of the user; None: the server does not say."""
        self.after: Callable[[Json], Json] = lambda obj: obj
        """Changes an object as the controller would before it is read again."""

    def add(self, path: str, **parts: Any) -> None:
        collection, _, name = path.rpartition("/")
        metadata = {"name": name, "uid": f"uid-{name}", **parts.pop("metadata", {})}
        self.objects[f"{collection}/{name}"] = {"metadata": metadata, **parts}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        self.asked.append((request.method, path))
        self.authorizations.add(request.headers.get("Authorization", ""))
        if refused := self.refusals.get((request.method, path)):
            return _status(*refused)
        if request.method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            return self._patched(path, json.loads(await request.read()), "dryRun" in request.query)
        if request.method == "POST":
            return self._created(path, json.loads(await request.read()))
        if request.method == "DELETE":
            options = json.loads(await request.read())
            if options.get("dryRun"):
                return web.json_response(self.objects[path])
            self.writes.append((path, options))
            if options["preconditions"]["uid"] != self.objects[path]["metadata"]["uid"]:
                return _status(409, "Precondition failed: UID in precondition")
            return web.json_response(self.objects.pop(path))
        below = [obj for name, obj in self.objects.items() if name.rpartition("/")[0] == path]
        if below:
            return web.json_response({"items": below, "metadata": {}})
        if path not in self.objects:
            return _status(404, f"{path} not found")
        found = self.objects[path]
        self.objects[path] = self.after(found)
        return web.json_response(found)

    def _patched(self, path: str, patch: Json, dry_run: bool) -> web.Response:
        if dry_run:
            return web.json_response(merged(self.objects[path], patch))
        self.writes.append((path, patch))
        now, asked = self.objects[path]["metadata"], patch["metadata"]
        if asked["uid"] != now["uid"]:
            return _status(409, "Precondition failed: UID in precondition")
        if asked.get("resourceVersion") not in (None, now.get("resourceVersion")):
            return _status(409, "the object has been modified")
        self.objects[path] = merged(self.objects[path], patch)
        return web.json_response(self.objects[path])

    def _created(self, collection: str, body: Json) -> web.Response:
        if collection.endswith("/selfsubjectreviews"):
            if self.says_user is None:
                return _status(404, f"{collection} not found")
            return web.json_response({"status": {"userInfo": {"username": self.says_user}}}, status=201)
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}7x9"
        path = f"{collection}/{name}"
        self.writes.append((collection, body))
        if path in self.objects:
            return _status(409, f"{name} already exists")
        self.objects[path] = merged(body, {"metadata": {"name": name, "uid": f"uid-{name}"}})
        return web.json_response(self.objects[path], status=201)


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def kubeconfig(folder: Path, server: str, namespace: str = "default", token: str = "secret") -> Path:
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
    }
    path.write_text(json.dumps(content))
    return path
