"""JSON patches, applied to objects without a server."""

from __future__ import annotations

from typing import Any

import jsonpatch
from jsonpointer import JsonPointer

from queuectl.core.model.workload import Effect
from queuectl.kinds import patches
from queuectl.kinds.jobs import JobKind


def applied(obj: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """`obj` after a JSON patch. As for an API server, an absent field equals null."""
    for step in patch:
        if step["op"] == "test":
            assert JsonPointer(step["path"]).get(obj, None) == step["value"], step["path"]
        else:
            obj = jsonpatch.apply_patch(obj, [step])
    return obj


def with_its_stop(kind: JobKind, effect: Effect, obj: dict[str, Any]) -> dict[str, Any]:
    """`obj`, which is suspended, with the record of the stop."""
    write = patches.next_stop(kind, effect, obj)
    assert write is not None
    assert write.subresource == ""
    assert not any("spec" in step["path"] for step in write.body)
    return applied(obj, write.body)
