"""The page in a browser: Debian's Chromium, on the real REST application over a canned ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.acceptance.page.chromium import find_program, launched
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.stories import busy_on_nodes

SIZES: Final = {"desktop": (1440, 900), "phone": (360, 740)}
SECONDS: Final = 20.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one file: Playwright keeps the event loop of the thread, which asynchronous tests need later."""
    program = find_program()
    if program is None:
        pytest.skip("Chromium is not installed: the web page was not tried. apt-get install chromium")
    with launched(program) as opened:
        yield opened


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with serving(busy_on_nodes()) as found:
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
