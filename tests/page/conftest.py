"""The page in a browser: Debian's Chromium, on the real REST application over a canned ledger."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from aiohttp import web
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from queuectl.api.remembering import Lifetimes
from queuectl.api.reviewing import Reviewer
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.changes import Changes
from queuectl.kinds.policy import parse_policy
from queuectl.simulator.what_ifs import TriedWhatIfs
from tests.api.canned import CannedReadings
from tests.api.conftest import KEY, Clock
from tests.api.reviews import CannedReviews
from tests.job_kinds import JOB_KINDS
from tests.page.stories import busy

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
SIZES: Final = {"desktop": (1440, 900), "phone": (360, 740)}
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
        identify = Reviewer(reviews, ["queuectl"], Clock(), Lifetimes()) if reviews else None
        app = application(
            view,
            readings,
            kinds=JOB_KINDS,
            what_ifs=TriedWhatIfs(),
            cursor_key=KEY,
            identify=identify,
            changes=changes,
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one file: Playwright keeps the event loop of the thread, which asynchronous tests need later."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("Chromium is not installed: the web page was not tried. apt-get install chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root with it
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with serving(busy()) as found:
        yield found


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open an address: `open_page(site.url + "#/decisions", size="phone", scheme="dark")`.

    At the end, the console must be empty but for `expected` answers that a browser reports there.
    """
    contexts: list[BrowserContext] = []
    told: list[str] = []

    def opened(url: str, *, size: str = "desktop", scheme: Any = "light", quiet: bool = False) -> Page:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        if not quiet:
            page.on("console", lambda message: told.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: told.append(f"error: {error}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert told == []
