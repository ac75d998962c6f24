"""Injected faults: requests refused, delayed or answered too late; watches dropped or silenced."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from queuectl.sandbox.kubernetes.store import Store, Subscription
from queuectl.sandbox.kubernetes.wire import ApiError


class Action(StrEnum):
    REFUSE = "refuse"
    """Answer `code` without doing the request."""
    DELAY = "delay"
    """Wait `seconds` before the request."""
    LOSE_ANSWER = "lose answer"
    """Do the request, wait `seconds`, then answer 504."""
    DROP_WATCH = "drop watch"
    """End a watch `seconds` after its start."""
    SILENCE_WATCH = "silence watch"
    """Start a watch and send nothing."""


@dataclass(slots=True)
class Fault:
    """A fault for the next `count` matching requests (None: all); empty fields match everything."""

    action: Action
    verb: str = ""
    """get list watch create update patch delete."""
    resource: str = ""
    """Plural, or plural/subresource."""
    user: str = ""
    name: str = ""
    count: int | None = 1
    code: int = 500
    retry_after: int = 0
    """Seconds, for 429 and 503."""
    seconds: float = 0.0

    def matches(self, verb: str, resource: str, user: str, name: str) -> bool:
        pairs = ((self.verb, verb), (self.resource, resource), (self.user, user), (self.name, name))
        return self.count != 0 and all(not wanted or wanted == found for wanted, found in pairs)


@dataclass(slots=True)
class Faults:
    """Pending faults. `add` them at any time; the oldest that matches is used."""

    waiting: list[Fault] = field(default_factory=list)
    served: int = 0
    """Number of requests with a fault."""

    def add(self, fault: Fault) -> None:
        self.waiting.append(fault)

    def take(self, verb: str, resource: str, user: str, name: str) -> Fault | None:
        fault = next((f for f in self.waiting if f.matches(verb, resource, user, name)), None)
        if fault is not None:
            self.served += 1
            if fault.count is not None:
                fault.count -= 1
        return fault


async def before(fault: Fault) -> None:
    """Apply a fault before the request. Raises ApiError."""
    if fault.action is Action.DELAY:
        await asyncio.sleep(fault.seconds)
    elif fault.action is Action.REFUSE:
        message = f"injected fault: {fault.code} for {fault.verb or 'any verb'} {fault.resource}"
        raise ApiError(fault.code, message, retry_after=fault.retry_after)


async def after(fault: Fault) -> None:
    """Apply a fault after the request is done. Raises ApiError."""
    if fault.action is Action.LOSE_ANSWER:
        await asyncio.sleep(fault.seconds)
        raise ApiError(504, "Timeout: request did not complete within the time it had")


def watched(fault: Fault, subscription: Subscription) -> None:
    """Apply a fault to a new watch."""
    if fault.action is Action.SILENCE_WATCH:
        subscription.silent = True
    elif fault.action is Action.DROP_WATCH:
        asyncio.get_running_loop().call_later(fault.seconds, subscription.close)


def drop_watches(store: Store, collection: str) -> None:
    """End the open watches of a collection."""
    store.close_watches(collection)


def expire_watches(store: Store, collection: str) -> None:
    """End them with an ERROR event 410, and drop the changes from which a new one could resume."""
    store.forget()
    store.close_watches(collection, ApiError(410, "The resourceVersion for the provided watch is too old."))


def silence_watches(store: Store, collection: str) -> None:
    """Keep them open and send nothing more."""
    for subscription in store.watches(collection):
        subscription.silent = True
