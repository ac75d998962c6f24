"""The real REST application over a canned ledger, with the files of the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.authorization import Reviewer
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.kinds.policy import parse_policy
from queuectl.ports.changes import Changes
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import CannedReadings
from tests.unit.api.conftest import KEY, Clock
from tests.unit.api.reviews import CannedReviews

SECONDS: Final = 20.0
REFRESH_SECONDS: Final = 0.2


@dataclass
class Site:
    """A REST server in a thread of its own."""

    readings: CannedReadings
    url: str


@contextmanager
def serving(
    readings: CannedReadings, reviews: CannedReviews | None = None, changes: Changes | None = None
) -> Iterator[Site]:
    """Without `reviews` there is no access check; without `changes` each is refused."""
    up: Future[str] = Future()
    stop: Future[None] = Future()

    async def serve() -> None:
        view = View(readings, parse_policy)
        await view.refresh()
        identify = Reviewer(reviews, ["queuectl"], Clock()) if reviews else None
        app = application(
            view,
            readings,
            kinds=JOB_KINDS,
            what_ifs=TriedWhatIfs(),
            cursor_key=KEY,
            identify=identify,
            changes=changes,
            device_use=readings.device_use,
            budgets=readings.budgets,
            links=readings.links,
        )
        runner = web.AppRunner(app, shutdown_timeout=0.5)  # pages follow decisions for 25 s
        await runner.setup()
        await (place := web.TCPSite(runner, "127.0.0.1", 0)).start()
        assert place._server is not None
        up.set_result(f"http://127.0.0.1:{place._server.sockets[0].getsockname()[1]}/")  # type: ignore[attr-defined]
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(view.run(REFRESH_SECONDS))
            await asyncio.wrap_future(stop)
            reading.cancel()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield Site(readings, up.result(SECONDS))
    finally:
        stop.set_result(None)
        thread.join(SECONDS)
