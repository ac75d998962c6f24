"""Number and size of the pods of a workload that waits, changed with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from queuectl.changes.edit import WorkloadTarget, must_queue_itself, notes_beside_hold, part, uid
from queuectl.core.model.workload import PodSet
from queuectl.kinds.json_fields import Json
from queuectl.kinds.pod_sizes import Fitted, Size, fitted
from queuectl.kinds.workloads import REASON_ANNOTATION
from queuectl.kube.errors import Conflict, Invalid
from queuectl.kube.session import MERGE_PATCH, Session

TRIES: Final = 3
"""Its status may change between the read and the write."""


class NotPermitted(Exception):
    """The API server refuses the fields. The message is its own."""


@dataclass(frozen=True, slots=True)
class WantedFit:
    """A change of size, as the user asks for it."""

    size: Callable[[Sequence[PodSet]], Size]
    """Of one podset of the workload. Raises CannotFit."""
    completions: bool = False
    dry_run: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FitChange:
    """A change of size."""

    found: Fitted
    written: bool
    reason: str | None = None
    """The reason that was written with it, with its author."""


async def fit(
    session: Session, target: WorkloadTarget, wanted: WantedFit, allowed: Callable[[Json], None]
) -> FitChange:
    """Change the size of a workload that waits. One patch, or none if nothing changes.

    `allowed` gets the object before it is changed, and raises if it must not be. The patch holds for exactly
    this object: it does not reach one that was started since. Raises ApiError, NotQueued, CannotFit, and
    NotPermitted.
    """
    for tries_left in reversed(range(TRIES)):
        now = await session.get(target.path)
        must_queue_itself(now, target, "another size would have no effect")
        allowed(now)
        found = fitted(target.row, now, wanted.size, completions=wanted.completions)
        if not found.fields and not wanted.reason:
            return FitChange(found, written=False)
        noted = await notes_beside_hold(session, now, "fit", wanted.reason)
        version = part(now, "metadata").get("resourceVersion")
        metadata = {"uid": uid(now), "resourceVersion": version, **({"annotations": noted} if noted else {})}
        try:
            await session.request(
                "PATCH",
                target.path,
                {**found.patch, "metadata": metadata},
                query={"dryRun": "All"} if wanted.dry_run else None,
                content_type=MERGE_PATCH,
            )
        except Invalid as problem:
            raise NotPermitted(str(problem)) from None
        except Conflict:
            if not tries_left:
                raise
        else:
            return FitChange(found, not wanted.dry_run, noted.get(REASON_ANNOTATION))
    raise AssertionError("the last try returns or raises")
