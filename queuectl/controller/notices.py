"""Kubernetes Events for users of kubectl: one when a workload's reason changes."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.core.decisions import Admit, Evict, Keep, Plan
from queuectl.core.model import Assignment, WorkloadId
from queuectl.ports import Notice


def notices(plan: Plan) -> Iterator[tuple[WorkloadId, Notice]]:
    """The Events of a committed plan, in its order."""
    for decision in plan.decisions:
        match decision:
            case Keep(workload, ref, reason, recorded) if recorded:
                yield workload, Notice(ref, "Pending", reason.message, at=plan.now)
            case Admit(attempt, ref, detail):
                text = _flavors(attempt.assignment)
                text += f"; charged as debt: {detail}" if attempt.debt else ""
                yield attempt.workload, Notice(ref, "Admitted", text, key=f"{attempt.number}", at=plan.now)
            case Evict(workload, ref, attempt, reason):
                notice = Notice(ref, "Evicted", reason.message, warning=True, key=f"{attempt}", at=plan.now)
                yield workload, notice
            case _:
                pass


def _flavors(assignment: Assignment) -> str:
    parts = []
    for pod_set in assignment.pod_sets:
        chosen = ", ".join(f"{resource}={flavor}" for resource, flavor in pod_set.flavors)
        parts.append(f"{pod_set.name} x{pod_set.count} {chosen}".strip())
    return f"ClusterQueue {assignment.cluster_queue}: {'; '.join(parts)}"
