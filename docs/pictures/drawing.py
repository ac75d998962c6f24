"""Pictures and transcripts from a recording: what the command line prints, and frames of the screen."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from docs.pictures.recording import Recording
from queuectl.cli.watching import client
from queuectl.screen.frame import Picture, frame
from queuectl.screen.live import LOW
from queuectl.screen.navigation import ScreenView
from queuectl.screen.poller import look

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = ROOT / "README.md"
SUBJECT: Final = ("team-a", "train-bert")
"""Namespace and name of the Job that is explained: a Job of higher priority has preempted it."""
EXPLAIN: Final = ("explain", f"job/{SUBJECT[1]}", "-n", SUBJECT[0])
HELP: Final = ("--help",)
_EXPLAIN_WIDTH: Final = 120
_HELP_WIDTH: Final = 90
KUBECTL: Final = ("get", "job", SUBJECT[1], "-n", SUBJECT[0])
_SCREENS: Final = {"screen": (120, 44), "screen-80x24": (80, 24)}
_MARK: Final = "<!-- made by `make pictures` -->"
_SERVER: Final = "http://127.0.0.1:8080"
_PLACE: Final = "~/.local/share/queuectl/sandbox"
_COMMAND_SECONDS: Final = 60.0
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


class NotMade(Exception):
    """A picture could not be made; the message says why and what to do."""


def pictures(recording: Recording) -> dict[str, str]:
    """The content of each SVG that is drawn from the recording, by name."""
    found = {}
    with recording.replayed() as url:
        for name, (width, height) in _SCREENS.items():
            found[f"{name}.svg"] = draw("queuectl sandbox", screen(url, width, height), width)
        printed = at_a_terminal([*EXPLAIN, "--server", url], _EXPLAIN_WIDTH)
        found["explain.svg"] = terminal(EXPLAIN, printed, _EXPLAIN_WIDTH)
    found["help.svg"] = terminal(HELP, at_a_terminal(HELP, _HELP_WIDTH), _HELP_WIDTH)
    return found


def terminal(arguments: Sequence[str], printed: str, width: int) -> str:
    """What a command prints at a terminal, as SVG."""
    lines = [f"\x1b[1m$ queuectl {' '.join(arguments)}\x1b[0m", *printed.splitlines()]
    return draw(f"queuectl {arguments[0].lstrip('-')}", map(Text.from_ansi, lines), width)


def screen(url: str, width: int, height: int) -> list[Text]:
    """The first frame of the sandbox's screen."""

    async def frame_of() -> list[Text]:
        seen = await look(client(url), None, None)
        picture = Picture(
            server=_SERVER,
            facts=seen.facts,
            now=seen.date.astimezone(UTC),
            place=_PLACE,
            notes=("commands to try",),
            leave="stop",
            brief=height < LOW,
        )
        return frame(picture, ScreenView(), width, height)

    return asyncio.run(frame_of())


# --- README -----------------------------------------------------------------------------------------


def readme(recording: Recording) -> str:
    """README.md with its transcript from the recording, without the history of the workload."""
    text = README.read_text(encoding="utf-8")
    before, mark, after = text.partition(f"{_MARK}\n```\n")
    if not mark:
        raise NotMade(f"{README.name} has no {_MARK} before a transcript")
    return f"{before}{mark}{_transcript(recording)}{after[after.index('```') :]}"


def _transcript(recording: Recording) -> str:
    with recording.replayed() as url:
        argv = [sys.executable, "-m", "queuectl", *EXPLAIN, "--server", url]
        done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise NotMade(f"queuectl {' '.join(EXPLAIN)}: {done.stderr}")
    kubectl = recording.kubectl[" ".join(KUBECTL)]
    explained, *_ = done.stdout.partition("\nHistory\n")
    return (
        f"$ kubectl {' '.join(KUBECTL)}\n{kubectl.rstrip()}\n\n"
        f"$ queuectl {' '.join(EXPLAIN)}\n{_first_of_each(explained.rstrip())}\n"
    )


def _first_of_each(explained: str) -> str:
    """The explanation with two lines at most of each label, and an ellipsis where there were more."""
    seen: Counter[str] = Counter()
    lines: list[str] = []
    for line in explained.splitlines():
        word = line[:12]
        seen[word] += 1
        if not word.strip() or seen[word] <= 2:
            lines.append(line)
        elif lines[-1] != "…":
            lines.append("…")
    return "\n".join(lines)


# --- a terminal -------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Of a command: nothing of this machine's own settings."""
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECTL_") and k not in dropped}
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONIOENCODING": "utf-8", "TZ": "UTC"}
    return {**kept, **terminal}


def at_a_terminal(arguments: Sequence[str], width: int) -> str:
    """What `queuectl` prints at a terminal of this width, with its colours."""
    near, far = pty.openpty()
    fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    argv = [sys.executable, "-m", "queuectl", *arguments]
    process = subprocess.Popen(argv, stdin=far, stdout=far, stderr=far, cwd=ROOT, env=environment())
    output, end = "", time.monotonic() + _COMMAND_SECONDS
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([near], [], [], 0.1)
            if ready:
                output += decode(os.read(near, 1 << 16))
            elif process.poll() is not None:
                break
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(near)
        os.close(far)
    if process.returncode:
        raise NotMade(f"queuectl {' '.join(arguments)} ended with {process.returncode}:\n{output}")
    return _QUERY.sub("", output.replace("\r", ""))


def draw(title: str, lines: Iterable[Text], width: int) -> str:
    """Lines of a terminal, as SVG."""
    console = Console(record=True, width=width, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    with console.file:
        for line in lines:
            # A terminal continues a line that is too long on the next one.
            for part in line.divide(range(width, len(line), width)):
                console.print(part, no_wrap=True, overflow="crop", highlight=False)
        svg = console.export_svg(title=title, theme=_THEME, code_format=_SVG, unique_id="queuectl")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
