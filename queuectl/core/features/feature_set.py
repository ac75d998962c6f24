"""The features of an engine, in one fixed tuple."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from queuectl.core.directory import Directory
from queuectl.core.feature import Features
from queuectl.core.features.accounts import Accounts
from queuectl.core.features.budgets import Budgets
from queuectl.core.features.devices import Devices
from queuectl.core.features.idle_devices import IdleDevices
from queuectl.core.features.namespace_quota import NamespaceLimits
from queuectl.core.features.nodes import Nodes
from queuectl.core.features.ownership import Ownership
from queuectl.core.features.pods_ready import PodsReadyClocks
from queuectl.core.features.run_time import RunTime
from queuectl.core.features.slow_stops import SlowStops
from queuectl.core.features.start_conditions import ConditionalStarts
from queuectl.core.features.usage_history import PastUsage
from queuectl.core.features.usage_limits import UsageLimits
from queuectl.core.model.events import ContextObserved
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.observed_events import fold
from queuectl.core.state import EngineState


class FeatureSet(NamedTuple):
    """All features. The first that asks for a decision about a workload gets it."""

    ownership: Ownership
    """Charges or stops what runs without its owner's quota, and tells whose pods are whose."""
    devices: Devices
    """Charges the claims of pods for devices, and counts devices on nodes."""
    nodes: Nodes
    """Limits pods by the room on nodes, and evicts workloads that lose pods with a node."""
    start_conditions: ConditionalStarts
    """Lets workloads wait for others, for a time, or for their array, as their users say."""
    namespace_quota: NamespaceLimits
    """Adds what LimitRanges do to pods, and lets workloads wait until ResourceQuotas have room for theirs."""
    run_time: RunTime
    """Evicts workloads that have run for as long as they may."""
    pods_ready: PodsReadyClocks
    """Evicts workloads whose pods are not ready in time."""
    slow_stops: SlowStops
    """Waits no more for evicted workloads whose pods do not end in time, and says so."""
    usage_history: PastUsage
    """Orders LocalQueues of a ClusterQueue by what they have used."""
    accounts: Accounts
    """Reads the account keys that an admission is booked on."""
    usage_limits: UsageLimits
    """Lets workloads wait while their user or account, or all, use as much as a UsageLimit allows."""
    budgets: Budgets
    """Lets workloads wait while their Budget has too little left, and books what admissions use of it."""
    idle_devices: IdleDevices
    """Records what admitted workloads do with their devices, tells their users, and holds what is idle."""


def new_state(
    sources: frozenset[str], configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION
) -> tuple[EngineState, FeatureSet]:
    """Return the empty state of an engine, and its features. Pods and nodes go through those that add to
    them: owners, then devices."""
    state = EngineState(sources, Directory(configuration))
    nodes = Nodes(state)
    devices = Devices(state, nodes)
    features = FeatureSet(
        Ownership(state, devices),
        devices,
        nodes,
        ConditionalStarts(state),
        NamespaceLimits(state),
        RunTime(state),
        PodsReadyClocks(configuration, state.directory.queues),
        SlowStops(configuration.terminating_alarm, nodes),
        PastUsage(configuration.usage_sharing),
        Accounts(configuration.account_keys, state.directory),
        UsageLimits(state),
        Budgets(state),
        IdleDevices(state),
    )
    state.features = Features(features, state.limits, state.directory.pods)
    return state, features


def kernel_with(
    context: Iterable[ContextObserved], configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION
) -> tuple[Directory, FeatureSet]:
    """Return the directory of an engine that has observed this context, which says what it charges
    workloads, and its features."""
    state, features = new_state(frozenset(), configuration)
    fold(state, context)
    return state.directory, features
