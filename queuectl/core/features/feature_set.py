"""The features of an engine, in one fixed tuple."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from queuectl.core.features.pods_ready import PodsReadyClocks
from queuectl.core.features.slow_stops import SlowStops
from queuectl.core.features.usage_history import PastUsage
from queuectl.core.model.policy import ClusterQueue, SchedulingConfiguration


class FeatureSet(NamedTuple):
    """All features. The first that asks for a decision about a workload gets it."""

    pods_ready: PodsReadyClocks
    """Evicts workloads whose pods are not ready in time."""
    slow_stops: SlowStops
    """Waits no more for evicted workloads whose pods do not end in time, and says so."""
    usage_history: PastUsage
    """Orders LocalQueues of a ClusterQueue by what they have used."""


def feature_set(configuration: SchedulingConfiguration, queues: Mapping[str, ClusterQueue]) -> FeatureSet:
    """Return the features of one engine. `queues`: the ClusterQueues in force."""
    return FeatureSet(
        PodsReadyClocks(configuration, queues),
        SlowStops(configuration.terminating_alarm),
        PastUsage(configuration.usage_sharing),
    )
