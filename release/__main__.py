"""`make release`: build all files of a release, then check that the wheel does the main job."""

from __future__ import annotations

import argparse
from pathlib import Path

from release.artifacts import build
from release.chart import REPOSITORY
from release.check import check


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--dist", type=Path, default=REPOSITORY / "dist", help="folder of the files")
    parser.add_argument("--no-check", action="store_true", help="only build: installs nothing")
    options = parser.parse_args()
    wheel = build(options.dist)
    for line in (options.dist / "SHA256SUMS").read_text().splitlines():
        print(line)
    if not options.no_check:
        print(f"{wheel.name}, installed by pip into an empty environment: {check(wheel)} has run to its end")


if __name__ == "__main__":
    main()
