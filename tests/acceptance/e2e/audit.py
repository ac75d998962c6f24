"""Requests to an API server by user: from its audit log, or from the same record kept for the small API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from queuectl.kubernetes_yaml import dump
from queuectl.sandbox.control_plane import CONTROLLER_USER
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.kubernetes.wire import Request, ServerResponse

Json = dict[str, Any]

_JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"
POLICY: Final[Mapping[str, object]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {
            "level": "RequestResponse",
            "users": [CONTROLLER_USER],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {
            "level": "RequestResponse",
            "users": [_JOB_CONTROLLER],
            "verbs": ["update", "patch"],
            "resources": [{"group": "batch", "resources": ["jobs/status"]}],
        },
        {"level": "Metadata"},
    ],
}
"""Whole bodies of the controller's writes and of Job statuses; of all else user, request and time."""


def audited(folder: Path) -> tuple[AuditLog, list[str]]:
    """A log by POLICY in a folder, and the flags of an API server that writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    policy, log = folder / "audit-policy.yaml", folder / "audit.log"
    policy.write_text(dump(dict(POLICY)))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-maxsize=4096"]
    return AuditLog(log), flags


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One answered request, or one watch that was started."""

    at: datetime
    user: str
    verb: str
    resource: str
    """Plural, or plural/subresource."""
    namespace: str
    name: str
    code: int
    sent: Any = None
    """Body, of the writes that POLICY keeps whole."""
    answer: Any = None


class Audit(Protocol):
    def entries(self) -> list[Entry]:
        """All entries so far, ordered by the time at which the request ended."""


class AuditLog:
    """The log that kube-apiserver writes, read from where the last read ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        with self._path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                item = orjson.loads(line)
                if _counts(item):
                    self._entries.append(_entry(item))
        return list(self._entries)


def _counts(item: Json) -> bool:
    """A watch is in the log twice: when it starts and when it ends."""
    begins = item["stage"] == "ResponseStarted"
    return "objectRef" in item and begins == (item["verb"] == "watch")


def _entry(item: Json) -> Entry:
    target = item["objectRef"]
    subresource = target.get("subresource")
    return Entry(
        at=datetime.fromisoformat(item["stageTimestamp"]),
        user=item["user"]["username"],
        verb=item["verb"],
        resource=f"{target['resource']}/{subresource}" if subresource else target["resource"],
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=item["responseStatus"]["code"],
        sent=item.get("requestObject"),
        answer=item.get("responseObject"),
    )


class Recorder:
    """Records for the small API what an audit log would contain."""

    def __init__(self, small: SmallApi) -> None:
        self._small = small
        self._handle = small.api.handle
        self._entries: list[Entry] = []
        small.api.handle = self._recorded  # type: ignore[method-assign]

    def entries(self) -> list[Entry]:
        return list(self._entries)

    async def _recorded(self, request: Request) -> ServerResponse:
        response = await self._handle(request)
        place = _place(request.path)
        if place is not None:
            resource, namespace, name = place
            at = datetime.now(UTC)  # noqa: TID251 - the log of an API server has its machine's time
            self._entries.append(
                Entry(
                    at=at,
                    user=self._small.api.identities.user(request.headers, at.timestamp()).name,
                    verb=_verb(request, name),
                    resource=resource,
                    namespace=namespace,
                    name=name,
                    code=response.status,
                    sent=orjson.loads(request.body) if request.body else None,
                    answer=response.json() if request.method not in ("GET", "DELETE") else None,
                )
            )
        return response


def _verb(request: Request, name: str) -> str:
    if request.method == "GET" and not name:
        return "watch" if request.query.get("watch") in ("1", "true") else "list"
    verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs[request.method]


def _place(path: str) -> tuple[str, str, str] | None:
    """Resource, namespace and name; None if the path is not an object's."""
    steps = path.strip("/").split("/")
    rest = steps[2:] if steps[0] == "api" else steps[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    if not rest:
        return None
    resource, name, subresource = [*rest, "", ""][:3]
    return (f"{resource}/{subresource}" if subresource else resource), namespace, name


# --- queries of tests ---------------------------------------------------------------------------------

JOBS: Final = ("jobs", "pytorchjobs")
_READS: Final = ("get", "list", "watch")


def ours(entries: Iterable[Entry]) -> list[Entry]:
    """The controller's requests."""
    return [entry for entry in entries if entry.user == CONTROLLER_USER]


def writes(entries: Iterable[Entry]) -> list[Entry]:
    """The controller's writes, refused ones included."""
    return [entry for entry in ours(entries) if entry.verb not in _READS]


def reads(entries: Iterable[Entry]) -> Counter[tuple[str, str]]:
    """The controller's reads, counted by verb and resource."""
    return Counter((entry.verb, entry.resource) for entry in ours(entries) if entry.verb in _READS)


def writes_to_jobs(entries: Iterable[Entry]) -> list[Entry]:
    """The controller's writes to the objects of workloads, with any response code."""
    return [entry for entry in writes(entries) if entry.resource.partition("/")[0] in JOBS]


def starts(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The controller's patches that started an object, or may have, by UID.

    If the sender is killed before the response, a real server logs 504 whether or not it applied the patch.
    The object's generation shows which.
    """
    found: dict[str, list[Entry]] = {}
    for entry in writes_to_jobs(entries):
        if entry.resource in JOBS and (entry.code == 200 or entry.code >= 500) and _lets_go(entry.sent):
            found.setdefault(_expected_uid(entry.sent), []).append(entry)
    return found


def _lets_go(patch: Any) -> bool:
    return isinstance(patch, list) and any(
        step["op"] == "add" and step["path"].endswith("/suspend") and step["value"] is False for step in patch
    )


def _expected_uid(patch: list[Json]) -> str:
    """The UID that a start tests: the patch fails on any other object."""
    return next(str(step["value"]) for step in patch if step["path"] == "/metadata/uid")


def completions(entries: Iterable[Entry]) -> dict[str, list[datetime]]:
    """When each Job became Complete, by UID: several times if Complete was removed and set again."""
    states: dict[str, dict[int, tuple[datetime, bool]]] = {}
    for entry in entries:
        if entry.resource == "jobs/status" and entry.code == 200 and entry.answer:
            metadata = entry.answer["metadata"]
            complete = _complete(entry.answer)
            states.setdefault(metadata["uid"], {})[int(metadata["resourceVersion"])] = (entry.at, complete)
    return {uid: _turns(state) for uid, state in states.items()}


def _turns(states: Mapping[int, tuple[datetime, bool]]) -> list[datetime]:
    """Times at which the state became true, in the order of the object's versions."""
    found, before = [], False
    for _, (at, complete) in sorted(states.items()):
        if complete and not before:
            found.append(at)
        before = complete
    return found


def _complete(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)
