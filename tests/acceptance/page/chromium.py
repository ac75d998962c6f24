"""Debian's Chromium, driven by Playwright: for tests of the page, and for its pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")


def find_program() -> str | None:
    """Its path; None: it is not installed."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """A browser without a window. Playwright keeps the event loop of the thread until the end."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root with it
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=flags)
        yield opened
        opened.close()
