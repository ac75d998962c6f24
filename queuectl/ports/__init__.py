"""Interfaces between a driver, the ledger, the cluster, and readers of the ledger; the errors they raise."""

from typing import Final

SILENT_SECONDS: Final = 30.0
"""After so long without a commit, readers are told that no controller leads. A leader commits every 10 s."""
