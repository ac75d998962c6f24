"""How long a workload may run: by its label, and by the queues that it is in (L13, G12)."""

from __future__ import annotations

from typing import NamedTuple

from queuectl.core.model.policy import ClusterQueue, LocalQueue
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Workload

MAX_RUN = "queuectl.dev/max-exec-time-seconds"
"""Label with the longest run time in seconds, set by users."""
_DEFAULT, _CEILING = "spec.maxExecutionTime.default", "spec.maxExecutionTime.ceiling"


class RunLimit(NamedTuple):
    """The longest run time of a workload, over all its attempts."""

    seconds: int
    source: str
    """What sets it: the label, or a field of a queue."""

    @property
    def is_label(self) -> bool:
        return self.source == f"label {MAX_RUN}"


def run_limit(workload: Workload, local: LocalQueue | None, queue: ClusterQueue | None) -> RunLimit | None:
    """Return the limit: the label, else the nearest default, and at most each ceiling; None: no limit."""
    limits = [*_asked(workload, local, queue), *_ceilings(local, queue)]
    return min(limits, key=lambda limit: limit.seconds, default=None)


def above_ceiling(workload: Workload, local: LocalQueue, queue: ClusterQueue) -> Reason | None:
    """Return the reason of a workload whose label asks for more than its queues allow (G12)."""
    wanted = workload.max_run_seconds
    if wanted is None:
        return None
    least = min(_ceilings(local, queue), key=lambda limit: limit.seconds, default=None)
    if least is None or wanted <= least.seconds:
        return None
    node = least.source.partition(" of ")[2]
    detail = f"label {MAX_RUN}: {wanted} is more than the {least.seconds} of its {_CEILING}"
    return Reason(code=Code.MISCONFIGURED, node=node, detail=detail)


def _asked(workload: Workload, local: LocalQueue | None, queue: ClusterQueue | None) -> list[RunLimit]:
    if workload.max_run_seconds is not None:
        return [RunLimit(workload.max_run_seconds, f"label {MAX_RUN}")]
    for one in (local, queue):
        if one is not None and one.max_execution_time.default is not None:
            return [RunLimit(one.max_execution_time.default, f"{_DEFAULT} of {_named(one)}")]
    return []


def _ceilings(local: LocalQueue | None, queue: ClusterQueue | None) -> list[RunLimit]:
    return [
        RunLimit(one.max_execution_time.ceiling, f"{_CEILING} of {_named(one)}")
        for one in (local, queue)
        if one is not None and one.max_execution_time.ceiling is not None
    ]


def _named(queue: LocalQueue | ClusterQueue) -> str:
    return f"{type(queue).__name__}/{queue.name}"
