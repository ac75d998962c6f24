"""Interface to the cluster's reviews of tokens and rights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class User:
    """The user of a token, as the cluster identifies it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Access(NamedTuple):
    """Something that RBAC may allow on our group; empty: any namespace, any name."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""


class Reviews(Protocol):
    """The cluster's reviews of tokens and access. Raises ClusterUnavailable if there is no answer."""

    async def who(self, token: str, audiences: Sequence[str]) -> User | None:
        """The user of a token that is meant for one of `audiences`; None: the token is not valid."""

    async def may(self, user: User, access: Access) -> bool: ...
