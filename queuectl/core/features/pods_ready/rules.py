"""When the pods of a workload must be ready, by its ClusterQueue and the configuration (L14, L24 to L26)."""

from __future__ import annotations

from queuectl.core.model.policy import ClusterQueue, RequeuingStrategy, SchedulingConfiguration
from queuectl.core.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class ReadinessRules:
    """The clocks of one workload, in seconds; None: no limit. `source` sets those of the queue."""

    whole: int | None = None
    """From its start until all its pods are ready (L14). The configuration alone sets it."""
    scheduling: int | None = None
    startup: int | None = None
    recovery: int | None = None
    requeueing: RequeuingStrategy = RequeuingStrategy()
    source: str = ""

    @property
    def counts_bound(self) -> bool:
        """Whether it matters when all its pods are bound to nodes."""
        return self.scheduling is not None or self.startup is not None

    @property
    def any(self) -> bool:
        """Whether it matters when all its pods are ready."""
        return self.counts_bound or self.recovery is not None or self.whole is not None


def readiness_rules(configuration: SchedulingConfiguration, queue: ClusterQueue | None) -> ReadinessRules:
    """Return the rules for workloads of `queue`: its own clocks in place of the configuration's."""
    common = configuration.requeueing
    own = queue.wait_for_pods_ready if queue is not None else None
    if queue is None or own is None:
        return ReadinessRules(whole=configuration.pods_ready_timeout, requeueing=common)
    base = common.base_seconds if own.base_seconds is None else own.base_seconds
    most = max(common.most_seconds, base) if own.most_seconds is None else own.most_seconds
    return ReadinessRules(
        scheduling=own.scheduling,
        startup=own.startup,
        recovery=own.recovery,
        requeueing=RequeuingStrategy(
            base_seconds=base,
            most_seconds=most,
            limit=common.limit if own.limit is None else own.limit,
            loses_place=False,
            jitter_percent=own.jitter_percent,
        ),
        source=f"ClusterQueue/{queue.name}",
    )
