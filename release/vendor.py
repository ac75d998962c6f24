"""`make vendor`: fetch the libraries of the web page with npm, as queuectl/page/vendor/lock.json names them.

The lock has, for each package, its version, licence and npm's integrity, and the sha256 of each file as it is
served. After a change of a version: `make vendor ARGS=--renew`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from release.chart import REPOSITORY

FOLDER: Final = REPOSITORY / "queuectl" / "page" / "vendor"
LOCK: Final = FOLDER / "lock.json"
SECONDS: Final = 120


class NotVendored(Exception):
    """What was fetched is not what the lock names."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make vendor", description=__doc__)
    parser.add_argument(
        "--renew", action="store_true", help="write the hashes of what was fetched to the lock"
    )
    options = parser.parse_args()
    lock = json.loads(LOCK.read_text())
    try:
        for package in lock["packages"]:
            _vendor(package, renew=options.renew)
    except NotVendored as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
    if options.renew:
        LOCK.write_text(json.dumps(lock, indent=2) + "\n")
    return 0


def _vendor(package: dict[str, Any], *, renew: bool) -> None:
    name = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory(prefix="queuectl-vendor-") as folder:
        fetched, integrity = packed(name, Path(folder))
        _agree(package, "integrity", integrity, name, renew=renew)
        with tarfile.open(fetched) as archive:
            for file in package["files"]:
                source = archive.extractfile(f"package/{file['from']}")
                assert source is not None
                content = served(source.read().decode(), file.get("append", ""))
                _agree(file, "sha256", sha256(content), f"{name}: {file['to']}", renew=renew)
                (FOLDER / file["to"]).write_text(content, encoding="utf-8")
                print(f"{file['to']} {len(content) / 1000:.0f} kB of {name} ({package['license']})")


def packed(name: str, folder: Path) -> tuple[Path, str]:
    """Fetch a package of npm into a folder: its archive, and its integrity as npm has verified it.

    Raises SubprocessError, and OSError without npm.
    """
    pack = ["npm", "pack", name, "--json", "--pack-destination", str(folder)]
    done = subprocess.run(pack, capture_output=True, text=True, check=True, timeout=SECONDS)
    (fetched,) = json.loads(done.stdout)
    return folder / fetched["filename"], str(fetched["integrity"])


def _agree(entry: dict[str, Any], key: str, found: str, what: str, *, renew: bool) -> None:
    if renew:
        entry[key] = found
    elif entry.get(key) != found:
        raise NotVendored(f"{what}: {key} is {found}, and {entry.get(key)} in {LOCK.name}")


def served(content: str, append: str) -> str:
    """A module as browsers load it: imports by path, without a source map, with `append` after it."""
    content = content.replace('from"preact"', 'from"./preact.js"')
    lines = (line for line in content.splitlines() if not line.startswith("//# sourceMappingURL="))
    return "\n".join(lines) + "\n" + append


def sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
