"""The schemas of answers from history (docs/answers.md)."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from queuectl.answers.waits import Cause
from queuectl.api.schemas import AMOUNT, Committed, Document
from queuectl.core.model import Phase
from queuectl.core.reasons import Code, Limit


class WaitPart(Document):
    """A part of a wait: all times with the same cause."""

    cause: Cause
    text: str = Field(description="The cause in words.")
    seconds: int
    code: Code | None = Field(description="The reason that the workload had.")
    flavor: str | None
    resource: str | None
    limit: Limit | None
    node: str | None = Field(description="The object that bound, such as ClusterQueue/team-a.")
    ahead: int | None = Field(
        description="With cause `Line`: workloads of its ClusterQueue that started in that time, at most "
        "10,000 counted each time."
    )


class Waited(Committed):
    """Where the wait of a workload went. Seconds are whole, and add up exactly."""

    namespace: str
    kind: str
    name: str
    uid: str
    queue: str
    cluster_queue: str | None
    phase: Phase
    attempts: int = Field(description="Admissions so far.")
    since: datetime = Field(description="Its creation.")
    until: datetime = Field(description="Its end; of a workload that is not over: now.")
    waited_seconds: int = Field(description="The sum of `parts`.")
    ran_seconds: int = Field(description="From each admission to its eviction or end.")
    evicting_seconds: int = Field(description="From each eviction until its pods were gone.")
    parts: tuple[WaitPart, ...] = Field(description="The longest first.")


class Loan(Document):
    """Quota of one node that another one uses beyond its own."""

    node: str | None = Field(
        description="Such as ClusterQueue/team-b, or Cohort/all for the quota of the cohort itself; null for "
        "all ClusterQueues and Cohorts together that the caller may not read."
    )
    amount: float = Field(description="In the unit of the account that it is in.")


class QuotaAccount(Document):
    """One cell of a ClusterQueue: guaranteed = used - borrowed + lent + idle."""

    flavor: str
    resource: str
    guaranteed: float = Field(description="Nominal quota.")
    used: float = Field(description="Held by workloads that are admitted or being evicted.")
    borrowed: float = Field(description="Used beyond the nominal quota.")
    beyond: float = Field(description="The part of `borrowed` that no node had to lend.")
    lent: float = Field(description="Nominal quota that others use.")
    idle: float = Field(description="Nominal quota that is neither used nor lent.")
    borrowed_from: tuple[Loan, ...] = Field(description="By node, the largest first.")
    lent_to: tuple[Loan, ...] = Field(description="By node, the largest first.")


class QuotaNow(QuotaAccount):
    fair: int | None = Field(
        description=f"What the queue would use if its cohort divided what it can lend by weight among those "
        f"that borrow or wait. Null without fair sharing. {AMOUNT}"
    )


class PastAccount(QuotaAccount):
    lost: float = Field(
        description="Used by attempts that were preempted in this time, from their admission on; part of "
        "`used` as far as that was in this time."
    )


class Step(Document):
    """One of the equal parts of a statement's time, in its units."""

    since: datetime
    until: datetime
    accounts: tuple[QuotaAccount, ...] = Field(description="By flavor and resource.")


class Statement(Document):
    """Accounts over a time, in base units times hours: GPU-hours, milli-cpu-hours, byte-hours."""

    since: datetime = Field(description="As asked, or the time of the oldest decision that the ledger has.")
    until: datetime
    accounts: tuple[PastAccount, ...] = Field(description="By flavor and resource.")
    steps: tuple[Step, ...] = Field(description="With parameter `steps`; else empty.")


class QueueShare(Committed):
    """What a ClusterQueue may use, uses, borrows and lends, now and over a time."""

    name: str
    cohort: str | None
    fair_sharing: bool = Field(description="Whether its cohort tree shares fairly (S1).")
    weight: int = Field(description="Fair-sharing weight in thousandths.")
    share: int | None = Field(
        description="Dominant share in thousandths (S2, S3); null without fair sharing, and if infinite."
    )
    dominant_resource: str | None = Field(description="The resource that gives the share; null with share 0.")
    pending: int
    accounts: tuple[QuotaNow, ...] = Field(description=f"Now, by flavor and resource. {AMOUNT}")
    statement: Statement | None = Field(description="With parameter `since`; else null.")


class MemberAccount(QuotaAccount):
    cluster_queue: str


class MemberPast(PastAccount):
    cluster_queue: str


class MemberStep(Document):
    """One of the equal parts of a statement's time, in its units."""

    since: datetime
    until: datetime
    accounts: tuple[MemberAccount, ...] = Field(description="By ClusterQueue, flavor and resource.")


class CohortStatement(Document):
    """Accounts over a time, in base units times hours. A ClusterQueue counts while it was in the cohort."""

    since: datetime = Field(description="As asked, or the time of the oldest decision that the ledger has.")
    until: datetime
    accounts: tuple[MemberPast, ...] = Field(description="By ClusterQueue, flavor and resource.")
    steps: tuple[MemberStep, ...] = Field(description="With parameter `steps`; else empty.")


class CohortShare(Committed):
    """What each ClusterQueue at or below a cohort uses, borrows from which nodes, and lends to which.

    Those that the caller may read.
    """

    name: str
    accounts: tuple[MemberAccount, ...] = Field(
        description=f"Now, by ClusterQueue, flavor and resource. {AMOUNT}"
    )
    statement: CohortStatement | None = Field(description="With parameter `since`; else null.")
