"""Make the pictures in this folder from the real output of a sandbox: `make pictures`.

The live screen, `queuectl explain` and `queuectl get` run on a pseudo-terminal; its content becomes an
SVG that needs no font and no server. The page of the API documentation becomes a PNG by Chromium.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
START_SECONDS: Final = 120.0
STORY_SECONDS: Final = 60.0
PNG_BYTES: Final = 300_000
_FONTS: Final = (
    "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
)
_SVG: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
font-family: FONTS;
font-size: {char_height}px;
line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
""".replace("FONTS", _FONTS)
"""As rich's template, without the font that it loads from a server."""


def _colours(text: str) -> list[tuple[int, int, int]]:
    return [(int(one[:2], 16), int(one[2:4], 16), int(one[4:], 16)) for one in text.split()]


_BACKGROUND, _TEXT = _colours("111418 dcdfe4")
_THEME: Final = TerminalTheme(
    _BACKGROUND,
    _TEXT,
    _colours("2e343c e06c75 7ec671 e5c07b 5492de c678dd 56b6c2 c8cdd4"),
    _colours("707882 f08088 96dc8c f0cd8c 78b4f5 d796eb 78cdd7 f0f2f5"),
)
_QUERY: Final = re.compile(r"\x1b\[\?[0-9;]*[a-zA-Z]")
_OPENER: Final = build_opener(ProxyHandler({}))


class NotMade(Exception):
    """A picture could not be made; the message says why and what to do."""


def main() -> int:
    try:
        _simulation(HERE / "simulation.svg")
        with _sandbox() as rest:
            _wait(lambda: _ready(rest), START_SECONDS + STORY_SECONDS, "work that runs and work that waits")
            _command(["top", "--server", rest, "--interval", "0.5"], "screen", 120, 36, leave="q")
            _command(["explain", "job/ablation", "-n", "team-a", "--server", rest], "explain", 120, 60)
            _command(["get", "workloads", "--server", rest], "get", 150, 60)
            _page(f"{rest}/docs", HERE / "docs.png")
    except NotMade as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
    return 0


# --- a run of the simulator --------------------------------------------------------------------------


def _simulation(path: Path) -> None:
    """The picture of `queuectl simulate` for the example in docs/simulation.md."""
    example = ROOT / "docs" / "examples" / "three-teams.yaml"
    argv = [sys.executable, "-m", "queuectl", "simulate", str(example), "--picture", str(path)]
    done = subprocess.run(argv, cwd=ROOT, env=_environment(), capture_output=True, timeout=60)
    if done.returncode:
        raise NotMade(f"{path.name}: {done.stderr.decode(errors='replace')}")
    print(f"{path.name} {path.stat().st_size / 1000:.0f} kB")


# --- the sandbox ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _sandbox() -> Iterator[str]:
    """The URL of its REST server."""
    with tempfile.TemporaryDirectory(prefix="queuectl-pictures-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # Postgres may run as another user
        log = folder / "sandbox.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "queuectl", "sandbox", "--headless", "--data", str(folder / "data")],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
        try:
            endpoints = folder / "data" / "endpoints.json"
            _wait(lambda: endpoints.exists() or process.poll() is not None, START_SECONDS, "the sandbox")
            if process.poll() is not None:
                raise NotMade(f"the sandbox has ended:\n{log.read_text(errors='replace')}")
            yield json.loads(endpoints.read_text())["rest"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _environment() -> dict[str, str]:
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECTL_") and k not in dropped}
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONIOENCODING": "utf-8", "TZ": "UTC"}
    return {**kept, **terminal}


def _wait(good: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not good():
        if time.monotonic() > deadline:
            raise NotMade(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.1)


def _ready(rest: str) -> bool:
    """Does the example show all states: some jobs run, one waits for them, one can never run?"""

    def found(phase: str) -> dict[str, Any]:
        with _OPENER.open(f"{rest}/api/v1/workloads?phase={phase}", timeout=10) as answer:
            return {item["name"]: item for item in json.load(answer)["items"]}

    waiting = found("Pending")
    codes = {name: (item["reason"] or {}).get("code") for name, item in waiting.items()}
    return (
        codes.get("ablation") == "WaitingForQuota"
        and codes.get("too-large") == "ExceedsMaxQuota"
        and len(found("Admitted")) >= 5
    )


# --- content of a terminal --------------------------------------------------------------------------


def _command(
    arguments: Sequence[str], name: str, width: int, height: int, *, leave: str | None = None
) -> None:
    """Run it and draw its output. `leave`: the key that ends a full-screen program."""
    output = _run(arguments, width, height, leave)
    if leave is None:
        shown = [f"\x1b[1m$ queuectl {_without_server(arguments)}\x1b[0m", *output.splitlines()]
    else:
        frames = output.split("\x1b[H")
        shown = max(frames[-4:], key=len).splitlines()
    draw(f"queuectl {arguments[0]}", [_QUERY.sub("", line) for line in shown], width, HERE / f"{name}.svg")


def _without_server(arguments: Sequence[str]) -> str:
    at = arguments.index("--server")
    return " ".join([*arguments[:at], *arguments[at + 2 :]])


def _run(arguments: Sequence[str], width: int, height: int, leave: str | None) -> str:
    near, far = pty.openpty()
    fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    # A full-screen program needs its own controlling terminal.
    take = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(*eval(sys.argv[1]))"
    )
    argv = [sys.executable, "-m", "queuectl", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-c", take, repr((sys.executable, argv))],
        stdin=far,
        stdout=far,
        stderr=far,
        cwd=ROOT,
        env=_environment(),
        start_new_session=True,
    )
    output, asked_at = "", time.monotonic()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    try:
        while True:
            ready, _, _ = select.select([near], [], [], 0.1)
            if ready:
                output += decode(os.read(near, 1 << 16))
            elif process.poll() is not None:
                break
            if leave is not None and time.monotonic() > asked_at + 3:
                os.write(near, leave.encode())
                leave = None
            if time.monotonic() > asked_at + 60:
                raise NotMade(f"queuectl {' '.join(arguments)} goes on for a minute")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(near)
        os.close(far)
    if process.returncode:
        raise NotMade(f"queuectl {' '.join(arguments)} ended with {process.returncode}:\n{output}")
    return output.replace("\r", "")


def draw(title: str, lines: Sequence[str], width: int, path: Path) -> None:
    """Lines with the colours of a terminal, as SVG."""
    console = Console(record=True, width=width, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    with console.file:
        for line in map(Text.from_ansi, lines):
            # A terminal continues a line that is too long on the next one.
            for part in line.divide(range(width, len(line), width)):
                console.print(part, no_wrap=True, overflow="crop", highlight=False)
        svg = console.export_svg(title=title, theme=_THEME, code_format=_SVG, unique_id="queuectl")
    text = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    path.write_text(text, encoding="utf-8")
    print(f"{path.name} {len(text) / 1000:.0f} kB")


# --- a page in a browser ----------------------------------------------------------------------------


def _page(url: str, path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise NotMade(f"{path.name} needs Chromium: apt-get install chromium (the other pictures are made)")
    with tempfile.TemporaryDirectory(prefix="queuectl-chromium-") as profile:
        shot = Path(profile) / "page.png"
        flags = ["--headless=new", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses to run as root with it; the page is a local file
        done = subprocess.run(
            [
                browser,
                *flags,
                f"--user-data-dir={profile}",
                "--window-size=1100,900",
                f"--screenshot={shot}",
                url,
            ],
            capture_output=True,
            timeout=120,
        )
        if not shot.exists():
            raise NotMade(
                f"{browser} made no picture of {url}:\n{done.stderr.decode(errors='replace')[-2000:]}"
            )
        content = shot.read_bytes()
    if len(content) > PNG_BYTES:
        raise NotMade(f"{path.name} has {len(content)} bytes, more than {PNG_BYTES}")
    path.write_bytes(content)
    print(f"{path.name} {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
