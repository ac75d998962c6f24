"""Make the pictures in this folder and the transcript of README.md from a sandbox: `make pictures`.

The sandbox's example runs on a real control plane until it shows what the pictures are to show. Then the
answers of its REST server are recorded, and everything is drawn from the recording: the tests draw it again
and compare. `--draw` draws from the recording that is there, after a change of what the commands print. The
page of the API documentation and the web page become PNGs by Chromium, and states of the page that a
sandbox is never in, from the canned ledgers of its tests.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

from docs.pictures import drawing, month, pages
from docs.pictures.drawing import ROOT, NotMade
from docs.pictures.recording import FILE, Recording
from queuectl.sandbox.control_plane import ASSETS_VARIABLE, find_assets

HERE: Final = Path(__file__).resolve().parent
START_SECONDS: Final = 180.0
STORY_SECONDS: Final = 300.0
_OPENER: Final = build_opener(ProxyHandler({}))


def main() -> int:
    parser = argparse.ArgumentParser("make pictures", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="from the recording that is there")
    options = parser.parse_args()
    try:
        _simulation(HERE / "simulation.svg")
        if options.draw:
            _draw(Recording.read())
        else:
            _record()
            pages.draw_states()
            month.draw()
    except NotMade as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
    return 0


def _draw(recording: Recording) -> None:
    for name, content in drawing.pictures(recording).items():
        _write(HERE / name, content)
    _write(drawing.README, drawing.readme(recording))


def _write(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    print(f"{path.name} {len(content) / 1000:.0f} kB")


# --- a run of the simulator --------------------------------------------------------------------------


def _simulation(path: Path) -> None:
    """The picture of `queuectl simulate` for the example in docs/simulation.md."""
    example = ROOT / "docs" / "examples" / "three-teams.yaml"
    argv = [sys.executable, "-m", "queuectl", "simulate", str(example), "--picture", str(path)]
    done = subprocess.run(argv, cwd=ROOT, env=drawing.environment(), capture_output=True, timeout=60)
    if done.returncode:
        raise NotMade(f"{path.name}: {done.stderr.decode(errors='replace')}")
    print(f"{path.name} {path.stat().st_size / 1000:.0f} kB")


# --- the sandbox ------------------------------------------------------------------------------------


def _record() -> None:
    """Record one moment of a sandbox, and draw from it."""
    assets = find_assets()
    if assets is None:
        raise NotMade(f"{ASSETS_VARIABLE} is not set: the transcript is of a real control plane and kubectl")
    recording = Recording()
    with _sandbox() as (rest, kubeconfig), ThreadPoolExecutor(1) as beside:
        _wait(lambda: _ready(rest), STORY_SECONDS, "a preempted Job beside all that the example shows")
        shown = beside.submit(pages.draw, rest)  # at once: what the pages show goes on
        with recording.recorded(rest) as url:
            # What is drawn first is recorded first, all within a second.
            drawing.screen(url, 120, 44)
            drawing.at_a_terminal([*drawing.EXPLAIN, "--server", url], 120)
            argv = [str(assets / "kubectl"), "--kubeconfig", str(kubeconfig), *drawing.KUBECTL]
            printed = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
            recording.kubectl[" ".join(drawing.KUBECTL)] = printed
        recording.write()
        print(f"{FILE.name} {FILE.stat().st_size / 1000:.0f} kB")
        _draw(recording)
        shown.result()


@contextmanager
def _sandbox() -> Iterator[tuple[str, Path]]:
    """The URL of its REST server, and its kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="queuectl-pictures-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # Postgres may run as another user
        log = folder / "sandbox.log"
        flags = ["--control-plane", "real", "--data", str(folder / "data")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "queuectl", "sandbox", "--headless", *flags],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=drawing.environment(),
            )
        try:
            endpoints = folder / "data" / "endpoints.json"
            _wait(lambda: endpoints.exists() or process.poll() is not None, START_SECONDS, "the sandbox")
            if process.poll() is not None:
                raise NotMade(f"the sandbox has ended:\n{log.read_text(errors='replace')}")
            yield json.loads(endpoints.read_text())["rest"], folder / "data" / "kubeconfig"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _wait(good: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not good():
        if time.monotonic() > deadline:
            raise NotMade(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.1)


def _ready(rest: str) -> bool:
    """Was a Job preempted by priority and another by shares, do both wait, and can one never run?"""

    def found(phase: str) -> dict[str, Any]:
        with _OPENER.open(f"{rest}/api/v1/workloads?phase={phase}", timeout=10) as answer:
            return {item["name"]: item for item in json.load(answer)["items"]}

    codes = {name: (item["reason"] or {}).get("code") for name, item in found("Pending").items()}
    return (
        codes.get(drawing.SUBJECT[1]) == "WaitingForQuota"
        and "WaitingForQuota" in (codes.get("sweep-1"), codes.get("sweep-2"))
        and codes.get("too-large") == "ExceedsMaxQuota"
        and found("Admitted").keys() >= {"urgent-eval", "distill", "finetune-llm"}
    )


if __name__ == "__main__":
    sys.exit(main())
