"""docs/kinds.md, "A kind by configuration": its commands are typed with its files, word for word."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.sandbox.test_whole import sandbox
from tests.integration.ledger.places import reachable_folder

KINDS = Path(__file__).parents[3] / "docs" / "kinds.md"
PAGE = KINDS.read_text().partition("## A kind by configuration")[2]
FILES = {path.name: path.read_text() for path in (KINDS.parent / "examples" / "kind").iterdir()}
SESSION = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
"""What is typed, and what is printed."""
SECONDS = 90


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as found:
        yield found


def test_the_page_shows_the_row_and_names_the_files() -> None:
    assert sorted(FILES) == ["crd.yaml", "queue.yaml", "queuectl.yaml", "train.yaml"]
    assert f"```yaml\n{FILES['queuectl.yaml']}```" in PAGE
    assert [name for name in FILES if f"`{name}`" not in PAGE] == []


async def test_the_page_leads_from_nothing_to_an_object_that_is_started(folder: Path) -> None:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: there is no kubectl to type")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    assert "queuectl sandbox --empty --headless --config queuectl.yaml --data sandbox" in PAGE
    programs = f"{Path(sys.executable).parent}:{assets}:{os.environ['PATH']}"
    async with sandbox(folder / "sandbox", "--empty", "--config", str(folder / "queuectl.yaml")):
        said = await asyncio.to_thread(_typed, folder, {"PATH": programs, "HOME": str(folder)})
    assert said == SESSION


def _typed(folder: Path, environment: dict[str, str]) -> str:
    """The session as a terminal shows it here."""
    typed = re.findall(r"^\$ (.*)$", SESSION, re.MULTILINE)
    assert len(typed) == 9
    script = "".join(f"printf '%s\\n' {shlex.quote(f'$ {line}')}\n{line}\n" for line in typed)
    command = ["bash", "-ec", script]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + "\n"
