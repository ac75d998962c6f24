"""The endpoints that change Kubernetes objects, with the rights of the caller (docs/rest.md, Changes)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from pydantic import Field

from queuectl.api import requests
from queuectl.api.http import Refusal, bad_request, not_found
from queuectl.api.requests import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Endpoint, Question, always
from queuectl.api.schemas import Committed
from queuectl.api.view import AnswerSource, committed, shallow
from queuectl.kinds.json_fields import MAX_COUNT
from queuectl.ports.changes import ChangedField, ChangeRefused, Changes, Verb, Wanted, WantedSize

MAX_BODY: Final = 4096
MAX_REASON: Final = 200
"""Characters."""
_OFF: Final = (
    "this server changes nothing (api.changes is none): the command line does the same with your own rights"
)
_WORKLOAD: Final = "/api/v1/workloads/{namespace}/{kind}/{name}"
_LOCAL_QUEUE: Final = "/api/v1/localqueues/{namespace}/{name}"
_CLUSTER_QUEUE: Final = "/api/v1/clusterqueues/{name}"

log = logging.getLogger(__name__)


class Changed(Committed):
    """One field of a Kubernetes object, as the API server has it after the change."""

    kind: str
    namespace: str | None = Field(description="Null for a ClusterQueue.")
    name: str
    field: str = Field(
        description="Such as `spec.stopPolicy`; of a fit `podset NAME`: its size before and after, in words; "
        "of a deletion `object`."
    )
    before: str | None
    after: str | None
    written: bool = Field(description="False: it was so already. With `dryRun` nothing is written ever.")
    meaning: str = Field(description="What follows from it, in words.")
    loss: str | None = Field(
        description="What a hold or a deletion ends; without `evict: true` it is refused then."
    )
    reason: str | None = Field(description="As the object keeps it, with its author.")
    dry_run: bool
    fields: tuple[ChangedField, ...] = Field(description="Of a fit: all fields that it changes. Else empty.")


class _Row(NamedTuple):
    path: str
    verb: Verb
    summary: str
    takes: tuple[str, ...] = ()
    """Fields of the body beside `reason` and `dryRun`."""
    keeps_reason: bool = True

    @property
    def known(self) -> tuple[str, ...]:
        return (*self.takes, *(("reason",) if self.keeps_reason else ()), "dryRun")


_ROWS: Final = (
    _Row(_WORKLOAD, "hold", "Keep a workload out of its queue; one that runs is evicted", ("evict",)),
    _Row(_WORKLOAD, "release", "Let a workload that is on hold queue again"),
    _Row(_WORKLOAD, "move", "Queue a workload that waits in another LocalQueue", ("queue",)),
    _Row(_WORKLOAD, "priority", "Change the priority class of a workload", ("priorityClass",)),
    _Row(
        _WORKLOAD,
        "fit",
        "Change the pods or GPUs of a workload that waits; it keeps its place",
        ("gpus", "pods", "podSet", "completions"),
    ),
    _Row(_WORKLOAD, "cancel", "Delete a workload and its pods", ("evict",), keeps_reason=False),
    _Row(_LOCAL_QUEUE, "stop", "Let a LocalQueue admit no more", ("drain",)),
    _Row(_LOCAL_QUEUE, "resume", "Let a stopped LocalQueue admit again"),
    _Row(_CLUSTER_QUEUE, "stop", "Let a ClusterQueue admit no more", ("drain",)),
    _Row(_CLUSTER_QUEUE, "resume", "Let a stopped ClusterQueue admit again"),
)
_KINDS: Final = {_LOCAL_QUEUE: "LocalQueue", _CLUSTER_QUEUE: "ClusterQueue"}
_FIELDS: Final[Mapping[str, str]] = {
    "evict": "`evict: true`: although it runs",
    "reason": "`reason`: one line",
    "dryRun": "`dryRun: true`: only checked",
    "drain": "`drain: true`: its admitted workloads are evicted too",
    "queue": "`queue`: the LocalQueue of its namespace",
    "priorityClass": "`priorityClass`: the WorkloadPriorityClass, null for none",
    "gpus": "`gpus`: of all pods of one podset together (`gpus`, `pods` or both are required)",
    "pods": "`pods`: their number",
    "podSet": "`podSet`: its name, if it has several",
    "completions": "`completions: true`: those of an Indexed Job become the number of its pods too",
}


class ChangeRoutes:
    def __init__(self, source: AnswerSource, changes: Changes | None) -> None:
        """`changes`: None, every change is refused."""
        self._source = source
        self._changes = changes

    def endpoints(self) -> Iterator[Endpoint]:
        for row in _ROWS:
            fields = [_FIELDS[name] for name in row.known]
            yield Endpoint(
                f"{row.path}/{row.verb}",
                row.summary,
                self._answer(row),
                Changed,
                heavy=always,
                notes=f"The body is an object with these fields: {'; '.join(fields)}.",
                body=MAX_BODY,
                changes=True,
            )

    def _answer(self, row: _Row) -> Callable[[Question], Awaitable[Changed]]:
        async def answer(question: Question) -> Changed:
            if self._changes is None:
                raise Refusal(HTTPStatus.FORBIDDEN, _OFF)
            content = await requests.one_object(question)
            wanted = await self._wanted(row, question, content)
            return await self._changed(self._changes, question, wanted)

        answer.__name__ = f"{row.verb}_{_KINDS.get(row.path, 'Workload')}"
        return answer

    async def _wanted(self, row: _Row, question: Question, content: Mapping[str, Any]) -> Wanted:
        """Raises a 400 for the body, and a 404 for what the caller may not read."""
        for field in content:
            if field not in row.known:
                raise bad_request(f"{field!r} is not known here: {', '.join(row.known)}")
        namespace, name = question.path.get("namespace", ""), question.path["name"]
        kind = _KINDS.get(row.path) or question.path["kind"]
        if not requests.is_workload_name(name) or (namespace and not requests.is_name(namespace)):
            raise not_found()
        resource = {"LocalQueue": LOCAL_QUEUES, "ClusterQueue": CLUSTER_QUEUES}.get(kind, WORKLOADS)
        named = name if resource == CLUSTER_QUEUES else ""
        if not await question.caller.may("get", resource, namespace, named):
            raise not_found()
        return Wanted(
            verb=row.verb,
            kind=kind,
            namespace=namespace,
            name=name,
            target=_target(row, content),
            size=_size(content) if row.verb == "fit" else None,
            evict=_flag(content, "evict") or _flag(content, "drain"),
            reason=_reason(content),
            dry_run=_flag(content, "dryRun"),
        )

    async def _changed(self, changes: Changes, question: Question, wanted: Wanted) -> Changed:
        try:
            made = await changes.make(wanted, question.token)
        except ChangeRefused as problem:
            _audit(question, wanted, f"refused: {problem.status} {problem}")
            status = HTTPStatus(problem.status)
            wait = 2 if status is HTTPStatus.SERVICE_UNAVAILABLE else None
            raise Refusal(status, str(problem), retry_after=wait) from None
        _audit(
            question, wanted, f"{made.field}: {made.before} -> {made.after}" if made.written else "as it was"
        )
        own = {
            "namespace": wanted.namespace or None,
            "name": wanted.name,
            "written": made.written and not wanted.dry_run,
            "dry_run": wanted.dry_run,
        }
        return Changed(**shallow(made) | own | committed(self._source.sight()))


def _audit(question: Question, wanted: Wanted, outcome: str) -> None:
    if not wanted.dry_run:
        of = "/".join(filter(None, (wanted.kind, wanted.namespace, wanted.name)))
        log.info("%s %s by %s: %s", wanted.verb, of, question.caller.name, ascii(outcome))


def _flag(content: Mapping[str, Any], field: str) -> bool:
    value = content.get(field, False)
    if not isinstance(value, bool):
        raise bad_request(f"{field} must be true or false")
    return value


def _target(row: _Row, content: Mapping[str, Any]) -> str | None:
    for field in ("queue", "priorityClass"):
        if field in row.takes:
            value = content.get(field, "")
            if (value is None and field == "priorityClass") or (
                isinstance(value, str) and requests.is_name(value)
            ):
                return value
            raise bad_request(f"{field} must be the name of an object")
    return None


def _size(content: Mapping[str, Any]) -> WantedSize:
    gpus, pods = (_number(content, field) for field in ("gpus", "pods"))
    if gpus is None and pods is None:
        raise bad_request("gpus, pods or both are required")
    pod_set = content.get("podSet")
    if pod_set is not None and not (isinstance(pod_set, str) and requests.is_name(pod_set)):
        raise bad_request("podSet must be the name of a podset")
    return WantedSize(gpus=gpus, pods=pods, pod_set=pod_set, completions=_flag(content, "completions"))


def _number(content: Mapping[str, Any], field: str) -> int | None:
    value = content.get(field)
    if value is None or (type(value) is int and 1 <= value <= MAX_COUNT):
        return value
    raise bad_request(f"{field} must be a whole number from 1 to {MAX_COUNT}, not {value!r:.40}")


def _reason(content: Mapping[str, Any]) -> str | None:
    value = content.get("reason")
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_REASON or not value.isprintable():
        raise bad_request(f"reason must be one line of 1 to {MAX_REASON} printable characters")
    return value.strip()
