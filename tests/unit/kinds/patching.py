"""Applies JSON patches of kinds/patches as an API server does."""

from __future__ import annotations

from typing import Any

import jsonpatch


def applied(obj: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """The object after the patch."""
    found: dict[str, Any] = jsonpatch.apply_patch(obj, patch)
    return found
