"""What REST needs of the cluster: to review its callers, and to change Kubernetes objects for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Verb = Literal["hold", "release", "move", "priority", "fit", "cancel", "stop", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSize:
    """Another size of one podset (docs/answers.md, A24): `gpus`, `pods` or both, each 1 to MAX_COUNT."""

    gpus: int | None = None
    """Devices of all its pods together."""
    pods: int | None = None
    pod_set: str | None = None
    """None: the only one that the size can be meant for."""
    completions: bool = False
    """Those of an Indexed Job become the number of its pods too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A change of one object."""

    verb: Verb
    kind: str
    """Of a workload as a path of REST names it; of a queue `ClusterQueue` or `LocalQueue`."""
    namespace: str
    """Empty for a ClusterQueue."""
    name: str
    target: str | None = None
    """The LocalQueue of a move; the WorkloadPriorityClass of a priority, None: no class."""
    size: WantedSize | None = None
    """Of a fit."""
    evict: bool = False
    """A hold or a deletion may end what runs; a stop evicts the admitted workloads too."""
    reason: str | None = None
    dry_run: bool = False
    """The API server checks it and writes nothing."""


@dataclass(frozen=True, slots=True)
class ChangedField:
    """One field of a Kubernetes object, as its patch changes it."""

    field: str
    """Such as `spec.parallelism`."""
    before: str | None
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A change that was made, or checked."""

    kind: str
    field: str
    """Of a fit `podset NAME`, with its sizes in words; of a deletion `object`."""
    before: str | None
    after: str | None
    written: bool
    """False: the object was so already."""
    meaning: str
    """What follows from it, in words."""
    loss: str | None = None
    """What a hold or a deletion ends: it is refused without `evict`. None: nothing."""
    reason: str | None = None
    """As it is kept on the object, with its author."""
    fields: tuple[ChangedField, ...] = ()
    """Of a fit: all fields that it changes."""


class ChangeRefused(Exception):
    """Nothing was written, unless the status is 503: then it is not known."""

    def __init__(self, status: int, message: str) -> None:
        """`status`: 400, 403, 404, 409, 422 or 503."""
        super().__init__(message)
        self.status = status


class Changes(Protocol):
    async def make(self, wanted: Wanted, token: str | None) -> Made:
        """With the rights of the token, as the implementation was configured. Raises ChangeRefused."""


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
