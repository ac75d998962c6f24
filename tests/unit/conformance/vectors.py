"""The decision vectors of `data/`, as documents for the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "data"
DELIBERATE: Final = {
    "0010-where-decisions-differ-from-kueue.md": (
        "schedule-admission-fair-sharing-03",
        "schedule-admission-fair-sharing-04",
    ),
}
"""Deliberate differences: the page in docs/decisions/ with the reason, and its vectors."""
OTHERWISE: Final = frozenset(vector for found in DELIBERATE.values() for vector in found)


def vectors() -> list[dict[str, Any]]:
    """All vectors, unchanged."""
    return [document for path in sorted(FOLDER.glob("*.json")) for document in json.loads(path.read_bytes())]
