"""JSON patches, applied to objects without a server."""

from __future__ import annotations

import json
from typing import Any


def applied(obj: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """`obj` after a JSON patch. As for an API server, an absent field equals null."""
    obj = json.loads(json.dumps(obj))
    for step in patch:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        holder: Any = obj
        for part in parents:
            holder = holder[int(part) if isinstance(holder, list) else part]
        if step["op"] == "test":
            assert holder.get(last) == step["value"], step["path"]
        elif step["op"] == "remove":
            del holder[last]
        else:
            holder[last] = step["value"]
    return obj
