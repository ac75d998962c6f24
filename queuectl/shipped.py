"""Location of the files that ship with the package: inside it in a wheel, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """Folder `migrations` or `manifests`. Raises FileNotFoundError if the installation is broken."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_shipped" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"queuectl's own folder {name!r} is missing from {package}: install it again")
