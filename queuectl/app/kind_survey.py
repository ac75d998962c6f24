"""`queuectl kinds`: the rows of the registry, and what the cluster knows of their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from queuectl.app.kinds import ConfiguredKind, Kinds
from queuectl.kinds.jobs import JobKind
from queuectl.kube.definitions import served_versions
from queuectl.kube.errors import ApiError
from queuectl.kube.reviews import ACCESS_REVIEWS
from queuectl.kube.session import Session

_ACCOUNT: Final = "system:serviceaccount:queuectl-system:queuectl"
"""The controller's, by the shipped manifests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    name: str
    api_version: str | None
    """None: its row is malformed."""
    place: str | None
    """Of its row in a configuration; None: it is built in."""
    served: tuple[str, ...] | None = None
    """Versions that the cluster serves; none: it is not installed. None itself: not known."""
    problem: str | None = None
    """Why its objects do not queue."""


async def survey(kinds: Kinds, session: Session | None) -> list[Surveyed]:
    """All rows in their order. Without a session nothing is known of the cluster. Raises ApiError."""
    places = {one.name: one.place for one in kinds.configured if one.row is not None}
    groups = dict.fromkeys(row.group for row in kinds.registry)
    served = {group: await served_versions(session, group) for group in groups} if session else {}
    found = []
    for row in kinds.registry:
        versions = served[row.group].get(row.plural, ()) if session else None
        problem = await _problem(row, versions, session) if session and versions else None
        found.append(
            Surveyed(
                name=row.name,
                api_version=row.api_version,
                place=places.get(row.name),
                served=versions,
                problem=problem,
            )
        )
    return [*found, *(_malformed(one) for one in kinds.configured if one.row is None)]


def _malformed(one: ConfiguredKind) -> Surveyed:
    return Surveyed(name=one.name, api_version=None, place=one.place, problem="; ".join(one.problems))


async def _problem(row: JobKind, versions: tuple[str, ...] | None, session: Session) -> str | None:
    if versions and row.version not in versions:
        return f"the cluster serves {', '.join(versions)}, and the row is for {row.version}"
    if await _refused(row, session):
        return f"the controller may not list {row.resource}: apply the manifests again"
    return None


async def _refused(row: JobKind, session: Session) -> bool:
    """Whether the controller's account lacks a right; false if the caller may not ask."""
    attributes = {"group": row.group, "resource": row.plural, "verb": "list"}
    spec = {"user": _ACCOUNT, "groups": _groups(), "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    try:
        answer = await session.create(ACCESS_REVIEWS, body)
    except ApiError:
        return False
    return (answer.get("status") or {}).get("allowed") is False


def _groups() -> list[str]:
    """Those of every service account of its namespace."""
    namespace = _ACCOUNT.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
