"""Pictures of the pages that REST serves: `make pictures`, or `python -m docs.pictures.pages [URL]` alone.

Those of `SHOTS` are of a sandbox. A sandbox is never empty, large or broken: those of `STATES` are of
the ledgers that tests of the page use.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, Page

from docs.pictures.drawing import ROOT, SUBJECT, NotMade
from queuectl.core.model.capacity import FlavorCapacity
from queuectl.ports.periods import Piece
from queuectl.ports.reader import CapacitySum
from tests.acceptance.page.chromium import find_program, launched
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.stories import busy, busy_on_nodes, crowded
from tests.unit.api.canned import AWAY, GPU, CannedReadings
from tests.unit.api.test_capacity import GPUS

HERE: Final = Path(__file__).resolve().parent
PNG_BYTES: Final = 300_000
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
_PLANNED: Final = (ROOT / "manifests" / "examples" / "queues.yaml").read_text(encoding="utf-8")
_DRAINED: Final = "cohortName: research\n  stopPolicy: HoldAndDrain\n"
SHOTS: Final = {
    # The first ones: what they show lasts for seconds only.
    "page-workload": Shot(_SUBJECT, (1360, 1480), "light", ".options li", "Try changes"),
    "page-plan": Shot(
        "#/plan",
        _DESKTOP,
        "dark",
        ".tiles",
        "What would it decide?",
        # team-a is drained.
        ("#yaml", _PLANNED.replace("cohortName: research\n", _DRAINED, 1)),
    ),
    "page-lending": Shot("#/lending?range=1h", (1360, 1100), "dark", ".matrix"),
    "page-workload-phone": Shot(_SUBJECT, _PHONE, "light", ".life"),
    "docs": Shot("docs", (1100, 900), "light", "h1"),
    "page": Shot("#/", (1360, 1160), "light", ".feed"),
    "page-clusterqueue": Shot("#/clusterqueues/team-a?range=1h", _DESKTOP, "dark", ".chart canvas"),
    "page-localqueue": Shot("#/localqueues/team-a/main", _DESKTOP, "light", "main tbody tr"),
    "page-workloads": Shot("#/workloads", _DESKTOP, "light", "main tbody tr"),
    "page-decisions": Shot("#/decisions", _DESKTOP, "dark", "main tbody tr"),
    "page-preemptions": Shot("#/preemptions", _DESKTOP, "light", "main tbody tr"),
    "page-change": Shot("#/clusterqueues/team-a?range=1h", _DESKTOP, "light", ".field-change", "Stop…"),
    "page-quote": Shot("#/quote", _DESKTOP, "light", ".verdict", "Would it start?", ("#yaml", _QUOTED)),
    "page-phone": Shot("#/", _PHONE, "dark", ".feed"),
}
STATES: Final = {
    "page-empty": Shot("#/", _PHONE, "light", "main .empty"),
    "page-large": Shot("#/clusterqueues/queue-000", _DESKTOP, "light", "main tbody tr"),
    "page-capacity": Shot("#/capacity", (1360, 1340), "light", ".chart canvas"),
    "page-stale": Shot("#/", _DESKTOP, "dark", ".notice"),
    "page-usage": Shot("#/usage", (1360, 1100), "light", "main section:nth-of-type(4) tbody tr"),
}


def browser() -> str:
    """Raises NotMade."""
    if (found := find_program()) is None:
        raise NotMade("pictures of pages need Chromium: apt-get install chromium (the others are made)")
    return found


def draw(rest: str) -> None:
    """Write all of `SHOTS`, as the server at this URL shows them now. Raises NotMade."""
    with launched(browser()) as opened:
        for name, shot in SHOTS.items():
            page = _page(opened, shot)
            page.goto(f"{rest}/{shot.address}")
            _draw(page, name, shot)


def draw_states() -> None:
    """Write all of `STATES`. Raises NotMade."""
    ledgers = {"page-empty": CannedReadings(), "page-large": crowded(), "page-stale": busy()}
    ledgers["page-capacity"] = _day_of_nodes()
    ledgers["page-usage"] = used = busy_on_nodes()
    names = {"=cmd()": "carol", "bob, ben": "bob"}  # tests need names that a spreadsheet would take for more
    used.booked = [
        one._replace(booked=one.booked._replace(user=names.get(str(one.booked.user), one.booked.user)))
        for one in used.booked
        if one.booked is not None
    ]
    with launched(browser()) as opened, ExitStack() as stack:
        for name, shot in STATES.items():
            site: Site = stack.enter_context(serving(ledgers[name]))
            page = _page(opened, shot)
            page.goto(f"{site.url}{shot.address}")
            if name == "page-stale":
                page.locator(".feed").wait_for(timeout=1000 * _SECONDS)
                ledgers[name].down = AWAY
            _draw(page, name, shot)


def _day_of_nodes() -> CannedReadings:
    """Of the 16 GPUs of one node, 4 cannot be used for five hours."""
    readings = busy_on_nodes()
    gpus = replace(
        GPUS, allocatable=(("Ready", 16), ("Cordoned", 16)), used=13, unmanaged=(("kube-system", 2),)
    )
    readings.capacity(FlavorCapacity(flavor="a100", nodes=(("Ready", 1), ("Cordoned", 1)), resources=(gpus,)))

    async def trend(*, flavor: str, steps: Sequence[Piece]) -> list[tuple[Piece, CapacitySum]]:
        found = []
        for number, step in enumerate(steps):
            hours = (step.ends - step.begins) // timedelta(microseconds=1)
            broken = 4 if 9 <= number < 14 else 0
            held = min(7 + (5 * number) % 8 // 2, 14 - broken)
            amounts = (16 - broken, broken, 2, held, 14 - broken - held, 0)
            found.append((step, CapacitySum(flavor, GPU, *(amount * hours for amount in amounts))))
        return found

    readings.capacity_trend = trend  # type: ignore[method-assign]
    return readings


def _page(opened: Browser, shot: Shot) -> Page:
    width, height = shot.size
    return opened.new_page(viewport={"width": width, "height": height}, color_scheme=shot.scheme)


def _draw(page: Page, name: str, shot: Shot) -> None:
    if shot.typed is not None:
        field = page.locator(shot.typed[0])
        field.fill(shot.typed[1])
        field.evaluate("(one) => (one.scrollTop = 0)")
    if shot.press is not None:
        page.get_by_role("button", name=shot.press, exact=True).click()
    page.locator(shot.shown).first.wait_for(timeout=1000 * _SECONDS)
    page.locator("main .loading").first.wait_for(state="detached", timeout=1000 * _SECONDS)
    content = page.screenshot(animations="disabled")
    page.close()
    if len(content) > PNG_BYTES:
        raise NotMade(f"{name}.png has {len(content)} bytes, more than {PNG_BYTES}")
    (HERE / f"{name}.png").write_bytes(content)
    print(f"{name}.png {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw(sys.argv[1].rstrip("/"))
    else:
        draw_states()
