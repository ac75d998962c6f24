"""Types the commands of README.md and docs/install.md as they stand there: `make first-hour`.

Each document is of a newcomer with an empty home, a clone of this checkout (what is committed), a site's
Postgres and new clusters. It installs packages and takes many minutes. Exit status 1: a command did not work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.acceptance.first_hour.play import Typed, play
from tests.acceptance.first_hour.scenes import EXCEPTIONS, SCENES
from tests.integration.ledger.places import reachable_folder


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.acceptance.first_hour", description=__doc__)
    parser.add_argument("--control-plane", choices=["small", "real"], help="default: one after the other")
    parser.add_argument("--scene", action="append", help="only scenes of this name; may be repeated")
    parser.add_argument("--data", type=Path, help="an empty folder, which stays (default: a temporary one)")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    scenes = [scene for scene in SCENES if not options.scene or scene.name in options.scene]
    found: list[tuple[str, Typed]] = []
    for kind in [options.control_plane] if options.control_plane else ["small", "real"]:
        if options.output == "text":
            print(f"on a {kind} control plane", flush=True)
        with nullcontext(options.data) if options.data else reachable_folder() as folder:
            inside = folder / kind
            inside.mkdir(mode=0o711, parents=True)
            tell = (
                (lambda typed: print(typed, flush=True)) if options.output == "text" else (lambda typed: None)
            )
            found += [(kind, typed) for typed in asyncio.run(play(inside, kind, tell, scenes))]
    failed = [typed for _, typed in found if typed.problem]
    if options.output == "json":
        print(json.dumps([_row(kind, typed) for kind, typed in found], indent=2))
    else:
        for begins, why in EXCEPTIONS.items():
            print(f"not typed: {begins}: {why}")
        print(f"{len(found)} commands, {len(failed)} failed")
    return 1 if failed else 0


def _row(kind: str, typed: Typed) -> dict[str, object]:
    return {
        "controlPlane": kind,
        "place": typed.line.place,
        "command": typed.line.text,
        "seconds": typed.seconds,
        "problem": typed.problem or None,
        "leftOut": typed.left_out or None,
    }


if __name__ == "__main__":
    sys.exit(main())
