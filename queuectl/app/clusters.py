"""Which of the clusters in a ledger a process is about."""

from __future__ import annotations

from collections.abc import Sequence

from queuectl.ports.ledger import is_observed
from queuectl.settings import ConfigurationError


def the_one(known: Sequence[str]) -> str:
    """The only cluster of a ledger that has some. Raises ConfigurationError if there are several."""
    # An observed cluster is served only if there is no other, never instead of a controlled one.
    found = [one for one in known if not is_observed(one)] or known
    if len(found) > 1:
        raise ConfigurationError(
            f"the ledger holds {len(found)} clusters ({', '.join(found)}): "
            "name one as api.cluster in --config"
        )
    return found[0]
