"""The schemas of answers about preemptions (docs/answers.md)."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from queuectl.api.schemas import Committed, Document
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.reasons import PreemptionCause


class ShareMove(Document):
    """Dominant share of a node in thousandths; null: infinite."""

    node: str | None = Field(
        description="Such as ClusterQueue/team-a; null where the caller may not read it."
    )
    before: int | None = Field(description="Without the preemptor, and with its victims.")
    after: int | None = Field(description="With the preemptor, and without its victims.")


class Shares(Document):
    """The two sides that fair sharing compares: the children of the nearest common cohort (P8)."""

    preemptor: ShareMove
    victim: ShareMove


class Preemption(Document):
    """A workload that was evicted for another one."""

    sequence: int = Field(description="Of the decision.")
    time: datetime
    namespace: str
    kind: str
    name: str
    uid: str
    attempt: int | None
    cluster_queue: str | None = Field(description="Whose quota it held.")
    cause: PreemptionCause | None = Field(description="The rule (P2 to P9).")
    by: str | None = Field(
        description="The preemptor as namespace/kind/name; null where the caller may not read it."
    )
    shares: Shares | None = Field(
        description="Null in one queue, without fair sharing, and for older decisions."
    )
    ran_seconds: int | None = Field(
        description="From its admission to its eviction: this work is lost, unless it was saved."
    )
    lost: dict[str, int] = Field(description="By resource: base units times seconds, such as GPU-seconds.")


class Threat(Document):
    """Pending workloads of ClusterQueues that may preempt a workload by one rule."""

    cluster_queue: str | None = Field(description="Null for all together that the caller may not read.")
    cause: PreemptionCause
    policy: PreemptionPolicy | None = Field(description="Of that queue; null where that is null.")
    pending: int = Field(description="How many wait now that the rule allows to preempt it.")
    protected_until: datetime | None = Field(description="End of its minimum run time against this rule.")


class Exposure(Committed):
    """Whether a running workload may be preempted now. It may be: sizes and order decide the rest."""

    namespace: str
    kind: str
    name: str
    uid: str
    exposed: bool = Field(description="Some workload waits that may preempt it now.")
    threats: tuple[Threat, ...] = Field(description="Empty: no queue may preempt it, or it does not run.")
