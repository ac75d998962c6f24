"""The decision vectors beside the checkout, as documents for the simulator."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.conftest import shared

FOLDER: Final = shared() / "conformance"
MISSING: Final = f"the decision vectors are not there: QUEUECTL_SHARED names no folder with {FOLDER.name}"
DELIBERATE: Final = {
    "0009-no-way-through-a-queue-that-is-gone.md": (
        "schedule-admission-fair-sharing-03",
        "schedule-admission-fair-sharing-04",
    ),
}
"""Deliberate differences: the page in docs/decisions/ with the reason, and its vectors."""
OTHERWISE: Final = frozenset(vector for found in DELIBERATE.values() for vector in found)


def vectors() -> list[dict[str, Any]]:
    """All vectors, unchanged; none if the folder is missing."""
    return [document for path in sorted(FOLDER.glob("*.json")) for document in json.loads(path.read_bytes())]
