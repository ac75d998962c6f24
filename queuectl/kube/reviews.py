"""The user of a token and the user's rights: TokenReview and SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from queuectl.kinds.policy_objects import GROUP
from queuectl.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from queuectl.kube.session import Object, Session
from queuectl.ports.changes import Access, User
from queuectl.ports.cluster import ClusterUnavailable

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SECONDS: Final = 5.0
"""Short, as a caller waits for the answer."""


class NoReviews(Exception):
    """This identity may not create reviews (the message names the right), or the server has none."""


async def user_name(session: Session) -> str | None:
    """The name of the session's user; None if the server does not say (before 1.28, or without the right).

    Raises ApiError.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = await session.create(SELF_REVIEWS, body)
    except (Forbidden, NotFound):
        return None
    name = ((found.get("status") or {}).get("userInfo") or {}).get("username")
    return name if isinstance(name, str) and name else None


class KubeReviews:
    """ports.reviews.Reviews over a session that may create both kinds of review."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def who(self, token: str, audiences: Sequence[str]) -> User | None:
        spec = {"token": token, "audiences": list(audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = await self._review(TOKEN_REVIEWS, body)
        # A server without support for audiences returns none: the token may be meant for any audience.
        meant = set(audiences) & set(status.get("audiences") or ())
        if status.get("authenticated") is not True or not meant:
            return None
        return _user(status.get("user") or {})

    async def may(self, user: User, access: Access) -> bool:
        attributes = {"group": GROUP, "resource": access.resource, "verb": access.verb}
        if access.namespace:
            attributes["namespace"] = access.namespace
        if access.name:
            attributes["name"] = access.name
        spec: Object = {"user": user.name, "resourceAttributes": attributes}
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = list(user.groups)
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = await self._review(ACCESS_REVIEWS, body)
        return status.get("allowed") is True and status.get("denied") is not True

    async def own_audiences(self) -> tuple[str, ...]:
        """The audiences of the API server itself. Raises ClusterUnavailable; NoReviews without a token."""
        header = await self._session.authorization()
        if header is None:
            raise NoReviews("the kubeconfig has no token, by whose review the API server names its audience")
        spec = {"token": header.removeprefix("Bearer ")}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = await self._review(TOKEN_REVIEWS, body)
        found = tuple(map(str, status.get("audiences") or ()))
        if status.get("authenticated") is not True or not found:
            raise NoReviews(
                "the API server does not name its audience in the review of this server's own token"
            )
        return found

    async def check(self) -> None:
        """Create one review of each kind, whatever its result. Raises NoReviews, ClusterUnavailable."""
        try:
            await self.who("queuectl-checks-its-rights", ["queuectl"])
            await self.may(User("system:anonymous"), Access("get", "workloads", "default"))
        except ClusterUnavailable as error:
            if isinstance(error.__cause__, Forbidden | NotFound | Unauthorized):
                raise NoReviews(str(error)) from error
            raise

    async def _review(self, path: str, body: Object) -> Object:
        try:
            answer = await self._session.request("POST", path, body, deadline=SECONDS)
        except ClusterUnavailable:
            raise
        except ApiError as error:
            # Whatever the error is, it says nothing about the caller.
            raise ClusterUnavailable(str(error)) from error
        status = answer.get("status")
        return status if isinstance(status, dict) else {}


def _user(found: dict[str, Any]) -> User | None:
    name = found.get("username")
    if not isinstance(name, str) or not name:
        return None
    extra = found.get("extra") or {}
    return User(
        name=name,
        uid=str(found.get("uid") or ""),
        groups=tuple(sorted(map(str, found.get("groups") or ()))),
        extra=tuple(sorted((str(key), tuple(map(str, values or ()))) for key, values in extra.items())),
    )
