"""Validation of policy objects for the small API: a real API server evaluates the CRDs' rules instead."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.core.events import PolicyInvalid
from queuectl.kinds.policy import POLICY_KINDS, policy_event
from queuectl.sandbox.kubernetes.wire import Cause, Json


def problems_of_policy(thing: Json) -> Iterator[Cause]:
    """No problems for other kinds than ours."""
    kind = thing.get("kind")
    if kind not in POLICY_KINDS or not str(thing.get("apiVersion", "")).startswith("queuectl.dev/"):
        return
    event = policy_event(thing)
    if isinstance(event, PolicyInvalid):
        field, _, problem = event.detail.partition(": ")
        yield Cause(field, f"Invalid value: {problem or event.detail}")
