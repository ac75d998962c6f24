"""What the CRDs' rules in CEL and the policy on quantities refuse, asked of the models they are made from."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.core.events import PolicyInvalid
from queuectl.kinds.policy import POLICY_KINDS, policy_event
from queuectl.kinds.policy_objects import GROUP
from queuectl.sandbox.kubernetes.wire import Cause, Json


def policy_problems(obj: Json) -> Iterator[Cause]:
    """The first thing wrong with one of our own kinds, with its field."""
    if not obj["apiVersion"].startswith(f"{GROUP}/") or obj["kind"] not in POLICY_KINDS:
        return
    found = policy_event(obj)
    if isinstance(found, PolicyInvalid):
        field, _, message = found.detail.partition(": ")
        yield Cause(field, f"Invalid value: {message}")
