"""Answers from history as documents of the REST API. Pure."""

from __future__ import annotations

from typing import Any

from queuectl.api import answer_schemas, waits
from queuectl.core.model import StoredWorkload


def waited(
    workload: StoredWorkload, wait: waits.Wait | None, committed: dict[str, Any]
) -> answer_schemas.Waited:
    return answer_schemas.Waited(
        namespace=workload.ref.namespace,
        kind=workload.ref.kind,
        name=workload.ref.name,
        uid=workload.ref.uid,
        queue=workload.queue,
        cluster_queue=workload.cluster_queue,
        phase=workload.phase,
        attempts=workload.attempts,
        since=wait.start if wait else workload.created_at,
        until=wait.until if wait else workload.created_at,
        waited_seconds=wait.waited if wait else 0,
        ran_seconds=wait.ran if wait else 0,
        evicting_seconds=wait.evicting if wait else 0,
        parts=tuple(map(_part, wait.parts)) if wait else (),
        **committed,
    )


def _part(part: waits.Part) -> answer_schemas.WaitPart:
    return answer_schemas.WaitPart(
        text=waits.text(part), seconds=part.seconds, ahead=part.ahead, **part.why._asdict()
    )
