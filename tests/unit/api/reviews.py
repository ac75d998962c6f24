"""Canned TokenReviews and SubjectAccessReviews."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from queuectl.ports.changes import Access, User
from queuectl.ports.cluster import ClusterUnavailable

READS = ("get", "list")
NAMESPACED = ("workloads", "localqueues")
CLUSTER_WIDE = ("budgets", "clusterqueues", "cohorts", "resourceflavors", "usagelimits")


class CannedReviews:
    """Implements Reviews. `users` by token; `rights` by user name; while `down` is set it does not answer."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.rights: dict[str, set[Access]] = {}
        self.down: str | None = None
        self.asked: list[object] = []
        """Reviewed tokens and accesses, in order."""
        self.hold: asyncio.Event | None = None
        """Reviews are not answered until it is set."""

    def add(self, token: str, *accesses: Access, name: str | None = None, uid: str = "") -> User:
        user = User(name or token, uid, ("system:authenticated",))
        self.users[token] = user
        self.rights.setdefault(user.name, set()).update(accesses)
        return user

    def tenant(self, token: str, *namespaces: str) -> User:
        """The rights of a user with the view role in these namespaces, by a RoleBinding in each."""
        found = [Access(v, r, n) for v in READS for r in NAMESPACED for n in namespaces]
        return self.add(token, *found)

    def admin(self, token: str) -> User:
        return self.add(token, *(Access(v, r) for v in READS for r in (*NAMESPACED, *CLUSTER_WIDE)))

    async def who(self, token: str, audiences: Sequence[str]) -> User | None:
        await self._answer(token)
        return self.users.get(token)

    async def may(self, user: User, access: Access) -> bool:
        await self._answer(access)
        granted = self.rights.get(user.name, set())
        # A right in all namespaces applies to each one, and a right on all names to each name.
        wider = [access, access._replace(name=""), access._replace(namespace=""), Access(*access[:2])]
        return any(one in granted for one in wider)

    async def _answer(self, question: object) -> None:
        self.asked.append(question)
        if self.hold is not None:
            await self.hold.wait()
        await asyncio.sleep(0)
        if self.down is not None:
            raise ClusterUnavailable(self.down)

    def count(self, kind: type) -> int:
        return sum(isinstance(one, kind) for one in self.asked)
