"""The page in a browser: Debian's Chromium, on the real REST application over a canned ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect

from tests.acceptance.page.chromium import find_program, launched
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.stories import busy_on_nodes

SIZES: Final = {"desktop": (1440, 900), "phone": (360, 740)}
SECONDS: Final = 20.0
_FORGET: Final = "localStorage.clear(), sessionStorage.clear()"
_BLANK: Final = "http://127.0.0.1/"


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


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """The page of all tests of a file: a renderer takes more CPU to start than most of them."""
    page = browser.new_context(timezone_id="UTC").new_page()
    page.set_default_timeout(1000 * SECONDS)
    expect.set_options(timeout=1000 * SECONDS)
    leave(page)
    return page


def leave(page: Page) -> None:
    """Go to an empty document of the host of all sites: `about:blank` has a renderer of its own."""
    body = '<link rel="icon" href="data:,">'
    page.route(_BLANK, lambda route: route.fulfill(body=body, content_type="text/html"), times=1)
    page.goto(_BLANK)


Open = Callable[..., Page]


@pytest.fixture
def open_page(tab: Page) -> Iterator[Open]:
    """Open an address: `open_page(site.url + "#/decisions", size="phone", scheme="dark")`.

    Without an address it is the page before any: for a test that changes what a server answers. At the end
    nothing is stored, and the console must be empty; that of a `quiet` page may have answers of the server.
    """
    told: list[str] = []
    loud = True

    def opened(url: str = "", *, size: str = "desktop", scheme: Any = "light", quiet: bool = False) -> Page:
        nonlocal loud
        loud = not quiet
        width, height = SIZES[size]
        tab.set_viewport_size({"width": width, "height": height})
        tab.emulate_media(color_scheme=scheme)
        if url:
            tab.goto(url)
        return tab

    def on_console(message: ConsoleMessage) -> None:
        if loud:
            told.append(f"{message.type}: {message.text}")

    def on_error(error: Error) -> None:
        told.append(f"error: {error}")

    tab.on("console", on_console)
    tab.on("pageerror", on_error)
    yield opened
    tab.evaluate(_FORGET)  # its answer comes after all that the page has told
    tab.remove_listener("console", on_console)
    tab.remove_listener("pageerror", on_error)
    tab.unroute_all(behavior="ignoreErrors")
    tab.mouse.move(0, 0)
    leave(tab)
    assert told == []
