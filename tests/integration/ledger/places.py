"""Folders for test servers, accessible to the server's account even if the tests run as root."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def reachable_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="queuectl-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder
