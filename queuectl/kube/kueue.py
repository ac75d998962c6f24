"""Detects whether Kueue's own controller runs in this cluster. Its CRDs alone do not show that it does."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from queuectl.kinds.gate import GATE, QUEUED
from queuectl.kinds.json_fields import BadField, Json, mapping, text, timestamp
from queuectl.kinds.labels import KUEUE_QUEUE_LABEL
from queuectl.kube.errors import NotFound
from queuectl.kube.session import Session, api_path

LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
"""Name of its leader election Lease, in any namespace."""
PODS: Final = "app.kubernetes.io/name=kueue,control-plane=controller-manager"
RENEWED: Final = timedelta(seconds=60)
"""A Lease renewed within these seconds has a holder: it is renewed every 2 s, and clocks of nodes differ."""


async def running(session: Session) -> str | None:
    """Where Kueue's controller runs; None: it does not. Raises ApiError.

    The Lease shows it also if its pods have custom labels, and the pods show it also without leader election.
    """
    leases = api_path("coordination.k8s.io", "v1", "leases")
    async for page in session.pages(leases, query={"fieldSelector": f"metadata.name={LEASE}"}):
        for item in page.get("items") or ():
            if (seen := _held(item, session)) is not None:
                return seen
    async for page in session.pages(api_path("", "v1", "pods"), query={"labelSelector": PODS}):
        for item in page.get("items") or ():
            if (item.get("status") or {}).get("phase") == "Running":
                return f"pod {_place(item)} runs"
    return None


async def gated(session: Session) -> bool | None:
    """Whether the gate applies to objects with Kueue's label; None: there is no gate. Raises ApiError."""
    policies = api_path("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", name=GATE)
    try:
        policy = await session.get(policies)
    except NotFound:
        return None
    conditions = (policy.get("spec") or {}).get("matchConditions") or ()
    return any(
        condition.get("name") == QUEUED and KUEUE_QUEUE_LABEL in str(condition.get("expression"))
        for condition in conditions
    )


def _held(lease: Json, session: Session) -> str | None:
    try:
        spec = mapping(lease, "spec", "")
        holder = text(spec, "holderIdentity", "spec")
        age = session.server_time() - timestamp(spec.get("renewTime"), "spec.renewTime")
    except BadField:
        return None
    if not holder or age > RENEWED:
        return None
    return f"Lease {_place(lease)} was renewed {max(0, round(age.total_seconds()))} s ago by {holder}"


def _place(obj: Json) -> str:
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
