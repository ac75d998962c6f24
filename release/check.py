"""Whether a wheel does the main job: installed into an empty environment, it runs the sandbox's example."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_INSTALL_SECONDS: Final = 900
_STOP_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.2
_FINISHED: Final = re.compile(r"#\d+ +Retired +(\S+) - Succeeded$", re.MULTILINE)


class CheckFailed(Exception):
    """What did not happen in time, with the output of the program."""


def check(wheel: Path, *, seconds: float = 300) -> str:
    """Returns the name of the first workload that has run to its end.

    `seconds`: how long the example may take to get there. Raises CheckFailed or CalledProcessError.
    """
    with tempfile.TemporaryDirectory(prefix="queuectl-release-") as name:
        folder = Path(name)
        programs = install(folder / "environment", [f"{wheel}[sandbox]"])
        return run_example(programs / "queuectl", folder, seconds=seconds)


def install(folder: Path, requirements: Sequence[str]) -> Path:
    """Install into a new environment that has pip only; returns the folder of its programs."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], check=True, timeout=_INSTALL_SECONDS)
    return folder / "bin"


def run_example(program: Path, folder: Path, *, seconds: float) -> str:
    """Run the sandbox in an empty home until a workload is finished, then stop it. Raises CheckFailed."""
    home = folder / "home"
    home.mkdir()
    output = folder / "output"
    with output.open("w") as file:
        running = subprocess.Popen(
            [str(program), "sandbox", "--headless", "--data", str(folder / "data")],
            cwd=home,
            env={"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + seconds
    found = None
    try:
        while found is None and running.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = _FINISHED.search(output.read_text())
    finally:
        running.send_signal(signal.SIGINT)
        code = running.wait(_STOP_SECONDS)
    if found is None or code != 0:
        what = "no workload has run to its end" if found is None else "it did not stop"
        raise CheckFailed(f"{program} sandbox: {what}, exit code {code}\n{output.read_text()}")
    return found[1]


if __name__ == "__main__":
    print(check(Path(sys.argv[1])))
