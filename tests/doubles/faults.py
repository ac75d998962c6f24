"""Faults of the small API: requests that are refused, and answers that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from unittest.mock import patch

from queuectl.sandbox.kubernetes.handler import RequestHandler
from queuectl.sandbox.kubernetes.store import ObjectStore
from queuectl.sandbox.kubernetes.wire import Request, ServerResponse, StatusError


class Action(StrEnum):
    REFUSE = "refuse"
    """Answer `code` without doing the request."""
    LOSE_ANSWER = "lose answer"
    """Do the request, then answer 504."""


@dataclass(slots=True)
class Fault:
    """A fault for the next `count` matching requests (None: all); empty fields match everything."""

    action: Action
    verb: str = ""
    """list or watch of a collection, else the method in lower case."""
    resource: str = ""
    """Plural."""
    name: str = ""
    count: int | None = 1
    code: int = 500
    retry_after: int = 0
    """Seconds, for 429 and 503."""

    def matches(self, request: Request) -> bool:
        steps = request.path.strip("/").split("/")
        steps = steps[2 if steps[0] == "api" else 3 :]
        if steps[:1] == ["namespaces"] and len(steps) > 2:
            steps = steps[2:]
        resource, name = [*steps, "", ""][:2]
        verb = request.method.lower()
        if verb == "get" and not name:
            verb = "watch" if request.query.get("watch") else "list"
        pairs = ((self.verb, verb), (self.resource, resource), (self.name, name))
        return self.count != 0 and all(wanted in ("", value) for wanted, value in pairs)


@dataclass(slots=True)
class Faults:
    """Pending faults. `add` them at any time; the oldest that matches is used."""

    pending: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        self.pending.append(fault)

    def take(self, request: Request) -> Fault | None:
        fault = next((fault for fault in self.pending if fault.matches(request)), None)
        if fault is not None and fault.count is not None:
            fault.count -= 1
        return fault


@contextmanager
def injected(api: RequestHandler) -> Iterator[Faults]:
    """Faults of `api` in this context."""
    faults, handle = Faults(), api.handle

    async def faulty(request: Request) -> ServerResponse:
        fault = faults.take(request)
        if fault is not None and fault.action is Action.REFUSE:
            return StatusError(fault.code, "injected fault", retry_after=fault.retry_after).response()
        response = await handle(request)
        if fault is not None:
            return StatusError(504, "Timeout: request did not complete within the time it had").response()
        return response

    with patch.object(api, "handle", faulty):
        yield faults


def expire_watches(store: ObjectStore, collection: str) -> None:
    """End the watches of a collection with an ERROR event 410, and drop the changes to resume from."""
    store.forget()
    store.close_watches(
        collection, StatusError(410, "The resourceVersion for the provided watch is too old.")
    )
