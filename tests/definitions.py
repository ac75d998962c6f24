"""Definitions of kinds as their projects publish them, without the descriptions: `read(NAME)` gives one.

`python -m tests.definitions FOLDER...` makes the files again from folders of YAML files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "crds"
PYTORCH = FOLDER / "kubeflow.org_pytorchjobs.json"


def read(name: str) -> dict[str, Any]:
    """The definition of `FOLDER/NAME.json`, for example `ray.io_rayjobs`."""
    definition: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    return definition


def described_no_more(value: Any) -> Any:
    """A copy without the texts that describe fields."""
    if isinstance(value, dict):
        described = {key: inner for key, inner in value.items() if not _is_description(key, inner)}
        return {key: described_no_more(inner) for key, inner in described.items()}
    return [described_no_more(inner) for inner in value] if isinstance(value, list) else value


def _is_description(key: str, value: Any) -> bool:
    """A field that is itself named `description` has a schema as its value."""
    return key == "description" and isinstance(value, str)


def write(folders: list[Path]) -> None:
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        definition = yaml.load(path.read_text(), yaml.CSafeLoader)
        text = json.dumps(described_no_more(definition), separators=(",", ":"), sort_keys=True)
        (FOLDER / f"{path.stem}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    write([Path(name) for name in sys.argv[1:]])
