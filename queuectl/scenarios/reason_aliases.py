"""Reasons in documents: our codes, and the words of Kueue's scheduler, each for one of several codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queuectl.core.reasons import Code

WORDS: Final[Mapping[str, frozenset[Code]]] = {code.value: frozenset({code}) for code in Code} | {
    # All reasons for which a workload is not evaluated.
    "Misconfigured": frozenset(
        {
            Code.MISCONFIGURED,
            Code.NAMESPACE_NOT_ALLOWED,
            Code.QUEUE_NOT_FOUND,
            Code.NEGATIVE_REQUEST,
        }
    ),
    "NoMatchingFlavor": frozenset({Code.NO_MATCHING_FLAVOR, Code.RESOURCE_NOT_COVERED}),
    # A quantity out of range exceeds any quota too.
    "ExceedsMaxQuota": frozenset({Code.EXCEEDS_MAX_QUOTA, Code.QUANTITY_OUT_OF_RANGE}),
}
"""The codes of each word."""
