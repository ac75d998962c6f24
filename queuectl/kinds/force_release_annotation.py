"""The reserved-release annotation: an admin releases the quota of an attempt although pods of it exist (L28).

`queuectl force-release` writes it with the rights of its user. The gate lets only users write it that may
force-release workloads.queuectl.dev, and each in their own name.
"""

from __future__ import annotations

import re
from typing import Final

from queuectl.core.model.workload import ForcedRelease, WorkloadId
from queuectl.kinds.json_fields import clean

MAX_RELEASE: Final = 1_000
"""Longest annotation that is read, in characters."""
_TEXT: Final = re.compile(r"([^/]+)/([1-9][0-9]{0,8}) by (.+?): (.+)", re.DOTALL)


def render(workload: WorkloadId, release: ForcedRelease) -> str:
    """The text of the annotation: `WORKLOAD/ATTEMPT by USER: REASON`."""
    return f"{workload}/{release.attempt} by {release.by}: {release.reason}"


def parse(annotation: object, workload: WorkloadId) -> ForcedRelease | None:
    """None if it is malformed, or about another workload."""
    if not isinstance(annotation, str) or len(annotation) > MAX_RELEASE:
        return None
    found = _TEXT.fullmatch(clean(annotation, MAX_RELEASE))
    if found is None or found[1] != workload:
        return None
    return ForcedRelease(int(found[2]), found[3], found[4])
