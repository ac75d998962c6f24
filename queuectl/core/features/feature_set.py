"""The features of an engine, in one fixed tuple."""

from __future__ import annotations

from typing import NamedTuple

from queuectl.core.feature import Kernel
from queuectl.core.features.accounts import Accounts
from queuectl.core.features.namespace_quota.quotas import NamespaceQuotas
from queuectl.core.features.ownership import Ownership
from queuectl.core.features.pods_ready import PodsReadyClocks
from queuectl.core.features.slow_stops import SlowStops
from queuectl.core.features.usage_history import PastUsage


class FeatureSet(NamedTuple):
    """All features. The first that asks for a decision about a workload gets it."""

    ownership: Ownership
    """Charges or stops what runs without its owner's quota, and tells whose pods are whose."""
    namespace_quota: NamespaceQuotas
    """Lets a workload wait until the ResourceQuotas of its namespace have room for its pods."""
    pods_ready: PodsReadyClocks
    """Evicts workloads whose pods are not ready in time."""
    slow_stops: SlowStops
    """Waits no more for evicted workloads whose pods do not end in time, and says so."""
    usage_history: PastUsage
    """Orders LocalQueues of a ClusterQueue by what they have used."""
    accounts: Accounts
    """Reads the account keys that an admission is booked on."""


def feature_set(kernel: Kernel) -> FeatureSet:
    """Return the features of one engine."""
    configuration = kernel.directory.configuration
    return FeatureSet(
        Ownership(kernel),
        NamespaceQuotas(kernel),
        PodsReadyClocks(configuration, kernel.directory.queues),
        SlowStops(configuration.terminating_alarm),
        PastUsage(configuration.usage_sharing),
        Accounts(configuration.account_keys, kernel.directory),
    )
