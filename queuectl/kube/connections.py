"""Sessions to the cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from queuectl.kube import account
from queuectl.kube.errors import BadKubeconfig
from queuectl.kube.reviews import user_name
from queuectl.kube.session import Session


async def open_session(kubeconfig: Path | None, context: str | None, *, dry_run: bool = False) -> Session:
    """To the cluster of a kubeconfig; if none is given and this is a pod, to the pod's cluster."""
    return Session.of(await account_of(kubeconfig, context), dry_run=dry_run)


async def account_of(kubeconfig: Path | None, context: str | None) -> account.Account:
    """As `open_session`. Raises BadKubeconfig."""
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return await account.in_cluster()
    return await account.from_kubeconfig(str(kubeconfig) if kubeconfig else None, context)


@contextlib.asynccontextmanager
async def session_to(
    kubeconfig: Path | None, context: str | None, *, dry_run: bool = False
) -> AsyncIterator[Session]:
    """`dry_run`: patches and deletions are checked by the API server, and write nothing."""
    session = await open_session(kubeconfig, context, dry_run=dry_run)
    try:
        yield session
    finally:
        await session.close()


async def own_name(kubeconfig: Path | None, context: str | None) -> str | None:
    """The name of a kubeconfig's user, as its API server has it; None if that server does not say."""
    async with session_to(kubeconfig, context) as session:
        return await user_name(session)


async def bearer_token(kubeconfig: Path | None, context: str | None) -> str | None:
    """The token of a kubeconfig's user; None if there is none or it can't be read."""
    try:
        identity = await account.from_kubeconfig(str(kubeconfig) if kubeconfig else None, context)
        header = await identity.authorization()
    except BadKubeconfig:
        return None
    return header.removeprefix("Bearer ") if header else None
