"""The schemas of changes that callers make."""

from __future__ import annotations

from pydantic import Field

from queuectl.api.schemas import Committed, Document


class ChangedField(Document):
    """One field of a Kubernetes object."""

    field: str = Field(description="Such as `spec.parallelism`.")
    before: str | None
    after: str


class Changed(Committed):
    """One field of a Kubernetes object, as the API server has it after the change."""

    kind: str
    namespace: str | None = Field(description="Null for a ClusterQueue.")
    name: str
    field: str = Field(
        description="Such as `spec.stopPolicy`; of a fit `podset NAME`: its size before and after, in words; "
        "of a deletion `object`."
    )
    before: str | None
    after: str | None
    written: bool = Field(description="False: it was so already. With `dryRun` nothing is written ever.")
    meaning: str = Field(description="What follows from it, in words.")
    loss: str | None = Field(
        description="What a hold or a deletion ends; without `evict: true` it is refused then."
    )
    reason: str | None = Field(description="As the object keeps it, with its author.")
    dry_run: bool
    fields: tuple[ChangedField, ...] = Field(description="Of a fit: all fields that it changes. Else empty.")
