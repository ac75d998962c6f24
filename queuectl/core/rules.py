"""What an admin may write into a queue or a cohort about whom to take quota from, and who comes first."""

from __future__ import annotations

from enum import StrEnum

from queuectl.core.reasons import PreemptionCause
from queuectl.core.values import value


class Within(StrEnum):
    """Whom a workload may take quota from: inside its own queue, or in others that borrow."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"  # own queue only
    ANY = "Any"  # other queues only


@value(frozen=True, slots=True)
class Borrowing:
    """Preempt in other queues even though it borrows afterwards: victims of lower priority only."""

    most_priority: int | None = None
    """Only victims of at most this priority."""


@value(frozen=True, slots=True)
class MinRunTime:
    """Seconds that a workload of this queue runs at least before it may be preempted, by cause (P10)."""

    in_cluster_queue: int = 0
    in_cohort_reclamation: int = 0
    in_cohort_fair_sharing: int = 0
    in_cohort_reclaim_while_borrowing: int = 0

    def seconds(self, cause: PreemptionCause) -> int:
        match cause:
            case PreemptionCause.IN_CLUSTER_QUEUE:
                return self.in_cluster_queue
            case PreemptionCause.IN_COHORT_RECLAMATION:
                return self.in_cohort_reclamation
            case PreemptionCause.IN_COHORT_FAIR_SHARING:
                return self.in_cohort_fair_sharing
            case PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING:
                return self.in_cohort_reclaim_while_borrowing


@value(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Of a ClusterQueue: whom its workloads may take quota from, and how long its own are protected."""

    within_cluster_queue: Within = Within.NEVER
    reclaim_within_cohort: Within = Within.NEVER
    borrow_within_cohort: Borrowing | None = None
    """None: never. No part in trees that share fairly."""
    min_run_time: MinRunTime = MinRunTime()

    @property
    def any(self) -> bool:
        """May it preempt at all?"""
        return not (self.within_cluster_queue is self.reclaim_within_cohort is Within.NEVER)


@value(frozen=True, slots=True, kw_only=True)
class Fungibility:
    """Whether to settle for a flavor that needs borrowing or preemption, or to look at the next one (F6)."""

    try_next_before_borrowing: bool = False
    try_next_before_preempting: bool = True
    preemption_over_borrowing: bool = False
    """Which of the two is preferred where both are possible."""


class Strategy(StrEnum):
    """When a fair share lets one workload take another's place (P8)."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


STRATEGIES = (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE)


@value(frozen=True, slots=True, kw_only=True)
class TreeSharing:
    """Of a root cohort: whether its tree shares fairly, and how. None: as the component's settings say."""

    enabled: bool | None = None
    strategies: tuple[Strategy, ...] | None = None


HALF_LIVES = 20
"""How far back past usage counts (U3)."""


@value(frozen=True, slots=True, kw_only=True)
class UsageSharing:
    """Admission fair sharing: LocalQueues of one ClusterQueue take turns by decayed past usage (U1 to U5)."""

    half_life: int
    """Seconds; 0: the past does not count."""
    sampling_interval: int = 300
    """Seconds that an admission counts for at least."""
    weights: tuple[tuple[str, int], ...] = ()
    """Of a unit of a resource, in thousandths; 1000 for those not named."""


@value(frozen=True, slots=True, kw_only=True)
class Requeueing:
    """How long an evicted workload stays out of its line, by cause (L18)."""

    base_seconds: int = 60
    most_seconds: int = 3600
    limit: int | None = None
    """Evictions after which it is deactivated; None: never."""
    loses_place: bool = True
    """It comes back as if created when its pause ends; else with its old place in time (O6)."""


@value(frozen=True, slots=True, kw_only=True)
class Settings:
    """The component's own configuration, as far as it decides (section `scheduling`)."""

    fair_sharing: bool = False
    """For trees whose root does not say."""
    strategies: tuple[Strategy, ...] = STRATEGIES
    usage_sharing: UsageSharing | None = None
    pods_ready_timeout: int | None = None
    """Seconds from its start after which a workload is evicted if its pods are not all ready; None: never."""
    requeueing: Requeueing = Requeueing()
    eviction_budget: int = 8
    """Preemptions of one workload within `eviction_window`, after which it is left alone as long (P11)."""
    eviction_window: int = 3600
    """Seconds."""
    cooldown: int = 10
    """Seconds after its start in which a workload that was preempted before is not preempted again (P11)."""


NO_PREEMPTION = Preemption()
SETTLES_BY_BORROWING = Fungibility()
AS_SETTINGS_SAY = TreeSharing()
