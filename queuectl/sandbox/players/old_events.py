"""Events of the small API, which are deleted after an hour: a real API server keeps them no longer either."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from queuectl.kube.errors import ApiError
from queuectl.kube.session import Session
from queuectl.sandbox.players.api import Clock, Object, moment

_EVENTS: Final = "/api/v1/events"
_KEPT: Final = timedelta(hours=1)
_PAUSE_SECONDS: Final = 300.0

_log = logging.getLogger(__name__)


async def forget_events(api: Session, clock: Clock) -> None:
    """Delete old Events until cancelled."""
    while True:
        await clock.sleep(_PAUSE_SECONDS)
        try:
            for event in (await api.request("GET", _EVENTS))["items"]:
                if clock.now() - _last(event) > _KEPT:
                    metadata = event["metadata"]
                    path = f"/api/v1/namespaces/{metadata['namespace']}/events/{metadata['name']}"
                    await api.request("DELETE", path)
        except ApiError as error:
            _log.warning("old events: %s", error)


def _last(event: Object) -> datetime:
    """When it last happened."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return moment(next(filter(None, times), event["metadata"]["creationTimestamp"]))
