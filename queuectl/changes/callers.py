"""Changes that REST makes for its callers: the patches of the command line, with the rights of the caller."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, Protocol

from queuectl.changes import consequences
from queuectl.changes import edit as changing
from queuectl.changes import fit as fitting
from queuectl.changes.edit import EditedField, EditTarget, WorkloadTarget
from queuectl.changes.verbs import change_workload
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.pod_sizes import CannotFit, sized
from queuectl.kube.account import Bearer
from queuectl.kube.connections import account_of
from queuectl.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    Unauthorized,
    Unavailable,
)
from queuectl.kube.session import Answered, Identity, Session
from queuectl.kube.transport import HttpTransport, Transport
from queuectl.ports.changes import ChangedField, ChangeRefused, Made, Wanted, WantedSize

_FOREIGN_TOKEN: Final = (
    "the API server does not accept this token, so nothing can be changed with it: sign in with a token for "
    "the API server itself, such as `kubectl create token SERVICEACCOUNT` prints without --audience"
)


class KindLookup(Protocol):
    @property
    def registry(self) -> KindRegistry: ...


class KubeChanges:
    """changes.Changes by one patch each."""

    def __init__(
        self,
        transport: Transport,
        kinds: KindLookup,
        *,
        own: Identity | None = None,
        answered: Answered | None = None,
    ) -> None:
        """`transport`: without credentials. `own`: whose rights count, whatever the caller's token is; None:
        those of the caller."""
        self._transport = transport
        self._kinds = kinds
        self._own = own
        self._answered = answered

    async def make(self, wanted: Wanted, token: str | None) -> Made:
        """Raises ChangeRefused."""
        session = self._session(wanted, token)
        with _refusals():
            if wanted.kind in ("ClusterQueue", "LocalQueue"):
                return await self._queue(session, wanted)
            return await self._workload(session, wanted)

    def _session(self, wanted: Wanted, token: str | None) -> Session:
        if self._own is None and token is None:
            raise ChangeRefused(403, "a change needs the token of its caller")
        session = Session(self._transport, self._own or Bearer(token or ""), dry_run=wanted.dry_run)
        session.answered = self._answered
        return session

    async def _queue(self, session: Session, wanted: Wanted) -> Made:
        target = changing.queue(wanted.kind, wanted.namespace, wanted.name)
        stopped = "HoldAndDrain" if wanted.evict else "Hold"
        policy = "None" if wanted.verb == "resume" else stopped
        with _explained(target):
            change = await changing.set_stop_policy(session, target, policy, wanted.reason)
        return _made(change, consequences.stop_means(change))

    async def _workload(self, session: Session, wanted: Wanted) -> Made:
        kinds = self._kinds.registry
        target = changing.workload(kinds, wanted.kind, wanted.namespace, wanted.name)
        losses: list[str] = []

        def confirm(lost: str) -> None:
            losses.append(lost)
            if not (wanted.evict or wanted.dry_run):
                raise consequences.ChangeBlocked(f"{lost}. Nothing is written; `evict: true` confirms it")

        with _explained(target):
            if wanted.verb == "fit":
                return await _fit(session, target, wanted, wanted.size or WantedSize())
            change, meaning = await change_workload(
                session, target, wanted.verb, confirm, to=wanted.target, reason=wanted.reason
            )
        return _made(change, meaning, next(iter(losses), None))


async def _fit(session: Session, target: WorkloadTarget, wanted: Wanted, size: WantedSize) -> Made:
    done = await fitting.fit(
        session,
        target,
        fitting.WantedFit(
            lambda pod_sets: sized(pod_sets, size.gpus, size.pods, size.pod_set),
            completions=size.completions,
            dry_run=wanted.dry_run,
            reason=wanted.reason,
        ),
        lambda now: consequences.can_fit(target, now),
    )
    found = done.found
    means = consequences.fit_means(found, written=done.written)
    left = consequences.still_completes(found)
    return Made(
        kind=target.kind,
        field=f"podset {found.before.name}",
        before=consequences.size(found.before),
        after=consequences.size(found.after),
        written=done.written,
        meaning=f"{means} {left}." if left else means,
        reason=done.reason,
        fields=tuple(
            ChangedField(one.name, None if one.before is None else str(one.before), str(one.after))
            for one in found.fields
        ),
    )


def _made(change: EditedField, meaning: str, loss: str | None = None) -> Made:
    return Made(
        kind=change.target.kind,
        field=change.field,
        before=change.before,
        after=change.after,
        written=change.written,
        meaning=meaning,
        loss=loss,
        reason=change.reason,
    )


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Errors that are about no object."""
    try:
        yield
    except changing.BadTarget as problem:
        raise ChangeRefused(400, str(problem)) from None
    except (changing.NotQueued, consequences.ChangeBlocked) as problem:
        raise ChangeRefused(409, str(problem)) from None
    except Unauthorized:
        raise ChangeRefused(403, _FOREIGN_TOKEN) from None
    except Unavailable as problem:
        raise ChangeRefused(503, str(problem)) from None
    except ApiError as problem:
        raise ChangeRefused(422, str(problem)) from None


@contextlib.contextmanager
def _explained(of: EditTarget) -> Iterator[None]:
    """Errors about an object, most of them the API server's."""
    try:
        yield
    except NotFound:
        raise ChangeRefused(404, f"not found: {of}") from None
    except changing.NoSuchObject as problem:
        raise ChangeRefused(422, consequences.missing(of, problem)) from None
    except CannotFit as problem:
        raise ChangeRefused(422, consequences.not_fitted(of, problem)) from None
    except fitting.NotPermitted as problem:
        raise ChangeRefused(422, consequences.not_permitted(of, problem)) from None
    except Forbidden as problem:
        raise ChangeRefused(
            403, consequences.denied(of, problem) or consequences.forbidden(of, problem)
        ) from None
    except Conflict:
        raise ChangeRefused(409, consequences.replaced(of)) from None


@contextlib.asynccontextmanager
async def changes_to(
    kubeconfig: Path | None,
    context: str | None,
    kinds: KindLookup,
    *,
    as_itself: bool,
    answered: Answered | None,
) -> AsyncIterator[KubeChanges]:
    """To the cluster of a kubeconfig or of this pod. `as_itself`: with the rights of that identity, else with
    those of each caller and none of its own. Raises BadKubeconfig."""
    identity = await account_of(kubeconfig, context)
    tls = identity.tls if as_itself else identity.trust()
    transport = HttpTransport(
        identity.server, tls=tls, server_name=identity.server_name, proxy=identity.proxy
    )
    try:
        yield KubeChanges(transport, kinds, own=identity if as_itself else None, answered=answered)
    finally:
        await transport.close()
