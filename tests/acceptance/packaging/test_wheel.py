"""An installed queuectl works from any folder: the wheel contains migrations and manifests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
DEADLINE = 120


def test_the_wheel_finds_its_files_from_any_folder(tmp_path: Path) -> None:
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(built, cwd=REPOSITORY, check=True, capture_output=True, timeout=DEADLINE)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    target = tmp_path / "a folder" / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(target), str(wheel)], check=True, capture_output=True, timeout=DEADLINE)
    script = (
        "from queuectl.shipped import shipped; import queuectl;"
        "print(queuectl.__file__); print(shipped('migrations')); print(shipped('manifests'));"
        "assert (shipped('migrations') / 'env.py').is_file();"
        "assert (shipped('manifests') / 'kustomization.yaml').is_file();"
        "from queuectl.api.page import files; assert 'main.js' in files().files"
    )
    # -P: not the folder it is started in, and PYTHONPATH before what is installed beside the tests.
    run = [sys.executable, "-P", "-c", script]
    environment = {"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(run, cwd="/", env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(target)) for line in done.stdout.splitlines()), done.stdout
