"""Pictures of the pages that REST serves: `make pictures`, or `python -m docs.pictures.pages URL` alone."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.sync_api import sync_playwright

from docs.pictures.drawing import SUBJECT, NotMade

HERE: Final = Path(__file__).resolve().parent
PNG_BYTES: Final = 300_000
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_DESKTOP: Final = (1360, 860)
_PHONE: Final = (390, 844)
_SECONDS: Final = 60.0


class Shot(NamedTuple):
    address: str
    """Below the URL of REST."""
    size: tuple[int, int]
    scheme: Any
    shown: str
    """A selector: what must be there before the picture is taken."""
    press: str | None = None
    """The button that is pressed before."""
    typed: tuple[str, str] | None = None
    """A selector of a field, and what is typed there before."""


_QUOTED: Final = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: finetune
  namespace: team-b
  labels:
    queuectl.dev/queue-name: main
spec:
  parallelism: 6
  completions: 6
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example.com/train:1.0
        resources:
          limits:
            nvidia.com/gpu: 2
"""
_SUBJECT: Final = f"#/workloads/{SUBJECT[0]}/Job/{SUBJECT[1]}"
SHOTS: Final = {
    # The first: its Job waits for seconds only.
    "page-workload": Shot(_SUBJECT, (1360, 1480), "light", ".options li", "Try changes"),
    "docs": Shot("docs", (1100, 900), "light", "h1"),
    "page": Shot("#/", (1360, 1160), "light", ".feed"),
    "page-clusterqueue": Shot("#/clusterqueues/team-a?range=1h", _DESKTOP, "dark", ".chart canvas"),
    "page-change": Shot("#/clusterqueues/team-a?range=1h", _DESKTOP, "light", ".field-change", "Stop…"),
    "page-quote": Shot("#/quote", _DESKTOP, "light", ".verdict", "Would it start?", ("#yaml", _QUOTED)),
    "page-phone": Shot("#/", _PHONE, "dark", ".feed"),
}


def browser() -> str:
    """Raises NotMade."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise NotMade("pictures of pages need Chromium: apt-get install chromium (the others are made)")
    return found


def draw(rest: str) -> None:
    """Write all of `SHOTS`, as the server at this URL shows them now. Raises NotMade."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root with it
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser(), args=flags)
        for name, shot in SHOTS.items():
            width, height = shot.size
            page = opened.new_page(viewport={"width": width, "height": height}, color_scheme=shot.scheme)
            page.goto(f"{rest}/{shot.address}")
            if shot.typed is not None:
                page.locator(shot.typed[0]).fill(shot.typed[1])
            if shot.press is not None:
                page.get_by_role("button", name=shot.press, exact=True).click()
            page.locator(shot.shown).first.wait_for(timeout=1000 * _SECONDS)
            content = page.screenshot(animations="disabled")
            page.close()
            if len(content) > PNG_BYTES:
                raise NotMade(f"{name}.png has {len(content)} bytes, more than {PNG_BYTES}")
            (HERE / f"{name}.png").write_bytes(content)
            print(f"{name}.png {len(content) / 1000:.0f} kB")
        opened.close()


if __name__ == "__main__":
    draw(sys.argv[1].rstrip("/"))
