"""The decision vectors of `data/`, and what in them is not in documents of `queuectl test`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from queuectl.core.model.reasons import Code
from queuectl.scenarios.findings import Difference

FOLDER: Final = Path(__file__).parent / "data"
DELIBERATE: Final = {
    "0010-where-decisions-differ-from-kueue.md": (
        "schedule-admission-fair-sharing-03",
        "schedule-admission-fair-sharing-04",
    ),
}
"""Deliberate differences: the page in docs/decisions/ with the reason, and its vectors."""
WORDS: Final = {
    # All reasons for which a workload is not evaluated.
    "Misconfigured": {Code.NAMESPACE_NOT_ALLOWED, Code.QUEUE_NOT_FOUND, Code.NEGATIVE_REQUEST},
    "NoMatchingFlavor": {Code.RESOURCE_NOT_COVERED},
    # A quantity out of range exceeds any quota too.
    "ExceedsMaxQuota": {Code.QUANTITY_OUT_OF_RANGE},
}
"""Reasons of the reference, with our codes for them beside the one of that name."""
_ABOUT: Final = ("asserted", "derivedFrom", "samePreemptionsAsSource", "tier")
"""Fields that say where a vector is from."""
_NOT_HERE: Final = ("featureGates", "localQueueDeletedBeforeRun")
"""Fields of `config`. No workload is admitted through a LocalQueue that is gone."""
OTHERWISE: Final = frozenset(vector for found in DELIBERATE.values() for vector in found)


def vectors() -> list[dict[str, Any]]:
    """All vectors, unchanged."""
    return [document for path in sorted(FOLDER.glob("*.json")) for document in json.loads(path.read_bytes())]


def document(vector: Mapping[str, Any]) -> dict[str, Any]:
    """The vector as a document of `queuectl test`: without feature gates, events and its source."""
    expects = ("expect", "steps")
    found = {key: value for key, value in vector.items() if key not in (*_ABOUT, *expects)}
    found["config"] = {key: value for key, value in vector.get("config", {}).items() if key not in _NOT_HERE}
    if "expect" in vector:
        found["expect"] = _without_events(vector["expect"])
    if "steps" in vector:
        found["steps"] = [
            step | ({"expect": _without_events(step["expect"])} if "expect" in step else {})
            for step in vector["steps"]
        ]
    return found


def _without_events(expect: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in expect.items() if key != "events"}


def means_the_same(difference: Difference) -> bool:
    """Whether the observed reason is one of those that the reference's word stands for."""
    return difference.observed in WORDS.get(difference.expected or "", ())
