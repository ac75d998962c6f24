"""Reasons as documents say them: our codes, and the words of Kueue's scheduler that mean one of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queuectl.core.reasons import Code

WORDS: Final[Mapping[str, frozenset[Code]]] = {code.value: frozenset({code}) for code in Code} | {
    # Whatever keeps a workload from being looked at.
    "Misconfigured": frozenset(
        {
            Code.MISCONFIGURED,
            Code.NAMESPACE_NOT_ALLOWED,
            Code.QUEUE_NOT_FOUND,
            Code.NEGATIVE_REQUEST,
        }
    ),
    "NoMatchingFlavor": frozenset({Code.NO_MATCHING_FLAVOR, Code.RESOURCE_NOT_COVERED}),
    # One that can't even be counted is more than any quota too.
    "ExceedsMaxQuota": frozenset({Code.EXCEEDS_MAX_QUOTA, Code.QUANTITY_OUT_OF_RANGE}),
}
"""The codes that each word stands for."""
