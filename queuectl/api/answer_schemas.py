"""The schemas of answers from history (docs/answers.md)."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from queuectl.api.schemas import Committed, Document
from queuectl.api.waits import Cause
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
