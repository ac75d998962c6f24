"""Checks that Kueue's labels are honoured by one controller only: Kueue's own or this one."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from queuectl.kinds.labels import KUEUES_TOO, OWN, QueueLabels
from queuectl.kube import kueue
from queuectl.kube.errors import ApiError, Forbidden
from queuectl.kube.session import Session
from queuectl.settings import ConfigurationError, Settings

EVERY: Final = 60.0
"""Seconds between two checks."""
_SETTING: Final = "compatibility.kueueLabels"
_COMPONENT: Final = "the component manifests/kueue-labels (docs/from-kueue.md)"

log = logging.getLogger(__name__)


def honoured(settings: Settings) -> QueueLabels:
    return KUEUES_TOO if settings.compatibility.kueue_labels else OWN


async def check(settings: Settings, session: Session) -> None:
    """Before anything is started: check that gate and configuration agree and that Kueue does not run.

    Raises ConfigurationError, and ApiError if that is not known.
    """
    if not settings.compatibility.kueue_labels:
        await _warn_of_a_gate_too_wide(session)
        return
    if await kueue.gated(session) is False:
        raise ConfigurationError(
            f"{_SETTING}: the gate does not cover Kueue's label, work with it would bypass every queue: "
            f"apply {_COMPONENT}, or set it to false"
        )
    try:
        await refuse_company(session)
    except Forbidden as error:
        raise ConfigurationError(
            f"{_SETTING}: can't tell whether Kueue's own controller runs ({error}): apply {_COMPONENT}"
        ) from error


async def _warn_of_a_gate_too_wide(session: Session) -> None:
    try:
        gated = await kueue.gated(session)
    except ApiError:
        return  # later calls that need the API server report it
    if gated:
        log.warning(
            "the gate keeps work with Kueue's label suspended, and nothing starts it: set %s to true, or "
            "leave out %s",
            _SETTING,
            _COMPONENT,
        )


async def refuse_company(session: Session) -> None:
    """Raises ConfigurationError if Kueue runs, ApiError if that is not known."""
    seen = await kueue.running(session)
    if seen is not None:
        raise ConfigurationError(
            f"{_SETTING}: Kueue's own controller runs ({seen}), and both would start and stop the same jobs: "
            "stop it (kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0), or "
            f"set {_SETTING} to false; running work is left alone meanwhile"
        )


async def watch(session: Session, every: float = EVERY) -> None:
    """Check for ever, while this process leads. Raises ConfigurationError as soon as Kueue runs."""
    while True:
        try:
            await refuse_company(session)
        except ApiError as error:
            log.warning("not known whether Kueue runs, continuing: %s", error)
        await asyncio.sleep(every)
